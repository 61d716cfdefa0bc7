/* Brings the page's live figures to life, each when the reader comes near it.

   A live figure is <section class="live" data-live="NAME">, made by {live} NAME. The
   module NAME.js beside this file exports

       mount(panel, options)   returns nothing, or a promise

   `panel` is an empty element to draw in. `options` are the figure's data attributes,
   with `title`, and `base`, the address of this folder. The static figure stays until
   mount has finished, and comes back on paper. If anything fails, it stays, a sentence
   says why, and a button tries again with a new panel. A classic script, since a browser
   refuses modules of file://. */

(() => {
  "use strict";
  const base = new URL(".", document.currentScript.src);

  /** Put a sentence under a static figure, in the place of an earlier one. */
  function say(figure, text) {
    let note = figure.querySelector(":scope > .live-note");
    if (!note) {
      note = document.createElement("p");
      note.className = "live-note";
      note.role = "status"; // what replaces the first sentence is read out
      figure.append(note);
    }
    note.textContent = text;
  }

  /** Put a button under the sentence that lets the reader try again. */
  function offerAnotherTry(figure) {
    const again = document.createElement("button");
    again.type = "button";
    again.className = "live-again";
    again.textContent = "Try again";
    again.addEventListener("click", () => {
      if (figure.dataset.state === "failed") bringToLife(figure, again);
    });
    figure.append(again);
  }

  /** Load the module of one figure and let it draw; `again` is a pressed button. */
  async function bringToLife(figure, again = null) {
    const panel = document.createElement("div");
    panel.className = "live-panel";
    figure.dataset.state = "loading";
    if (again) say(figure, "The live figure is starting …");
    again?.setAttribute("aria-disabled", "true");
    try {
      const module = await import(new URL(`${figure.dataset.live}.js`, base));
      const title = figure.getAttribute("aria-label");
      await module.mount(panel, { ...figure.dataset, title, base: base.href });
      const pressed = again !== null && document.activeElement === again;
      figure.querySelector(":scope > .live-note")?.remove();
      again?.remove();
      figure.append(panel);
      figure.dataset.state = "live";
      if (pressed) {
        panel.tabIndex = -1; // the keyboard goes on in the figure, not at the top
        panel.focus({ preventScroll: true });
      }
    } catch (error) {
      figure.dataset.state = "failed";
      if (!again) {
        say(figure, `The live figure could not start: ${error.message}`);
        offerAnotherTry(figure);
        return;
      }
      again.removeAttribute("aria-disabled");
      const hint = "It did not start this time either; loading the page again may help.";
      say(figure, `${hint} The reason: ${error.message}`);
    }
  }

  const figures = [...document.querySelectorAll("section.live[data-live]")];
  if (location.protocol === "file:") {
    const text =
      "This figure is alive when the book is served: run “make serve”, " +
      "or read it on the web.";
    figures.forEach((figure) => say(figure, text));
    return;
  }
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((entry) => entry.isIntersecting)) {
        observer.unobserve(entry.target);
        bringToLife(entry.target);
      }
    },
    { rootMargin: "150px" },
  );
  figures.forEach((figure) => observer.observe(figure));
})();
