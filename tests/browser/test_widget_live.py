"""What the page does with the live run; its engine has tests of its own."""

import re

import numpy as np
import pytest

from llmcourse_classroom.look import read_look
from llmcourse_classroom.widgets import LiveCrash, LiveRanks, LiveRun, LiveSpike
from tests.browser import hands, kit
from tests.browser.registry import live_run, tiny_config, tiny_live_run


def wait_to_say(page, words):
    page.get_by_role("status").filter(has_text=words).wait_for(timeout=20_000)


def press_until(page, name, words):
    hands.press(page, name)
    wait_to_say(page, words)


def test_nothing_runs_before_it_is_asked_for(show):
    page = show(live_run(), says=["recorded run, step 400", "loss 0.92"])
    assert page.get_by_text(re.compile("recorded run .* step 400:")).count() == 1
    hands.enter(page, "step", "0")
    wait_to_say(page, "step 0: loss 6.60")
    assert "\ufffd" in page.locator(".lr-words").text_content()
    kit.holds(kit.pictured(page), "not measured")
    assert len(page.workers) == 0
    page.emulate_media(media="print")  # on paper, the recorded run without controls
    assert page.locator(".lr-recorded").is_visible()
    assert page.locator(".lr-words").is_visible()
    assert not page.get_by_role("button", name="Train").is_visible()


def test_steps_by_hand_are_counted_and_measured(show):
    page = show(tiny_live_run())
    for count in (1, 2, 3):
        press_until(page, "Step", f"Step {count} of 60: loss ")
    assert kit.value(page, "step") == "3"
    kit.holds(kit.pictured(page), "backward")
    kit.holds(kit.pictured(page, 1), "your run 5.70 at step 1")
    assert page.get_by_text("writes after step 3").count() == 1
    assert [row[0] for row in kit.table(page, "The run so far")[:2]] == ["1", "3"]


def test_it_trains_to_its_end_begins_anew_and_a_press_in_the_picture_leads_back(show):
    page = show(tiny_live_run())
    press_until(page, "Train", "Step 60 of 60")
    kit.holds(kit.said(page), "complete")
    first = page.locator(".lr-words").text_content()
    table = kit.table(page, "The run so far")
    assert float(table[-1][1]) < float(table[0][1]) - 1
    hands.press(page, "Train again")  # at once, from new weights
    assert "Step 60" not in kit.said(page)
    wait_to_say(page, "Step 60 of 60")
    assert page.locator(".lr-words").text_content() == first  # the same numbers from the same seed
    kit.holds(kit.pictured(page, 1), "before, dotted")
    hands.drag(page, page.locator(".lc-stage svg").nth(1), (60, 80))
    wait_to_say(page, "Step 0 of 60")


def test_phases_are_called_as_everywhere_and_the_curve_has_its_name(show):
    """Mutants: the first phase is called load; no name at the end of the curve."""
    page = show(tiny_live_run())
    names = page.locator(".lc-stage").first.locator("text").all_text_contents()
    numbered = [f"{n} {name}" for n, name in enumerate(read_look()["phases"], start=1)]
    assert [name for name in names if name[0].isdigit()] == numbered
    assert page.locator(".lr-name").count() == 0
    press_until(page, "Train", "Step 60 of 60")
    assert page.locator(".lr-name").text_content() == "your run"
    end, curve = (page.locator(kind).bounding_box() for kind in (".lr-name", ".lr-live"))
    assert abs(end["x"] + end["width"] - curve["x"] - curve["width"]) < 6


def test_a_page_shows_the_parts_that_it_names(show):
    page = show(tiny_live_run(show=("loss",)))
    press_until(page, "Step", "Step 1 of 60")
    kit.holds(kit.pictured(page), "your run 5.70 at step 1")
    for part in (".lc-stage + p", ".lr-words", "canvas"):
        assert page.locator(part).count() == 0


def test_when_the_end_is_said_what_it_wrote_is_that_of_the_end(show):
    """Mutant: the end is said first, and what it wrote is drawn a moment later."""
    page = show(tiny_live_run())
    page.evaluate(
        """() => {
          const said = document.querySelector("[role=status]");
          const caption = document.querySelector(".lr-words").previousElementSibling;
          new MutationObserver(() => {
            if (said.textContent.startsWith("Step 60 ")) window.ended ??= caption.textContent;
          }).observe(said, { childList: true });
        }"""
    )
    hands.press(page, "Train")
    page.wait_for_function("window.ended", timeout=20_000)
    assert page.evaluate("window.ended").startswith("What it writes after step 60,")


def test_the_recorded_run_is_a_ghost_that_is_seen_behind_the_readers(show):
    """Mutants: as thin as the reader's; drawn over it."""
    page = show(live_run())
    press_until(page, "Step", "Step 1 of 400")
    found = page.locator(".lr-recorded, .lr-live").evaluate_all(
        "all => all.map((one) => [one.getAttribute('class'), getComputedStyle(one).strokeWidth])"
    )
    (ghost, wide), (own, thin) = found  # what comes later is drawn above
    assert (ghost, own) == ("lr-recorded", "lr-live")
    assert float(wide.removesuffix("px")) >= 2 * float(thin.removesuffix("px"))


def test_without_webassembly_it_trains_in_plain_javascript(show, page):
    page.add_init_script(
        """window.Blob = class extends Blob {
          constructor(parts, how) { super(["self.WebAssembly = undefined;\\n", ...parts], how); }
        };"""
    )
    show(tiny_live_run())
    press_until(page, "Step", "Step 1 of 60: loss 5.7")
    assert "6,768 weights trains in your browser, slowly, since it has no" in kit.said(page)


def test_it_pauses_and_goes_back_with_another_rate(show):
    page = show(tiny_live_run(steps=2_000, pace="5 steps a second"))
    press_until(page, "Train", re.compile(r"Step [2-9] of"))
    hands.press(page, "Pause")
    hands.enter(page, "step", "23")  # forward: it trains until there
    hands.choose(page, "speed", "full speed")
    wait_to_say(page, "Step 23 of 2000")
    page.get_by_role("button", name="Train", exact=True).wait_for()
    hands.enter(page, "learning rate", "0.05")
    hands.enter(page, "step", "15")
    wait_to_say(page, "Step 10 of 2000")  # the last checkpoint before
    hands.enter(page, "step", "23")
    wait_to_say(page, "Step 23 of 2000")
    now, before = (float(kit.table(page)[1][column]) for column in (1, 2))
    assert kit.table(page)[1][0] == "23"
    assert now != before


def test_an_impossible_rate_is_said_and_the_run_can_go_back(show):
    page = show(tiny_live_run(steps=200, learning_rate=0.3))
    press_until(page, "Train", "Step 200 of 200")
    hands.enter(page, "step", "0")
    wait_to_say(page, "All weights are random")


@pytest.mark.parametrize(
    "run",
    [tiny_live_run(steps=2_000, pace="5 steps a second"), LiveRanks(tiny_config(steps=2_000))],
    ids=["a run", "ranks"],
)
def test_out_of_sight_it_rests(show, run):
    page = show(run)
    press_until(page, "Train", re.compile(r"Step ([2-9]|\d\d+) of"))
    page.evaluate("document.body.style.paddingTop = '5000px'")
    wait_to_say(page, "Paused: out of sight.")
    resting = kit.settled(page)
    kit.holds(resting, "Paused: out of sight.")
    page.evaluate("document.body.style.paddingTop = 0")
    page.get_by_role("status").filter(has_not_text="Paused").wait_for(timeout=20_000)
    page.get_by_role("status").filter(has_not_text=resting[:8]).wait_for(timeout=20_000)


def test_with_reduced_motion_it_trains_and_is_drawn_seldom(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(tiny_live_run(steps=2_000))
    page.evaluate(
        """() => { window.drawn = 0; new MutationObserver(() => { window.drawn++; }).observe(
          document.querySelector("[role=status]"), { childList: true, characterData: true }); }"""
    )
    hands.press(page, "Train")
    page.wait_for_timeout(2_500)
    hands.press(page, "Pause")
    page.get_by_role("button", name="Train", exact=True).wait_for(timeout=5_000)
    assert page.evaluate("window.drawn") <= 4
    assert re.match(r"Step \d\d+ of", kit.said(page))


@pytest.mark.parametrize("make", [live_run, LiveRanks, LiveSpike, LiveCrash])
def test_where_no_thread_can_be_had_there_is_the_recorded_run(show, page, make):
    page.add_init_script("window.Worker = class { constructor() { throw new Error('refused'); } };")
    show(make())
    hands.press(page, "Train")
    page.get_by_role("alert").filter(has_text="cannot train it here").wait_for()
    assert "refused" in kit.noted(page)
    assert page.get_by_role("button", name="Train", exact=True).is_disabled()
    assert "recorded" in page.locator(".lc").text_content()


def test_without_scripts_there_is_the_recorded_run(chromium, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(live_run(samples={400: "<b>Tom</b> ran."}).page(), encoding="utf8")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert "loss 6.60 at first, 0.92 nats per token at step 400" in page.inner_text("figcaption")
    assert "“<b>Tom</b> ran.”" in page.inner_text("figcaption")
    assert page.locator("figure polyline").is_visible()
    context.close()


def test_shares_cosines_and_the_axis_with_room_for_a_run_that_diverges(arithmetic):
    found = arithmetic(LiveRun, "shares", [[[[1, 3], [2, 2]]], [[[0, 0]]]])
    assert found == [[3 / 8, 5 / 8], [0, 0]]
    rows = np.random.default_rng(2).normal(size=(5, 7))
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = (np.sum(units @ units.T) - 5) / 20
    (found,) = arithmetic(LiveRun, "alikeness", [[rows.tolist()]])
    assert found == pytest.approx(expected, rel=1e-12)
    pairs = [[0, "a"], [4, "b"]]
    cases = [[pairs, 0], [pairs, 3], [pairs, 4], [[], 2]]
    assert arithmetic(LiveRun, "lastUpTo", cases) == [[0, "a"], [0, "a"], [4, "b"], None]
    cases = [[[], 6], [[6.1, 2], 6], [[6, 10], 6], [[6, 90, None], 6]]
    found = arithmetic(LiveRun, "highest", cases)
    assert found == pytest.approx([6.48, 6.48, 10.5, 18])
