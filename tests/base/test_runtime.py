"""runtime: seeded and restored generators, fingerprints, atomic files, and the fast product."""

import errno
import os
import random
import sys
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from llmcourse.base import checks, files, pairs, progress, runtime


def test_a_generator_is_its_seed_and_global_ones_are_put_back_exactly(restored_process):
    draws = [torch.randn(4, generator=runtime.generator(seed)) for seed in (3, 3, 4)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(draws[0], torch.randn(4, generator=torch.Generator().manual_seed(3)))
    runtime.set_up(seed=1)
    global_draws()  # an odd number of gaussians: each library keeps one in reserve
    state = runtime.global_rng_state()
    first = global_draws()
    assert global_draws() != first
    runtime.restore_global_rng_state(state)
    assert global_draws() == first


def test_devices_by_name_and_an_accelerator_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert runtime.device() == runtime.device("auto") == torch.device("cpu")
    for name, fact in (("cuda", "not present here; present: cpu"), ("toaster", "got 'toaster'")):
        with pytest.raises(ValueError, match=fact):
            runtime.device(name)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    assert runtime.device() == torch.device("cpu")
    assert runtime.device("auto") == torch.device("cuda")
    assert runtime.device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ValueError, match="'mps' is not present here; present: cpu, cuda"):
        runtime.device("mps")


@pytest.fixture
def restored_process():
    state = runtime.global_rng_state()
    deterministic = torch.are_deterministic_algorithms_enabled()
    yield
    runtime.restore_global_rng_state(state)
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    torch.set_num_threads(1)


def global_draws():
    python = [random.random(), random.gauss(0, 1)]
    return [*python, *np.random.rand(2), np.random.randn(), *torch.rand(3).tolist()]


def test_set_up_seeds_everything_and_asks_for_determinism(restored_process):
    runtime.set_up(seed=5)
    first = global_draws()
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 1
    runtime.set_up(seed=5)
    assert global_draws() == first
    runtime.set_up(seed=6)
    assert all(a != b for a, b in zip(global_draws(), first, strict=True))


def state_without(name):
    return {n: state for n, state in runtime.global_rng_state().items() if n != name}


REFUSED = {
    "num_threads must be 1 or greater, got 0": lambda: runtime.set_up(num_threads=0),
    "got -2": lambda: runtime.set_up(seed=-2),
    "seed must be 0 or greater, got -1": lambda: runtime.generator(-1),
} | {
    rf"the state lacks \['{n}'\]": lambda n=n: runtime.restore_global_rng_state(state_without(n))
    for n in ("python", "numpy", "torch")
}


@pytest.mark.parametrize("fact", REFUSED)
def test_set_up_and_states_that_cannot_be_are_refused(fact, restored_process):
    with pytest.raises(ValueError, match=fact):
        REFUSED[fact]()


TENSORS = {"a": torch.tensor([[1.0, -0.0]]), "b": torch.tensor([3], dtype=torch.int64)}
OTHER_TENSORS = {
    "one bit": {**TENSORS, "a": torch.tensor([[1.0, 0.0]])},
    "a name": {"a": TENSORS["a"], "c": TENSORS["b"]},
    "a shape": {**TENSORS, "a": TENSORS["a"].T},
    "a dtype": {**TENSORS, "b": TENSORS["b"].view(torch.float64)},
    "one fewer": {"a": TENSORS["a"]},
}


@pytest.mark.parametrize("change", OTHER_TENSORS)
def test_a_fingerprint_notices(change):
    kinds = torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(1.0), torch.empty(0, 2)
    assert len({runtime.fingerprint({"x": x}) for x in kinds}) == 3
    again = {"b": TENSORS["b"].clone(), "a": TENSORS["a"].T.contiguous().T}
    assert runtime.fingerprint(again) == runtime.fingerprint(TENSORS)
    assert runtime.fingerprint(OTHER_TENSORS[change]) != runtime.fingerprint(TENSORS)


def test_progress_is_silent_away_from_a_terminal(capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    bar = progress.bar(total=2, desc="silent")
    bar.update(2)
    bar.close()
    assert bar.disable
    assert capsys.readouterr() == ("", "")


@given(
    sides=st.tuples(*[st.integers(1, 40)] * 3),
    threshold=st.sampled_from([0, 10_000]),
    transposed=st.booleans(),
    products=st.sampled_from(["torch", "onednn"]),
)
def test_product_equals_torch(sides, threshold, transposed, products):
    rows, inner, columns = sides
    g = torch.Generator().manual_seed(rows * 1600 + inner * 40 + columns)
    x = torch.randn((inner, rows) if transposed else (rows, inner), generator=g)
    x = x.T if transposed else x
    w = torch.randn(columns, inner, generator=g)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_ONEDNN_MIN_PRODUCTS", threshold)
        if pairs._ONEDNN_LINEAR is not None:
            patch.setattr(pairs, "PRODUCTS", products)
        ours = pairs.matmul_nt(x, w)
        wide = pairs.matmul_nt(x.double(), w.double())  # another dtype falls back to torch
    assert torch.equal(wide, x.double() @ w.double().T)
    assert checks.relative_error(ours, wide.float()) < 1e-5


@pytest.mark.parametrize("products", ["torch", "onednn"])
def test_torchs_counter_of_flops_knows_the_product(generator, monkeypatch, products):
    if pairs._ONEDNN_LINEAR is None:
        pytest.skip("a build of torch without oneDNN")
    monkeypatch.setattr(pairs, "PRODUCTS", products)
    x, w = (torch.randn(rows, 80, generator=generator) for rows in (1_000, 224))
    with FlopCounterMode(display=False) as counter:
        pairs.matmul_nt(x, w)
    assert counter.get_total_flops() == 2 * 1_000 * 80 * 224


CPUINFO = """processor\t: 0
vendor_id\t: {vendor}
cpu family\t: {family}
model name\t: of no interest

processor\t: 1
vendor_id\t: AuthenticAMD
cpu family\t: 26
"""


@pytest.mark.parametrize(
    ("vendor", "family", "capability", "chosen"),
    [
        ("AuthenticAMD", 26, "AVX512", "onednn"),
        ("AuthenticAMD", 27, "AVX512", "onednn"),
        ("AuthenticAMD", 26, "AVX2", "torch"),  # AVX-512 there, but switched off
        ("AuthenticAMD", 25, "AVX512", "torch"),  # Zen 4: no faster
        ("AuthenticAMD", 25, "AVX2", "torch"),  # Zen 3: slower
        ("GenuineIntel", 6, "AVX512", "torch"),
        ("GenuineIntel", 26, "AVX512", "torch"),
    ],
)
def test_products_are_chosen_by_the_processor(
    *, vendor, family, capability, chosen, tmp_path, monkeypatch
):
    monkeypatch.delenv("LLMCOURSE_PRODUCTS", raising=False)
    monkeypatch.setattr(pairs, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(pairs, "_ONEDNN_LINEAR", lambda *_: None)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert pairs.choose_products() == "torch"  # there is no such file on other systems
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(vendor=vendor, family=family))
    assert pairs.choose_products() == chosen
    for wanted in ("torch", "onednn"):
        monkeypatch.setenv("LLMCOURSE_PRODUCTS", wanted)
        assert pairs.choose_products() == wanted


def test_products_that_do_not_exist_are_refused(monkeypatch):
    both = ("mkl", lambda *_: None, "torch or onednn")
    for asked, there, allowed in (both, ("onednn", None, "torch")):
        monkeypatch.setenv("LLMCOURSE_PRODUCTS", asked)
        monkeypatch.setattr(pairs, "_ONEDNN_LINEAR", there)
        with pytest.raises(ValueError, match=f"must be {allowed}, got '{asked}'"):
            pairs.choose_products()


class Saved(NamedTuple):
    x: torch.Tensor


def test_differentiable_uses_the_given_backward(generator):
    def forward(x, factor):
        return x * factor, Saved(x)

    square = pairs.differentiable(forward, lambda dy, saved: (dy * 7 * saved.x,))
    x = torch.randn(3, generator=generator, requires_grad=True)
    y = square(x, 2.0)
    assert torch.equal(y.detach(), 2 * x.detach())
    (dx,) = torch.autograd.grad(y, x, torch.ones(3))
    assert torch.equal(dx, 7 * x.detach())


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_an_atomic_file_replaces_the_old_one_and_names_of_folders_reach_disk(tmp_path, monkeypatch):
    path = tmp_path / "new" / "folder" / "file.txt"
    for content in (b"old", b"newer"):
        with files.write_atomically(path) as file:
            file.write(content)
            assert path.exists() == (content == b"newer"), "the name appeared too early"
        assert path.read_bytes() == content
    assert names(path.parent) == ["file.txt"]
    (tmp_path / "ordinary").touch()
    assert path.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    synced = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    for _ in range(2):  # the second time, the folders are there
        with files.write_atomically(tmp_path / "a" / "b" / "file") as file:
            file.write(b"x")
        synced.append(None)
    a, b = tmp_path / "a", tmp_path / "a" / "b"
    assert synced == [a, tmp_path, b, None, b, None]


def test_the_order_is_write_fsync_rename_fsync_folder(tmp_path, monkeypatch):
    happened = []
    fsync, replace = os.fsync, type(tmp_path).replace
    folder_inode = tmp_path.stat().st_ino

    def seen_fsync(descriptor):
        status = os.fstat(descriptor)
        of_folder = status.st_ino == folder_inode
        happened.append("fsync folder" if of_folder else f"fsync {status.st_size} bytes")
        fsync(descriptor)

    def seen_replace(path, target):
        happened.append(f"rename to {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(type(tmp_path), "replace", seen_replace)
    with files.write_atomically(tmp_path / "file") as file:
        file.write(b"x" * 100)
    assert happened == ["fsync 100 bytes", "rename to file", "fsync folder"]


def write(path, content=b"new", *, then=lambda: None):
    with files.write_atomically(path) as file:
        file.write(content)
        then()


DAMAGES = {"an interruption": None, "a full disk at fsync": "fsync", "at the rename": "replace"}


@pytest.mark.parametrize("where", DAMAGES.values(), ids=DAMAGES)
def test_an_exception_or_a_full_disk_leaves_the_old_file(where, tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    if where:
        monkeypatch.setattr(os if where == "fsync" else type(tmp_path), where, full)
        with pytest.raises(OSError, match="cannot write: No space left on device") as caught:
            write(path)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    else:
        with pytest.raises(KeyboardInterrupt):
            write(path, b"half of the n", then=mock.Mock(side_effect=KeyboardInterrupt))
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])


def test_a_folder_that_is_a_file_is_refused_and_an_error_about_another_file_is_passed_on(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file.*missing"):
        write(tmp_path / "file", then=(tmp_path / "missing").read_bytes)
    assert names(tmp_path) == []
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(OSError, match="cannot write"):
        write(tmp_path / "taken" / "file")
