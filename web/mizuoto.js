// @ts-check
/** What the pack adds to ComfyUI's page. */

import { app } from "../../scripts/app.js";
import { hearAll } from "./api.js";
import { showBadges } from "./badge.js";
import { Downloads } from "./downloads.js";
import { FetchButtons } from "./fetch.js";
import { Panel } from "./panel.js";
import { SettingsDialog } from "./settings.js";
import { textsOf } from "./texts.js";

/** @type {Panel | null} */
let panel = null;
/** @type {Downloads | null} */
let downloads = null;
/** @type {FetchButtons | null} */
let buttons = null;

/** The texts in the language of ComfyUI's page. */
function texts() {
    return textsOf(app.ui.settings.getSettingValue("Comfy.Locale") ?? "en");
}

/** The page's only one, whoever needs it first. */
function allDownloads() {
    downloads ??= new Downloads(app, texts());
    return downloads;
}

function addStyles() {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL("./panel.css", import.meta.url).href;
    document.head.append(link);
}

/** An empty text box of the pack's shows its label, translated, and not the input's id. @param {any} node */
function labelTextBoxes(node) {
    if (!node.comfyClass?.startsWith("Mizuoto")) return;
    for (const { element, label, name } of node.widgets ?? []) {
        if (element instanceof HTMLTextAreaElement && element.placeholder === name && label) element.placeholder = label;
    }
}

hearAll();

app.registerExtension({
    name: "mizuoto.panel",
    async setup() {
        addStyles();
        const told = texts();
        showBadges(app, told);
        app.extensionManager.registerSidebarTab({
            id: "mizuoto",
            icon: "pi pi-volume-up",
            title: told("title"),
            tooltip: told("tooltip"),
            type: "custom",
            render: (/** @type {HTMLElement} */ root) => {
                panel?.destroy();
                const place = document.createElement("div");
                place.style.cssText = "padding: 12px; height: 100%; overflow-y: auto; box-sizing: border-box";
                root.replaceChildren(place);
                panel = new Panel(place, told, allDownloads());
            },
            destroy: () => {
                panel?.destroy();
                panel = null;
            },
        });
        await new SettingsDialog(app, told).start();
    },
    async nodeCreated(node) {
        labelTextBoxes(node);
        buttons ??= new FetchButtons(app, texts(), allDownloads());
        await buttons.add(node);
    },
});
