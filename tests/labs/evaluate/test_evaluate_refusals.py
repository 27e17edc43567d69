"""evaluate: what cannot be measured is refused, with what was given and why."""

import math
from dataclasses import replace

import pytest
import torch

from llmcourse.base import runtime
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.data.tokenizer import train_bpe
from llmcourse.model import Transformer, tiny
from llmcourse_labs.evaluate import (
    Battle,
    ChoiceItem,
    ChoiceScores,
    Villages,
    are_right,
    bootstrap,
    bradley_terry,
    bradley_terry_intervals,
    canary_test,
    choice_scores,
    elo,
    exchangeability_p_value,
    items_to_tell,
    listed,
    make_canary,
    min_k_log_prob,
    overlapping_items,
    pair_log_probs,
    paired,
    paired_bootstrap,
    perturbed,
    refusals,
    reliability,
    split_score,
    story_items,
    text_loss,
    threshold_at,
    wilson,
)
from llmcourse_labs.tuning import make_tasks

TEXT = stories(20_000, 0)
TOKENIZER, BARE = train_bpe(TEXT, 320, [END_OF_TEXT]), train_bpe(TEXT, 300)
MODEL = Transformer(
    replace(tiny(), vocab_size=320, context_length=160), generator=runtime.generator(0)
).eval()
SCORES = ChoiceScores(
    log_probs=(-2.0, -3.0), alone=(-1.0, -4.0), num_tokens=(1, 2), num_bytes=(4, 5)
)
TOKEN = torch.tensor([-1.0])
UNBEATEN = [Battle("x", "y", 1.0), Battle("y", "z", 1.0), Battle("z", "y", 1.0)]
APART = [Battle("a", "b", 0.5), Battle("c", "d", 0.5)]
FEW = [Battle("x", "y", 1.0), Battle("x", "y", 1.0), Battle("y", "x", 1.0)]


def g():
    return runtime.generator(0)


def item(prompt="One", choices=(" a", " b"), right=0):
    return ChoiceItem(skill="x", prompt=prompt, choices=choices, right=right)


def scored(item, tokenizer=TOKENIZER):
    return choice_scores(MODEL, tokenizer, [item])


def shuffled(log_prob=lambda _: 0.0, num_items=2, **settings):
    return exchangeability_p_value(log_prob, num_items, generator=g(), **settings)


REFUSED = [
    # contamination
    (lambda: overlapping_items([], ["a"]), "no items to look for"),
    (lambda: overlapping_items(["a", "?!"], ["a"]), "test item 1 has no word"),
    (lambda: overlapping_items(["a b c"], ["a b", "a"], n=3), r"of 3 words \(the longest has 2\)"),
    (lambda: overlapping_items(["a"], ["a"], n=0), "n must be 1 or greater, got 0"),
    (lambda: canary_test(-1.0, []), "nothing to rank the canary among"),
    (lambda: canary_test(-1.0, [math.nan]), "a log-probability is NaN"),
    *((lambda k=k: min_k_log_prob(TOKEN, k=k), "k must be") for k in (0, -1, 100.5, math.nan)),
    (lambda: min_k_log_prob(torch.tensor([])), "no token with a probability"),
    (lambda: threshold_at([], 0.05), "scores of clean items, one or more"),
    (lambda: threshold_at([1.0], 1), "rate must be below 1, got 1"),
    (lambda: shuffled(num_items=1), "num_items must be 2 or greater, got 1"),
    (lambda: shuffled(num_shuffles=0), "num_shuffles must be 1 or greater, got 0"),
    (lambda: shuffled(lambda _: math.nan), "is NaN"),
    (lambda: pair_log_probs(MODEL, [[1]]), "number of items must be 2 or greater, got 1"),
    (lambda: pair_log_probs(MODEL, [[1], []]), "a prompt or an answer is empty"),
    (lambda: split_score([True, False], [False]), "got 2 answers and 1 flags"),
    (lambda: split_score([], []), "got 0 answers and 0 flags"),
    (lambda: Villages(0, 106), "half must be at most 105, got 106"),
    (lambda: Villages(0, 0), "half must be 1 or greater, got 0"),
    (lambda: Villages(-1), "seed must be 0 or greater, got -1"),
    (lambda: Villages(3).documents(copies=69), "copies must be at most 68, got 69"),
    (lambda: Villages(3).documents(copies=1, told="sung"), "one of copied, .*, got 'sung'"),
    (lambda: make_canary(seed=0, digits=0), "digits must be 1 or greater, got 0"),
    # items and their scores
    (lambda: item(choices=(" a",)), "needs 2 or more choices"),
    (lambda: item(choices=(" a", "")), "needs 2 or more choices that say something"),
    (lambda: item(choices=(" a", " a")), "has the same choice twice"),
    (lambda: item(right=2), "has no right answer: right must be 0 to 1, got 2"),
    (lambda: item(right=-1), "has no right answer"),
    (lambda: SCORES.by("per word"), "how must be one of plain, per token, per byte"),
    (lambda: are_right([item()], [], "plain"), "the scores of 1 items, got 0"),
    (lambda: choice_scores(MODEL, TOKENIZER, []), "there is no item"),
    (lambda: scored(item(), train_bpe(TEXT, 330, [END_OF_TEXT])), "330 ids and the model 320"),
    (lambda: scored(item("Once ther", ("e", "y"))), "within a token of the prompt 'Once ther'"),
    (lambda: scored(item(choices=(" a", " b" * 200))), "does not fit into the context of 160"),
    (lambda: scored(item("", ("One", "Two")), BARE), "prompt is empty and the tokenizer has no"),
    (lambda: text_loss(MODEL, TOKENIZER, []), "one or more texts, none of them empty"),
    (lambda: text_loss(MODEL, TOKENIZER, ["One", ""]), "one or more texts, none of them empty"),
    (lambda: text_loss(MODEL, BARE, ["O"]), "is a single token"),
    (lambda: story_items(0, seed=0), "number must be 1 or greater"),
    (lambda: story_items(2, seed=-1), "seed must be 0 or greater"),
    (lambda: story_items(2, seed=0, skills=["rhyme"]), r"some of pronoun, .*, got \['rhyme'\]"),
    (lambda: story_items(2, seed=0, skills=[]), "skills must be some of"),
    (lambda: listed(item(choices=tuple(map(chr, range(65, 92))))), "choices must be at most 26"),
    # intervals
    (lambda: wilson(0, 0), "total must be 1 or greater, got 0"),
    (lambda: wilson(3, 2), "right must be at most 2, got 3"),
    (lambda: wilson(-1, 2), "right must be 0 or greater, got -1"),
    *((lambda c=c: wilson(1, 2, confidence=c), "confidence must be") for c in (0, 1, 95, math.nan)),
    *(
        (lambda c=c: bootstrap([0, 1], generator=g(), confidence=c), "confidence must be")
        for c in (0, 1, 95, math.nan)
    ),
    (lambda: bootstrap([], generator=g()), "2 or more values, got 0"),
    (lambda: bootstrap([1.0], generator=g()), "2 or more values, got 1"),
    (lambda: bootstrap([1.0, 2.0], clusters=["a"] * 2, generator=g()), "2 or more clusters, got 1"),
    (lambda: bootstrap([1.0, 2.0], clusters=["a"], generator=g()), "for each of 2 values, got 1"),
    (lambda: bootstrap([1.0, math.nan], generator=g()), "values must be finite"),
    (lambda: paired([True, False], [True]), "got 2 and 1"),
    (lambda: paired([], []), "got 0 and 0"),
    (lambda: paired_bootstrap([1.0], [1.0, 0.0], generator=g()), "got 1 and 2"),
    (lambda: items_to_tell(0.0, 0.5), "the difference, without its sign, must be above 0"),
    (lambda: items_to_tell(0.2, 0.1), "disagree must be 0.2 or greater"),
    (lambda: items_to_tell(0.2, 1.1), "disagree must be at most 1"),
    # battles
    (lambda: bradley_terry(UNBEATEN), "some players never lost to the others"),
    (lambda: bradley_terry(APART), "or never met them"),
    (lambda: bradley_terry_intervals(FEW, generator=g()), r"in \d+ of 200 samples some players"),
    *(
        (lambda refuse=refuse, battles=battles: refuse(battles), fact)
        for refuse in (bradley_terry, elo, lambda b: bradley_terry_intervals(b, generator=g()))
        for battles, fact in (
            ([], "no battle was given"),
            ([Battle("x", "x", 1.0)], "'x' fights itself"),
            ([Battle("x", "y", 2.0)], "a score is 1, 0.5 or 0, got 2.0"),
        )
    ),
    (lambda: elo(FEW, step=0), "step must be above 0"),
    # trust
    (lambda: reliability([], []), "one or more items, got 0 and 0"),
    (lambda: reliability([0.5], [1, 0]), "got 1 and 2"),
    (lambda: reliability([1.5], [1]), "a confidence must be at most 1, got 1.5"),
    (lambda: reliability([0.5], [1], num_bins=0), "num_bins must be 1 or greater"),
    (lambda: perturbed(item(), "capitals", seed=0), "of typos, synonyms, got 'capitals'"),
    (lambda: refusals(make_tasks(200, seed=0), [""]), "an answer to each of 200 tasks, got 1"),
]


@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_what_cannot_be_measured_is_refused(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()
