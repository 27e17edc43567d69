"""Every form of attention refuses what one of them would take for something else."""

import re

import jaxtyping
import pytest
import torch

from llmcourse.model import attention
from llmcourse.parallel.context_parallel import ring_attention
from llmcourse.parallel.world import Axis

ALONE = Axis("cp", (0,), 0, group=None, messages=[])
FORMS = {
    "attention": attention.attention,
    "sdpa": attention.attention_sdpa,
    "tiled": attention.attention_tiled,
    "flash": attention.attention_flash,
    "written for backward": lambda q, k, v, mask=None: attention.attention_forward(q, k, v, mask),
    "ring": lambda q, k, v, mask=None: ring_attention(ALONE)(q, k, v, mask=mask),
}


@pytest.fixture(autouse=True)
def _no_annotations(monkeypatch):
    """Annotations are checked in tests only: a user's shapes meet nothing but our own checks."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def shaped(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


SHAPES = {
    "no heads": ((2, 5, 8), (2, 5, 8), (2, 5, 8)),
    "values of another size": ((2, 5, 4, 8), (2, 5, 2, 8), (2, 5, 2, 6)),
    "values of another number of heads": ((2, 5, 4, 8), (2, 5, 2, 8), (2, 5, 4, 8)),
    "keys of another size": ((2, 5, 4, 8), (2, 5, 2, 6), (2, 5, 2, 6)),
    "one row of keys": ((2, 5, 4, 8), (1, 5, 2, 8), (1, 5, 2, 8)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shapes", SHAPES)
def test_other_shapes_are_refused_by_all_forms(form, shapes):
    q, k, v = SHAPES[shapes]
    with pytest.raises(ValueError, match=re.escape(f"got {q}, {k} and {v}")):
        FORMS[form](shaped(*q), shaped(*k), shaped(*v))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 4, 5, 5, dtype=torch.bool),  # one for each head
        torch.ones(2, 1, 5, 5, dtype=torch.bool),
        torch.zeros(5, 5),  # to be added, torch would say
        torch.ones(3, 5, 5, dtype=torch.bool),
        torch.ones(5, dtype=torch.bool),
    ],
    ids=lambda mask: f"{tuple(mask.shape)}",
)
def test_other_masks_are_refused_by_all_forms(form, mask):
    q, k, v = shaped(2, 5, 4, 8), shaped(2, 5, 2, 8), shaped(2, 5, 2, 8)
    given = f"{mask.dtype} of the shape {tuple(mask.shape)}"
    with pytest.raises(ValueError, match=re.escape(given)):
        FORMS[form](q, k, v, mask=mask)


@pytest.mark.parametrize("form", FORMS)
def test_heads_that_are_not_divided_are_refused_by_all_forms(form):
    with pytest.raises(ValueError, match="4 key/value heads do not divide 6 heads"):
        FORMS[form](shaped(2, 5, 6, 8), shaped(2, 5, 4, 8), shaped(2, 5, 4, 8))
