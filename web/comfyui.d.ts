/** ComfyUI's own scripts, as far as the pack uses them. */

interface Window {
    LGraphBadge: new (options: { text: string; fgColor: string; bgColor: string }) => object;
}

declare module "*/scripts/api.js" {
    export const api: {
        fetchApi(path: string, options?: RequestInit): Promise<Response>;
        addEventListener(name: string, listener: (event: any) => void): void;
        removeEventListener(name: string, listener: (event: any) => void): void;
    };
}

declare module "*/scripts/app.js" {
    interface SidebarTab {
        id: string;
        icon: string;
        title: string;
        tooltip: string;
        type: "custom";
        render(root: HTMLElement): void;
        destroy?(): void;
    }

    export interface App {
        graph: { getNodeById(id: string): any; setDirtyCanvas(front: boolean, back: boolean): void };
        refreshComboInNodes(): Promise<void>;
        registerExtension(extension: {
            name: string;
            setup?(): void | Promise<void>;
            nodeCreated?(node: any): void | Promise<void>;
        }): void;
        ui: { settings: { addSetting(setting: object): void; getSettingValue(id: string): string | undefined } };
        extensionManager: {
            registerSidebarTab(tab: SidebarTab): void;
            setting: { get(id: string): unknown; set(id: string, value: unknown): Promise<void> };
            dialog: { confirm(options: { title: string; message: string }): Promise<boolean | null> };
            toast: { add(message: object): void };
        };
    }

    export const app: App;
}
