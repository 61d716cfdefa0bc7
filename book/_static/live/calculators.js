/* Calculators for the book's arithmetic: parameters, operations, cache, roofline.

   Which one stands in a page is the figure's `:view:`. The formulas are in formulas.js,
   the views in views.js; here are the fields, and what is said when one is wrong. */

import { freshId, html, spoken } from "./dom.js";
import { ARCHITECTURES, PRESETS, complaint } from "./formulas.js";
import { grouped, readNumber } from "./numbers.js";
import { SIZES, VIEWS } from "./views.js";

/** What has changed is said when the typing has paused this long, in milliseconds. */
const PAUSE = 700;

/** A labelled text field, with its message, and a slider if it wants one. */
function field(name, wanted, changed) {
  const [id, error] = [freshId(), freshId()];
  const input = html("input", {
    id,
    name,
    type: "text",
    inputmode: wanted.fraction ? "decimal" : "numeric",
    autocomplete: "off",
    "aria-describedby": error,
    oninput: () => changed(name),
  });
  const problem = html("p", { id: error, class: "live-problem" });
  const slider = wanted.slider
    ? html("input", {
        type: "range",
        min: 0,
        max: Math.floor(Math.log2(wanted.most)),
        "aria-label": `${wanted.label}, powers of two`,
        oninput: () => {
          input.value = grouped(2 ** Number(slider.value));
          changed(name);
        },
      })
    : null;
  const box = html(
    "div",
    { class: wanted.wide ? "calculators-wide" : null },
    html("label", { for: id }, wanted.label),
    input,
    ...(slider ? [slider] : []),
    problem,
  );
  return {
    box,
    text: () => input.value,
    /** Write a value into the field. */
    write(value) {
      input.value = grouped(value);
    },
    /** Say what is wrong, or nothing. */
    tell(message) {
      problem.textContent = message;
      if (message) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    },
    /** What is wrong, or nothing. */
    wrong: () => problem.textContent,
    /** The value, or null after having said why there is none. */
    read() {
      const found = readNumber(input.value, wanted);
      this.tell(found.message ?? "");
      if (found.message) return null;
      if (slider) {
        slider.value = String(Math.round(Math.log2(Math.max(found.value, 1))));
        slider.setAttribute("aria-valuetext", grouped(found.value));
      }
      return found.value;
    },
  };
}

/** Fields side by side, as many as there is room for. */
const grid = (fields) =>
  html("div", { class: "calculators-fields" }, ...Object.values(fields).map((f) => f.box));

/** A labelled choice. */
function choice(label, entries, changed) {
  const id = freshId();
  const select = html(
    "select",
    { id, onchange: () => changed(select.value) },
    ...Object.entries(entries).map(([value, name]) => html("option", { value }, name)),
  );
  return {
    box: html(
      "div",
      { class: "calculators-choice" },
      html("label", { for: id }, label),
      select,
    ),
    select,
  };
}

/**
 * @param {HTMLElement} panel
 * @param {{title: string, view: string, model?: string}} options
 */
export function mount(panel, { title, view, model }) {
  const wanted = VIEWS[view];
  if (!wanted) {
    const known = Object.keys(VIEWS).join(", ");
    throw new Error(`no calculator ‘${view}’; there are ${known}`);
  }
  const names = Object.fromEntries(
    wanted.presets.map((key) => {
      const { name, published } = PRESETS[key];
      return [key, published ? `${name} (${published})` : name];
    }),
  );
  let sizes = PRESETS[model ?? wanted.presets[0]].sizes;
  let timer = 0;
  const output = html("div", { class: "calculators-output" });
  const recipe = html("p", { class: "live-note" });
  const said = spoken();

  const preset = choice("model", { ...names, own: "your own sizes" }, take);
  const kinds = Object.entries(ARCHITECTURES).map(([key, { name }]) => [key, name]);
  const architecture = choice("built like", Object.fromEntries(kinds), () => own());
  const asked = Object.fromEntries(
    wanted.sizes.map((name) => [name, field(name, SIZES[name], own)]),
  );
  const given = Object.fromEntries(
    Object.entries(wanted.fields).map(([name, one]) => [name, field(name, one, draw)]),
  );

  /** Take the sizes of a preset. */
  function take(key) {
    if (key === "own") return;
    sizes = PRESETS[key].sizes;
    architecture.select.value = sizes.architecture;
    for (const [name, one] of Object.entries(asked)) one.write(sizes[name]);
    if (given.tokens && PRESETS[key].tokens) given.tokens.write(PRESETS[key].tokens);
    draw();
  }

  /** The reader has changed a size: it is no preset any longer. */
  function own() {
    preset.select.value = "own";
    draw();
  }

  /** Read every field; null if one of them cannot be read. */
  function read(fields) {
    const values = Object.entries(fields).map(([name, one]) => [name, one.read()]);
    const whole = values.every(([, value]) => value !== null);
    return whole ? Object.fromEntries(values) : null;
  }

  /** All that is wrong, in one go. */
  function complaints() {
    const told = [...Object.values(given), ...Object.values(asked)];
    return told.map((one) => one.wrong()).filter(Boolean).join(" ");
  }

  /** Calculate and show, or keep the last result, faded, beside what is wrong. */
  function draw() {
    const built = architecture.select.value;
    const shares = built === "llama";
    recipe.textContent = ARCHITECTURES[built].parts;
    asked.keyHeads.box.hidden = !shares;
    const heads = readNumber(asked.heads.text(), SIZES.heads).value;
    if (!shares) asked.keyHeads.write(heads ?? 1);
    const found = read(asked);
    const rest = read(given);
    const whole = found && { ...sizes, ...found, architecture: built };
    const wrong = whole && complaint(whole);
    if (wrong) asked[wrong.field].tell(`${wrong.message}.`);
    const stale = !whole || !rest || Boolean(wrong);
    output.classList.toggle("calculators-stale", stale);
    clearTimeout(timer);
    if (stale) {
      timer = setTimeout(() => (said.textContent = complaints()), PAUSE);
      return;
    }
    const { summary, nodes } = wanted.draw(whole, rest);
    output.replaceChildren(...nodes);
    timer = setTimeout(() => (said.textContent = summary), PAUSE);
  }

  const links = wanted.links.flatMap(([text, address], i) => [
    i ? ", " : "",
    html("a", { href: address }, text),
  ]);
  panel.append(
    html("p", { class: "live-title" }, title),
    html("div", { class: "calculators-choices" }, preset.box, architecture.box),
    recipe,
    grid(given),
    html(
      "details",
      { class: "calculators-sizes", open: view === "parameters" },
      html("summary", {}, "Sizes of the model"),
      grid(asked),
    ),
    output,
    html("p", { class: "calculators-links" }, "The formulas: ", ...links, "."),
    said,
  );
  for (const [name, one] of Object.entries(given)) one.write(wanted.fields[name].value);
  preset.select.value = model ?? wanted.presets[0];
  take(preset.select.value);
  clearTimeout(timer);
}
