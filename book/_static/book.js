/* Search results that lead to an index entry point at an empty mark in the text, and
   Sphinx then has no summary to show and reports an error. Summarise the page instead. */
if (typeof Search !== "undefined") {
  const summarise = Search.makeSearchSummary;
  Search.makeSearchSummary = (html, keywords, anchor) =>
    summarise(html, keywords, anchor) ??
    summarise(html, keywords, "") ??
    document.createElement("p");
}

/* Opened as a file, a page may not read another one. The search then lists the pages and
   leaves out their summaries, which it could only fail to fetch. */
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
