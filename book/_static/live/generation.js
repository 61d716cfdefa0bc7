/* The model writes: a prompt, the ways to choose, and what may come next, drawn live.

   The model runs in a worker. The page keeps the text as ids, asks for the logits of what
   comes next, and turns them into probabilities itself: a slider needs no answer. */

import { freshId, html, spoken } from "./dom.js";
import { makeTokenizer } from "./models.js";
import { Remote } from "./remote.js";
import { distribution, softmax } from "./sampling.js";
import { pieces, tokenName } from "./writing.js";

/** What each model begins with, and how much it writes in one go if it has no end. */
const STARTS = {
  ch02: { prompt: "Alice ", temperature: 0.8, unit: "token" },
  step6: { prompt: "ROMEO:\n", temperature: 0.8, most: 300, unit: "character" },
};
/** How many of the likeliest tokens are shown. */
const SHOWN = 12;
/** A speed is shown for as many tokens or more; fewer say nothing. */
const MEASURED = 16;
/** The steps of the slider for top-k; behind them: all. */
const KS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256];

/** A share as a reader sees it: 0.0412 is 4.1 %. */
export function percent(share) {
  if (share === 0) return "–";
  if (share < 0.0005) return "< 0.1 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** A number of things: one token, 2 tokens. */
function counted(number, unit) {
  return number === 1 ? `one ${unit}` : `${number.toLocaleString("en-US")} ${unit}s`;
}

/**
 * The likeliest tokens and the rest, as the model sees them and as they are drawn.
 * @param {Float32Array} logits
 * @param {{temperature: number, topK: ?number, topP: ?number}} settings
 * @returns {{rows: {id: number, own: number, drawn: number}[], rest: {own: number,
 *   drawn: number}, possible: number, bits: number}}   `possible`: how many tokens can
 *   be drawn; `bits`: the entropy of the draw
 */
export function outlook(logits, settings) {
  const own = softmax(logits);
  const drawn = distribution(logits, settings);
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
  const rows = order.slice(0, SHOWN).map((id) => ({ id, own: own[id], drawn: drawn[id] }));
  const others = order.slice(SHOWN);
  const sum = (shares) => others.reduce((total, id) => total + shares[id], 0);
  const positive = drawn.filter((share) => share > 0);
  return {
    rows,
    rest: { own: sum(own), drawn: sum(drawn) },
    possible: positive.length,
    bits: positive.reduce((total, share) => total - share * Math.log2(share), 0),
  };
}

/**
 * A slider with its label, and its value in words.
 * @param {string} text
 * @param {{min: number, max: number, step: number, value: number}} range
 * @param {(value: number) => string} say   the value in words
 * @param {() => void} changed
 */
function slider(text, range, say, changed) {
  const id = freshId();
  const input = html("input", { type: "range", id, ...range });
  const shown = html("output", { for: id, "aria-live": "off" }); // the slider says it
  const show = () => {
    shown.textContent = say(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    show();
    changed();
  });
  show();
  const node = html(
    "div",
    { class: "writing-slider" },
    html("label", { for: id }, text),
    shown,
    input,
  );
  return { node, value: () => Number(input.value) };
}

/**
 * The name of a token as nodes: its blanks are drawn, since many fonts lack the sign.
 * @param {string} name   of `tokenName`
 */
function drawnName(name) {
  const parts = name.split(/(␠)/).filter(Boolean);
  return parts.map((part) =>
    part === "␠" ? html("span", { class: "writing-blank" }, part) : part,
  );
}

/** The same in words. */
const spokenName = (name) => name.replaceAll("␠", " blank ").replaceAll("⏎", " new line ");

/** The table of what may come next; `take(id)` is called when the reader picks a row. */
function nextTable(tokenizer, unit, take) {
  const rows = Array.from({ length: SHOWN }, () => {
    const row = { id: -1 };
    row.button = html("button", { type: "button", onclick: () => take(row.id) });
    row.own = html("span", { class: "own" });
    row.drawn = html("span", { class: "drawn" });
    row.cells = [html("td"), html("td", { class: "quiet" })];
    row.node = html(
      "tr",
      {},
      html("th", { scope: "row" }, row.button),
      html("td", { class: "bar", "aria-hidden": "true" }, row.drawn, row.own),
      ...row.cells,
    );
    return row;
  });
  const restName = html("th", { scope: "row", colspan: 2 });
  const restCells = [html("td"), html("td", { class: "quiet" })];
  const summary = html("p", { class: "writing-summary" });
  const node = html(
    "div",
    { class: "writing-next" },
    html(
      "table",
      {},
      html("caption", {}, "What may come next"),
      html(
        "thead",
        {},
        html(
          "tr",
          {},
          html("th", { scope: "col" }, unit),
          html("td", { "aria-hidden": "true" }),
          html("th", { scope: "col" }, html("i", { class: "key drawn" }), "drawn"),
          html("th", { scope: "col" }, html("i", { class: "key own" }), "model"),
        ),
      ),
      html("tbody", {}, ...rows.map((row) => row.node)),
      html("tfoot", {}, html("tr", {}, restName, ...restCells)),
    ),
    summary,
  );

  /** Show an outlook; gives the sentence that sums it up. */
  function show({ rows: likeliest, rest, possible, bits }, V) {
    likeliest.forEach(({ id, own, drawn }, place) => {
      const row = rows[place];
      row.id = id;
      row.name = tokenName(tokenizer, id);
      row.button.replaceChildren(...drawnName(row.name));
      row.button.setAttribute("aria-label", `Write ${spokenName(row.name)}`);
      row.own.style.width = `${100 * own}%`;
      row.drawn.style.width = `${100 * drawn}%`;
      row.node.toggleAttribute("data-dropped", drawn === 0);
      row.cells[0].textContent = percent(drawn);
      row.cells[1].textContent = percent(own);
    });
    restName.textContent = `${V - likeliest.length} others`;
    restCells[0].textContent = percent(rest.drawn);
    restCells[1].textContent = percent(rest.own);
    summary.textContent =
      `${possible} of ${V} can be drawn. Entropy of the draw: ${bits.toFixed(2)} bits.`;
    const best = `${spokenName(rows[0].name)}, ${percent(likeliest[0].own)}`;
    return `${summary.textContent} The model's likeliest: ${best}.`;
  }
  return { node, show };
}

/**
 * @param {HTMLElement} panel
 * @param {{title: string, base: string, model: string}} options
 */
export async function mount(panel, { title, base, model: name }) {
  const start = STARTS[name];
  if (!start) throw new Error(`there is no model “${name}” that could write`);
  const remote = new Remote(base);
  const { config, described } = await remote
    .ask("load", { base, name })
    .catch((error) => {
      remote.close(); // another try makes a worker of its own
      throw error;
    });
  const tokenizer = makeTokenizer(described);
  const slides = name === "step6"; // its window moves on; Chapter 2's page is full

  let prompt = tokenizer.encode(start.prompt);
  let written = []; // ids behind the prompt
  let logits = null; // for what comes after both
  let finished = false; // the next "write" begins again
  let busy = false;
  let running = null; // the promise of a writing in progress

  // ---- what there is to see ------------------------------------------------

  const promptId = freshId();
  const field = html("textarea", {
    id: promptId,
    rows: start.prompt.split("\n").length,
    spellcheck: "false",
    autocomplete: "off",
    oninput: readPrompt,
  });
  field.value = start.prompt;
  const problem = html("p", { class: "writing-problem", role: "status" });
  const weights = html(
    "select",
    { id: freshId(), onchange: changeWeights },
    html("option", { value: name }, "after training"),
    html("option", { value: `${name}-start` }, "before training"),
  );
  const paper = html("div", {
    class: "writing-paper live-text",
    role: "group",
    "aria-label": "The text with what the model wrote",
    tabindex: "0",
  });
  const note = html("p", { class: "writing-note" });
  const speech = spoken();
  const button = (text, onclick) => html("button", { type: "button", onclick }, text);
  const buttons = {
    write: button("Write", () => writeOn(settings())),
    one: button(`One ${start.unit}`, () => writeOn(settings(), { count: 1 })),
    greedy: button("Greedy", () =>
      writeOn({ temperature: 0, topK: null, topP: null }, { anew: true }),
    ),
    stop: button("Stop", stop),
    clear: button("Clear", readPrompt),
  };
  buttons.write.classList.add("writing-first");
  const ks = [...KS.filter((k) => k < config.V), config.V];
  const sliders = {
    temperature: slider(
      "Temperature",
      { min: 0, max: 2, step: 0.05, value: start.temperature },
      (value) => (value === 0 ? "0: the likeliest" : value.toFixed(2)),
      settingsChanged,
    ),
    topK: slider(
      "Top-k",
      { min: 0, max: ks.length - 1, step: 1, value: ks.length - 1 },
      (place) => (place === ks.length - 1 ? "all" : `the ${ks[place]} likeliest`),
      settingsChanged,
    ),
    topP: slider(
      "Top-p",
      { min: 0, max: 1, step: 0.01, value: 1 },
      (value) => (value === 1 ? "all" : `${Math.round(100 * value)} % of the mass`),
      settingsChanged,
    ),
  };
  const seedId = freshId();
  const seed = html("input", {
    id: seedId,
    type: "number",
    min: 0,
    step: 1,
    value: 1,
    oninput: () => (finished = true),
  });
  const cacheId = freshId();
  const useCache = html("input", { id: cacheId, type: "checkbox", checked: true });
  const speeds = { true: html("td", {}, "–"), false: html("td", {}, "–") };
  const next = nextTable(tokenizer, start.unit, take);

  // ---- what happens --------------------------------------------------------

  const text = () => [...prompt, ...written];

  function settings() {
    const place = sliders.topK.value();
    const p = sliders.topP.value();
    return {
      temperature: sliders.temperature.value(),
      topK: place === ks.length - 1 ? null : ks[place],
      topP: p === 1 ? null : p,
    };
  }

  /** The seed, a whole number from 0 up, whatever stands in its field. */
  function seedNumber() {
    const number = Math.trunc(Number(seed.value));
    return Number.isSafeInteger(number) && number >= 0 ? number : 0;
  }

  function drawText() {
    const all = pieces(tokenizer, text());
    const span = (content, kind) => html("span", { class: kind }, content);
    paper.replaceChildren(
      span(all.slice(0, prompt.length).join(""), "prompt"),
      ...all.slice(prompt.length).map((piece) => span(piece, "new")),
      html("span", { class: "caret", "aria-hidden": "true" }),
    );
    paper.scrollTop = paper.scrollHeight;
    const length = text().length;
    note.textContent =
      length < config.T
        ? `${length} of ${config.T} positions taken.`
        : slides
          ? `${length} ${start.unit}s. The model sees the last ${config.T}: its window slides.`
          : `All ${config.T} positions are taken: the model has learned no further ones.`;
  }

  function drawNext() {
    return next.show(outlook(logits, settings()), config.V);
  }

  function setBusy(value) {
    busy = value;
    panel.setAttribute("aria-busy", value);
    for (const [key, element] of Object.entries(buttons)) {
      element.setAttribute("aria-disabled", (key === "stop") !== value);
    }
  }

  /** Run what may fail; a failure is told in words. */
  async function attempt(action) {
    try {
      problem.textContent = "";
      await action();
    } catch (error) {
      problem.textContent = `${error.message}.`;
    }
  }

  async function look() {
    ({ logits } = await remote.ask("look", { ids: text(), useCache: true }));
    return drawNext();
  }

  /** End a writing in progress; what it wrote stays. */
  async function stop() {
    if (!busy) return;
    remote.ask("stop");
    await running;
  }

  /** The ids of the prompt, or an error that says what is wrong with it. */
  function promptIds() {
    const ids = tokenizer.encode(field.value);
    if (ids.length === 0) {
      throw new Error("The prompt is empty; the model needs something to go on from");
    }
    if (!slides && ids.length > config.T) {
      throw new Error(
        `The prompt has ${ids.length} tokens; this model has ${config.T} positions`,
      );
    }
    return ids;
  }

  /** Begin again with what stands in the prompt's field. */
  async function readPrompt() {
    await stop();
    await attempt(async () => {
      prompt = promptIds();
      written = [];
      finished = false;
      drawText();
      await look();
    });
  }

  let loaded = name; // whose weights the worker has
  let changes = 0; // so that a change that was overtaken can see it

  /** Take other weights, once they are here; if they do not come, keep these. */
  async function changeWeights() {
    const mine = ++changes;
    const wanted = weights.value;
    await stop();
    await attempt(async () => {
      try {
        await remote.ask("load", { base, name: wanted });
      } catch (error) {
        if (mine !== changes) return;
        weights.value = loaded;
        const still = `The weights are still those ${weights.selectedOptions[0].text}`;
        throw new Error(`${error.message}. ${still}`);
      }
      if (mine !== changes) return;
      loaded = wanted;
      await stop(); // what was begun with the old weights meanwhile
      written = [];
      finished = false;
      drawText();
      const summary = await look();
      speech.textContent = `The model ${weights.selectedOptions[0].text}. ${summary}`;
    });
  }

  let resting = 0;
  function settingsChanged() {
    const summary = drawNext();
    clearTimeout(resting); // said once, when the slider rests
    resting = setTimeout(() => (speech.textContent = summary), 500);
  }

  /** Append one token that the reader picked. */
  function take(id) {
    if (busy) return;
    attempt(async () => {
      promptIds();
      if (!hasRoom()) return;
      written.push(id);
      finished = false;
      drawText();
      const name = spokenName(tokenName(tokenizer, id));
      speech.textContent = `Taken: ${name}. ${await look()}`;
    });
  }

  /** Is there a position left? If not, that is said. */
  function hasRoom() {
    const room = slides || text().length < config.T;
    if (!room) speech.textContent = note.textContent;
    return room;
  }

  /**
   * Write on from the text. A whole text that came to its end is begun again.
   * @param {Object} chosen   settings
   * @param {{count?: ?number, anew?: boolean}} how
   */
  function writeOn(chosen, { count = null, anew = false } = {}) {
    if (busy) return;
    running = attempt(async () => {
      promptIds();
      if (anew || (count === null && (finished || !hasRoom()))) written = [];
      if (!hasRoom()) return;
      const room = slides ? start.most : config.T - text().length;
      const manner = {
        prompt: prompt.length,
        count: count ?? room,
        seed: seedNumber(),
        settings: chosen,
        useCache: useCache.checked,
      };
      let tokens = 0;
      let seconds = 0;
      setBusy(true);
      try {
        const request = { ids: text(), ...manner };
        ({ logits } = await remote.ask("write", request, (ids, took) => {
          written.push(...ids);
          tokens += ids.length;
          seconds += took;
          drawText();
        }));
      } finally {
        setBusy(false);
      }
      finished = count === null && tokens === manner.count;
      if (tokens >= MEASURED) {
        const speed = Math.round(tokens / seconds).toLocaleString("en-US");
        speeds[manner.useCache].textContent = `${speed} ${start.unit}s/s`;
      }
      drawText();
      const summary = drawNext();
      speech.textContent =
        count === 1 && tokens === 1
          ? `Wrote ${spokenName(tokenName(tokenizer, written.at(-1)))}. ${summary}`
          : `Wrote ${counted(tokens, start.unit)}.`;
    });
  }

  // ---- the panel -----------------------------------------------------------

  drawText();
  await look();
  setBusy(false);
  const { temperature, topK, topP } = sliders;
  panel.append(
    html("p", { class: "live-title" }, title),
    html(
      "div",
      { class: "live-row" },
      html("label", { class: "writing-prompt", for: promptId }, "Prompt", field),
      html("label", { for: weights.id }, "The model", weights),
    ),
    problem,
    paper,
    html("div", { class: "live-row writing-buttons" }, ...Object.values(buttons)),
    note,
    html(
      "div",
      { class: "writing-columns" },
      html(
        "div",
        { class: "writing-settings" },
        temperature.node,
        topK.node,
        topP.node,
        html(
          "div",
          { class: "writing-line" },
          html("label", { for: seedId }, "Seed of the draws"),
          seed,
        ),
        html(
          "div",
          { class: "writing-line" },
          html("label", { for: cacheId }, "Keep keys and values (the cache)"),
          useCache,
        ),
        html(
          "table",
          { class: "writing-speeds" },
          html("caption", {}, "Speed of the last writing, here"),
          html("tr", {}, html("th", { scope: "row" }, "with the cache"), speeds.true),
          html("tr", {}, html("th", { scope: "row" }, "without it"), speeds.false),
        ),
      ),
      next.node,
    ),
    speech,
  );
}
