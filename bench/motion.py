"""The longest task of a script while a widget moves, in a browser: milliseconds of the processor.

Time on the processor, so that others who use the machine do not count.  A row is the longest frame
of the movement, and another the press that sets it in motion, which draws the picture anew.
"""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from playwright.sync_api import Browser, Page, sync_playwright

from bench.timing import row
from llmcourse.model import llama3_8b
from llmcourse_classroom import widgets
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widget import Widget
from tools.machine import chromium

LIMIT_MS = 16
"""A frame, of which a screen shows 60 a second."""
SECONDS = 1.6
"""For how long each movement is watched: it begins with the press, and lasts a second or so."""
WORDS = ["Once", "there", "was", "a", "girl", "named", "Mia", ".", "She", "had", "a", "red", "ball"]


def attention_map() -> Widget:
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(2, len(WORDS), heads, 20, generator=generator) for heads in (4, 2))
    return widgets.AttentionMap(WORDS, queries, keys, shown="shares")


PROGRAM = "w = 0.5; x = 3; product = w * x; error = product - 2; loss = error * error"


def packing() -> Widget:
    lengths = [20 + 37 * n % 230 for n in range(40)]
    return widgets.PackingBoard(lengths, 256, method="pack", placed=20)


def spikes() -> Widget:
    lab = recorded_runs("spikes")["lab"]
    names = ["clipping", "beta2 0.95", "QK-norm", "QK-Clip", "soft-cap"]
    runs = [
        {"on": [] if on == "none" else on.split(" + "), **seeds["0"]} for on, seeds in lab.items()
    ]
    return widgets.SpikeLab(names, runs, on=names[:3])


MOVING: tuple[tuple[str, Callable[[], Widget], str], ...] = (
    ("attention map, values come", attention_map, "Step"),
    ("ring, 4 ranks", functools.partial(widgets.RingStepper, 4, step=2), "Step"),
    ("ring, 8 ranks", functools.partial(widgets.RingStepper, 8, step=2), "Step"),
    ("pipeline, 4 ranks", functools.partial(widgets.SchedulePlayer, moment=9), "Step"),
    ("graph, backward", functools.partial(widgets.GraphStepper, PROGRAM, step=6), "Step"),
    (
        "block, backward",
        functools.partial(widgets.BlockTapper, llama3_8b(), going="backward", box="query"),
        "Step",
    ),
    ("mesh of 16,384 ranks, dp", functools.partial(widgets.MeshGrid, axis="pp"), "Step"),
    ("ZeRO, weights are gathered", functools.partial(widgets.ZeroBars, stage=3), "Step"),
    ("checkpoint is loaded", functools.partial(widgets.CrashLab, shown=14), "Step"),
    ("packing, a document falls", packing, "Step"),
    (
        "wavelengths, 64 pairs",
        functools.partial(widgets.WavelengthChart, scaling="yarn"),
        "Llama 3.1",
    ),
    ("spike lab, precautions off", spikes, "All off"),
    ("search of a mesh", functools.partial(widgets.StepSimulator, tried=60), "Step"),
)
"""A name for each widget that moves, how it is made, and the button that sets it in motion."""

CATEGORIES = "devtools.timeline,disabled-by-default-devtools.timeline"
PAGE = '<!doctype html><html lang="en"><meta charset="utf8"><title>Motion</title>{}</html>'


def longest_ms(page: Page, button: str) -> tuple[float, float]:
    """Press a button; return the longest task of the press, and the longest frame after it."""
    session = page.context.new_cdp_session(page)
    events: list[dict] = []
    ended: list[bool] = []
    session.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    page.get_by_role("button", name=button, exact=True).focus()
    session.send("Tracing.start", {"transferMode": "ReportEvents", "categories": CATEGORIES})
    page.keyboard.press("Enter")
    page.wait_for_timeout(1000 * SECONDS)
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(50)
    session.detach()

    def longest(*names: str) -> float:
        return max(one.get("tdur", 0) / 1000 for one in events if one["name"] in names)

    return longest("EventDispatch"), longest("FireAnimationFrame", "TimerFire")


def measured(
    browser: Browser, make: Callable[[], Widget], button: str, *, repeats: int
) -> tuple[float, float]:
    """Return the medians, over fresh pages, of the longest press and the longest frame."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(PAGE.format(make().page()), encoding="utf8")
        for _ in range(repeats):
            page = browser.new_page(viewport={"width": 760, "height": 900})
            page.goto(path.as_uri())
            page.locator(".lc-stage svg").first.wait_for()
            page.wait_for_timeout(500)
            found.append(longest_ms(page, button))
            page.close()
    press, frame = (median(each) for each in zip(*found, strict=True))
    return press, frame


def rows(*, quick: bool) -> list[dict]:
    """Return a row for each widget that moves; none where there is no Chromium."""
    try:
        program = chromium.path()
    except FileNotFoundError:
        return []
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=chromium.FLAGS)
        for name, make, button in MOVING:
            tasks = measured(browser, make, button, repeats=1 if quick else 5)
            for kind, longest in zip(("press", "frame"), tasks, strict=True):
                what = f"motion, {name}: longest {kind}, {longest:.1f} ms"
                ours, limit = 1000 / max(longest, 1e-3), 1000 / LIMIT_MS
                found.append(row(what, ours, limit, "16 ms", "per second", aim=">= 1"))
        browser.close()
    return found
