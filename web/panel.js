// @ts-check
/** The sidebar tab: who holds the device, each model's weights, what may be done about them, the policy in force. */

import { act, fetchRuntime, onLost, onQueueEmpty, onReconnected, onRuntime, Unreachable } from "./api.js";
import { element, megabytes, show } from "./elements.js";
import { DownloadsPart } from "./panel_downloads.js";

/** @typedef {import("./api.js").Runtime} Runtime */
/** @typedef {import("./api.js").Model} Model */
/** @typedef {(key: string, values?: Record<string, string>) => string} Texts */

const SHARES = ["application", "own", "other", "free"];
const PARTS = ["loaded", "streamed", "host"];

const DAY_MS = 24 * 3600 * 1000;

export class Panel {
    /**
     * @param {HTMLElement} root
     * @param {Texts} texts
     * @param {import("./downloads.js").Downloads} downloads
     */
    constructor(root, texts, downloads) {
        this.texts = texts;
        this.heard = 0;
        this.body = element("div", { "data-testid": "mizuoto-body" });
        this.notice = element("p", { class: "mizuoto-notice", role: "status", "aria-live": "polite" });
        const arriving = element("div", { class: "mizuoto-arriving" });
        root.replaceChildren(element("div", { class: "mizuoto-panel", "data-testid": "mizuoto-panel" }, this.notice, arriving, this.body));
        this.body.addEventListener("click", (event) => this.clicked(/** @type {HTMLElement} */ (event.target)));
        this.arriving = new DownloadsPart(arriving, texts, downloads);
        this.leave = [
            onRuntime((runtime) => this.told(runtime)),
            onQueueEmpty(() => void this.refresh()),
            onLost(() => this.say(texts("lost", { time: this.clock(new Date()) }))),
            onReconnected(() => {
                this.say("");
                void this.refresh();
            }),
        ];
        void this.refresh();
    }

    /** The tab was closed. */
    destroy() {
        for (const leave of this.leave) leave();
        this.arriving.destroy();
    }

    /** A time of day, with its date if it is a day ago or more. @param {Date} time */
    clock(time) {
        const locale = this.texts("locale") || undefined;
        if (Date.now() - time.getTime() < DAY_MS) return time.toLocaleTimeString(locale, { timeStyle: "short" });
        return time.toLocaleString(locale, { dateStyle: "short", timeStyle: "short" });
    }

    /** @param {string} text */
    say(text) {
        this.notice.textContent = text;
    }

    /** @param {Runtime} runtime */
    told(runtime) {
        this.heard += 1;
        this.show(runtime);
    }

    /** Shows the answer, unless the server has told of something newer meanwhile. @param {Promise<Runtime>} answer */
    async showAnswer(answer) {
        const before = this.heard;
        const runtime = await answer;
        if (this.heard === before) this.show(runtime);
    }

    async refresh() {
        if (!this.body.querySelector("[data-part]")) this.wait();
        try {
            await this.showAnswer(fetchRuntime());
        } catch (error) {
            this.fail(error);
        }
    }

    wait() {
        const lines = ["40%", "100%", "70%"].map((width) => element("div", { class: "mizuoto-waiting", style: `width: ${width}` }));
        const text = element("p", { class: "mizuoto-quiet" }, this.texts("loading"));
        show(this.body, element("div", { class: "mizuoto-state", "data-key": "loading", "aria-busy": "true" }, ...lines, text));
    }

    /** @param {unknown} error */
    fail(error) {
        const [heading, next] = error instanceof Unreachable ? ["unreachable", "unreachable_next"] : ["failed", "failed_next"];
        const attributes = { type: "button", class: "mizuoto-button", id: "mizuoto-again", "data-action": "again" };
        const state = element(
            "div",
            { class: "mizuoto-state", "data-key": "failed", role: "alert" },
            element("i", { class: "pi pi-exclamation-triangle mizuoto-sign mizuoto-error", "aria-hidden": "true" }),
            element("h3", {}, this.texts(heading)),
            element("p", { class: "mizuoto-error" }, error instanceof Error ? error.message : String(error)),
            element("p", { class: "mizuoto-quiet" }, this.texts(next)),
            element("button", attributes, this.texts("again")),
        );
        show(this.body, state);
    }

    /** @param {Runtime} runtime */
    show(runtime) {
        show(this.body, this.device(runtime), this.models(runtime), this.policy(runtime));
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
        if (!models.length) section.append(this.empty());
        for (const model of models) section.append(this.model(model, shares !== null));
        if (models.length && shares) section.append(this.legend(Object.fromEntries(PARTS.map((part) => [part, null]))));
        return section;
    }

    empty() {
        const icon = element("i", { class: "pi pi-volume-up mizuoto-sign", "aria-hidden": "true" });
        return element("div", { class: "mizuoto-state mizuoto-quiet" }, icon, element("p", {}, this.texts("empty")));
    }

    /**
     * @param {Model} model
     * @param {boolean} moves
     */
    model(model, moves) {
        const since = this.clock(new Date(Date.now() - model.idle_seconds * 1000));
        const state = model.busy ? this.texts("busy") : this.texts("idle", { time: since });
        const devices = new Set(model.components.map((part) => part.device));
        const marks = [megabytes(model.size_bytes), ...devices, state, ...(model.pinned ? [this.texts("pinned")] : [])];
        const card = element(
            "article",
            { class: "mizuoto-model", "data-key": model.id, "data-model": model.id, "data-busy": String(model.busy) },
            element("h4", {}, `${model.engine_label} · ${model.model}`),
            element("p", { class: "mizuoto-quiet" }, marks.join(" · ")),
        );
        for (const part of model.components) {
            const sizes = { loaded: part.loaded_bytes, streamed: part.streamed_bytes, host: part.host_bytes };
            const amount = `${megabytes(part.loaded_bytes)} / ${megabytes(part.size_bytes)}`;
            card.append(
                element("p", { class: "mizuoto-part" }, element("span", {}, part.name), element("span", {}, amount)),
                this.bar(part.name, sizes, part.size_bytes),
            );
        }
        card.append(this.buttons(model, moves));
        return card;
    }

    /**
     * @param {Model} model
     * @param {boolean} moves
     */
    buttons(model, moves) {
        /** @type {("unload" | "offload" | "pin" | "unpin")[]} */
        const actions = ["unload", ...(moves ? /** @type {"offload"[]} */ (["offload"]) : []), model.pinned ? "unpin" : "pin"];
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
        return button;
    }

    /** @param {HTMLElement} target */
    clicked(target) {
        const button = /** @type {HTMLElement | null} */ (target.closest("[data-action]"));
        const action = button?.dataset.action;
        const id = button?.closest("[data-model]")?.getAttribute("data-model");
        if (action === "again") {
            show(this.body);
            void this.refresh();
        } else if (action && id) {
            void this.act(id, /** @type {"unload" | "offload" | "pin" | "unpin"} */ (action));
        }
    }

    /**
     * @param {string} id
     * @param {"unload" | "offload" | "pin" | "unpin"} action
     */
    async act(id, action) {
        this.say("");
        try {
            await this.showAnswer(act(id, action));
        } catch (error) {
            this.say(this.texts("refused", { why: error instanceof Error ? error.message : String(error) }));
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
