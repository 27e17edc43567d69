// What the book adds to a page.

// The theme takes the focus from a button that was pressed: one pressed by key keeps it.  And the
// contents, laid over a narrow page, go away when an entry has been chosen.
document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll(".bd-header-article button")) {
    button.blur = () => {
      if (!button.matches(":focus-visible")) HTMLElement.prototype.blur.call(button);
    };
  }
  const contents = document.getElementById("pst-secondary-sidebar-modal");
  contents?.addEventListener("click", ({ target }) => { if (target.closest("a")) contents.close(); });
});

// On a narrow screen a line of code goes on below, further in than it began: each line becomes an
// element that knows how far in it is.  What has elements over several lines (a module's source)
// stays as it is, and wraps plainly; printed text stays as it is for its columns.
document.addEventListener("DOMContentLoaded", () => {
  const narrow = matchMedia("(max-width: 767.98px)");
  const split = () => {
    if (!narrow.matches) return;
    narrow.removeEventListener("change", split);
    for (const code of document.querySelectorAll(".bd-article div.highlight pre")) {
      if (code.closest(".output.stream, .output.text_plain")) continue;
      if ([...code.children].some((part) => part.textContent.includes("\n"))) continue;
      code.innerHTML = code.innerHTML.trimEnd().split("\n").map((line) => {
        const indent = line.replace(/<[^>]*>/g, "").search(/\S|$/);
        return `<span class="course-line" style="--indent: ${indent + 4}ch">${line}</span>`;
      }).join("\n");
    }
  };
  narrow.addEventListener("change", split);
  split();
});

// A glossary term is explained where it stands, on hover, on focus and on touch.  The page carries
// the explanations of its own terms (book/_ext/reading.py).
document.addEventListener("DOMContentLoaded", () => {
  const terms = document.getElementById("course-terms");
  if (!terms) return;
  const explained = JSON.parse(terms.textContent);
  const bubble = document.createElement("div");
  bubble.id = "course-term";
  bubble.setAttribute("role", "tooltip");
  bubble.hidden = true;
  document.body.append(bubble);
  let shown = null;
  let timer = null;

  function hide() {
    clearTimeout(timer);
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    bubble.hidden = true;
  }

  function show(link) {
    clearTimeout(timer);
    if (shown === link) return;
    hide();
    shown = link;
    bubble.textContent = explained[link.dataset.term];
    bubble.hidden = false;
    link.setAttribute("aria-describedby", bubble.id);
    const place = link.getClientRects()[0];
    const left = Math.max(8, Math.min(place.left, innerWidth - bubble.offsetWidth - 8));
    const below = place.bottom + 6;
    const above = place.top - bubble.offsetHeight - 6;
    bubble.style.left = `${left + scrollX}px`;
    bubble.style.top = `${(below + bubble.offsetHeight > innerHeight && above > 0 ? above : below) + scrollY}px`;
  }

  const later = () => { timer = setTimeout(hide, 250); };
  for (const link of document.querySelectorAll("article.bd-article a[href*='glossary.html#term-']")) {
    const name = decodeURIComponent(link.hash.slice(1));
    if (!(name in explained)) continue;
    link.dataset.term = name;
    link.classList.add("course-term");
    link.addEventListener("mouseenter", () => show(link));
    link.addEventListener("mouseleave", later);
    link.addEventListener("focus", () => show(link));
    link.addEventListener("blur", hide);
  }
  // The explanation stays while the pointer is on it, and Escape puts it away.
  bubble.addEventListener("mouseenter", () => clearTimeout(timer));
  bubble.addEventListener("mouseleave", later);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
});

// The checks of a page stand in folded cells: a button opens them all, and folds them again.
document.addEventListener("DOMContentLoaded", () => {
  const line = document.querySelector("p.course-checked");
  const folds = document.querySelectorAll(".tag_checks details");
  if (!line || !folds.length) return;
  const button = document.createElement("button");
  button.type = "button";
  const show = (open) => {
    for (const fold of folds) fold.open = open;
    button.setAttribute("aria-expanded", open);
    button.textContent = open ? "Hide the checks" : "Show the checks";
  };
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") === "false"));
  show(false);
  line.append(" ", button);
});
