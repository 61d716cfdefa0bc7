/* Elements in one expression: what the live figures build their pages with. */

/**
 * Make an element. A property that starts with "on" is a listener; `true` sets an empty
 * attribute; `null` and `false` set none.
 * @param {string} tag
 * @param {Object<string, unknown>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Make an element of SVG, in the same way.
 * @param {string} tag
 * @param {Object<string, unknown>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return fill(element, attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

let used = 0;

/** An id that no other element of the page has. */
export function freshId() {
  used += 1;
  return `live-${used}`;
}

/**
 * An empty region whose changes a screen reader says when it has time.
 * @returns {HTMLElement}
 */
export function spoken() {
  return html("p", { class: "live-spoken", role: "status" });
}
