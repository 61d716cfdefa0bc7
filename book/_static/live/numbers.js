/* Numbers of the calculators: read as people write them, written short and true. */

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
  const digits = step || !Number.isInteger(value) ? short(value) : value;
  return `${digits} ${prefixes[step]}${unit}`;
}

/** At most three digits that count: 0.9955 is 0.996. */
export const short = (number) => Number(number.toPrecision(3));

/** A share as a percentage; 100% only if it is all. */
export function percent(share) {
  const value = share * 100;
  if (value > 99.9 && value < 100) return "99.9%";
  return value < 0.095 && value > 0 ? "under 0.1%" : `${Number(value.toFixed(1))}%`;
}
