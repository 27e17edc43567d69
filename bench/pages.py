"""What a chapter costs the browser that opens it, on a processor a quarter as fast."""

from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from bench.timing import row
from tools.build import build_book
from tools.machine import chromium

CHAPTERS = ("01", "11", "19", "22", "25")
"""The longest, and those with most formulas."""
SLOWER = 4
LIMIT_S = 1.0
NOTE = """window.longTasks = [];
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longTasks.push(task.duration);
}).observe({ type: "longtask", buffered: true });"""


def blocking_s(browser: Browser, chapter: Path, seconds: float = 5) -> float:
    """Return for how long tasks block a page after it is opened: what each takes beyond 50 ms."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    page.add_init_script(NOTE)
    page.goto(chapter.as_uri())
    page.wait_for_timeout(1000 * seconds)
    tasks = page.evaluate("window.longTasks")
    page.close()
    return sum(max(0, task - 50) for task in tasks) / 1000


def rows(*, quick: bool) -> list[dict]:
    """Return a row for each chapter; none where there is no Chromium, or no book."""
    folder = build_book.BUILD / "html" / "chapters"
    paths = [path for name in CHAPTERS for path in folder.glob(f"{name}_*.html")]
    try:
        program = chromium.path()
    except FileNotFoundError:
        return []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=chromium.FLAGS)
        found = []
        for path in paths:
            times = [blocking_s(browser, path) for _ in range(1 if quick else 5)]
            what = f"opening chapter {path.name[:2]} at a quarter of the speed"
            ours, limit = 1 / max(median(times), 1e-3), 1 / LIMIT_S
            found.append(row(what, ours, limit, "1 s of blocking", "per second", aim=">= 1"))
        browser.close()
    return found
