"""Take the README's two pictures of the built book, in headless Chromium.

    python -m tools.pages.screenshots

They are committed; run it again when the look of the book changes.
"""

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tools.machine import chromium

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
FOLDER = ROOT / "docs" / "images"
# name: page, what to scroll to, theme, width, height
PICTURES = {
    "chapter": ("chapters/01_whole_run.html", None, "light", 1000, 640),
    "widget": ("chapters/03_downhill.html", ".lc", "dark", 1000, 640),
}


def take(browser: object, name: str) -> None:
    """Open a page and write a small picture of it."""
    address, place, theme, width, height = PICTURES[name]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    page.goto((HTML / address).as_uri())
    page.wait_for_timeout(2000)  # mathematics and widgets
    if place:
        page.locator(place).first.evaluate("e => e.scrollIntoView({ block: 'start' })")
        page.mouse.wheel(0, -60)
        page.get_by_label("steps taken, number").fill("25")
        page.keyboard.press("Tab")
        page.wait_for_timeout(500)
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    page.close()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> int:
    """Take all pictures; return an exit code."""
    if not HTML.exists():
        print("the book is not built: run make book", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.path(), args=chromium.FLAGS)
        for name in PICTURES:
            take(browser, name)
        browser.close()
    print("\n".join(str(FOLDER / f"{name}.png") for name in PICTURES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
