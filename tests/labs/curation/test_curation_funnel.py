"""curation.funnel: the steps in their order, what each finds on labelled pages, its grades."""

import random
from functools import cache

import pytest

from llmcourse_labs.curation import Document, Dropped
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.funnel import (
    EXACT,
    EXTRACT,
    LANGUAGE,
    LINES,
    NEAR,
    PERSONAL,
    QUALITY,
    RULES,
    STEPS,
    TEST_ITEMS,
    Chain,
    Funnel,
    grades,
)
from llmcourse_labs.curation.quality import KeepQuality, Quality

CRAWL = Crawl(600, seed=13)


@cache
def crawled():
    return list(CRAWL.documents())


@cache
def labels_by_id():
    return dict(zip((d.id for d in crawled()), CRAWL.labels(), strict=True))


@cache
def wanted_by_id():
    return {id_: label.wanted for id_, label in labels_by_id().items()}


@cache
def settings():
    others = list(Crawl(1_000, seed=14).labels())
    classifier = Quality.train(
        [x.main_text for x in others if x.wanted],
        [x.main_text for x in others if x.kind in ("machine", "ocr", "spam")],
    )
    return {
        "quality": KeepQuality(classifier=classifier),
        "test_items": Decontaminate(CRAWL.test_items),
    }


@cache
def passed_through():
    return Funnel(**settings())(crawled())


def ids(documents):
    return [document.id for document in documents]


def test_every_step_takes_what_the_one_before_it_has_left():
    assert [tally.name for tally in passed_through().tallies] == list(STEPS)
    before = crawled()
    for tally in passed_through().tallies:
        after = passed_through().passed[tally.name]
        assert (tally.taken, tally.kept) == (len(before), len(after))
        assert sum(tally.reasons.values()) == len(before) - len(after)
        assert [i for i in ids(before) if i in set(ids(after))] == ids(after)  # in their order
        before = after
    assert passed_through().documents == before


def test_steps_find_what_they_are_for():
    kinds = {name: [] for name in STEPS}
    before = crawled()
    for name in STEPS:
        left = set(ids(passed_through().passed[name]))
        kinds[name] = [labels_by_id()[d.id] for d in before if d.id not in left]
        before = passed_through().passed[name]
    assert {x.kind for x in kinds[EXTRACT]} == {"menu", "not_found", "listing"}
    assert {x.language for x in kinds[LANGUAGE]} >= {"de", "es"}
    assert sum(x.kind == "spam" for x in kinds[RULES]) > 0.8 * len(kinds[RULES])
    assert all(x.copy_of for x in kinds[EXACT])
    assert sum(x.copy_of is not None for x in kinds[NEAR]) > 0.9 * len(kinds[NEAR]) > 10
    assert sum(x.kind in ("machine", "ocr") for x in kinds[QUALITY]) > 0.9 * len(kinds[QUALITY])
    assert all(x.leaks or x.copy_of for x in kinds[TEST_ITEMS])
    assert len(kinds[TEST_ITEMS]) > 5
    texts = " ".join(document.text for document in passed_through().documents)
    assert not any(each in texts for label in labels_by_id().values() for each in label.personal)


def test_most_of_what_is_wanted_is_left_and_little_else():
    kept = [wanted_by_id()[document.id] for document in passed_through().documents]
    assert sum(kept) > 0.93 * sum(wanted_by_id().values())
    assert sum(kept) > 0.88 * len(kept)


def test_a_second_time_changes_nothing():
    again = Funnel(**settings())(passed_through().documents)
    assert ids(again.documents) == ids(passed_through().documents)
    assert [d.text for d in again.documents] == [d.text for d in passed_through().documents]


def test_the_order_of_the_pages_decides_no_more_than_which_copy_stays():
    shuffled = random.Random(0).sample(crawled(), len(crawled()))
    other = Funnel(**settings())(shuffled)
    for name in (EXTRACT, LANGUAGE, RULES, EXACT, NEAR):
        assert len(other.passed[name]) == len(passed_through().passed[name])
    texts = {document.text for document in other.passed[EXACT]}
    assert texts == {document.text for document in passed_through().passed[EXACT]}


def test_a_step_can_be_left_out():
    for name in STEPS:
        result = Funnel(**settings(), without=(name,))(crawled()[:60])
        assert [tally.name for tally in result.tallies] == [s for s in STEPS if s != name]
    assert QUALITY not in Funnel().steps()
    assert TEST_ITEMS not in Funnel().steps()
    with pytest.raises(ValueError, match="no step 'magic': the steps are extract, language"):
        Funnel(without=("magic",))


def test_lines_of_many_documents_go():
    notice = "All the texts on this site were written by us, and you may read them."
    texts = [" ".join(f"word{i}x{j}" for j in range(60)) + "." for i in range(30)]
    documents = [Document(str(i), f"{text}\n{notice}") for i, text in enumerate(texts)]
    rest = (EXTRACT, LANGUAGE, RULES, EXACT, NEAR, PERSONAL)
    found = Funnel(most_documents=29, without=rest)(documents)
    assert [d.text for d in found.documents] == texts
    assert found.tallies[0].changed == 30
    kept = Funnel(most_documents=30, without=rest)(documents)
    assert kept.documents == documents
    assert found.tallies[0].name == LINES


def test_judges_in_turn_stop_at_the_first_that_drops():
    asked = []

    def drop_long(text):
        asked.append(text)
        return Dropped("long") if len(text) > 3 else text

    judge = Chain([str.strip, drop_long, str.upper])
    assert judge(" ab ") == "AB"
    assert judge("abcd") == Dropped("long")
    assert asked == ["ab", "abcd"]


def test_grades_from_their_definitions():
    came = [Document(i, "") for i in "abcde"]
    wanted = dict(zip("abcde", (True, True, False, False, False), strict=True))
    found = grades(came, [came[0], came[2]], wanted)  # dropped: b d e; unwanted: c d e
    assert found == (3, 2 / 3, 2 / 3)
    assert grades(came, came, wanted) == (0, None, 0.0)
    assert grades(came[:2], came[:1], wanted) == (1, 0.0, None)
