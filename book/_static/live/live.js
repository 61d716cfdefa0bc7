/* Brings the page's live figures to life, each when the reader comes near it.

   A live figure is <section class="live" data-live="NAME">, made by {live} NAME. The
   module NAME.js beside this file exports

       mount(panel, options)   returns nothing, or a promise

   `panel` is an empty element to draw in. `options` are the figure's data attributes,
   with `title`, and `base`, the address of this folder. The static figure stays until
   mount has finished, and comes back on paper. If anything fails, it stays, and a
   sentence says why. A classic script, since a browser refuses modules of file://. */

(() => {
  "use strict";
  const base = new URL(".", document.currentScript.src);

  /** Put a sentence under a static figure. */
  function say(figure, text) {
    const note = document.createElement("p");
    note.className = "live-note";
    note.textContent = text;
    figure.append(note);
  }

  /** Load the module of one figure and let it draw. */
  async function bringToLife(figure) {
    const panel = document.createElement("div");
    panel.className = "live-panel";
    figure.dataset.state = "loading";
    try {
      const module = await import(new URL(`${figure.dataset.live}.js`, base));
      const title = figure.getAttribute("aria-label");
      await module.mount(panel, { ...figure.dataset, title, base: base.href });
      figure.append(panel);
      figure.dataset.state = "live";
    } catch (error) {
      figure.dataset.state = "failed";
      say(figure, `The live figure could not start: ${error.message}`);
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
