"""checkpoint: what a stranger can put into a run's folder, which resume and export then read."""

import copyreg
import hashlib
import io
import operator
import os
import pickle
import re
import shutil
from dataclasses import replace

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from llmcourse import checkpoint, train
from llmcourse.checkpoint import shards
from llmcourse.train import __main__ as train_command
from llmcourse_labs.export.folder import main as export_main
from llmcourse_labs.torch_engine import dcp
from llmcourse_labs.torch_engine import engine as torch_engine

COMMAND = "touch owned"
NEWEST = "checkpoints/step_00000002.dcp"
CONFIG = train.PRESETS["tiny"]().replace(steps=2, warmup_steps=1, sample_tokens=5)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stranger") / "run"
    torch_engine.fit_under_torchrun(CONFIG.replace(engine="torch"), folder)
    return folder


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of it, in the folder where a payload would leave its mark."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def resealed(folder):

    def change(index):
        for name in index["hashes"]:
            index["hashes"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()

    rewritten(folder / shards.INDEX, change)


def rewritten(path, change):
    """Change what a file holds, under a right hash, as a stranger can."""
    content = shards.read_payload(path)
    changed = change(content)
    with path.open("wb") as file:
        shards.write_payload(file, content if changed is None else changed)


def put(run, raw):
    (run / NEWEST / ".metadata").write_bytes(raw)
    resealed(run / NEWEST)


class Call:
    def __reduce__(self):
        return os.system, (COMMAND,)


def with_in_metadata(change):
    """Torch's own description of the run with something in it changed, as a pickle."""

    def make(run):
        described = described_in(run)
        change(described)
        return pickle.dumps(described)

    return make


def described_in(run):
    return FileSystemReader(run / NEWEST).read_metadata()


def first_of(content):
    return next(iter(content))


def first_tensor(described):
    return first_of(described.state_dict_metadata.values())


PLANNED = {"a": [1, {"b": (Call(),)}]}


def short(text):
    return b"\x8c" + bytes([len(text)]) + text.encode()


def named(module, name):
    """Push what a module calls by a name, dots included."""
    return short(module) + short(name) + b"\x93"


def called(function):
    return b"\x80\x04" + function + short(COMMAND) + b"\x85R."


OF_METADATA = "torch.distributed.checkpoint.metadata"
METADATA = named(OF_METADATA, "Metadata")
MAPPED = named("builtins", "map") + named("os", "system") + b"]" + short(COMMAND) + b"a\x86\x81"
PAYLOADS = {
    "REDUCE": lambda run: f"cos\nsystem\n(S'{COMMAND}'\ntR.".encode(),
    "REDUCE in a list of a dict": with_in_metadata(lambda d: setattr(d, "planner_data", PLANNED)),
    "REDUCE for a tensor": with_in_metadata(lambda d: d.state_dict_metadata.update(more=Call())),
    "REDUCE in the state of an allowed class": with_in_metadata(
        lambda d: vars(first_tensor(d).properties).update(requires_grad=Call())
    ),
    "REDUCE for a key": with_in_metadata(lambda d: d.storage_data.update({(Call(),): None})),
    "BUILD of a __setstate__, then its call": lambda run: (
        b"\x80\x04" + METADATA + b")\x81}" + short("__setstate__") + named("os", "system")
        + b"sb" + short(COMMAND) + b"b."
    ),
    "INST": lambda run: f"(S'{COMMAND}'\nios\nsystem\n.".encode(),
    "OBJ": lambda run: f"(cos\nsystem\nS'{COMMAND}'\no.".encode(),
    "NEWOBJ": lambda run: b"\x80\x04" + named("builtins", "bytes") + MAPPED + b"\x85\x81.",
    "STACK_GLOBAL with dots": lambda run: called(named(OF_METADATA, "os.system")),
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


def resumed(run, *more):
    return train_command.main(["--resume", str(run), "--steps", "3", *more])


def exported(run):
    return export_main(["--run", str(run), "--to", str(run.parent / "exported")])


def refusals(run, capfd):
    """Resume and export a run on either engine; return what each says, one line per command."""
    said = []
    for command, *more in ((resumed,), (resumed, "--engine", "own"), (exported,)):
        capfd.readouterr()
        assert command(run, *more) == 2
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
    train.fit(train.start(replace(CONFIG, steps=1), tmp_path / "harmless"))
    shutil.copytree(run / NEWEST, tmp_path / "harmless/checkpoints/step_99999999.dcp")
    assert all("it names os.system" in line for line in refusals(tmp_path / "harmless", capfd))
    assert not (tmp_path / "owned").exists()


ON_METADATA = b"\x80\x04" + METADATA
OPERATIONS = {
    "a persistent id": b"\x80\x04" + short("os.system") + b"Q.",
    "a persistent id in text": b"Pos.system\n.",
    "BUILD on an allowed class": ON_METADATA + b"}" + short("version") + b"K\x01sb.",
    "SETATTR on an allowed class": ON_METADATA + b"N}" + short("evil") + b"K\x01s\x86b.",
    "a memo of a billion entries": b"\x80\x04}r\x00\x00\x00\x40.",
    "an array of a terabyte": b"\x80\x05\x96\x00\x00\x00\x00\x00\x01\x00\x00.",
    "a string of a terabyte": b"\x80\x04\x8d\x00\x00\x00\x00\x00\x01\x00\x00.",
    "a frame of a terabyte": b"\x80\x04\x95\x00\x00\x00\x00\x00\x01\x00\x00}.",
    "nothing": b"",
    "another object": pickle.dumps({"a": 1}),
    "no pickle": b"\x00" * 100,
    "a class that is not made": ON_METADATA + b".",
    "a loop": b"\x80\x04]\x94h\x00a.",
}


def refused(run, raw, message):
    put(run, raw)
    with pytest.raises(ValueError, match=message) as refusal:
        checkpoint.load(run / NEWEST)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_odd_metadata_is_one_line(operation, run):
    refused(run, OPERATIONS[operation], "is not as torch writes it")
    assert not hasattr(Metadata, "evil")


def change_first(**changes):
    return lambda described: vars(first_of(described.storage_data.values())).update(changes)


def change_tensor(**changes):
    return lambda described: vars(first_tensor(described)).update(changes)


def huge(described):
    first_tensor(described).size = first_tensor(described).chunks[0].sizes = torch.Size([10**12])


def overlapping(described):
    tensor = first_tensor(described)
    half = torch.Size([tensor.size[0] // 2, tensor.size[1]])
    tensor.chunks = [replace(tensor.chunks[0], sizes=half) for _ in range(2)]


def outside(described):
    first_tensor(described).chunks[0].offsets = torch.Size([1, 0])
    index = first_of(described.storage_data)
    moved = replace(index, offset=torch.Size([1, 0]))
    described.storage_data[moved] = described.storage_data.pop(index)


def of_dtype(dtype):
    return lambda described: setattr(first_tensor(described).properties, "dtype", dtype)


def bytes_entry(described):
    described.state_dict_metadata[first_of(described.state_dict_metadata)] = BytesStorageMetadata()


MALFORMED = {
    "an absolute path": (change_first(relative_path="/etc/passwd"), "points to '/etc/passwd'"),
    "a path out of the folder": (change_first(relative_path="../x"), "points to '../x'"),
    "its own index": (change_first(relative_path="index.ckpt"), "points to 'index.ckpt'"),
    "a negative place": (change_first(offset=-1), "points to bytes -1"),
    "a place past the end": (change_first(offset=10**15), "points to bytes 1000000000000000 to"),
    "a length below zero": (change_first(length=-5), "points to bytes 0 to -5"),
    "a length that is no number": (change_first(length="5"), "a int is expected where a str"),
    "an extension": (change_first(transform_descriptors=["stream.zstd/1"]), "with an extension"),
    "another shape": (change_tensor(size=torch.Size([10**12, 10**6])), "not make up its shape"),
    "more entries than bytes": (huge, "more entries than its file has bytes for"),
    "parts over each other": (overlapping, "overlap"),
    "a part past the end": (outside, "is outside of it"),
    "a negative shape": (change_tensor(size=torch.Size([-1, 4])), "a negative side"),
    "a part that is nowhere": (lambda d: d.storage_data.popitem(), "is not as torch writes it"),
    "a part twice": (lambda d: first_tensor(d).chunks.extend(first_tensor(d).chunks), "its shape"),
    "no dtype": (of_dtype("float32"), "a dtype is expected where a str stands"),
    "a dtype that is none of ours": (of_dtype(torch.qint8), "it names torch.qint8"),
    "what is no tensor": (bytes_entry, "it names .*BytesStorageMetadata"),
    "a tensor less": (lambda d: d.state_dict_metadata.popitem(), "not those of the index"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_description_that_does_not_fit_is_one_line(case, run):
    change, message = MALFORMED[case]
    refused(run, with_in_metadata(change)(run), message)


def pickled_call():
    evil = io.BytesIO()
    torch.save(Call(), evil)
    return evil.getvalue()


def test_bytes_that_torch_would_unpickle_are_not_read(run, tmp_path):
    """Torch loads what is no tensor with weights_only=False."""
    described, evil = described_in(run), pickled_call()
    index, place = next(iter(described.storage_data.items()))
    name = index.fqn
    described.state_dict_metadata[name] = BytesStorageMetadata()
    described.storage_data = {replace(index, offset=None, index=None): place}
    path = run / NEWEST / place.relative_path
    path.write_bytes(evil + bytes(path.stat().st_size))
    place.offset, place.length = 0, len(evil)
    put(run, pickle.dumps(described))
    shape = shards.read_payload(run / NEWEST / shards.INDEX)["shapes"][name]
    with pytest.raises(ValueError, match=r"it names .*BytesStorageMetadata"):
        dcp.read_into(run / NEWEST, {name: torch.zeros(shape)})
    assert not (tmp_path / "owned").exists()


def test_code_in_place_of_a_tensor_does_not_run(run, tmp_path):
    described, evil = described_in(run), pickled_call()
    place = first_of(described.storage_data.values())
    path = run / NEWEST / place.relative_path
    raw = path.read_bytes()
    place.offset, place.length = len(raw), len(evil)
    path.write_bytes(raw + evil + bytes(2_000))
    refused(run, pickle.dumps(described), r"more entries than|torch's Distributed Checkpoint fails")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "..", "", "a/../.metadata", 7])
def test_an_index_that_points_out_of_its_folder_is_refused(name, run):
    folder = run / NEWEST
    (folder.parent / "outside").write_bytes(b"x")
    hashed = {name: hashlib.sha256(b"x").hexdigest()}
    rewritten(folder / shards.INDEX, lambda index: index["hashes"].update(hashed))
    with pytest.raises(ValueError, match=r"no file of the folder|is missing"):
        checkpoint.load(folder)


def test_a_link_out_of_the_folder_is_refused(run, tmp_path):
    path = next((run / NEWEST).glob("__0_*"))
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(ValueError, match="which is no file of the folder"):
        checkpoint.load(run / NEWEST)


# --- malformed content under a right hash
@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for name, in_shards in (("ckpt", False), ("shards", True)):
        train.fit(train.start(CONFIG.replace(save_in_shards=in_shards), folder / name))
    return folder


GONE = object()


def put_at(*path, value):
    """Put a value into nested content; None in a path takes its owner's first key."""

    def change(content):
        *owners, last = path
        for name in owners:
            content = content[first_of(content) if name is None else name]
        last = first_of(content) if last is None else last
        content.pop(last) if value is GONE else operator.setitem(content, last, value)

    return change


def without_key(*path):
    return put_at(*path, value=GONE)


LOOP = []
LOOP.append(LOOP)
LONG = torch.arange(2_500)
NUMPYS = ["MT19937", LONG[:624], 10**9, 0, 0.0]
ODD_CONTENT = {
    "another dict": lambda content: {"a": 1},
    "a field less": without_key("step"),
    "a field more": put_at("more", value=1),
    "steps that are text": put_at("step", value="2"),
    "steps below zero": put_at("step", value=-1),
    "a step that is true": put_at("step", value=True),
    "no model": put_at("model", value=None),
    "a weight that is text": put_at("model", None, value="x"),
    "a weight with a number for its name": put_at("model", 7, value=torch.ones(1)),
    "a weight of another shape": put_at("model", None, value=torch.ones(3)),
    "a weight of another dtype": put_at("model", None, value=torch.ones(512, 32).double()),
    "a weight without content": put_at("model", None, value=torch.ones(2, device="meta")),
    "a sparse weight": put_at("model", None, value=torch.ones(512, 32).to_sparse()),
    "a weight less": without_key("model", None),
    "moments of nothing": put_at("optimizer", value={}),
    "no moments": put_at("optimizer", value=None),
    "groups that are text": put_at("optimizer", "param_groups", value="ab"),
    "a group without parameters": without_key("optimizer", "param_groups", 0, "params"),
    "doubled parameters": put_at("optimizer", "param_groups", 0, "params", 0, value=1),
    "a parameter that is a list": put_at("optimizer", "param_groups", 0, "params", 0, value=[]),
    "a setting that is text": put_at("optimizer", "param_groups", 0, "lr", value="x"),
    "betas that are one": put_at("optimizer", "param_groups", 0, "betas", value=(0.9,)),
    "the moment of no parameter": put_at("optimizer", "state", 99, value={}),
    "moments that are text": put_at("optimizer", "state", 0, value="x"),
    "a moment less": without_key("optimizer", "state", 0, "mean"),
    "a moment of one side": put_at("optimizer", "state", 0, "mean", value=torch.ones(1, 1)),
    "a count that is text": put_at("optimizer", "state", 0, "step", value="x"),
    "no generators": put_at("generators", value=[]),
    "a generator less": put_at("generators", value={}),
    "a generator of another size": put_at("generators", None, value=LONG[:9].byte()),
    "a generator that is noise": put_at("generators", None, value=torch.full((5056,), 255).byte()),
    "a generator of numbers": put_at("generators", None, value=LONG.float()),
    "no global generators": put_at("global_rng", value={}),
    "Python's generator is text": put_at("global_rng", "python", value="x"),
    "Python's generator is short": put_at("global_rng", "python", value=[3, [1], None]),
    "NumPy's generator is past its end": put_at("global_rng", "numpy", value=NUMPYS),
    "torch's generator is short": put_at("global_rng", "torch", value=LONG[:9].byte()),
    "no position": put_at("data", value=None),
    "a position that is a list": put_at("data", value=[1]),
    "a position that is text": put_at("data", "step", value="x"),
    "a position in other data": put_at("data", "data", value="0" * 64),
    "no settings": put_at("config", value=None),
    "settings that are text": put_at("config", value="x"),
    "a setting of no run": put_at("config", "evil", value=1),
    "a setting less": without_key("config", "model", "width"),
    "a setting of another type": put_at("config", "batch_size", value="x"),
    "a setting that is no number": put_at("config", "learning_rate", value=float("nan")),
    "an unknown choice": put_at("config", "precision", value="fp8"),
    "another engine": put_at("config", "engine", value="other"),
    "no model's settings": put_at("config", "model", value=3),
    "a huge model": put_at("config", "model", "width", value=10**12),
    "a device that is not here": put_at("config", "device", value="cuda:9"),
    "code that is text": put_at("code", value="x"),
    "a loop": put_at("config", "seed", value=LOOP),
}


@pytest.fixture
def copy(runs, tmp_path):
    return lambda name="ckpt": shutil.copytree(runs / name, tmp_path / "run")


def one_line(command, run, capfd):
    """Run a command; return what it says on standard error, which is a line if it fails."""
    capfd.readouterr()
    status = command(run)
    said = capfd.readouterr().err.splitlines()
    assert status in (0, 2)
    assert status == 0 or len(said) == 1, said
    return status, said


@pytest.mark.parametrize("case", ODD_CONTENT)
def test_odd_content_of_a_file_is_one_line(case, copy, capfd):
    """About 0.1 s each: loading, and the tokenizer."""
    run = copy()
    path = run / "checkpoints/step_00000002.ckpt"
    kept = path.with_suffix(".kept").write_bytes(path.read_bytes())
    rewritten(path, ODD_CONTENT[case])
    assert one_line(resumed, run, capfd)[0] == 2
    one_line(exported, run, capfd)
    assert path.with_suffix(".kept").stat().st_size == kept


SHARD = "rank_00000_of_00001.ckpt"
ODD_PARTS = {
    "an index of lists": ("index.ckpt", put_at("shapes", value=[])),
    "a shape that is text": ("index.ckpt", put_at("shapes", None, value="x")),
    "a shape below zero": ("index.ckpt", put_at("shapes", None, value=[-4])),
    "a shape of a terabyte": ("index.ckpt", put_at("shapes", None, value=[2**40])),
    "a shape of nothing": ("index.ckpt", put_at("shapes", None, value=[0, 2**62, 2**62])),
    "another shape": ("index.ckpt", put_at("shapes", None, value=[32, 2])),
    "a tensor more": ("index.ckpt", put_at("shapes", "model.more", value=[3])),
    "a tensor less": ("index.ckpt", without_key("shapes", None)),
    "a tensor of no part": ("index.ckpt", put_at("shapes", "more", value=[])),
    "hashes that are text": ("index.ckpt", put_at("hashes", value="x")),
    "a hash less": ("index.ckpt", without_key("hashes", None)),
    "a file out of the folder": ("index.ckpt", put_at("hashes", "../../config.json", value="0")),
    "content that is text": ("index.ckpt", put_at("content", value="x")),
    "content that lacks a field": ("index.ckpt", without_key("content", "optimizer")),
    "a state of no parameter": ("index.ckpt", put_at("content", "optimizer", "state", value={})),
    "no optimizer": ("index.ckpt", put_at("content", "optimizer", value=None)),
    "a piece that begins below zero": (SHARD, put_at(None, "first", value=-1)),
    "a piece that begins past the end": (SHARD, put_at(None, "first", value=10**12)),
    "a piece that begins at text": (SHARD, put_at(None, "first", value="x")),
    "a piece that is short": (SHARD, put_at(None, "values", value=torch.ones(3))),
    "a piece that is not flat": (SHARD, put_at(None, "values", value=torch.ones(3, 4))),
    "a piece of text": (SHARD, put_at(None, "values", value="x")),
    "no piece": (SHARD, put_at(None, value=7)),
    "a piece less": (SHARD, without_key(None)),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_PARTS)
def test_odd_parts_are_one_line(case, copy, capfd):
    run = copy("shards")
    folder = run / "checkpoints/step_00000002.shards"
    name, change = ODD_PARTS[case]
    rewritten(folder / name, change)
    if name == SHARD:
        sha256 = shards.LAYOUT.unpack((folder / SHARD).read_bytes()[: shards.LAYOUT.size])[-1].hex()
        rewritten(folder / "index.ckpt", put_at("hashes", SHARD, value=sha256))
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        checkpoint.load(folder)
    for command in (resumed, exported):
        assert one_line(command, run, capfd)[0] == 2


FOREIGN = {
    "other settings": ({"seed": 3}, "a run with seed = 3, this one has 0: it is another run"),
    "another model": ({"model": replace(CONFIG.model, hidden=96)}, r"model\.hidden = 96, .* 64"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_checkpoint_of_another_run_is_refused(case, copy, tmp_path, capfd):
    changes, message = FOREIGN[case]
    run = copy()
    other = train.fit(train.start(CONFIG.replace(**changes), tmp_path / "other")).run
    path = other.folder / "checkpoints/step_00000002.ckpt"
    shutil.copy(path, run / "checkpoints/step_00000003.ckpt")
    for command in (resumed, exported):
        status, said = one_line(command, run, capfd)
        assert status == 2
        assert re.search(message, said[0])


@pytest.mark.parametrize("content", ["", "[]", "{}", "{", '{"model": 3}', "NaN", "\udcff"])
def test_odd_settings_of_a_run_are_one_line(content, copy, capfd):
    run = copy()
    (run / "config.json").write_text(content, errors="surrogateescape")
    assert one_line(resumed, run, capfd)[0] == 2


@pytest.mark.parametrize(
    "line", [b"[]", b'{"step": 2}', b'{"step": "x", "loss": 1}', b'{"step": 2, "loss": []}',
             b"\xff", b"[" * 100_000, b'{"step": 2, "loss": NaN, "validation_loss": 1.0}']
)  # fmt: skip
def test_odd_metrics_do_not_stop_an_export(line, copy, capfd):
    run = copy()
    (run / "metrics.jsonl").write_bytes(line + b"\n")
    status, said = one_line(exported, run, capfd)
    assert status == 0 or "metrics" in said[0]


ODD_ON_TORCH = {
    "a state of no parameter": put_at("content", "optimizer", "state", value={}),
    "a count that is text": put_at("content", "optimizer", "state", 0, "step", value="x"),
    "no optimizer": put_at("content", "optimizer", value=None),
    "no position": put_at("content", "data", value=None),
    "a generator less": put_at("content", "generators", value={}),
    "a generator that is noise": put_at("content", "generators", None, value=LONG[:5056].byte()),
    "no global generators": put_at("content", "global_rng", value={}),
    "a field less": without_key("content", "step"),
    "steps that are text": put_at("content", "step", value="x"),
}


@pytest.mark.parametrize("case", ODD_ON_TORCH)
def test_torchs_engine_refuses_odd_content(case, finished, tmp_path):
    """Under torchrun the same command goes on with what is there."""
    shutil.copytree(finished, tmp_path / "run")
    rewritten(tmp_path / "run" / NEWEST / shards.INDEX, ODD_ON_TORCH[case])
    config = CONFIG.replace(engine="torch", steps=3)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        torch_engine.fit_under_torchrun(config, tmp_path / "run")
