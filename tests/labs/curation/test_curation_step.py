"""curation.step: what a step counts, whatever the order in which tallies are added."""

import json

import pytest

from llmcourse_labs.curation import Document, Dropped, StepStats, filtered
from llmcourse_labs.curation.step import EXAMPLES, EXCERPT

DOCUMENTS = [Document(f"d{i}", text) for i, text in enumerate(["a", "bb", "", "ccc " * 200, "é"])]


def shortened(text):
    if not text:
        return Dropped("empty")
    if len(text) < 2:
        return Dropped("short", f"{len(text)} character, at least 2")
    return text[:5]


def test_what_goes_on_is_counted_with_few_examples_and_tallies_of_parts_add_up():
    tally = StepStats(name="shorten")
    kept = list(filtered(DOCUMENTS, shortened, tally))
    assert kept == [Document("d1", "bb"), Document("d3", "ccc c")]
    assert (tally.taken, tally.kept, tally.changed) == (5, 2, 1)
    assert (tally.taken_bytes, tally.kept_bytes) == (1 + 2 + 0 + 800 + 2, 2 + 5)
    assert tally.reasons == {"short": 2, "empty": 1}
    assert tally.examples["short"][1] == ("d4", "1 character, at least 2", "é")
    assert tally.seconds > 0
    tally = StepStats(name="all")
    many = [Document(str(i), "x" * 1_000) for i in range(10)]
    assert list(filtered(many, lambda text: Dropped("long"), tally)) == []
    assert tally.reasons == {"long": 10}
    assert ([e.id for e in tally.examples["long"]], EXAMPLES) == (["0", "1", "2"], 3)
    assert all(len(e.excerpt) == EXCERPT for e in tally.examples["long"])
    whole = StepStats(name="shorten")
    list(filtered(DOCUMENTS, shortened, whole))
    first, second = StepStats(name="shorten"), StepStats(name="shorten")
    list(filtered(DOCUMENTS[:3], shortened, first))
    list(filtered(DOCUMENTS[3:], shortened, second))
    first.add(StepStats.from_dict(json.loads(json.dumps(second.as_dict()))))
    first.seconds = whole.seconds
    assert first == whole
    with pytest.raises(ValueError, match="two steps, 'a' and 'b'"):
        StepStats(name="a").add(StepStats(name="b"))
