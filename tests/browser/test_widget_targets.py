"""The token strip of chapter 17: the page asks for the package's targets, and the controls obey."""

import itertools
import random

import pytest
import torch
import traitlets

from llmcourse import loss
from llmcourse.course.widgets.targets import Strip, TokenStrip
from llmcourse.data.chat import CHAT_TOKENS, END_OF_TURN, Turn, chat_tokens
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.packing import best_fit, packed_rows
from llmcourse.data.tokenizer import train_bpe
from tests.browser.kit import enter, noted, said, value
from tests.browser.registry import token_strip

LEARN = ("all tokens", "assistant", "assistant without end")


def drawn(count=40):
    """Random strips: several documents, padding at the end or first, every role, ends of turns."""
    rng = random.Random(3)
    roles = ["system", "user", "assistant", "template", "text"]
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
    """Return what the page asks for as the package writes it: ids are places."""
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
    cases = list(itertools.product(drawn(), settings((shift,))))
    got = arithmetic(TokenStrip, "targets", [list(case) for case in cases])
    for (strip, given), asked in zip(cases, got, strict=True):
        learned = learned_of(strip, given["learn"]).tolist()
        documents = strip["documents"]
        pairs = [(t, t + shift) for t in range(len(documents) - shift)]
        expected = [
            to
            if documents[t] >= 0
            and documents[to] >= 0
            and learned[to]
            and (documents[t] == documents[to] or not given["separate"])
            else loss.IGNORE_INDEX
            for t, to in pairs
        ]
        last = [loss.IGNORE_INDEX] * (len(documents) - len(expected))
        assert as_targets(asked) == expected + last


def test_every_reason_is_the_first_that_holds(arithmetic):
    strip = Strip(
        "all",
        ["a", "b", "c", "?", "!", "<|end|>", "<pad>", "<pad>"],
        ["text", "text", "text", "user", "assistant", "assistant", "padding", "padding"],
        [0, 0, 1, 1, 1, 1, -1, -1],
    ).plain()
    given = [[strip, each] for each in settings()]
    got = arithmetic(TokenStrip, "targets", given)
    whys = {
        (e[1]["learn"], e[1]["separate"]): [a["why"] for a in asked]
        for e, asked in zip(given, got, strict=True)
    }
    end = ["padding", "padding", "end of row"]
    assert whys["all tokens", True] == ["counts", "another document", *["counts"] * 3, *end]
    assert whys["all tokens", False] == ["counts", "crosses", *["counts"] * 3, *end]
    assert whys["assistant", True] == [
        *["not learned", "another document", "not learned", "counts", "counts"],
        *end,
    ]
    assert whys["assistant without end", False] == [
        *["not learned"] * 3,
        *["counts", "end left out"],
        *end,
    ]


def test_a_position_sees_itself_and_what_is_before_it_in_its_document(arithmetic):
    for strip in list(drawn(12)):
        documents = torch.tensor(strip["documents"])
        size = len(documents)
        mask = (documents[:, None] == documents[None]).tril() & (documents >= 0)[:, None]
        got = arithmetic(TokenStrip, "seen", [[strip, t] for t in range(size)])
        assert got == [mask[t].nonzero()[:, 0].tolist() for t in range(size)]


def test_white_space_and_special_tokens_are_visible(arithmetic):
    given = [" the", "\n\n", "\t", "\r", "<|end|>"]
    got = arithmetic(TokenStrip, "spelt", [[token] for token in given])
    assert got == ["␣the", "↵↵", "⇥", "␍", "<|end|>"]
    special = arithmetic(TokenStrip, "isSpecial", [[t] for t in [*CHAT_TOKENS, END_OF_TEXT]])
    assert special == [True] * 5
    assert arithmetic(TokenStrip, "isSpecial", [["<"], ["<|"], ["<||>"], [" <|a|>"]]) == [False] * 4


def test_a_real_conversation_and_a_real_packed_row(arithmetic):
    tokenizer = train_bpe("two and two? four. " * 9, 300, [END_OF_TEXT, *CHAT_TOKENS])
    chat = chat_tokens([Turn("user", "two <|end|>?"), Turn("assistant", "four.")], tokenizer)
    texts = [tokenizer.decode([i]) for i in chat.ids_T.tolist()]
    strip = Strip("chat", texts, chat.roles).plain()
    ((asked),) = arithmetic(
        TokenStrip, "targets", [[strip, {"shift": 1, "learn": "assistant", "separate": True}]]
    )
    expected = loss.shifted_targets(chat.ids_T, learned_BT=loss.mask_from_roles(chat.roles))
    places = as_targets(asked)
    ids = [chat.ids_T[p].item() if p >= 0 else loss.IGNORE_INDEX for p in places]
    assert ids == expected.tolist()
    assert texts.count(END_OF_TURN) == 2  # the user's own "<|end|>" is plain characters

    documents = [[5, 6, 7], [8, 9], [10]]
    rows = packed_rows(documents, best_fit([3, 2, 1], 8), padding_id=0)
    owners = rows.documents_RT[0]
    row = Strip("row", [str(i) for i in rows.ids_RT[0].tolist()], (), owners.tolist()).plain()
    (asked,) = arithmetic(
        TokenStrip, "targets", [[row, {"shift": 1, "learn": "all tokens", "separate": True}]]
    )
    expected = loss.shifted_targets(torch.arange(8), documents_BT=owners)
    assert as_targets(asked) == expected.tolist()
    assert sum(each["counted"] for each in asked) == 3


def test_the_cursor_says_what_is_seen_and_asked(show):
    page = show(token_strip())
    assert said(page) == (
        "Position 4 sees “Once a cat sat.” and is asked for “↵”; it counts: it comes next in the "
        "same document. 9 of 10 positions count, 90 %: the loss is their sum divided by 9."
    )
    page.get_by_role("slider", name="position").press("ArrowLeft")
    assert "Position 3 sees “Once a cat sat” and is asked for “.”; it counts" in said(page)
    assert "Position 3 sees" in page.get_by_role("img").get_attribute("aria-label")
    page.get_by_role("button", name="Step").click()
    page.get_by_role("button", name="Step").click()
    assert "Position 5 sees “Once a cat sat.↵” and is asked for “Then”" in said(page)
    page.get_by_role("button", name="Back").press("Enter")
    assert "Position 4 sees" in said(page)
    enter(page, "position", "9")
    assert "there is no token to ask for; it does not count: the row ends here." in said(page)
    page.get_by_role("button", name="Step").click()
    assert "Position 0 sees “Once” and is asked for “␣a”" in said(page)
    page.get_by_role("button", name="Back").click()
    assert "Position 0 sees" in said(page)


def test_play_goes_along_the_row(show):
    page = show(token_strip())
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "/Position [5-9]/.test(document.querySelector('.lc-status').textContent)"
    )
    page.get_by_role("button", name="Pause").click()
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Reset").click()
    assert "Position 0 sees" in said(page)
    page.get_by_role("button", name="To the end").click()
    assert "Position 9 sees" in said(page)


def test_a_press_on_a_column_chooses_it(show):
    page = show(token_strip())
    page.locator(".lc-stage text", has_text="␣left").first.click(position={"x": 3, "y": 3})
    assert value(page, "position") == "7"
    assert "is asked for “␣left”" in said(page)


def test_the_wrong_shifts_are_explained(show):
    page = show(token_strip())
    text = page.locator(".lc-stages")
    assert "Shift 1 is right" in text.text_content()
    page.get_by_role("slider", name="shift of the targets").press("ArrowLeft")
    assert "the loss falls towards 0" in text.text_content()
    assert "is asked for “.”; it counts, but it is the token that the position reads" in said(page)
    assert "10 of 10 positions count" in said(page)
    enter(page, "shift of the targets", "2")
    assert "asks for the token after the next" in text.text_content()
    assert "is asked for “Then”; it counts, but “↵” between them stays hidden" in said(page)
    assert "8 of 10 positions count, 80 %" in said(page)


def test_what_is_learned_of_a_conversation(show):
    page = show(token_strip(strip="chat", position=2))
    assert "6 of 7 positions count, 85.7 %" in said(page)
    page.get_by_label("learn", exact=True).select_option("assistant")
    assert "3 of 7 positions count, 42.9 %" in said(page)
    assert (
        "is asked for “<|assistant|>”; it does not count: only the assistant's tokens are learned, "
        "and this one is not (role template)." in said(page)
    )
    page.get_by_label("learn", exact=True).select_option("assistant without end")
    assert "2 of 7 positions count" in said(page)
    assert "it does not learn to stop" in page.locator(".lc-stages").text_content()
    enter(page, "position", "5")
    assert "asked for “<|end|>”; it does not count: <|end|> is left out." in said(page)
    page.locator(".lc-table > summary").click()
    cells = page.locator("tbody tr").nth(5).locator("th, td").all_text_contents()
    assert cells == ["5", ".", "6", "<|end|>", "no", "<|end|> is left out", "assistant", "0"]
    page.get_by_label("row of tokens").select_option("story")
    assert "None of the 10 positions counts: a mean over none would be 0 / 0." in said(page)


def test_the_border_of_a_document(show):
    page = show(token_strip(strip="packed", position=2))
    assert "is asked for “Two”; it does not count: the target belongs to another document" in said(
        page
    )
    assert "3 of 6 positions count" in said(page)
    page.get_by_label("ignore targets across documents").press("Space")
    assert "is asked for “Two”; it counts, but it belongs to another document" in said(page)
    assert "4 of 6 positions count" in said(page)
    enter(page, "position", "3")
    assert "Position 3 sees “Two” and" in said(page)
    enter(page, "position", "5")
    assert "Position 5 is padding: it reads no text" in said(page)
    assert page.locator(".lc-stage text", has_text="document 1").count() == 1
    assert page.locator(".lc-stages").get_by_text("Hatched: padding.").is_visible()


def test_what_counts_is_a_shape_and_not_only_a_colour(show):
    page = show(token_strip(strip="chat", learn="assistant"))
    ticks = page.locator(".lc-stage path[d*='l3 3.5']").count()
    crosses = page.locator(".lc-stage path[d*='l8 8']").count()
    assert (ticks, crosses) == (3, 4)


def test_a_long_past_is_cut_between_tokens(show):
    words = [f" word{i:02}" for i in range(20)]
    page = show(TokenStrip([Strip("long", words)], position=15))
    assert "sees “…  word08 word09 word10" in said(page).replace("\u00a0", " ")
    assert "word15” and is asked for “␣word16”" in said(page)


def test_a_shorter_row_moves_the_cursor_and_says_so(show):
    page = show(token_strip(position=9))
    page.get_by_label("row of tokens").select_option("packed")
    assert value(page, "position") == "5"
    assert "9 is not possible (from 0 to 5, whole); 5 is used" in noted(page)


def test_tokens_are_never_markup(show):
    page = show(TokenStrip([Strip("<b>x</b>", ["<img src=x onerror=alert(1)>", "</script><b>"])]))
    page.locator(".lc-table > summary").click()
    assert page.locator(".lc-host img, .lc-host b").count() == 0
    assert "</script><b>" in said(page)


def test_strips_may_be_mappings_with_what_is_left_out_filled_in():
    strip = TokenStrip([{"name": "a", "tokens": ("x", "y")}])
    expected = {"name": "a", "tokens": ["x", "y"], "roles": ["text"] * 2, "documents": [0, 0]}
    assert strip.strips == [expected]
    assert (strip.strip, strip.position, TokenStrip.Strip) == ("a", 1, Strip)
    strip.shift = 7
    assert strip.shift == 2
    assert "2 is used" in strip.note


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": []}, "1 to 48 tokens, not 0"),
        ({"tokens": ["a"] * 49}, "1 to 48 tokens, not 49; cut it"),
        ({"tokens": ["a", ""]}, "token 1 must be a string of 1 to 200 characters, not ''"),
        ({"tokens": ["a" * 201]}, "token 0 must be a string of 1 to 200"),
        ({"tokens": ["a", "b"], "roles": ["user"]}, "2 tokens but 1 roles"),
        ({"tokens": ["a"], "documents": [0, 0]}, "1 tokens but 2 documents"),
    ],
)
def test_what_a_strip_refuses(given, message):
    with pytest.raises(ValueError, match=message):
        Strip(name="s", **given)


def test_what_a_token_strip_refuses():
    with pytest.raises(ValueError, match="1 to 12 strips, not 0"):
        TokenStrip([])
    with pytest.raises(ValueError, match="1 to 12 strips, not 13"):
        TokenStrip([Strip(str(i), ["a"]) for i in range(13)])
    with pytest.raises(ValueError, match="a name of its own"):
        TokenStrip([Strip("s", ["a"]), Strip("s", ["b"])])
    with pytest.raises(TypeError, match="colour"):
        TokenStrip([{"name": "s", "tokens": ["a"], "colour": 1}])
    with pytest.raises(traitlets.TraitError, match="strip must be one of"):
        token_strip(strip="poem")
