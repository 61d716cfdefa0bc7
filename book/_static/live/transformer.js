/* The Transformer of this book a second time, in the language of browsers.

   Both models run here: that of Chapter 2 ("ch02") and that of Steps 5 and 6 ("step6").
   Only the forward pass is needed, since nobody trains in a page.

   A matrix of T rows is one Float32Array, row after row. The layers below are functions
   from rows to rows, made from a layer's weights. They handle all rows alike, so one
   token and a whole sequence take the same way. Names: T positions, d the width of the
   stream, H heads of width d / H, V tokens. */

/** @typedef {import("./safetensors.js").Tensor} Tensor */
/** @typedef {(rows: Float32Array) => Float32Array} Layer */

/**
 * The sizes of a model, and which of the two it is.
 * @typedef {{kind: "ch02" | "step6", V: number, T: number, d: number, H: number,
 *   L: number}} Config
 */

/**
 * What attention may look at again: the keys and values of the positions so far.
 * @typedef {{length: number, layers: {keys: Float32Array, values: Float32Array}[]}} Cache
 */

/**
 * Multiply each row by a matrix and add a bias, as torch.nn.Linear does.
 * @param {Tensor} weight   (out, in): one row for each number that comes out
 * @param {Tensor} [bias]   (out)
 * @returns {Layer}   from rows of `in` numbers to rows of `out`
 */
function linear({ shape: [outputs, inputs], data: w }, bias = null) {
  return (rows) => {
    const T = rows.length / inputs;
    const result = new Float32Array(T * outputs);
    // Four outputs at once: each number of the row is fetched once for all four.
    for (let out = 0; out < outputs; out += 4) {
      const lanes = Math.min(4, outputs - out);
      const w0 = out * inputs;
      const w1 = w0 + (lanes > 1 ? inputs : 0); // a missing lane repeats the first
      const w2 = w0 + (lanes > 2 ? 2 * inputs : 0);
      const w3 = w0 + (lanes > 3 ? 3 * inputs : 0);
      for (let t = 0; t < T; t++) {
        const row = t * inputs;
        let a = 0;
        let b = 0;
        let c = 0;
        let d = 0;
        for (let i = 0; i < inputs; i++) {
          const x = rows[row + i];
          a += x * w[w0 + i];
          b += x * w[w1 + i];
          c += x * w[w2 + i];
          d += x * w[w3 + i];
        }
        const sums = [a, b, c, d];
        for (let lane = 0; lane < lanes; lane++) {
          const shift = bias ? bias.data[out + lane] : 0;
          result[t * outputs + out + lane] = sums[lane] + shift;
        }
      }
    }
    return result;
  };
}

/**
 * Divide each row by its root mean square, then scale it: torch.nn.RMSNorm.
 * @param {Tensor} gain   as wide as one row
 * @returns {Layer}
 */
function rmsNorm({ data: gain }) {
  const width = gain.length;
  const epsilon = 2 ** -23; // torch's default, the step of float32 next to 1
  return (rows) => {
    const result = new Float32Array(rows.length);
    for (let start = 0; start < rows.length; start += width) {
      let squares = 0;
      for (let i = 0; i < width; i++) squares += rows[start + i] ** 2;
      const scale = 1 / Math.sqrt(squares / width + epsilon);
      for (let i = 0; i < width; i++) {
        result[start + i] = rows[start + i] * scale * gain[i];
      }
    }
    return result;
  };
}

/**
 * Shift each row to mean 0, divide by its deviation, scale and shift: torch.nn.LayerNorm.
 * @param {Tensor} gain
 * @param {Tensor} bias
 * @returns {Layer}
 */
function layerNorm({ data: gain }, { data: bias }) {
  const width = gain.length;
  return (rows) => {
    const result = new Float32Array(rows.length);
    for (let start = 0; start < rows.length; start += width) {
      let mean = 0;
      for (let i = 0; i < width; i++) mean += rows[start + i] / width;
      let variance = 0;
      for (let i = 0; i < width; i++) variance += (rows[start + i] - mean) ** 2 / width;
      const scale = 1 / Math.sqrt(variance + 1e-5);
      for (let i = 0; i < width; i++) {
        result[start + i] = (rows[start + i] - mean) * scale * gain[i] + bias[i];
      }
    }
    return result;
  };
}

/**
 * The error function, to 2e-7: formula 7.1.26 of Abramowitz and Stegun (1964).
 * @param {number} x
 * @returns {number}
 */
export function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const polynomial =
    t *
    (0.254829592 +
      t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - polynomial * Math.exp(-x * x));
}

/** Each number times the chance that a normal draw lies below it: GELU, exact. */
const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2));

/** Each number times its logistic: SiLU, the curve of the gate. */
const silu = (x) => x / (1 + Math.exp(-x));

/**
 * Two layers with a GELU between, the MLP of Step 5.
 * @param {Layer} up   from d to 4 d
 * @param {Layer} down   and back
 * @returns {Layer}
 */
function geluMlp(up, down) {
  return (rows) => down(up(rows).map(gelu));
}

/**
 * A gated MLP, that of Chapter 2: the first half of the wide layer is the gate.
 * @param {Layer} upGate   from d to twice the hidden width
 * @param {Layer} down   from the hidden width to d
 * @param {number} hidden
 * @returns {Layer}
 */
function swiGlu(upGate, down, hidden) {
  return (rows) => {
    const wide = upGate(rows);
    const gated = new Float32Array(wide.length / 2);
    for (let i = 0; i < gated.length; i++) {
      const gate = Math.floor(i / hidden) * 2 * hidden + (i % hidden);
      gated[i] = silu(wide[gate]) * wide[gate + hidden];
    }
    return down(gated);
  };
}

/**
 * Some rows of a weight as a weight of their own.
 * @param {Tensor} weight   (out, in)
 */
function rowsOf({ shape: [, width], data, dtype }, first, count) {
  const part = data.subarray(first * width, (first + count) * width);
  return { dtype, shape: [count, width], data: part };
}

/** The weights of several heads as one, head under head. */
function stacked(weights) {
  const data = new Float32Array(weights.length * weights[0].data.length);
  weights.forEach((weight, h) => data.set(weight.data, h * weight.data.length));
  const [height, width] = weights[0].shape;
  return { dtype: "F32", shape: [weights.length * height, width], data };
}

/**
 * One block as layers. Queries, keys and values are rows of d numbers, the heads side by
 * side.
 * @typedef {{norm: Layer, query: Layer, key: Layer, value: Layer, output: Layer,
 *   mlpNorm: Layer, mlp: Layer}} Block
 */

/** What differs between the two models: how weights become layers. */
const PARTS = {
  ch02(config, get) {
    const block = (name) => {
      const qkv = get(`${name}.attention.qkv.weight`); // (3 d, d): query, key, value
      const [query, key, value] = [0, 1, 2].map((i) =>
        linear(rowsOf(qkv, i * config.d, config.d)),
      );
      const queryNorm = rmsNorm(get(`${name}.attention.q_norm.weight`)); // head by head
      const keyNorm = rmsNorm(get(`${name}.attention.k_norm.weight`));
      const down = get(`${name}.mlp.down.weight`);
      const upGate = linear(get(`${name}.mlp.up_gate.weight`));
      return {
        norm: rmsNorm(get(`${name}.attention_norm.weight`)),
        query: (rows) => queryNorm(query(rows)),
        key: (rows) => keyNorm(key(rows)),
        value,
        output: linear(get(`${name}.attention.output.weight`)),
        mlpNorm: rmsNorm(get(`${name}.mlp_norm.weight`)),
        mlp: swiGlu(upGate, linear(down), down.shape[1]),
      };
    };
    return {
      tokens: get("token_embedding.weight"),
      positions: get("position_embedding.weight"),
      block,
      finalNorm: rmsNorm(get("final_norm.weight")),
      head: linear(get("token_embedding.weight")), // tied: one matrix, two jobs
    };
  },

  step6(config, get) {
    const layer = (name) => linear(get(`${name}.weight`), get(`${name}.bias`));
    const norm = (name) => layerNorm(get(`${name}.weight`), get(`${name}.bias`));
    const heads = Array.from({ length: config.H }, (_, h) => h);
    const block = (name) => {
      const every = (role) =>
        linear(stacked(heads.map((h) => get(`${name}.attn.heads.${h}.${role}.weight`))));
      return {
        norm: norm(`${name}.ln1`),
        query: every("query"),
        key: every("key"),
        value: every("value"),
        output: layer(`${name}.attn.proj`),
        mlpNorm: norm(`${name}.ln2`),
        mlp: geluMlp(layer(`${name}.mlp.up`), layer(`${name}.mlp.down`)),
      };
    };
    return {
      tokens: get("tok.weight"),
      positions: get("pos.weight"),
      block,
      finalNorm: norm("lnf"),
      head: linear(get("head.weight")),
    };
  },
};

/** Add rows to the residual stream, in place. */
function addTo(stream, update) {
  for (let i = 0; i < stream.length; i++) stream[i] += update[i];
}

/**
 * Let each query look up what it may see: itself and what came before.
 * @param {Float32Array} queries   rows of d, for the positions from `past` on
 * @param {{keys: Float32Array, values: Float32Array}} seen   rows of d, for all so far
 * @param {number} past   how many positions came before the first query
 * @param {number} d
 * @param {number} H
 * @returns {{mixed: Float32Array, weights: Float32Array[]}}   rows of d, and for each
 *   head a matrix with a row for each query and a column for each position
 */
function attend(queries, { keys, values }, past, d, H) {
  const width = d / H;
  const T = queries.length / d;
  const total = past + T;
  const mixed = new Float32Array(T * d);
  const weights = [];
  for (let h = 0; h < H; h++) {
    const matrix = new Float32Array(T * total); // 0 where the future is
    for (let t = 0; t < T; t++) {
      const visible = past + t + 1;
      const row = matrix.subarray(t * total, t * total + visible);
      const query = t * d + h * width;
      let largest = -Infinity;
      for (let s = 0; s < visible; s++) {
        const key = s * d + h * width;
        let score = 0;
        for (let i = 0; i < width; i++) score += queries[query + i] * keys[key + i];
        row[s] = score / Math.sqrt(width);
        largest = Math.max(largest, row[s]);
      }
      let sum = 0;
      for (let s = 0; s < visible; s++) {
        row[s] = Math.exp(row[s] - largest);
        sum += row[s];
      }
      for (let s = 0; s < visible; s++) {
        row[s] /= sum;
        const value = s * d + h * width;
        for (let i = 0; i < width; i++) mixed[query + i] += row[s] * values[value + i];
      }
    }
    weights.push(matrix);
  }
  return { mixed, weights };
}

/** A model: ids in, logits for the next id out. */
export class Transformer {
  /**
   * @param {Config} config
   * @param {Map<string, Tensor>} tensors   named as in PyTorch
   * @throws {Error} if there is no such kind of model, or a tensor is missing
   */
  constructor(config, tensors) {
    const parts = PARTS[config.kind];
    if (!parts) {
      throw new Error(`kind is ${config.kind}; expected ${Object.keys(PARTS).join(", ")}`);
    }
    const get = (name) => {
      if (!tensors.has(name)) throw new Error(`the weights lack the tensor ${name}`);
      return tensors.get(name);
    };
    const { tokens, positions, block, finalNorm, head } = parts(config, get);
    this.config = config;
    this.tokens = tokens; // (V, d)
    this.positions = positions; // (T, d)
    this.blocks = Array.from({ length: config.L }, (_, i) => block(`blocks.${i}`));
    this.finalNorm = finalNorm;
    this.head = head;
  }

  /**
   * Room for the keys and values of a whole sequence, none of it used yet.
   * @returns {Cache}
   */
  emptyCache() {
    const room = () => new Float32Array(this.config.T * this.config.d);
    const layers = this.blocks.map(() => ({ keys: room(), values: room() }));
    return { length: 0, layers };
  }

  /**
   * Refuse tokens that the tables have no row for, and say which.
   * @param {number[]} tokens
   * @param {number} past
   */
  check(tokens, past) {
    const { V, T } = this.config;
    if (tokens.length === 0) throw new RangeError("no tokens; expected at least one");
    if (past + tokens.length > T) {
      throw new RangeError(
        `${past} cached and ${tokens.length} new tokens make ${past + tokens.length}; ` +
          `expected at most the ${T} positions of this model`,
      );
    }
    for (const id of tokens) {
      if (!Number.isInteger(id) || id < 0 || id >= V) {
        throw new RangeError(`token id ${id}; expected 0 to ${V - 1}`);
      }
    }
  }

  /**
   * Predict the next token, at the last position or at all of them.
   * @param {number[]} tokens   ids
   * @param {?Cache} cache   from `emptyCache`; `tokens` continue what it holds, and it
   *   is longer afterwards. Without one nothing is kept.
   * @param {{attention?: boolean, all?: boolean}} options   `attention`: return the
   *   weights of every head; `all`: logits of every position
   * @returns {{logits: Float32Array, attention: ?Float32Array[][]}}   logits: V, or
   *   T × V with `all`. attention: [layer][head], a row for each new token and a column
   *   for each token so far
   * @throws {RangeError} if the tokens do not fit
   */
  forward(tokens, cache = null, { attention = false, all = false } = {}) {
    const { d, H } = this.config;
    const past = cache ? cache.length : 0;
    this.check(tokens, past);
    const T = tokens.length;
    const maps = [];

    const stream = new Float32Array(T * d);
    for (let t = 0; t < T; t++) {
      for (let i = 0; i < d; i++) {
        stream[t * d + i] =
          this.tokens.data[tokens[t] * d + i] + this.positions.data[(past + t) * d + i];
      }
    }

    this.blocks.forEach((block, layer) => {
      const rows = block.norm(stream);
      let seen = { keys: block.key(rows), values: block.value(rows) };
      if (cache) {
        const kept = cache.layers[layer];
        kept.keys.set(seen.keys, past * d); // the new ones behind the old
        kept.values.set(seen.values, past * d);
        seen = kept;
      }
      const { mixed, weights } = attend(block.query(rows), seen, past, d, H);
      maps.push(weights);
      addTo(stream, block.output(mixed));
      addTo(stream, block.mlp(block.mlpNorm(stream)));
    });
    if (cache) cache.length += T;

    const asked = all ? stream : stream.subarray((T - 1) * d);
    const logits = this.head(this.finalNorm(asked));
    return { logits, attention: attention ? maps : null };
  }
}
