"""Numbers at the border of what a draw is asked for."""

import pytest
import torch

from llmcourse import nutshell
from llmcourse.model import Transformer, tiny
from llmcourse.model.sampling import generate, next_token_probabilities


def by_nutshell(logits, **how):
    return torch.stack([nutshell.next_token_probabilities(row, **how) for row in logits])


both = pytest.mark.parametrize("probabilities", [next_token_probabilities, by_nutshell])


@both
@pytest.mark.parametrize(
    ("shares", "top_p", "kept"),
    [
        ([0.5, 0.3, 0.1, 0.1], 0.8, 2),
        ([0.5, 0.3, 0.1, 0.1], 0.8001, 3),
        ([0.5, 0.3, 0.1, 0.1], 0.5, 1),
        ([0.7, 0.2, 0.05, 0.05], 0.9, 2),
        ([0.25] * 4, 0.75, 3),
        ([0.1] * 10, 0.3, 3),
        ([0.1] * 10, 0.7, 7),
    ],
)
def test_a_sum_that_is_top_p_reaches_it(probabilities, shares, top_p, kept):
    found = probabilities(torch.tensor([shares]).log(), top_p=top_p)[0]
    torch.testing.assert_close(found[:kept], torch.tensor(shares[:kept]) / sum(shares[:kept]))
    assert found[kept:].count_nonzero() == 0


@both
def test_top_p_1_keeps_every_token(probabilities):
    logits = torch.randn(1, 200_000, generator=torch.Generator().manual_seed(0))
    assert probabilities(logits, top_p=1.0).count_nonzero() == 200_000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_temperature_that_the_dtype_holds_for_0_is_0(dtype):
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0]], dtype=dtype)
    assert next_token_probabilities(logits, temperature=1e-46).tolist() == [[0, 1, 0, 0]]
    assert next_token_probabilities(logits, temperature=1e-40).tolist() == [[0, 0.5, 0, 0.5]]


def test_text_is_generated_at_such_a_temperature():
    model = Transformer(tiny(), generator=torch.Generator().manual_seed(0)).eval()
    given = {"prompts": torch.tensor([[1, 2, 3]]), "max_new_tokens": 4}
    drawn = generate(model, **given, temperature=1e-46, generator=torch.Generator().manual_seed(0))
    assert torch.equal(drawn, generate(model, **given, temperature=0))
