// @ts-check
/** The button on a loader node: fetches the chosen model, only when it is pressed, and shows how far that is. */

import { isGoingOn, share } from "./downloads.js";
import { size } from "./elements.js";

/** @typedef {import("./api.js").PublishedModel} PublishedModel */
/** @typedef {import("./api.js").Download} Download */
/** @typedef {import("./downloads.js").Downloads} Downloads */
/** @typedef {import("../../scripts/app.js").App} App */
/** @typedef {(key: string, values?: Record<string, string>) => string} Texts */

export class FetchButtons {
    /**
     * @param {App} app
     * @param {Texts} texts
     * @param {Downloads} downloads
     */
    constructor(app, texts, downloads) {
        this.app = app;
        this.texts = texts;
        this.downloads = downloads;
        /** @type {Set<any>} */
        this.nodes = new Set();
        downloads.onChange(() => {
            for (const node of this.nodes) this.show(node);
        });
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
        if (!this.downloads.models.size) await this.downloads.refresh().catch(() => {});
        this.show(node);
    }

    /** @param {any} node */
    id(node) {
        const menu = node.widgets.find((/** @type {any} */ one) => one.name === "model");
        return `${this.downloads.engines.get(node.comfyClass)}:${menu.value}`;
    }

    /** @param {any} node */
    show(node) {
        const id = this.id(node);
        const [model, download] = [this.downloads.models.get(id), this.downloads.known.get(id)];
        node.mizuoto_button.label = this.label(model, download);
        node.mizuoto_button.disabled = !this.canPress(model) || download?.state === "stopping";
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
        if (!download || !isGoingOn(download)) return this.texts("fetch", { size: size(model.size_bytes) });
        if (download.state === "stopping") return this.texts("stopping");
        return this.texts("fetching", { share: String(share(download)) });
    }

    /** @param {any} node */
    async pressed(node) {
        const id = this.id(node);
        if (!this.canPress(this.downloads.models.get(id))) return;
        if (isGoingOn(this.downloads.known.get(id))) await this.downloads.stop(id);
        else await this.downloads.start(id);
    }
}
