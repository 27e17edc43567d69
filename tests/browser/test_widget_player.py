"""The widget of chapter 21: its schedules and times are the package's, and every control obeys."""

import json
from fractions import Fraction

import pytest

from llmcourse.parallel import pipeline
from llmcourse.parallel.pipeline import Schedule, gpipe, interleaved, one_f_one_b, zero_bubble
from llmcourse_classroom.widget import module
from llmcourse_classroom.widgets.player import SchedulePlayer
from llmcourse_labs.scale.arithmetic import bubble_share, peak_live, peak_micro_batches, simulate
from tests.browser.hands import by_key, choose, enter, keys, later, place, press, stop_time
from tests.browser.kit import holds, pictured, said, table, value
from tests.browser.twins import same

OFFERED = [
    (name, p, m, v)
    for name in ("gpipe", "1f1b", "interleaved", "zero_bubble")
    for p in range(1, 9)
    for m in range(1, 17)
    for v in ((2, 3, 4) if name == "interleaved" else (1,))
]
"""All that the controls can ask for."""


def made(name, p, m, v):
    makers = {"gpipe": gpipe, "1f1b": one_f_one_b, "zero_bubble": zero_bubble}
    try:
        return interleaved(p, m, v) if name == "interleaved" else makers[name](p, m)
    except ValueError as error:
        return str(error)


PACKAGE = {case: made(*case) for case in OFFERED}
DRAWN = {case: found for case, found in PACKAGE.items() if isinstance(found, Schedule)}
FACTS = """async ([text, cases]) => {
  const shipped = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  return JSON.stringify(cases.map((given) => {
    const [name, p, m, v] = given;
    const rows = shipped.simulate(...given);
    return {
      rows: rows.map((row) => row.map((a) => [a.kind, a.i, a.chunk, a.start, a.end])),
      bubble: shipped.bubble(rows), span: shipped.span(rows), formula: shipped.formula(...given),
      peaks: rows.map(shipped.peak), messages: shipped.messages(p, m, v),
    };
  }));
}"""
"""Calls all functions of the shipped module for all cases; text, since objects travel slowly."""


@pytest.fixture(scope="module")
def facts(chromium):
    page = chromium.new_page()
    found = json.loads(page.evaluate(FACTS, [module(SchedulePlayer.script), list(DRAWN)]))
    page.close()
    return dict(zip(DRAWN, found, strict=True))


@pytest.fixture(scope="module")
def expected():
    found = {}
    for case, schedule in DRAWN.items():
        timeline, sent = simulate(schedule), [0] * schedule.num_ranks
        for rank, row in enumerate(schedule.actions):
            wanted = [pipeline.needs(schedule, rank, action) for action in row]
            for sender in [each.rank for each in wanted if each and each.rank != rank]:
                sent[sender] += 1
        rows = [
            [[*action, time.start, time.end] for action, time in zip(*both, strict=True)]
            for both in zip(schedule.actions, timeline.rows, strict=True)
        ]
        found[case] = {"rows": rows, "span": timeline.total, "messages": sent}
        found[case] |= {"bubble": float(timeline.bubble), "formula": float(bubble_share(*case))}
        found[case]["peaks"] = list(peak_live(schedule))
        assert found[case]["peaks"] == list(peak_micro_batches(*case)), case
    return found


def verdict(page):
    return page.locator(".lc .sp-verdict").text_content()


def test_what_is_refused_is_what_the_package_refuses(arithmetic):
    rules = arithmetic(SchedulePlayer, "refused", [[name, p, m] for name, p, m, _ in OFFERED])
    for case, rule in zip(OFFERED, rules, strict=True):
        assert bool(rule) == (case not in DRAWN), case
        if rule:
            assert rule.split("nearest: ")[1].rstrip(".") == PACKAGE[case].split("nearest: ")[1]


WHAT = ("rows", "span", "bubble", "formula", "peaks", "messages")


@pytest.mark.parametrize("what", WHAT)
def test_a_schedule_is_the_packages(facts, expected, what):
    for case, found in facts.items():
        assert same(found[what], expected[case][what], {"rel": 1e-12}), case
    assert max(found["formula"] for found in facts.values()) == 7


def test_what_is_live_at_a_moment_by_hand(arithmetic):
    """1F1B, 4 ranks: rank 0 has begun four forward passes when its first backward ends at 12."""
    given = [["1f1b", 4, 8, 1], ["zero_bubble", 2, 2, 1]]
    first, second = arithmetic(SchedulePlayer, "simulate", given)
    four = [[0, 0], [1, 0], [2, 0], [3, 0]]
    found = arithmetic(SchedulePlayer, "live", [[first[0], t] for t in (0, 3, 11, 12, 33)])
    assert found == [four[:1], four, four, [*four[1:], [4, 0]], []]
    # Rank 1: F0 I0 F1 I1 W0 W1 from 1 on; micro-batch 0 is kept until W0 ends at 6.
    found = arithmetic(SchedulePlayer, "live", [[second[1], t] for t in (5, 6, 7)])
    assert found == [[[0, 0], [1, 0]], [[1, 0]], []]


def test_what_every_rank_does_and_all_schedules_on_one_scale(show):
    page = show(SchedulePlayer())
    holds(said(page), "At 10 of 33", "rank 0 B0", "rank 1 F3", "rank 2 B1", "rank 3 B2")
    holds(verdict(page), "waits 9", "9/24 = 37.5 %", "(p − 1)/m = 3/8 = 37.5 %", "4, 3, 2 and 1")
    holds(pictured(page), "1F1B, 4 ranks, 8 micro-batches, 33 units")
    holds(pictured(page, 2), "rank 0 keeps 4, at most 4")
    rows = table(page, "Every rank at this moment")
    assert rows[0] == ["rank 0", "backward of micro-batch 0", "12", "0 1 2 3", "4", "24", "9"]
    rows = table(page, "The order of actions")
    actions = one_f_one_b(4, 8).actions
    assert [row[1] for row in rows] == [" ".join(map(str, row)) for row in actions]
    assert [row[1:6] for row in table(page, "The four schedules")] == [
        ["33", "37.5 %", "8", "8", "48"],
        ["33", "37.5 %", "4", "1", "48"],
        ["28.5", "18.8 %", "11/2", "5/2", "112"],
        ["27", "12.5 %", "4", "4", "48"],
    ]
    holds(pictured(page, 1), "GPipe 33 units, bubble 37.5 %", "1F1B 33 units, bubble 37.5 %")
    holds(pictured(page, 1), "interleaved 1F1B 28.5 units, bubble 18.8 %")
    assert pictured(page, 1).endswith("zero-bubble (ZB-H1) 27 units, bubble 12.5 %")
    board = page.locator(".lc-stage svg").nth(1)
    idle = board.locator("[data-key] > rect:not([data-key])")
    widths = idle.evaluate_all("all => all.map((one) => Number(one.getAttribute('width')))")
    assert [width / widths[0] for width in widths] == pytest.approx([1, 1, 28.5 / 33, 27 / 33])
    ends = board.locator("[data-key] > path").evaluate_all(
        "all => all.map((one) => one.getBBox()).map((box) => box.x + box.width)"
    )
    assert [max(ends[4 * k : 4 * k + 4]) - 2 for k in range(4)] == pytest.approx(widths, abs=1.5)
    board.get_by_text("GPipe").click()
    assert page.get_by_label("schedule", exact=True).input_value() == "gpipe"
    enter(page, "micro-batches m", "7")
    holds(pictured(page, 1), "interleaved 1F1B is not allowed")


def test_controls_by_keyboard_and_in_the_picture(show):
    page = show(SchedulePlayer())
    by_key(page, "Step", "At 11 of 33")
    page.get_by_role("button", name="Back").press("Space")
    holds(said(page), "At 10 of 33")
    picture = page.locator(".lc-stage svg").first
    picture.click(position={"x": 52 + (picture.bounding_box()["width"] - 58) * 20 / 33, "y": 60})
    holds(said(page), "At 20 of 33")
    knob = page.get_by_role("slider", name="moment in the picture")
    knob.press("ArrowRight")
    holds(said(page), "At 21 of 33")
    assert knob.get_attribute("aria-valuetext") == "21"
    keys(page, "moment, units", "End", "All is done after 33")
    keys(page, "ranks p", "ArrowRight", "All is done after 36")  # and it stays done
    by_key(page, "Reset", "At 0 of 36", "rank 0 F0, rank 1 waits")
    enter(page, "micro-batches m", "16")
    holds(verdict(page), "4/16 = 25 %")


def test_play_goes_to_the_end_where_motion_is_not_wanted(show, page):
    page.emulate_media(reduced_motion="reduce")
    shown = show(SchedulePlayer("gpipe", num_ranks=2, micro_batches=3))
    press(shown, "To the end", "All is done after 12", values={"moment": "12"})


def test_chunks_belong_to_the_interleaved_schedule(show):
    page = show(SchedulePlayer())
    chunks = page.get_by_label("chunks v", exact=True)
    assert not chunks.is_visible()
    choose(page, "schedule", "interleaved")
    assert chunks.is_visible()
    holds(said(page), "At 5 of 28.5", "rank 0 F6.0")
    holds(verdict(page), "(p − 1)/(v m) = 3/(2 · 8) = 18.8 %")
    chunks.press("End")
    holds(verdict(page), "3/(4 · 8) = 9.38 %", "each for one chunk")


def test_the_rule_is_said_and_can_be_met(show):
    page = show(SchedulePlayer("interleaved"))
    nearest = page.get_by_role("button", name="Take the nearest m that is allowed")
    assert not nearest.is_visible()
    enter(page, "micro-batches m", "6", "multiple of p = 4", "Given: 6", "4 or 8")
    assert verdict(page) == ""
    holds(page.locator(".lc-stage svg").first.text_content(), "no schedule")
    assert table(page, "The four schedules")[2][1] == "not allowed"
    by_key(page, "Step")
    nearest.press("Enter")
    assert value(page, "micro-batches m") == "8"
    holds(said(page), "of 28.5 units")
    assert not nearest.is_visible()
    enter(page, "ranks p", "7")
    enter(page, "micro-batches m", "16")
    nearest.press("Enter")  # 21 is more than the slider has
    assert value(page, "micro-batches m") == "14"


def test_fewer_micro_batches_than_ranks_are_drawn_and_judged(show):
    page = show(SchedulePlayer("gpipe", micro_batches=1))
    holds(verdict(page), "waits 9", "9/3 = 300 %", "m of p or more", "4 ranks")
    choose(page, "schedule", "zero_bubble")
    assert simulate(zero_bubble(4, 1)).bubble == Fraction(2)
    holds(verdict(page), "= 200 % of its work", "(2 (p − 1) − (m − 1))/(3 m) = 6/(3 · 1) = 200 %")


def test_where_a_micro_batch_is_by_hand(arithmetic):
    """1F1B, 4 ranks: micro-batch 1 waits for rank 3, turns there, and is back at rank 0 at 12."""
    (rows,) = arithmetic(SchedulePlayer, "simulate", [["1f1b", 4, 8, 1]])
    moments = (0, 1, 2, 4, 6, 7, 9, 11, 13, 14)
    found = arithmetic(SchedulePlayer, "whereIs", [[rows, 1, t] for t in moments])
    assert [(one["rank"], one["kind"], one["waits"]) for one in found] == [
        (-1, "F", True),
        (0, "F", False),
        (1, "F", False),
        (3, "F", True),
        (3, "F", False),
        (3, "B", False),
        (2, "B", False),
        (1, "B", False),
        (0, "B", False),
        (0, "B", False),
    ]
    (end,) = arithmetic(SchedulePlayer, "whereIs", [[rows, 1, 33]])
    assert (end["rank"], end["waits"]) == (-1, False)


def test_a_micro_batch_is_seen_to_go_from_rank_to_rank_and_back(show):
    """Mutants: it is at the next rank at once; it does not come back; it changes its colour."""
    page = show(SchedulePlayer(moment=1), as_is=True)
    stop_time(page)
    colour = "document.querySelector(\"[data-key='batch 0'] circle\").getAttribute('class')"
    for button, direction, mark in (("Step", 1, "lc-1"), ("Back", -1, "lc-1")):
        before = place(page, "batch 0")
        press(page, button)
        later(page, 200)
        middle = place(page, "batch 0")
        later(page, 400)
        after = place(page, "batch 0")
        assert direction * before[0] < direction * middle[0] < direction * after[0]
        assert page.evaluate(colour) == mark
        later(page, 200)
    assert after[0] == pytest.approx(place(page, "box 1")[0], abs=1)
    page.get_by_text("More settings").click()
    enter(page, "moment", "7")
    later(page, 500)
    before = place(page, "batch 0")
    press(page, "Step", "rank 1 B0")
    later(page, 250)
    assert place(page, "batch 0")[0] < before[0]
    assert page.evaluate(colour) == "lc-2"
    later(page, 300)
    assert place(page, "batch 0")[0] == pytest.approx(place(page, "box 1")[0], abs=1)


def test_with_reduced_motion_it_is_at_the_next_rank_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(SchedulePlayer(moment=1), as_is=True)
    stop_time(page)
    press(page, "Step", "rank 2 F0")
    assert place(page, "batch 0")[0] == pytest.approx(place(page, "box 2")[0], abs=1)
