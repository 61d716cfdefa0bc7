/* Small helpers to draw with: choices, heat maps, line charts.

   Nothing here knows a model. Colours come from the style sheet. SVG follows it by
   itself; a canvas is painted again when the page turns dark or light (see onTheme). */

import { freshId, html, svg } from "./dom.js";

/**
 * Radio buttons in a frame with a name; the browser moves between them by arrow keys.
 *
 * @param {string} legend
 * @param {{value: string, content: (Node | string)[]}[]} choices
 * @param {string} chosen
 * @param {(value: string) => void} onChange
 * @returns {HTMLFieldSetElement}
 */
export function radios(legend, choices, chosen, onChange) {
  const name = freshId();
  const rows = choices.map(({ value, content }) =>
    html(
      "label",
      {},
      html("input", {
        type: "radio",
        name,
        value,
        checked: value === chosen,
        onchange: () => onChange(value),
      }),
      ...content,
    ),
  );
  const title = html("legend", {}, legend);
  return html("fieldset", { class: "live-radios" }, title, ...rows);
}

/**
 * Run `paint` now, and again whenever the reader turns the page light or dark.
 *
 * @param {() => void} paint
 */
export function onTheme(paint) {
  paint();
  const seen = { attributes: true, attributeFilter: ["data-theme"] };
  new MutationObserver(paint).observe(document.documentElement, seen);
}

/** How dark a weight is drawn: its square root, so that small ones can be seen. */
export function shade(weight) {
  return Math.sqrt(Math.max(0, Math.min(1, weight)));
}

/**
 * Paint a heat map onto a canvas: one pixel a cell, which the style sheet enlarges.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} weights row-major, rows x columns, from 0 to 1
 * @param {number} columns
 * @param {string} [colour] the custom property that names the colour
 */
export function paintHeatMap(canvas, weights, columns, colour = "--pst-color-primary") {
  const rows = weights.length / columns;
  canvas.width = columns;
  canvas.height = rows;
  const pencil = canvas.getContext("2d");
  const picture = new ImageData(columns, rows);
  weights.forEach((weight, cell) => {
    picture.data[4 * cell + 3] = 255 * shade(weight); // how opaque the pixel is
  });
  pencil.putImageData(picture, 0, 0);
  pencil.globalCompositeOperation = "source-in"; // colour what is there, as it is there
  const style = getComputedStyle(document.documentElement);
  pencil.fillStyle = style.getPropertyValue(colour);
  pencil.fillRect(0, 0, columns, rows);
}

/**
 * The same as SVG rectangles of size 1, for one large map that is sharp at any size.
 *
 * @param {Float32Array} weights row-major, from 0 to 1
 * @param {number} columns
 * @returns {SVGGElement}
 */
export function heatMapCells(weights, columns) {
  const group = svg("g", { fill: "currentColor" });
  weights.forEach((weight, cell) => {
    if (shade(weight) < 0.01) return; // fainter than a screen can show
    group.append(
      svg("rect", {
        x: cell % columns,
        y: Math.floor(cell / columns),
        width: 1,
        height: 1,
        "fill-opacity": shade(weight).toFixed(3),
      }),
    );
  });
  return group;
}

/**
 * A line chart with axes, and the two functions that place things on it.
 *
 * @param {{width: number, height: number, x: [number, number], y: [number, number],
 *   xTicks: number[], yTicks: number[], xLabel: string, yLabel: string}} frame
 * @returns {{node: SVGSVGElement, x: (value: number) => number,
 *   y: (value: number) => number,
 *   line: (points: [number, number][], attributes?: Object<string, any>) => SVGElement,
 *   inverse: (event: MouseEvent) => number}}
 */
export function lineChart(frame) {
  const { width, height } = frame;
  const edge = { left: 34, right: 22, top: 22, bottom: 38 };
  const scale = ([low, high], from, to) => (value) =>
    from + ((value - low) / (high - low)) * (to - from);
  const x = scale(frame.x, edge.left, width - edge.right);
  const y = scale(frame.y, height - edge.bottom, edge.top);
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "live-chart" });
  for (const tick of frame.yTicks) {
    const d = `M${edge.left} ${y(tick)}H${width - edge.right}`;
    const place = { x: edge.left - 6, y: y(tick) + 4, "text-anchor": "end" };
    node.append(svg("path", { class: "grid", d }), svg("text", place, `${tick}`));
  }
  const foot = height - edge.bottom;
  for (const tick of frame.xTicks) {
    const text = tick.toLocaleString("en-US");
    node.append(
      svg("path", { class: "grid", d: `M${x(tick)} ${foot}v5` }),
      svg("text", { x: x(tick), y: foot + 18, "text-anchor": "middle" }, text),
    );
  }
  const middle = (edge.left + width - edge.right) / 2;
  node.append(
    svg("text", { x: middle, y: height - 4, "text-anchor": "middle" }, frame.xLabel),
    svg("text", { x: 2, y: 12 }, frame.yLabel),
  );
  const line = (points, attributes = {}) => {
    const d = points.map(([a, b]) => `${x(a).toFixed(1)} ${y(b).toFixed(1)}`);
    const path = svg("path", { d: `M${d.join("L")}`, fill: "none", ...attributes });
    node.append(path);
    return path;
  };
  /** The x value under the pointer. */
  const inverse = (event) => {
    const box = node.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * width;
    const part = (place - edge.left) / (width - edge.right - edge.left);
    return frame.x[0] + part * (frame.x[1] - frame.x[0]);
  };
  return { node, x, y, line, inverse };
}
