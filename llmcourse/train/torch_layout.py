"""Where a run's parts are on torch's own engine: copied by DDP, or in shards by FSDP2.

Taught in: chapters/30_checkpoints.ipynb
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from llmcourse.checkpoint import dcp, folder, store
from llmcourse.checkpoint.flat import moment_name, take_apart
from llmcourse.optim import decay_groups
from llmcourse.train import saving
from llmcourse.train.layout import Layout, share_batches

if TYPE_CHECKING:
    from llmcourse.train.phases import Run

TORCHS_NAMES = {"mean": "exp_avg", "mean_square": "exp_avg_sq"}
"""What torch's AdamW calls the moments, by our names: checkpoints have ours."""
OUR_SETTINGS = ("lr", "betas", "eps", "weight_decay")
"""Of a group of AdamW; torch's has more."""


class TorchLayout(Layout):
    """DDP: every rank holds everything; torch averages gradients during backward."""

    def __init__(self, run: "Run") -> None:
        self.index, self.size = dist.get_rank(), dist.get_world_size()
        self.device = run.device
        # Checkpoints that are written in the background have messages of their own.
        background = run.config.save_in_background
        self.saving_group = dist.new_group(backend="gloo") if background else None
        share_batches(run, self.index, self.size)
        run.layout, run.all_reduce = self, lambda _: None  # backward has done it
        whole, number_of = run.optimizer, _numbers(run.optimizer)
        moments = {number_of[p]: state for p, state in whole.state.items()}
        groups = [
            {**group} for group in decay_groups(run.model, weight_decay=run.config.weight_decay)
        ]
        names = [[_name_of(run.model, p) for p in group["params"]] for group in groups]
        self.module = run.model
        run.model = self.spread_out(run.model)
        params = dict(self.module.named_parameters())
        for group, its_names in zip(groups, names, strict=True):
            group["params"] = [params[name] for name in its_names]
        betas = (run.config.beta1, run.config.beta2)
        eps = whole.param_groups[0]["eps"]
        run.optimizer = torch.optim.AdamW(
            groups, lr=run.config.learning_rate, betas=betas, eps=eps, fused=True
        )
        for p, number in _numbers(run.optimizer).items():
            if number in moments:
                self._set_state(run.optimizer, p, moments[number])

    def spread_out(self, model: nn.Module) -> nn.Module:
        """Return the model as this engine wants it."""
        return DistributedDataParallel(model)

    def clip(self, run: "Run") -> float:
        """Scale the gradient to the largest norm that is allowed; return the norm before."""
        norm = nn.utils.clip_grad_norm_(run.model.parameters(), run.config.clip_norm)
        return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()

    @contextlib.contextmanager
    def whole_model(self, run: "Run") -> Iterator[nn.Module]:
        """Give the model to be run; all ranks run the same, since weights may have to be sent."""
        yield self.module

    def save(self, run: "Run") -> Path | None:
        """Write a Distributed Checkpoint; return its path on the first rank."""
        target, step = run.folder / "checkpoints", run.steps_done
        number = self.told_by_first(folder.next_try(target, step) if self.is_first else 0)
        path = folder.parts_path(target, step, number, "dcp")
        _, rest = take_apart({}, self._optimizer_state(run))
        content = store.content_of_run(**saving.facts(run), **rest)
        shapes = {name: tuple(tensor.shape) for name, tensor in self.tensors(run).items()}
        write = dcp.begin_write(
            path, self.tensors(run), rank=self.index, background_group=self.saving_group
        )

        def finish() -> Path:
            write()
            if self.is_first:
                dcp.write_index(path, shapes, content, num_ranks=self.size)
                folder.prune(path, step, run.config.keep_checkpoints)
            return path

        if self.saving_group is not None:
            run.saver.start(finish)
        else:
            finish()
            dist.barrier()
        return path if self.is_first else None

    def tensors(self, run: "Run", *, fill: bool = False) -> dict[str, Tensor]:
        """Return weights and moments by the names of checkpoints: those of the run, not copies.

        Args:
            run: spread out in this layout.
            fill: make moments of zeros where the optimizer has none yet.
        """
        named = {f"model.{name}": value for name, value in self.module.state_dict().items()}
        for p, number in _numbers(run.optimizer).items():
            if fill and not run.optimizer.state.get(p):
                zeros = {name: torch.zeros_like(p) for name in TORCHS_NAMES}
                self._set_state(run.optimizer, p, {"step": 0, **zeros})
            for ours, theirs in TORCHS_NAMES.items() if run.optimizer.state.get(p) else ():
                named[moment_name(number, ours)] = run.optimizer.state[p][theirs]
        return named

    def set_counts(self, run: "Run", states: Mapping[int, Mapping[str, Any]]) -> None:
        """Set the counts of steps of the optimizer's parameters."""
        for p, number in _numbers(run.optimizer).items():
            run.optimizer.state[p]["step"].fill_(states[number]["step"])

    def _sum(self, value: float) -> float:
        total = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.item()

    def _optimizer_state(self, run: "Run") -> dict[str, Any]:
        """Return counts and groups as our own AdamW would save them; moments are `tensors`."""
        numbers = _numbers(run.optimizer)
        states = {
            numbers[p]: {"step": int(state["step"])} for p, state in run.optimizer.state.items()
        }
        groups = [
            {
                **{key: group[key] for key in OUR_SETTINGS},
                "params": [numbers[p] for p in group["params"]],
            }
            for group in run.optimizer.param_groups
        ]
        return {"state": states, "param_groups": groups}

    @staticmethod
    def _set_state(optimizer: torch.optim.Optimizer, p: Tensor, state: Mapping[str, Any]) -> None:
        """Give torch's AdamW the state that ours has of a whole parameter."""
        optimizer.state[p] = {"step": torch.tensor(float(state["step"]), device=p.device)} | {
            theirs: _as(state[ours], p) for ours, theirs in TORCHS_NAMES.items()
        }


class TorchSharded(TorchLayout):
    """FSDP2: every rank keeps its shard of everything; a block is whole while it runs."""

    def spread_out(self, model: nn.Module) -> nn.Module:
        """Return the model as this engine wants it."""
        # The loss reads the logits, and changes nothing in place: no view of them is lost.
        warnings.filterwarnings("ignore", message=".*returned a view tensor", category=UserWarning)
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)


def spread_by_torch(run: "Run") -> None:
    """Turn a run of one process into this rank's part of a run on torch's engine."""
    TorchSharded(run) if run.config.parallel == "fsdp" else TorchLayout(run)


def _as(whole: Tensor, p: Tensor) -> Tensor:
    """Return a tensor laid out as a parameter is; one that is so already stays itself."""
    if isinstance(p, DTensor) and not isinstance(whole, DTensor):
        return distribute_tensor(whole.to(p.device), p.device_mesh, p.placements)
    return whole


def _numbers(optimizer: torch.optim.Optimizer) -> dict[Tensor, int]:
    """Return the numbers of an optimizer's parameters, which count through all groups."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return {p: number for number, p in enumerate(params)}


def _name_of(model: nn.Module, wanted: Tensor) -> str:
    return next(name for name, p in model.named_parameters() if p is wanted)
