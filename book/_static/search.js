// The field of the search shows what it finds while somebody types.
//
// The index is loaded when the field has the focus, the text of a page when its result comes into
// view: both are scripts, since a page opened from a file may fetch nothing (book/_ext/search.py).
window.SEARCH_TEXTS = {};
document.addEventListener("DOMContentLoaded", () => {
  const { open, rank, askedOf, wordsOf } = window.courseSearch;
  const KINDS = ["chapter", "page", "glossary", "package", "exercises"];
  const [IN_DIALOG, ON_PAGE] = [8, 60];
  const SNIPPET = 190;
  const CALM_MS = 150;
  const root = document.documentElement.dataset.content_root;

  const loading = new Map();
  function load(name) {
    if (!loading.has(name)) {
      loading.set(name, new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = `${root}_static/${name}.js`;
        script.addEventListener("load", done);
        script.addEventListener("error", failed);
        document.head.append(script);
      }));
    }
    return loading.get(name);
  }
  let book = null;
  const loadBook = async () => {
    await load("search_index");
    book ??= open(window.SEARCH_INDEX);
  };

  function make(name, className, ...children) {
    const made = document.createElement(name);
    made.className = className;
    made.append(...children);
    return made;
  }

  // Where the words of a query stand in a text: [from, to, the words of the query].
  function places(text, asked) {
    return [...text.matchAll(/[\p{L}\p{N}]+(?:[-_][\p{L}\p{N}]+)*/gu)].flatMap((match) => {
      const words = wordsOf(match[0]);
      const meant = asked.filter(({ means }) => words.some((word) => means.has(word)));
      return meant.length ? [[match.index, match.index + match[0].length, meant]] : [];
    });
  }

  // The stretch of a text with the most of the query: its worth and its places.
  function stretch(text, asked) {
    const all = places(text, asked);
    let best = { worth: 0, marks: [] };
    all.forEach(([from], place) => {
      const marks = all.slice(place, place + 12).filter(([, to]) => to - from < SNIPPET - 60);
      const meant = new Set(marks.flatMap(([, , words]) => words));
      const worth = [...meant].reduce((sum, { rarity }) => sum + rarity, 0);
      if (worth > best.worth) best = { worth, marks };
    });
    return best;
  }

  // The part of a page that answers best, and its words around the query.
  function answer(parts, asked, heading) {
    const own = parts.filter(([anchor]) => !heading || anchor === heading.anchor);
    let best = null;
    for (const [anchor, title, text] of own.length ? own : parts) {
      const found = stretch(text, asked);
      if (!best || found.worth > best.worth) best = { anchor, title, text, ...found };
    }
    const { text, marks } = best;
    const from = Math.max(0, (marks[0]?.[0] ?? 0) - 60);
    const start = from && text.indexOf(" ", from) + 1;
    const least = Math.max(start + SNIPPET, marks.at(-1)?.[1] ?? 0);
    const end = text.length > least ? text.lastIndexOf(" ", least + 1) : text.length;
    const line = make("span", "course-hit-text", start ? "… " : "");
    let at = start;
    for (const [first, last] of marks) {
      line.append(text.slice(at, first), make("mark", "", text.slice(first, last)));
      at = last;
    }
    line.append(text.slice(at, end), end < text.length ? " …" : "");
    return { ...best, line };
  }

  // A page found, as an option of the list.
  function option({ page, heading, titled }, asked, id) {
    const where = make("span", "course-hit-where");
    const link = make("a", "course-hit", make("span", "course-hit-kind", KINDS[page.kind]), " ",
      make("span", "course-hit-title", page.title), where);
    Object.assign(link, { id, role: "option", tabIndex: -1, ariaSelected: "false" });
    const lead = (anchor, title) => {
      link.href = `${root}${page.name}.html${anchor ? `#${anchor}` : ""}`;
      if (title && title !== page.title) where.textContent = ` › ${title} `;
    };
    lead(heading?.anchor, heading?.text);
    link.complete = async () => {
      await load(`search_texts/${page.name}`);
      const found = answer(window.SEARCH_TEXTS[page.name], asked, heading);
      if (!heading && !titled) lead(found.anchor, found.title);
      link.append(found.line);
    };
    return link;
  }

  const inView = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      inView.unobserve(target);
      target.complete();
    }
  });

  // What the list says: how many pages, for which words if not those typed, and which are nowhere.
  function said(found, asked) {
    if (!asked.length) return "";
    const missing = asked.filter(({ means }) => !means.size).map(({ word }) => `“${word}”`);
    const meant = asked.filter(({ means }) => means.size).map(({ word, means }) => {
      const [best] = [...means].sort((one, other) => other[1] - one[1])[0];
      return best.startsWith(word) || word === `${best}s` ? word : best;
    });
    const instead = meant.some((word) => !asked.some((one) => one.word === word));
    return (found.length === 1 ? "1 page" : `${found.length || "No"} pages`)
      + (instead ? `, for “${meant.join(" ")}”` : "")
      + (missing.length && found.length ? `; ${missing.join(" and ")} stands on no page` : "");
  }

  document.querySelectorAll("form.bd-search").forEach((form, number) => {
    const input = form.querySelector("input");
    const most = form.closest("dialog") ? IN_DIALOG : ON_PAGE;
    const list = make("div", "course-hits-list");
    Object.assign(list, { id: `course-hits-${number}`, role: "listbox", ariaLabel: "Pages found" });
    const status = make("p", "course-hits-said");
    status.role = "status";
    const box = make("div", "course-hits", status, list);
    form.after(box);
    input.setAttribute("aria-controls", list.id);
    Object.assign(input, { role: "combobox", ariaAutoComplete: "list", ariaExpanded: "false" });
    let chosen = 0;
    let calm = null;

    function choose(place) {
      const options = [...list.children];
      chosen = (place + options.length) % options.length;
      options.forEach((one, at) => { one.ariaSelected = String(at === chosen); });
      input.setAttribute("aria-activedescendant", options[chosen].id);
      options[chosen].scrollIntoView({ block: "nearest" });
    }

    function show() {
      if (!book) return;
      const asked = askedOf(book, input.value);
      const found = rank(book, input.value);
      const shown = found.slice(0, most);
      list.replaceChildren(...shown.map((one, at) => option(one, asked, `${list.id}-${at}`)));
      status.replaceChildren(said(found, asked));
      if (found.length > most && most === IN_DIALOG) {
        const all = make("a", "", "all of them");
        all.href = `${form.action}?q=${encodeURIComponent(input.value)}`;
        status.append(" · ", all);
      }
      input.ariaExpanded = String(shown.length > 0);
      input.removeAttribute("aria-activedescendant");
      clearTimeout(calm);  // a word half typed loads no texts
      calm = setTimeout(() => { for (const one of list.children) inView.observe(one); }, CALM_MS);
      if (shown.length) choose(0);
    }

    input.addEventListener("focus", async () => { await loadBook(); show(); }, { once: true });
    input.addEventListener("input", show);
    input.addEventListener("keydown", (event) => {
      const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (move && list.children.length) choose(chosen + move);
      else if (event.key === "Enter" && list.children.length) list.children[chosen].click();
      else if (event.key !== "Enter" || input.value.trim()) return;
      event.preventDefault();
    });
    if (most === ON_PAGE) {
      input.value = new URLSearchParams(location.search).get("q") ?? "";
      input.focus();
    }
  });

  // A slash begins to search, like Ctrl and K of the theme.
  document.addEventListener("keydown", (event) => {
    const { key, target, ctrlKey, metaKey, altKey } = event;
    if (key !== "/" || ctrlKey || metaKey || altKey) return;
    if (target.closest("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    document.querySelector(".search-button__button").click();
  });
});
