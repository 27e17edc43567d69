"""The page of `llmcourse report` in a browser: alone, in both themes, wide and on a phone."""

import pytest

from llmcourse import train
from llmcourse_labs.evaluate import report
from tests.browser.visits import opened, violations


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a run with a name that does not break, and a section of a caller."""
    folder = tmp_path_factory.mktemp("report")
    config = train.PRESETS["tiny"]().replace(steps=4, warmup_steps=1, validate_every=2)
    run = folder / ("a-name-without-a-break-" * 4)
    train.fit(train.start(config.replace(sample_tokens=1), run))
    stage = {"title": "Preferences", "notes": ["One sentence."]}
    stage["facts"] = {"share": {"value": 0.5, "low": 0.4, "high": 0.6, "from": "dpo/" + "x" * 80}}
    lines = {"DPO": [[1, 0.69], [2, 0.61]], "IPO": [[1, 0.5], [2, 0.4]]}
    stage["curves"] = [{"x": "step", "y": "loss", "lines": lines, "from": "dpo/metrics.jsonl"}]
    report(run, folder / "out", stages={"dpo": stage})
    return (folder / "out" / "report.html").as_uri()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_report_can_be_read_by_everybody_and_asks_nobody(theme, address, chromium):
    with opened(chromium, address, color_scheme=theme) as (page, visit):
        assert (page.locator("section").count(), page.get_by_role("img").count()) == (16, 2)
        assert "lowest 0.61 at 2" in page.get_by_role("img").last.locator("title").text_content()
        assert page.get_by_role("row", name="share 0.5 (0.4 to 0.6)").count() == 1
        for width in (1200, 360):
            page.set_viewport_size({"width": width, "height": 740})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert violations(page) == []
        page.locator("nav a").last.focus()
        page.keyboard.press("Enter")
        assert page.url.endswith("#times")
        assert (visit.requests, visit.errors) == ([address], [])
