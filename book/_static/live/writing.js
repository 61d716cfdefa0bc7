/* Writing: ask the model what may come next, draw, append, again. */

import { distribution, draw, seeded } from "./sampling.js";

/** @typedef {import("./transformer.js").Transformer} Transformer */

/** Reads texts, and does not read again what it has read before. */
export class Reader {
  /** @param {Transformer} model */
  constructor(model) {
    this.model = model;
    this.cache = model.emptyCache();
    this.seen = []; // the tokens whose keys and values the cache holds
  }

  /**
   * The logits for what comes after a text.
   *
   * The model sees the last T tokens. Once a text is longer, this window slides: each
   * token gets a new position, so nothing that was kept is of use.
   *
   * @param {number[]} ids   at least one
   * @param {boolean} useCache   without it the whole window is read each time
   * @returns {Float32Array}
   */
  logits(ids, useCache = true) {
    const window = ids.slice(-this.model.config.T);
    if (!useCache) return this.model.forward(window).logits;
    let known = 0;
    while (known < window.length - 1 && window[known] === this.seen[known]) known++;
    this.cache.length = known; // what stands behind belongs to another text
    this.seen = window.slice(0, known);
    const { logits } = this.model.forward(window.slice(known), this.cache);
    this.seen = window;
    return logits;
  }
}

/**
 * How a text is written on.
 * @typedef {Object} Manner
 * @property {number} prompt   how many of the ids are the prompt
 * @property {number} count   how many tokens to write
 * @property {number} seed
 * @property {{temperature: number, topK: ?number, topP: ?number}} settings
 * @property {boolean} useCache
 */

/**
 * Write on, token by token.
 *
 * The n-th token behind the prompt takes the n-th random number of the seed, so the text
 * is the same whether it is written in one go or in many.
 *
 * @param {Reader} reader
 * @param {number[]} ids   the prompt and what was written so far
 * @param {Manner} manner
 * @yields {number} the new ids
 */
export function* write(reader, ids, { prompt, count, seed, settings, useCache }) {
  const text = [...ids];
  const random = seeded(seed);
  for (let used = prompt; used < ids.length; used++) random();
  for (let n = 0; n < count; n++) {
    const logits = reader.logits(text, useCache);
    const id = draw(distribution(logits, settings), random);
    text.push(id);
    yield id;
  }
}

/**
 * What each token adds to the text. A character that is spread over several tokens
 * appears with its last one.
 * @param {{decode: (ids: number[]) => string, bytes?: (id: number) => Uint8Array}}
 *   tokenizer
 * @param {number[]} ids
 * @returns {string[]}   as many pieces as ids; together they are the text
 */
export function pieces(tokenizer, ids) {
  if (!tokenizer.bytes) return ids.map((id) => tokenizer.decode([id]));
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const texts = ids.map((id) => decoder.decode(tokenizer.bytes(id), { stream: true }));
  if (ids.length) texts[ids.length - 1] += decoder.decode(); // what never became whole
  return texts;
}

/**
 * A token as it is shown by itself: blanks made visible, broken characters as bytes.
 * @returns {string}
 */
export function tokenName(tokenizer, id) {
  const text = tokenizer.decode([id]);
  if (tokenizer.bytes && text.includes("\ufffd")) {
    const bytes = [...tokenizer.bytes(id)];
    return `⟨${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")}⟩`;
  }
  const marks = { " ": "␠", "\n": "⏎", "\r": "␍", "\t": "⇥" };
  return text
    .replace(/[ \n\r\t]/g, (blank) => marks[blank])
    .replace(/[\0-\x1f\x7f]/g, (control) =>
      String.fromCharCode(control === "\x7f" ? 0x2421 : 0x2400 + control.charCodeAt(0)),
    );
}
