"""prepare: files of one's own become shards, whoever encodes, and however often it is cut short.

Most tests make pieces and shards small, so that a few kilobytes have many of both.
"""

import errno
import functools
import gzip
import importlib
import io
import json
import random
import sys
import tracemalloc

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from llmcourse.base import files, lock
from llmcourse.data import TokenShards, read_prepared
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.data.tokenizer import LLAMA3, Tokenizer, train_bpe
from llmcourse_labs.curation import documents, encode, prepare_text, unpack
from tests.labs.curation.crawls import Killed, cut_short, files_in, kill_half_way

prepare = importlib.import_module("llmcourse_labs.curation.prepare")
STORIES = [text for text in stories(40_000, seed=1).split(END_OF_TEXT) if text]
SMALL = {"vocab_size": 300, "shard_tokens": 1_000}


def parquet_of(**columns):
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), out, row_group_size=7)
    return out.getvalue()


@pytest.fixture
def small_pieces(monkeypatch):
    for module in (documents, encode, prepare, unpack):
        monkeypatch.setattr(module, "PIECE", 2_000)


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    (folder / "deeper").mkdir(parents=True)
    first, second, third, fourth = STORIES[:60], STORIES[60:70], STORIES[70:80], STORIES[80:]
    (folder / "a.txt").write_text(END_OF_TEXT.join(first), encoding="utf8")
    with gzip.open(folder / "deeper" / "b.jsonl.gz", "wt", encoding="utf8") as file:
        file.writelines(json.dumps({"id": 3, "text": text}) + "\n\n" for text in second)
    (folder / "deeper" / "c.parquet").write_bytes(parquet_of(id=list(range(10)), text=third))
    (folder / "z.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in fourth))
    (folder / ".hidden.txt").write_text("not for reading")
    (folder / "notes.md").write_text("not for reading")
    return folder


def ids_in(folder):
    tokenizer = Tokenizer.load(folder / "tokenizer")
    end = tokenizer.special_tokens[END_OF_TEXT]
    splits = []
    for name in ("training", "validation"):
        shards = TokenShards(folder / name, tokenizer_fingerprint=tokenizer.fingerprint)
        shards.verify()
        *parts, rest = np.split(shards[:], np.flatnonzero(shards[:] == end) + 1)
        assert not len(rest)
        splits.append([part.tolist() for part in parts])
    return splits


def documents_in(folder):
    tokenizer = Tokenizer.load(folder / "tokenizer")
    return [[tokenizer.decode(ids[:-1]) for ids in split] for split in ids_in(folder)]


@pytest.mark.usefixtures("small_pieces")
def test_what_is_read_back_are_the_documents_in_order_each_on_one_side(texts, tmp_path):
    out = tmp_path / "data"
    prepared = prepare_text([texts], out, **SMALL)
    training, validation = documents_in(out)
    assert sorted(training + validation) == sorted(STORIES)
    assert training == [text for text in STORIES if text in set(training)]
    assert validation == [text for text in STORIES if text in set(validation)]
    assert not set(training) & set(validation)
    assert 1 <= len(validation) < len(STORIES) / 8
    assert len(list((out / "training").iterdir())) > 3
    assert prepared == read_prepared(out)
    assert prepared.training.documents == len(training)
    assert prepared.validation.num_bytes == sum(len(text.encode()) for text in validation)
    assert prepared.training.tokens == len(TokenShards(out / "training"))
    names = {path.name for path in out.iterdir()}
    assert names == {"training", "validation", "tokenizer", "prepared.json"}


@pytest.mark.usefixtures("small_pieces")
def test_the_ids_are_those_of_whole_documents(tmp_path):
    """Also of a long one, which is encoded in parts, and of one that spells a special token."""
    rng = random.Random(0)
    words = ["a\n", "b\n\n", "c.\n", "d", "", "e", "\u3000", "\n\n\n", "f's", "12\r\n"]
    long = "".join(rng.choice(words) + rng.choice(" \n") for _ in range(8_000))
    texts = [long, *STORIES[:30], f"He wrote {END_OF_TEXT} here.", "e\u0301 \u4f60\u597d"]
    (tmp_path / "a.txt").write_text("||".join(texts), encoding="utf8", newline="")
    for number, pattern in enumerate((None, LLAMA3)):
        given = None
        if pattern is not None:
            train_bpe(long, 300, [END_OF_TEXT], pattern).save(tmp_path / "t")
            given = tmp_path / "t"
        out = tmp_path / f"data{number}"
        prepare_text([tmp_path / "a.txt"], out, tokenizer=given, separator="||", **SMALL)
        tokenizer = Tokenizer.load(out / "tokenizer")
        end = tokenizer.special_tokens[END_OF_TEXT]
        wanted = [[*tokenizer.encode(text, allow_special=False), end] for text in texts]
        training, validation = ids_in(out)
        assert sorted(training + validation) == sorted(wanted)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab\n <|>e\u00e9"), max_size=60), max_size=6),
    st.integers(1, 12),
)
def test_text_is_cut_into_documents_wherever_blocks_end(parts, size):
    """The parts of a long document are put together again."""
    text = "<|>".join(parts)
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "PIECE", 4)
        for texts, begins, ends in documents._texts(chunks, "<|>"):
            assert (begins and ends) or len(texts) == 1
            found += texts if begins else []
            found[-1] += "" if begins else texts[0]
    assert found == text.split("<|>")


@pytest.mark.usefixtures("small_pieces")
def test_copies_are_on_one_side_and_a_seed_chooses_others(texts, tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_bytes(f"{END_OF_TEXT}\n{END_OF_TEXT}".encode() + (texts / "a.txt").read_bytes())
    prepare_text([texts, copy], tmp_path / "one", validation=0.3, **SMALL)
    prepare_text([texts, copy], tmp_path / "two", validation=0.3, seed=1, **SMALL)
    (training, one), (_, two) = (documents_in(tmp_path / name) for name in ("one", "two"))
    assert not set(one) & set(training)
    assert len(one) > len(set(one))
    assert 0.15 < len(set(one)) / len(set(STORIES)) < 0.45
    assert set(one) != set(two)


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_of_two_documents_each_split_has_one(share, tmp_path):
    (tmp_path / "a.txt").write_text(f"{STORIES[0] * 4}{END_OF_TEXT}{STORIES[1] * 4}")
    for seed in range(4):
        out = tmp_path / f"data{seed}"
        prepare_text([tmp_path / "a.txt"], out, vocab_size=260, validation=share, seed=seed)
        assert [len(split) for split in documents_in(out)] == [1, 1]


@pytest.mark.usefixtures("small_pieces")
def test_two_processes_write_what_one_writes(texts, tmp_path):
    """Some twenty tasks, of which four are under way at a time."""
    for processes in (1, 2):
        prepare_text([texts], tmp_path / f"data{processes}", processes=processes, **SMALL)
    assert files_in(tmp_path / "data1") == files_in(tmp_path / "data2")


def cut_before_the_end(texts, out, monkeypatch):
    def killed(_work):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(prepare._Work, "finish", killed)
        with pytest.raises(Killed):
            prepare_text([texts], out, **SMALL)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("writes", [0, 1, 4, 7, 8, 9, 12, 19, 30])
def test_a_call_that_was_cut_short_is_completed_to_the_same_bytes(writes, texts, tmp_path):
    """Cut before any of its writes: of the state, the tokenizer, a shard, what says it is done."""
    prepare_text([texts], tmp_path / "whole", **SMALL)
    for _ in range(3):  # and the next call is cut short, too
        cut_short(writes, lambda: prepare_text([texts], tmp_path / "data", **SMALL))
        if not (tmp_path / "data" / "prepared.json").exists():
            with pytest.raises(ValueError, match=r"is not complete|holds no prepared text"):
                read_prepared(tmp_path / "data")
    prepare_text([texts], tmp_path / "data", **SMALL)
    assert files_in(tmp_path / "data") == files_in(tmp_path / "whole")


def test_a_killed_call_leaves_no_process_and_is_completed(tmp_path):
    (tmp_path / "a.txt").write_text(stories(2_000_000, seed=3))
    out = tmp_path / "data"
    program = (
        "from llmcourse_labs.curation import prepare_text\n"
        f"prepare_text([{str(tmp_path / 'a.txt')!r}], {str(out)!r}, vocab_size=300,"
        " shard_tokens=2**16, processes=2)"
    )
    kill_half_way(program, out / "training" / "shard_00001.bin")
    assert (out / "unfinished").exists()
    settings = {"vocab_size": 300, "shard_tokens": 2**16}
    prepare_text([tmp_path / "a.txt"], out, **settings)
    prepare_text([tmp_path / "a.txt"], tmp_path / "whole", **settings)
    assert files_in(out) == files_in(tmp_path / "whole")


@pytest.mark.usefixtures("small_pieces")
def test_what_is_done_is_not_done_again(texts, tmp_path, monkeypatch):
    """After the end nothing is; after an end half-way, what was before it is not encoded."""
    out = tmp_path / "data"
    encoded = []
    encoder = encode.Encoder.__call__

    def noted(self, pieces):
        encoded.append(len(pieces))
        return encoder(self, pieces)

    monkeypatch.setattr(encode.Encoder, "__call__", noted)
    cut_before_the_end(texts, out, monkeypatch)
    before = len(encoded)
    prepare_text([texts], out, **SMALL)
    assert 1 <= len(encoded) - before <= before / 4
    encoded.clear()
    prepare_text([texts], out, **SMALL)
    assert not encoded


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    """Of 0.2 and 1 MB: the second may take a quarter of the difference more."""
    monkeypatch.setattr(prepare, "TOKENIZER_BYTES", 50_000)
    for module in (documents, encode, prepare, unpack):
        monkeypatch.setattr(module, "PIECE", 2**15)
    text = stories(1_000_000, seed=4)
    lines = "\n".join(json.dumps({"text": each}) for each in text.split(END_OF_TEXT))
    for name, whole in (("a.txt", text), ("b.jsonl", lines), ("c.txt", "Once more.\n" * 95_000)):
        peaks = []
        for size in (200_000, 1_000_000):
            path = tmp_path / str(size) / name
            path.parent.mkdir(exist_ok=True)
            ending = whole.rindex("\n", 0, size) if name == "b.jsonl" else size
            path.write_text(whole[:ending] + (f"{END_OF_TEXT}Another." if name == "c.txt" else ""))
            tracemalloc.start()
            prepare_text([path], tmp_path / f"{name}-{size}", vocab_size=262, shard_tokens=2**14)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < peaks[0] + 200_000, (name, peaks)


BAD = {
    "latin.txt": (b"one\ntwo\ncaf\xe9\n", "latin.txt, line 3: byte 0xe9 is no UTF-8"),
    "wide.txt": ("\ufeffhello".encode("utf-16"), "wide.txt, line 1: byte 0xff is no UTF-8"),
    "cut.txt": ("one\ncaf\u00e9".encode()[:-1], "cut.txt, line 2: byte 0xc3 is no UTF-8"),
    "empty.txt": (b"", "there is no text in these files"),
    "white.jsonl": (b'{"text": " \\n"}\n\n', "there is no text in these files"),
    "one.txt": (b"a book", "one document, and validation takes another"),
    "a.jsonl": (b'{"text": "a"}\n{"text": "b"}\n{"text"\n', "a.jsonl, line 3: no JSON (Exp"),
    "b.jsonl": (b'{"text": "a"}\n\n{"texts": "b"}\n', "b.jsonl, line 3: no text 'text'; it has t"),
    "c.jsonl": (b'["a"]', "c.jsonl, line 1: no JSON object, but '[\"a\"]'"),
    "d.jsonl": (b'{"text": 3}', "d.jsonl, line 1: no text 'text'; it has text"),
    "e.jsonl": (b'{"text": "\\ud800"}', "e.jsonl, line 1: 'text' holds half a surrogate pair"),
    "f.jsonl": (b'{"text": "a"}\n{"text": "\xff"}', "f.jsonl, line 2: byte 0xff is no UTF-8"),
    "g.jsonl": (b"[" * 100_000, "g.jsonl, line 1: no JSON"),
    "h.txt.gz": (b"no gzip", "h.txt.gz is damaged: Not a gzipped file"),
    "i.txt.gz": (gzip.compress(b"ab\n" * 999)[:-9], "i.txt.gz is damaged: Compressed file ended"),
    "j.md": (b"text", "j.md is of no kind that can be read: known are .txt, .jsonl, .parquet"),
    "k.parquet.gz": (b"text", "k.parquet.gz is of no kind that can be read"),
    "l.parquet": (parquet_of(body=["a"]), "has no column 'text': it has body"),
    "m.parquet": (parquet_of(text=[1]), "the column 'text' holds int64, not strings"),
    "n.parquet": (parquet_of(text=["a", "b", None]), "n.parquet, row 3: 'text' is null"),
    "o.parquet": (b"PAR1 or not", "o.parquet is no Parquet file, or damaged"),
    "p.warc": (b"WARC/1.0", "is a file of a crawl, of which llmcourse curate takes"),
    "small.txt": (b"aaab<|endoftext|>aaac", "pairs for a vocabulary of 260 only: lower --vocab"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_used_is_named_in_one_line(name, tmp_path, capfd):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    assert prepare.main([str(tmp_path / name), "--out", str(tmp_path / "data")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("llmcourse prepare: ")
    assert message in line
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_bad_line_far_behind_leaves_nothing_half_written(processes, texts, tmp_path):
    """Of two the first is named, though the second is found sooner."""
    (texts / "z.jsonl").write_bytes((texts / "z.jsonl").read_bytes() + b"\nno JSON\n")
    (texts / "zz.txt").write_bytes(b"text \xff")
    out = tmp_path / "data"
    out.mkdir()
    train_bpe("".join(STORIES), 300, [END_OF_TEXT]).save(tmp_path / "t")  # no sample is read
    with pytest.raises(ValueError, match=rf"z\.jsonl, line {len(STORIES) - 79}: no JSON"):
        prepare_text([texts], out, tokenizer=tmp_path / "t", processes=processes, **SMALL)
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.txt", "--out", "data"], "gone.txt cannot be read: No such file"),
        (["gone.md", "--out", "data"], "gone.md cannot be read: No such file"),
        (["empty", "--out", "data"], "empty holds no file to read: known are .txt"),
        (["texts", "texts/a.txt", "--out", "data"], "texts/a.txt is named twice"),
        (["texts", "--out", "empty/note"], "note is a file: name a new folder"),
        (["texts", "--out", "empty"], "empty holds something else, note: choose another"),
        (["texts"], "the following arguments are required: out"),
        (["--out", "data"], "files"),
        (["texts", "--out", "data", "--validation", "1"], "validation must be below 1"),
        (["texts", "--out", "data", "--processes", "-1"], "processes must be 1 or greater"),
        (["texts", "--out", "data", "--separator", ""], "the separator is empty"),
        (["texts", "--out", "data", "--vocab", "9"], "vocab_size must be from 257"),
        (["texts", "--out", "data", "--tokenizer", "empty"], "no tokenizer in empty"),
        (["texts", "--out", "data", "--tokenizer", "bare"], "has no <|endoftext|>"),
        (["texts", "--out", "data", "--vocab", "9", "--tokenizer", "t"], "--vocab has no effect"),
        (["texts", "--out", "data", "--field", "body"], "no text 'body'; it has id, text: name"),
    ],
)
@pytest.mark.usefixtures("texts")
def test_arguments_that_cannot_be_used(arguments, message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "note").write_text("mine")
    train_bpe("text", 256).save(tmp_path / "bare")
    assert prepare.main(arguments) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "data").exists()
    assert (tmp_path / "empty" / "note").read_text() == "mine"


@pytest.mark.usefixtures("small_pieces")
def test_a_folder_of_other_files_or_settings_is_left_alone(texts, tmp_path, monkeypatch):
    out = tmp_path / "data"
    cut_before_the_end(texts, out, monkeypatch)
    before = files_in(out)
    with pytest.raises(ValueError, match="was prepared from other files or with other settings"):
        prepare_text([texts], out, **SMALL | {"vocab_size": 299})
    assert files_in(out) == before
    prepare_text([texts], out, **SMALL)
    before = files_in(out)
    (texts / "a.txt").write_text("another text")
    with pytest.raises(ValueError, match="was prepared from other files or with other settings"):
        prepare_text([texts], out, **SMALL)
    assert files_in(out) == before


@pytest.mark.usefixtures("small_pieces")
def test_a_full_disk_is_one_line_and_the_next_call_goes_on(texts, tmp_path, monkeypatch, capfd):
    out, left = tmp_path / "data", 12
    write = files.os.fsync

    def full(descriptor):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(descriptor)

    arguments = [str(texts), "--out", str(out), "--vocab", "300", "--processes", "1"]
    small = functools.partial(prepare_text, shard_tokens=1_000)
    monkeypatch.setattr(prepare, "prepare_text", small)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        assert prepare.main(arguments) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "No space left on device" in line
    assert line.endswith("the same command goes on from there")
    with pytest.raises(ValueError, match="is not complete"):
        read_prepared(out)
    assert prepare.main(arguments) == 0
    prepare_text([texts], tmp_path / "whole", **SMALL)
    assert files_in(out) == files_in(tmp_path / "whole")


def test_two_calls_do_not_write_into_one_folder(texts, tmp_path):
    used = pytest.raises(ValueError, match="is in use by another call in this process")
    with lock.locked(tmp_path / "data"), used:
        prepare_text([texts], tmp_path / "data", **SMALL)
    prepare_text([texts], tmp_path / "data", **SMALL)


@pytest.mark.parametrize(("ending", "package"), [("parquet", "pyarrow"), ("txt.zst", "zstandard")])
def test_an_extra_that_is_missing_is_named(ending, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / f"a.{ending}").write_bytes(b"")
    told = rf"is read with {package}, .* pip install \"llmcourse\[pre"
    with pytest.raises(ValueError, match=told):
        prepare_text([tmp_path / f"a.{ending}"], tmp_path / "data", **SMALL)
