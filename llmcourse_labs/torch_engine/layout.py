"""Where a run's parts are on torch's own engine: copied by DDP, or in shards by FSDP2."""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from llmcourse.checkpoint import BackgroundSaver, folder, store
from llmcourse.checkpoint.flat import moment_name, take_apart
from llmcourse.model import Transformer
from llmcourse.train.config import TrainConfig
from llmcourse.train.layouts.one import Layout
from llmcourse_labs.torch_engine import dcp

TORCHS_NAMES = {"mean": "exp_avg", "mean_square": "exp_avg_sq"}
"""What torch's AdamW calls the moments, by our names: checkpoints have ours."""
OUR_SETTINGS = ("lr", "betas", "eps", "weight_decay")
"""Of a group of AdamW; torch's has more."""


class TorchLayout(Layout):
    """DDP: every rank holds everything; torch averages gradients during backward.

    Args:
        config: of the run.
        model: whole, and the same on every rank.
        optimizer: of the whole model; torch's takes its place, with the same moments.
    """

    def __init__(self, config: TrainConfig, model: Transformer, optimizer: Optimizer) -> None:
        self.index, self.size = dist.get_rank(), dist.get_world_size()
        self.share, self.num_shares = self.index, self.size
        # Checkpoints that are written in the background have messages of their own.
        background = config.saving.save_in_background
        self.saving_group = dist.new_group(backend="gloo") if background else None
        self.whole = model
        """The model by its own name, whose parameters may be shards."""
        # The groups are made while matrices look like matrices; spreading replaces parameters.
        groups = config.optimizer.groups(model)
        names = [[_name_of(model, p) for p in group["params"]] for group in groups]
        moments = [optimizer.state.get(p) for group in groups for p in group["params"]]
        wrapped = self.spread_out(model)
        params = dict(model.named_parameters())
        groups = [
            {**group, "params": [params[name] for name in its_names]}
            for group, its_names in zip(groups, names, strict=True)
        ]
        eps = optimizer.param_groups[0]["eps"]
        torchs = torch.optim.AdamW(groups, eps=eps, fused=True, **config.optimizer_arguments)
        super().__init__(config, wrapped, torchs)
        for p, state in zip(_numbers(torchs), moments, strict=True):
            if state:
                self._set_state(p, state)

    def spread_out(self, model: Transformer) -> nn.Module:
        """Return the model as this engine wants it."""
        return DistributedDataParallel(model)

    def gradients_kept_back(self) -> contextlib.AbstractContextManager[None]:
        """Send no bucket before the last micro-batch."""
        assert isinstance(self.model, DistributedDataParallel)
        return self.model.no_sync()

    def clip(self) -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()

    @contextlib.contextmanager
    def full_model(self) -> Iterator[nn.Module]:
        """Give the model to be run; all ranks run the same, since weights may have to be sent."""
        yield self.whole

    def save(self, target: Path, facts: dict[str, Any], saver: BackgroundSaver) -> Path | None:
        """Write a Distributed Checkpoint; return its path on the first rank."""
        step = facts["step"]
        number = self.broadcast_from_first(folder.next_try(target, step) if self.is_first else 0)
        path = folder.parts_path(target, step, number, "dcp")
        _, rest = take_apart({}, self._optimizer_state())
        content = store.content_of_run(**facts, **rest)
        tensors = self.tensors()
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        saver.wait()  # two saves at once would mix up their messages, and wait for ever
        write = dcp.begin_write(path, tensors, rank=self.index, background_group=self.saving_group)

        def finish() -> Path:
            write()
            if self.is_first:
                dcp.write_index(path, shapes, content, num_ranks=self.size)
                folder.prune(path, step, self.config.saving.keep_checkpoints)
            return path

        if self.saving_group is not None:
            saver.start(finish)
        else:
            finish()
            dist.barrier()
        return path if self.is_first else None

    def tensors(self, *, fill: bool = False) -> dict[str, Tensor]:
        """Return weights and moments by the names of checkpoints: those of the run, not copies.

        Args:
            fill: make moments of zeros where the optimizer has none yet.
        """
        named = {f"model.{name}": value for name, value in self.whole.state_dict().items()}
        states = self.optimizer.state
        for p, number in _numbers(self.optimizer).items():
            if fill and not states.get(p):
                zeros = {name: torch.zeros_like(p) for name in TORCHS_NAMES}
                self._set_state(p, {"step": 0, **zeros})
            if states.get(p):
                for ours, theirs in TORCHS_NAMES.items():
                    named[moment_name(number, ours)] = states[p][theirs]
        return named

    def set_counts(self, states: Mapping[int, Mapping[str, Any]]) -> None:
        """Set the counts of steps of the optimizer's parameters."""
        for p, number in _numbers(self.optimizer).items():
            self.optimizer.state[p]["step"].fill_(states[number]["step"])

    def _sum(self, value: float) -> float:
        total = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.item()

    def _optimizer_state(self) -> dict[str, Any]:
        """Return counts and groups as our own AdamW would save them; moments are `tensors`."""
        numbers = _numbers(self.optimizer)
        states = {
            numbers[p]: {"step": int(state["step"])} for p, state in self.optimizer.state.items()
        }
        groups = [
            {
                **{key: group[key] for key in OUR_SETTINGS},
                "params": [numbers[p] for p in group["params"]],
            }
            for group in self.optimizer.param_groups
        ]
        return {"state": states, "param_groups": groups}

    def _set_state(self, p: Tensor, state: Mapping[str, Any]) -> None:
        """Give torch's AdamW the state that ours has of a whole parameter."""
        self.optimizer.state[p] = {"step": torch.tensor(float(state["step"]), device=p.device)} | {
            theirs: _as(state[ours], p) for ours, theirs in TORCHS_NAMES.items()
        }


class TorchSharded(TorchLayout):
    """FSDP2: every rank keeps its shard of everything; a block is whole while it runs."""

    def spread_out(self, model: Transformer) -> nn.Module:
        """Return the model as this engine wants it."""
        # The loss reads the logits, and changes nothing in place: no view of them is lost.
        warnings.filterwarnings("ignore", message=".*returned a view tensor", category=UserWarning)
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        return model

    def gradients_kept_back(self) -> contextlib.AbstractContextManager[None]:
        """Send after each micro-batch: what arrives adds up, and nobody keeps a whole gradient."""
        return contextlib.nullcontext()


def _as(whole: Tensor, p: Tensor) -> Tensor:
    """Return a tensor laid out as a parameter is; one that is so already stays itself."""
    if isinstance(p, DTensor) and not isinstance(whole, DTensor):
        return distribute_tensor(whole.to(p.device), p.device_mesh, p.placements)
    return whole


def _numbers(optimizer: Optimizer) -> dict[Tensor, int]:
    """Return the numbers of an optimizer's parameters, which count through all groups."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return {p: number for number, p in enumerate(params)}


def _name_of(model: nn.Module, wanted: Tensor) -> str:
    return next(name for name, p in model.named_parameters() if p is wanted)
