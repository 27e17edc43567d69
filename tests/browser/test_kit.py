"""The toolkit of the widgets: folded controls, movement, handles, and a picture in sight."""

import functools

import pytest

from llmcourse_classroom import widgets
from llmcourse_classroom.widget import Widget, source
from llmcourse_classroom.widgets import Bowl, MatrixSplitter, RingStepper
from tests.browser import hands, kit, registry
from tests.browser.twins import agrees


def test_at_most_three_controls_are_shown_and_the_picture_stands_above_them(show):
    page = show(Bowl(), as_is=True)
    names = page.locator(".lc-control label").filter(visible=True).all_text_contents()
    assert names == ["learning rate", "momentum 0.9", "Adam"]
    picture, dock = (page.locator(one).bounding_box() for one in (".lc-stage >> nth=1", ".lc-dock"))
    assert picture["y"] + picture["height"] <= dock["y"]
    page.get_by_text("More settings").click()
    assert page.get_by_label("noise of the gradient", exact=True).is_visible()


FRAMES = """async () => {
  const token = document.querySelector("[data-key='token 0']"), seen = new Set();
  const step = [...document.querySelectorAll("button")].find((one) => one.textContent === "Step");
  step.click();
  for (let i = 0; i < 90; i++) {
    await new Promise(requestAnimationFrame);
    seen.add(document.querySelector("[data-key='token 0']").getAttribute("transform"));
  }
  return [token.getAttribute("transform"), ...seen];
}"""


def turns(transforms):
    return [float(text.removeprefix("rotate(").split()[0]) for text in transforms]


def test_a_chunk_flies_to_the_next_rank(show):
    page = show(RingStepper(), as_is=True)
    page.wait_for_timeout(200)  # what follows a redraw at once is not moved
    first, *seen = turns(page.evaluate(FRAMES))
    assert (first, seen[-1]) == (90, 180)
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert all(90 <= angle <= 180 for angle in seen)


def test_nothing_moves_with_reduced_motion(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(RingStepper(), as_is=True)
    page.wait_for_timeout(200)
    assert turns(page.evaluate(FRAMES)) == [90, 180]


TRAVELLERS = """
function render({ model, el }) {
  const w = frame({ model, el, title: "Travellers" });
  let at = 0;
  const draw = w.stage((svg) => {
    svg.append(s("circle", { "data-key": "keyed", "data-while": "0.5 1", cx: at, cy: 20, r: 4 }));
    if (at) {
      svg.append(
        s("g", { "data-way": "0,40 50,40 50,90", transform: "translate(50 90)", class: "goes" }),
        s("g", { "data-way": "0,60 50,60", "data-while": "0.5 1", "data-gone": true,
          class: "passes" }),
        label(0, 90, "before", { "data-while": "0.4 0.6", "data-gone": true, class: "before" }),
        label(0, 90, "after", { "data-while": "0.4 0.6", class: "after" }));
    }
    return "";
  }, { lasts: () => 5 });
  w.button("Go", () => { at = 100; draw(); });
  draw();
  return w.destroy;
}
export default { render };"""


class Travellers(Widget):
    """A keyed circle, one thing that goes along a way, one that passes, a word for another."""

    alt = "Things that travel."

    @classmethod
    def _module_text(cls):
        return source("kit.js") + TRAVELLERS


SEEN = """() => Object.fromEntries([...document.querySelectorAll(".lc-stage svg > *")].map((one) =>
  [one.getAttribute("class") ?? one.dataset.key,
   one.getAttribute("cx") ?? one.getAttribute("transform") ??
     Number(one.getAttribute("opacity"))]))"""
ARRIVED = {"keyed": "100", "goes": "translate(50 90)", "after": 1}


def test_things_travel_in_their_part_of_the_time_and_some_are_gone_at_the_end(show):
    """Mutants: no part of the time; what is gone stays; a way is cut short."""
    page = show(Travellers(), as_is=True)
    hands.stop_time(page)
    hands.press(page, "Go")
    start = page.evaluate(SEEN)
    assert (start["keyed"], start["goes"]) == ("0", "translate(0.00 40.00)")
    assert (start["before"], start["after"]) == (1, 0)
    hands.later(page, 500)
    middle = page.evaluate(SEEN)
    assert middle["keyed"] == "0"
    x, y = kit.numbers(middle["goes"].replace("(", " ").replace(")", " "))
    assert x == 50 or y == 40  # on the way, not straight
    assert 0 < middle["after"] < 1
    assert middle["before"] == pytest.approx(1 - middle["after"])
    hands.later(page, 250)
    assert 0 < float(page.evaluate(SEEN)["keyed"]) < 100
    hands.later(page, 400)
    assert page.evaluate(SEEN) == ARRIVED | {"after": 1}


def test_with_reduced_motion_all_have_arrived_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(Travellers(), as_is=True)
    hands.stop_time(page)
    hands.press(page, "Go")
    assert page.evaluate(SEEN) == ARRIVED | {"after": 0}  # as it was drawn, without opacity


def test_a_handle_is_a_slider_that_keys_move_and_keeps_the_focus(show):
    page = show(Bowl())
    ball = page.get_by_role("slider", name="start of the balls")
    ball.focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    assert kit.numbers(ball.get_attribute("aria-valuetext")) == [7.8, 2.4]
    assert ball.get_attribute("aria-valuenow") == "7.8"
    assert ball.evaluate("(one) => one === document.activeElement")
    assert (kit.value(page, "start at x"), kit.value(page, "start at y")) == ("7.8", "2.4")
    page.keyboard.press("End")
    assert ball.get_attribute("aria-valuenow") == ball.get_attribute("aria-valuemax") == "10"


NORM = functools.partial(widgets.NormAndGate, first=0, second=1)


@pytest.mark.parametrize(
    ("make", "name", "number"),
    [
        (registry.hacking_board, "budget in the picture", "budget of KL, in nats"),
        (registry.run_scrubber, "step in the picture", "step"),
        (NORM, "list of two channels in the picture", "channel 0"),
        (NORM, "gate in the picture", "gate g"),
    ],
)
def test_the_mark_of_a_number_can_be_dragged_and_moved_by_keys(show, make, name, number):
    """Mutants: the mark has no handle; its place leads to no number."""
    page = show(make())
    handle = page.get_by_role("slider", name=name)
    handle.focus()
    page.keyboard.press("Home")
    first = float(kit.value(page, number))
    drag(page, handle, 150, 0)
    dragged = float(kit.value(page, number))
    assert dragged > first
    page.keyboard.press("ArrowLeft")
    assert first < float(kit.value(page, number)) < dragged


PLACES = [
    (registry.isoflop_valley, 1, "compute C, power of ten", (9, (15, 21), 27)),
    (lambda: widgets.RateRegimes(registry.rate_runs()), 0, "at step", (0, (100, 200), 295)),
    (widgets.GoodputPlanner, 0, "seconds between saves", (10, (1_500, 5_000), 604_800)),
    (widgets.ScheduleDesigner, 0, "at step", (0, (800, 1_200), 2_000)),
]
"""Widgets, a picture, a number, and what it is at the picture's left end, middle and right end."""


@pytest.mark.parametrize(("make", "picture", "number", "ends"), PLACES)
def test_a_number_follows_the_pointer_in_a_picture(show, make, picture, number, ends):
    low, (least, most), high = ends
    for width in (760, 360):
        page = show(make(), width=width)
        at = page.locator(".lc-stage > svg").nth(picture)
        box = at.bounding_box()
        centre, left, right = ((x, 80) for x in (box["width"] / 2 + 15, 40, box["width"] - 16))
        hands.drag(page, at, centre)
        assert least <= float(kit.value(page, number)) <= most
        hands.drag(page, at, centre, right, (right[0] + 60, 80))
        assert float(kit.value(page, number)) == high
        hands.drag(page, at, centre, left, (5, 80))
        page.mouse.move(box["x"] + right[0], box["y"] + 80)
        assert float(kit.value(page, number)) == low


def drag(page, handle, right, down):
    x, y = hands.middle(handle)
    hands.drag(page, handle, (x, y), (x + right, y + down))


def test_a_ball_is_dragged_to_where_the_pointer_goes(show):
    page = show(Bowl(steps=5))
    ball = page.get_by_role("slider", name="start of the balls")
    before = ball.bounding_box()
    drag(page, ball, -120, 30)
    page.mouse.move(0, 0)
    after = ball.bounding_box()
    assert after["x"] - before["x"] == pytest.approx(-120, abs=3)
    assert after["y"] - before["y"] == pytest.approx(30, abs=5)
    assert float(kit.value(page, "start at x")) < 6
    assert kit.value(page, "steps taken") == "0"


def test_the_cut_of_a_matrix_is_dragged(show):
    page = show(MatrixSplitter(cut_a="columns", cut_b="columns"))
    cut = page.get_by_role("slider", name="cut of B")
    drag(page, cut, -60, 60)
    kit.holds(kit.said(page), "A by columns, B by rows")
    assert cut.get_attribute("aria-valuetext") == "by rows"
    kit.holds(kit.pictured(page), "h a share of the columns, B a share of the rows, y a summand")
    kit.holds(kit.pictured(page), "y is due an all-reduce")
    cut.press("ArrowRight")
    kit.holds(kit.said(page), "B whole")


PLAYERS = [
    (Bowl, "After [2-9] ", "After 0 steps", "After 60 steps"),
    (lambda: widgets.GraphStepper(registry.TWO_LINES), "Step [2-9] of", "8 steps", "Done: a 4."),
    (lambda: widgets.KeyRing("zigzag", 5), "Step [1-5] of 5", "own queries", "Step 5 of 5"),
    (
        lambda: widgets.RotaryClocks(length=8_192),
        "Query at [1-9]",
        "at 8, key at 0",
        "key at 8,183",
    ),
    (lambda: widgets.SchedulePlayer(moment=0), "At [2-9] of 33", "At 0 of 33", "All is done"),
    (lambda: widgets.TrainingLoop(registry.loop_phases()), "Phase [2-6]", "Phase 1", "Phase 7"),
    (lambda: RingStepper(5), "Step [1-8] of 8", "Wanted", "Step 8 of 8: done"),
    (registry.token_strip, "Position [5-9]", "Position 0 sees", "Position 9 sees"),
]
"""Widgets, and what they say on their way, at the start and at the end."""


@pytest.mark.parametrize(("make", "on_its_way", "start", "end"), PLAYERS)
def test_play_moves_and_in_reduced_motion_the_end_comes_at_once(show, make, on_its_way, start, end):
    page = show(make())
    hands.press(page, "Play")
    page.wait_for_function(
        "said => new RegExp(said).test(document.querySelector('.lc-status').textContent)",
        arg=on_its_way,
    )
    hands.press(page, "Pause")
    page.emulate_media(reduced_motion="reduce")
    hands.press(page, "Reset", start)
    hands.press(page, "To the end", end)


def test_numbers_of_a_sentence_and_facts_that_it_lacks():
    text = "A batch of 10 takes 2,400 steps, −1.5 times 3e-4 (12.5 %), H100 and 1F1B not."
    assert kit.numbers(text) == [10, 2_400, -1.5, 3e-4, 12.5]
    kit.holds(text, "2,400 steps", "12.5 %")
    for wrong in ("2,401 steps", "400 steps", "5 times", "batch of 1"):
        with pytest.raises(AssertionError, match=wrong):
            kit.holds(text, wrong, "12.5 %")


@pytest.mark.parametrize("far", [0, 1])
def test_on_a_phone_the_picture_is_in_sight_while_a_slider_is_held(show, far):
    page = show(Bowl(), width=390)
    page.set_viewport_size({"width": 390, "height": 600})
    slider = page.get_by_label("start at y", exact=True)
    slider.evaluate(
        "(one, far) => scrollBy(0, one.getBoundingClientRect().top - 60 - 440 * far)", far
    )
    picture = page.locator(".lc-stage").nth(1)
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] / 2)
    page.mouse.down()
    held = picture.bounding_box()
    page.mouse.up()
    assert held["y"] >= -1
    assert held["y"] + held["height"] <= 601
    assert not (held["y"] < box["y"] + box["height"] and box["y"] < held["y"] + held["height"])
    assert picture.evaluate("(one) => one.style.transform") == ""


def test_shares_counts_and_lists_in_words(arithmetic):
    """Mutants: 100 % for what is less than all, 0 % for what is more than nothing."""
    said = {(0,): "0 %", (1,): "100 %", (0.12345,): "12.3 %", (0.12345, 2): "12 %"}
    said |= {(0.00049,): "under 0.1 %", (-1e-8,): "under 0.1 %", (0.9994,): "99.9 %"}
    said |= {(0.9996,): "over 99.9 %", (0.994, 2): "99 %", (0.996, 2): "over 99 %"}
    said |= {(12.345,): "1,230 %"}
    agrees(arithmetic, Bowl, "percent", said, lambda *case: said[case])
    counts = {(1, "rank"): "1 rank", (0, "rank"): "0 ranks", (1_200, "box", "boxes"): "1,200 boxes"}
    agrees(arithmetic, Bowl, "plural", counts, lambda *case: counts[case])
    lists = {(): "", ("a",): "a", ("a", "b"): "a and b", ("a", "b", "c"): "a, b and c"}
    cases = [[list(words)] for words in lists]
    agrees(arithmetic, Bowl, "listed", cases, lambda words: lists[tuple(words)])


def test_a_choice_of_long_names_has_a_row_of_its_own_and_shows_them_whole(show):
    page = show(widgets.StepSimulator())
    wide = "(one) => one.offsetWidth / one.closest('.lc').offsetWidth"
    assert page.get_by_label("start from").evaluate(wide) > 0.7
    assert page.get_by_label("pp: stages", exact=True).evaluate(wide) < 0.5
