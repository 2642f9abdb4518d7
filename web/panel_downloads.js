// @ts-check
/** The panel's part about downloads: how far each is, stop, go on, and why one failed. Nothing while there are none. */

import { isGoingOn, share } from "./downloads.js";
import { element, show, size } from "./elements.js";

/** @typedef {import("./api.js").Download} Download */
/** @typedef {import("./downloads.js").Downloads} Downloads */
/** @typedef {(key: string, values?: Record<string, string>) => string} Texts */

export class DownloadsPart {
    /**
     * @param {HTMLElement} root
     * @param {Texts} texts
     * @param {Downloads} downloads
     */
    constructor(root, texts, downloads) {
        this.root = root;
        this.texts = texts;
        this.downloads = downloads;
        this.leave = downloads.onChange(() => this.show());
        root.addEventListener("click", (event) => this.clicked(/** @type {HTMLElement} */ (event.target)));
        void downloads.refresh().catch(() => {});
        this.show();
    }

    /** @param {HTMLElement} target */
    clicked(target) {
        const button = /** @type {HTMLElement | null} */ (target.closest("[data-action]"));
        const id = button?.closest("[data-download]")?.getAttribute("data-download");
        if (!button || !id) return;
        const actions = {
            stop: () => this.downloads.stop(id),
            go_on: () => this.downloads.start(id),
            hide: () => this.downloads.hide(id),
        };
        void actions[/** @type {keyof typeof actions} */ (button.dataset.action)]();
    }

    show() {
        const shown = this.downloads.shown();
        if (!shown.length) {
            show(this.root);
            return;
        }
        const heading = element("h3", {}, this.texts("downloads"));
        const cards = shown.map((download) => this.card(download));
        show(this.root, element("section", { class: "mizuoto-section", "data-part": "downloads" }, heading, ...cards));
    }

    /** @param {Download} download */
    card(download) {
        const { id, state, message } = download;
        const name = id.slice(id.indexOf(":") + 1);
        const attributes = { class: "mizuoto-model", "data-key": id, "data-download": id, "data-state": state };
        const card = element("article", attributes, element("h4", {}, name));
        if (state !== "done") card.append(this.bar(name, download));
        card.append(element("p", { class: "mizuoto-quiet" }, this.state(download)));
        if (message) card.append(element("p", { class: "mizuoto-error", role: "alert" }, message));
        card.append(this.buttons(name, download));
        return card;
    }

    /**
     * @param {string} name
     * @param {Download} download
     */
    bar(name, download) {
        const percent = String(share(download));
        const told = { role: "progressbar", "aria-label": name, "aria-valuenow": percent, "aria-valuemin": "0", "aria-valuemax": "100" };
        return element("div", { class: "mizuoto-bar", ...told }, element("span", { class: "mizuoto-loaded", style: `width: ${percent}%` }));
    }

    /** @param {Download} download */
    state(download) {
        const text = this.texts(`download_${download.state}`);
        if (!download.total_bytes || download.state === "done") return text;
        const figures = { done: size(download.done_bytes), total: size(download.total_bytes) };
        return `${text} · ${this.texts("download_size", figures)}`;
    }

    /**
     * @param {string} name
     * @param {Download} download
     */
    buttons(name, download) {
        /** @type {string[]} */
        let actions = download.state === "done" ? ["hide"] : ["go_on", "hide"];
        if (isGoingOn(download)) actions = ["stop"];
        const buttons = actions.map((action) => {
            const tip = this.texts(`${action}_tip`, { model: name });
            const attributes = { type: "button", class: "mizuoto-button", "data-key": action, "data-action": action, title: tip, "aria-label": tip };
            const button = element("button", { ...attributes, id: `mizuoto-${action}-${download.id}` }, this.texts(action));
            if (download.state === "stopping") button.setAttribute("disabled", "");
            return button;
        });
        return element("div", { class: "mizuoto-buttons" }, ...buttons);
    }

    /** The panel was closed. */
    destroy() {
        this.leave();
    }
}
