"""tuning.refusing: what is held out is in no other request, and beginnings tell refusals."""

import re
from collections import Counter

import pytest

from llmcourse_labs.tuning.refusing import KINDS, REFUSING, make_requests, refuses

MOST = {
    (kind, held_out): make_requests(number, seed=0, kind=kind, held_out=held_out)
    for held_out, number in ((False, 120), (True, 50))
    for kind in KINDS
}


def test_refusals_alone_begin_as_a_refusal():
    """Mutants: reasons for what is alike, a beginning that stands anywhere."""
    for (kind, _), tasks in MOST.items():
        assert {refuses(task.answer) for task in tasks} == {kind == "refused"}
        assert {task.kind for task in tasks} == {kind}
    reasons = {task.answer for task in MOST["refused", False]}
    assert len(reasons) == 6
    assert reasons == {task.answer for task in MOST["refused", True]}
    assert refuses(f"\n{REFUSING}, since it is private.")
    assert not refuses(f"Mia says: {REFUSING}")
    assert not refuses("I will help with that.")


def test_wordings_and_words_that_are_held_out_are_in_no_other_request():
    """Mutants: one wording more in a part, plain requests with words of the tests."""
    words = {False: Counter(), True: Counter()}
    for (kind, held_out), tasks in MOST.items():
        text = " ".join(task.prompt for task in tasks)
        words[held_out and kind != "plain"].update(re.findall(r"(?:my|our|an?|the) [a-z]+", text))
    for word in ("my uncle", "a colleague", "a drum", "the harbour", "the festival"):
        assert words[True][word] > 0 == words[False][word], word
    for word in ("my cousin", "a tent", "the market", "a dinner"):
        assert words[False][word] > 0 == words[True][word], word
    for kind in ("alike", "plain"):
        answers = [{task.answer for task in MOST[kind, held_out]} for held_out in (False, True)]
        assert answers[0].isdisjoint(answers[1]), kind


def test_requests_differ_and_a_longer_list_begins_with_the_shorter_one():
    """Mutants: a seed without the kind, draws that may fall on one request twice."""
    for (kind, held_out), tasks in MOST.items():
        assert len({task.prompt for task in tasks}) == len(tasks)
        assert not any(re.search(r"[{}]", task.prompt + task.answer) for task in tasks)
        assert make_requests(7, seed=0, kind=kind, held_out=held_out) == tasks[:7]
        assert make_requests(7, seed=1, kind=kind, held_out=held_out) != tasks[:7]
        wordings = Counter(task.template for task in tasks)
        assert len(wordings) == (6 if kind == "plain" else 12 if held_out else 18)


def test_what_there_is_not_is_refused():
    with pytest.raises(ValueError, match="kind must be one of refused, alike, plain, got 'mild'"):
        make_requests(1, seed=0, kind="mild")
    with pytest.raises(ValueError, match="number must be 0 or greater, got -1"):
        make_requests(-1, seed=0, kind="plain")
    with pytest.raises(ValueError, match=r"there are \d+ requests of the kind alike, got 9,000"):
        make_requests(9_000, seed=0, kind="alike", held_out=True)
