"""checkpoint: kill -9 at any moment, any flipped bit, a full disk, and bit-exact resuming."""

import copy
import dataclasses
import errno
import hashlib
import logging
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from llmcourse import __version__, checkpoint, optim
from llmcourse.base import runtime
from llmcourse.checkpoint import latest, list_checkpoints, load, payload_file, restore, save
from llmcourse.data import Batches, TokenShards, write_shards


# --- resuming
class Training:
    """A small run that draws from every generator there is."""

    def __init__(self, shards, make_optimizer=torch.optim.AdamW):
        g = torch.Generator().manual_seed(0)
        self.model = nn.Sequential(nn.Embedding(50, 6), nn.Flatten(), nn.Linear(24, 50))
        for parameter in self.model.parameters():
            nn.init.normal_(parameter, generator=g)
        self.optimizer = make_optimizer(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: 0.9**n)
        self.batches = Batches(shards, 3, 4)
        self.noise = torch.Generator().manual_seed(1)

    def step(self):
        inputs_BT, targets_BT = next(self.batches)
        logits_BV = self.model(inputs_BT)
        logits_BV = logits_BV + 0.1 * torch.randn(logits_BV.shape, generator=self.noise)
        scale = 1 + random.random() + np.random.rand() + torch.rand(())
        (nn.functional.cross_entropy(logits_BV, targets_BT[:, -1]) * scale).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()

    def parts(self):
        whole = {name: getattr(self, name) for name in ("model", "optimizer", "schedule")}
        return whole | {"data": self.batches, "generators": {"noise": self.noise}}

    def fingerprint(self, steps=0):
        for _ in range(steps):
            self.step()
        return runtime.fingerprint(self.model.state_dict())


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    ids = np.random.default_rng(0).integers(0, 50, 200)
    write_shards(ids, folder, tokenizer_fingerprint="t", vocab_size=50, shard_tokens=64)
    return TokenShards(folder)


def seed_globals(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@pytest.fixture(autouse=True)
def same_global_generators():
    """Every test starts from the same global generators and leaves none changed."""
    before = runtime.global_rng_state()
    seed_globals(0)
    yield
    runtime.restore_global_rng_state(before)


def half_way(shards, folder, make_optimizer=torch.optim.AdamW):
    """Train 6 steps, save, train 6 more; return the file and the fingerprint of the weights."""
    training = Training(shards, make_optimizer)
    training.fingerprint(steps=6)
    path = save(folder, step=6, config={"lr": 1e-2}, **training.parts())
    return path, training.fingerprint(steps=6)


def continued(shards, saved, make_optimizer=torch.optim.AdamW, **left_out):
    """Restore into new objects, in a process that has drawn other numbers; train 6 steps."""
    seed_globals(9)
    training = Training(shards, make_optimizer)
    restore(saved, global_generators=True, **(training.parts() | left_out))
    return training.fingerprint(steps=6)


OPTIMIZERS = {
    "torch AdamW": torch.optim.AdamW,
    "torch AdamW, fused": lambda p, lr: torch.optim.AdamW(p, lr=lr, fused=True),
    "torch Adafactor": torch.optim.Adafactor,
    "our AdamW": optim.AdamW,
    "our SGD with momentum": lambda p, lr: optim.SGD(p, lr=lr, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resumed_equals_uninterrupted_bit_for_bit(name, shards, tmp_path):
    path, expected = half_way(shards, tmp_path, OPTIMIZERS[name])
    assert continued(shards, load(path), OPTIMIZERS[name]) == expected


def without(saved, **changes):
    return dataclasses.replace(saved, **changes), {}


def without_global(name):
    def change(saved, _fresh):
        state = {**saved.global_rng, name: runtime.global_rng_state()[name]}
        return without(saved, global_rng=state)

    return change


def with_step_counts_of_zero(saved, _fresh):
    state = copy.deepcopy(saved.optimizer)
    for moments in state["state"].values():
        moments["step"].zero_()
    return without(saved, optimizer=state)


MUTANTS = {
    "without moments": lambda s, f: (without(s, optimizer=None)[0], {"optimizer": None}),
    "without the optimizer's step count": with_step_counts_of_zero,
    "without the schedule": lambda s, f: without(s, schedule=f.schedule.state_dict()),
    "with the schedule saved and not passed": lambda s, f: (s, {"schedule": None}),
    "without the data position": lambda s, f: without(s, data=f.batches.state_dict()),
    "without the named one": lambda s, f: without(s, generators={"noise": f.noise.get_state()}),
    "without Python's generator": without_global("python"),
    "without NumPy's generator": without_global("numpy"),
    "without torch's generator": without_global("torch"),
    "with one bit of one weight changed": lambda s, f: without(
        s, model={**s.model, "2.bias": s.model["2.bias"].nextafter(torch.tensor(9.0))}
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_fingerprint_notices_a_resume(mutant, shards, tmp_path):
    path, expected = half_way(shards, tmp_path)
    seed_globals(5)
    incomplete, left_out = MUTANTS[mutant](load(path), Training(shards))
    assert continued(shards, incomplete, **left_out) != expected


def test_saving_changes_nothing(shards, tmp_path):
    first, second = Training(shards), Training(shards)
    state = runtime.global_rng_state()
    expected = first.fingerprint(steps=4)
    runtime.restore_global_rng_state(state)
    for step in range(4):
        second.step()
        save(tmp_path, step=step, **second.parts())
    assert second.fingerprint() == expected


def test_a_checkpoint_holds_what_was_given(shards, tmp_path):
    training = Training(shards)
    training.step()
    config = {"model": {"width": 6}, "betas": (0.9, 0.95), "name": "x", "none": None, "on": True}
    path = save(tmp_path, step=300, config=config, **training.parts())
    assert path == tmp_path / "step_00000300.ckpt"
    saved = load(path)
    assert saved.step == 300
    assert saved.config == config
    assert saved.code["version"] == __version__
    assert len(saved.code["source_sha256"]) == 64
    with pytest.raises(dataclasses.FrozenInstanceError):
        saved.step = 1


def test_the_code_version_covers_every_source_file(tmp_path, monkeypatch):
    here = checkpoint.code_version()
    package = pathlib.Path(checkpoint.__file__).parents[1]
    sources = {p.relative_to(package).as_posix(): p.read_bytes() for p in package.rglob("*.py")}
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(f"{name} {len(sources[name])}\n".encode() + sources[name])
    assert here["source_sha256"] == digest.hexdigest()


# --- what does not fit
def another_shape(training):
    training.model[2] = nn.Linear(24, 51)
    return {}


def adamw(parameters, made_by=torch.optim):
    return lambda t: {"optimizer": made_by.AdamW(parameters([*t.model.parameters()]), lr=1e-2)}


def changed(**settings):
    return lambda t: {"config": {"model": {"width": 6, "depth": 1}} | settings}


MISFITS = {
    "a missing weight": (
        lambda t: {"model": nn.Sequential(*t.model, nn.Linear(1, 1))},
        "model: '3.bias' is here and not in the checkpoint",
    ),
    "an extra weight": (lambda t: {"model": t.model[:2]}, "model: '2.bias' is in the checkpoint"),
    "another shape": (another_shape, r"model: '2.weight' has shape \(50, 24\) .* \(51, 24\) here"),
    "another dtype": (
        lambda t: {"model": t.model.double()},
        "model: '0.weight' has dtype torch.float32 .* torch.float64",
    ),
    "another optimizer": (adamw(list, optim), "settings .* of group 0 are on one side only"),
    "other groups": (
        adamw(lambda p: [{"params": p[:1]}, {"params": p[1:]}]),
        "optimizer: 1 parameter groups in the checkpoint and 2 here",
    ),
    "fewer parameters": (adamw(lambda p: p[:2]), "0 has 3 parameters in the checkpoint and 2 here"),
    "another order": (adamw(lambda p: p[::-1]), "optimizer: 'exp_avg' of parameter 0 has"),
    "no optimizer": (lambda t: {"optimizer": None}, "optimizer: the checkpoint holds one; pass it"),
    "no data": (lambda t: {"data": None}, "data: the checkpoint holds one; pass it"),
    "other data": (lambda t: {"data": Batches(t.batches.shards, 3, 4, seed=1)}, "with seed = 0"),
    "no generator": (lambda t: {"generators": {}}, "generators: 'noise' is in the checkpoint"),
    "another generator": (
        lambda t: {"generators": {"noise": t.noise, "more": torch.Generator()}},
        "generators: 'more' is here and not in the checkpoint",
    ),
    "another setting": (changed(model={"width": 7, "depth": 1}), "width: the checkpoint has 6, "),
    "a missing setting": (changed(model={"width": 6}), "model: 'depth' is in the checkpoint and"),
    "a new setting": (changed(seed=0), "config: 'seed' is here and not in the checkpoint"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_foreign_checkpoint_is_refused_before_anything_changes(misfit, shards, tmp_path):
    training = Training(shards)
    training.step()
    path = save(tmp_path, step=1, config={"model": {"width": 6, "depth": 1}}, **training.parts())
    here = Training(shards)
    change, message = MISFITS[misfit]
    instead = change(here)
    before, generators = here.fingerprint(), runtime.global_rng_state()
    with pytest.raises(ValueError, match=message):
        restore(load(path), **(here.parts() | instead))
    assert here.fingerprint() == before
    assert here.batches.step == 0
    assert torch.equal(runtime.global_rng_state()["torch"], generators["torch"])


@pytest.mark.parametrize("name", ["optimizer", "data", "schedule", "config"])
def test_what_was_not_saved_cannot_be_restored(name, shards, tmp_path):
    parts = Training(shards).parts() | {"config": {"a": 1}}
    path = save(tmp_path, step=1, **(parts | {name: None}))
    with pytest.raises(ValueError, match=f"{name}: the checkpoint holds none"):
        restore(load(path), **parts)


def test_other_source_code_is_said_and_accepted(shards, tmp_path, caplog):
    training = Training(shards)
    saved = load(save(tmp_path, step=1, **training.parts()))
    restore(saved, **training.parts())
    assert caplog.text == ""
    other, _ = without(saved, code={"version": "0.0.9", "source_sha256": "0" * 64})
    restore(other, **training.parts())
    assert "written by other source code (version 0.0.9)" in caplog.text


# --- the file
def small(folder, step=1, **settings):
    return save(folder, step=step, model={"w": torch.arange(8.0) + step}, **settings)


def test_the_file_is_what_the_layout_says(tmp_path):
    raw = small(tmp_path).read_bytes()
    assert (raw[:8], int.from_bytes(raw[8:12], "little")) == (b"LLMCHKPT", 2)
    assert int.from_bytes(raw[12:20], "little") == len(raw) - 52
    assert raw[20:52] == hash_of_hashes(raw[52:])


def hash_of_hashes(payload, size=2**22):
    pieces = [payload[first : first + size] for first in range(0, len(payload), size)]
    return hashlib.sha256(b"".join(hashlib.sha256(p).digest() for p in pieces)).digest()


@given(sizes=st.lists(st.integers(0, 300_000), max_size=8))
def test_pieces_are_hashed_however_they_come(sizes):
    """100 examples, about 1 s: small parts and large ones, across the borders of pieces."""
    parts = [np.random.default_rng(i).bytes(size) for i, size in enumerate(sizes)]
    with (
        pytest.MonkeyPatch.context() as patch,
        ThreadPoolExecutor(1) as thread,
        tempfile.TemporaryFile() as file,
    ):
        patch.setattr(payload_file, "PIECE_BYTES", 100_000)
        hashing = payload_file._HashingFile(file, thread)
        assert [hashing.write(memoryview(part)) for part in parts] == sizes
        file.seek(0)
        assert file.read() == b"".join(parts)
    digests = b"".join(digest.digest() for digest in hashing.digests)
    assert hashlib.sha256(digests).digest() == hash_of_hashes(b"".join(parts), 100_000)


@pytest.fixture(scope="module")
def of_three_pieces(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.ckpt"
    return save(path, step=1, model={"w": torch.ones(2_500_000)})


def flipped(raw, position, bit=0):
    return raw[:position] + bytes([raw[position] ^ 1 << bit]) + raw[position + 1 :]


@pytest.mark.parametrize(
    "change", [bytes, lambda x: sealed(x[52:])], ids=["version 2", "version 1"]
)
def test_damage_in_any_piece_is_found_in_either_version(change, of_three_pieces, tmp_path):
    raw = change(of_three_pieces.read_bytes())
    (tmp_path / "whole.ckpt").write_bytes(raw)
    assert load(tmp_path / "whole.ckpt").model["w"].sum() == 2_500_000
    for position in (60, 2**22 + 51, 2**22 + 52, 2 * 2**22 + 100, len(raw) - 1):
        (tmp_path / "damaged.ckpt").write_bytes(flipped(raw, position))
        with pytest.raises(ValueError, match="is damaged"):
            load(tmp_path / "damaged.ckpt")


@pytest.fixture(scope="module")
def intact_bytes(tmp_path_factory):
    return small(tmp_path_factory.mktemp("intact")).read_bytes()


@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_and_a_file_cut_short_are_told(where, bit, intact_bytes, tmp_path):
    position = int(where * len(intact_bytes))
    refused(flipped(intact_bytes, position, bit), tmp_path)
    refused(intact_bytes[:position], tmp_path)


def refused(raw, folder):
    path = folder / "step_00000001.ckpt"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"is no checkpoint|layout version|cut short|is damaged"):
        load(path)
    assert latest(folder) is None


def test_damage_of_the_header_and_what_is_no_file_of_ours_are_noticed(intact_bytes, tmp_path):
    for position in range(52):
        refused(flipped(intact_bytes, position, position % 8), tmp_path)
    refused(intact_bytes + b"x", tmp_path)
    path = tmp_path / "step_00000001.ckpt"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        load(path)
    os.mkfifo(path)
    assert latest(tmp_path) is None
    with pytest.raises(ValueError, match="it is no file"):
        load(path)


def sealed(payload):
    header = b"LLMCHKPT" + (1).to_bytes(4, "little") + len(payload).to_bytes(8, "little")
    return header + hashlib.sha256(payload).digest() + payload


def saved_by_torch(content, folder):
    torch.save(content, folder / "plain.pt")
    return (folder / "plain.pt").read_bytes()


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


NOT_OURS = "something else than tensors and plain data"
FOREIGN = {
    "code": (lambda f: saved_by_torch({"model": Touch(f / "owned")}, f), NOT_OURS),
    "garbage": (lambda f: b"garbage", NOT_OURS),
    "a dict": (lambda f: saved_by_torch({"model": {}}, f), "is no training checkpoint"),
    "a list": (lambda f: saved_by_torch([1, 2], f), "is no training checkpoint"),
    "text": (lambda f: saved_by_torch("text", f), "is no training checkpoint"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_others_wrote_under_a_right_header_is_refused_and_does_not_run(case, tmp_path):
    payload, message = FOREIGN[case]
    path = tmp_path / "step_00000001.ckpt"
    path.write_bytes(sealed(payload(tmp_path)))
    with pytest.raises(ValueError, match=message):
        load(path)
    assert not (tmp_path / "owned").exists()


def test_what_save_takes_load_takes(tmp_path, caplog):
    for place in (tmp_path / "folder", tmp_path / "v1.2", tmp_path / "x.ckpt"):
        small(place, 3)
        assert load(place).step == 3
    assert small(tmp_path / "folder", 5) == latest(tmp_path / "folder")
    (tmp_path / "folder/step_00000009.ckpt").write_bytes(b"")
    assert load(tmp_path / "folder").step == 5
    assert "skipping step_00000009.ckpt" in caplog.text
    with pytest.raises(ValueError, match="is a folder without an intact checkpoint"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["x.pt", "x.PTH", "a.b.safetensors", "x.CKPT", "x.bin", "x.dcp"])
def test_a_name_that_promises_a_file_is_refused(name, tmp_path):
    stem = name.rpartition(".")[0]
    with pytest.raises(ValueError, match=f"pass .*/{stem}.ckpt, or .*/{stem} for a folder"):
        small(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).mkdir()
    assert small(tmp_path / name).parent == tmp_path / name


def test_the_programs_own_generators_are_left_alone(shards, tmp_path):
    training = Training(shards)
    saved = load(save(tmp_path, step=1, **training.parts()))
    seed_globals(4)
    restore(saved, **training.parts())
    assert random.random() == random.Random(4).random()
    assert np.random.rand() == np.random.RandomState(4).rand()
    assert torch.rand(()) == torch.rand((), generator=torch.Generator().manual_seed(4))


BAD_STATES = {
    "a path": ({"config": {"out": pathlib.Path("runs")}}, r"config\['out'\] is a \w*Path"),
    "a NumPy number": ({"config": {"lr": np.float64(1)}}, r"config\['lr'\] is a float64"),
    "an array": ({"data": {"x": [np.zeros(2)]}}, r"data\['x'\]\[0\] is a ndarray"),
    "an object": ({"schedule": {"f": optim.warmup_cosine}}, r"schedule\['f'\] is a function"),
    "a step below 0": ({"step": -1}, "step must be 0 or greater, got -1"),
    "none kept": ({"keep_last": 0}, "keep_last must be"),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_what_could_not_be_loaded_again_is_not_saved(case, tmp_path):
    settings, message = BAD_STATES[case]
    plain = settings.keys() <= {"step", "keep_last"}
    with pytest.raises(ValueError if plain else TypeError, match=message):
        small(tmp_path, **settings)
    assert list(tmp_path.iterdir()) == []


# --- the folder
def test_latest_takes_the_newest_by_number_and_no_foreign_name(tmp_path):
    assert latest(tmp_path) is None
    assert latest(tmp_path / "missing") is None
    for step in (900, 99_999_999, 100_000_000, 5):
        small(tmp_path, step)
    steps = [load(path).step for path in list_checkpoints(tmp_path)]
    assert steps == [5, 900, 99_999_999, 100_000_000]
    assert latest(tmp_path).name == "step_100000000.ckpt"
    path = small(tmp_path / "other", 1)
    for name in ("step_2.ckpt", "step_00000002.ckpt.b", ".step_00000002.ckpt.a.tmp", "best.ckpt"):
        path.with_name(name).write_bytes(path.read_bytes())
    assert list_checkpoints(tmp_path / "other") == [path]


def test_latest_skips_a_damaged_file_and_says_so(tmp_path, caplog):
    *_, newest = (small(tmp_path, step) for step in (1, 2, 3))
    raw = newest.read_bytes()
    newest.write_bytes(flipped(raw, len(raw) - 1))
    (tmp_path / "step_00000002.ckpt").write_bytes(b"")
    assert latest(tmp_path) == tmp_path / "step_00000001.ckpt"
    assert [r.levelno for r in caplog.records] == [logging.WARNING] * 2
    facts = (("00000003.ckpt: ", "is damaged"), ("00000002.ckpt: ", "is no checkpoint"))
    for record, (name, why) in zip(caplog.records, facts, strict=True):
        assert f"skipping step_{name}" in record.getMessage()
        assert why in record.getMessage()


def test_a_file_of_ones_own_name_is_replaced_and_the_last_ones_are_kept(tmp_path):
    for step in (4, 5):
        path = small(tmp_path / "best.ckpt", step)
        assert path == tmp_path / "best.ckpt"
        assert load(path).step == step
    assert latest(tmp_path) is None
    for step in (1, 2, 9):
        small(tmp_path, step)
    small(tmp_path, 3, keep_last=2)  # the run was taken back to 2: step 9 belongs to its future
    assert [load(p).step for p in list_checkpoints(tmp_path)] == [2, 3, 9]
    small(tmp_path, 10, keep_last=1)
    assert [load(p).step for p in list_checkpoints(tmp_path)] == [10]


# --- trouble while saving
class FullDisk:
    """A file on which the write number `left` and all after it fail."""

    def __init__(self, file, left, number):
        self.file, self.left, self.number = file, left, number

    def write(self, part):
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))
        return self.file.write(part)

    def __getattr__(self, name):
        return getattr(self.file, name)


def filling_up(monkeypatch, left, number=errno.ENOSPC):
    """Let the next save fail after some writes; return its files."""
    write_payload, files = checkpoint.store.write_payload, []

    def on_full_disk(file, content):
        files.append(FullDisk(file, left, number))
        write_payload(files[-1], content)

    monkeypatch.setattr(checkpoint.store, "write_payload", on_full_disk)
    return files


def test_a_full_disk_at_any_write_is_one_clear_line(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        files = filling_up(patch, 10**9)
        small(tmp_path)
    num_writes = 10**9 - files[0].left
    assert num_writes > 20
    for left in range(num_writes):
        number = (errno.ENOSPC, errno.EFBIG)[left % 2]  # a full disk, or a limit of the system
        with pytest.MonkeyPatch.context() as patch:
            filling_up(patch, left, number)
            with pytest.raises(OSError, match=f"cannot write: {os.strerror(number)}") as caught:
                small(tmp_path, 2)
        assert caught.value.errno == number
        assert caught.value.filename == str(tmp_path / "step_00000002.ckpt")
        assert [p.name for p in tmp_path.iterdir()] == ["step_00000001.ckpt"]
    assert load(latest(tmp_path)).step == 1


# The child saves step 1 whole, then is killed while it saves step 2.
# It runs in a process of its own that forks, so that torch is imported once for all of them.
KILLER = textwrap.dedent("""
    import os, pathlib, random, signal, sys, time
    import torch
    from llmcourse import checkpoint
    from llmcourse.base import runtime
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1])

    def save(folder, step, size=200_000, **settings):
        model = {"w": torch.full((size,), float(step)), "b": torch.ones(3)}
        checkpoint.save(folder, step=step, model=model, **settings)

    def wait_for_death(pipe):
        os.write(pipe, b"x")
        while True:
            time.sleep(1)

    class Hanging:
        def __init__(self, file, calls, pipe):
            self.file, self.calls, self.pipe = file, calls, pipe
        def write(self, part):
            self.calls -= 1
            if self.calls == 0:
                self.file.write(bytes(part)[: len(part) // 2])
                self.file.flush()
                wait_for_death(self.pipe)
            return self.file.write(part)
        def __getattr__(self, name):
            return getattr(self.file, name)

    def hang_in_write(calls):
        def patch(pipe):
            original = checkpoint.store.write_payload
            checkpoint.store.write_payload = lambda file, content: original(
                Hanging(file, calls, pipe), content)
        return patch

    def hang_in(owner, name, before):
        def patch(pipe):
            original = getattr(owner, name)
            calls = [before]
            def hanging(*arguments, **keywords):
                if calls[0] == 0:
                    wait_for_death(pipe)
                calls[0] -= 1
                return original(*arguments, **keywords)
            setattr(owner, name, hanging)
        return patch

    POINTS = {
        "first_write": hang_in_write(1),
        "second_write": hang_in_write(2),
        "tenth_write": hang_in_write(10),
        "thirtieth_write": hang_in_write(30),
        "before_fsync": hang_in(os, "fsync", 0),
        "before_rename": hang_in(pathlib.Path, "replace", 0),
        "before_fsync_of_the_folder": hang_in(os, "fsync", 1),
        "before_the_old_one_is_removed": hang_in(pathlib.Path, "unlink", 0),
    }

    for name, patch in POINTS.items():
        save(root / name, 1)
        ready, pipe = os.pipe()
        child = os.fork()
        if child == 0:
            patch(pipe)
            save(root / name, 2, keep_last=1)
            os._exit(3)
        os.close(pipe)
        reached = os.read(ready, 1) == b"x"
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not reached or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"{name}: the child ended before it was killed")

    # Killed whenever it happens to be: only the folder decides what is left.
    delays = random.Random(0)
    for turn in range(int(sys.argv[2])):
        folder = root / f"random_{turn}"
        save(folder, 0)
        child = os.fork()
        if child == 0:
            for step in range(1, 10_000):
                save(folder, step, keep_last=2)
            os._exit(3)
        time.sleep(delays.uniform(0.0, 0.04))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
""")

NUM_RANDOM_KILLS = 20


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    root = tmp_path_factory.mktemp("killed")
    words = [sys.executable, "-c", KILLER, str(root), str(NUM_RANDOM_KILLS)]
    subprocess.run(words, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return root


def intact(path):
    """Whether a checkpoint of the killed process is whole: all its weights are its step."""
    saved = load(path)
    return bool((saved.model["w"] == saved.step).all()) and saved.model["b"].sum().item() == 3


@pytest.mark.parametrize("point", re.findall(r'^    "(\w+)": hang_in', KILLER, re.MULTILINE))
def test_kill_9_leaves_the_old_or_the_new_checkpoint(point, killed, caplog):
    folder = killed / point
    renamed = point in ("before_fsync_of_the_folder", "before_the_old_one_is_removed")
    newest = latest(folder)
    assert load(newest).step == (2 if renamed else 1)
    assert intact(newest)
    assert caplog.text == "", "no half file may appear under a checkpoint's name"
    assert len(list(folder.glob(".*.tmp"))) == (0 if renamed else 1)
    small(folder, 7)
    assert list(folder.glob(".*.tmp")) == []


@pytest.mark.parametrize("turn", range(NUM_RANDOM_KILLS))
def test_kill_9_at_any_moment_leaves_an_intact_checkpoint(turn, killed, caplog):
    folder = killed / f"random_{turn}"
    assert intact(latest(folder))
    assert all(intact(path) for path in list_checkpoints(folder))
    assert caplog.text == ""
