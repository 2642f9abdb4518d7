// @ts-check
/** Requests to the pack's own routes. Every failure is an Error whose message can be shown. */

import { api } from "../../scripts/api.js";

const ROOT = "/mizuoto/v1";

/**
 * @typedef {object} Component
 * @property {string} name
 * @property {string} device
 * @property {number} size_bytes
 * @property {number} loaded_bytes
 * @property {number} streamed_bytes
 * @property {number} host_bytes
 * @property {boolean} busy
 */

/**
 * @typedef {object} Model
 * @property {string} id
 * @property {string} engine_label
 * @property {string} model
 * @property {boolean} busy
 * @property {number} idle_seconds
 * @property {boolean} pinned
 * @property {number} size_bytes
 * @property {Component[]} components
 */

/**
 * @typedef {object} Shares
 * @property {number} total_bytes
 * @property {number} own_bytes
 * @property {number} application_bytes
 * @property {number} other_bytes
 * @property {number} free_bytes
 */

/**
 * @typedef {object} Runtime
 * @property {{name: string, product: string, kind: string, error: string}} device
 * @property {Shares | null} shares
 * @property {{total_bytes: number, free_bytes: number, reserve_bytes: number}} ram
 * @property {Model[]} models
 * @property {{policy: Record<string, unknown>, reserve_bytes: number, shares_device: boolean}} memory
 * @property {Record<string, {value: unknown, source: string}>} settings
 */

/**
 * @typedef {object} Setting
 * @property {string} name
 * @property {string} label
 * @property {string} help
 * @property {"choice" | "boolean" | "integer" | "optional_integer" | "number" | "text" | "names" | "address"} type
 * @property {unknown} default
 * @property {number | null} low
 * @property {number | null} high
 * @property {string[]} choices
 * @property {unknown} value
 * @property {string} source
 * @property {boolean} locked
 * @property {string} lock_reason
 */

/** Nobody answered. */
export class Unreachable extends Error {}

/**
 * @param {string} method
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>}
 */
async function asked(method, path, body) {
    const sent = body ? { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } } : {};
    let answer;
    try {
        answer = await api.fetchApi(ROOT + path, { method, cache: "no-store", ...sent });
    } catch (error) {
        throw new Unreachable(String(error));
    }
    const content = await answer.json().catch(() => null);
    if (!answer.ok) throw new Error(content?.error?.message ?? `${answer.status} ${answer.statusText}`);
    return content;
}

/** @returns {Promise<Runtime>} */
export const fetchRuntime = () => asked("GET", "/runtime");

/**
 * @param {string} id
 * @param {"unload" | "offload" | "pin" | "unpin"} action
 * @returns {Promise<Runtime>}
 */
export const act = (id, action) => asked("POST", `/models/${encodeURIComponent(id)}/${action}`);

/**
 * Texts of ComfyUI's dialog in the page's language, from the packs' locale files. Nothing where there are none.
 * @param {string} locale
 * @returns {Promise<{settings?: Record<string, {name: string, tooltip: string}>, settingsCategories?: Record<string, string>}>}
 */
export async function fetchTranslations(locale) {
    const answer = await api.fetchApi("/i18n");
    return answer.ok ? ((await answer.json())[locale] ?? {}) : {};
}

/** @returns {Promise<Setting[]>} */
export const fetchSettings = async () => (await asked("GET", "/settings")).settings;

/**
 * @param {Record<string, unknown>} changes
 * @returns {Promise<Setting[]>}
 */
export const patchSettings = async (changes) => (await asked("PATCH", "/settings", changes)).settings;

/**
 * Calls `listener` with what the server sends under `name`; returns what ends that.
 * @param {string} name
 * @param {(detail: any) => void} listener
 */
function on(name, listener) {
    const heard = (/** @type {CustomEvent} */ event) => listener(event.detail);
    api.addEventListener(name, heard);
    return () => api.removeEventListener(name, heard);
}

/** Lets ComfyUI know what the server may tell; it complains in the console of what nobody listens to. */
export function hearAll() {
    for (const name of ["mizuoto.runtime", "mizuoto.settings", "mizuoto.download"]) api.addEventListener(name, () => {});
}

/** Whenever the server tells what is held. @param {(runtime: Runtime) => void} listener */
export const onRuntime = (listener) => on("mizuoto.runtime", listener);

/** Whenever a setting was changed, by whichever page. @param {() => void} listener */
export const onSettings = (listener) => on("mizuoto.settings", listener);

/** When the connection to the server is lost. @param {() => void} listener */
export const onLost = (listener) => on("reconnecting", listener);

/** When the connection to the server is back. @param {() => void} listener */
export const onReconnected = (listener) => on("reconnected", listener);

/** When ComfyUI's queue has become empty, whatever ran. @param {() => void} listener */
export function onQueueEmpty(listener) {
    let before = 0;
    return on("status", (status) => {
        const remaining = Number(status?.exec_info?.queue_remaining ?? 0);
        if (before > 0 && remaining === 0) listener();
        before = remaining;
    });
}

/**
 * @typedef {object} PublishedModel
 * @property {string} id
 * @property {boolean} installed
 * @property {boolean} fetchable
 * @property {number} size_bytes
 * @property {string} licence
 * @property {boolean} restricts
 */

/**
 * @typedef {object} Download
 * @property {string} id
 * @property {"waiting" | "running" | "stopping" | "done" | "failed" | "cancelled"} state
 * @property {number} done_bytes
 * @property {number} total_bytes
 * @property {string} message
 */

/** @returns {Promise<{id: string, loader_node: string, models: PublishedModel[]}[]>} */
export const fetchEngines = async () => (await asked("GET", "/engines")).engines;

/**
 * @param {string} id
 * @param {boolean} acceptLicence
 * @returns {Promise<Download>}
 */
export const fetchModel = (id, acceptLicence) =>
    asked("POST", `/models/${encodeURIComponent(id)}/fetch`, { accept_licence: acceptLicence });

/** @param {string} id */
export const cancelFetch = (id) => asked("DELETE", `/models/${encodeURIComponent(id)}/fetch`);

/** @returns {Promise<Download[]>} */
export const fetchDownloads = async () => (await asked("GET", "/downloads")).downloads;

/** Whenever the server tells of a download. @param {(download: Download) => void} listener */
export const onDownload = (listener) => on("mizuoto.download", listener);

/** What a run says of itself. @typedef {object} Spoken
 * @property {number} duration_seconds
 * @property {number | null} real_time_factor
 * @property {number | null} peak_mb
 * @property {string[]} reasons
 */

/** Calls `listener` with the node's id when one of the pack's nodes has spoken. @param {(id: string, spoken: Spoken) => void} listener */
export function onSpoken(listener) {
    return on("executed", (detail) => {
        const spoken = detail.output?.mizuoto?.[0];
        if (spoken) listener(String(detail.display_node ?? detail.node), spoken);
    });
}
