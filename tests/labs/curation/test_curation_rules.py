"""curation.rules: every rule at its limit, and repeated runs from their definition."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.curation import Dropped
from llmcourse_labs.curation.rules import C4, Gopher, Repetition, repeated_runs

PROSE = "The dog ran to the house and saw a cat there. It was not happy at all. So it went away."


def reason(outcome):
    return outcome.reason if isinstance(outcome, Dropped) else "kept"


def test_c4_keeps_lines_of_prose_and_drops_the_others():
    lines = [
        PROSE,
        "Home | News | Sport | Weather",  # no mark at its end
        "Read it now.",  # three words
        "Please turn on Javascript to see this page.",
        "By reading on you accept our terms of use.",
        'She said: "We are here, and we stay."',
    ]
    assert C4()("\n".join(lines)) == f"{lines[0]}\n{lines[5]}"
    for between in ("\n\n", "\n\nMenu\n\n"):
        assert C4()(f"{PROSE}{between}{PROSE}") == f"{PROSE}\n\n{PROSE}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{PROSE} Lorem Ipsum dolor.", "C4: lorem ipsum"),
        (f"{PROSE} x = {{1}}.", "C4: curly bracket"),
        ("The dog ran to the house. It was not happy at all.", "C4: few sentences"),
        ("no mark here\nnor is there one here", "C4: few sentences"),
        ("", "C4: few sentences"),
        (PROSE, "kept"),
        pytest.param("." * 500_000 + "x one two three four.", "C4: few sentences", id="marks"),
    ],
)
def test_c4_drops_whole_texts(text, why):
    assert reason(C4()(text)) == why


def words(count, word="that", stop="the and"):
    return " ".join([*stop.split(), *[word] * (count - len(stop.split()))])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (words(49), "Gopher: number of words"),
        (words(50), "kept"),
        (words(100_000), "kept"),
        (words(100_001), "Gopher: number of words"),
        (words(100, "ab", "the of"), "Gopher: mean word length"),
        (words(100, "a" * 10, ""), "Gopher: stop words"),
        (words(100, "a" * 11, ""), "Gopher: mean word length"),
        (words(100) + " #" * 9, "kept"),
        (words(100) + " #abc" * 12, "Gopher: # for each word"),
        (words(100) + " wait..." * 12, "Gopher: ellipses for each word"),
        ("\n".join(["- the and that that"] * 15), "Gopher: lines with a bullet"),
        ("\n".join(["the and that that"] * 2 + ["- the and that that"] * 13), "kept"),
        ("\n".join([words(20), words(20), words(20) + "..."]),
         "Gopher: lines ending in an ellipsis"),
        (words(80) + " 1234" * 21, "Gopher: words with a letter"),
        (words(80) + " 1234" * 20, "kept"),
        (words(60, "house", "the"), "Gopher: stop words"),
        (words(60, "house", "the THE."), "Gopher: stop words"),
        (words(60, "house", "the With,"), "kept"),
        ("", "Gopher: number of words"),
    ],
)  # fmt: skip
def test_every_rule_of_gopher_at_its_limit(text, why):
    assert reason(Gopher()(text)) == why


def test_a_reason_says_what_was_found_and_what_is_allowed():
    assert reason(Gopher(words=(0, 100))("")) == "Gopher: number of words"
    assert Gopher()(words(10)).detail == "10, from 50 to 100,000"
    assert Gopher()(words(60, "house", "the")).detail == "1, at least 2"
    assert Gopher(words=(5, 20))(words(10)) == words(10)


def slowly(text):
    """The shares of repeated runs, from their definition."""
    split = text.split()
    total = sum(map(len, split))
    for n in range(2, min(10, len(split)) + 1):
        runs = [tuple(split[i : i + n]) for i in range(len(split) - n + 1)]
        counts = Counter(runs)
        if n <= 4:
            most = max(c * sum(map(len, run)) * (c > 1) for run, c in counts.items())
            yield n, "frequent", min(1.0, most / total)
        else:
            covered, seen = set(), set()
            for i, run in enumerate(runs):
                if run in seen:
                    covered |= set(range(i, i + n))
                seen.add(run)
            yield n, "duplicate", sum(len(split[i]) for i in covered) / total


@given(text=st.text("ab c ", max_size=80))
def test_repeated_runs_from_their_definition(text):
    found = list(repeated_runs(text.split()))
    expected = list(slowly(text))
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected])


DIFFERENT = " ".join(f"word{i}" for i in range(60))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (DIFFERENT, "kept"),
        ("\n".join(["so", "so", *DIFFERENT.split()[:5]]), "kept"),
        ("\n".join(["so"] * 4 + DIFFERENT.split()[:5]), "Gopher: duplicate lines"),
        ("\n".join([DIFFERENT, DIFFERENT, "a", "b", "c"]),
         "Gopher: characters in duplicate lines"),
        (f"{DIFFERENT} " + "buy it " * 20, "Gopher: the most frequent run of 2 words"),
        (f"{DIFFERENT} {' '.join(DIFFERENT.split()[:20])}", "Gopher: duplicate runs of 5 words"),
        ("", "kept"),
    ],
)  # fmt: skip
def test_texts_that_repeat_themselves(text, why):
    assert reason(Repetition()(text)) == why


def test_blank_lines_repeat_nothing():
    paragraphs = [f"{DIFFERENT} {i}" for i in range(4)]
    plain = Repetition(most_duplicate=(), most_frequent=())
    for between in ("\n\n", "\r\n\r\n", "\n \n", "\n\n\n\n"):
        assert plain(between.join(paragraphs)) == between.join(paragraphs)
        assert reason(plain(between.join(paragraphs[:1] * 4))).startswith("Gopher: duplicate")


@pytest.mark.parametrize("n", range(2, 11))
def test_each_length_of_run_has_its_limit(n):
    """Only this limit is in force, just above and just below what the text has."""
    text = f"{DIFFERENT} {' '.join(DIFFERENT.split()[:12])}"
    shares = {length: share for length, _, share in repeated_runs(text.split())}
    kind = "most_frequent" if n <= 4 else "most_duplicate"
    of_the_paper = (0.20, 0.18, 0.16, 0.15, 0.14, 0.13, 0.12, 0.11, 0.10)
    assert (n, of_the_paper[n - 2]) in getattr(Repetition(), kind)
    off = {"most_frequent": (), "most_duplicate": (), "most_lines": 1.0, "most_of_lines": 1.0}
    for limit, kept in ((shares[n] - 1e-6, False), (shares[n] + 1e-6, True)):
        assert (Repetition(**off | {kind: ((n, limit),)})(text) == text) == kept
