// @ts-check
/** The button on a loader node: fetches the chosen model, only when it is pressed, and shows how far that is. */

import { cancelFetch, fetchEngines, fetchModel, onDownload } from "./api.js";

/** @typedef {import("./api.js").PublishedModel} PublishedModel */
/** @typedef {import("./api.js").Download} Download */
/** @typedef {import("../../scripts/app.js").App} App */
/** @typedef {(key: string, values?: Record<string, string>) => string} Texts */

const RUNNING = ["waiting", "running"];

/** @param {number} bytes */
function size(bytes) {
    return bytes < 1 << 30 ? `${Math.round(bytes / (1 << 20))} MB` : `${(bytes / (1 << 30)).toFixed(1)} GB`;
}

export class FetchButtons {
    /**
     * @param {App} app
     * @param {Texts} texts
     */
    constructor(app, texts) {
        this.app = app;
        this.texts = texts;
        /** What can be chosen, by engine and model. @type {Map<string, PublishedModel>} */
        this.models = new Map();
        /** The engine of each loader node's class. @type {Map<string, string>} */
        this.engines = new Map();
        /** @type {Map<string, Download>} */
        this.downloads = new Map();
        /** @type {Set<any>} */
        this.nodes = new Set();
        onDownload((download) => void this.heard(download));
    }

    /** Asks the server what is installed, and shows it. */
    async refresh() {
        for (const engine of await fetchEngines()) {
            this.engines.set(engine.loader_node, engine.id);
            for (const model of engine.models) this.models.set(`${engine.id}:${model.id}`, model);
        }
        for (const node of this.nodes) this.show(node);
    }

    /** A node was made: a loader gets its button. @param {any} node */
    async add(node) {
        if (!/^Mizuoto\w+Model$/.test(node.comfyClass ?? "")) return;
        const menu = node.widgets?.find((/** @type {any} */ one) => one.name === "model");
        if (!menu) return;
        const button = node.addWidget("button", "mizuoto_fetch", null, () => void this.pressed(node), { serialize: false });
        button.serialize = false;
        node.mizuoto_button = button;
        this.nodes.add(node);
        const changed = menu.callback;
        menu.callback = (/** @type {unknown[]} */ ...values) => {
            changed?.apply(menu, values);
            this.show(node);
        };
        const removed = node.onRemoved;
        node.onRemoved = () => {
            this.nodes.delete(node);
            removed?.call(node);
        };
        if (!this.models.size) await this.refresh().catch(() => {});
        this.show(node);
    }

    /** @param {any} node */
    id(node) {
        const menu = node.widgets.find((/** @type {any} */ one) => one.name === "model");
        return `${this.engines.get(node.comfyClass)}:${menu.value}`;
    }

    /** @param {any} node */
    show(node) {
        const id = this.id(node);
        const label = this.label(this.models.get(id), this.downloads.get(id));
        node.mizuoto_button.label = label;
        node.mizuoto_button.disabled = !this.canPress(this.models.get(id));
        this.app.graph?.setDirtyCanvas(true, true);
    }

    /** @param {PublishedModel | undefined} model */
    canPress(model) {
        return Boolean(model && model.fetchable && !model.installed);
    }

    /**
     * @param {PublishedModel | undefined} model
     * @param {Download | undefined} download
     */
    label(model, download) {
        if (model?.installed) return this.texts("installed");
        if (!model?.fetchable) return this.texts("by_hand");
        if (!download || !RUNNING.includes(download.state)) return this.texts("fetch", { size: size(model.size_bytes) });
        const share = download.total_bytes ? Math.floor((100 * download.done_bytes) / download.total_bytes) : 0;
        return this.texts("fetching", { share: String(share) });
    }

    /** @param {any} node */
    async pressed(node) {
        const id = this.id(node);
        const model = this.models.get(id);
        if (!model || !this.canPress(model)) return;
        try {
            if (RUNNING.includes(this.downloads.get(id)?.state ?? "")) {
                await cancelFetch(id);
                return;
            }
            if (model.restricts && !(await this.accepted(model))) return;
            await this.heard(await fetchModel(id, model.restricts));
        } catch (error) {
            this.complain(error instanceof Error ? error.message : String(error));
        }
    }

    /** @param {PublishedModel} model */
    async accepted(model) {
        const message = this.texts("licence", { model: model.id, licence: model.licence });
        return Boolean(await this.app.extensionManager.dialog.confirm({ title: this.texts("title"), message }));
    }

    /** @param {Download} download */
    async heard(download) {
        this.downloads.set(download.id, download);
        if (download.state === "failed") this.complain(download.message);
        if (download.state === "done") {
            await this.refresh();
            await this.app.refreshComboInNodes();
        }
        for (const node of this.nodes) this.show(node);
    }

    /** @param {string} detail */
    complain(detail) {
        this.app.extensionManager.toast.add({ severity: "error", summary: this.texts("title"), detail, life: 12000 });
    }
}
