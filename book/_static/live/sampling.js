/* From logits to one token: the functions of Step 7, once more.

   The order is that of the page: temperature, then top-k, then top-p, each applied to
   what the one before has kept, renormalised. */

/** What is kept has a score; what is dropped has this one, whose exponential is 0. */
const DROPPED = -Infinity;

/**
 * Scores to probabilities, which add up to 1.
 * @param {ArrayLike<number>} scores
 * @returns {Float64Array}
 */
export function softmax(scores) {
  const largest = Math.max(...scores);
  const weights = Float64Array.from(scores, (score) => Math.exp(score - largest));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}

/**
 * The likeliest id; of equals the lowest.
 * @param {ArrayLike<number>} scores
 * @returns {number}
 */
export function argmax(scores) {
  let best = 0;
  for (let id = 1; id < scores.length; id++) if (scores[id] > scores[best]) best = id;
  return best;
}

/** The ids by score, largest first; of equals the lower id first. */
function ranked(scores) {
  return Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a] || a - b);
}

/**
 * Divide by a temperature, shifted so that the largest score is 0; at 0 it stays alone.
 * @param {ArrayLike<number>} logits
 * @param {number} temperature   from 0 up
 * @returns {Float64Array}
 */
export function applyTemperature(logits, temperature) {
  if (!(temperature >= 0 && temperature < Infinity)) {
    throw new RangeError(`temperature is ${temperature}; expected a number from 0 up`);
  }
  const best = argmax(logits);
  if (temperature === 0) {
    return Float64Array.from(logits, (_, id) => (id === best ? 0 : DROPPED));
  }
  const least = Math.max(temperature, 2 ** -1022); // smaller ones divide to infinity
  return Float64Array.from(logits, (logit) => (logit - logits[best]) / least);
}

/**
 * Keep the k largest scores.
 * @param {Float64Array} scores
 * @param {number} k   a whole number from 1 up
 * @returns {Float64Array}
 */
export function keepTopK(scores, k) {
  if (!Number.isInteger(k) || k < 1) {
    throw new RangeError(`k is ${k}; expected a positive integer`);
  }
  const result = new Float64Array(scores.length).fill(DROPPED);
  for (const id of ranked(scores).slice(0, k)) result[id] = scores[id];
  return result;
}

/**
 * Keep the fewest likeliest tokens that together have probability p or more.
 * @param {Float64Array} scores
 * @param {number} p   from 0 to 1; the likeliest token is always kept
 * @returns {Float64Array}
 */
export function keepTopP(scores, p) {
  if (!(p >= 0 && p <= 1)) {
    throw new RangeError(`p is ${p}; expected a number from 0 to 1`);
  }
  if (p === 1) return scores.slice(); // a rounded sum may reach 1 before the last token
  const probabilities = softmax(scores);
  const result = new Float64Array(scores.length).fill(DROPPED);
  let mass = 0;
  for (const id of ranked(scores)) {
    result[id] = scores[id];
    mass += probabilities[id];
    if (mass >= p) break;
  }
  return result;
}

/**
 * The probabilities that are drawn from.
 * @param {ArrayLike<number>} logits
 * @param {{temperature?: number, topK?: ?number, topP?: ?number}} settings   a step
 *   that is null or missing is left out
 * @returns {Float64Array}
 */
export function distribution(logits, { temperature = 1, topK = null, topP = null } = {}) {
  let scores = applyTemperature(logits, temperature);
  if (topK !== null) scores = keepTopK(scores, topK);
  if (topP !== null) scores = keepTopP(scores, topP);
  return softmax(scores);
}

/**
 * Draw one id: lay the probabilities end to end, and see where a random point falls.
 * @param {ArrayLike<number>} probabilities   adding up to 1
 * @param {() => number} random   from 0 up, below 1
 * @returns {number}
 */
export function draw(probabilities, random) {
  let rest = random();
  let last = 0;
  for (let id = 0; id < probabilities.length; id++) {
    if (probabilities[id] === 0) continue;
    last = id; // rounding may leave a crumb behind the last one
    rest -= probabilities[id];
    if (rest < 0) return id;
  }
  return last;
}

/**
 * A stream of random numbers that a seed repeats: mulberry32, by Tommy Ettinger.
 * @param {number} seed   a whole number
 * @returns {() => number}   from 0 up, below 1
 */
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
