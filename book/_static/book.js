/* Search results that lead to an index entry point at an empty mark in the text, and
   Sphinx then has no summary to show and reports an error. Summarise the page instead. */
if (typeof Search !== "undefined") {
  const summarise = Search.makeSearchSummary;
  Search.makeSearchSummary = (html, keywords, anchor) =>
    summarise(html, keywords, anchor) ??
    summarise(html, keywords, "") ??
    document.createElement("p");
}

/* Before a page is printed, open what is folded and take the light colours; afterwards,
   put everything back. The folded boxes of the pages are opened by their own script. */
{
  /** @type {(() => void)[]} */
  let undo = [];
  addEventListener("beforeprint", () => {
    const root = document.documentElement;
    const theme = root.dataset.theme;
    root.dataset.theme = "light";
    undo.push(() => (root.dataset.theme = theme));
    for (const fold of document.querySelectorAll("article details:not([open])")) {
      fold.open = true;
      undo.push(() => (fold.open = false));
    }
  });
  addEventListener("afterprint", () => {
    for (const step of undo) step();
    undo = [];
  });
}

/* Opened as a file, a page may not read another one. The search then lists the pages and
   leaves out their summaries, which it could only fail to fetch. */
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
