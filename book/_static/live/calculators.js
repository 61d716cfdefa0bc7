/* Calculators for the book's arithmetic: parameters, operations, cache, roofline.

   Which one stands in a page is the figure's `:view:`. The formulas are in formulas.js;
   here are the fields, what is said when one cannot be read, and the results. */

import { freshId, html, spoken, svg } from "./dom.js";
import {
  ARCHITECTURES,
  PRESETS,
  cacheBytes,
  complaint,
  decodeStep,
  flopsPerToken,
  matrices,
  parameters,
  roofline,
  trainingFlops,
} from "./formulas.js";

// ---- numbers in and out ---------------------------------------------------------

/**
 * @typedef {Object} Field
 * @property {string} label - in words, with the letter of the formulas
 * @property {number} most - the largest value that is taken; the least is 1
 * @property {boolean} [fraction] - need not be whole, and may be less than 1
 * @property {number} [value] - at the start
 * @property {boolean} [wide] - is written with many digits
 * @property {boolean} [slider] - has a slider over the powers of two
 */

/**
 * Read a number as people write it: 1024, 1,024, 1 024, 2e12.
 * @param {string} text
 * @param {Field} field
 * @returns {{value: number} | {message: string}}
 */
export function readNumber(text, { label, most, fraction = false }) {
  const found = text.trim();
  const cleaned = found.replace(/(?<=\d)[,_\s](?=\d{3}(?!\d))/g, "");
  const pattern = /^\d+(\.\d+)?(e\+?\d+)?$/i;
  const value = pattern.test(cleaned) ? Number(cleaned) : NaN;
  const fits = fraction ? value > 0 : Number.isInteger(value) && value >= 1;
  if (fits && value <= most) return { value };
  const said = found ? `is “${found.slice(0, 40)}”` : "is empty";
  const kind = fraction ? "a number above 0, up to" : "a whole number from 1 to";
  return { message: `${label} ${said}; expected ${kind} ${grouped(most)}.` };
}

/** A number with its thousands apart; a huge one in powers of ten. */
export function grouped(number) {
  return number < 1e15 ? number.toLocaleString("en-US") : powers(number);
}

/** Three digits and a power of ten: 8.4 · 10²². */
export function powers(number) {
  const [digits, exponent] = number.toExponential(2).split("e");
  const raised = [...String(Number(exponent))].map((c) =>
    c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)],
  );
  return `${Number(digits)} · 10${raised.join("")}`;
}

/** Three digits and a unit with its prefix: 13.5 GB. */
export function scaled(number, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
  let [value, step] = [number, 0];
  while (value >= 999.5 && step < prefixes.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = step || !Number.isInteger(value) ? Number(value.toPrecision(3)) : value;
  return `${digits} ${prefixes[step]}${unit}`;
}

/** A share as a percentage; 100% only if it is all. */
export function percent(share) {
  const value = share * 100;
  if (value > 99.9 && value < 100) return "99.9%";
  return value < 0.095 && value > 0 ? "under 0.1%" : `${Number(value.toFixed(1))}%`;
}

// ---- what a view is made of -------------------------------------------------------

const SIZES = {
  vocabulary: { label: "vocabulary V", most: 1_000_000 },
  context: { label: "positions T", most: 10_000_000 },
  width: { label: "width d", most: 100_000 },
  layers: { label: "layers L", most: 1_000 },
  heads: { label: "heads H", most: 1_000 },
  keyHeads: { label: "heads of keys", most: 1_000 },
  hidden: { label: "MLP width h", most: 400_000 },
};

const LENGTH = { label: "context c", most: 10_000_000, slider: true };
const BATCH = { label: "batch B", most: 100_000, slider: true };
const BYTES = { label: "bytes per number s", most: 8, fraction: true };

/** A table of results: rows of name, formula, number, share of the whole (or null). */
function results(rows) {
  const line = ({ name, formula = "", value, share = null, total = false }) =>
    html(
      "tr",
      { class: total ? "calculators-total" : null },
      html("th", { scope: "row" }, name),
      html("td", { class: "calculators-formula" }, formula),
      html("td", { class: "calculators-number" }, value),
      html(
        "td",
        { class: "calculators-share", "aria-hidden": "true" },
        ...(share === null ? [] : [html("span", { style: `width: ${100 * share}%` })]),
      ),
    );
  return html("table", { class: "calculators-results" }, html("tbody", {}, ...rows.map(line)));
}

const sentence = (...words) => html("p", { class: "calculators-verdict" }, ...words);

/**
 * The count of each part in the letters of the page.
 * @param {keyof typeof ARCHITECTURES} architecture
 */
export function letters(architecture) {
  const built = ARCHITECTURES[architecture];
  const shared = architecture === "llama";
  const biases = (built.keyBias ? 3 : 0) + (built.bias ? 1 : 0);
  const norms = (built.shift ? 4 : 2) + " d" + (built.normedKeys ? " + 2 d/H" : "");
  const d = { 0: "", 1: " + d", 4: " + 4 d" }[biases];
  return {
    embedding: "V d",
    positions: built.table ? "T d" : "none, rotated",
    attention: shared ? "L (2 d² + 2 d k)" : `L (4 d²${d})`,
    mlp: built.gated ? "L · 3 d h" : `L (2 d h${built.bias ? " + h + d" : ""})`,
    blockNorms: `L (${norms})`,
    finalNorm: built.shift ? "2 d" : "d",
    head: built.tied ? "tied" : "V d",
  };
}

const PARTS = {
  embedding: "token embedding",
  positions: "positions",
  attention: "attention",
  mlp: "MLPs",
  blockNorms: "norms in blocks",
  finalNorm: "final norm",
  head: "head",
};

/**
 * A view: the sizes it asks for, fields of its own, and how it shows the result.
 * @typedef {Object} View
 * @property {string[]} sizes
 * @property {Record<string, Field>} fields
 * @property {string[]} presets
 * @property {[text: string, address: string][]} links - to the formulas
 * @property {(sizes: object, given: object) => {summary: string, nodes: Node[]}} draw
 */

/** @type {Record<string, View>} */
export const VIEWS = {
  parameters: {
    sizes: Object.keys(SIZES),
    fields: {},
    presets: ["step5", "ch02", "gpt2", "gpt2xl", "gpt3", "llama2", "llama3"],
    links: [
      ["the theorem", "lecture5-architecture.html#l5-thm-count"],
      ["Chapter 2’s count", "ch02-transformer.html#equation-eq-parameters"],
    ],
    draw(sizes) {
      const counted = parameters(sizes);
      const formulas = letters(sizes.architecture);
      const rows = Object.entries(PARTS).map(([part, name]) => ({
        name,
        formula: formulas[part],
        value: grouped(counted[part]),
        share: counted[part] / counted.total,
      }));
      rows.push({ name: "all parameters", value: grouped(counted.total), total: true });
      const most = Object.keys(PARTS).reduce((a, b) => (counted[b] > counted[a] ? b : a));
      const summary = `${grouped(counted.total)} parameters. The largest share: ${PARTS[most]}, ${percent(counted[most] / counted.total)}.`;
      const shared = (sizes.width / sizes.heads) * sizes.keyHeads;
      const nodes = [sentence(summary), results(rows)];
      if (sizes.architecture === "llama") {
        nodes.push(sentence(`Here k = ${grouped(shared)}, the width of all keys together.`));
      }
      return { summary, nodes };
    },
  },

  flops: {
    sizes: ["vocabulary", "width", "layers", "heads", "keyHeads", "hidden"],
    fields: { length: { ...LENGTH, value: 128 } },
    presets: ["ch02", "step5", "gpt2", "gpt2xl", "llama2", "llama3"],
    links: [["the rule 2 N", "lecture7-tokens-and-scale.html#equation-eq-l7-flops"]],
    draw(sizes, { length }) {
      const cost = flopsPerToken(sizes, length);
      const parts = matrices(sizes);
      const part = (name, formula, value) => ({
        name,
        formula,
        value: grouped(value),
        share: value / cost.total,
      });
      const crossing = Math.ceil(cost.weights / (4 * sizes.layers * sizes.width));
      const summary = `${scaled(cost.total, "FLOP")} for one token. Attention’s own products are ${percent(cost.attention / cost.total)} of it.`;
      return {
        summary,
        nodes: [
          sentence(summary),
          results([
            part("projections", "2 · entries", 2 * parts.attention),
            part("MLPs", "2 · entries", 2 * parts.mlp),
            part("head", "2 V d", 2 * parts.head),
            part("scores and mixtures", "L · 4 c d", cost.attention),
            { name: "one token", value: grouped(cost.total), total: true },
          ]),
          sentence(
            `From a context of ${grouped(crossing)} on, attention’s own products are the larger half.`,
          ),
        ],
      };
    },
  },

  cache: {
    sizes: ["vocabulary", "width", "layers", "heads", "keyHeads", "hidden"],
    fields: {
      length: { ...LENGTH, label: "length T", value: 128 },
      batch: { ...BATCH, value: 1 },
      bytes: { ...BYTES, value: 4 },
    },
    presets: ["ch02", "step5", "gpt2", "gpt2xl", "llama2", "llama3"],
    links: [["the formula", "ch02-transformer.html#equation-eq-cache-bytes"]],
    draw(sizes, { length, batch, bytes }) {
      const cached = cacheBytes(sizes, length, batch, bytes);
      const one = cacheBytes(sizes, 1, 1, bytes);
      const { attention, mlp, head } = matrices(sizes);
      const weights = bytes * (attention + mlp + head);
      const larger = Math.max(cached, weights);
      const level = Math.ceil(weights / (one * batch));
      const summary = `${scaled(cached, "B")} of keys and values.`;
      return {
        summary,
        nodes: [
          sentence(summary),
          results([
            { name: "a token", formula: "2 L d s", value: `${grouped(one)} B` },
            {
              name: "the cache",
              formula: "2 B L T d s",
              value: scaled(cached, "B"),
              share: cached / larger,
            },
            {
              name: "all matrices",
              formula: "s · entries",
              value: scaled(weights, "B"),
              share: weights / larger,
            },
          ]),
          sentence(
            `At this batch the cache weighs as much as the matrices from ${grouped(level)} tokens on.`,
            ...(sizes.keyHeads < sizes.heads
              ? [` With ${sizes.heads / sizes.keyHeads} queries to a key, d shrinks to ${grouped((sizes.width / sizes.heads) * sizes.keyHeads)} in the formula.`]
              : []),
          ),
        ],
      };
    },
  },

  roofline: {
    sizes: ["vocabulary", "width", "layers", "heads", "keyHeads", "hidden"],
    fields: {
      batch: { ...BATCH, value: 1 },
      length: { ...LENGTH, value: 128 },
      bytes: { ...BYTES, value: 2 },
      peak: { label: "peak, TFLOP/s", most: 1_000_000, fraction: true, value: 100 },
      bandwidth: { label: "bandwidth, TB/s", most: 10_000, fraction: true, value: 2 },
    },
    presets: ["llama2", "llama3", "gpt2", "gpt2xl", "ch02", "step5"],
    links: [
      ["the roofline", "ch02-transformer.html#the-roofline"],
      ["the bytes of a cache", "ch02-transformer.html#equation-eq-cache-bytes"],
    ],
    draw(sizes, { batch, length, bytes, peak, bandwidth }) {
      const step = decodeStep(sizes, batch, length, bytes);
      const machine = [peak * 1e12, bandwidth * 1e12];
      const found = roofline(step.intensity, ...machine);
      const seconds = step.flops / found.reached;
      const pace = found.bound === "memory" ? "memory sets the pace" : "arithmetic sets the pace";
      const side = found.bound === "memory" ? "below" : "at or above";
      const summary = `${Number(step.intensity.toPrecision(3))} FLOP per byte, ${side} the balance point of ${Number(found.balance.toPrecision(3))}: ${pace}, at ${percent(found.share)} of the peak.`;
      const others = BATCHES.map(
        (many) => decodeStep(sizes, many, length, bytes).intensity,
      );
      return {
        summary,
        nodes: [
          sentence(summary),
          roof(step.intensity, others, found, `batch ${grouped(batch)}`),
          results([
            { name: "operations of a step", value: scaled(step.flops, "FLOP") },
            {
              name: "weights to read",
              value: scaled(step.weightBytes, "B"),
              share: step.weightBytes / (step.weightBytes + step.cacheBytes),
            },
            {
              name: "caches to read",
              value: scaled(step.cacheBytes, "B"),
              share: step.cacheBytes / (step.weightBytes + step.cacheBytes),
            },
            { name: "tokens a second, all readers", value: scaled(batch / seconds, "") },
            { name: "tokens a second, each", value: scaled(1 / seconds, "") },
          ]),
          sentence(
            `The small dots are batches of ${BATCHES.map(grouped).join(", ")} at this context. `,
            "The speeds are what the two limits allow, not what a program reaches.",
          ),
        ],
      };
    },
  },

  known: {
    sizes: Object.keys(SIZES),
    fields: {
      tokens: { label: "training tokens D", most: 1e15, value: 300e9, wide: true },
    },
    presets: ["gpt3", "llama2", "llama3", "step5", "ch02"], // tokens are published
    links: [
      ["the exact count", "lecture7-tokens-and-scale.html#equation-eq-l7-flops"],
      ["where 6 comes from", "lecture7-tokens-and-scale.html#prop-l7-six"],
    ],
    draw(sizes, { tokens }) {
      const { total: N } = parameters(sizes);
      const exact = trainingFlops(sizes, tokens);
      const rule = 6 * N * tokens;
      const gap = rule / exact - 1;
      const summary = `${grouped(N)} parameters, ${scaled(tokens / N, "")}tokens for each.`;
      return {
        summary,
        nodes: [
          sentence(summary),
          results([
            { name: "the estimate", formula: "6 N D", value: powers(rule), share: rule / Math.max(rule, exact) },
            {
              name: "matrix products, counted",
              formula: "windows of T",
              value: powers(exact),
              share: exact / Math.max(rule, exact),
            },
          ]),
          sentence(
            Math.abs(gap) < 0.0005
              ? "The two agree."
              : `The estimate is ${percent(Math.abs(gap))} too ${gap > 0 ? "high" : "low"}.`,
          ),
        ],
      };
    },
  },
};

// ---- the roofline as a picture ------------------------------------------------------

const FRAME = { left: 46, right: 404, top: 28, bottom: 208 };
/** Batches that are marked besides the one that is asked about. */
const BATCHES = [1, 4, 16, 64, 256, 1024];

/**
 * A log-log picture: the roof, the programs under it, and the one that is asked about.
 * @param {number} intensity
 * @param {number[]} others - intensities of other batches, small dots
 * @param {ReturnType<typeof roofline>} found
 * @param {string} name
 */
function roof(intensity, others, found, name) {
  const [low, high] = [0.1, Math.max(1e4, 10 * found.balance)];
  const least = 4e-4;
  const { left, right, top, bottom } = FRAME;
  const along = (value, a, b, from, to) =>
    from + ((to - from) * Math.log(Math.min(Math.max(value, a), b) / a)) / Math.log(b / a);
  const x = (value) => along(value, low, high, left, right);
  const y = (share) => along(share, least, 1, bottom, top);
  const height = (value) => Math.min(1, value / found.balance);
  const start = Math.max(low, least * found.balance);
  const mark = (value, size, kind) =>
    svg("circle", { cx: x(value), cy: y(height(value)), r: size, class: kind });
  const text = (words, px, py, anchor, kind = "") =>
    svg("text", { x: px, y: py, "text-anchor": anchor, class: kind }, words);
  const ticks = [0.1, 1, 10, 100, 1000, 10000].map((value) =>
    text(grouped(value), x(value), bottom + 16, x(value) > right - 20 ? "end" : "middle"),
  );
  const levels = [1, 0.1, 0.01, 0.001].map((share) =>
    text(`${100 * share}%`, left - 6, y(share) + 4, "end"),
  );
  const lines = [1, 0.1, 0.01, 0.001].map((share) =>
    svg("line", { x1: left, x2: right, y1: y(share), y2: y(share), class: "calculators-grid" }),
  );
  const [px, py] = [x(intensity), y(height(intensity))];
  const below = py + 22 < bottom ? py + 22 : py - 12;
  return svg(
    "svg",
    {
      viewBox: "0 0 420 252",
      role: "img",
      class: "calculators-roof",
      "aria-label": `Share of the peak over FLOPs per byte, both logarithmic. A line rises to the balance point at ${Number(found.balance.toPrecision(3))} and is flat beyond it. ${name} stands at ${Number(intensity.toPrecision(3))}, ${percent(found.share)} of the peak.`,
    },
    ...lines,
    ...ticks,
    ...levels,
    svg("line", {
      x1: x(found.balance),
      x2: x(found.balance),
      y1: top,
      y2: bottom,
      class: "calculators-balance",
    }),
    svg("polyline", {
      points: [
        [x(start), y(height(start))],
        [x(found.balance), y(1)],
        [x(high), y(1)],
      ].join(" "),
      class: "calculators-line",
    }),
    ...others.map((value) => mark(value, 3, "calculators-other")),
    mark(intensity, 7, "calculators-point"),
    text(name, Math.min(px + 4, right - 30), below, px > 300 ? "end" : "start", "calculators-name"),
    text("share of the peak", left - 42, top - 14, "start"),
    text("FLOP per byte", (left + right) / 2, bottom + 34, "middle"),
  );
}

// ---- the form -----------------------------------------------------------------------

/** A labelled text field, with its message, and a slider if it wants one. */
function field(name, wanted, changed) {
  const [id, error] = [freshId(), freshId()];
  const input = html("input", {
    id,
    name,
    type: "text",
    inputmode: wanted.fraction ? "decimal" : "numeric",
    autocomplete: "off",
    "aria-describedby": error,
    oninput: () => changed(name),
  });
  const problem = html("p", { id: error, class: "live-problem" });
  const slider = wanted.slider
    ? html("input", {
        type: "range",
        min: 0,
        max: Math.floor(Math.log2(wanted.most)),
        "aria-label": `${wanted.label}, powers of two`,
        oninput: () => {
          input.value = grouped(2 ** Number(slider.value));
          changed(name);
        },
      })
    : null;
  const box = html(
    "div",
    { class: wanted.wide ? "calculators-wide" : null },
    html("label", { for: id }, wanted.label),
    input,
    ...(slider ? [slider] : []),
    problem,
  );
  return {
    box,
    text: () => input.value,
    /** Write a value into the field. */
    write(value) {
      input.value = grouped(value);
    },
    /** Say what is wrong, or nothing. */
    tell(message) {
      problem.textContent = message;
      if (message) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    },
    /** The value, or null after having said why there is none. */
    read() {
      const found = readNumber(input.value, wanted);
      this.tell(found.message ?? "");
      if (found.message) return null;
      if (slider) {
        slider.value = String(Math.round(Math.log2(Math.max(found.value, 1))));
        slider.setAttribute("aria-valuetext", grouped(found.value));
      }
      return found.value;
    },
  };
}

/** A labelled choice. */
function choice(label, entries, changed) {
  const id = freshId();
  const select = html(
    "select",
    { id, onchange: () => changed(select.value) },
    ...Object.entries(entries).map(([value, name]) => html("option", { value }, name)),
  );
  return {
    box: html(
      "div",
      { class: "calculators-choice" },
      html("label", { for: id }, label),
      select,
    ),
    select,
  };
}

/**
 * @param {HTMLElement} panel
 * @param {{title: string, view: keyof typeof VIEWS, model?: keyof typeof PRESETS}} options
 */
export function mount(panel, { title, view, model }) {
  const wanted = VIEWS[view];
  if (!wanted) {
    throw new Error(`no calculator ‘${view}’; there are ${Object.keys(VIEWS).join(", ")}`);
  }
  const names = Object.fromEntries(
    wanted.presets.map((key) => {
      const { name, published } = PRESETS[key];
      return [key, published ? `${name} (${published})` : name];
    }),
  );
  let sizes = PRESETS[model ?? wanted.presets[0]].sizes;
  let timer = 0;
  const output = html("div", { class: "calculators-output" });
  const recipe = html("p", { class: "live-note" });
  const said = spoken();

  const preset = choice("model", { ...names, own: "your own sizes" }, take);
  const architecture = choice(
    "built like",
    Object.fromEntries(Object.entries(ARCHITECTURES).map(([key, { name }]) => [key, name])),
    () => own(),
  );
  const asked = Object.fromEntries(
    wanted.sizes.map((name) => [name, field(name, SIZES[name], own)]),
  );
  const given = Object.fromEntries(
    Object.entries(wanted.fields).map(([name, one]) => [name, field(name, one, draw)]),
  );

  /** Take the sizes of a preset. */
  function take(key) {
    if (key === "own") return;
    sizes = PRESETS[key].sizes;
    architecture.select.value = sizes.architecture;
    for (const [name, one] of Object.entries(asked)) one.write(sizes[name]);
    if (given.tokens && PRESETS[key].tokens) given.tokens.write(PRESETS[key].tokens);
    draw();
  }

  /** The reader has changed a size: it is no preset any longer. */
  function own() {
    preset.select.value = "own";
    draw();
  }

  /** Read every field; null if one of them cannot be read. */
  function read(fields) {
    const values = Object.entries(fields).map(([name, one]) => [name, one.read()]);
    return values.some(([, value]) => value === null) ? null : Object.fromEntries(values);
  }

  /** Calculate and show, or keep the last result, faded, beside what is wrong. */
  function draw() {
    const built = architecture.select.value;
    const shares = built === "llama";
    recipe.textContent = ARCHITECTURES[built].parts;
    asked.keyHeads.box.hidden = !shares;
    if (!shares) asked.keyHeads.write(Number(readNumber(asked.heads.text(), SIZES.heads).value ?? 1));
    const found = read(asked);
    const rest = read(given);
    const whole = found && { ...sizes, ...found, architecture: built };
    const wrong = whole && complaint(whole);
    if (wrong) asked[wrong.field].tell(`${wrong.message}.`);
    const stale = !whole || !rest || Boolean(wrong);
    output.classList.toggle("calculators-stale", stale);
    clearTimeout(timer);
    if (stale) return;
    const { summary, nodes } = wanted.draw(whole, rest);
    output.replaceChildren(...nodes);
    timer = setTimeout(() => (said.textContent = summary), 700);
  }

  const links = wanted.links.flatMap(([text, address], i) => [
    i ? ", " : "",
    html("a", { href: address }, text),
  ]);
  panel.append(
    html("p", { class: "live-title" }, title),
    html("div", { class: "calculators-choices" }, preset.box, architecture.box),
    recipe,
    html("div", { class: "calculators-fields" }, ...Object.values(given).map((one) => one.box)),
    html(
      "details",
      { class: "calculators-sizes", open: view === "parameters" },
      html("summary", {}, "Sizes of the model"),
      html("div", { class: "calculators-fields" }, ...Object.values(asked).map((one) => one.box)),
    ),
    output,
    html("p", { class: "calculators-links" }, "The formulas: ", ...links, "."),
    said,
  );
  for (const [name, one] of Object.entries(given)) one.write(wanted.fields[name].value);
  preset.select.value = model ?? wanted.presets[0];
  take(preset.select.value);
  clearTimeout(timer);
}
