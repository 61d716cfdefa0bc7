/* The two tokenizers of the book, in JavaScript: bytes and merges, and characters.

   The same definitions as tinygpt.transformer.BytePairTokenizer and
   tinygpt.chars.CharTokenizer, to the last id and the last byte. */

/**
 * One learned rule: the neighbours `left, right` become the token `newId`.
 * @typedef {[left: number, right: number, newId: number]} Merge
 */

/**
 * A moment of encoding: the tokens after one merge.
 * @typedef {Object} Step
 * @property {Merge | null} merge - the rule that was applied; null for the bytes
 * @property {number[]} ids - the tokens after it
 * @property {number[]} joined - the places in `ids` that the rule has just written
 */

/**
 * The position of the first lone surrogate, counted in characters, or -1.
 * @param {string} text
 */
export function loneSurrogate(text) {
  return [...text].findIndex((character) => /^[\uD800-\uDFFF]$/.test(character));
}

/**
 * The UTF-8 bytes of a text, each an integer from 0 to 255.
 * @param {string} text
 * @returns {number[]}
 * @throws {RangeError} the text holds half of a two-part character
 */
export function utf8Bytes(text) {
  const place = loneSurrogate(text);
  if (place >= 0) {
    const half = [...text][place].charCodeAt(0).toString(16);
    throw new RangeError(
      `character ${place} of the text is '\\u${half}', a lone surrogate; ` +
        "expected text that UTF-8 can encode",
    );
  }
  return [...new TextEncoder().encode(text)];
}

/**
 * Text of bytes; what is no UTF-8 becomes U+FFFD, as with errors="replace".
 * @param {Iterable<number>} bytes
 */
export function utf8Text(bytes) {
  // A decoder would drop a leading U+FEFF, unless told that it is a character.
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
}

/**
 * Apply one merge from left to right: `aaa` becomes `(aa)a`.
 * @param {number[]} ids
 * @param {Merge} merge
 * @returns {{ids: number[], joined: number[]}} new tokens, and the places it wrote
 */
export function mergePair(ids, [left, right, newId]) {
  const merged = [];
  const joined = [];
  let i = 0;
  while (i < ids.length) {
    if (ids[i] === left && ids[i + 1] === right) {
      joined.push(merged.length);
      merged.push(newId);
      i += 2;
    } else {
      merged.push(ids[i]);
      i += 1;
    }
  }
  return { ids: merged, joined };
}

/** Byte-level byte-pair encoding; its merges are all that it has learned. */
export class BytePairTokenizer {
  /**
   * @param {Merge[]} merges - in the order learned; their new ids count up from 256
   * @throws {RangeError} a merge is out of order, or it uses an unknown token
   */
  constructor(merges) {
    this.merges = merges;
    /** @type {Uint8Array[]} what each token spells */
    this.spellings = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
    for (const [left, right, newId] of merges) {
      const next = this.spellings.length;
      const known = [left, right].every((part) => this.spellings[part]);
      if (newId !== next || !known) {
        throw new RangeError(
          `the merge (${left}, ${right}) -> ${newId} cannot follow; ` +
            `expected ${next} for it, and two parts from 0 to ${next - 1}`,
        );
      }
      this.spellings.push(
        Uint8Array.of(...this.spellings[left], ...this.spellings[right]),
      );
    }
  }

  /** How many tokens there are: 256 bytes and one more for each merge. */
  get vocabSize() {
    return this.spellings.length;
  }

  /**
   * What a token spells.
   * @param {number} id
   * @returns {Uint8Array}
   * @throws {RangeError} the id is not in the vocabulary
   */
  bytes(id) {
    const spelling = this.spellings[id];
    if (!spelling) {
      throw new RangeError(`token ${id}; expected 0 to ${this.vocabSize - 1}`);
    }
    return spelling;
  }

  /**
   * Turn text into ids by replaying the merges in the order learned.
   * @param {string} text
   * @returns {number[]}
   */
  encode(text) {
    let ids = utf8Bytes(text);
    for (const merge of this.merges) ids = mergePair(ids, merge).ids;
    return ids;
  }

  /**
   * Turn ids into text; bytes that are no UTF-8 become U+FFFD.
   * @param {number[]} ids
   * @returns {string}
   */
  decode(ids) {
    return utf8Text(ids.flatMap((id) => [...this.bytes(id)]));
  }

  /**
   * Encode, and keep each moment: the bytes, then every merge that changed something.
   * @param {string} text
   * @returns {Step[]}
   */
  steps(text) {
    const steps = [{ merge: null, ids: utf8Bytes(text), joined: [] }];
    for (const merge of this.merges) {
      const { ids, joined } = mergePair(steps.at(-1).ids, merge);
      if (joined.length) steps.push({ merge, ids, joined });
    }
    return steps;
  }
}

/** One number for each character: its place in the sorted alphabet. */
export class CharTokenizer {
  /**
   * @param {string} characters - each once, in any order
   * @throws {RangeError} the alphabet is empty or repeats itself
   */
  constructor(characters) {
    this.alphabet = [...characters].sort((a, b) => a.codePointAt(0) - b.codePointAt(0));
    this.ids = new Map(this.alphabet.map((character, id) => [character, id]));
    if (!this.alphabet.length || this.ids.size < this.alphabet.length) {
      throw new RangeError(
        `the alphabet is '${characters}'; expected at least one character, each once`,
      );
    }
  }

  /** How many characters the alphabet has. */
  get vocabSize() {
    return this.alphabet.length;
  }

  /**
   * Turn text into ids, one for each character.
   * @param {string} text
   * @returns {number[]}
   * @throws {RangeError} a character is not in the alphabet; the message names it
   */
  encode(text) {
    return [...text].map((character, place) => {
      const id = this.ids.get(character);
      if (id === undefined) {
        throw new RangeError(
          `character ${place} of the text is '${character}'; it is not among ` +
            `the ${this.vocabSize} characters of the alphabet`,
        );
      }
      return id;
    });
  }

  /**
   * Turn ids into text; the opposite of `encode`.
   * @param {number[]} ids
   * @returns {string}
   * @throws {RangeError} an id is out of range; the message names it and its place
   */
  decode(ids) {
    return ids
      .map((id, place) => {
        const character = this.alphabet[id];
        if (character === undefined) {
          throw new RangeError(
            `id ${place} is ${id}; expected 0 to ${this.vocabSize - 1}`,
          );
        }
        return character;
      })
      .join("");
  }
}
