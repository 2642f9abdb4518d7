// @ts-check
/** The downloads of models, wherever they are shown: on loader nodes and in the panel. */

import { cancelFetch, fetchDownloads, fetchEngines, fetchModel, onDownload, onReconnected } from "./api.js";

/** @typedef {import("./api.js").PublishedModel} PublishedModel */
/** @typedef {import("./api.js").Download} Download */
/** @typedef {import("../../scripts/app.js").App} App */
/** @typedef {(key: string, values?: Record<string, string>) => string} Texts */

const GOING_ON = ["waiting", "running", "stopping"];

/** @param {Download | undefined} download */
export function isGoingOn(download) {
    return download !== undefined && GOING_ON.includes(download.state);
}

/** How much has come, in percent. @param {Download} download */
export function share({ done_bytes, total_bytes }) {
    return total_bytes ? Math.floor((100 * done_bytes) / total_bytes) : 0;
}

export class Downloads {
    /**
     * @param {App} app
     * @param {Texts} texts
     */
    constructor(app, texts) {
        this.app = app;
        this.texts = texts;
        /** What can be had, by engine and model. @type {Map<string, PublishedModel>} */
        this.models = new Map();
        /** The engine of each loader node's class. @type {Map<string, string>} */
        this.engines = new Map();
        /** What was started, and not put away since. @type {Map<string, Download>} */
        this.known = new Map();
        /** @type {Set<string>} */
        this.hidden = new Set();
        /** @type {Set<() => void>} */
        this.listeners = new Set();
        onDownload((download) => void this.heard(download).catch((error) => this.failed(error)));
        onReconnected(() => void this.refresh().catch(() => {}));
    }

    /** Calls `listener` whenever something changes. @param {() => void} listener */
    onChange(listener) {
        this.listeners.add(listener);
        return () => this.listeners.delete(listener);
    }

    changed() {
        for (const listener of this.listeners) listener();
    }

    /** Asks the server what there is, what is installed, and what is on its way. */
    async refresh() {
        const [engines, downloads] = await Promise.all([fetchEngines(), fetchDownloads()]);
        this.take(engines);
        const still = downloads.filter(({ state }) => state !== "done");
        this.known = new Map(still.map((download) => [download.id, download]));
        this.changed();
    }

    /** @param {{id: string, loader_node: string, models: PublishedModel[]}[]} engines */
    take(engines) {
        for (const engine of engines) {
            this.engines.set(engine.loader_node, engine.id);
            for (const model of engine.models) this.models.set(`${engine.id}:${model.id}`, model);
        }
    }

    /** Those to be shown, the latest first. */
    shown() {
        return [...this.known.values()].filter(({ id }) => !this.hidden.has(id)).reverse();
    }

    /** Shows one that has ended no more. @param {string} id */
    hide(id) {
        this.hidden.add(id);
        this.changed();
    }

    /**
     * Fetches a model, or goes on with it, once its licence is accepted where it restricts. What the server has told of
     * it meanwhile is newer than its answer.
     * @param {string} id
     */
    async start(id) {
        try {
            if (!this.models.has(id)) this.take(await fetchEngines());
            const model = this.models.get(id);
            if (!model || (model.restricts && !(await this.accepted(model)))) return;
            this.known.delete(id);
            const begun = await fetchModel(id, model.restricts);
            if (!this.known.has(id)) await this.heard(begun);
        } catch (error) {
            this.failed(error);
        }
    }

    /** @param {string} id */
    async stop(id) {
        try {
            await cancelFetch(id);
        } catch (error) {
            this.failed(error);
        }
    }

    /** @param {PublishedModel} model */
    async accepted(model) {
        const message = this.texts("licence", { model: model.id, licence: model.licence });
        return Boolean(await this.app.extensionManager.dialog.confirm({ title: this.texts("title"), message }));
    }

    /** @param {Download} download */
    async heard(download) {
        this.known.set(download.id, download);
        if (isGoingOn(download)) this.hidden.delete(download.id);
        if (download.state === "failed") this.complain(download.message);
        this.changed();
        if (download.state !== "done") return;
        this.take(await fetchEngines());
        await this.app.refreshComboInNodes();
        this.changed();
    }

    /** @param {unknown} error */
    failed(error) {
        this.complain(error instanceof Error ? error.message : String(error));
    }

    /** @param {string} detail */
    complain(detail) {
        this.app.extensionManager.toast.add({ severity: "error", summary: this.texts("title"), detail, life: 12000 });
    }
}
