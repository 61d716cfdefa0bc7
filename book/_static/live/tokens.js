/* Byte-pair encoding to play with: type, see the tokens, and replay the merges. */

import { freshId, html, spoken } from "./dom.js";
import { BytePairTokenizer, loneSurrogate, utf8Text } from "./tokenizer.js";

/** Longer texts are cut here: each character can become four tokens to draw. */
const LONGEST = 600;
/** A screen reader is told the counts when the typing has paused this long, in ms. */
const PAUSE = 700;

/** What there is to try, for each tokenizer; the first one is there at the start. */
const EXAMPLES = {
  ch02: {
    "The sentence": "Alice waited by the rabbit-hole 🐇",
    "Eleven letters": "aaabdaaabac",
    German: "Das Kaninchen läuft über die Straße.",
    Greek: "Η Αλίκη ακολούθησε το κουνέλι.",
    Emoji: "🐇🕳️ 👩‍🚀 👍🏽",
    Code: "def rabbit(n):\n    return n * [1, 1, 2, 3]",
  },
  step7: {
    "A speech": "ROMEO:\nBut, soft! what light through yonder window breaks?",
    "A café": "a café",
    German: "Das Kaninchen läuft über die Straße.",
    Greek: "Η Αλίκη ακολούθησε το κουνέλι.",
    Emoji: "🐇🕳️ 👩‍🚀 👍🏽",
    Code: "def rabbit(n):\n    return n * [1, 1, 2, 3]",
  },
};

/**
 * Bytes as a reader can see them: blanks and line ends as signs, a mark on a dotted
 * circle, and what is not text by itself as numbers.
 * @param {Uint8Array} bytes
 */
export function shown(bytes) {
  const text = utf8Text(bytes);
  const whole = new TextEncoder().encode(text).join() === bytes.join();
  if (!whole || /[\p{Cc}\p{Cf}]/u.test(text.replace(/[\n\t]/g, ""))) {
    const hex = [...bytes].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`);
    return hex.join("");
  }
  return text
    .replaceAll(" ", "␠")
    .replaceAll("\n", "⏎")
    .replaceAll("\t", "⇥")
    .replace(/^\p{M}/u, "◌$&");
}

/**
 * The same as nodes, with blanks that are drawn and need no font.
 * @param {string} text - of `shown`
 */
function drawn(text) {
  const pieces = text.split(/(␠)/).filter(Boolean);
  const nodes = pieces.map((piece) =>
    piece === "␠" ? html("span", { class: "tokens-blank" }, piece) : piece,
  );
  return html("bdi", {}, ...nodes);
}

/** A whole number with its thousands apart. */
const grouped = (number) => number.toLocaleString("en-US");

/** "1 token", "2 tokens". */
const count = (number, word) => `${grouped(number)} ${word}${number === 1 ? "" : "s"}`;

/**
 * The counts of a text and of its tokens.
 * @param {string} text
 * @param {number} bytes
 * @param {number} tokens
 */
export function counts(text, bytes, tokens) {
  const worth = tokens ? (bytes / tokens).toFixed(2) : "–";
  return { characters: [...text].length, bytes, tokens, worth };
}

/**
 * What one step did, in words.
 * @param {BytePairTokenizer} tokenizer
 * @param {import("./tokenizer.js").Step[]} steps
 * @param {number} place
 */
export function stepWords(tokenizer, steps, place) {
  const { merge, ids, joined } = steps[place];
  const last = steps.length - 1;
  if (!merge) {
    if (!ids.length) return "no text, no tokens";
    return last
      ? `the bytes, before the first of ${count(last, "merge")}`
      : "the bytes; no merge applies to them";
  }
  const [left, right, newId] = merge;
  const [a, b] = [left, right].map((id) => shown(tokenizer.bytes(id)));
  const times = joined.length > 1 ? `, at ${joined.length} places` : "";
  return `merge ${place} of ${last}: ‘${a}’ + ‘${b}’ → ${newId}${times}`;
}

/**
 * How a token was built: boxes in boxes, down to the bytes.
 * @param {BytePairTokenizer} tokenizer
 * @param {number} id
 * @returns {HTMLElement}
 */
function family(tokenizer, id) {
  const label = html(
    "span",
    { class: "tokens-name" },
    drawn(shown(tokenizer.bytes(id))),
    html("small", {}, `${id}`),
  );
  const merge = tokenizer.merges[id - 256];
  if (!merge) return html("div", { class: "tokens-box" }, label);
  const parts = merge.slice(0, 2).map((part) => family(tokenizer, part));
  return html(
    "div",
    { class: "tokens-box" },
    label,
    html("div", { class: "tokens-parts" }, ...parts),
  );
}

/** The chips, in a row that takes one place in the order of tabs. */
function chips(tokenizer, { ids, joined }, choose) {
  const fresh = new Set(joined);
  let start = 0;
  const items = ids.flatMap((id, i) => {
    const bytes = tokenizer.bytes(id);
    const text = shown(bytes);
    const item = html(
      "li",
      {},
      html(
        "button",
        {
          type: "button",
          class: `tokens-chip tokens-length-${Math.min(bytes.length, 4)}`,
          "data-start": start,
          "data-fresh": fresh.has(i),
          "aria-pressed": "false",
          "aria-label":
            `token ${i + 1} of ${ids.length}: ${text}, id ${id}, ` +
            `${count(bytes.length, "byte")} ${bytes.join(" ")}` +
            (fresh.has(i) ? ", just merged" : ""),
          tabindex: -1,
          onclick: () => choose(i),
          onfocus: () => choose(i),
          onmouseenter: () => choose(i),
        },
        drawn(text),
        html("small", {}, `${id}`),
      ),
    );
    start += bytes.length;
    const ends = bytes.at(-1) === 10; // a line of the text, a line of chips
    const space = html("li", { class: "tokens-break", "aria-hidden": "true" });
    return ends ? [item, space] : [item];
  });
  return html("ol", { class: "tokens-chips", "aria-label": "tokens" }, ...items);
}

/** Where an arrow key leads from chip `i` of `n`; null for any other key. */
function moved(key, i, n) {
  const to = { ArrowLeft: i - 1, ArrowRight: i + 1, Home: 0, End: n - 1 }[key];
  return to === undefined ? null : Math.max(0, Math.min(n - 1, to));
}

/**
 * @param {HTMLElement} panel
 * @param {{title: string, base: string, model?: "ch02" | "step7"}} options
 */
export async function mount(panel, { title, base, model = "ch02" }) {
  const response = await fetch(new URL(`data/${model}-merges.json`, base));
  if (!response.ok) throw new Error(`no merges of ${model} (${response.status})`);
  const tokenizer = new BytePairTokenizer(await response.json());
  const examples = EXAMPLES[model];

  let steps = tokenizer.steps("");
  let place = 0; // which of the steps is shown
  let watched = 0; // the byte of the text whose token is looked at
  let timer = 0;

  const said = spoken();
  const [ids, error] = [freshId(), freshId()];
  const area = html("textarea", {
    id: ids,
    rows: 2,
    spellcheck: "false",
    "aria-describedby": error,
    oninput: () => read(),
  });
  const problem = html("p", { id: error, class: "live-problem" });
  const presets = Object.entries(examples).map(([name, text]) =>
    html("button", { type: "button", onclick: () => write(text) }, name),
  );
  const bars = html("tbody");
  const slider = html("input", {
    type: "range",
    min: 0,
    "aria-label": "merges replayed",
    oninput: () => show(Number(slider.value)),
  });
  const words = html("output", { class: "tokens-step", "aria-live": "off" }); // see say
  const button = (name, to, label) =>
    html(
      "button",
      { type: "button", "aria-label": label, onclick: () => (show(to()), say()) },
      name,
    );
  const buttons = [
    button("Bytes", () => 0, "Bytes, no merge"),
    button("−1", () => place - 1, "−1, one merge back"),
    button("+1", () => place + 1, "+1, one merge on"),
    button("All", () => steps.length - 1, "All merges"),
  ];
  const row = html("div", { class: "tokens-row", onkeydown: (event) => walk(event) });
  const detail = html("div", { class: "tokens-detail" });

  /** Say the state in words, to who cannot see it. */
  function say() {
    clearTimeout(timer);
    const tokens = count(steps[place].ids.length, "token");
    const all = [problem.textContent, `${words.textContent}; ${tokens}`];
    said.textContent = all.filter(Boolean).join(" ");
  }

  /** Put an example into the field. */
  function write(text) {
    area.value = text;
    read();
    say();
  }

  /** Take the text as it stands in the field, and encode it. */
  function read() {
    const characters = [...area.value];
    const text = characters.slice(0, LONGEST).join("");
    problem.textContent = "";
    area.removeAttribute("aria-invalid");
    if (loneSurrogate(text) >= 0) {
      const where = loneSurrogate(text);
      problem.textContent =
        `Character ${where} is half of a two-part character, a lone surrogate. ` +
        "UTF-8 has no bytes for it.";
      area.setAttribute("aria-invalid", "true");
      clearTimeout(timer);
      timer = setTimeout(() => (said.textContent = problem.textContent), PAUSE);
      return;
    }
    if (characters.length > LONGEST) {
      problem.textContent =
        `The text has ${grouped(characters.length)} characters; ` +
        `the first ${LONGEST} are cut into tokens here.`;
    }
    steps = tokenizer.steps(text);
    watched = 0;
    slider.max = String(steps.length - 1);
    drawCounts(text);
    show(steps.length - 1);
    clearTimeout(timer);
    timer = setTimeout(say, PAUSE);
  }

  /** The three lengths as bars, all in the measure of the bytes. */
  function drawCounts(text) {
    const found = counts(text, steps[0].ids.length, steps.at(-1).ids.length);
    const longest = Math.max(found.bytes, 1);
    const line = (name, number, kind) =>
      html(
        "tr",
        {},
        html("th", { scope: "row" }, name),
        html(
          "td",
          { class: "tokens-bar" },
          html("span", {
            class: `tokens-${kind}`,
            style: `width: ${(100 * number) / longest}%`,
          }),
        ),
        html("td", { class: "tokens-number" }, grouped(number)),
      );
    bars.replaceChildren(
      line("characters", found.characters, "characters"),
      line("bytes", found.bytes, "bytes"),
      line("tokens", found.tokens, "tokens"),
      html(
        "tr",
        {},
        html("th", { scope: "row", colspan: 2 }, "bytes per token"),
        html("td", { class: "tokens-number" }, found.worth),
      ),
    );
  }

  /** Show the tokens after so many merges. */
  function show(to) {
    place = Math.max(0, Math.min(steps.length - 1, to));
    slider.value = String(place);
    const did = stepWords(tokenizer, steps, place);
    words.replaceChildren(drawn(did));
    slider.setAttribute("aria-valuetext", did);
    slider.disabled = steps.length < 2;
    buttons.forEach((one, i) => {
      // A button that is switched off would lose the focus.
      const end = i < 2 ? place === 0 : place === steps.length - 1;
      one.setAttribute("aria-disabled", end);
    });
    row.replaceChildren(chips(tokenizer, steps[place], choose));
    const all = [...row.querySelectorAll("button")];
    const holder = all.findLastIndex((chip) => Number(chip.dataset.start) <= watched);
    choose(Math.max(0, holder), false);
  }

  /** Look at one token: what it spells, and what it was merged from. */
  function choose(i, follow = true) {
    const all = [...row.querySelectorAll("button")];
    const chip = all[i];
    all.forEach((one) => {
      one.tabIndex = one === chip ? 0 : -1;
      one.setAttribute("aria-pressed", String(one === chip));
    });
    if (!chip) {
      detail.replaceChildren("Type something: every token can be looked at here.");
      return;
    }
    if (follow) watched = Number(chip.dataset.start);
    const id = steps[place].ids[i];
    const bytes = tokenizer.bytes(id);
    const origin =
      id < 256
        ? "a byte, not merged"
        : `merge ${id - 255} of the ${tokenizer.merges.length} that were learned`;
    detail.replaceChildren(
      html(
        "p",
        {},
        html("strong", {}, `Token ${id}`),
        ` is ${origin}. It spells ${count(bytes.length, "byte")}: ${bytes.join(" ")}.`,
      ),
      html(
        "div",
        {
          class: "tokens-family",
          role: "group",
          tabindex: 0,
          "aria-label": "how it was merged",
        },
        family(tokenizer, id),
      ),
    );
  }

  /** Arrow keys walk along the chips. */
  function walk(event) {
    const all = [...row.querySelectorAll("button")];
    const to = moved(event.key, all.indexOf(event.target), all.length);
    if (to === null) return;
    event.preventDefault();
    all[to].focus();
  }

  panel.append(
    html("p", { class: "live-title" }, title),
    html("label", { for: ids }, "Your text"),
    area,
    html(
      "div",
      { class: "tokens-presets", role: "group", "aria-label": "examples" },
      ...presets,
    ),
    problem,
    html("table", { class: "tokens-counts", "aria-label": "lengths" }, bars),
    html(
      "div",
      { class: "tokens-replay", role: "group", "aria-label": "replay the merges" },
      ...buttons.slice(0, 2),
      slider,
      ...buttons.slice(2),
    ),
    words,
    row,
    html(
      "p",
      { class: "tokens-legend" },
      ...["1 byte", "2 bytes", "3 bytes", "4 or more"].map((name, i) =>
        html("span", { class: `tokens-length-${i + 1}` }, name),
      ),
      html("span", { class: "tokens-length-2", "data-fresh": true }, "just merged"),
    ),
    detail,
    said,
  );
  write(Object.values(examples)[0]);
  clearTimeout(timer);
  said.textContent = "";
}
