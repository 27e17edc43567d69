"""Text as it grows: the same in any pieces, whole characters, no stop string."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmcourse.data.tokenizer import Tokenizer
from llmcourse_labs.real.serve import TextStream
from llmcourse_labs.real.serve import text as module
from tests.edits import edited

BYTES = Tokenizer({i: bytes([i]) for i in range(256)}, [], {"<end>": 256})
"""A token for each byte."""


def pieces_of(text, cuts):
    ids = list(text.encode())
    cuts = [0, *sorted(min(c, len(ids)) for c in cuts), len(ids)]
    return [ids[a:b] for a, b in pairwise(cuts)]


def shown(pieces, stop, make=TextStream):
    stream, texts = make(BYTES, stop), []
    for piece in pieces:
        texts.append(stream.feed(piece))
    return [*texts, stream.end()], stream.stopped


def expected(text, stop):
    """Read character by character until a stop string is complete."""
    for end in range(len(text) + 1):
        if found := [s for s in stop if s and text[:end].endswith(s)]:
            return text[: end - max(map(len, found))], True
    return text, False


TEXTS = st.text("ab é字", max_size=14)
STOPS = st.lists(st.text("ab é", min_size=1, max_size=4), max_size=3)
CUTS = st.lists(st.integers(0, 30), max_size=6)


def is_right(text, stop, cuts, make=TextStream):
    texts, stopped = shown(pieces_of(text, cuts), stop, make)
    return ("".join(texts), stopped) == expected(text, stop)


@given(text=TEXTS, stop=STOPS, cuts=CUTS)
@example(text="abcde", stop=["bcd", "abcde"], cuts=[])
@example(text="aab", stop=["ab"], cuts=[1, 2])
@example(text="ab", stop=["b", "ab"], cuts=[1])
@example(text="xab", stop=["abb"], cuts=[2])
@example(text="字", stop=[], cuts=[1, 2])
def test_text_in_any_pieces_is_the_text_up_to_the_stop_string(text, stop, cuts):
    assert is_right(text, stop, cuts)


@pytest.mark.parametrize(
    ("edit", "text", "stop", "cuts"),
    [
        (("(at + len(s), at)", "(at, at)"), "abcde", ["bcd", "abcde"], []),
        (("self._held + new", "new"), "aab", ["ab"], [1, 2]),
        (("self._may_begin(text[at:])", "False"), "aab", ["ab"], [1, 2]),
        (("if not is_end:", "if True:"), "xab", ["abb"], [2]),
        (("self._decoder.decode(new)", "new.decode(errors='replace')"), "字", [], [1, 2]),
        (("if self.stopped:", "if False:"), "abab", ["b"], [2]),
    ],
)
def test_other_ways_are_found(edit, text, stop, cuts):
    assert is_right(text, stop, cuts)
    assert not is_right(text, stop, cuts, edited(TextStream, edit))


def test_nothing_is_held_back_that_cannot_be_a_stop_string():
    texts, _ = shown(pieces_of("a</b</a", [1, 3, 4, 5]), ["</a>"])
    assert texts == ["a", "", "</b", "", "", "</a"]
    texts, _ = shown(pieces_of("é字", [1, 2, 4]), [])
    assert texts == ["", "é", "", "字", ""]


def test_special_tokens_are_silent_but_for_those_that_are_shown(monkeypatch):
    ids = [97, 256, 98, 999]
    assert TextStream(BYTES).feed(ids) == "ab"
    monkeypatch.setattr(module, "shown_ids", lambda _: {256})
    assert TextStream(BYTES).feed(ids) == "a<end>b"


def test_an_unfinished_character_becomes_a_replacement_character():
    assert shown([[0xE5, 0xAD]], [])[0] == ["", "\ufffd"]


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="a stop string is empty: leave it out"):
        TextStream(BYTES, ["a", ""])
