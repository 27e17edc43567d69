"""ZeRO's stages 1 and 2: every rank keeps, and updates with, its shard of the optimizer state.

An optimizer that treats every entry by itself, as SGD and Adam do, needs to see only the entries
that it updates.  So each of n ranks runs it on 1/n of them, and the ranks tell each other the
results: a reduce-scatter of gradients and an all-gather of parameters, which together send what an
all-reduce of gradients sends.

Taught in: chapters/24_zero.ipynb
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from llmcourse.parallel.collectives import broadcast
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero.bucket import Bucket, clip_shards, cut_into_buckets
from llmcourse.parallel.zero.states import Pieces, Place, cut_states, join_states, state_pieces

MASTER = "master"
"""Under this name a full state holds the parameter in the dtype in which it is updated."""


class ZeroOptimizer:
    """Any torch optimizer, with its state sharded over the ranks of an axis.

    Stage 1 leaves gradients whole: they may have been averaged already (by `data_parallel`), or
    `sync` averages this rank's shard of them.  At stage 2, `sync` leaves of the gradients the
    shard alone.  After backward: `sync`, `clip_grad_norm` if wanted, `step`, `zero_grad`.  Rank
    0's parameters are copied to the others at the start; buffers, and parameters that the optimizer
    is not given, are not.

    After `sync`, a parameter that was not used has a gradient of zero.

    Args:
        params: tensors, or groups of them as dicts; those that want no gradient never change.
        optimizer_class: such as `optim.AdamW` or `torch.optim.SGD`; made with this rank's shards.
        axis: the ranks; equal parameters on each.
        stage: 1 or 2.
        whole: give whole parameters to ranks, for an optimizer that looks at more than one entry
            at a time; else a group is cut into equal shards, wherever that divides a parameter.
        average: the gradient is the mean over ranks, else the sum.
        ordered: sum gradients in the order of ranks, so that the sum of given gradients does not
            depend on how parameters are grouped and cut.
        bucket_bytes: shard buckets of about this size, one after the other; at stage 2 each is
            reduced as soon as backward has filled it, so that only a few buckets' whole gradients
            exist at a time; every rank has to use the same parameters then.  None is one bucket
            per group, which `sync` reduces.
        master_dtype: update the shards in this dtype, and keep a copy of them in it.
        settings: of the optimizer, such as lr.

    Raises:
        ValueError: if the stage is not 1 or 2, a size is not positive, a parameter is not
            contiguous, or one is there twice.

    Source:
        Rajbhandari et al. 2020, section 5, https://arxiv.org/abs/1910.02054
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[torch.optim.Optimizer],
        axis: Axis,
        *,
        stage: int = 1,
        whole: bool = False,
        average: bool = True,
        ordered: bool = False,
        bucket_bytes: int | None = None,
        master_dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        if stage not in (1, 2):
            raise ValueError(f"stage must be 1 or 2, got {stage}; stage 3 is FullyShardedModel")
        if bucket_bytes is not None and bucket_bytes < 1:
            raise ValueError(f"bucket_bytes must be positive, got {bucket_bytes}")
        groups = list(params)
        if not groups:
            raise ValueError("there is no parameter to optimize")
        if not isinstance(groups[0], Mapping):
            groups = [{"params": groups}]
        self.stage, self.axis = stage, axis
        self._groups = [{**group, "params": _listed(group["params"])} for group in groups]
        given = [p for group in self._groups for p in group["params"]]
        if len(set(given)) < len(given):
            raise ValueError("a parameter is in the groups twice")
        self._buckets: list[Bucket] = []
        shard_groups = []
        for group, numbered in zip(self._groups, self._numbered(), strict=True):
            made = [
                Bucket(dict(bucket), axis, whole=whole, dtype=master_dtype)
                for bucket in cut_into_buckets(
                    [(number, p) for number, p in numbered if p.requires_grad], bucket_bytes
                )
            ]
            for _, p in numbered:
                if not p.requires_grad:
                    broadcast(p.detach(), axis)
            shards = [shard for bucket in made for shard in bucket.shards.values()]
            shard_groups.append({**group, "params": shards})
            self._buckets += made
        self.optimizer = optimizer_class(shard_groups, **settings)
        """Of this rank's shards; a learning-rate schedule of torch's wants this one."""
        self._sum = {"keep_whole": stage == 1, "average": average, "ordered": ordered}
        self._skip = self._synced = False
        for bucket in self._buckets if stage == 2 and bucket_bytes is not None else ():
            for number, p in bucket.params.items():
                p.register_post_accumulate_grad_hook(partial(self._arrived, bucket, number))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups as given, with this rank's shards in place of the parameters."""
        return self.optimizer.param_groups

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave gradients of backward passes inside as they are, to be added up."""
        before, self._skip = self._skip, True
        try:
            yield
        finally:
            self._skip = before

    def sync(self) -> None:
        """Average over the ranks this rank's shard of the gradient.

        At stage 2 whole gradients are gone after it, and several calls add up; at stage 1 the
        result is written into the whole gradients, so it is called once per step.

        Raises:
            RuntimeError: if stage 1 is asked twice.
        """
        if self.stage == 1 and self._synced:
            raise RuntimeError(
                "sync was called twice without zero_grad: at stage 1 call it once per step, after "
                "the last backward"
            )
        for bucket in self._buckets:
            if not bucket.reduced:
                bucket.reduce(**self._sum)
            bucket.expect()
        self._synced = True

    def clip_grad_norm(self, max_norm: int | float) -> float:
        """Scale the gradient so that its norm, over all ranks' shards, is at most `max_norm`.

        Returns:
            The norm before.
        """
        self._take_gradients()
        return clip_shards(self._shards().values(), self.axis, max_norm)

    def shards_with_gradients(self) -> dict[int, Tensor]:
        """Return this rank's shards by the numbers of their parameters, with their `.grad`."""
        self._take_gradients()
        return self._shards()

    def step(self) -> None:
        """Update this rank's shard, and get the others' from the other ranks.

        Raises:
            RuntimeError: at stage 2, if there are gradients that `sync` has not seen.
        """
        self._take_gradients()
        self.optimizer.step()
        for bucket in self._buckets:
            bucket.gather()
            if self.stage == 1:
                bucket.drop_gradients()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, those of whole parameters and those of shards.

        Raises:
            ValueError: if they are to be kept as zeros, which take memory.
        """
        if not set_to_none:
            raise ValueError("set_to_none must be True: gradients of zero take memory")
        self._synced = False
        for group in self._groups:
            for parameter in group["params"]:
                parameter.grad = None
        for bucket in self._buckets:
            bucket.drop_gradients()
            bucket.expect()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this rank's shards; `full_state_dict` fits other numbers of ranks."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned on this rank of an equal run."""
        self.optimizer.load_state_dict(dict(state))

    def full_state_dict(self) -> dict[str, Any]:
        """Return, on every rank, the state that the optimizer itself would have without shards."""
        states = join_states(self._states(), self._places(), self.axis)
        return {"state": states, "param_groups": self._groups_by_number()}

    def state_pieces(self) -> tuple[Pieces, list[dict[str, Any]]]:
        """Return this rank's pieces of `full_state_dict`, which stay where they are; the groups."""
        return state_pieces(self._states(), self._places(), self.axis), self._groups_by_number()

    def load_full_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `full_state_dict`, or the optimizer itself without shards, returned.

        The parameters are to be loaded before.

        Raises:
            ValueError: if the groups have other numbers of parameters.
        """
        theirs, ours = (
            [len(group["params"]) for group in groups]
            for groups in (state["param_groups"], self._groups)
        )
        if theirs != ours:
            raise ValueError(f"the groups have {ours} parameters, those of the state {theirs}")
        places, shards = self._places(), self._shards()
        whole = {number: dict(s) for number, s in state["state"].items() if number in shards}
        masters = {number: s.pop(MASTER) for number, s in whole.items() if MASTER in s}
        for bucket in self._buckets:
            bucket.refresh(masters)
        mine = cut_states(whole, places, self.axis.index)
        # The optimizer of the shards counts only those that this rank has, bucket by bucket.
        numbers = {number: count for count, number in enumerate(shards)}
        held = [
            sorted(numbers[number] for number, _ in params if number in numbers)
            for params in self._numbered()
        ]
        self.optimizer.load_state_dict(
            {
                "state": {numbers[number]: each for number, each in mine.items()},
                "param_groups": self._with_params(state["param_groups"], held),
            }
        )

    def state_bytes(self) -> int:
        """Return the bytes of optimizer state on this rank, counts of steps left out.

        Copies in `master_dtype` are part of it.
        """
        kept = [x for state in self.optimizer.state.values() for x in state.values()]
        kept += [s for b in self._buckets if b.has_copies for s in b.shards.values()]
        return sum(x.numel() * x.element_size() for x in kept if isinstance(x, Tensor) and x.ndim)

    def _states(self) -> dict[int, dict[str, Any]]:
        """Return the state of this rank's shards, copies of wider dtype included."""
        mine = {
            number: dict(self.optimizer.state[shard])
            for number, shard in self._shards().items()
            if shard in self.optimizer.state
        }
        for bucket in self._buckets if any(b.has_copies for b in self._buckets) else ():
            for number, shard in bucket.shards.items():
                mine.setdefault(number, {})[MASTER] = shard.detach()
        return mine

    def _groups_by_number(self) -> list[dict[str, Any]]:
        numbers = [[number for number, _ in params] for params in self._numbered()]
        return self._with_params(self.param_groups, numbers)

    def _numbered(self) -> list[list[tuple[int, Tensor]]]:
        """Return every group's parameters with their numbers, which count through all groups."""
        count = itertools.count()
        return [[(next(count), p) for p in group["params"]] for group in self._groups]

    def _shards(self) -> dict[int, Tensor]:
        """Return this rank's shards by the numbers of their parameters."""
        return {number: s for bucket in self._buckets for number, s in bucket.shards.items()}

    def _places(self) -> dict[int, Place]:
        return {number: place for b in self._buckets for number, place in b.places.items()}

    def _arrived(self, bucket: Bucket, number: int, _: Tensor) -> None:
        """Reduce a bucket, in the middle of backward, once its last gradient is there."""
        bucket.reduced = False
        if not self._skip and bucket.arrived(number):
            bucket.reduce(**self._sum)

    def _take_gradients(self) -> None:
        """See to it that the shards have their gradients."""
        for bucket in self._buckets:
            if self.stage == 1:
                bucket.take_gradients()
            elif any(p.grad is not None for p in bucket.params.values()):
                raise RuntimeError("there are gradients that no sync has seen: call sync() first")

    @staticmethod
    def _with_params(
        groups: Iterable[Mapping[str, Any]], numbers: Iterable[list[int]]
    ) -> list[dict[str, Any]]:
        """Return groups with numbers in place of parameters."""
        return [{**group, "params": n} for group, n in zip(groups, numbers, strict=True)]


def _listed(params: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """Return the parameters of a group, which may be a single one."""
    return [params] if isinstance(params, Tensor) else list(params)
