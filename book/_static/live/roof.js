/* The roofline as a picture. */

import { svg } from "./dom.js";
import { grouped, percent, short } from "./numbers.js";

const FRAME = { left: 46, right: 404, top: 28, bottom: 208 };

/**
 * A log-log picture: the roof, the programs under it, and the one that is asked about.
 * @param {number} intensity
 * @param {number[]} others - intensities of other batches, small dots
 * @param {ReturnType<typeof import("./formulas.js").roofline>} found
 * @param {string} name
 */
export function roof(intensity, others, found, name) {
  const [low, high] = [0.1, Math.max(1e4, 10 * found.balance)];
  const least = 4e-4;
  const { left, right, top, bottom } = FRAME;
  const along = (value, a, b, from, to) => {
    const inside = Math.min(Math.max(value, a), b);
    return from + ((to - from) * Math.log(inside / a)) / Math.log(b / a);
  };
  const x = (value) => along(value, low, high, left, right);
  const y = (share) => along(share, least, 1, bottom, top);
  const height = (value) => Math.min(1, value / found.balance);
  const start = Math.max(low, least * found.balance);
  const mark = (value, size, kind) =>
    svg("circle", { cx: x(value), cy: y(height(value)), r: size, class: kind });
  const text = (words, px, py, anchor, kind = "") =>
    svg("text", { x: px, y: py, "text-anchor": anchor, class: kind }, words);
  const ticks = [0.1, 1, 10, 100, 1000, 10000].map((value) => {
    const anchor = x(value) > right - 20 ? "end" : "middle";
    return text(grouped(value), x(value), bottom + 16, anchor);
  });
  const levels = [1, 0.1, 0.01, 0.001].map((share) =>
    text(`${100 * share}%`, left - 6, y(share) + 4, "end"),
  );
  const lines = [1, 0.1, 0.01, 0.001].map((share) => {
    const ends = { x1: left, x2: right, y1: y(share), y2: y(share) };
    return svg("line", { ...ends, class: "calculators-grid" });
  });
  const [px, py] = [x(intensity), y(height(intensity))];
  const below = py + 22 < bottom ? py + 22 : py - 12;
  const [at, anchor] = [Math.min(px + 4, right - 30), px > 300 ? "end" : "start"];
  const described =
    "Share of the peak over FLOPs per byte, both logarithmic. A line rises to the " +
    `balance point at ${short(found.balance)} and is flat beyond it. ${name} stands ` +
    `at ${short(intensity)}, ${percent(found.share)} of the peak.`;
  return svg(
    "svg",
    {
      viewBox: "0 0 420 252",
      role: "img",
      class: "calculators-roof",
      "aria-label": described,
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
    text(name, at, below, anchor, "calculators-name"),
    text("share of the peak", left - 42, top - 14, "start"),
    text("FLOP per byte", (left + right) / 2, bottom + 34, "middle"),
  );
}
