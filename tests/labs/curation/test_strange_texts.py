"""Whatever a text is, each step of the funnel answers with a text or a reason, and soon."""

import pytest

from llmcourse_labs.curation import Dropped, MinHash
from llmcourse_labs.curation.dedup import LineCounts, exact_key
from llmcourse_labs.curation.language import KeepLanguage, default_model
from llmcourse_labs.curation.quality import Quality
from llmcourse_labs.curation.rules import C4, Gopher, Repetition

STRANGE = {
    "empty": "",
    "white": " \n" * 500_000,
    "one word": "a" * 5_000_000,
    "short words": "a " * 500_000,
    "short lines": "ab\n" * 100_000,
    "stops": ". " * 500_000,
    "half pairs": "\ud800 x \n" * 60,
    "zero": "\0",
    "Japanese": "名前は何ですか",
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_texts_are_survived(name):
    text, counts = STRANGE[name], LineCounts()
    for judge in (C4(), Gopher(), Repetition()):
        assert isinstance(judge(text), str | Dropped)
    outcome = KeepLanguage(model=default_model())(text)
    assert outcome == text or isinstance(outcome, Dropped)
    for _ in range(2):
        counts.add(text)
    outcome = counts.repeated(1)(text)
    assert outcome == text if not text.strip() else isinstance(outcome, Dropped)
    assert 0 <= Quality.train(["the dog ran"], ["buy now"]).score(text) <= 1
    assert (MinHash(num_hashes=16)(text).shape, len(exact_key(text))) == ((16,), 16)
