// Puts the text around the first match under each result of the search page.
// SEARCH_TEXTS, from search_texts.js, holds the text of every page by its name.
document.addEventListener("DOMContentLoaded", () => {
  const AROUND = 120;
  const words = (new URLSearchParams(location.search).get("q") || "").toLowerCase()
    .split(/[^\p{L}\p{N}_.]+/u).filter(Boolean);

  function snippet(text) {
    const lower = text.toLowerCase();
    // A whole phrase is the best place; then the longest word, which is the rarest as a rule.
    const wanted = [words.join(" "), ...[...words].sort((a, b) => b.length - a.length)];
    const found = wanted.find((word) => word && lower.includes(word));
    if (!found) return null;
    const at = lower.indexOf(found);
    const from = Math.max(0, at - AROUND);
    const to = Math.min(text.length, at + found.length + AROUND);
    const paragraph = document.createElement("p");
    paragraph.className = "context";
    const mark = document.createElement("mark");
    mark.textContent = text.slice(at, at + found.length);
    paragraph.append(from > 0 ? "… " : "", text.slice(from, at), mark,
      text.slice(at + found.length, to), to < text.length ? " …" : "");
    return paragraph;
  }

  function add(item) {
    const link = item.querySelector("a");
    if (!link || item.querySelector(".context")) return;
    const name = link.getAttribute("href").replace(/\.html.*$/, "");
    const text = (window.SEARCH_TEXTS || {})[name];
    const paragraph = text && snippet(text);
    if (paragraph) item.append(paragraph);
  }

  const results = document.getElementById("search-results");
  if (!results) return;
  new MutationObserver(() => results.querySelectorAll("li").forEach(add))
    .observe(results, { childList: true, subtree: true });
});
