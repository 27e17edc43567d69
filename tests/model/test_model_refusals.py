"""model: what cannot be is refused by name, with the rule and what was given."""

import math
from dataclasses import replace

import pytest
import torch

from llmcourse.model import ModelConfig, Transformer, attention, generate, moe, ops
from llmcourse.model.moe import MixtureOfExperts, experts
from llmcourse_labs.real import from_huggingface, split_experts, to_huggingface
from llmcourse_labs.scale.cost import mixture_parameters

SIZES = {"num_layers": 2, "width": 20, "num_heads": 4, "num_kv_heads": 2, "head_size": 6}
SMALL = ModelConfig(**SIZES, hidden=28, vocab_size=50, context_length=16)
EXPERTS = {"num_experts": 4, "experts_per_token": 2}
MIXTURE = replace(SMALL, num_experts=3, experts_per_token=2)
DECODER = Transformer(SMALL, generator=torch.Generator().manual_seed(0))
IDS, TWO = torch.zeros(3, 11, dtype=torch.long), torch.tensor([[1, 2]])
PLAIN = to_huggingface(DECODER.state_dict(), SMALL)
JOINED = to_huggingface(Transformer(MIXTURE).state_dict(), MIXTURE)
PUBLISHED = split_experts(JOINED)
Q, KV = torch.zeros(2, 4, 4, 4), torch.zeros(2, 3, 2, 4)


def small(**changes):
    return replace(SMALL, **changes)


def written(prompts=IDS, **settings):
    how = {"max_new_tokens": 1, "generator": torch.Generator()} | settings
    return generate(DECODER, prompts, **how)


def routed(**settings):
    return moe.route(torch.ones(2, 5), torch.ones(4, 5), **settings)


def mixture(**settings):
    return MixtureOfExperts(**{"width": 5, "hidden": 6} | EXPERTS | settings, generator=None)


def ran(num_rows, counts):
    return experts.Experts(2, 5, 6, generator=None)(torch.ones(num_rows, 5), torch.tensor(counts))


REFUSED = [
    # shapes
    (lambda: small(num_layers=0), "num_layers must be 1 or greater"),
    (lambda: small(vocab_size=-1), "vocab_size must be 1 or greater"),
    (lambda: small(num_kv_heads=3), "num_kv_heads must divide num_heads = 4, got 3"),
    (lambda: small(head_size=5), "head_size must be even"),
    (lambda: small(norm_eps=0.0), "norm_eps must be above 0"),
    (lambda: small(experts_per_token=2), "experts_per_token has no effect without experts"),
    (lambda: small(balance_weight=0.01), "balance_weight has no effect without experts"),
    (lambda: small(capacity_factor=1.0), "capacity_factor has no effect without experts"),
    (lambda: small(num_experts=4), "experts_per_token must be from 1 to num_experts = 4, got 0"),
    (lambda: small(num_experts=4, experts_per_token=5), "from 1 to num_experts = 4, got 5"),
    (lambda: small(num_experts=-1), "num_experts must be 0 or greater, got -1"),
    (lambda: small(**EXPERTS, balance_weight=-0.1), "must be 0 or greater, got -0.1"),
    (lambda: small(**EXPERTS, capacity_factor=math.nan), "capacity_factor must be 0 or .*got nan"),
    (lambda: small(**EXPERTS, capacity_factor=math.inf), "capacity_factor must be below inf"),
    # published weights
    (lambda: from_huggingface(PLAIN, small(num_layers=1)), "not parameters of this configur"),
    (lambda: from_huggingface(PLAIN, small(num_layers=3)), "has no parameter"),
    (lambda: to_huggingface({}, SMALL), "has no parameter"),
    (lambda: from_huggingface(PUBLISHED, replace(MIXTURE, num_experts=2)), r"not .*experts\.2\.w1"),
    (lambda: from_huggingface(PUBLISHED, replace(MIXTURE, num_experts=4)), "not parameters of"),
    (lambda: from_huggingface(JOINED, SMALL), "not parameters of this configuration"),
    (lambda: to_huggingface({}, replace(MIXTURE, qk_norm=True)), "has no parameter"),
    # positions and prompts
    (lambda: DECODER(TWO, positions_BT=torch.tensor([[9, 16]])), "from 0 to 15, got 9 to 16"),
    (lambda: DECODER(TWO, positions_BT=torch.tensor([[-1, 0]])), "from 0 to 15, got -1 to 0"),
    (lambda: DECODER(IDS.repeat(1, 2)[:, :17]), "17 tokens do not fit into the context of 16"),
    (lambda: written(temperature=-1.0), "temperature must be 0 or greater"),
    (lambda: written(top_k=0), "top_k must be 1 or greater"),
    (lambda: written(top_p=0.0), "top_p must be above 0"),
    (lambda: written(top_p=1.5), "top_p must be at most 1"),
    (lambda: written(max_new_tokens=-1), "max_new_tokens must be 0 or greater"),
    (lambda: written(temperature=0.5, generator=None), r"temperature = 0\.5 draws: give a genera"),
    (lambda: written([[1, 2], [3]], temperature=0.5, generator=None), "draws: give a generator"),
    (lambda: written(torch.empty(1, 0, dtype=torch.long)), "the prompt is empty"),
    (lambda: written([], temperature=0), "the prompt is empty"),
    (lambda: written([[1], []], temperature=0), "the prompt is empty"),
    # experts
    (lambda: routed(experts_per_token=0), "experts_per_token must be from 1 to .* = 4, got 0"),
    (lambda: routed(experts_per_token=5), "experts_per_token must be from 1 to .* = 4, got 5"),
    (lambda: routed(experts_per_token=2, bias_E=torch.zeros(4)), "bias_E goes with scoring"),
    *(
        (lambda f=f: moe.capacity(4, 2, 2, capacity_factor=f), "must be positive and finite")
        for f in (-1, 0.0, math.inf, math.nan)
    ),
    (lambda: moe.dispatch(torch.tensor([[0, 2]]), 2), "experts must be from 0 to 1, got 0 to 2"),
    (lambda: ran(3, [1, 1]), "add up to the 3 rows, got"),
    (lambda: ran(1, [2, -1]), "add up to the 1 rows, got"),
    (lambda: mixture(experts_per_token=5), "experts_per_token must be from 1 to .* = 4, got 5"),
    (lambda: mixture(num_shared=-1), "num_shared must be 0 or greater, got -1"),
    (lambda: mixture(capacity_factor=math.nan), "capacity_factor must be 0 or greater, got nan"),
    (lambda: moe.balance_loss(torch.ones(0, 2), torch.tensor([0, 0])), "balance of no token"),
    (lambda: moe.update_bias(torch.zeros(2), torch.tensor([1, 1]), rate=0), "rate must be above 0"),
    (
        lambda: mixture_parameters(width=2, hidden=3, num_experts=2, experts_per_token=3),
        "experts_per_token must be from 1 to num_experts = 2",
    ),
    # operators and attention
    (lambda: ops.rmsnorm(torch.ones(1, 1, 4), torch.ones(4), 0.0), "eps must be positive"),
    (lambda: ops.rmsnorm(torch.ones(1, 1, 4), torch.ones(4), -1e-5), "eps must be positive"),
    (lambda: attention.rope_rotations(3, 4), "head_size must be even"),
    (lambda: attention.rope_rotations(0, 4), "head_size"),
    (lambda: attention.rope_rotations(4, 4, theta=0.0), "theta must be positive"),
    (lambda: attention.repeat_kv(torch.zeros(1, 1, 2, 1), 5), "2 .* heads do not divide 5 heads"),
    (
        lambda: attention.masks.mask_or_causal(attention.causal_mask(6, 6), 7, 9),
        r"must end in \(queries, keys\) = \(7, 9\), got \(6, 6\)",
    ),
    (lambda: attention.sliding_window_mask(3, 3, 0), "window must be 1 or greater, got 0"),
    (lambda: attention.sliding_window_mask(4, 3, 1), "cannot be the last of"),
    *(
        (lambda form=form: form(Q, KV, KV), "4 queries cannot be the last of 3 keys")
        for form in (attention.attention, attention.attention_sdpa, attention.attention_tiled)
    ),
    (lambda: attention.attention_tiled(Q[:, :3], KV, KV, tile=0), "tile must be 1 or greater, got"),
]


@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_what_cannot_be_is_refused(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()
