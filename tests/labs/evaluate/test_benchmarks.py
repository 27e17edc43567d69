"""evaluate.benchmarks and evaluate.suites: scores by brute force, items that keep their word."""

import math
import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch

from llmcourse.base import runtime
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.data.corpus.story_grammar import STORY_GRAMMAR
from llmcourse.data.tokenizer import train_bpe
from llmcourse.model import Transformer, tiny
from llmcourse_labs import evaluate
from llmcourse_labs.evaluate import benchmarks as own
from llmcourse_labs.study import story_report

TEXT = stories(20_000, 0)
TOKENIZER = train_bpe(TEXT, 320, [END_OF_TEXT])
BARE = train_bpe(TEXT, 300)
SHAPE = replace(tiny(), vocab_size=TOKENIZER.vocab_size, context_length=160)
ITEMS = evaluate.story_items(4, seed=0)


@pytest.fixture(scope="module")
def model():
    """Random, but with logits far from equal."""
    made = Transformer(SHAPE, generator=runtime.generator(0)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(3)
    return made


@torch.no_grad()
def log_prob(model, ids, first):
    """log p of ids[first:] given what comes before, from a row of its own."""
    logits = model(torch.tensor([ids[:-1]]))[0].double()
    places = range(first - 1, len(ids) - 1)
    return sum((logits[t, ids[t + 1]] - logits[t].logsumexp(0)).item() for t in places)


def by_hand(model, tokenizer, item):
    start = [tokenizer.special_tokens[END_OF_TEXT]]
    prompt = start + tokenizer.encode(item.prompt)
    rows = []
    for choice in item.choices:
        ids = tokenizer.encode(choice)
        p = log_prob(model, prompt + ids, len(prompt))
        alone = log_prob(model, start + ids, 1)
        rows.append((p, p / len(ids), p / len(choice.encode()), p - alone))
    return list(zip(*rows, strict=True))


def test_scores_are_those_of_brute_force(model):
    for item, found in zip(ITEMS, evaluate.choice_scores(model, TOKENIZER, ITEMS), strict=True):
        for how, right in zip(evaluate.HOW, by_hand(model, TOKENIZER, item), strict=True):
            # float32: the rows of a batch are summed in another order
            assert found.by(how) == pytest.approx(right, rel=2e-5, abs=1e-4), (item, how)


def test_the_tests_see_typical_mistakes(model, monkeypatch):
    """The prompt's tokens counted, the last token left out, the separator forgotten."""
    (item,) = [i for i in ITEMS if i.skill == "next"][:1]
    right = torch.tensor(by_hand(model, TOKENIZER, item)[0])
    true = own.answer_rows

    def whole(prompts, answers):
        rows = zip(prompts, answers, strict=False)
        return true([p[:1] for p in prompts], [p[1:] + a for p, a in rows])

    def shorter(prompts, answers):
        return true(prompts, [a[:-1] or a for a in answers])

    for name, mutant, least in (
        ("answer_rows", whole, 0.1),
        ("answer_rows", shorter, 0.1),
        ("_start", lambda tokenizer: [], 1e-3),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(own, name, mutant)
            (found,) = evaluate.choice_scores(model, TOKENIZER, [item])
        assert (torch.tensor(found.log_probs) - right).abs().max() > least


def test_ways_of_choosing_by_hand():
    sizes = {"num_tokens": (1, 2, 4), "num_bytes": (4, 5, 16)}
    scores = evaluate.ChoiceScores(log_probs=(-2.0, -3.0, -4.0), alone=(-1.0, -4.0, -9.0), **sizes)
    assert (scores.by("plain"), scores.by("per token")) == ((-2, -3, -4), (-2, -1.5, -1))
    assert scores.by("per byte") == (-0.5, -0.6, -0.25)
    assert scores.by("unconditional") == (-1, 1, 5)
    assert [evaluate.chosen([scores], how) for how in evaluate.HOW] == [[0], [2], [2], [2]]
    item = evaluate.ChoiceItem(skill="x", prompt="a", choices=(" b", " c", " d"), right=2)
    right = [evaluate.are_right([item], [scores], how) for how in evaluate.HOW]
    assert right == [[False], [True], [True], [True]]
    assert evaluate.chosen([replace(scores, log_probs=(-2.0, -2.0, -5.0))], "plain") == [0]


def test_an_empty_prompt_is_the_separator_alone_and_of_a_long_one_the_end_is_read(model):
    empty = evaluate.ChoiceItem(skill="x", prompt="", choices=("One", "Two"), right=0)
    (found,) = evaluate.choice_scores(model, TOKENIZER, [empty])
    assert found.by("unconditional") == pytest.approx((0, 0), abs=1e-5)
    prompt, choices = " then" * 100 + " the", (" dog", " cat")
    short = evaluate.ChoiceItem(skill="x", prompt=prompt, choices=choices, right=0)
    start, ids = TOKENIZER.special_tokens[END_OF_TEXT], TOKENIZER.encode(short.prompt)
    assert len(ids) > 160
    (found,) = evaluate.choice_scores(model, TOKENIZER, [short])
    for choice, value in zip(short.choices, found.log_probs, strict=True):
        answer = TOKENIZER.encode(choice)
        row = ([start, *ids])[-(161 - len(answer)) :]  # the last token is only asked for
        assert value == pytest.approx(log_prob(model, row + answer, len(row)), rel=1e-5)


def test_the_loss_of_a_text_is_that_of_its_tokens_in_windows_that_overlap(model):
    text = "Once there was a girl named Emma."
    ids = [TOKENIZER.special_tokens[END_OF_TEXT], *TOKENIZER.encode(text)]
    (found,) = evaluate.text_loss(model, TOKENIZER, [text])
    assert found.nats == pytest.approx(-log_prob(model, ids, 1), rel=1e-5)
    assert (found.num_tokens, found.num_bytes) == (len(ids) - 1, len(text))
    (bare,) = evaluate.text_loss(model, BARE, [text])
    ids = BARE.encode(text)
    assert bare.nats == pytest.approx(-log_prob(model, ids, 1), rel=1e-5)
    assert bare.num_bytes == len(text) - len(BARE.token_bytes(ids[0]))
    text = stories(900, 3).replace(END_OF_TEXT, " ")
    ids = [TOKENIZER.special_tokens[END_OF_TEXT], *TOKENIZER.encode(text)]
    assert len(ids) > 2 * 160
    total, done = 0.0, 1
    while done < len(ids):
        first = 0 if done == 1 else done - 80
        end = min(len(ids), first + 161)
        total -= log_prob(model, ids[first:end], done - first)
        done = end
    (found,) = evaluate.text_loss(model, TOKENIZER, [text])
    assert found.nats == pytest.approx(total, rel=1e-5)
    assert found.num_tokens == len(ids) - 1


def test_units_by_hand():
    """A token of four equally likely ones, two bytes long: perplexity 4, one bit per byte."""
    one = evaluate.TextLoss(nats=3 * math.log(4), num_tokens=3, num_bytes=6)
    assert one.perplexity == pytest.approx(4)
    assert one.bits_per_byte == pytest.approx(1)
    both = one + evaluate.TextLoss(nats=0.0, num_tokens=3, num_bytes=2)
    assert both == evaluate.TextLoss(nats=one.nats, num_tokens=6, num_bytes=8)
    assert both.perplexity == pytest.approx(2)


def completed(item, place):
    return item.prompt + item.choices[place]


@pytest.mark.parametrize("skill", evaluate.SKILLS)
def test_the_right_choice_is_what_the_story_says(skill):
    """Every story can be made again: its seed stands in the cluster."""
    items = evaluate.story_items(60, seed=5, skills=[skill])
    assert len(items) == 60
    places = Counter(item.right for item in items)
    assert len(places) == len(items[0].choices)
    assert max(places.values()) < 45
    told = {f"5 {number}": text for number, text in enumerate(_told())}
    for item in items:
        for place in range(len(item.choices)):
            assert told[item.cluster].startswith(completed(item, place)) == (place == item.right)
        assert all(choice[0] == " " for choice in item.choices)


@cache
def _told():
    rng = random.Random("items 5")
    return [STORY_GRAMMAR.sample(rng)[0] for _ in range(900)]


@pytest.mark.parametrize(
    ("skill", "tally"),
    [("pronoun", "agreement"), ("article", "articles"), ("thing", "persistence")],
)
def test_the_recogniser_finds_the_right_choice_alone(skill, tally):
    for item in evaluate.story_items(40, seed=6, skills=[skill]):
        for place in range(len(item.choices)):
            # A story that ends with the choice, with the sentence made whole.
            found = getattr(story_report(completed(item, place) + " x."), tally)
            assert (found.right == found.total) == (place == item.right), item


def test_names_are_of_the_story_and_one_gender_and_wrong_sentences_of_other_plots():
    girls = {"Mia", "Lily", "Anna", "Lucy", "Emma", "Sara", "Nora", "Ruby"}
    for item in evaluate.story_items(60, seed=8, skills=["name"]):
        names = [choice.strip() for choice in item.choices]
        assert [name in item.prompt for name in names].count(True) == 1
        assert names[item.right] in item.prompt
        assert len({name in girls for name in names}) == 1
    lengths = []
    for item in evaluate.story_items(60, seed=9, skills=["next"]):
        for place in range(4):
            report = story_report(item.choices[place].strip())
            assert report.sentences.right == report.sentences.total == 1, item.choices[place]
        lengths.append([len(c) for c in item.choices])
    assert any(max(row) > 2 * min(row) for row in lengths)


def test_more_items_begin_with_the_same_ones_and_listed_choices_have_every_letter_once():
    few, more = evaluate.story_items(3, seed=1), evaluate.story_items(9, seed=1)
    for skill in evaluate.SKILLS:
        assert [i for i in few if i.skill == skill] == [i for i in more if i.skill == skill][:3]
    assert evaluate.story_items(9, seed=1, skills=["sum"]) == [i for i in more if i.skill == "sum"]
    assert evaluate.story_items(3, seed=2) != few
    assert len({i.cluster for i in more}) < len(more)
    item = evaluate.ChoiceItem(skill="x", prompt="Who?", choices=(" Max", " Mia", " Tom"), right=1)
    found = [evaluate.listed(item, turn) for turn in range(3)]
    assert found[0].prompt == "Who?\nA: Max\nB: Mia\nC: Tom\nAnswer:"
    assert found[1].prompt == "Who?\nA: Tom\nB: Max\nC: Mia\nAnswer:"
    assert ([each.right for each in found], found[0].choices) == ([1, 2, 0], (" A", " B", " C"))
