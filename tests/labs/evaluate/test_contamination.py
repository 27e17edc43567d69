"""evaluate.contamination: definitions word by word, and false alarms counted on clean data."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from llmcourse.base.runtime import generator
from llmcourse_labs.curation.decontaminate import normalised
from llmcourse_labs.evaluate import (
    canary_test,
    exchangeability_p_value,
    min_k_log_prob,
    order_log_prob,
    overlapping_items,
    pair_log_probs,
    split_score,
    threshold_at,
)

WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=12).map(" ".join)


def by_definition(item, texts, n):
    """A run of the item, or the whole of a shorter one, stands between spaces in a text."""
    words = normalised(item)
    length = min(n, len(words))
    runs = [" ".join(words[i : i + length]) for i in range(len(words) - length + 1)]
    return any(f" {run} " in f" {' '.join(normalised(text))} " for text in texts for run in runs)


@given(
    items=st.lists(WORDS, min_size=1, max_size=4),
    texts=st.lists(WORDS, min_size=1, max_size=3),
    n=st.integers(1, 5),
)
def test_overlap_is_that_of_the_definition(items, texts, n):
    """Mutants: the first item of a run alone, runs over the ends of texts, last run left out."""
    shortest = min(n, *(len(item.split()) for item in items))
    if max(len(text.split()) for text in texts) < shortest:
        with pytest.raises(ValueError, match=f"no text has a run of {shortest} words"):
            overlapping_items(items, texts, n=n)
    else:
        right = [by_definition(item, texts, n) for item in items]
        assert overlapping_items(items, iter(texts), n=n) == right


def test_thirteen_words_are_needed_and_rank_exposure_and_p_value_by_hand():
    words = [f"w{i}" for i in range(40)]
    items = [" ".join(words[:15]), " ".join(words[20:34]), "w1 w2", "a b"]
    text = f"{' '.join(words[2:15]).upper()}! {' '.join(words[20:32])}"
    assert overlapping_items(items, [text]) == [True, False, False, False]
    assert overlapping_items(items, [text, "x w1, W2"], n=12) == [True, True, True, False]
    # Mutant: a rank from 0 gives p = 0 to clean models.
    found = canary_test(-5.0, [-4.0, -5.0, -6.0, -7.0, -8.0, -9.0, -10.0])
    assert (found.rank, found.candidates) == (3, 8)  # one is likelier, one as likely
    assert found.p_value == 3 / 8
    assert found.exposure == pytest.approx(math.log2(8) - math.log2(3))
    assert canary_test(0.0, [-1.0] * 1_023).exposure == 10
    assert canary_test(-2.0, [-1.0]).exposure == 0


@given(values=st.lists(st.floats(-20, 0, width=32), min_size=1, max_size=40), k=st.integers(1, 100))
def test_min_k_is_the_least_mean_of_so_many_tokens(values, k):
    """Mutants: the highest in place of the lowest, rounding down, a sum."""
    number = next(n for n in range(1, 41) if 100 * n >= k * len(values))
    right = sum(sorted(values)[:number]) / number
    assert min_k_log_prob(torch.tensor(values), k=k) == pytest.approx(right, rel=1e-6, abs=1e-9)


def test_min_k_looks_at_few_tokens_and_at_100_at_all():
    values = torch.tensor([-1.0, -9.0, -2.0, -3.0, -5.0])
    assert (min_k_log_prob(values), min_k_log_prob(values, k=20.001)) == (-9, -7)
    assert min_k_log_prob(values, k=100) == -4
    assert min_k_log_prob(torch.full((100,), -1.0).index_fill(0, torch.tensor(3), -8), k=7) == -2


@given(
    scores=st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 3.0]), min_size=1, max_size=30),
    percent=st.integers(0, 99),
)
def test_no_more_than_the_rate_exceed_the_threshold_and_no_lower_one_does(scores, percent):
    """Mutants: >= for >, one place off, sorted the other way."""
    threshold = threshold_at(scores, percent / 100)
    above = [sum(x > each for x in scores) for each in [threshold, *scores]]
    assert 100 * above[0] <= percent * len(scores)
    lower = [n for n, each in zip(above[1:], scores, strict=True) if each < threshold]
    assert all(100 * n > percent * len(scores) for n in lower)


class Bigrams(nn.Module):
    """log p(next | this) from a table: what each pair must sum to can be looked up."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 9, generator=generator(2)))

    def forward(self, ids_BT):
        return self.table[ids_BT]


def test_pairs_have_the_probability_of_the_second_after_the_first():
    """Mutants: i and j exchanged, the first item counted too, padding counted."""
    model, items = Bigrams(), [[1, 2], [3, 4, 5], [6]]
    log_p = model.table.detach().log_softmax(-1)
    found = pair_log_probs(model, items, batch_size=4)
    for i, j in itertools.permutations(range(3), 2):
        chain = [items[i][-1], *items[j]]
        right = sum(log_p[a, b].item() for a, b in itertools.pairwise(chain))
        assert found[i, j].item() == pytest.approx(right, rel=1e-6)
    assert (found.diagonal() == 0).all()
    assert not found.requires_grad
    whole = order_log_prob(found, [2, 0, 1])
    assert whole == pytest.approx((found[2, 0] + found[0, 1]).item(), rel=1e-6)


def test_with_all_orders_counted_the_p_value_is_a_rank():
    """Mutants: > for >=, and no one added for the published order itself."""

    def low_first(order):
        return -float(sum(place * item for place, item in enumerate(order)))

    def p_of(log_prob, shuffles=4_000):
        how = {"num_shuffles": shuffles, "generator": generator(0)}
        return exchangeability_p_value(log_prob, 3, **how)

    # Increasing is the least likely of all orders, or the likeliest, which a shuffle may repeat.
    assert p_of(low_first) == pytest.approx(1, abs=1e-12)
    assert p_of(lambda order: -low_first(order)) == pytest.approx(1 / 6, abs=0.02)
    assert p_of(lambda _: 0.0, 9) == 1


def test_clean_models_have_uniform_p_values_and_a_model_that_knows_the_order_a_small_one():
    def p_of(scores, shuffles, seed=0):
        how = {"num_shuffles": shuffles, "generator": generator(seed)}
        return exchangeability_p_value(lambda x: order_log_prob(scores, x), len(scores), **how)

    drawn = [torch.randn(6, 6, generator=generator(seed)) for seed in range(1_500)]
    found = torch.tensor([p_of(scores, 19, 10_000 + seed) for seed, scores in enumerate(drawn)])
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):
        assert (found <= level + 1e-6).double().mean() == pytest.approx(level, abs=0.03)
    scores = torch.randn(30, 30, generator=generator(0))
    knows = scores + 2 * torch.diag(torch.ones(29), 1)
    assert p_of(knows, 199) == 1 / 200 < 0.05 < p_of(scores, 199)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_the_score_is_divided_and_nothing_is_lost(marks):
    """Mutants: flags the other way round, the clean share over all items."""
    right, flagged = map(list, zip(*marks, strict=True))
    if all(flagged):
        with pytest.raises(ValueError, match="there is no clean subset"):
            split_score(right, flagged)
        return
    found = split_score(right, flagged)
    assert found.clean_items + found.flagged_items == len(marks)
    assert found.clean_right == marks.count((True, False))
    assert found.clean == pytest.approx(marks.count((True, False)) / flagged.count(False))
    assert found.whole == pytest.approx(right.count(True) / len(marks))
    if any(flagged):
        assert found.flagged == pytest.approx(marks.count((True, True)) / flagged.count(True))
    else:
        assert math.isnan(found.flagged)
        assert found.clean == found.whole
