"""checkpoint.shards: from any number of ranks to any other; what is not whole is refused."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.checkpoint import shards
from llmcourse.checkpoint.shards import (
    ShardRange,
    read_index,
    read_pieces,
    write_index,
    write_shard,
)

CONTENT = {"step": 3, "config": {"a": 1}, "generators": {"g": torch.arange(4, dtype=torch.uint8)}}


def tensors(seed=0):
    g = torch.Generator().manual_seed(seed)
    found = {f"w{i}": torch.randn(s, generator=g) for i, s in enumerate([(3, 4), (5,), (), (0, 2)])}
    return found | {"narrow": torch.randn(7, generator=g).bfloat16()}


def written(folder, num_ranks, seed=0, draw=None):
    whole = tensors(seed)
    pieces = [{} for _ in range(num_ranks)]
    for name, x in whole.items():
        even = [x.numel() * r // num_ranks for r in range(1, num_ranks)]
        bounds = even if draw is None else sorted(draw(x.numel(), num_ranks - 1))
        edges = itertools.pairwise([0, *bounds, x.numel()])
        for rank, (first, last) in enumerate(edges):
            pieces[rank][name] = ShardRange(first, x.flatten()[first:last])
    for rank, mine in enumerate(pieces):
        write_shard(folder, mine, rank=rank, num_ranks=num_ranks)
    write_index(folder, {n: tuple(x.shape) for n, x in whole.items()}, CONTENT, num_ranks=num_ranks)
    return whole


@given(data=st.data(), num_ranks=st.integers(1, 5), readers=st.integers(1, 5))
def test_any_number_of_ranks_reads_what_any_number_wrote(data, num_ranks, readers, tmp_path):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))

    def draw(size, count):
        return data.draw(st.lists(st.integers(0, size), min_size=count, max_size=count))

    whole = written(folder, num_ranks, draw=draw)
    content = read_index(folder)["content"]
    assert (content["step"], content["config"]) == (3, {"a": 1})
    assert torch.equal(content["generators"]["g"], CONTENT["generators"]["g"])
    for name, x in read_pieces(folder).items():
        assert x.dtype == whole[name].dtype
        assert torch.equal(x, whole[name])
    for reader in range(readers):
        shares = (reader / readers, (reader + 1) / readers)
        wanted = {n: tuple(int(x.numel() * share) for share in shares) for n, x in whole.items()}
        for name, x in read_pieces(folder, wanted).items():
            first, last = wanted[name]
            assert torch.equal(x, whole[name].flatten()[first:last])


def test_a_file_holds_its_pieces_and_not_the_whole(tmp_path):
    big = torch.zeros(100_000)
    path = write_shard(tmp_path, {"big": ShardRange(0, big[:1_000])}, rank=0, num_ranks=2)
    assert path.stat().st_size < 8_000


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([(0, 2), (3, 5)], "w: entries 2 to 3 are missing"),
        ([(0, 3), (2, 5)], "w: entries 2 to 3 are in two files"),
        ([(0, 2), (2, 4)], "w: the files hold 4 entries of 5"),
        ([(1, 3), (3, 5)], "w: entries 0 to 1 are missing"),
    ],
)
def test_gaps_and_overlaps_are_refused(pieces, message, tmp_path):
    x = torch.arange(5)
    for rank, (first, last) in enumerate(pieces):
        write_shard(tmp_path, {"w": ShardRange(first, x[first:last])}, rank=rank, num_ranks=2)
    with pytest.raises(ValueError, match=message):
        write_index(tmp_path, {"w": (5,)}, {}, num_ranks=2)


def test_a_file_of_another_step_lost_or_damaged_is_named(tmp_path):
    written(tmp_path / "a", 2)
    written(tmp_path / "b", 2, seed=1)
    name = "rank_00001_of_00002.ckpt"
    shutil.copy(tmp_path / "b" / name, tmp_path / "a" / name)
    with pytest.raises(ValueError, match="not the file that the index was written for"):
        read_pieces(tmp_path / "a")
    (tmp_path / "b" / shards.INDEX).unlink()
    with pytest.raises(ValueError, match="no whole checkpoint: it has no index"):
        read_pieces(tmp_path / "b")
    written(tmp_path, 2)
    path = tmp_path / "rank_00000_of_00002.ckpt"
    raw = bytearray(path.read_bytes())
    raw[-20] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"rank_00000_of_00002.ckpt is damaged"):
        read_pieces(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="not the file that the index"):
        read_pieces(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=r"rank_00000_of_00002.ckpt is missing"):
        read_pieces(tmp_path)


def test_bad_requests_are_refused_and_the_index_waits_for_every_rank(tmp_path):
    written(tmp_path / "whole", 2)
    two, odd = (ShardRange(first, torch.ones(2)) for first in (0, -1))
    write_shard(tmp_path, {"w": two}, rank=0, num_ranks=2)
    write_shard(tmp_path, {"odd": two}, rank=0, num_ranks=1)
    for call, message in (
        (lambda: read_pieces(tmp_path / "whole", {"w1": (2, 9)}), "w1: .* no entries 2 to 9"),
        (lambda: read_pieces(tmp_path / "whole", {"no": (0, 1)}), "no: there are no entries"),
        (lambda: write_shard(tmp_path, {}, rank=2, num_ranks=2), "rank must be from 0 to 1, got 2"),
        (lambda: write_shard(tmp_path, {"w": odd}, rank=0, num_ranks=1), "begins at 0 or later"),
        (lambda: write_index(tmp_path, {}, {"config": print}, num_ranks=2), "config"),
        (lambda: write_index(tmp_path, {}, {}, num_ranks=1), "'odd', which has no shape"),
        (lambda: write_index(tmp_path, {"w": (2,)}, {}, num_ranks=2), "00001_of_00002.ckpt is"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            call()
    assert not (tmp_path / shards.INDEX).exists()
