"""The optimizers that a run may have: one table of their names, settings, moments and limits.

A new one is a class here, and a member of `OptimizerSettings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from llmcourse import optim
from llmcourse.base.arguments import require_fields
from llmcourse.base.settings import Settings
from llmcourse.optim.adamw import decay_groups

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class OptimizerBase(Settings):
    """What all of them have."""

    title: ClassVar[str]
    """As papers write it."""
    made_by: ClassVar[str]
    """The name of its class in `optim`, which is loaded when it is asked for."""
    is_elementwise: ClassVar[bool] = True
    """Whether it treats every entry by itself, so that ranks may cut a matrix between them."""
    counts: ClassVar[bool] = True
    """Whether its state has the number of steps."""
    moment_bytes: ClassVar[int]
    """What it keeps of an entry of a matrix, in float32; means of rows are not in it."""

    weight_decay: float = 0.1
    """Share of a weight that is removed per step and unit of learning rate; of matrices only."""

    def __init_subclass__(cls) -> None:
        """Tell how one says that it is meant, from the name that its field `optimizer` allows."""
        cls.needs = f"optimizer = {vars(cls).get('optimizer', '')}"

    @classmethod
    def is_meant(cls, flat: Mapping[str, Any]) -> bool:
        """Whether it is named."""
        return cls.needs == f"optimizer = {flat['optimizer']}"

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "weight_decay", least=0)

    @property
    def kind(self) -> type[torch.optim.Optimizer]:
        """The class."""
        return getattr(optim, self.made_by)

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Return a model's parameters in the groups that the optimizer wants."""
        return decay_groups(model, weight_decay=self.weight_decay)

    def arguments(self) -> dict[str, Any]:
        """Return what all groups share, but for the learning rate."""
        return {}

    def moments(self, shape: Shape, group: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the names and shapes of what is kept of a parameter, by its group."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class WithBetas(OptimizerBase):
    """Those that remember the gradient with b1, and something more with b2."""

    beta1: float = 0.9
    """Memory of the gradient."""
    beta2: float = 0.95
    """AdamW's memory of the gradient's square; Lion's second memory of the gradient."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "beta1", "beta2", least=0, below=1)

    def arguments(self) -> dict[str, Any]:
        """Return what all groups share, but for the learning rate."""
        return {"betas": (self.beta1, self.beta2)}


@dataclass(frozen=True, kw_only=True)
class AdamWSettings(WithBetas):
    """AdamW: a step for each entry, by its mean and mean square."""

    title: ClassVar[str] = "AdamW"
    made_by: ClassVar[str] = "AdamW"
    moment_bytes: ClassVar[int] = 8

    optimizer: Literal["adamw"] = "adamw"
    """What makes a step of a gradient; muon has AdamW for all but the matrices inside the model,
    adafactor keeps rows and columns alone, lion wants a learning rate 3 to 10 times smaller."""

    def moments(self, shape: Shape, group: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the names and shapes of what is kept of a parameter, by its group."""
        return {"mean": shape, "mean_square": shape}


@dataclass(frozen=True, kw_only=True)
class MuonSettings(WithBetas):
    """Muon for the matrices inside the model, AdamW for what is no such matrix."""

    title: ClassVar[str] = "Muon, and AdamW for embeddings and gains"
    made_by: ClassVar[str] = "MuonAndAdamW"
    moment_bytes: ClassVar[int] = 4
    is_elementwise: ClassVar[bool] = False
    counts: ClassVar[bool] = False

    optimizer: Literal["muon"] = "muon"
    momentum: float = 0.95
    """Muon's memory of the gradient."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "momentum", least=0, below=1)

    def arguments(self) -> dict[str, Any]:
        """Return what all groups share, but for the learning rate."""
        return {"momentum": self.momentum, **super().arguments()}

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Return the matrices that Muon takes, and all the rest."""
        inside = {id(p) for name, p in model.named_parameters() if _is_inside(name, p)}
        made = []
        for group in super().groups(model):
            for is_inside in (True, False):
                params = [p for p in group["params"] if (id(p) in inside) == is_inside]
                if params:
                    made.append({**group, "params": params, "orthogonal": is_inside})
        return made

    def moments(self, shape: Shape, group: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the names and shapes of what is kept of a parameter, by its group."""
        if group["orthogonal"]:
            return {"velocity": shape}
        return {"mean": shape, "mean_square": shape}


@dataclass(frozen=True, kw_only=True)
class AdafactorSettings(OptimizerBase):
    """Adafactor: of the squares of a matrix the means of its rows and columns."""

    title: ClassVar[str] = "Adafactor"
    made_by: ClassVar[str] = "Adafactor"
    moment_bytes: ClassVar[int] = 0
    is_elementwise: ClassVar[bool] = False

    optimizer: Literal["adafactor"] = "adafactor"
    weight_decay: float = 0.0

    def moments(self, shape: Shape, group: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the names and shapes of what is kept of a parameter, by its group."""
        if len(shape) < 2:
            return {"mean_square": shape}
        *stack, rows, columns = shape
        return {"row_mean": (*stack, rows, 1), "column_mean": (*stack, 1, columns)}


@dataclass(frozen=True, kw_only=True)
class LionSettings(WithBetas):
    """Lion: the sign of a momentum, a step of one length for every entry."""

    title: ClassVar[str] = "Lion"
    made_by: ClassVar[str] = "Lion"
    moment_bytes: ClassVar[int] = 4
    counts: ClassVar[bool] = False

    optimizer: Literal["lion"] = "lion"
    beta2: float = 0.99

    def moments(self, shape: Shape, group: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the names and shapes of what is kept of a parameter, by its group."""
        return {"mean": shape}


OptimizerSettings = LionSettings | AdafactorSettings | MuonSettings | AdamWSettings


def _is_inside(name: str, p: nn.Parameter) -> bool:
    """Whether a parameter is a matrix of a block; those of experts are stacks of matrices."""
    return p.ndim == 2 and name.startswith("blocks.")
