// @ts-check
/** Elements of the panel: made, and changed in place so that neither focus nor a click under way is lost. */

const BYTES_PER_MB = 1 << 20;
const MB_PER_GB = 1 << 10;

/** @param {number} bytes */
export function megabytes(bytes) {
    return `${Math.round(bytes / BYTES_PER_MB).toLocaleString("en")} MB`;
}

/** Megabytes, gigabytes from one on. @param {number} bytes */
export function size(bytes) {
    const mb = bytes / BYTES_PER_MB;
    return mb < MB_PER_GB ? megabytes(bytes) : `${(mb / MB_PER_GB).toFixed(1)} GB`;
}

/**
 * An element with attributes and children. Texts are never read as HTML.
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
}

/**
 * Gives `root` these children. Elements that are there already stay, by their `data-key` or else by their place.
 * @param {HTMLElement} root
 * @param {...Node} children
 */
export function show(root, ...children) {
    const focused = root.contains(document.activeElement) ? document.activeElement?.id : "";
    changeChildren(root, children);
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
}

/**
 * @param {Element} old
 * @param {Node[]} wanted
 */
function changeChildren(old, wanted) {
    wanted.forEach((node, place) => {
        const there = old.childNodes[place] ?? null;
        const known = keyed(old, node) ?? there;
        if (!known || !isAlike(known, node)) {
            old.insertBefore(node, there);
            return;
        }
        if (known !== there) old.insertBefore(known, there);
        change(known, node);
    });
    while (old.childNodes.length > wanted.length) old.lastChild?.remove();
}

/**
 * The child of `old` with the key of `node`.
 * @param {Element} old
 * @param {Node} node
 */
function keyed(old, node) {
    const key = keyOf(node);
    return key ? [...old.children].find((child) => keyOf(child) === key) : undefined;
}

/** @param {Node} node */
function keyOf(node) {
    return node instanceof HTMLElement ? (node.dataset.key ?? "") : "";
}

/**
 * @param {Node} one
 * @param {Node} other
 */
function isAlike(one, other) {
    return one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

/**
 * @param {Node} old
 * @param {Node} fresh
 */
function change(old, fresh) {
    if (!(old instanceof Element) || !(fresh instanceof Element)) {
        if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
        return;
    }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    changeChildren(old, [...fresh.childNodes]);
}
