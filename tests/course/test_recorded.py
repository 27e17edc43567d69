"""course.recorded: results are found by name, and a row of the curation runs is run again."""

import pytest

from llmcourse.course.recorded import recorded_runs
from tools import curation_runs


def test_what_is_recorded_is_found_by_name():
    found = recorded_runs("curation")
    assert set(found["copies"]["recited"]) == {str(n) for n in curation_runs.COPIES}
    assert set(found["copies"]["believed"]) == {str(s) for s in curation_runs.SHARES}
    with pytest.raises(ValueError, match="nothing is recorded as 'x'; there are curation"):
        recorded_runs("x")


def test_a_run_of_copies_gives_what_is_recorded():
    """One row again: copies that are recited are whole passages, on any machine nearly the same."""
    found = recorded_runs("curation")["copies"]
    run = curation_runs.copies_run(seed=0)
    for copies, shares in found["recited"].items():
        assert run["recited"][copies] == pytest.approx(shares[0], abs=0.25), copies
    for share, probabilities in found["believed"].items():
        assert run["believed"][share] == pytest.approx(probabilities[0], abs=0.25), share
    assert run["recited"]["64"] == 1
    assert run["recited"]["2"] == 0


def test_the_funnel_leaves_what_is_recorded():
    found = recorded_runs("curation")["funnel"]
    assert list(found) == list(curation_runs.VARIANTS)
    crawl = curation_runs.Crawl(curation_runs.CRAWLED, seed=0)
    texts = curation_runs.texts_of("whole funnel", crawl, curation_runs.classifier())
    assert len(texts) == found["whole funnel"]["documents"]
    tokenizer = curation_runs.tokenizer_of_stories()
    assert sum(len(tokenizer.encode(t)) + 1 for t in texts) == found["whole funnel"]["tokens"]
