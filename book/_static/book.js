/* Search results that lead to an index entry point at an empty mark in the text, and
   Sphinx then has no summary to show and reports an error. Summarise the page instead. */
if (typeof Search !== "undefined") {
  const summarise = Search.makeSearchSummary;
  Search.makeSearchSummary = (html, keywords, anchor) =>
    summarise(html, keywords, anchor) ??
    summarise(html, keywords, "") ??
    document.createElement("p");
}
