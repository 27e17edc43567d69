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
  // The menu opens where the reader is.
  const menu = document.getElementById("pst-primary-sidebar-modal");
  document.querySelector(".primary-toggle")?.addEventListener("click", () => setTimeout(() => {
    menu?.querySelector(".current:not(:has(.current)) > a")?.scrollIntoView({ block: "center" });
  }));
});

// A line of code that is too long, and on a narrow screen any, goes on below, further in than it
// began: each line becomes an element that knows how far in it is.  What has elements over several
// lines (a module's source) stays as it is; printed text stays as it is for its columns, but for
// lines so long that they must be prose.  A listing is looked at when the reader comes near: to
// measure all of them at once takes a phone half a second.
document.addEventListener("DOMContentLoaded", () => {
  const narrow = matchMedia("(max-width: 767.98px)");
  const listings = [...document.querySelectorAll(".bd-article div.highlight pre")].filter((code) =>
    !code.closest(".output.stream, .output.text_plain")
    && ![...code.children].some((part) => part.textContent.includes("\n")));
  const split = (code) => {
    code.innerHTML = code.innerHTML.trimEnd().split("\n").map((line) => {
      const indent = line.replace(/<[^>]*>/g, "").search(/\S|$/);
      return `<span class="course-line" style="--indent: ${indent + 4}ch">${line}</span>`;
    }).join("\n");
  };
  const near = new IntersectionObserver((seen) => {
    const shown = seen.filter(({ isIntersecting }) => isIntersecting).map(({ target }) => target);
    const long = shown.filter((code) => narrow.matches || code.scrollWidth > code.clientWidth);
    for (const code of shown) near.unobserve(code);
    long.forEach(split);
  }, { rootMargin: "100% 0px" });
  const begin = () => {
    for (const code of listings) if (!code.querySelector(".course-line")) near.observe(code);
  };
  for (const printed of document.querySelectorAll(".bd-article div.cell_output pre")) {
    if (printed.textContent.split("\n").some((line) => line.length > 100)) printed.classList.add("course-prose");
  }
  narrow.addEventListener("change", begin);
  begin();
});

// What a link leads to shows where the link stands, on hover, on focus and on touch: a term's
// explanation, how a chapter begins, the entry of a citation, an equation, a figure.  The page
// carries what it says of terms and chapters (book/_ext/reading.py); the rest is on it already.
document.addEventListener("DOMContentLoaded", () => {
  const kept = JSON.parse(document.getElementById("course-previews")?.textContent ?? "{}");
  const bubble = document.createElement("div");
  bubble.id = "course-preview";
  bubble.setAttribute("role", "tooltip");
  bubble.hidden = true;
  document.querySelector("article.bd-article")?.append(bubble);  // a part of what is read
  let shown = null;
  let timer = null;

  function line(name, text) {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  }

  // A part of this page once more, without what there may be only once.
  function copy(part) {
    const made = part.cloneNode(true);
    for (const one of [made, ...made.querySelectorAll("[id]")]) one.removeAttribute("id");
    for (const one of made.querySelectorAll("a.headerlink, script")) one.remove();
    return made;
  }

  // What there is to show of a link: a function that makes it, or nothing.
  function previewOf(link) {
    const address = link.getAttribute("href");
    const said = kept[decodeURI(address)] ?? kept[address.split("#")[0]];
    if (said) {
      const lines = () => ["strong", "span", "small"].map((name, at) => said[at] && line(name, said[at]));
      return () => lines().filter(Boolean);
    }
    if (link.closest(".bibtex-citation") && link.title) {
      const { title } = link;
      link.removeAttribute("title");  // the browser's own would stand beside ours
      return () => [line("span", title)];
    }
    const part = address.startsWith("#") ? document.getElementById(decodeURIComponent(address.slice(1))) : null;
    return part?.matches("figure, div.math") ? () => [copy(part)] : null;
  }

  function hide() {
    clearTimeout(timer);
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    bubble.hidden = true;
  }

  function show(link, parts) {
    clearTimeout(timer);
    if (shown === link) return;
    hide();
    shown = link;
    bubble.replaceChildren(...parts);
    bubble.hidden = false;
    link.setAttribute("aria-describedby", bubble.id);
    const [place, origin] = [link.getClientRects()[0], bubble.offsetParent.getBoundingClientRect()];
    const left = Math.max(8, Math.min(place.left, innerWidth - bubble.offsetWidth - 8));
    const below = place.bottom + 6;
    const above = place.top - bubble.offsetHeight - 6;
    const top = below + bubble.offsetHeight > innerHeight && above > 0 ? above : below;
    bubble.style.left = `${left - origin.left}px`;
    bubble.style.top = `${top - origin.top}px`;
  }

  // A finger that is lifted leaves, too, at once: only a mouse counts.
  const later = ({ pointerType }) => { if (pointerType === "mouse") timer = setTimeout(hide, 250); };
  for (const link of document.querySelectorAll("article.bd-article a.reference.internal")) {
    const make = previewOf(link);
    if (!make) continue;
    const open = () => show(link, make());
    if (link.hash.startsWith("#term-")) link.classList.add("course-term");
    link.addEventListener("pointerenter", ({ pointerType }) => { if (pointerType === "mouse") open(); });
    link.addEventListener("pointerleave", later);
    link.addEventListener("focus", open);
    link.addEventListener("blur", hide);
    // The first touch shows, the second leads on; a chapter opens at once.
    let wasShown = false;
    link.addEventListener("pointerdown", () => { wasShown = shown === link; });
    link.addEventListener("click", (event) => {
      if (event.pointerType !== "touch" || wasShown || link.pathname.includes("/chapters/") && !link.hash) return;
      event.preventDefault();
      open();
    });
  }
  // It stays while the pointer is on it; Escape and a touch elsewhere put it away.
  bubble.addEventListener("pointerenter", () => clearTimeout(timer));
  bubble.addEventListener("pointerleave", later);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("pointerdown", ({ target }) => {
    if (shown && !bubble.contains(target) && !shown.contains(target)) hide();
  });
});

// On a narrow screen a figure is smaller than it was drawn: a tap on it, or the button below, opens it
// in its own size, in which no letter is below 11 pixels; it scrolls, and Escape, a tap or back closes.
document.addEventListener("DOMContentLoaded", () => {
  const dialog = document.createElement("dialog");
  dialog.className = "course-figure";
  dialog.setAttribute("aria-label", "Figure in its own size");
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "✕" });
  close.setAttribute("aria-label", "Close the figure");
  const picture = document.createElement("img");
  dialog.append(close, picture);
  dialog.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  const enlarge = (image) => {
    picture.src = image.src;
    picture.alt = image.alt;
    picture.width = image.getAttribute("width");
    dialog.showModal();
  };
  for (const image of document.querySelectorAll(".bd-article img.of-light")) {
    const dark = image.nextElementSibling;
    const shown = () => [image, dark].find((one) => one.checkVisibility());
    const isSmall = () => shown().width < 0.95 * image.getAttribute("width");
    const button = Object.assign(document.createElement("button"), { type: "button", className: "course-enlarge" });
    button.textContent = "⤢ Enlarge";
    button.setAttribute("aria-label", `Enlarge the figure: ${image.alt.slice(0, 60)}`);
    button.addEventListener("click", () => enlarge(shown()));
    dark.after(button);
    for (const one of [image, dark]) one.addEventListener("click", () => { if (isSmall()) enlarge(one); });
  }
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

// What a link leads to may stand in a fold, or be the heading of one: it opens.  On paper all are open.
document.addEventListener("DOMContentLoaded", () => {
  const open = () => {
    const part = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folds = [part?.querySelector(":scope > details.deeper")];
    for (let fold = part?.closest("details"); fold; fold = fold.parentElement.closest("details")) folds.push(fold);
    const closed = folds.filter((fold) => fold && !fold.open);
    for (const fold of closed) fold.open = true;
    if (closed.length) part.scrollIntoView();  // else the browser has been there
  };
  addEventListener("hashchange", open);
  // A second click on the same link changes no address.
  document.addEventListener("click", ({ target }) => {
    const link = target.closest?.("a[href]");
    if (link?.hash && link.href === location.href) open();
  });
  open();
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details.deeper")) fold.open = true;
  });
  // What scrolls inside of a fold can be reached by key once it is open: the theme looks at a resize.
  document.addEventListener("toggle", () => dispatchEvent(new Event("resize")), true);
});
