"""train: what is found in a run's folder is this run's and whole, or is refused in one line.

The runs are those of the preset tiny, of a few steps: about a second each.
"""

import importlib
import json
import logging
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from llmcourse import checkpoint, train
from llmcourse.checkpoint import store
from llmcourse.data import TokenShards, read_raw_tokens, write_shards
from llmcourse.train import saved as saving
from tests.train.runs import SHORT, losses, metrics, refused, weights


@pytest.fixture(scope="module")
def config():
    return replace(SHORT, steps=6)


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    return train.fit(train.start(config, tmp_path_factory.mktemp("runs") / "whole"))


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole.run.folder, tmp_path / "run")


def test_a_run_that_ended_before_a_checkpoint_goes_on_from_its_start(config, whole, tmp_path):
    folder = tmp_path / "run"
    run = train.start(config, folder)
    run.folder.joinpath("metrics.jsonl").write_text('{"step": 1, "loss": 9.0}\n')
    torch.rand(3)  # and whatever the process has drawn since
    resumed = train.resume(folder)
    assert resumed.steps_done == 0
    result = train.fit(resumed)
    assert weights(result.run) == weights(whole.run)
    assert losses(result) == losses(whole)
    assert [row["step"] for row in metrics(folder)] == [1, 2, 3, 4, 5, 6]


def test_ranks_go_on_from_the_start_too(config, whole, tmp_path):
    train.start(config, tmp_path / "run")
    found = train.resume_on_ranks(tmp_path / "run", ranks=2).losses
    assert found == pytest.approx(losses(whole), rel=1e-5)


def test_checkpoints_of_which_none_is_intact_are_not_thrown_away(copied, capfd, caplog):
    for path in (copied / "checkpoints").iterdir():
        path.write_bytes(b"damaged")
    assert "holds no intact checkpoint to resume from" in refused(capfd, "--resume", copied)


def test_a_folder_that_holds_no_run_is_left_as_it_is(tmp_path, capfd):
    (tmp_path / "letters").mkdir()
    assert "holds no run to go on with" in refused(capfd, "--resume", tmp_path / "letters")
    assert list((tmp_path / "letters").iterdir()) == []


def test_a_checkpoint_of_another_run_is_refused(config, copied, tmp_path, capfd):
    other = train.start(config.replace(learning_rate=1e-3), tmp_path / "other")
    for _ in range(6):
        train.step(other)
    shutil.copytree(tmp_path / "other" / "checkpoints", copied / "checkpoints", dirs_exist_ok=True)
    line = refused(capfd, "--resume", copied, "--steps", "9")
    assert "holds a run with learning_rate = 0.001, this one has 0.006: it is another run" in line
    assert "step_00000006.ckpt" in line


def swap(old, new):
    return lambda text: text.replace(old.encode(), new.encode())


CONFIGS = {
    "no JSON": (lambda text: text[:-5], "is damaged"),
    "no text": (lambda text: b"\xff" * 9, "is damaged"),
    "nests without end": (lambda text: b"[" * 100_000, "is damaged"),
    "a list": (lambda text: b"[]", "holds no settings of a run"),
    "a word for a number": (swap('"steps": 6', '"steps": "6"'), "steps = '6'"),
    "true for a number": (swap('"steps": 6', '"steps": true'), "steps = True, which cannot be"),
    "not a number": (swap('"clip_norm": 1.0', '"clip_norm": NaN'), "clip_norm must be a finite"),
    "infinite": (swap('"clip_norm": 1.0', '"clip_norm": Infinity'), "clip_norm must be a finite"),
    "no choice": (swap('"cosine"', '"linear"'), "schedule = 'linear'"),
    "a later version's": (swap('"steps"', '"stepz"'), "'stepz'"),
    "a model that is none": (swap('"model": {', '"model": 3, "old": {'), "old"),
    "a huge model": (swap('"hidden": ', '"hidden": 1000000'), "this machine has"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_odd_settings_are_one_line_before_anything_large_is_read(case, copied, capfd, monkeypatch):
    change, message = CONFIGS[case]
    path = copied / "config.json"
    before = path.read_bytes()
    path.write_bytes(change(before))
    assert path.read_bytes() != before
    monkeypatch.delattr(checkpoint, "load", raising=False)
    monkeypatch.delattr(saving.checkpoints, "load", raising=False)
    assert message in refused(capfd, "--resume", copied)


def test_a_checkpoint_that_no_machine_holds_is_refused_before_it_is_built(copied, capfd):
    (copied / "config.json").unlink()
    spoilt(copied, lambda content: content["config"]["model"].update(hidden=10**9))
    assert "this machine has" in refused(capfd, "--resume", copied)


def spoilt(folder, change):
    """Change what the newest checkpoint holds; its hashes are right."""
    path = checkpoint.latest(folder / "checkpoints")
    content = dict(vars(checkpoint.load(path)))
    change(content)
    store.write(path, content)


CONTENTS = {
    "no position": lambda c: c.update(data=None),
    "a position without a step": lambda c: c["data"].pop("step"),
    "a position of another step": lambda c: c["data"].update(step=5),
    "no settings": lambda c: c.update(config=None),
    "no model in the settings": lambda c: c["config"].pop("model"),
    "a word in the settings": lambda c: c["config"].update(steps="six"),
    "no generators": lambda c: c.update(generators={}),
    "no groups": lambda c: c["optimizer"].pop("param_groups"),
    "no optimizer": lambda c: c.update(optimizer=None),
    "a weight too few": lambda c: c["model"].popitem(),
    "a weight that is a number": lambda c: c["model"].update(dict.fromkeys(c["model"], 3)),
    "global generators that are none": lambda c: c.update(global_rng={}),
    "words for the global generators": lambda c: c["global_rng"].update(python="x"),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_a_checkpoint_of_right_hashes_and_odd_content_is_one_line(case, copied, capfd):
    spoilt(copied, CONTENTS[case])
    before = {p: p.read_bytes() for p in sorted((copied / "checkpoints").iterdir())}
    assert refused(capfd, "--resume", copied, "--steps", "8")
    assert {p: p.read_bytes() for p in sorted((copied / "checkpoints").iterdir())} == before


def flipped(path):
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("part", ["training", "validation"])
@pytest.mark.parametrize("more", [[], ["--ranks", "2"], ["--engine", "torch"]], ids=str)
def test_one_bit_of_the_tokens_is_noticed_when_a_run_goes_on(part, more, copied, capfd):
    flipped(copied / "data" / part / "shard_00000.bin")
    line = refused(capfd, "--resume", copied, "--steps", "8", *more)
    assert f"{part}/shard_00000.bin is damaged" in line


def test_tokens_that_changed_before_the_run_began_are_noticed(config, tmp_path):
    train.prepare(config, tmp_path / "run" / "data")
    flipped(tmp_path / "run" / "data" / "training" / "shard_00000.bin")
    with pytest.raises(ValueError, match="is damaged: its tokens do not match its hash"):
        train.start(config, tmp_path / "run")


def test_very_many_tokens_are_not_read_at_each_start_as_the_log_says(copied, monkeypatch, caplog):
    flipped(copied / "data" / "training" / "shard_00000.bin")
    preparing = importlib.import_module("llmcourse.train.prepare")
    monkeypatch.setattr(preparing, "MOST_HASHED_BYTES", 2_000)
    with caplog.at_level(logging.WARNING):
        train.resume(copied)
    assert "are not compared with their hashes" in caplog.text


def test_ids_out_of_range_under_a_right_hash_are_noticed(config, copied, capfd):
    shards = TokenShards(copied / "data" / "training")
    ids = np.array(shards[:])
    ids[77] = 299
    print_of = train.prepare(config, copied / "data").tokenizer.fingerprint
    write_shards(ids, shards.folder, tokenizer_fingerprint=print_of, vocab_size=300)
    path = shards.folder / "shard_00000.bin"
    content = path.read_bytes()
    path.write_bytes(content[:24] + (299).to_bytes(8, "little") + content[32:])
    assert "has tokens of a vocabulary of 299" in refused(capfd, "--resume", copied)
    with pytest.raises(ValueError, match="has the id 299; its vocabulary of 299 has ids from 0"):
        TokenShards(shards.folder).verify()


ODD = [b"no JSON", b"\xff\xfe\x00", b"[1, 2]", b'{"loss": 1.0}', b'{"step": "3"}', b'{"step": NaN}',
       b'{"step": true}', b"9" * 5_000, b"[" * 50_000, b'{"step": -1}', b"null"]  # fmt: skip


def test_odd_lines_of_metrics_are_put_aside_and_nothing_is_lost(copied, caplog):
    path = copied / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    assert len(lines) == 6
    path.write_bytes(b"\n".join([lines[0], *ODD, *lines[1:], b'{"step": 9', b""])[:-1])
    with caplog.at_level(logging.WARNING):
        train.fit(train.resume(copied, steps=8))
    assert "11 lines are no metrics of a step" in caplog.text
    assert (copied / "metrics.odd.jsonl").read_bytes().splitlines() == ODD
    rows = path.read_bytes().splitlines()
    assert rows[:6] == lines
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 9))


def test_batches_at_random_starts_resume_to_the_bit_and_ranks_equal_one(config, whole, tmp_path):
    random = config.replace(order="random")
    drawn = train.fit(train.start(random, tmp_path / "whole"))
    assert losses(drawn) != losses(whole)
    (tmp_path / "whole" / "checkpoints" / "step_00000006.ckpt").unlink()
    resumed = train.fit(train.resume(tmp_path / "whole"))
    assert losses(resumed) == losses(drawn)[3:]
    assert weights(resumed.run) == weights(drawn.run)
    ranks = train.fit_on_ranks(random.replace(ranks=2), tmp_path / "ranks")
    assert ranks.losses == pytest.approx(losses(drawn), rel=1e-5)


def test_another_order_is_another_run(config, whole):
    assert train.start(config, whole.run.folder.parent / "a").batches.order == "shuffled"
    settings = json.loads((whole.run.folder / "config.json").read_text())
    with pytest.raises(ValueError, match="order = 'random', this one has 'shuffled'"):
        saving.require_same_run(settings | {"order": "random"}, settings, whole.run.folder)


@pytest.fixture
def raw(tmp_path):
    """Ids as nanoGPT's prepare.py writes them: uint16, no header."""
    g, folder = np.random.default_rng(0), tmp_path / "raw"
    folder.mkdir()
    for name, count in (("train.bin", 9_000), ("val.bin", 900)):
        g.integers(0, 290, count).astype(np.uint16).tofile(folder / name)
    return folder


def of_raw(config, raw, **changes):
    shape = replace(config.model, vocab_size=changes.pop("vocab_size", 304))
    return config.replace(corpus="bin", bin_folder=str(raw), model=shape, **changes)


def test_a_run_reads_nanogpts_files(config, raw, tmp_path):
    result = train.fit(train.start(of_raw(config, raw), tmp_path / "run"))
    run = result.run
    ours, theirs = run.prepared.training[:], np.fromfile(raw / "train.bin", "<u2")
    assert np.array_equal(ours, theirs)
    assert result.validations[6].bits_per_byte is None
    assert len(result.samples[6].split()) == 6
    assert train.resume(tmp_path / "run", steps=7).steps_done == 6  # also without the files
    with pytest.raises(ValueError, match="a prompt needs a tokenizer"):
        train.sample(run, "Once")


def test_a_tokenizer_beside_nanogpts_files_is_used(config, whole, raw, tmp_path):
    """Also one of fewer ids than the model: nanoGPT pads the vocabulary."""
    whole.run.prepared.tokenizer.save(raw / "tokenizer")
    result = train.fit(train.start(of_raw(config, raw), tmp_path / "run"))
    assert 0 < result.validations[6].bits_per_byte < 20
    with pytest.raises(ValueError, match=r"has 300 ids: model\.vocab_size must be as many or"):
        train.start(of_raw(config, raw, vocab_size=295), tmp_path / "other")


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (b"", {}, "has 0 bytes, no whole number of uint16 ids"),
        (b"abc", {}, "has 3 bytes, no whole number of uint16 ids"),
        (b"abcdef", {"dtype": "uint32"}, "no whole number of uint32 ids"),
        (b"\1\0\2\0", {"vocab_size": 2}, "token 1 has the id 2; a vocabulary of 2 has ids"),
        (b"\1\0\2\0", {"dtype": "uint32"}, "token 0 has the id 131073"),
        (b"\1\0", {"dtype": "int16"}, "dtype must be uint16 or uint32, got 'int16'"),
        (b"\1\0", {"vocab_size": 0}, "vocab_size must be 1 or greater"),
    ],
)
def test_raw_files_that_do_not_fit_are_refused(content, settings, message, tmp_path):
    (tmp_path / "train.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_raw_tokens(tmp_path / "train.bin", **{"vocab_size": 10} | settings)


def test_raw_ids_are_mapped_and_read_as_they_are(tmp_path):
    np.array([1, 70_000, 3], dtype="<u4").tofile(tmp_path / "train.bin")
    ids = read_raw_tokens(tmp_path / "train.bin", vocab_size=70_001, dtype="uint32")
    assert ids.tolist() == [1, 70_000, 3]
    assert not ids.flags.writeable
    with pytest.raises(OSError, match="No such file"):
        read_raw_tokens(tmp_path / "none.bin", vocab_size=9)
