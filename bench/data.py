"""Batches per second from shards, against torch's DataLoader and random crops of a memmap."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from bench.timing import medians, row
from llmcourse.data import Batches, TokenShards, write_shards

VOCAB_SIZE = 512
NUM_TOKENS = 4_000_000
SHAPES = {"24 x 64": (24, 64), "8 x 1024": (8, 1024)}


class Windows(Dataset):
    """The same windows as `Batches` has, one at a time, over one mapped file."""

    def __init__(self, path: Path, context: int) -> None:
        self.ids = np.memmap(path, dtype=np.uint16, mode="r")
        self.context = context

    def __len__(self) -> int:
        return (len(self.ids) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.context
        window = torch.from_numpy(self.ids[start : start + self.context + 1].astype(np.int64))
        return window[:-1], window[1:]


def data_loader(path: Path, batch: int, context: int):
    """torch's own: a sampler, a dataset and a collate function, in this process."""
    loader = DataLoader(
        Windows(path, context),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(0),
    )
    return itertools.chain.from_iterable(itertools.repeat(loader))


def random_crops(path: Path, batch: int, context: int):
    """What nanoGPT does: random places with replacement, from a file that is mapped every time."""
    g = torch.Generator().manual_seed(0)
    while True:
        ids = np.memmap(path, dtype=np.uint16, mode="r")
        starts = torch.randint(len(ids) - context, (batch,), generator=g).tolist()
        inputs = [torch.from_numpy(ids[s : s + context].astype(np.int64)) for s in starts]
        targets = [torch.from_numpy(ids[s + 1 : s + 1 + context].astype(np.int64)) for s in starts]
        yield torch.stack(inputs), torch.stack(targets)


def taking(batches, count: int):
    """Return a function that takes so many batches."""

    def take() -> None:
        for _ in range(count):
            next(batches)

    return take


def rows(quick: bool = False) -> list[dict]:
    """Return every row of this benchmark."""
    ids = np.random.default_rng(0).integers(0, VOCAB_SIZE, NUM_TOKENS).astype(np.uint16)
    count, found = 50 if quick else 200, []
    with tempfile.TemporaryDirectory() as name:
        folder, plain = Path(name) / "shards", Path(name) / "plain.bin"
        ids.tofile(plain)
        write_shards(
            ids, folder, tokenizer_fingerprint="bench", vocab_size=VOCAB_SIZE, shard_tokens=10**6
        )
        for shape, (batch, context) in SHAPES.items():
            peers = {
                "torch DataLoader, same windows": data_loader(plain, batch, context),
                "random crops of a memmap, as in nanoGPT": random_crops(plain, batch, context),
            }
            sides = {"ours": Batches(TokenShards(folder), batch, context), **peers}
            seconds = medians(
                {side: taking(batches, count) for side, batches in sides.items()},
                repeats=3 if quick else 11,
            )
            found += [
                row(
                    f"batches from shards, {shape}",
                    count / seconds["ours"],
                    count / seconds[peer],
                    peer,
                    "batches/s",
                    aim=">= 1.0",
                )
                for peer in peers
            ]
    return found
