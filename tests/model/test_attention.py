"""attention: rotary positions in both layouts, and causal grouped attention in both forms."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import awkward

from llmcourse.model import attention


def qkv(generator, *, T=5, S=5, H=6, G=2, K=4, dtype=torch.float64):
    return (
        awkward(2, T, H, K, generator=generator, dtype=dtype),
        awkward(2, S, G, K, generator=generator, dtype=dtype),
        awkward(2, S, G, K, generator=generator, dtype=dtype),
    )


def loops(q, k, v):
    """Causal attention with Python loops over batch, head, query and key."""
    out = torch.zeros_like(q)
    B, T, H, K = q.shape
    S, group = k.shape[1], H // k.shape[2]
    for b in range(B):
        for h in range(H):
            for t in range(T):
                seen = S - T + t + 1
                scores = [
                    float(q[b, t, h] @ k[b, s, h // group]) / math.sqrt(K) for s in range(seen)
                ]
                top = max(scores)
                weights = [math.exp(score - top) for score in scores]
                for s in range(seen):
                    out[b, t, h] += weights[s] / sum(weights) * v[b, s, h // group]
    return out


FORMS = {"written out": attention.attention, "sdpa": attention.attention_sdpa}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("T", "S"), [(5, 5), (1, 1), (3, 7), (1, 6)])
@pytest.mark.parametrize("G", [1, 2, 3, 6])
def test_both_forms_equal_plain_loops_over_heads(form, T, S, G, generator):
    q, k, v = qkv(generator, T=T, S=S, G=G)
    torch.testing.assert_close(FORMS[form](q, k, v), loops(q, k, v), rtol=1e-10, atol=1e-10)


MUTANTS = {
    "no mask": lambda q, k, v: sdpa(q, k, v, is_causal=False),
    "no scale": lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=1.0),
    "a query does not see itself": lambda q, k, v: sdpa(
        q, k, v, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril(-1)
    ).nan_to_num(),
    "groups interleaved": lambda q, k, v: attention.attention(
        q, k.repeat(1, 1, 3, 1), v.repeat(1, 1, 3, 1)
    ),
}


def sdpa(q, k, v, **settings):
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*heads_first, enable_gqa=True, **settings).transpose(1, 2)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_with_loops_notices(mutant, generator):
    q, k, v = qkv(generator)
    assert not torch.allclose(MUTANTS[mutant](q, k, v), loops(q, k, v), rtol=1e-6, atol=1e-6)


def test_mask_of_cached_keys():
    mask = attention.causal_mask(2, 4)
    assert mask.tolist() == [[True, True, True, False], [True, True, True, True]]
    with pytest.raises(ValueError, match="cannot be the last of"):
        attention.causal_mask(3, 2)


def test_adjacent_rope_is_the_rotation_of_the_paper(generator):
    x = awkward(1, 6, 2, 8, generator=generator)
    y = attention.rope_adjacent(x, attention.rope_rotations(8, 6, theta=100.0))
    for t in range(6):
        for j in range(4):
            angle = t * 100.0 ** (-2 * j / 8)
            c, s = math.cos(angle), math.sin(angle)
            rotation = torch.tensor([[c, -s], [s, c]])
            pair = slice(2 * j, 2 * j + 2)
            torch.testing.assert_close(y[0, t, :, pair], x[0, t, :, pair] @ rotation.T)


def test_halves_rope_equals_hugging_face(generator):
    from transformers.models.llama import modeling_llama as reference  # noqa: PLC0415 - slow import

    x = awkward(2, 6, 3, 8, generator=generator)
    rotations = attention.rope_rotations(8, 6)
    cos, sin = (part.repeat(1, 2).unsqueeze(0) for part in rotations.unbind(-1))
    theirs, _ = reference.apply_rotary_pos_emb(x.transpose(1, 2), x.transpose(1, 2), cos, sin)
    torch.testing.assert_close(attention.rope_halves(x, rotations), theirs.transpose(1, 2))


@pytest.mark.parametrize("K", [2, 4, 10])
def test_the_permutation_joins_the_two_layouts(K, generator):
    x = awkward(2, 5, 3, K, generator=generator)
    rotations = attention.rope_rotations(K, 5)
    p = attention.halves_from_adjacent(K)
    torch.testing.assert_close(
        attention.rope_halves(x[..., p], rotations), attention.rope_adjacent(x, rotations)[..., p]
    )
    if K > 2:
        assert not torch.allclose(
            attention.rope_halves(x, rotations), attention.rope_adjacent(x, rotations), rtol=1e-3
        )


@given(i=st.integers(0, 40), j=st.integers(0, 40), shift=st.integers(0, 40))
def test_scores_depend_on_the_distance_alone(i, j, shift):
    g = torch.Generator().manual_seed(1)
    q, k = (torch.randn(1, 1, 1, 8, generator=g, dtype=torch.float64) for _ in range(2))
    rotations = attention.rope_rotations(8, 81)

    def score(a, b):
        turned_q = attention.rope_adjacent(q, rotations[a : a + 1])
        return float((turned_q * attention.rope_adjacent(k, rotations[b : b + 1])).sum())

    # The rotations are rounded to float32, so the scores agree to about 1e-6.
    assert score(i, j) == pytest.approx(score(i + shift, j + shift), abs=5e-6)
