"""curation.funnel: the steps in their order, what each finds on labelled pages, its grades."""

import random
from functools import cache

import pytest

from llmcourse_labs.curation import Document, Dropped, funnel
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.funnel import STEPS, Chain, Funnel, grades
from llmcourse_labs.curation.quality import KeepQuality
from tests.labs.curation.crawls import quality_of

CRAWL = Crawl(600, seed=13)


@cache
def crawled():
    return list(CRAWL.documents())


@cache
def labels_by_id():
    return dict(zip((d.id for d in crawled()), CRAWL.labels(), strict=True))


@cache
def settings():
    quality = KeepQuality(classifier=quality_of(Crawl(1_000, seed=14)))
    return {"quality": quality, "test_items": Decontaminate(CRAWL.test_items)}


@cache
def passed_through():
    return Funnel(**settings())(crawled())


def test_every_step_takes_what_the_one_before_it_has_left():
    assert [tally.name for tally in passed_through().tallies] == list(STEPS)
    before = crawled()
    for tally in passed_through().tallies:
        after = passed_through().passed[tally.name]
        assert (tally.taken, tally.kept) == (len(before), len(after))
        assert sum(tally.reasons.values()) == len(before) - len(after)
        left = {document.id for document in after}
        assert [d.id for d in before if d.id in left] == [d.id for d in after]  # in their order
        before = after
    assert passed_through().documents == before


def test_steps_find_what_they_are_for():
    dropped, before = {}, crawled()
    for name in STEPS:
        left = {document.id for document in passed_through().passed[name]}
        dropped[name] = [labels_by_id()[d.id] for d in before if d.id not in left]
        before = passed_through().passed[name]
    extracted, language, rules, exact, near, _, quality, leaking, _ = dropped.values()
    assert {x.kind for x in extracted} == {"menu", "not_found", "listing"}
    assert {x.language for x in language} >= {"de", "es"}
    assert sum(x.kind == "spam" for x in rules) > 0.8 * len(rules)
    assert all(x.copy_of for x in exact)
    assert sum(x.copy_of is not None for x in near) > 0.9 * len(near) > 10
    assert sum(x.kind in ("machine", "ocr") for x in quality) > 0.9 * len(quality)
    assert all(x.leaks or x.copy_of for x in leaking)
    assert len(leaking) > 5
    texts = " ".join(document.text for document in passed_through().documents)
    assert not any(each in texts for label in labels_by_id().values() for each in label.personal)


def test_most_of_what_is_wanted_is_left_a_second_time_and_in_another_order():
    kept = [labels_by_id()[document.id].wanted for document in passed_through().documents]
    assert sum(kept) > 0.93 * sum(label.wanted for label in labels_by_id().values())
    assert sum(kept) > 0.88 * len(kept)
    assert Funnel(**settings())(passed_through().documents).documents == passed_through().documents
    other = Funnel(**settings())(random.Random(0).sample(crawled(), len(crawled())))
    for name in STEPS[:5]:
        assert len(other.passed[name]) == len(passed_through().passed[name])
    texts = [{d.text for d in each.passed[funnel.EXACT]} for each in (other, passed_through())]
    assert texts[0] == texts[1]


def test_a_step_can_be_left_out_and_lines_of_many_documents_go():
    for name in STEPS:
        result = Funnel(**settings(), without=(name,))(crawled()[:60])
        assert [tally.name for tally in result.tallies] == [s for s in STEPS if s != name]
    assert {funnel.QUALITY, funnel.TEST_ITEMS}.isdisjoint(Funnel().steps())
    with pytest.raises(ValueError, match="no step 'magic': the steps are extract, language"):
        Funnel(without=("magic",))
    notice = "All the texts on this site were written by us, and you may read them."
    texts = [" ".join(f"word{i}x{j}" for j in range(60)) + "." for i in range(30)]
    documents = [Document(str(i), f"{text}\n{notice}") for i, text in enumerate(texts)]
    rest = tuple(set(Funnel().steps()) - {funnel.LINES})
    found = Funnel(most_documents=29, without=rest)(documents)
    assert [d.text for d in found.documents] == texts
    assert found.tallies[0].changed == 30
    assert Funnel(most_documents=30, without=rest)(documents).documents == documents
    assert found.tallies[0].name == funnel.LINES


def test_judges_in_turn_stop_at_the_first_that_drops_and_grades_are_as_defined():
    asked = []

    def drop_long(text):
        asked.append(text)
        return Dropped("long") if len(text) > 3 else text

    judge = Chain([str.strip, drop_long, str.upper])
    assert judge(" ab ") == "AB"
    assert judge("abcd") == Dropped("long")
    assert asked == ["ab", "abcd"]
    came = [Document(i, "") for i in "abcde"]
    wanted = dict(zip("abcde", (True, True, False, False, False), strict=True))
    found = grades(came, [came[0], came[2]], wanted)  # dropped: b d e; unwanted: c d e
    assert found == (3, 2 / 3, 2 / 3)
    assert grades(came, came, wanted) == (0, None, 0.0)
    assert grades(came[:2], came[:1], wanted) == (1, 0.0, None)
