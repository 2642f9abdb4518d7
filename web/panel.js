// @ts-check
/** The sidebar tab: who holds the device, each model's weights, what may be done about them, the policy in force. */

import { act, fetchRuntime, onReconnected, onRuntime } from "./api.js";

/** @typedef {import("./api.js").Runtime} Runtime */
/** @typedef {import("./api.js").Model} Model */
/** @typedef {(key: string, values?: Record<string, string>) => string} Texts */

const SHARES = ["application", "own", "other", "free"];
const PARTS = ["loaded", "streamed", "host"];
const BYTES_PER_MB = 1 << 20;

/** @param {number} bytes */
export function megabytes(bytes) {
    return `${Math.round(bytes / BYTES_PER_MB).toLocaleString("en")} MB`;
}

/**
 * An element with attributes and children. Texts are never read as HTML.
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node | string)} children
 */
function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
}

export class Panel {
    /**
     * @param {HTMLElement} root
     * @param {Texts} texts
     */
    constructor(root, texts) {
        this.texts = texts;
        this.body = element("div", { class: "mizuoto-panel", "data-testid": "mizuoto-panel" });
        this.notice = element("p", { class: "mizuoto-notice", role: "status", "aria-live": "polite" });
        root.replaceChildren(this.notice, this.body);
        this.leave = [onRuntime((runtime) => this.show(runtime)), onReconnected(() => void this.refresh())];
        void this.refresh();
    }

    /** The tab was closed. */
    destroy() {
        for (const leave of this.leave) leave();
    }

    async refresh() {
        if (!this.body.hasChildNodes()) this.body.append(element("p", { class: "mizuoto-quiet" }, this.texts("loading")));
        try {
            this.show(await fetchRuntime());
        } catch (error) {
            this.fail(error instanceof Error ? error.message : String(error));
        }
    }

    /** @param {string} why */
    fail(why) {
        const again = element("button", { type: "button", class: "mizuoto-button" }, this.texts("again"));
        again.addEventListener("click", () => {
            this.body.replaceChildren();
            void this.refresh();
        });
        const message = element("p", { class: "mizuoto-error", role: "alert" }, this.texts("failed", { why }));
        this.body.replaceChildren(message, again);
    }

    /** @param {Runtime} runtime */
    show(runtime) {
        const focused = this.body.contains(document.activeElement) ? document.activeElement?.id : "";
        this.body.replaceChildren(this.device(runtime), this.models(runtime), this.policy(runtime));
        if (focused) document.getElementById(focused)?.focus();
    }

    /** @param {Runtime} runtime */
    device({ device, shares, ram }) {
        const name = [device.product || device.name, device.error].filter(Boolean).join(": ");
        const section = this.section("device", element("p", { class: "mizuoto-name" }, name));
        if (!shares) {
            const figures = { free: megabytes(ram.free_bytes), total: megabytes(ram.total_bytes) };
            section.append(element("p", { class: "mizuoto-quiet" }, this.texts("ram", figures)));
            return section;
        }
        const sizes = Object.fromEntries(SHARES.map((part) => [part, shares[/** @type {keyof typeof shares} */ (`${part}_bytes`)]]));
        section.append(this.bar(name, sizes, shares.total_bytes), this.legend(sizes));
        return section;
    }

    /** @param {Runtime} runtime */
    models({ models, shares }) {
        const section = this.section("models");
        if (!models.length) section.append(element("p", { class: "mizuoto-quiet" }, this.texts("empty")));
        for (const model of models) section.append(this.model(model, shares !== null));
        return section;
    }

    /**
     * @param {Model} model
     * @param {boolean} moves
     */
    model(model, moves) {
        const since = new Date(Date.now() - model.idle_seconds * 1000).toLocaleTimeString([], { timeStyle: "short" });
        const state = model.busy ? this.texts("busy") : this.texts("idle", { time: since });
        const marks = [state, ...(model.pinned ? [this.texts("pinned")] : [])].join(", ");
        const card = element(
            "article",
            { class: "mizuoto-model", "data-model": model.id, "data-busy": String(model.busy) },
            element("h4", {}, `${model.engine_label} · ${model.model}`),
            element("p", { class: "mizuoto-quiet" }, `${megabytes(model.size_bytes)}, ${marks}`),
        );
        for (const part of model.components) {
            const sizes = { loaded: part.loaded_bytes, streamed: part.streamed_bytes, host: part.host_bytes };
            const amount = `${megabytes(part.loaded_bytes)} / ${megabytes(part.size_bytes)}`;
            card.append(
                element("p", { class: "mizuoto-part" }, element("span", {}, part.name), element("span", {}, amount)),
                this.bar(part.name, sizes, part.size_bytes),
            );
        }
        if (moves) card.append(this.legend(Object.fromEntries(PARTS.map((part) => [part, null]))));
        card.append(this.buttons(model, moves));
        return card;
    }

    /**
     * @param {Model} model
     * @param {boolean} moves
     */
    buttons(model, moves) {
        /** @type {("unload" | "offload" | "pin" | "unpin")[]} */
        const actions = moves ? ["unload", "offload", model.pinned ? "unpin" : "pin"] : ["unload"];
        return element("div", { class: "mizuoto-buttons" }, ...actions.map((action) => this.button(model, action)));
    }

    /**
     * @param {Model} model
     * @param {"unload" | "offload" | "pin" | "unpin"} action
     */
    button(model, action) {
        const tip = this.texts(`${action}_tip`, { model: model.model });
        const slot = action === "unpin" ? "pin" : action;
        const attributes = { type: "button", class: "mizuoto-button", id: `mizuoto-${slot}-${model.id}`, title: tip };
        const button = element("button", { ...attributes, "aria-label": tip, "data-action": action }, this.texts(action));
        if (model.busy && slot !== "pin") button.setAttribute("disabled", "");
        button.addEventListener("click", () => void this.act(model, action));
        return button;
    }

    /**
     * @param {Model} model
     * @param {"unload" | "offload" | "pin" | "unpin"} action
     */
    async act(model, action) {
        this.notice.textContent = "";
        try {
            this.show(await act(model.id, action));
        } catch (error) {
            this.notice.textContent = this.texts("refused", { why: error instanceof Error ? error.message : String(error) });
        }
    }

    /** @param {Runtime} runtime */
    policy({ memory, shares, settings }) {
        const { policy } = memory;
        const limit = Number(policy.limit_bytes);
        const reserve = memory.shares_device ? "reserve_shared" : "reserve";
        const rows = [
            ["mode", String(policy.mode), "vram_mode"],
            [reserve, megabytes(memory.reserve_bytes), memory.shares_device ? "" : "vram_reserve_mb"],
            ["limit", limit ? megabytes(limit) : this.texts("no_limit"), "vram_limit_mb"],
            ["host_copies", String(policy.host_copies), "host_copies"],
            ["retry", this.texts(policy.oom_retry ? "on" : "off"), "oom_retry"],
            ["fallback", this.texts(policy.oom_fallback ? "on" : "off"), "oom_fallback"],
            ["kv_cache", String(policy.kv_cache), "kv_cache"],
        ];
        const shown = shares ? rows : rows.filter(([key]) => key === "kv_cache");
        const list = element("dl", { class: "mizuoto-policy" });
        for (const [key, value, name] of shown) {
            const why = element("span", { class: "mizuoto-quiet" }, this.why(name, settings));
            list.append(element("dt", {}, this.texts(key)), element("dd", {}, `${value} `, why));
        }
        return this.section("policy", list);
    }

    /**
     * Where a value is from.
     * @param {string} name
     * @param {Runtime["settings"]} settings
     */
    why(name, settings) {
        const setting = settings[`compute.${name}`];
        if (!setting || (name === "vram_mode" && setting.value === "auto")) return this.texts("by_comfyui");
        if (setting.source === "default") return this.texts("by_default");
        return setting.source === "saved" ? this.texts("by_user") : setting.source;
    }

    /**
     * @param {string} key
     * @param {...Node} children
     */
    section(key, ...children) {
        return element("section", { class: "mizuoto-section", "data-part": key }, element("h3", {}, this.texts(key)), ...children);
    }

    /**
     * @param {string} name
     * @param {Record<string, number>} sizes
     * @param {number} total
     */
    bar(name, sizes, total) {
        const entries = Object.entries(sizes);
        const parts = entries.map(([part, bytes]) => `${this.texts(part)} ${megabytes(bytes)}`).join(", ");
        const bar = element("div", { class: "mizuoto-bar", role: "img", "aria-label": this.texts("bar", { name, parts }), title: parts });
        for (const [part, bytes] of entries) {
            const slice = element("span", { class: `mizuoto-${part}`, "data-bytes": String(bytes) });
            slice.style.width = total ? `${(100 * bytes) / total}%` : "0";
            bar.append(slice);
        }
        return bar;
    }

    /** @param {Record<string, number | null>} sizes */
    legend(sizes) {
        const entries = Object.entries(sizes).map(([part, bytes]) => {
            const amount = bytes === null ? "" : ` ${megabytes(bytes)}`;
            return element("li", {}, element("span", { class: `mizuoto-dot mizuoto-${part}`, "aria-hidden": "true" }), this.texts(part) + amount);
        });
        return element("ul", { class: "mizuoto-legend" }, ...entries);
    }
}
