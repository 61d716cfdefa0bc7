/* The book's arithmetic of models: parameters, operations, bytes, and the roofline.

   Pure functions of a model's sizes. The architecture is part of the sizes, since the
   same width means another count with biases, a gate, or shared keys and values. */

/**
 * The sizes of a decoder-only Transformer, and how it is built.
 * @typedef {Object} Sizes
 * @property {number} vocabulary - V, how many tokens there are
 * @property {number} context - T, the longest sequence
 * @property {number} width - d, of the residual stream
 * @property {number} layers - L, blocks
 * @property {number} heads - H, of queries; divides the width
 * @property {number} keyHeads - heads of keys and values; H, or fewer that share
 * @property {number} hidden - h, width of the MLP
 * @property {keyof typeof ARCHITECTURES} architecture
 */

/**
 * How a model is built, as far as its counts can tell.
 * @typedef {Object} Architecture
 * @property {string} name
 * @property {string} parts - what it is made of, in words
 * @property {boolean} tied - the head is the token table
 * @property {boolean} table - positions are learned, one row each
 * @property {boolean} gated - the MLP has a third matrix, the gate
 * @property {boolean} shift - a norm has a shift besides its gain (LayerNorm)
 * @property {boolean} normedKeys - queries and keys are normalised (QK-norm)
 * @property {boolean} keyBias - biases at the projections to queries, keys, values
 * @property {boolean} bias - biases at the other matrices of a block
 */

/** @type {Record<string, Architecture>} */
export const ARCHITECTURES = {
  chapter: {
    name: "TinyGPT, modern recipe",
    parts: "RMSNorm, QK-norm, SwiGLU, learned positions, no biases, tied head",
    tied: true,
    table: true,
    gated: true,
    shift: false,
    normedKeys: true,
    keyBias: false,
    bias: false,
  },
  steps: {
    name: "GPT, Steps 5 to 8",
    parts: "LayerNorm, GELU, learned positions, no biases at keys, untied head",
    tied: false,
    table: true,
    gated: false,
    shift: true,
    normedKeys: false,
    keyBias: false,
    bias: true,
  },
  gpt2: {
    name: "GPT-2",
    parts: "LayerNorm, GELU, learned positions, biases in every block, tied head",
    tied: true,
    table: true,
    gated: false,
    shift: true,
    normedKeys: false,
    keyBias: true,
    bias: true,
  },
  llama: {
    name: "Llama",
    parts: "RMSNorm, SwiGLU, rotated positions, no biases, untied head",
    tied: false,
    table: false,
    gated: true,
    shift: false,
    normedKeys: false,
    keyBias: false,
    bias: false,
  },
};

/**
 * The matrices that a token is multiplied by, in entries.
 * @param {Sizes} sizes
 */
export function matrices(sizes) {
  const { width: d, layers: L, hidden: h, heads: H, keyHeads, vocabulary: V } = sizes;
  const shared = (d / H) * keyHeads; // width of all keys together, and of all values
  const { gated } = ARCHITECTURES[sizes.architecture];
  return {
    attention: L * (2 * d * d + 2 * d * shared),
    mlp: L * (gated ? 3 : 2) * d * h,
    head: V * d,
  };
}

/**
 * Predict the parameters of a model, part by part; a tied matrix counts once.
 * @param {Sizes} sizes
 */
export function parameters(sizes) {
  const { width: d, layers: L, hidden: h, heads: H, keyHeads } = sizes;
  const { vocabulary: V, context: T } = sizes;
  const built = ARCHITECTURES[sizes.architecture];
  const products = matrices(sizes);
  const norm = built.shift ? 2 * d : d;
  const shared = (d / H) * keyHeads;
  const keyBiases = built.keyBias ? d + 2 * shared : 0;
  const parts = {
    embedding: V * d,
    positions: built.table ? T * d : 0,
    attention: products.attention + L * (keyBiases + (built.bias ? d : 0)),
    mlp: products.mlp + L * (built.bias ? h + d : 0),
    blockNorms: L * (2 * norm + (built.normedKeys ? 2 * (d / H) : 0)),
    finalNorm: norm,
    head: built.tied ? 0 : products.head,
  };
  const total = Object.values(parts).reduce((sum, part) => sum + part, 0);
  return { ...parts, total };
}

/**
 * Forward FLOPs of one token that looks at `context` positions: 2 for each entry of a
 * matrix, and 4 d for each position and layer. Looking a row up is no product.
 * @param {Sizes} sizes
 * @param {number} context
 */
export function flopsPerToken(sizes, context) {
  const { attention, mlp, head } = matrices(sizes);
  const weights = 2 * (attention + mlp + head);
  const looks = sizes.layers * 4 * context * sizes.width;
  return { weights, attention: looks, total: weights + looks };
}

/**
 * FLOPs of training on `tokens` tokens in windows of `context`: three forward passes.
 * The whole square of scores counts, also what the mask hides.
 * @param {Sizes} sizes
 * @param {number} tokens
 * @param {number} [context]
 */
export function trainingFlops(sizes, tokens, context = sizes.context) {
  return 3 * tokens * flopsPerToken(sizes, context).total;
}

/**
 * Bytes of the keys and values that are kept for `length` positions.
 * @param {Sizes} sizes
 * @param {number} length
 * @param {number} batch
 * @param {number} bytes - for each number
 */
export function cacheBytes(sizes, length, batch, bytes) {
  const { width, heads, keyHeads, layers } = sizes;
  return 2 * batch * layers * length * (width / heads) * keyHeads * bytes;
}

/**
 * One step of writing: `batch` sequences of `length` positions, one new token each.
 * Every matrix is read once for all of them, every cache by its own sequence.
 * @param {Sizes} sizes
 * @param {number} batch
 * @param {number} length
 * @param {number} bytes - for each number
 */
export function decodeStep(sizes, batch, length, bytes) {
  const { attention, mlp, head } = matrices(sizes);
  const flops = batch * flopsPerToken(sizes, length).total;
  const weightBytes = bytes * (attention + mlp + head);
  const cached = cacheBytes(sizes, length, batch, bytes);
  return {
    flops,
    weightBytes,
    cacheBytes: cached,
    intensity: flops / (weightBytes + cached),
  };
}

/**
 * What a machine reaches at an intensity: the smaller of two limits.
 * @param {number} intensity - FLOPs for each byte moved
 * @param {number} peak - FLOPs a second
 * @param {number} bandwidth - bytes a second
 */
export function roofline(intensity, peak, bandwidth) {
  const balance = peak / bandwidth;
  const reached = Math.min(peak, bandwidth * intensity);
  return {
    balance,
    reached,
    share: reached / peak,
    bound: intensity < balance ? "memory" : "arithmetic",
  };
}

/**
 * Say what is wrong with sizes, in words; null if nothing is.
 * @param {Sizes} sizes
 * @returns {{field: string, message: string} | null}
 */
export function complaint(sizes) {
  const { width, heads, keyHeads } = sizes;
  if (width % heads) {
    const found = `the width is ${width} and there are ${heads} heads`;
    return { field: "heads", message: `${found}; expected heads that divide it evenly` };
  }
  if (keyHeads > heads || heads % keyHeads) {
    const found = `${heads} heads of queries cannot share ${keyHeads} of keys evenly`;
    return { field: "keyHeads", message: `${found}; expected a divisor of ${heads}` };
  }
  return null;
}

/**
 * Sizes of models that exist, with the place where they are published.
 * @typedef {Object} Preset
 * @property {string} name
 * @property {string} [published] - author and year, as in book/references.bib
 * @property {Sizes} sizes
 * @property {number} [tokens] - trained on, where that is published
 */

/** @type {Record<string, Preset>} */
export const PRESETS = {
  ch02: {
    name: "TinyGPT of the modern recipe",
    sizes: {
      architecture: "chapter",
      vocabulary: 512,
      context: 128,
      width: 64,
      layers: 2,
      heads: 4,
      keyHeads: 4,
      hidden: 171,
    },
    tokens: 400 * 16 * 128, // steps, windows, positions
  },
  step5: {
    name: "GPT of Steps 5 and 6",
    sizes: {
      architecture: "steps",
      vocabulary: 65,
      context: 64,
      width: 128,
      layers: 4,
      heads: 4,
      keyHeads: 4,
      hidden: 512,
    },
    tokens: 5000 * 64 * 64,
  },
  gpt2: {
    name: "GPT-2 small",
    published: "Radford et al., 2019",
    sizes: {
      architecture: "gpt2",
      vocabulary: 50257,
      context: 1024,
      width: 768,
      layers: 12,
      heads: 12,
      keyHeads: 12,
      hidden: 3072,
    },
  },
  gpt2xl: {
    name: "GPT-2 XL",
    published: "Radford et al., 2019",
    sizes: {
      architecture: "gpt2",
      vocabulary: 50257,
      context: 1024,
      width: 1600,
      layers: 48,
      heads: 25,
      keyHeads: 25,
      hidden: 6400,
    },
  },
  gpt3: {
    name: "GPT-3 175B",
    published: "Brown et al., 2020",
    sizes: {
      architecture: "gpt2", // every other layer looks back sparsely: counted in full
      vocabulary: 50257,
      context: 2048,
      width: 12288,
      layers: 96,
      heads: 96,
      keyHeads: 96,
      hidden: 49152,
    },
    tokens: 300e9,
  },
  llama2: {
    name: "Llama 2 7B",
    published: "Touvron et al., 2023",
    sizes: {
      architecture: "llama",
      vocabulary: 32000,
      context: 4096,
      width: 4096,
      layers: 32,
      heads: 32,
      keyHeads: 32,
      hidden: 11008,
    },
    tokens: 2e12,
  },
  llama3: {
    name: "Llama 3 8B",
    published: "Grattafiori et al., 2024",
    sizes: {
      architecture: "llama",
      vocabulary: 128256,
      context: 8192,
      width: 4096,
      layers: 32,
      heads: 32,
      keyHeads: 8,
      hidden: 14336,
    },
    tokens: 15e12,
  },
};
