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
 * @property {"choice" | "boolean" | "integer" | "optional_integer" | "number" | "text" | "names"} type
 * @property {unknown} default
 * @property {number | null} low
 * @property {number | null} high
 * @property {string[]} choices
 * @property {unknown} value
 * @property {string} source
 * @property {boolean} locked
 * @property {string} lock_reason
 */

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
        throw new Error(String(error));
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

/** @returns {Promise<Setting[]>} */
export const fetchSettings = async () => (await asked("GET", "/settings")).settings;

/**
 * @param {Record<string, unknown>} changes
 * @returns {Promise<Setting[]>}
 */
export const patchSettings = async (changes) => (await asked("PATCH", "/settings", changes)).settings;

/** Calls `listener` with the runtime whenever the server tells of it. @param {(runtime: Runtime) => void} listener */
export function onRuntime(listener) {
    const heard = (/** @type {CustomEvent<Runtime>} */ event) => listener(event.detail);
    api.addEventListener("mizuoto.runtime", heard);
    return () => api.removeEventListener("mizuoto.runtime", heard);
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
 * @property {"waiting" | "running" | "done" | "failed" | "cancelled"} state
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

/** Calls `listener` whenever the server tells of a download. @param {(download: Download) => void} listener */
export function onDownload(listener) {
    api.addEventListener("mizuoto.download", (event) => listener(event.detail));
}

/** What a run says of itself. @typedef {object} Spoken
 * @property {number} duration_seconds
 * @property {number | null} real_time_factor
 * @property {number | null} peak_mb
 * @property {string[]} reasons
 */

/** Calls `listener` with the node's id when one of the pack's nodes has spoken. @param {(id: string, spoken: Spoken) => void} listener */
export function onSpoken(listener) {
    api.addEventListener("executed", ({ detail }) => {
        const spoken = detail.output?.mizuoto?.[0];
        if (spoken) listener(String(detail.display_node ?? detail.node), spoken);
    });
}

/** Calls `listener` when the connection to the server is back. @param {() => void} listener */
export function onReconnected(listener) {
    api.addEventListener("reconnected", listener);
    return () => api.removeEventListener("reconnected", listener);
}
