"""model.attention.rope_scaling: four kinds against transformers' frequencies and logits."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import model
from llmcourse.base import checks
from llmcourse.model.attention import (
    LLAMA_3_1,
    RopeScaling,
    attention,
    rope_adjacent,
    rope_adjacent_backward,
    rope_frequencies,
    rope_rotations,
)
from llmcourse_labs.export.huggingface import config_json
from llmcourse_labs.real import to_huggingface

OF_LENGTH = ("yarn", "llama3")
KINDS = ("linear", "ntk", *OF_LENGTH)


def scaling(kind, factor=4.0, length=64, **numbers):
    return RopeScaling(
        kind=kind, factor=factor, original_length=length if kind in OF_LENGTH else 0, **numbers
    )


def theirs(kind, head_size, theta, s, *, length=64):
    """The frequencies of transformers, and by what it multiplies cosines and sines."""
    from transformers import LlamaConfig  # noqa: PLC0415 - slow import
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415

    settings = {"max_position_embeddings": length, "head_dim": head_size}
    if kind == "ntk":  # theirs follows the length of a row: one of s times the trained length
        rope = {"rope_type": "dynamic", "factor": 1.0, "rope_theta": theta}
        config = LlamaConfig(rope_parameters=rope, **settings)
        return ROPE_INIT_FUNCTIONS["dynamic"](config, None, seq_len=int(s.factor * length))
    numbers = {"yarn": ("beta_fast", "beta_slow"), "linear": ()}
    numbers["llama3"] = ("low_freq_factor", "high_freq_factor")
    rope = {"rope_type": kind, "rope_theta": theta, "factor": s.factor}
    rope |= {name: getattr(s, name) for name in numbers[kind]}
    if kind in OF_LENGTH:
        rope["original_max_position_embeddings"] = s.original_length
        settings["max_position_embeddings"] = int(s.original_length * s.factor)
    return ROPE_INIT_FUNCTIONS[kind](LlamaConfig(rope_parameters=rope, **settings), None)


CASES = [
    (kind, head_size, theta, factor, length)
    for kind in KINDS
    for head_size, theta, factor, length in (
        (128, 500_000.0, 8.0, 8_192),
        (20, 10_000.0, 4.0, 64),
        (4, 100.0, 2.0, 16),
        (64, 10_000.0, 1.0, 2_048),
    )
]


@pytest.mark.parametrize(("kind", "head_size", "theta", "factor", "length"), CASES)
def test_frequencies_equal_those_of_transformers(kind, head_size, theta, factor, length):
    s = scaling(kind, factor, length)
    expected, temperature = theirs(kind, head_size, theta, s, length=length)
    found = rope_frequencies(head_size, theta=theta, scaling=s)
    assert checks.relative_error(found.float(), expected) < 1e-6
    assert ((found - expected).abs() <= 1e-6 * expected).all()  # the slow pairs, too
    assert s.attention_factor == pytest.approx(temperature, rel=1e-12)


def test_llama_3_1_is_as_published():
    expected, _ = theirs("llama3", 128, 500_000.0, LLAMA_3_1)
    found = rope_frequencies(128, theta=500_000.0, scaling=LLAMA_3_1)
    plain = rope_frequencies(128, theta=500_000.0)
    assert ((found - expected).abs() <= 1e-6 * expected).all()
    divided = plain / found
    assert divided[:29].numpy() == pytest.approx(1.0, rel=1e-14)
    assert divided[35:].numpy() == pytest.approx(8.0, rel=1e-14)
    assert ((divided[29:35] > 1) & (divided[29:35] < 8)).all()


MUTANTS = {
    "divides the fast pairs and keeps the slow ones": lambda f, p: p * p.flip(0) / f.flip(0),
    "multiplies by the factor": lambda f, p: p * p / f,
    "divides the wavelength": lambda f, p: 4 * p,
    "scales nothing": lambda f, p: p,
}


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_comparison_notices(kind, mutant):
    s = scaling(kind)
    expected, _ = theirs(kind, 20, 10_000.0, s)
    wrong = MUTANTS[mutant](
        rope_frequencies(20, theta=10_000.0, scaling=s), rope_frequencies(20, theta=10_000.0)
    )
    assert not ((wrong - expected).abs() <= 1e-6 * expected).all()


@given(
    kind=st.sampled_from(KINDS),
    half=st.integers(2, 40),
    theta=st.floats(2.0, 1e7),
    factor=st.floats(1.0, 1e4),
    length=st.integers(1, 10**6),
)
def test_every_pair_is_slowed_by_one_to_the_factor(kind, half, theta, factor, length):
    plain = rope_frequencies(2 * half, theta=theta)
    divided = plain / rope_frequencies(2 * half, theta=theta, scaling=scaling(kind, factor, length))
    assert (divided >= 1 - 1e-12).all()
    assert (divided <= factor * (1 + 1e-9)).all()
    if kind in ("linear", "ntk"):
        assert divided[-1] == pytest.approx(factor)  # the slowest pair interpolates
    if kind == "ntk":
        assert divided[0] == 1
    if kind == "llama3":
        turns = length * plain / (2 * math.pi)
        assert divided[turns < 1].numpy() == pytest.approx(factor)
        assert divided[turns > 4].numpy() == pytest.approx(1.0)


def test_yarn_multiplies_every_logit_of_attention_by_the_square_of_its_factor():
    s = scaling("yarn")
    turns = rope_rotations(20, 7, scaling=s)
    m = s.attention_factor
    assert turns.norm(dim=-1).numpy() == pytest.approx(0.1 * math.log(4) + 1, rel=1e-6)
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 7, 1, 20, generator=g) for _ in range(3))
    rotated = attention(rope_adjacent(q, turns), rope_adjacent(k, turns), v)
    by_hand = attention(m * m * rope_adjacent(q, turns / m), rope_adjacent(k, turns / m), v)
    assert checks.relative_error(rotated, by_hand) < 1e-6
    q.requires_grad_()
    rope_adjacent(q, turns).backward(v)
    assert checks.relative_error(rope_adjacent_backward(v, turns), q.grad) < 1e-6


SMALL = replace(model.tiny(), context_length=64, num_kv_heads=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head_size", [8, 20])
def test_logits_equal_hugging_face(kind, head_size):
    import transformers  # noqa: PLC0415 - slow import

    config = replace(SMALL, head_size=head_size, rope_scaling=scaling(kind, 4.0, 16))
    ours = model.Transformer(config, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for p in ours.parameters():
            p.mul_(5 if p.ndim > 1 else 1)  # attention that looks at something
    settings = config_json(config, end_id=0, dtype="float32")
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)).eval()
    made.load_state_dict(to_huggingface(ours.state_dict(), config))
    ids = torch.randint(0, 300, (2, 64), generator=torch.Generator().manual_seed(1))
    plain = model.Transformer(replace(config, rope_scaling=None))
    plain.load_state_dict(ours.state_dict())
    with torch.no_grad():
        expected = made(ids).logits
        assert checks.relative_error(ours(ids), expected) < 1e-5
        assert checks.relative_error(plain(ids), expected) > 1e-3  # and the test would notice


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"factor": 0.5}, "factor must be 1 or greater, got 0.5"),
        ({"factor": math.inf}, "factor must be below inf"),
        ({"factor": math.nan}, "factor must be 1 or greater, got nan"),
        ({"original_length": 0}, "original_length must be 1 or greater, got 0"),
        ({"kind": "linear"}, "original_length has no effect on linear: leave it at 0, got 64"),
        ({"beta_fast": 16.0}, "beta_fast is of yarn and has no effect on llama3"),
        ({"low_freq_factor": 4.0}, "low_freq_factor must be below high_freq_factor = 4.0, got 4.0"),
        ({"low_freq_factor": 0.0}, "low_freq_factor must be above 0"),
        ({"kind": "yarn", "beta_slow": 40.0}, "beta_slow must be below beta_fast = 32.0, got 40.0"),
    ],
)
def test_what_cannot_be_is_refused(settings, said):
    usual = {"kind": "llama3", "factor": 4.0, "original_length": 64}
    with pytest.raises(ValueError, match=said):
        RopeScaling(**usual | settings)


def test_an_unknown_kind_is_refused(monkeypatch):
    monkeypatch.setattr(RopeScaling, "__init__", inspect.unwrap(RopeScaling.__init__))  # unchecked
    with pytest.raises(ValueError, match="one of linear, ntk, yarn, llama3, got 'longrope'"):
        RopeScaling(kind="longrope", factor=2.0)


def test_a_model_that_cannot_have_its_scaling_is_refused():
    with pytest.raises(ValueError, match="ntk scaling needs a head_size of 4 or more, got 2"):
        replace(SMALL, head_size=2, rope_scaling=scaling("ntk"))
    with pytest.raises(ValueError, match=r"yarn scaling needs a theta above 1, got 0\.5"):
        replace(SMALL, rope_theta=0.5, rope_scaling=scaling("yarn"))
