// Puts the text around the first match under each result of the search page.
// SEARCH_TEXTS holds texts of pages by their names; each file of search_texts/ adds one.
window.SEARCH_TEXTS = {};
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

  // A text is fetched when its result comes into view; a script may be loaded from a file, too.
  function load(item) {
    const link = item.querySelector("a");
    if (!link || item.querySelector(".context")) return;
    const name = link.getAttribute("href").replace(/\.html.*$/, "");
    const add = () => {
      const text = window.SEARCH_TEXTS[name];
      const paragraph = text && !item.querySelector(".context") && snippet(text);
      if (paragraph) item.append(paragraph);
    };
    if (name in window.SEARCH_TEXTS) return add();
    const script = document.createElement("script");
    script.src = `_static/search_texts/${name}.js`;
    script.addEventListener("load", add);
    document.head.append(script);
  }

  const results = document.getElementById("search-results");
  if (!results) return;
  const inView = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) {
        inView.unobserve(target);
        load(target);
      }
    }
  });
  new MutationObserver(() => results.querySelectorAll("li").forEach((item) => inView.observe(item)))
    .observe(results, { childList: true, subtree: true });
});
