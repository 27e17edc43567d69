"""What the tests of widgets have in common: how a page is read, typed into, and looked over.

`widget_faults` says what is wrong with the widgets of a page as they stand; `unreached` and
`unclamped` try the keyboard and impossible numbers.
"""

import re

from playwright.sync_api import Page

# --- reading and typing


def said(page: Page) -> str:
    """Return the sentence that says what the state is."""
    return page.get_by_role("status").text_content()


def settled(page: Page) -> str:
    """Return what a widget says once it says nothing else; what was ordered before is done."""
    before = said(page)
    for _ in range(10):
        page.wait_for_timeout(600)
        now = said(page)
        if now == before:
            return now
        before = now
    raise AssertionError(f"it does not come to rest: {now}")


def noted(page: Page) -> str:
    return page.locator(".lc-note").text_content()


def pictured(page: Page, place: int = 0) -> str:
    """Return the text that stands for a picture to a screen reader."""
    return page.locator(".lc-stage > svg").nth(place).get_attribute("aria-label")


def per_cent(share: float, digits: int = 3) -> str:
    """Return a share as the widgets write it: never as 0 or 100 what is neither nothing nor all."""
    if 0 < abs(share) < 0.0005:
        return "under 0.1 %"
    shown = float(f"{100 * share:.{digits}g}")
    if share < 1 and shown >= 100:
        return f"over {100 - 10.0 ** (2 - digits):g} %"
    return f"{shown:g} %"


def holds(text: str, *facts: str) -> None:
    """Assert that a sentence has these facts: numbers, names, and words that tell its cases.

    A number at an end of a fact is a whole one: "2 of 9" is not found in "12 of 9".
    """
    missing = [fact for fact in facts if not re.search(_whole(fact), text)]
    assert not missing, f"{missing} not in “{text}”"


def _whole(fact: str) -> str:
    before = r"(?<!\d)(?<!\d[.,])" if fact[:1].isdigit() else ""
    return before + re.escape(fact) + (r"(?!\d)" if fact[-1:].isdigit() else "")


def numbers(text: str) -> list[float]:
    one = r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?!\w|\.\d)"
    return [float(n.replace(",", "")) for n in re.findall(one, text.replace("−", "-"))]


def value(page: Page, name: str) -> str:
    return page.get_by_label(f"{name}, number", exact=True).input_value()


def table(page: Page, caption: str = "") -> list[list[str]]:
    """Open the table of this caption, or the first; return its rows, header cells included.

    A widget may fill its table only once it is open, an event later: the first row is awaited.
    """
    named = page.locator("summary", has_text=caption)
    box = page.locator("details.lc-table").filter(has=named).first
    if box.get_attribute("open") is None:
        box.locator("summary").first.click()
    rows = box.locator("tbody tr")
    rows.first.wait_for()
    return rows.evaluate_all("all => all.map((row) => [...row.cells].map((c) => c.textContent))")


# --- looking over

CONTROLS = ".lc button, .lc input, .lc select, .lc textarea, .lc summary"
FAULTS = """(controls) => {
  const found = [], root = document.documentElement, box = (one) => one.getBoundingClientRect();
  const named = (one) => `${one.localName} “${(one.ariaLabel || one.textContent).slice(0, 60)}”`;
  if (root.scrollWidth > root.clientWidth)
    found.push(`the page is ${root.scrollWidth} wide, not ${root.clientWidth}`);
  for (const text of document.querySelectorAll(".lc svg text")) {
    const [inner, outer] = [box(text), box(text.ownerSVGElement)];
    if (inner.left < outer.left - 0.5 || inner.right > outer.right + 0.5
      || inner.top < outer.top - 0.5 || inner.bottom > outer.bottom + 0.5)
      found.push(`a picture cuts off “${text.textContent}”`);
  }
  const larger = parseFloat(getComputedStyle(root).fontSize) / 16;
  for (const one of document.querySelectorAll(".lc-stage > svg")) {
    const wanted = Math.min(larger, one.parentElement.clientWidth / 316);
    if (one.getScreenCTM().a < wanted - 0.01) found.push("the text of a picture does not grow");
  }
  for (const one of document.querySelectorAll(controls)) {
    if (!one.checkVisibility()) continue;
    const labels = [...(one.labels || [])].map((label) => label.textContent).join("");
    const own = one.matches("button, summary") ? one.textContent : "";
    if (!(labels + own + (one.ariaLabel || "")).trim()) found.push(`${one.outerHTML}: no name`);
    if (one.type !== "range" && one.offsetHeight < 24 || one.offsetWidth < 24)
      found.push(`${named(one)} is ${one.offsetWidth} x ${one.offsetHeight}, less than 24`);
    if (box(one).right > box(one.closest(".lc")).right - 4) found.push(`${named(one)} sticks out`);
    // Widths are rounded: a pixel more is no text that is cut off.
    if (one.type === "number" && one.scrollWidth > one.clientWidth + 1)
      found.push(`${named(one)} has no room for ${one.value}`);
  }
  for (const { childElementCount: count } of document.querySelectorAll(".lc-dock > .lc-controls"))
    if (count > 3) found.push(`${count} controls are not folded away, more than 3`);
  for (const one of document.querySelectorAll(".lc [role=img]"))
    if (!one.ariaLabel.trim()) found.push("a picture has no text that stands for it");
  for (const one of document.querySelectorAll(".lc *"))
    for (const { name, value } of one.attributes)
      if (!name.startsWith("aria-") && /\\bNaN\\b|Infinity|undefined/.test(value))
        found.push(`${one.localName} ${name}=${value.slice(0, 60)}`);
  for (const { textContent } of document.querySelectorAll(".lc"))
    if (/\\bundefined\\b|\\[object/.test(textContent)) found.push(`it says “${textContent}”`);
  return found.slice(0, 20);
}"""
LISTEN = """(controls) => {
  const all = [...document.querySelectorAll(controls)];
  const wanted = all.filter((one) => one.checkVisibility() && !one.disabled);
  window.unreached = new Set(wanted);
  window.unseen = [];
  document.addEventListener("focusin", ({ target }) => {
    window.unreached.delete(target);
    if (getComputedStyle(target).outlineStyle === "none") window.unseen.push(target.outerHTML);
  });
  return document.querySelectorAll(".lc *").length && wanted.length;
}"""
IMPOSSIBLE = """() => {
  const found = [], said = document.querySelector(".lc [role=alert]");
  const fields = document.querySelectorAll(".lc input[type=number]");
  for (const field of fields) for (const given of ["1e15", "-1e15", ""]) {
    if (!field.checkVisibility()) continue;
    field.value = given;
    field.dispatchEvent(new Event("change"));
    const used = Number(field.value), [low, high] = [field.min, field.max].map(Number);
    const name = `${field.ariaLabel} given “${given}”`;
    if (field.value === "" || used < low || used > high) found.push(`${name}: ${field.value} used`);
    if (!/is used| in place of /.test(said.textContent)) found.push(`${name}: not said`);
  }
  return found;
}"""


def look(page: Page, *, theme: str, width: int, text: int = 100) -> None:
    """Show a page in another theme, width and percentage of text, with pictures drawn anew."""
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate(
        """async ([theme, text]) => {
          document.documentElement.dataset.theme = theme;
          document.documentElement.style.fontSize = `${text}%`;
          for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
        }""",
        [theme, text],
    )


def widget_faults(page: Page) -> list[str]:
    """Return what is wrong with the widgets of a page, as they stand.

    Nothing may be wider than the page or cut off by its picture or field; every control and picture
    has a name; controls are at least 24 pixels high and wide; the text of pictures grows with that
    of the page, but for what a phone leaves it; nothing is drawn at NaN, or undefined.
    """
    return page.evaluate(FAULTS, CONTROLS)


def unreached(page: Page) -> list[str]:
    """Press Tab until the end; return controls that had no focus, or none that can be seen."""
    presses = page.evaluate(LISTEN, f"{CONTROLS}, .lc a[href], .lc [tabindex='0']")
    for _ in range(presses + 3):
        page.keyboard.press("Tab")
    return page.evaluate(
        "() => [...[...window.unreached].map((one) => `no focus: ${one.outerHTML}`),"
        " ...window.unseen.map((html) => `focus is not seen: ${html}`)]"
    )


def unclamped(page: Page) -> list[str]:
    """Give every number what it cannot be; return those that took it, or did not say so."""
    return page.evaluate(IMPOSSIBLE)
