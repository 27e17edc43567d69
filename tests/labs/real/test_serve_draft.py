"""Drafts: what they guess, what is kept of it, and that no draft changes what is written."""

from collections import Counter
from itertools import product

import pytest
import torch

from llmcourse.model import Transformer
from llmcourse_labs.real.serve import Draft, Engine, OwnDraft, PromptLookup, Request, checked
from llmcourse_labs.real.serve.draft import guessed
from tests.edits import edited
from tests.strategies import small_config

CONFIG = small_config(vocab_size=4, context_length=40)


def made(config=CONFIG, seed=0):
    g = torch.Generator().manual_seed(seed)
    decoder = Transformer(config, generator=g).double()
    for p in decoder.parameters():
        p.data += 0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64)
    return decoder.eval()


DECODER, OTHER = made(), made(small_config(vocab_size=4, num_layers=1), 5)


def strayed(drawn, probability):
    """Return how many standard deviations the chi-square of what was drawn is above its mean."""
    total, counts = len(drawn), Counter(drawn)
    assert set(counts) <= set(probability)
    chi2 = sum((counts[x] - total * p) ** 2 / (total * p) for x, p in probability.items())
    return (chi2 - len(probability) + 1) / (2 * (len(probability) - 1)) ** 0.5


# --- what is kept

P = torch.tensor([[0.3, 0.4, 0.1, 0.2], [0.1, 0.2, 0.5, 0.2], [0.4, 0.1, 0.2, 0.3]]).double()
BY_P = {x: float(P[0, x[0]] * P[1, x[1]] * P[2, x[2]]) for x in product(range(4), repeat=3)}
PROPOSALS = {
    "right about one": torch.tensor([[0.28, 0.02, 0.68, 0.02], [0.6, 0.18, 0.2, 0.02]]),
    "flat": torch.full((2, 4), 0.25),
    "all on what is rare": torch.tensor([[0.02, 0.02, 0.94, 0.02], [0.94, 0.02, 0.02, 0.02]]),
    "half is impossible": torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5]]),
    "does not sum to 1": torch.tensor([[0.1, 0.0, 0.2, 0.1], [7.0, 1.0, 1.0, 1.0]]),
    "likely tokens": [1, 2],
    "rare tokens": [2, 0],
}


def drawn(name, number, check=checked, guess=guessed):
    """Return what is written at three places whose p does not depend on what stands there."""
    g = torch.Generator().manual_seed(1)
    request, found, num_kept = Request([0], 9, temperature=1.0), [], 0
    for _ in range(number):
        guesses = [guess(proposal, g) for proposal in PROPOSALS[name]]
        ids = check(P.log(), guesses, request, g)
        num_kept += len(ids) - 1
        rest = P[len(ids) :]
        found.append((*ids, *(torch.multinomial(rest, 1, generator=g)[:, 0] if len(rest) else ())))
    return [tuple(map(int, ids)) for ids in found], num_kept / number


@pytest.mark.parametrize("name", PROPOSALS)
def test_what_is_written_has_the_models_distribution_whatever_is_proposed(name):
    ids, num_kept = drawn(name, 600)
    assert strayed(ids, BY_P) < 4
    if not isinstance(q := PROPOSALS[name], list):
        share = torch.minimum(P[:2], q / q.sum(-1, keepdim=True)).sum(-1)
    else:
        share = torch.stack([P[0, q[0]], P[1, q[1]]])
    assert num_kept == pytest.approx(float(share[0] + share.prod()), abs=0.1)


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("right about one", ("rest_V = (p_V - q_V).clamp(min=0)", "rest_V = p_V")),
        ("flat", ("chance * q_V[token] >=", "chance >=")),
        ("right about one", ("chance * q_V[token] >=", "chance * q_V.max() >=")),
        ("right about one", ("(p_V - q_V).clamp(min=0)", "p_V * (p_V > q_V)")),
        ("likely tokens", ("ids.append(request.draw(logits_V, generator))", "ids.append(token)")),
        ("flat", ("logits_TV[-1], generator", "logits_TV[0], generator")),
    ],
)
def test_other_ways_to_check_guesses_change_it(name, edit):
    assert strayed(drawn(name, 600, check=edited(checked, edit))[0], BY_P) > 6


def test_probabilities_of_any_scale_are_those_that_a_guess_is_drawn_from():
    as_given = edited(guessed, ("proposal / proposal.sum()", "proposal"))
    assert strayed(drawn("does not sum to 1", 600, guess=as_given)[0], BY_P) > 6


# --- in the engine


class Liar(Draft):
    """Likes one token, and which one hangs on the row, not on the model."""

    def propose(self, number, ids, request):
        return torch.eye(4)[sum(ids) % 4] * 0.9 + 0.025 if ids[-1] else 3


def written(draft, number, temperature=1.0, decoder=DECODER):
    """Return what many requests with seeds of their own get, and the counts of the engine."""
    engine = Engine(decoder, num_pages=200, max_rows=40, tokens_per_step=200, draft=draft)
    ids = {}
    for seed in range(number):
        request = Request([1, 0, 2], 3, temperature=temperature, top_k=3, seed=seed)
        ids[engine.submit(request)] = []
    while not engine.is_idle:
        for event in engine.step():
            ids[event.number] += event.ids
    return [tuple(each) for each in ids.values()], engine.counts


@torch.no_grad()
def exact():
    """Return the probability of every three tokens after the prompt, from whole forward passes."""
    request, found = Request([0], 1, temperature=1.0, top_k=3), {}
    for x in product(range(4), repeat=3):
        logits_TV = DECODER(torch.tensor([[1, 0, 2, *x[:2]]]))[0, 2:]
        p_TV = torch.stack([request.probabilities(logits_V) for logits_V in logits_TV])
        found[x] = float(p_TV[range(3), x].prod())
    return {x: p for x, p in found.items() if p}


@pytest.mark.parametrize(
    "draft",
    [Liar(2), OwnDraft(OTHER, 2), PromptLookup(1, 2)],
    ids=["liar", "own", "lookup"],
)
def test_no_draft_changes_what_the_engine_writes(draft):
    ids, counts = written(draft, 90)
    assert 0 < counts.accepted < counts.drafted
    likely = exact()
    assert strayed(ids, likely) < 4
    greedy, _ = written(draft, 1, temperature=0.0)
    assert greedy == written(None, 1, temperature=0.0)[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_that_is_the_model_itself_is_always_right(temperature):
    engine = Engine(DECODER, num_pages=9, max_rows=1, draft=OwnDraft(DECODER, 3))
    engine.submit(Request([1, 2], 20, temperature=temperature))
    while not engine.is_idle:
        engine.step()
    assert engine.counts.accepted == engine.counts.drafted == 15
    assert engine.counts.steps == 5


def test_a_draft_proposes_nothing_beyond_its_context():
    draft = OwnDraft(made(small_config(vocab_size=4, context_length=6)), 3)
    request = Request([0] * 6, 9)
    assert draft.propose(0, [0] * 6, request) is not None
    assert draft.propose(0, [0] * 7, request) is None


@torch.no_grad()
def test_a_draft_reads_what_it_is_asked_about_and_not_what_it_guessed_before():
    draft, request = OwnDraft(DECODER, 3), Request([1, 0], 9, temperature=1.0)
    for ids in ([1, 0], [1, 0, 3], [1, 0, 3, 3], [1, 0, 2], [1, 0, 2, 3, 3, 1], [1, 0, 2]):
        expected = request.probabilities(DECODER(torch.tensor([ids]))[0, -1])
        assert torch.allclose(draft.propose(7, ids, request), expected, atol=1e-12)


# --- prompt lookup


@pytest.mark.parametrize(
    ("ids", "longest", "expected"),
    [
        ([5, 6, 7, 8, 5, 6], 3, 7),
        ([5, 6, 7, 5, 6, 9, 5, 6], 3, 9),  # the latest
        ([4, 6, 7, 5, 6, 9, 4, 6], 3, 7),  # the longest
        ([4, 6, 7, 5, 6, 9, 4, 6], 1, 9),
        ([3, 3], 3, 3),
        ([1, 2, 3], 3, None),
        ([1], 3, None),
    ],
)
def test_prompt_lookup_continues_the_latest_of_the_longest_runs(ids, longest, expected):
    assert PromptLookup(longest).propose(0, ids, Request([0], 1)) == expected


def test_a_draft_guesses_at_least_one_token():
    with pytest.raises(ValueError, match="num_tokens must be 1 or greater, got 0"):
        PromptLookup(3, 0)
    with pytest.raises(ValueError, match="longest must be 1 or greater, got 0"):
        PromptLookup(0)
