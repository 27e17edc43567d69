"""The token strip of chapter 17: the page asks for the package's targets, and the controls obey."""

import itertools
import random

import pytest
import torch

from llmcourse import loss
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse_classroom.widgets.targets import Strip, TokenStrip
from llmcourse_labs.tuning.chat_format import CHAT_TOKENS, END_OF_TURN
from tests.browser.hands import by_key, choose, enter, keys, press
from tests.browser.kit import holds, noted, said, table, value
from tests.browser.registry import token_strip
from tests.browser.twins import each

LEARN = ("all tokens", "assistant", "assistant without end")


def drawn(count=40):
    """Random strips: several documents, padding at the end or first, every role, ends of turns."""
    rng, roles = random.Random(3), ["system", "user", "assistant", "template", "text"]
    for at in range(count):
        size = rng.choice((1, 2, 3, 7, 20, 48))
        documents = sorted(rng.choices([0, 0, 1, 2, 5], k=size))
        for place in range(size - rng.randrange(size), size):
            documents[place] = -1
        if at % 5 == 0:
            documents.reverse()
        yield Strip(
            f"strip {at}",
            [rng.choice(("a", " b", "\n", END_OF_TURN)) for _ in range(size)],
            rng.choices(roles, k=size),
            documents,
        ).plain()


def settings(shifts=(1,)):
    for shift, learn, separate in itertools.product(shifts, LEARN, (True, False)):
        yield {"shift": shift, "learn": learn, "separate": separate}


def learned_of(strip, learn):
    keep = torch.ones(len(strip["tokens"]), dtype=torch.bool)
    if learn != "all tokens":
        keep = torch.tensor([role == "assistant" for role in strip["roles"]])
    if learn == "assistant without end":
        keep &= torch.tensor([token != END_OF_TURN for token in strip["tokens"]])
    return keep


def as_targets(asked):
    return [each["target"] if each["counted"] else loss.IGNORE_INDEX for each in asked]


def test_targets_are_those_of_the_package(arithmetic):
    cases = list(itertools.product(drawn(), settings()))
    got = arithmetic(TokenStrip, "targets", [list(case) for case in cases])
    counts = arithmetic(TokenStrip, "numCounted", [[asked] for asked in got])
    for (strip, given), asked, count in zip(cases, got, counts, strict=True):
        documents = torch.tensor(strip["documents"])
        if not given["separate"]:
            documents = documents.clamp(max=0)  # padding is padding all the same
        expected = loss.shifted_targets(
            torch.arange(len(documents)),
            documents_BT=documents,
            learned_BT=learned_of(strip, given["learn"]),
        )
        assert as_targets(asked) == expected.tolist()
        assert count == (loss.count_targets([expected]) if count else 0)
        assert bool(count) == bool((expected != loss.IGNORE_INDEX).any())
    assert sum(counts) > 300


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_every_shift_by_its_definition(arithmetic, shift):
    cases = itertools.product(drawn(), settings((shift,)))
    for (strip, given), asked in each(arithmetic, TokenStrip, "targets", cases):
        learned = learned_of(strip, given["learn"]).tolist()
        owner = strip["documents"]
        expected = [
            t + shift
            if owner[t] >= 0
            and owner[t + shift] >= 0
            and learned[t + shift]
            and (owner[t] == owner[t + shift] or not given["separate"])
            else loss.IGNORE_INDEX
            for t in range(len(owner) - shift)
        ]
        last = [loss.IGNORE_INDEX] * (len(owner) - len(expected))
        assert as_targets(asked) == expected + last


def test_every_reason_is_the_first_that_holds(arithmetic):
    roles = ["text"] * 3 + ["user", "assistant", "assistant", "padding", "padding"]
    tokens = ["a", "b", "c", "?", "!", "<|end|>", "<pad>", "<pad>"]
    strip = Strip("all", tokens, roles, [0, 0, 1, 1, 1, 1, -1, -1]).plain()
    whys = {
        (given["learn"], given["separate"]): [one["why"] for one in asked]
        for (_, given), asked in each(
            arithmetic, TokenStrip, "targets", [[strip, given] for given in settings()]
        )
    }
    end, no = ["padding", "padding", "end of row"], "not learned"
    assert whys["all tokens", True] == ["counts", "another document", *["counts"] * 3, *end]
    assert whys["all tokens", False] == ["counts", "crosses", *["counts"] * 3, *end]
    assert whys["assistant", True] == [no, "another document", no, "counts", "counts", *end]
    assert whys["assistant without end", False] == [no, no, no, "counts", "end left out", *end]


def test_a_position_sees_itself_and_what_is_before_it_in_its_document(arithmetic):
    cases = [(strip, t) for strip in drawn(12) for t in range(len(strip["documents"]))]
    for (strip, t), seen in each(arithmetic, TokenStrip, "seen", cases):
        owner = strip["documents"]
        assert seen == [s for s in range(t + 1) if owner[s] == owner[t] >= 0]


def test_white_space_and_special_tokens_are_visible(arithmetic):
    given = [" the", "\n\n", "\t", "\r", "<|end|>"]
    got = arithmetic(TokenStrip, "spelt", [[token] for token in given])
    assert got == ["␣the", "↵↵", "⇥", "␍", "<|end|>"]
    special = arithmetic(TokenStrip, "isSpecial", [[t] for t in [*CHAT_TOKENS, END_OF_TEXT]])
    assert special == [True] * 5
    assert arithmetic(TokenStrip, "isSpecial", [["<"], ["<|"], ["<||>"], [" <|a|>"]]) == [False] * 4


def test_the_cursor_says_what_is_seen_and_asked(show):
    page = show(token_strip())
    holds(said(page), "Position 4 sees “Once a cat sat.”", "asked for “↵”; it counts")
    holds(said(page), "9 of 10 positions", "90 %", "divided by 9")
    keys(page, "position", "ArrowLeft")
    holds(said(page), "Position 3 sees “Once a cat sat”", "asked for “.”; it counts")
    holds(page.get_by_role("img").get_attribute("aria-label"), "Position 3 sees")
    press(page, "Step", "Position 5 sees “Once a cat sat.↵”", "asked for “Then”", times=2)
    by_key(page, "Back", "Position 4 sees")
    enter(page, "position", "9", "no token to ask for", "does not count", "row ends")
    press(page, "Step", "Position 0 sees “Once”", "asked for “␣a”")
    press(page, "Back", "Position 0 sees")
    page.locator(".lc-stage text", has_text="␣left").first.click(position={"x": 3, "y": 3})
    assert value(page, "position") == "7"
    holds(said(page), "asked for “␣left”")
    enter(page, "position", "9")
    choose(page, "row of tokens", "packed")  # it is shorter
    assert value(page, "position") == "5"
    holds(noted(page), "9 is not possible", "from 0 to 5", "5 is used")


def test_the_wrong_shifts_are_explained(show):
    page = show(token_strip())
    text = page.locator(".lc-stages")
    holds(text.text_content(), "Shift 1 is right")
    keys(page, "shift of the targets", "ArrowLeft")
    holds(text.text_content(), "falls towards 0")
    holds(said(page), "asked for “.”; it counts, but", "position reads", "10 of 10 positions")
    enter(page, "shift of the targets", "2")
    holds(text.text_content(), "the token after the next")
    holds(said(page), "asked for “Then”; it counts, but “↵”", "8 of 10 positions", "80 %")


def test_what_is_learned_of_a_conversation(show):
    page = show(token_strip(strip="chat", position=2), says=["6 of 7 positions", "85.7 %"])
    choose(page, "learn", "assistant")
    holds(said(page), "3 of 7 positions", "42.9 %", "“<|assistant|>”; it does not count")
    holds(said(page), "role template")
    ticks = page.locator(".lc-stage path[d*='l3 3.5']").count()
    crosses = page.locator(".lc-stage path[d*='l8 8']").count()
    assert (ticks, crosses) == (3, 4)  # a shape, and not only a colour
    choose(page, "learn", "assistant without end", "2 of 7 positions")
    holds(page.locator(".lc-stages").text_content(), "does not learn to stop")
    enter(page, "position", "5", "“<|end|>”; it does not count", "left out")
    cells = table(page)[5]
    assert cells[:5] + cells[6:] == ["5", ".", "6", "<|end|>", "no", "assistant", "0"]
    holds(cells[5], "left out")
    choose(page, "row of tokens", "story", "None of the 10", "0 / 0")


def test_the_border_of_a_document(show):
    page = show(token_strip(strip="packed", position=2))
    holds(said(page), "“Two”; it does not count", "another document", "3 of 6 positions")
    keys(page, "ignore targets across documents", "Space")
    holds(said(page), "“Two”; it counts, but", "another document", "4 of 6 positions")
    enter(page, "position", "3", "Position 3 sees “Two” and")
    enter(page, "position", "5", "Position 5 is padding")
    assert page.locator(".lc-stage text", has_text="document 1").count() == 1
    assert page.locator(".lc-stages").get_by_text("Hatched: padding").is_visible()


def test_a_long_past_is_cut_between_tokens(show):
    page = show(TokenStrip([Strip("long", [f" word{i:02}" for i in range(20)])], position=15))
    holds(said(page).replace("\u00a0", " "), "sees “…  word08 word09 word10")
    holds(said(page), "word15” and", "“␣word16”")


def test_tokens_are_never_markup(show):
    page = show(TokenStrip([Strip("<b>x</b>", ["<img src=x onerror=alert(1)>", "</script><b>"])]))
    page.locator(".lc-table > summary").click()
    assert page.locator(".lc-host img, .lc-host b").count() == 0
    holds(said(page), "</script><b>")


def test_strips_may_be_mappings_with_what_is_left_out_filled_in():
    strip = TokenStrip([{"name": "a", "tokens": ("x", "y")}])
    expected = {"name": "a", "tokens": ["x", "y"], "roles": ["text"] * 2, "documents": [0, 0]}
    assert strip.strips == [expected]
    assert (strip.strip, strip.position, TokenStrip.Strip) == ("a", 1, Strip)
