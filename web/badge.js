// @ts-check
/** A quiet badge on a node that spoke: how long, how fast, how much of the device, and what would help if it streamed. */

import { onSpoken } from "./api.js";

/** @typedef {import("./api.js").Spoken} Spoken */
/** @typedef {(key: string, values?: Record<string, string>) => string} Texts */

/** Which setting would help, by how the report begins to say why a component streamed. */
const HELP = [
    ["vram_mode", "streamed_mode"],
    ["capped", "streamed_capped"],
    ["gave up", "streamed_gave_up"],
    ["vram_limit", "streamed_limit"],
    ["budget", "streamed_budget"],
];

/**
 * @param {Spoken} spoken
 * @param {Texts} texts
 */
export function badgeText(spoken, texts) {
    const parts = [`${spoken.duration_seconds.toFixed(1)} s`];
    if (spoken.real_time_factor !== null) parts.push(`RTF ${spoken.real_time_factor.toFixed(2)}`);
    if (spoken.peak_mb !== null) parts.push(texts("peak", { size: `${Math.round(spoken.peak_mb)} MB` }));
    const help = HELP.find(([start]) => spoken.reasons.some((reason) => reason.startsWith(start)));
    if (help) parts.push(texts(help[1]));
    return parts.join(" · ");
}

/**
 * The node at a path of ids, as 5:3 for node 3 in the subgraph that node 5 shows.
 * @param {any} graph
 * @param {string} path
 * @returns {any}
 */
function nodeAt(graph, path) {
    const [id, ...rest] = path.split(":");
    const node = graph?.getNodeById(id);
    return rest.length ? nodeAt(node?.subgraph, rest.join(":")) : node;
}

/**
 * Shows a badge on every node of ours that speaks, from now on.
 * @param {import("../../scripts/app.js").App} app
 * @param {Texts} texts
 */
export function showBadges(app, texts) {
    onSpoken((id, spoken) => {
        const node = nodeAt(app.graph, id);
        if (!node?.badges) return;
        const text = badgeText(spoken, texts);
        const badge = new window.LGraphBadge({ text, fgColor: "#dddddd", bgColor: "#3c5266" });
        node.badges = [...node.badges.filter((/** @type {object} */ other) => other !== node.mizuoto_badge), badge];
        node.mizuoto_badge = badge;
        app.graph.setDirtyCanvas(true, true);
    });
}
