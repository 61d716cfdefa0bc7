/* Reads a safetensors file: named arrays of numbers, and a few words about them.

   The format is small. Eight bytes give the length n of a header; n bytes of JSON say for
   each tensor its type, its shape and where its bytes lie; the rest is these bytes.

       { "weight": { "dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12] },
         "__metadata__": { "config": "..." } }

   The weights of the book's models are stored with 16 bits each, half of what PyTorch
   uses. They are widened to 32 bits here, and everything is computed with these. */

/**
 * @typedef {Object} Tensor
 * @property {string} dtype   the type in the file, "F16" or "F32"
 * @property {number[]} shape
 * @property {Float32Array} data   row after row
 */

const BYTES = { F16: 2, F32: 4 };

/**
 * Widen one number of 16 bits: a sign, 5 bits of exponent, 10 bits of fraction.
 * @param {number} bits   as an integer from 0 to 65535
 * @returns {number}
 */
export function halfToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  if (exponent === 0) return sign * 2 ** -24 * fraction; // too small for a leading 1
  return sign * 2 ** (exponent - 25) * (1024 + fraction);
}

/** Every number of 16 bits, widened: the bits are the index. */
let everyHalf = null;

/**
 * @param {DataView} view   the bytes of one tensor, least significant byte first
 * @param {string} dtype
 * @returns {Float32Array}
 */
function readNumbers(view, dtype) {
  if (dtype === "F32") {
    return Float32Array.from({ length: view.byteLength / 4 }, (_, i) =>
      view.getFloat32(4 * i, true),
    );
  }
  everyHalf ??= Float32Array.from({ length: 65536 }, (_, bits) => halfToNumber(bits));
  const numbers = new Float32Array(view.byteLength / 2);
  for (let i = 0; i < numbers.length; i++) {
    numbers[i] = everyHalf[view.getUint16(2 * i, true)];
  }
  return numbers;
}

/**
 * Split the bytes of a file into header and data.
 * @param {ArrayBuffer} buffer
 * @returns {{header: Object<string, any>, start: number}}
 */
function readHeader(buffer) {
  if (buffer.byteLength < 8) {
    throw new Error(`no safetensors file: ${buffer.byteLength} bytes, expected 8 or more`);
  }
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  if (length > buffer.byteLength - 8) {
    throw new Error(
      `no whole safetensors file: its header takes ${length} bytes, ` +
        `but only ${buffer.byteLength - 8} follow`,
    );
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(
      new Uint8Array(buffer, 8, length),
    );
    const header = JSON.parse(text);
    if (header === null || typeof header !== "object" || Array.isArray(header)) {
      throw new Error("it is no table of names");
    }
    return { header, start: 8 + length };
  } catch (error) {
    throw new Error(`no safetensors file: its header cannot be read, ${error.message}`);
  }
}

/**
 * Read a file of F16 and F32 tensors.
 * @param {ArrayBuffer} buffer   the whole file
 * @returns {{metadata: Object<string, string>, tensors: Map<string, Tensor>}}
 * @throws {Error} if the file is broken; the message says where
 */
export function parseSafetensors(buffer) {
  const { header, start } = readHeader(buffer);
  const { __metadata__: metadata = {}, ...described } = header;
  const tensors = new Map();
  for (const [name, about] of Object.entries(described)) {
    const { dtype, shape, data_offsets: offsets } = about ?? {};
    if (!(dtype in BYTES)) {
      throw new Error(`tensor ${name} has the type ${dtype}; expected F16 or F32`);
    }
    if (!Array.isArray(shape) || !Array.isArray(offsets) || offsets.length !== 2) {
      throw new Error(`tensor ${name} has no shape or no place in the file`);
    }
    const [from, to] = offsets;
    const bytes = shape.reduce((product, size) => product * size, BYTES[dtype]);
    if (to - from !== bytes) {
      throw new Error(
        `tensor ${name} of shape (${shape}) takes ${bytes} bytes, ` +
          `but the file gives it ${to - from}`,
      );
    }
    if (!(from >= 0 && start + to <= buffer.byteLength)) {
      throw new Error(`tensor ${name} ends behind the end of the file`);
    }
    const data = readNumbers(new DataView(buffer, start + from, bytes), dtype);
    tensors.set(name, { dtype, shape, data });
  }
  return { metadata, tensors };
}
