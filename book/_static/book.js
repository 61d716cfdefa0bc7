/* Search results that lead to an index entry point at an empty mark in the text, and
   Sphinx then has no summary to show and reports an error. Summarise the page instead. */
if (typeof Search !== "undefined") {
  const summarise = Search.makeSearchSummary;
  Search.makeSearchSummary = (html, keywords, anchor) =>
    summarise(html, keywords, anchor) ??
    summarise(html, keywords, "") ??
    document.createElement("p");
}

/* Sphinx looks words up in plain objects, and finds there also what every object has:
   "constructor" and "__proto__" then end its search with an error or a page that does
   not exist. The lists of words keep the one method that Sphinx calls, and no more. */
if (typeof Search !== "undefined") {
  const own = Object.create(null, {
    hasOwnProperty: { value: Object.prototype.hasOwnProperty },
  });
  const searchTerms = Search.performTermsSearch;
  Search.performTermsSearch = (...terms) => {
    const { terms: inText, titleterms: inTitles } = Search._index;
    for (const list of [inText, inTitles]) Object.setPrototypeOf(list, own);
    return searchTerms(...terms);
  };
}

/* Before a page is printed, open what is folded and take the light colours; afterwards,
   put everything back, last things first, since a browser may say "before" twice. The
   folded boxes of the pages are opened by their own script. */
{
  /** @type {(() => void)[]} */
  const undo = [];
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
    while (undo.length) undo.pop()();
  });
}

/* Opened as a file, a page may not read another one. The search then lists the pages and
   leaves out their summaries, which it could only fail to fetch. */
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
