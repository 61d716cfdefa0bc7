/* Fetches a model of the book and makes it ready to run. */

import { parseSafetensors } from "./safetensors.js";
import { BytePairTokenizer, CharTokenizer } from "./tokenizer.js";
import { Transformer } from "./transformer.js";

/**
 * @typedef {import("./transformer.js").Config} Config
 * @typedef {{encode: (text: string) => number[], decode: (ids: number[]) => string}}
 *   Tokenizer
 */

/** Files that were asked for, by address, so that two figures fetch one file once. */
const asked = new Map();

/**
 * Make the tokenizer that a model's file describes.
 * @param {{kind: "bytes", merges: number[][]} | {kind: "characters",
 *   characters: string}} described
 * @returns {Tokenizer}
 */
export function makeTokenizer(described) {
  return described.kind === "bytes"
    ? new BytePairTokenizer(described.merges)
    : new CharTokenizer(described.characters);
}

async function fetchModel(address) {
  const answer = await fetch(address);
  if (!answer.ok) {
    throw new Error(`the model ${address} did not arrive: ${answer.status}`);
  }
  const { metadata, tensors } = parseSafetensors(await answer.arrayBuffer());
  const config = JSON.parse(metadata.config);
  const described = JSON.parse(metadata.tokenizer);
  const model = new Transformer(config, tensors);
  return { config, model, described, tokenizer: makeTokenizer(described) };
}

/**
 * Load a model: "ch02" or "step6", or with "-start" what it was before training.
 * @param {string} base   the address of this folder, ending in a slash
 * @param {string} name
 * @returns {Promise<{config: Config, model: Transformer, tokenizer: Tokenizer,
 *   described: Object}>}   `described` makes the tokenizer again, in another thread
 */
export function loadModel(base, name) {
  const address = new URL(`data/${name}.safetensors`, base).href;
  if (!asked.has(address)) {
    const loading = fetchModel(address);
    loading.catch(() => asked.delete(address)); // the next one may try again
    asked.set(address, loading);
  }
  return asked.get(address);
}
