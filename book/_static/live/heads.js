/* A view of attention: a small map for each head, one large map, and the text itself
   with a bar over each token that says how much the chosen position looks at it.

   The view is given weights and knows no model. attention.js feeds it from a model that
   runs in the page, training.js from maps that were stored during the reference run. */

import { html, spoken, svg } from "./dom.js";
import { heatMapCells, onTheme, paintHeatMap, radios } from "./draw.js";

/** Up to this many tokens the large map has room for their names. */
const ROOM_FOR_NAMES = 32;
/** How long the view is still, in milliseconds, before it is said aloud. */
const PAUSE = 500;

/** Show a token so that blanks, line ends and an accent by itself can be seen. */
export function visible(token) {
  return token
    .replaceAll(" ", "·")
    .replaceAll("\n", "↵")
    .replaceAll("\t", "⇥")
    .replace(/^\p{M}/u, "◌$&");
}

/** A token in quotation marks, for a sentence; a blank and a line end by name. */
export function aloud(token) {
  return { " ": "space", "\n": "line end" }[token] ?? `“${token}”`;
}

/**
 * One row of a map: what position `query` gives to each position.
 *
 * @param {Float32Array} weights T x T, row-major
 * @param {number} query
 * @returns {Float32Array}
 */
export function rowOf(weights, query) {
  const T = Math.sqrt(weights.length);
  return weights.subarray(query * T, (query + 1) * T);
}

/** The sum of a row; one, but for rounding. */
export function sumOf(row) {
  return row.reduce((sum, weight) => sum + weight, 0);
}

/**
 * Say in one sentence what a row shows.
 *
 * @param {string[]} tokens
 * @param {Float32Array} row
 * @param {number} query
 */
export function describe(tokens, row, query) {
  const top = row.reduce((best, weight, key) => (weight > row[best] ? key : best), 0);
  const target = top === query ? "itself" : `position ${top}, ${aloud(tokens[top])}`;
  const count = query === 0 ? "Its one weight is" : `Its ${query + 1} weights sum to`;
  return (
    `Position ${query}, ${aloud(tokens[query])}, looks most at ${target}: ` +
    `${row[top].toFixed(3)}. ${count} ${sumOf(row).toFixed(3)}.`
  );
}

/** Did the pointer move, and not the page under it? */
function moved({ movementX, movementY }) {
  return movementX !== 0 || movementY !== 0;
}

/** Shows attention weights; `node` is the element to put into the page. */
export class AttentionView {
  /**
   * @param {number} layers
   * @param {number} heads
   * @param {{layer?: number, head?: number}} start which head to show first
   */
  constructor(layers, heads, { layer = 0, head = 0 } = {}) {
    this.layers = layers;
    this.heads = heads;
    this.layer = layer;
    this.head = head;
    this.query = -1; // the end of no text
    this.tokens = [];
    this.attention = [];
    this.strip = html("div", {
      class: "live-strip",
      role: "toolbar",
      "aria-label": "The text: choose the position that asks",
      onkeydown: (event) => this.#walk(event),
    });
    this.grid = this.#makeGrid();
    this.map = svg("svg", {
      class: "live-map",
      role: "img",
      onpointermove: (event) => this.#point(event),
      onpointerdown: (event) => this.#point(event),
    });
    this.heading = html("span");
    this.detail = html("span", { class: "live-detail" });
    this.sentence = html("p", { class: "live-says" });
    this.status = spoken();
    this.table = html("tbody");
    this.total = html("td");
    this.node = html(
      "div",
      { class: "live-attention" },
      html(
        "p",
        { class: "live-key" },
        "Point at a token, tap it, or use the arrow keys: " +
          "it asks, and the bars show where it looks.",
      ),
      this.strip,
      this.sentence,
      this.status,
      html(
        "div",
        { class: "live-maps" },
        this.grid,
        html(
          "div",
          { class: "live-large" },
          html("p", { class: "live-map-name" }, this.heading, this.detail),
          this.map,
          html(
            "p",
            { class: "live-key" },
            "A row for each position that asks, a column for each that is looked at. " +
              "How strong the colour is: the square root of the weight.",
          ),
        ),
        this.#makeTable(),
      ),
    );
    onTheme(() => this.#paintGrid());
  }

  /**
   * Show the attention over a text; head and position stay chosen where they exist.
   *
   * @param {string[]} tokens T of them
   * @param {Float32Array[][]} attention [layer][head], T x T, row-major
   * @param {number} [query] the position to choose; by default the one chosen before,
   *   and the last one if that was the last
   */
  show(tokens, attention, query = this.#follow(tokens)) {
    const sameText =
      tokens.length === this.tokens.length &&
      tokens.every((token, place) => token === this.tokens[place]);
    this.tokens = tokens;
    this.attention = attention;
    this.query = query;
    if (!sameText) this.#makeStrip();
    this.#paintGrid();
    this.#drawMap();
    this.#drawRow();
  }

  /** The chosen position in a new text. */
  #follow(tokens) {
    const last = tokens.length - 1;
    return this.query === this.tokens.length - 1 ? last : Math.min(this.query, last);
  }

  /** The map of the chosen head. */
  get weights() {
    return this.attention[this.layer][this.head];
  }

  /** Choose the position that asks. */
  ask(query) {
    if (query === this.query || query < 0 || query >= this.tokens.length) return;
    this.query = query;
    this.#drawRow();
    this.say();
  }

  #makeGrid() {
    this.canvases = [];
    const choices = [];
    for (let layer = 0; layer < this.layers; layer += 1) {
      for (let head = 0; head < this.heads; head += 1) {
        const canvas = html("canvas", { "aria-hidden": "true" });
        this.canvases.push(canvas);
        const name = html("span", {}, `${layer}.${head}`);
        choices.push({ value: `${layer}.${head}`, content: [canvas, name] });
      }
    }
    const chosen = `${this.layer}.${this.head}`;
    const grid = radios("Head (block.head)", choices, chosen, (value) => {
      [this.layer, this.head] = value.split(".").map(Number);
      this.#drawMap();
      this.#drawRow();
      this.say();
    });
    grid.classList.add("live-heads");
    grid.style.setProperty("--heads", this.heads);
    return grid;
  }

  #makeTable() {
    const head = ["position", "token", "weight"].map((name) =>
      html("th", { scope: "col" }, name),
    );
    return html(
      "details",
      { class: "live-fold" },
      html("summary", {}, "The chosen row as a table"),
      html(
        "div",
        { class: "live-table", tabindex: "0", role: "group", "aria-label": "Weights" },
        html(
          "table",
          {},
          html("thead", {}, html("tr", {}, ...head)),
          this.table,
          html(
            "tfoot",
            {},
            html("tr", {}, html("th", { scope: "row", colspan: 2 }, "sum"), this.total),
          ),
        ),
      ),
    );
  }

  #makeStrip() {
    this.buttons = this.tokens.map((token, place) =>
      html(
        "button",
        {
          type: "button",
          onpointermove: (event) => moved(event) && this.ask(place),
          onfocus: () => this.ask(place),
          onclick: () => this.ask(place),
        },
        html("span", { class: "bar" }),
        html("span", { class: "token" }, visible(token)),
      ),
    );
    this.strip.replaceChildren(...this.buttons);
  }

  #paintGrid() {
    const T = this.tokens.length;
    if (T === 0) return;
    this.attention.flat().forEach((weights, index) => {
      paintHeatMap(this.canvases[index], weights, T);
    });
  }

  #drawMap() {
    const T = this.tokens.length;
    const named = T <= ROOM_FOR_NAMES;
    const longest = Math.max(...this.tokens.map((token) => visible(token).length));
    const margin = T / 150; // for the frame of the last row
    const edge = named ? 0.5 + 0.5 * longest : margin; // a letter takes half a cell
    const side = T + edge + margin;
    const around = [-edge, -edge, side, side];
    this.map.setAttribute("viewBox", around.map((n) => n.toFixed(2)).join(" "));
    this.frame = svg("rect", { class: "row", x: 0, height: 1 });
    this.map.replaceChildren(
      svg("rect", { class: "ground", width: T, height: T }),
      heatMapCells(this.weights, T),
      this.frame,
    );
    if (named) this.map.append(this.#names());
  }

  /** The tokens along the left and the upper edge of the large map. */
  #names() {
    const group = svg("g", { class: "names", "font-size": 0.8 });
    this.tokens.forEach((token, place) => {
      const middle = place + 0.78;
      const above = `translate(${middle} -0.3) rotate(-90)`;
      group.append(
        svg("text", { x: -0.3, y: middle, "text-anchor": "end" }, visible(token)),
        svg("text", { transform: above }, visible(token)),
      );
    });
    return group;
  }

  #drawRow() {
    const row = rowOf(this.weights, this.query);
    const head = `Head ${this.layer}.${this.head}`;
    const text = describe(this.tokens, row, this.query);
    this.buttons.forEach((button, key) => {
      const asks = key === this.query;
      button.tabIndex = asks ? 0 : -1;
      button.setAttribute("aria-pressed", asks);
      button.classList.toggle("future", key > this.query);
      button.style.setProperty("--w", row[key]);
      const weight = key > this.query ? "hidden" : `weight ${row[key].toFixed(3)}`;
      const name = `${key}, ${aloud(this.tokens[key])}: ${weight}`;
      button.setAttribute("aria-label", name);
    });
    this.frame.setAttribute("y", this.query);
    this.frame.setAttribute("width", this.query + 1);
    this.heading.textContent = head;
    this.detail.textContent = "";
    this.map.setAttribute("aria-label", `${head}, a map of all its weights. ${text}`);
    this.sentence.textContent = text;
    const seen = [...row.subarray(0, this.query + 1)].map((weight, key) =>
      html(
        "tr",
        {},
        html("td", {}, `${key}`),
        html("td", {}, visible(this.tokens[key])),
        html("td", {}, weight.toFixed(4)),
      ),
    );
    this.table.replaceChildren(...seen);
    this.total.textContent = sumOf(row).toFixed(4);
  }

  /** Tell screen readers what is shown, once the reader has stopped moving. */
  say() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      const head = `Head ${this.layer}.${this.head}`;
      this.status.textContent = `${head}. ${this.sentence.textContent}`;
    }, PAUSE);
  }

  /** Arrow keys, Home and End move through the text. */
  #walk(event) {
    const last = this.tokens.length - 1;
    const target = {
      ArrowLeft: this.query - 1,
      ArrowRight: this.query + 1,
      Home: 0,
      End: last,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    this.buttons[Math.max(0, Math.min(target, last))].focus();
  }

  /** The row of the large map under the pointer asks; the cell is read out. */
  #point(event) {
    if (event.type === "pointermove" && !moved(event)) return;
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(
      this.map.getScreenCTM().inverse(),
    );
    const [key, query] = [Math.floor(place.x), Math.floor(place.y)];
    this.ask(query);
    const inside = query === this.query && key >= 0 && key <= query;
    this.detail.textContent = inside
      ? ` · from ${query}, ${aloud(this.tokens[query])}, to ${key}, ` +
        `${aloud(this.tokens[key])}: ${rowOf(this.weights, query)[key].toFixed(3)}`
      : "";
  }
}
