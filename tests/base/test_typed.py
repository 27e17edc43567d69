"""tools.build.typed: shapes are checked where they are written, kinds also in dataclasses."""

from dataclasses import dataclass

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from llmcourse.data import corpus
from llmcourse.model import ops
from tools.build.typed import names_a_shape, typed

checked = typed(typechecker=beartype)


@checked
def sums(x: Float[Tensor, "N D"], y: Float[Tensor, " D"] | None) -> Float[Tensor, " N"]:
    return x.sum(1) if y is None else x @ y


@checked
def doubled(count: int) -> int:
    return 2 * count if count < 9 else "many"


@checked
@dataclass
class Pair:
    first: int
    second: str = ""

    @checked
    def half(self, by: int) -> float:
        return self.first / by


def test_shapes_belong_together_inside_of_other_hints_and_kinds_are_checked_too():
    assert sums(torch.ones(2, 3), torch.ones(3)).tolist() == [3, 3]
    assert sums(torch.ones(2, 3), None).tolist() == [3, 3]
    with pytest.raises(TypeCheckError, match="sums"):
        sums(torch.ones(2, 3), torch.ones(2))
    with pytest.raises(TypeCheckError, match="sums"):
        sums(torch.ones(2, 3, dtype=torch.int64), None)
    shape = Float[Tensor, " N"]
    assert all(map(names_a_shape, (shape, list[shape], dict[str, tuple[shape, ...]], shape | None)))
    assert not any(map(names_a_shape, (Tensor, int, list[int], None, "Tensor")))
    assert (doubled(4), Pair(3).half(2)) == (8, 1.5)
    with pytest.raises(TypeCheckError, match="count='4'"):
        doubled("4")
    with pytest.raises(TypeCheckError, match="return"):
        doubled(9)
    with pytest.raises(TypeCheckError, match="second=1"):
        Pair(3, 1)
    with pytest.raises(TypeCheckError, match="by=2"):
        Pair(3).half(2.0)
    with pytest.raises(TypeCheckError, match="seed='0'"):
        corpus.stories(100, seed="0")
    with pytest.raises(TypeCheckError, match="rmsnorm_forward"):
        ops.rmsnorm_forward(torch.ones(2, 1), torch.ones(3))
