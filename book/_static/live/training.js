/* The training scrubber: a slider through the stored reference run of Step 6.

   At each evaluation of the run it shows the losses, the text that the model wrote at
   that moment, and, once opened, what each head attended to. Nothing is computed here:
   data/run.json and data/run-attention.safetensors are the log of the run, cut by
   tools/live_run.py to what the page shows. */

import { freshId, html, spoken, svg } from "./dom.js";
import { lineChart } from "./draw.js";
import { AttentionView } from "./heads.js";
import { parseSafetensors } from "./safetensors.js";

/** How long one evaluation stays while the run is played, in milliseconds. */
const BEAT = 1400;

/**
 * What happened at one evaluation.
 * @typedef {{step: number, train: number, validation: number, sample: string}} Moment
 *
 * The run as the site stores it.
 * @typedef {{vocabulary: number, heads: number, layers: number, passage: string,
 *   losses: [number, number][], evaluations: Moment[]}} Run
 */

/** Fetch a file of the figure's data, or say in words why it did not come. */
async function fetchData(base, name) {
  const answer = await fetch(new URL(`data/${name}`, base));
  if (!answer.ok) throw new Error(`${name} did not come (${answer.status})`);
  return answer;
}

/** A step as the page writes it: 1,500. */
const stepName = (step) => `step ${step.toLocaleString("en-US")}`;

/** Say an evaluation in one sentence. */
export function describe({ step, train, validation }) {
  const name = stepName(step);
  return (
    `${name[0].toUpperCase()}${name.slice(1)}: training loss ${train.toFixed(3)}, ` +
    `held-out loss ${validation.toFixed(3)}.`
  );
}

/** The evaluation nearest to a step, as an index. */
export function nearest(evaluations, step) {
  const gap = (index) => Math.abs(evaluations[index].step - step);
  return evaluations.reduce((best, _, i) => (gap(i) < gap(best) ? i : best), 0);
}

/**
 * Unpack the lower triangle of a map into a square with zeros above the diagonal.
 *
 * @param {Float32Array} packed row after row, 1 + 2 + ... + T numbers
 * @param {number} T
 * @returns {Float32Array} T x T, row-major
 */
export function unpackTriangle(packed, T) {
  const square = new Float32Array(T * T);
  for (let row = 0, start = 0; row < T; row += 1) {
    square.set(packed.subarray(start, start + row + 1), row * T);
    start += row + 1;
  }
  return square;
}

/** The loss curves of the run, with a mark that can be moved to an evaluation. */
function lossChart(run, onChoose) {
  const { evaluations } = run;
  const last = evaluations.at(-1).step;
  const chart = lineChart({
    width: 430,
    height: 280,
    x: [0, last],
    y: [1, 4.5],
    xTicks: [0, 1, 2, 3, 4, 5].map((part) => (part * last) / 5),
    yTicks: [1, 2, 3, 4],
    xLabel: "step",
    yLabel: "loss (nats per character)",
  });
  const { node, x, y, line } = chart;
  node.setAttribute("aria-hidden", "true"); // the numbers stand beside it as text
  const even = Math.log(run.vocabulary);
  line([[0, even], [last, even]], { class: "even" });
  const name = (text, at, height, group, anchor = "start") =>
    svg("text", { x: x(at), y: y(height), class: group, "text-anchor": anchor }, text);
  line(run.losses, { class: "train thin" });
  for (const group of ["train", "validation"]) {
    line(evaluations.map((moment) => [moment.step, moment[group]]), { class: group });
    for (const moment of evaluations) {
      const place = { cx: x(moment.step), cy: y(moment[group]) };
      node.append(svg("circle", { r: 3, class: group, ...place }));
    }
  }
  node.append(
    name("knows nothing: ln V", last, even + 0.08, "even", "end"),
    name("held out", 0.63 * last, 1.68, "validation"),
    name("training", 0.63 * last, 1.02, "train"),
  );
  const rule = svg("path", { class: "rule" });
  const dots = ["train", "validation"].map((group) =>
    svg("circle", { r: 6, class: group }),
  );
  node.prepend(rule); // behind the names
  node.append(...dots);
  node.addEventListener("click", (event) =>
    onChoose(nearest(evaluations, chart.inverse(event))),
  );
  /** Move the mark. */
  const mark = (moment) => {
    rule.setAttribute("d", `M${x(moment.step)} ${y(4.5)}V${y(1)}`);
    for (const [dot, value] of [
      [dots[0], moment.train],
      [dots[1], moment.validation],
    ]) {
      dot.setAttribute("cx", x(moment.step));
      dot.setAttribute("cy", y(value));
    }
  };
  return { node, mark };
}

/** A list of numbers with their names; `set` changes them. */
function readings(names) {
  const values = names.map(() => html("dd"));
  const node = html(
    "dl",
    { class: "live-readings" },
    ...names.map((name, index) =>
      html("div", {}, html("dt", {}, name), values[index]),
    ),
  );
  const set = (...texts) => texts.forEach((text, i) => (values[i].textContent = text));
  return { node, set };
}

/**
 * The part that is folded until the reader wants it: the attention at each step.
 *
 * @returns {{node: HTMLElement, show: (moment: Moment) => void}}
 */
function attentionPanel(run, base, start) {
  const message = html("p", { class: "live-note", role: "status" });
  const about = "The maps are those over this passage of the held-out text.";
  const place = html("div", {}, message);
  const tokens = [...run.passage];
  let moment = start;
  let view = null;
  let stored = null;

  const draw = () => {
    const T = tokens.length;
    const { data } = stored.tensors.get(`step_${moment.step}`);
    const size = (T * (T + 1)) / 2;
    const square = (layer, head) => {
      const first = (layer * run.heads + head) * size;
      return unpackTriangle(data.subarray(first, first + size), T);
    };
    const maps = Array.from({ length: run.layers }, (_, layer) =>
      Array.from({ length: run.heads }, (_, head) => square(layer, head)),
    );
    view.show(tokens, maps);
  };
  const open = async () => {
    if (!node.open || stored) return;
    message.textContent = "The maps are being fetched …";
    try {
      const answer = await fetchData(base, "run-attention.safetensors");
      stored = parseSafetensors(await answer.arrayBuffer());
      view = new AttentionView(run.layers, run.heads, { layer: 0, head: 3 });
      draw();
      view.ask(tokens.lastIndexOf("B")); // it has a text before it and one behind it
      place.append(html("p", { class: "live-key" }, about), view.node);
      message.textContent = "";
    } catch (error) {
      stored = null;
      message.textContent = `The attention maps cannot be shown: ${error.message}.`;
    }
  };
  const node = html(
    "details",
    { class: "live-fold", ontoggle: open },
    html("summary", {}, "What the heads attended to at this step"),
    place,
  );
  const show = (next) => {
    moment = next;
    if (view) draw();
  };
  return { node, show };
}

/**
 * Draw the scrubber.
 *
 * @param {HTMLElement} panel
 * @param {{title: string, base: string}} options
 */
export async function mount(panel, { title, base }) {
  /** @type {Run} */
  const run = await (await fetchData(base, "run.json")).json();
  const { evaluations } = run;
  const last = evaluations.length - 1;
  let playing = null;

  const id = freshId();
  const slider = html("input", { type: "range", id, min: 0, max: last, step: 1 });
  const shown = html("output", { for: id, "aria-live": "off" }); // the slider says it
  const status = spoken();
  const numbers = readings(["training loss", "held-out loss", "gap", "held out, bits"]);
  const written = html("p", { class: "live-sample-name" });
  const sample = html("div", {
    class: "live-text live-sample",
    tabindex: "0",
    role: "group",
    "aria-label": "What the model wrote at this step",
  });
  const chart = lossChart(run, (index) => {
    stop();
    go(index);
    say();
  });
  const attention = attentionPanel(run, base, evaluations[0]);

  /** Show one evaluation. */
  function go(index) {
    const moment = evaluations[index];
    const { train, validation } = moment;
    slider.value = index;
    slider.setAttribute("aria-valuetext", describe(moment));
    shown.textContent = stepName(moment.step);
    numbers.set(
      train.toFixed(3),
      validation.toFixed(3),
      (validation - train).toFixed(3),
      (validation / Math.LN2).toFixed(2),
    );
    written.textContent = `What it wrote at ${stepName(moment.step)}`;
    sample.textContent = moment.sample;
    sample.scrollTop = 0;
    back.setAttribute("aria-disabled", index === 0); // and keeps the focus
    forward.setAttribute("aria-disabled", index === last);
    chart.mark(moment);
    attention.show(moment);
  }

  /** Say what is shown; the slider says it by itself while it has the focus. */
  function say() {
    status.textContent = describe(evaluations[slider.value]);
  }

  const move = (by) => () => {
    stop();
    go(Math.max(0, Math.min(last, Number(slider.value) + by)));
    say();
  };
  const back = html("button", { type: "button", onclick: move(-1) }, "◀ Earlier");
  const forward = html("button", { type: "button", onclick: move(1) }, "Later ▶");

  function stop() {
    clearInterval(playing);
    playing = null;
    play.textContent = "Play";
  }
  function start() {
    if (Number(slider.value) === last) go(0);
    playing = setInterval(() => {
      go(Number(slider.value) + 1);
      if (Number(slider.value) === last) {
        stop();
        say();
      }
    }, BEAT);
    play.textContent = "Pause";
  }
  const play = html(
    "button",
    { type: "button", onclick: () => (playing ? (stop(), say()) : start()) },
    "Play",
  );
  // Whoever asked for less motion moves the slider, and nothing moves by itself.
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const obey = () => {
    play.hidden = calm.matches;
    if (calm.matches) stop();
  };
  calm.addEventListener("change", obey);
  slider.addEventListener("input", () => {
    stop();
    go(Number(slider.value));
  });

  panel.append(
    html("p", { class: "live-title" }, title),
    html(
      "div",
      { class: "live-row live-scrubber" },
      html("label", { class: "live-wide", for: id }, "Evaluation of the run", slider),
      shown,
      html("div", { class: "live-buttons" }, back, play, forward),
    ),
    status,
    html(
      "div",
      { class: "live-pair" },
      html("div", {}, chart.node, numbers.node),
      html("div", {}, written, sample),
    ),
    attention.node,
  );
  obey();
  go(0);
}
