/* What each calculator asks for, and how it shows what formulas.js answers. */

import { html } from "./dom.js";
import {
  ARCHITECTURES,
  cacheBytes,
  decodeStep,
  flopsPerToken,
  matrices,
  parameters,
  roofline,
  trainingFlops,
} from "./formulas.js";
import { grouped, percent, powers, scaled, short } from "./numbers.js";
import { roof } from "./roof.js";

/** Batches that the roofline marks besides the one that is asked about. */
const BATCHES = [1, 4, 16, 64, 256, 1024];

/** @typedef {import("./numbers.js").Field} Field */

export const SIZES = {
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
  const body = html("tbody", {}, ...rows.map(line));
  return html("table", { class: "calculators-results" }, body);
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
      ["the Transformer’s count", "ch02-transformer.html#equation-eq-parameters"],
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
      const larger = (a, b) => (counted[b] > counted[a] ? b : a);
      const most = Object.keys(PARTS).reduce(larger);
      const summary =
        `${grouped(counted.total)} parameters. The largest share: ${PARTS[most]}, ` +
        `${percent(counted[most] / counted.total)}.`;
      const shared = (sizes.width / sizes.heads) * sizes.keyHeads;
      const nodes = [sentence(summary), results(rows)];
      if (sizes.architecture === "llama") {
        const k = grouped(shared);
        nodes.push(sentence(`Here k = ${k}, the width of all keys together.`));
      }
      return { summary, nodes };
    },
  },

  flops: {
    sizes: ["vocabulary", "width", "layers", "heads", "keyHeads", "hidden"],
    fields: { length: { ...LENGTH, value: 128 } },
    presets: ["ch02", "step5", "gpt2", "gpt2xl", "llama2", "llama3"],
    links: [
      ["what is counted", "ch02-transformer.html#operations-predicted"],
      ["the sum for training", "lecture7-tokens-and-scale.html#equation-eq-l7-flops"],
    ],
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
      const summary =
        `${scaled(cost.total, "FLOP")} for one token. Attention’s own products are ` +
        `${percent(cost.attention / cost.total)} of it.`;
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
            `From a context of ${grouped(crossing)} on, `,
            "attention’s own products are the larger half.",
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
    links: [["the bytes of a cache", "ch02-transformer.html#equation-eq-cache-bytes"]],
    draw(sizes, { length, batch, bytes }) {
      const cached = cacheBytes(sizes, length, batch, bytes);
      const one = cacheBytes(sizes, 1, 1, bytes);
      const { attention, mlp, head } = matrices(sizes);
      const weights = bytes * (attention + mlp + head);
      const larger = Math.max(cached, weights);
      const group = sizes.heads / sizes.keyHeads;
      const k = grouped(sizes.width / group);
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
            "At this batch the cache weighs as much as the matrices from ",
            `${grouped(level)} tokens on.`,
            group > 1 ? ` With ${group} queries to a key, d is ${k} in the formula.` : "",
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
      const side = found.bound === "memory" ? "below" : "at or above";
      const summary =
        `${short(step.intensity)} FLOP per byte, ${side} the balance point of ` +
        `${short(found.balance)}: ${found.bound} sets the pace, ` +
        `at ${percent(found.share)} of the peak.`;
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
            { name: "tokens a second, all", value: scaled(batch / seconds, "") },
            { name: "tokens a second, each", value: scaled(1 / seconds, "") },
          ]),
          sentence(
            `The small dots are batches of ${BATCHES.map(grouped).join(", ")}. `,
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
      const each = scaled(tokens / N, "").trim();
      const summary = `${grouped(N)} parameters, ${each} tokens for each.`;
      return {
        summary,
        nodes: [
          sentence(summary),
          results([
            {
              name: "the estimate",
              formula: "6 N D",
              value: powers(rule),
              share: rule / Math.max(rule, exact),
            },
            {
              name: "matrix products, counted",
              formula: "windows of T",
              value: powers(exact),
              share: exact / Math.max(rule, exact),
            },
          ]),
          sentence(
            `The estimate is ${percent(Math.abs(gap))} `,
            gap > 0 ? "too high." : "too low.",
          ),
        ],
      };
    },
  },
};
