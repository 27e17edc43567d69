"""tuning.self_training: what a model writes, what a check keeps, and who learns from whom."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.data import corpus
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import train_bpe
from llmcourse.model import Transformer, tiny
from llmcourse_labs import tuning
from llmcourse_labs.tuning import self_training


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe([corpus.stories(20_000, seed=0)], 300, [END_OF_TEXT])


def test_documents_are_what_stands_between_ends_and_the_last_is_left_out(tokenizer, monkeypatch):
    (end,) = tokenizer.encode(END_OF_TEXT)
    texts = ["One day.", "Two days.", " "]
    row = [i for text in texts for i in (*tokenizer.encode(text), end)] + tokenizer.encode("Cut")
    asked = {}

    def written(model, prompts, *, max_new_tokens, **how):
        asked.update(how, prompts=prompts, max_new_tokens=max_new_tokens)
        return torch.tensor([[end, *row]] * len(prompts))

    monkeypatch.setattr(self_training, "generate", written)
    model = Transformer(tiny())
    found = tuning.write_documents(model, tokenizer, 6_400, seed=3, temperature=0.5, top_p=0.9)
    assert found == ["One day.", "Two days."] * self_training.STREAMS
    assert asked["max_new_tokens"] == 100
    assert asked["prompts"].tolist() == [[end]] * self_training.STREAMS
    assert (asked["temperature"], asked["top_p"]) == (0.5, 0.9)


def test_the_seed_decides_what_is_written(tokenizer):
    model = Transformer(tiny(), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():  # so that the end of a text is likely
        model.embedding[tokenizer.encode(END_OF_TEXT)[0]] *= 3
    runs = [tuning.write_documents(model, tokenizer, 6_400, seed=seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    assert not any(END_OF_TEXT in text for text in runs[0])


def test_what_the_grammar_writes_passes_and_one_wrong_sentence_fails():
    stories = corpus.stories(30_000, seed=2).split(END_OF_TEXT)[:-1]
    assert all(map(tuning.is_grammatical, stories))
    first, rest = stories[0].split(". ", 1)
    inside = f"{first}. Ball the was. {rest}"
    for wrong in ("", "   ", "Ball the was.", inside, f"{stories[0]} And"):
        assert not tuning.is_grammatical(wrong), wrong


def test_a_check_keeps_until_there_is_enough_and_counts_what_it_saw():
    rounds = []

    def write(number):
        rounds.append(number)
        return [f"good {number}", "bad", f"good {number}!"]

    found = tuning.verify_and_keep(write, lambda text: text.startswith("good"), 20)
    # A round keeps 6 + 7 characters: 13, then 26.
    assert (rounds, found.documents) == ([0, 1], ["good 0", "good 0!", "good 1", "good 1!"])
    assert found.num_written == 6


def lineage(**given):
    """Follow models that are the sorted set of what they have read, and write it twice."""
    return list(
        tuning.generations(
            ["a", "b", "c", "d"],
            lambda documents, number: (number, tuple(sorted(documents))),
            lambda model, number: [f"{text}{number}" for text in model[1]],
            **given,
        )
    )


def test_each_generation_learns_from_the_one_before():
    found = lineage(num_generations=2)
    assert [each.number for each in found] == [0, 1, 2]
    assert found[0].documents == ["a", "b", "c", "d"]
    assert found[1].documents == ["a1", "b1", "c1", "d1"]
    assert found[2].model == (2, ("a12", "b12", "c12", "d12"))
    assert len(lineage(num_generations=0)) == 1


@pytest.mark.parametrize(("share", "num_fresh"), [(0.25, 1), (0.5, 2), (1.0, 4)])
def test_a_share_of_every_generation_is_fresh(share, num_fresh):
    fresh = {1: ["p", "q", "r", "s", "t"], 2: ["u", "v", "w", "x", "y"]}
    how = {"num_generations": 2, "fresh": fresh.__getitem__, "fresh_share": share}
    runs = [lineage(**how, seed=seed) for seed in (0, 0, 1)]
    for generation in runs[0][1:]:
        true = [text for text in generation.documents if text in fresh[generation.number]]
        assert sorted(true) == fresh[generation.number][:num_fresh]
        assert len(set(generation.documents)) == 4
    first, same, other = ([each.documents for each in run] for run in runs)
    assert first == same != other


def test_rare_tokens_by_hand():
    counts = torch.tensor([50, 0, 3, 40, 5, 2])
    assert tuning.rare_tokens(counts).tolist() == [5, 2, 4]  # 2 + 3 + 5 of 100
    assert tuning.rare_tokens(counts, 0.05).tolist() == [5, 2]
    assert tuning.rare_tokens(counts, 1).tolist() == [5, 2, 4, 3, 0]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=12), st.floats(0.05, 1))
def test_rare_tokens_are_the_rarest_and_as_many_as_fit(counts, share):
    counts_V = torch.tensor(counts)
    if not counts_V.sum() or min(c for c in counts if c) > share * sum(counts):
        return
    rare = tuning.rare_tokens(counts_V, share).tolist()
    rest = [v for v, count in enumerate(counts) if count and v not in rare]
    total = sum(counts[v] for v in rare)
    assert total <= share * sum(counts) * (1 + 1e-6)
    assert all(counts[v] >= max(counts[w] for w in rare) for v in rest)
    assert not rest or total + min(counts[v] for v in rest) > share * sum(counts) * (1 - 1e-6)


def test_the_tail_loss_is_the_mean_over_rare_targets():
    losses, targets = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([0, 5, 3, 2])
    assert tuning.tail_loss(losses, targets, torch.tensor([5, 2])) == 5.0
    assert tuning.tail_loss(losses, targets, torch.arange(6)) == 3.75
