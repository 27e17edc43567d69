"""Batches of packed rows: whole documents in rows, shuffled, and no position to remember.

The documents of the shards are packed once, best-fit; an epoch goes through the rows in a shuffled
order.  As in `order`, where a run stands is one number, the step, for every world size.

Shape suffixes:  B batch of this rank, T time (tokens), N rows asked for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64

from llmcourse.data.order import Batches
from llmcourse.data.packing import PackedRows, Packing, best_fit, packed_rows
from llmcourse.data.shards import TokenShards


class PackedBatches(Batches):
    """The batches of one rank, as `Batches`, of rows in which whole documents stand.

    A document ends with its end token.  One that is longer than a row is cut, and its pieces are
    documents of their own.  A row of `context_length` tokens asks for one token less per document.

    Memory: two numbers for every document.

    Args:
        shards: where the tokens are.
        batch_size: rows per step of *this rank*, 1 or more.
        context_length: tokens of a row, 1 or more.
        end_id: the token that ends a document.
        rank: from 0 to world_size - 1.
        world_size: number of ranks.
        seed: of the order, 0 or greater.

    Raises:
        ValueError: if a setting is outside its range, or the documents do not fill one global
            batch.
    """

    def __init__(
        self,
        shards: TokenShards,
        batch_size: int,
        context_length: int,
        *,
        end_id: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
    ) -> None:
        self.documents = Documents(shards, end_id)
        self.packing = best_fit(self.documents.lengths, context_length)
        super().__init__(shards, batch_size, context_length, rank, world_size, seed)

    @property
    def num_windows(self) -> int:
        """Rows of an epoch."""
        return len(self.packing.rows)

    def starts(self, step: int) -> Int64[np.ndarray, " B"]:
        """Refuse: a packed row begins nowhere in the shards.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"packed rows have no starts, of step {step} or any: use windows(step)")

    def batch(self, step: int) -> PackedRows:
        """Return the rows of this rank at a step.

        Raises:
            ValueError: if the step is negative.
        """
        return self.rows(self.windows(step))

    def rows(self, numbers: Int64[np.ndarray, " N"]) -> PackedRows:
        """Return rows by their numbers, from 0 to num_windows - 1."""
        chosen = Packing([self.packing.rows[n] for n in numbers], self.context_length)
        return packed_rows(self.documents, chosen, padding_id=self.documents.end_id)

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "order": "packed", "end_id": self.documents.end_id}


class Documents(Sequence[list[int]]):
    """The documents of some shards, each read when it is asked for.

    Args:
        shards: where the tokens are.
        end_id: the token that ends a document.
    """

    def __init__(self, shards: TokenShards, end_id: int) -> None:
        self.shards, self.end_id = shards, end_id
        ends = np.flatnonzero(shards[: len(shards)] == end_id) + 1
        if not len(ends) or ends[-1] < len(shards):
            ends = np.append(ends, len(shards))
        self._starts = np.concatenate(([0], ends[:-1])).tolist()
        self.lengths: list[int] = np.diff(ends, prepend=0).tolist()

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> list[int]:  # type: ignore[override]  # takes no slice
        start = self._starts[number]
        return self.shards[start : start + self.lengths[number]].tolist()
