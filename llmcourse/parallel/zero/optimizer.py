"""ZeRO's stages 1 and 2: every rank keeps, and updates with, its shard of the optimizer state.

AdamW treats every entry by itself, so it needs to see only the entries that it updates.  Each of n
ranks runs it on 1/n of them, and then they exchange the results: a reduce-scatter of gradients and
an all-gather of parameters, which together send what an all-reduce of gradients sends.
"""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from llmcourse.optim.adamw import LightOptimizer
from llmcourse.parallel.collectives import broadcast
from llmcourse.parallel.data_parallel import cut_buckets
from llmcourse.parallel.world import Axis
from llmcourse.parallel.zero.bucket import Bucket, clip_shards
from llmcourse.parallel.zero.flat_layout import check_parameters
from llmcourse.parallel.zero.states import (
    Pieces,
    ShardPlacement,
    cut_states,
    join_states,
    state_pieces,
)


class ZeroOptimizer(LightOptimizer):
    """An optimizer of single entries, with its state sharded over the ranks of an axis.

    Its groups hold this rank's shards in place of the parameters; schedulers of torch work on them.

    After backward: `sync`, `clip_grad_norm` if wanted, `step`, `zero_grad`.  At stage 1 `sync`
    leaves gradients in full, with this rank's shard of them reduced; at stage 2 it leaves the shard
    alone.  A parameter that was not used has a gradient of zero then.  Rank 0's parameters are
    copied to the others at the start; buffers are not.  What is frozen stays whole, and as it is.

    Args:
        params: tensors, or groups of them as dicts.
        optimizer_class: such as `optim.AdamW`; made with this rank's shards.
        axis: the ranks; equal shapes on each.
        stage: 1 or 2.
        average: the gradient is the mean over ranks, else the sum.
        ordered: sum gradients in the order of ranks, so that the sum of given gradients does not
            depend on how parameters are grouped and cut.
        bucket_bytes: shard buckets of about this size, one after the other; at stage 2 each is
            reduced as soon as backward has filled it, so that only a few buckets' gradients exist
            in full at a time; every rank has to use the same parameters then.  None is one bucket
            per group, which `sync` reduces.
        settings: of the optimizer, such as lr.

    Raises:
        ValueError: if the stage is not 1 or 2, a size is not positive, or a parameter is there
            twice, not contiguous or of a second dtype; if all are frozen.

    Source:
        Rajbhandari et al. 2020, section 5, https://arxiv.org/abs/1910.02054
    """

    _is_made = False

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[torch.optim.Optimizer],
        axis: Axis,
        *,
        stage: int = 1,
        average: bool = True,
        ordered: bool = False,
        bucket_bytes: int | None = None,
        **settings: Any,
    ) -> None:
        if stage not in (1, 2):
            raise ValueError(f"stage must be 1 or 2, got {stage}; stage 3 is FullyShardedModel")
        self.stage, self.axis = stage, axis
        # Number the parameters through all groups, as an optimizer's state does.
        groups = list(params)
        if groups and not isinstance(groups[0], Mapping):
            groups = [{"params": groups}]
        count = itertools.count()
        self._numbered = [{next(count): p for p in group["params"]} for group in groups]
        trained = [{n: p for n, p in g.items() if p.requires_grad} for g in self._numbered]
        check_parameters({n: p for group in trained for n, p in group.items()})
        for p in (p for g in self._numbered for p in g.values() if not p.requires_grad):
            broadcast(p.detach(), axis)  # frozen: whole on every rank
        # Cut every group into buckets, and every bucket into shards.
        self._buckets: list[Bucket] = []
        shard_groups = []
        for group, numbered in zip(groups, trained, strict=True):
            limit = sys.maxsize if bucket_bytes is None else bucket_bytes
            numbers = iter(numbered)
            made = [
                Bucket({next(numbers): p for p in part}, axis)
                for part in cut_buckets(numbered.values(), limit)
            ]
            shards = [shard for bucket in made for shard in bucket.shards.values()]
            shard_groups.append({**group, "params": shards})
            self._buckets += made
        self._shards: dict[int, Tensor] = {}
        self._places: dict[int, ShardPlacement] = {}
        for bucket in self._buckets:
            self._shards |= bucket.shards
            self._places |= bucket.places
        # The optimizer itself has this rank's shards alone.
        self.optimizer = optimizer_class(shard_groups, **settings)
        super().__init__(shard_groups, self.optimizer.defaults)
        self._share()
        self._is_made = True
        # At stage 2 with buckets, backward itself reduces those that are full.
        self._settings = {"keep_full": stage == 1, "average": average, "ordered": ordered}
        self._paused = self._synced = False
        if stage == 2 and bucket_bytes is not None:
            for bucket in self._buckets:
                for number, p in bucket.params.items():
                    p.register_post_accumulate_grad_hook(partial(self._arrived, bucket, number))

    def _share(self) -> None:
        """Have the groups and the state of the optimizer of the shards as one's own."""
        self.param_groups, self.state = self.optimizer.param_groups, self.optimizer.state

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave gradients of backward passes inside as they are, to be added up."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def sync(self) -> None:
        """Reduce gradients over the ranks, each rank its shard.

        At stage 2 gradients in full are gone after it, and several calls add up; at stage 1 the
        result is written into the gradients, so it is called once per step.

        Raises:
            RuntimeError: if stage 1 is asked twice.
        """
        if self.stage == 1 and self._synced:
            raise RuntimeError(
                "sync was called twice without zero_grad: at stage 1 call it once per step, after "
                "the last backward"
            )
        for bucket in self._buckets:
            # What backward has reduced is done; a bucket that it never filled is not.
            if bucket.has_gradients() or not bucket.is_reduced:
                bucket.reduce_scatter(**self._settings)
            bucket.expect()
        self._synced = True

    def clip_grad_norm(self, max_norm: int | float) -> float:
        """Scale the gradient so that its norm, over all ranks' shards, is at most `max_norm`.

        Returns:
            The norm before.

        Raises:
            RuntimeError: if there are gradients that `sync` has not seen.
        """
        return clip_shards(self.shards_with_gradients().values(), self.axis, max_norm)

    def shards_with_gradients(self) -> dict[int, Tensor]:
        """Return this rank's shards by the numbers of their parameters, with their `.grad`.

        Raises:
            RuntimeError: if there are gradients that `sync` has not seen.
        """
        late = self.stage == 2 and any(bucket.has_gradients() for bucket in self._buckets)
        if late or not self._synced:
            raise RuntimeError("gradients are not reduced: call sync() after the last backward")
        return self._shards

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this rank's shard, and get the others' from the other ranks.

        Args:
            closure: makes the gradients first, and ends with `sync`.

        Returns:
            What `closure` returns; None without one.

        Raises:
            RuntimeError: if there are gradients that `sync` has not seen.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.shards_with_gradients()
        self.optimizer.step()
        for bucket in self._buckets:
            bucket.all_gather()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, those of parameters and those of shards.

        Raises:
            ValueError: if they are to be kept as zeros, which take memory.
        """
        if not set_to_none:
            raise ValueError("set_to_none must be True: gradients of zero take memory")
        self._synced = False
        for bucket in self._buckets:
            bucket.zero_grad()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take a group while the optimizer is made; afterwards the shards are cut.

        Raises:
            ValueError: if the optimizer is made already.
        """
        if self._is_made:
            raise ValueError("the shards are cut when the optimizer is made: give all groups then")
        super().add_param_group(param_group)

    def state_dict(self) -> NoReturn:
        """Refuse: one rank has a part of the state, and the ranks put it together.

        Raises:
            ValueError: always.
        """
        raise ValueError("a rank has a part of the state: call full_state_dict() on every rank")

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> NoReturn:
        """Refuse, as `state_dict` does.

        Raises:
            ValueError: always.
        """
        raise ValueError("a rank has a part of the state: call load_full_state_dict(full) on each")

    def full_state_dict(self) -> dict[str, Any]:
        """Return, on every rank, the state that the optimizer itself would have without shards."""
        states = join_states(self._states(), self._places, self.axis)
        return {"state": states, "param_groups": self._full_groups()}

    def state_pieces(self) -> tuple[Pieces, list[dict[str, Any]]]:
        """Return this rank's pieces of `full_state_dict`, which stay where they are; the groups."""
        return state_pieces(self._states(), self._places, self.axis), self._full_groups()

    def load_full_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `full_state_dict`, or the optimizer itself without shards, returned.

        Raises:
            ValueError: if the groups have other numbers of parameters.
        """
        theirs = [len(group["params"]) for group in state["param_groups"]]
        ours = [len(group) for group in self._numbered]
        if theirs != ours:
            raise ValueError(f"the groups have {ours} parameters, those of the state {theirs}")
        full = {number: s for number, s in state["state"].items() if number in self._shards}
        mine = cut_states(full, self._places, self.axis.index)
        # The optimizer numbers the shards that this rank has, not the parameters.
        numbers = {number: own for own, number in enumerate(self._shards)}
        pairs = zip(state["param_groups"], self.optimizer.state_dict()["param_groups"], strict=True)
        groups = [{**given, "params": own["params"]} for given, own in pairs]
        states = {numbers[number]: each for number, each in mine.items()}
        self.optimizer.load_state_dict({"state": states, "param_groups": groups})
        self._share()

    def _states(self) -> dict[int, dict[str, Any]]:
        """Return the state of this rank's shards."""
        state = self.optimizer.state
        return {number: state[s] for number, s in self._shards.items() if s in state}

    def _full_groups(self) -> list[dict[str, Any]]:
        """Return the groups with the numbers of all parameters."""
        pairs = zip(self.param_groups, self._numbered, strict=True)
        return [{**group, "params": list(numbered)} for group, numbered in pairs]

    def _arrived(self, bucket: Bucket, number: int, _: Tensor) -> None:
        """Reduce a bucket, in the middle of backward, once its last gradient is there."""
        if self._paused:
            return
        bucket.missing.discard(number)
        if not bucket.missing:
            bucket.reduce_scatter(**self._settings)
