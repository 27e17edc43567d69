"""checkpoint: what a stranger can put into a run's folder, which resume and export then read."""

import copyreg
import hashlib
import io
import os
import pickle
import shutil
from dataclasses import replace

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from llmcourse import checkpoint, train
from llmcourse.checkpoint import dcp, shards
from llmcourse.train import __main__ as train_command
from llmcourse.train import torch_engine
from llmcourse.train.export.folder import main as export_main

COMMAND = "touch owned"
NEWEST = "checkpoints/step_00000002.dcp"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of two steps on torch's engine."""
    folder = tmp_path_factory.mktemp("stranger") / "run"
    config = replace(
        train.PRESETS["tiny"](), engine="torch", steps=2, warmup_steps=1, sample_tokens=5
    )
    torch_engine.fit_under_torchrun(config, folder)
    return folder


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of it, in the folder where a payload would leave its mark."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def change_index(folder, change):
    """Write a changed index, as a stranger can: its own hash is right."""
    index = shards.read_payload(folder / shards.INDEX)
    change(index)
    with (folder / shards.INDEX).open("wb") as file:
        shards.write_payload(file, index)


def resealed(folder):
    """Make every hash right."""

    def change(index):
        for name in index["hashes"]:
            raw = (folder / name).read_bytes()
            index["hashes"][name] = hashlib.sha256(raw).hexdigest()

    change_index(folder, change)


def put(run, raw):
    """Put another .metadata into the newest checkpoint."""
    (run / NEWEST / ".metadata").write_bytes(raw)
    resealed(run / NEWEST)


class Call:
    """Is pickled as a call of the system."""

    def __reduce__(self):
        return os.system, (COMMAND,)


def with_in_metadata(change):
    """Torch's own description of the run with something in it changed, as a pickle."""

    def make(run):
        described = FileSystemReader(run / NEWEST).read_metadata()
        change(described)
        return pickle.dumps(described)

    return make


def in_a_list_of_a_dict(described):
    described.planner_data = {"a": [1, {"b": (Call(),)}]}


def as_a_tensor(described):
    described.state_dict_metadata["model.more"] = Call()


def as_a_dtype(described):
    first = next(iter(described.state_dict_metadata.values()))
    first.properties.requires_grad = Call()


def as_a_key(described):
    described.storage_data[frozenset([Call()])] = None


def short(text):
    return b"\x8c" + bytes([len(text)]) + text.encode()


def named(module, name):
    """Push what a module calls by a name, dots included."""
    return short(module) + short(name) + b"\x93"


def called(function):
    return b"\x80\x04" + function + short(COMMAND) + b"\x85R."


METADATA = named("torch.distributed.checkpoint.metadata", "Metadata")
MAPPED = named("builtins", "map") + named("os", "system") + b"]" + short(COMMAND) + b"a\x86\x81"
PAYLOADS = {
    "REDUCE": lambda run: f"cos\nsystem\n(S'{COMMAND}'\ntR.".encode(),
    "REDUCE in a list of a dict": with_in_metadata(in_a_list_of_a_dict),
    "REDUCE for a tensor": with_in_metadata(as_a_tensor),
    "REDUCE in the state of an allowed class": with_in_metadata(as_a_dtype),
    "REDUCE for a key": with_in_metadata(as_a_key),
    "BUILD of a __setstate__, then its call": lambda run: (
        b"\x80\x04" + METADATA + b")\x81}" + short("__setstate__") + named("os", "system")
        + b"sb" + short(COMMAND) + b"b."
    ),
    "INST": lambda run: f"(S'{COMMAND}'\nios\nsystem\n.".encode(),
    "OBJ": lambda run: f"(cos\nsystem\nS'{COMMAND}'\no.".encode(),
    "NEWOBJ": lambda run: b"\x80\x04" + named("builtins", "bytes") + MAPPED + b"\x85\x81.",
    "STACK_GLOBAL with dots": lambda run: called(
        named("torch.distributed.checkpoint.metadata", "os.system")
    ),
    "GLOBAL with dots": lambda run: called(b"ctorch\nserialization.os.system\n"),
    "EXT1": lambda run: called(b"\x82\xf0"),
    "EXT4": lambda run: called(b"\x84\xf0\x00\x00\x00"),
}  # fmt: skip


@pytest.fixture
def extension():
    copyreg.add_extension("os", "system", 0xF0)
    yield
    copyreg.remove_extension("os", "system", 0xF0)
    copyreg.clear_extension_cache()


def refusals(run, capfd):
    """Resume and export a run on either engine; return what each says, one line per command."""
    said = []
    for command in (
        lambda: train_command.main(["--resume", str(run), "--steps", "3"]),
        lambda: train_command.main(["--resume", str(run), "--steps", "3", "--engine", "own"]),
        lambda: export_main(["--run", str(run), "--to", str(run.parent / "exported")]),
    ):
        capfd.readouterr()
        assert command() == 2
        captured = capfd.readouterr()
        assert captured.out == ""
        said += captured.err.splitlines()
    assert not (run.parent / "exported").exists()
    return said


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.usefixtures("extension")
def test_no_code_in_the_metadata_runs(payload, run, tmp_path, capfd):
    raw = PAYLOADS[payload](run)
    pickle.loads(raw)
    assert (tmp_path / "owned").exists(), "the payload must be one that runs"
    (tmp_path / "owned").unlink()
    put(run, raw)
    said = refusals(run, capfd)
    assert not (tmp_path / "owned").exists()
    assert len(said) == 3
    assert all("step_00000002.dcp/.metadata is not as torch writes it" in line for line in said)


def test_no_code_runs_in_a_folder_that_was_dropped_into_a_harmless_run(run, tmp_path, capfd):
    put(run, called(named("os", "system")))
    harmless = train.start(
        replace(train.PRESETS["tiny"](), steps=1, warmup_steps=1), tmp_path / "harmless"
    )
    train.fit(harmless)
    shutil.copytree(run / NEWEST, tmp_path / "harmless/checkpoints/step_99999999.dcp")
    assert all("it names os.system" in line for line in refusals(tmp_path / "harmless", capfd))
    assert not (tmp_path / "owned").exists()


OPERATIONS = {
    "a persistent id": b"\x80\x04" + short("os.system") + b"Q.",
    "a persistent id in text": b"Pos.system\n.",
    "BUILD on an allowed class": b"\x80\x04" + METADATA + b"}" + short("version") + b"K\x01sb.",
    "SETATTR on an allowed class": (
        b"\x80\x04" + METADATA + b"N}" + short("evil") + b"K\x01s\x86b."
    ),
    "a memo of a billion entries": b"\x80\x04}r\x00\x00\x00\x40.",
    "an array of a terabyte": b"\x80\x05\x96\x00\x00\x00\x00\x00\x01\x00\x00.",
    "a string of a terabyte": b"\x80\x04\x8d\x00\x00\x00\x00\x00\x01\x00\x00.",
    "a frame of a terabyte": b"\x80\x04\x95\x00\x00\x00\x00\x00\x01\x00\x00}.",
    "nothing": b"",
    "another object": pickle.dumps({"a": 1}),
    "no pickle": b"\x00" * 100,
    "a class that is not made": b"\x80\x04" + METADATA + b".",
    "a loop": b"\x80\x04]\x94h\x00a.",
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_odd_metadata_is_one_line(operation, run):
    put(run, OPERATIONS[operation])
    with pytest.raises(ValueError, match="is not as torch writes it") as refused:
        checkpoint.load(run / NEWEST)
    assert "\n" not in str(refused.value)
    assert not hasattr(Metadata, "evil")


def change_first(**changes):
    """Change where the first part of a tensor is."""

    def change(described):
        place = next(iter(described.storage_data.values()))
        for name, value in changes.items():
            setattr(place, name, value)

    return change


def first_tensor(described):
    return next(iter(described.state_dict_metadata.values()))


def another_size(described):
    first_tensor(described).size = torch.Size([10**12, 10**6])


def huge(described):
    for size in (first_tensor(described), first_tensor(described).chunks[0]):
        name = "size" if hasattr(size, "size") else "sizes"
        setattr(size, name, torch.Size([10**12]))


def overlapping(described):
    tensor = first_tensor(described)
    rows, columns = tensor.size
    halves = [replace(tensor.chunks[0], sizes=torch.Size([rows // 2, columns])) for _ in range(2)]
    tensor.chunks = halves


def outside(described):
    first_tensor(described).chunks[0].offsets = torch.Size([1, 0])
    index = next(iter(described.storage_data))
    moved = replace(index, offset=torch.Size([1, 0]))
    described.storage_data[moved] = described.storage_data.pop(index)


def negative(described):
    first_tensor(described).size = torch.Size([-1, 4])


def lost_part(described):
    described.storage_data.popitem()


def doubled_part(described):
    first_tensor(described).chunks *= 2


def other_dtype(described):
    first_tensor(described).properties.dtype = "float32"


def quantized(described):
    first_tensor(described).properties.dtype = torch.qint8


def bytes_entry(described):
    name = next(iter(described.state_dict_metadata))
    described.state_dict_metadata[name] = BytesStorageMetadata()


def one_tensor_less(described):
    described.state_dict_metadata.popitem()


MALFORMED = {
    "an absolute path": (change_first(relative_path="/etc/passwd"), "points to '/etc/passwd'"),
    "a path out of the folder": (change_first(relative_path="../x"), "points to '../x'"),
    "its own index": (change_first(relative_path="index.ckpt"), "points to 'index.ckpt'"),
    "a negative place": (change_first(offset=-1), "points to bytes -1"),
    "a place past the end": (change_first(offset=10**15), "points to bytes 1000000000000000 to"),
    "a length below zero": (change_first(length=-5), "points to bytes 0 to -5"),
    "a length that is no number": (change_first(length="5"), "a int is expected where a str"),
    "an extension": (change_first(transform_descriptors=["stream.zstd/1"]), "with an extension"),
    "another shape": (another_size, "do not make up its shape"),
    "more entries than bytes": (huge, "more entries than its file has bytes for"),
    "parts over each other": (overlapping, "overlap"),
    "a part past the end": (outside, "is outside of it"),
    "a negative shape": (negative, "a negative side"),
    "a part that is nowhere": (lost_part, "is not as torch writes it"),
    "a part twice": (doubled_part, "do not make up its shape"),
    "no dtype": (other_dtype, "a dtype is expected where a str stands"),
    "a dtype that is none of ours": (quantized, "it names torch.qint8"),
    "what is no tensor": (bytes_entry, "it names .*BytesStorageMetadata"),
    "a tensor less": (one_tensor_less, "are not those of the index"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_description_that_does_not_fit_is_one_line(case, run):
    change, message = MALFORMED[case]
    put(run, with_in_metadata(change)(run))
    with pytest.raises(ValueError, match=message) as refused:
        checkpoint.load(run / NEWEST)
    assert "\n" not in str(refused.value)


def test_bytes_that_torch_would_unpickle_are_not_read(run, tmp_path):
    """Torch loads what is no tensor with weights_only=False."""
    described = FileSystemReader(run / NEWEST).read_metadata()
    name = next(iter(described.state_dict_metadata))
    described.state_dict_metadata[name] = BytesStorageMetadata()
    index, place = next(iter(described.storage_data.items()))
    assert index.fqn == name
    described.storage_data = {replace(index, offset=None, index=None): place}
    evil = io.BytesIO()
    torch.save(Call(), evil)
    path = run / NEWEST / place.relative_path
    path.write_bytes(evil.getvalue() + bytes(path.stat().st_size))
    place.offset, place.length = 0, len(evil.getvalue())
    put(run, pickle.dumps(described))
    shape = shards.read_payload(run / NEWEST / shards.INDEX)["shapes"][name]
    with pytest.raises(ValueError, match=r"it names .*BytesStorageMetadata"):
        dcp.read_into(run / NEWEST, {name: torch.zeros(shape)})
    assert not (tmp_path / "owned").exists()


def test_code_in_place_of_a_tensor_does_not_run(run, tmp_path):
    described = FileSystemReader(run / NEWEST).read_metadata()
    evil = io.BytesIO()
    torch.save(Call(), evil)
    place = next(iter(described.storage_data.values()))
    path = run / NEWEST / place.relative_path
    raw = path.read_bytes()
    place.offset, place.length = len(raw), len(evil.getvalue())
    path.write_bytes(raw + evil.getvalue() + bytes(2_000))
    put(run, pickle.dumps(described))
    with pytest.raises(ValueError, match=r"more entries than|torch's Distributed Checkpoint fails"):
        checkpoint.load(run / NEWEST)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "..", "", "a/../.metadata", 7])
def test_an_index_that_points_out_of_its_folder_is_refused(name, run):
    folder = run / NEWEST
    (folder.parent / "outside").write_bytes(b"x")
    hashed = {name: hashlib.sha256(b"x").hexdigest()}
    change_index(folder, lambda index: index["hashes"].update(hashed))
    with pytest.raises(ValueError, match=r"no file of the folder|is missing"):
        checkpoint.load(folder)


def test_a_link_out_of_the_folder_is_refused(run, tmp_path):
    path = next((run / NEWEST).glob("__0_*"))
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(ValueError, match="which is no file of the folder"):
        checkpoint.load(run / NEWEST)
