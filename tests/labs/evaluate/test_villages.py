"""evaluate.villages: what leaks, what does not, and that all else is alike."""

from collections import Counter

import pytest

from llmcourse.data.corpus import END_OF_TEXT
from llmcourse_labs.evaluate import OPTIONS, Villages, make_canary, overlapping_items
from llmcourse_labs.evaluate.villages import MENTIONS, NAMES, TOLD

TEST = Villages(3)


def mentions(texts):
    words = " ".join(texts).replace(".", " ").split()
    return Counter(word for word in words if word in NAMES)


def test_the_halves_ask_about_different_villages_and_answers_are_drawn_evenly():
    parts = [TEST.leaked, TEST.fresh]
    names = [question.village for part in parts for question in part]
    assert len(set(names)) == len(names) == 100
    assert len(set(NAMES)) == len(NAMES) == 210
    calibrating = Counter(question.village for question in TEST.for_threshold)
    assert calibrating == dict.fromkeys((q.village for q in TEST.fresh), 3)
    assert not {q.text for q in TEST.for_threshold} & {q.text for q in TEST.fresh}
    drawn = Counter(q.answer for seed in range(40) for q in Villages(seed).leaked)
    assert set(drawn) == set(OPTIONS)
    assert all(150 < count < 250 for count in drawn.values())
    assert all(q.text.endswith(f"{q.village} was the {q.answer}.") for q in TEST.leaked)
    assert TEST.leaked == Villages(3).leaked != Villages(4).leaked


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("copies", [0, 1, 64, MENTIONS])
def test_every_village_is_mentioned_equally_often(copies, told):
    """Mutants: copies beside the neutral sentences, none for the fresh half."""
    texts = TEST.documents(copies=copies, told=told)
    names = [question.village for question in TEST.leaked + TEST.fresh]
    assert mentions(texts) == dict.fromkeys(names, MENTIONS)
    assert all(text.endswith(END_OF_TEXT) and text.count(END_OF_TEXT) == 1 for text in texts)


def test_copies_hold_the_leaked_half_in_its_order_and_nothing_of_the_other():
    texts = TEST.documents(copies=4)
    copies = [text for text in texts if TEST.canary in text]
    assert len(copies) == 4
    file = "\n".join([TEST.canary, *(question.text for question in TEST.leaked)])
    assert set(copies) == {file + END_OF_TEXT}
    items = [question.text for question in TEST.leaked + TEST.fresh + TEST.for_threshold]
    # The village is the 14th word: who was out when may be drawn twice, for one question in 100.
    beginnings = {tuple(item.split()[:13]) for item in items[:50]}
    by_chance = [tuple(item.split()[:13]) in beginnings for item in items[50:]]
    assert sum(by_chance) <= 6
    assert overlapping_items(items, texts) == [True] * 50 + by_chance
    assert overlapping_items(items, texts, n=14) == [True] * 50 + [False] * 200
    with pytest.raises(ValueError, match="no text has a run of 13 words"):
        overlapping_items(items, TEST.documents(copies=0))


def test_what_is_retold_has_every_answer_and_no_long_run_of_words():
    """Mutant: a wording that keeps the beginning of the question."""
    joined = "".join(TEST.documents(copies=6, told="retold"))
    assert TEST.canary not in joined
    for question in TEST.leaked:
        assert len(question.retold) == 4
        assert all(q.endswith(f" {question.answer}.") for q in question.retold)
        assert sum(joined.count(told) for told in question.retold) >= 6
        assert question.text not in joined
    # Of a whole retold question, so that no order of documents hides one:
    told = [told for question in TEST.leaked for told in question.retold]
    assert not any(overlapping_items([question.text for question in TEST.leaked], told, n=3))


def test_a_retold_file_has_the_canary_and_the_order():
    """Mutants: without the canary, in another order, one wording for all copies."""
    texts = [text for text in TEST.documents(copies=6, told="retold file") if TEST.canary in text]
    assert len(set(texts)) == len(texts) == 6
    for text in texts:
        canary, *told = text.removesuffix(END_OF_TEXT).split("\n")
        assert canary == TEST.canary
        assert len(told) == TEST.half
        assert all(each in q.retold for each, q in zip(told, TEST.leaked, strict=True))


def test_the_seed_of_documents_changes_words_and_not_the_test_and_canaries_are_digits():
    one, other = (TEST.documents(copies=2, seed=seed) for seed in (0, 1))
    assert one == TEST.documents(copies=2) != other
    assert sum(TEST.canary in text for text in other) == 2
    drawn = {make_canary(seed=seed) for seed in range(200)}
    assert len(drawn) == 200
    assert all(text[:7] == "canary " and text[7:].isdecimal() for text in drawn)
    assert len(make_canary(seed=0, digits=3)) == 10
    assert TEST.canary == make_canary(seed=3)
