// @ts-check
/** The runtime's settings in ComfyUI's own dialog. They are kept by the pack's server; what it refuses is put back. */

import { fetchSettings, fetchTranslations, onReconnected, onSettings, patchSettings } from "./api.js";

/** @typedef {import("./api.js").Setting} Setting */
/** @typedef {(key: string, values?: Record<string, string>) => string} Texts */

/** Not the name in the locale files: some editors would show the English text of those in every language. */
const PREFIX = "Mizuoto.setting.";
const GROUPS = { compute: "Memory", engines: "Engines", fetch: "Models" };

/** What the dialog shows of a value: lists and numbers that may be empty are texts. @param {Setting} setting */
function shown({ value, type }) {
    if (type === "names") return /** @type {string[]} */ (value).join(", ");
    if (type === "optional_integer") return value === null ? "" : String(value);
    return value;
}

/**
 * What the server is told of a value in the dialog.
 * @param {Setting} setting
 * @param {unknown} value
 */
function told({ type }, value) {
    if (type === "names") {
        const names = String(value).split(",").map((name) => name.trim());
        return names.filter(Boolean);
    }
    if (type === "address") return String(value).trim() || null;
    if (type !== "optional_integer") return value;
    const text = String(value).trim();
    if (!text) return null;
    return /^-?\d+$/.test(text) ? Number(text) : text;
}

/** @param {Setting} setting */
function widget({ type, choices, low, high, locked }) {
    const attrs = { ...(locked ? { disabled: true } : {}) };
    if (type === "choice") return { type: "combo", options: choices, attrs };
    if (type === "boolean") return { type: "boolean", attrs };
    if (type === "integer") return { type: "number", attrs: { ...attrs, min: low, max: high, useGrouping: false } };
    return { type: "text", attrs };
}

/** A locale's text as it is shown: the signs that its format would read stand in quotes there. @param {string} text */
function plain(text) {
    return text.replace(/\{'(.)'\}/g, "$1");
}

export class SettingsDialog {
    /**
     * @param {import("../../scripts/app.js").App} app
     * @param {Texts} texts
     */
    constructor(app, texts) {
        this.app = app;
        this.texts = texts;
        /** @type {Map<string, Setting>} */
        this.known = new Map();
        this.asked = 0;
    }

    /** Adds the settings, or says why there are none. */
    async start() {
        await this.add().catch((error) => this.complain(error));
    }

    /** Adds every setting that makes sense there, with the server's value, now and whenever another page changes it. */
    async add() {
        const settings = await fetchSettings();
        const translations = await fetchTranslations(this.texts("language")).catch(() => ({}));
        onSettings(() => void this.refresh());
        onReconnected(() => void this.refresh());
        for (const [place, setting] of settings.entries()) {
            const group = /** @type {Record<string, string>} */ (GROUPS)[setting.name.split(".")[0]];
            if (!group) continue;
            this.known.set(setting.name, setting);
            this.app.ui.settings.addSetting({
                id: PREFIX + setting.name,
                ...this.words(setting, group, translations),
                sortOrder: settings.length - place,
                defaultValue: shown({ ...setting, value: setting.default }),
                onChange: (/** @type {unknown} */ value, /** @type {unknown} */ before) => {
                    if (before !== undefined) void this.changed(setting.name, value);
                },
                ...widget(setting),
            });
            await this.put(setting);
        }
    }

    /**
     * Name, tooltip and category in the page's language, also where ComfyUI doesn't look for a pack's translations.
     * @param {Setting} setting
     * @param {string} group
     * @param {Awaited<ReturnType<typeof fetchTranslations>>} translations
     */
    words(setting, group, { settings, settingsCategories }) {
        const words = settings?.[`Mizuoto_${setting.name.replace(/\./g, "_")}`];
        const [name, help] = words ? [plain(words.name), plain(words.tooltip)] : [setting.label, setting.help];
        const tooltip = setting.locked ? `${help} (${setting.lock_reason})` : help;
        return { name, tooltip, category: [this.texts("title"), settingsCategories?.[group] ?? group, name] };
    }

    /** Shows what the server has now. An answer that a later question has overtaken is dropped. */
    async refresh() {
        const number = ++this.asked;
        const settings = await fetchSettings().catch(() => []);
        if (number === this.asked) await this.take(settings);
    }

    /** @param {Setting[]} settings */
    async take(settings) {
        const shownOnes = settings.filter(({ name }) => this.known.has(name));
        for (const setting of shownOnes) this.known.set(setting.name, setting);
        for (const setting of shownOnes) await this.put(setting);
    }

    /** Shows what the server has, also where ComfyUI remembers another value. @param {Setting} setting */
    async put(setting) {
        const store = this.app.extensionManager.setting;
        if (store.get(PREFIX + setting.name) !== shown(setting)) await store.set(PREFIX + setting.name, shown(setting));
    }

    /**
     * @param {string} name
     * @param {unknown} value
     */
    async changed(name, value) {
        const before = /** @type {Setting} */ (this.known.get(name));
        if (value === shown(before)) return;
        const number = ++this.asked;
        try {
            const settings = await patchSettings({ [name]: told(before, value) });
            if (number === this.asked) await this.take(settings);
        } catch (error) {
            this.complain(error);
            await this.put(/** @type {Setting} */ (this.known.get(name)));
        }
    }

    /** @param {unknown} error */
    complain(error) {
        const detail = error instanceof Error ? error.message : String(error);
        this.app.extensionManager.toast.add({ severity: "error", summary: this.texts("title"), detail, life: 8000 });
    }
}
