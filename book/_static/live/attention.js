/* The attention explorer: the reader's own sentence, read by a model in the page.

   Each key stroke runs the model of transformer.js once and shows the weights of all
   its heads; "before training" runs the same model with the weights it started from. */

import { freshId, html } from "./dom.js";
import { radios } from "./draw.js";
import { AttentionView } from "./heads.js";
import { loadModel } from "./models.js";

/** What stands in the field at first, and which head is shown, by model. */
const STARTS = {
  ch02: {
    text: "The rabbit-hole went straight on like a tunnel",
    layer: 0,
    head: 0,
  },
  step6: {
    text: "GREMIO:\nGood morrow, neighbour Baptista.\n\nBAPTISTA:\nGood morrow,",
    layer: 0,
    head: 3,
  },
};
/** How long the reader's hands rest, in milliseconds, before the model is run. */
const REST = 150;

/**
 * Run a model over a text and return what each of its heads attends to.
 *
 * @param {{config: Object, model: Object, tokenizer: Object}} loaded see models.js
 * @param {string} text
 * @returns {{tokens: string[], attention: Float32Array[][], left: number}} the tokens
 *   as text, [layer][head] maps of T x T, and how many tokens had no room
 * @throws {Error} the text is empty, or holds what the tokenizer does not know
 */
export function attentionOver({ config, model, tokenizer }, text) {
  const ids = tokenizer.encode(text);
  if (ids.length === 0) {
    throw new Error("an empty text has no positions; write a word or two");
  }
  const read = ids.slice(0, config.T);
  const { attention } = model.forward(read, null, { attention: true });
  const tokens = read.map((id) => tokenName(tokenizer, id));
  return { tokens, attention, left: ids.length - read.length };
}

/** A token as text; a part of a character, which is none by itself, as its bytes. */
function tokenName(tokenizer, id) {
  const text = tokenizer.decode([id]);
  if (!text.includes("\ufffd")) return text;
  const bytes = [...tokenizer.bytes(id)];
  return bytes.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
}

/** A sentence of an error's message. */
function sentence({ message }) {
  return `${message[0].toUpperCase()}${message.slice(1)}.`;
}

/**
 * Draw the explorer.
 *
 * @param {HTMLElement} panel
 * @param {{title: string, base: string, model: string}} options
 */
export async function mount(panel, { title, base, model: name }) {
  const start = STARTS[name];
  if (!start) throw new Error(`there is no model “${name}” to look into`);
  const files = { before: `${name}-start`, after: name };
  const load = (moment) => loadModel(base, files[moment]); // fetched once
  const { config } = await load("after");
  const view = new AttentionView(config.L, config.H, start);
  let when = "after"; // which weights the reader wants
  let shown = "after"; // and which are shown
  let run = 0; // counts the refreshes, so that a late one can see that it is late
  let resting = 0;

  const id = freshId();
  const problem = freshId();
  const field = html("textarea", {
    id,
    rows: 3,
    spellcheck: "false",
    autocomplete: "off",
    "aria-describedby": problem,
    oninput: () => {
      clearTimeout(resting);
      resting = setTimeout(refresh, REST);
    },
  });
  field.value = start.text;
  const message = html("p", { class: "live-problem", id: problem, role: "status" });
  const reset = html(
    "button",
    {
      type: "button",
      onclick: () => {
        field.value = start.text;
        refresh();
      },
    },
    "The first text again",
  );
  const choices = [
    { value: "before", content: ["before training"] },
    { value: "after", content: ["after training"] },
  ];
  const training = radios("The model", choices, when, async (value) => {
    when = value;
    await refresh();
    view.say();
  });
  training.classList.add("live-choice");

  /** Run the chosen model over the text; a later call overtakes an earlier one. */
  async function refresh() {
    run += 1;
    const mine = run;
    const wanted = when;
    let loaded;
    try {
      loaded = await load(wanted);
    } catch (error) {
      when = shown;
      training.querySelector(`[value="${shown}"]`).checked = true;
      const still = `The weights are still those ${shown} training.`;
      message.textContent = `${sentence(error)} ${still}`;
      return;
    }
    if (mine !== run) return;
    try {
      const { tokens, attention, left } = attentionOver(loaded, field.value);
      view.show(tokens, attention);
      shown = wanted;
      field.removeAttribute("aria-invalid");
      const most = `The model reads ${tokens.length} tokens at most`;
      message.textContent = left ? `${most}; the last ${left} are left out.` : "";
    } catch (error) {
      field.setAttribute("aria-invalid", "true");
      const still = "Below is the last text that could be read.";
      message.textContent = `${sentence(error)} ${still}`;
    }
  }

  await refresh();
  panel.append(
    html("p", { class: "live-title" }, title),
    html(
      "div",
      { class: "live-row" },
      html("label", { class: "live-wide", for: id }, "Your text", field),
      html("div", { class: "live-stack" }, training, reset),
    ),
    message,
    view.node,
  );
}
