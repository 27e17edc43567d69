"""attention: keys and values out of one short list, as it is trained and as it is decoded."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.model import attention
from llmcourse_labs import study

FORMS = {"plain": study.latent_attention, "absorbed": study.latent_attention_absorbed}


def attend(form, inputs, **settings):
    q, p, c, r, u, w = inputs
    return FORMS[form](q, p, study.LatentCache(c, r), u, w, **settings)


def given_to(generator, *, T=3, S=5, H=3, K=4, P=2, R=6, V=5):
    shapes = ((2, T, H, K), (2, T, H, P), (2, S, R), (2, S, P), (H, K, R), (H, V, R))
    return [torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes]


def loops(inputs):
    """Equations 9 to 19 of the paper, one head, query and key at a time."""
    q, p, c, r, u, w = inputs
    B, T, H, K = q.shape
    S, P, out = c.shape[1], p.shape[-1], torch.zeros(B, T, H, w.shape[1]).double()
    for b in range(B):
        for h in range(H):
            for t in range(T):
                seen = range(S - T + t + 1)
                scores = [
                    float(q[b, t, h] @ (u[h] @ c[b, s]) + p[b, t, h] @ r[b, s]) / math.sqrt(K + P)
                    for s in seen
                ]
                shares = [math.exp(score - max(scores)) for score in scores]
                for s in seen:
                    out[b, t, h] += shares[s] / sum(shares) * (w[h] @ c[b, s])
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("T", "S"), [(5, 5), (1, 6), (3, 5)])
def test_both_forms_equal_plain_loops(form, T, S, generator):
    inputs = given_to(generator, T=T, S=S)
    torch.testing.assert_close(attend(form, inputs), loops(inputs), rtol=1e-12, atol=1e-12)


@given(
    T=st.integers(1, 4), more=st.integers(0, 3), H=st.integers(1, 4), K=st.integers(1, 5),
    P=st.integers(0, 4), R=st.integers(1, 9), V=st.integers(1, 5),
)  # fmt: skip
def test_the_absorbed_form_is_the_plain_one(T, more, **sizes):
    inputs = given_to(torch.Generator().manual_seed(T), T=T, S=T + more, **sizes)
    mask = torch.rand(T, T + more, generator=torch.Generator().manual_seed(1)) < 0.7
    for each in (None, mask):
        plain, absorbed = (attend(form, inputs, mask=each) for form in FORMS)
        torch.testing.assert_close(absorbed, plain, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_the_gradients_are_those_of_the_formula(form, generator):
    inputs = [x.requires_grad_() for x in given_to(generator, T=2, S=3, H=2)]
    assert torch.autograd.gradcheck(lambda *given: attend(form, given), inputs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("G", [1, 2, 4])
def test_every_attention_with_groups_is_a_latent_one_of_rank_2_g_k(form, G, generator):
    """Without positions: c holds all keys and values, and U and W pick those of a head's group."""
    H, K = 4, 3
    q = torch.randn(2, 5, H, K, generator=generator).double()
    k, v = (torch.randn(2, 5, G, K, generator=generator).double() for _ in range(2))
    c = torch.cat((k, v), dim=2).flatten(2)
    rows = torch.eye(2 * G * K).double().unflatten(0, (2, G, K))
    u, w = (of_all.repeat_interleave(H // G, dim=0) for of_all in rows)
    nothing = c.new_zeros(2, 5, 0)
    out = attend(form, (q, nothing.unsqueeze(2).expand(-1, -1, H, -1), c, nothing, u, w))
    torch.testing.assert_close(out, attention.attention(q, k, v), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mutant", ["scale of its own channels", "no rotated part", "keys read"])
def test_a_wrong_absorbed_form_is_noticed(mutant, generator):
    q, p, c, r, u, w = given_to(generator)
    wrong = {
        "scale of its own channels": (q / math.sqrt((6 + 2) / (4 + 2)), p, c, r, u, w),
        "no rotated part": (q, 0 * p, c, r, u, w),
        "keys read": (q, p, c, r, u, torch.cat((u, u), 1)[:, :5]),
    }[mutant]
    assert not torch.allclose(attend("absorbed", wrong), loops((q, p, c, r, u, w)), rtol=1e-3)
