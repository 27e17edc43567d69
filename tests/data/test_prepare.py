"""prepare: files of one's own become shards, whoever encodes, and however often it is cut short.

Most tests make pieces and shards small, so that a few kilobytes have many of both.
"""

import contextlib
import gzip
import importlib
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcourse.data import TokenShards, documents, prepare_text, read_prepared
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.data.tokenizer import LLAMA3, Tokenizer, train_bpe

prepare = importlib.import_module("llmcourse.data.prepare")
STORIES = [text for text in stories(40_000, seed=1).split(END_OF_TEXT) if text]
SMALL = {"vocab_size": 300, "shard_tokens": 1_000}


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 2,000 characters or bytes."""
    for module in (documents, prepare):
        monkeypatch.setattr(module, "PIECE", 2_000)


@pytest.fixture
def texts(tmp_path):
    """A folder with the stories in files of every kind that needs no extra, and the stories."""
    folder = tmp_path / "texts"
    (folder / "deeper").mkdir(parents=True)
    first, second, third = STORIES[:60], STORIES[60:80], STORIES[80:]
    (folder / "a.txt").write_text(END_OF_TEXT.join(first), encoding="utf8")
    with gzip.open(folder / "deeper" / "b.jsonl.gz", "wt", encoding="utf8") as file:
        file.writelines(json.dumps({"id": 3, "text": text}) + "\n\n" for text in second)
    (folder / "z.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in third))
    (folder / ".hidden.txt").write_text("not for reading")
    (folder / "notes.md").write_text("not for reading")
    return folder


def files_in(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def ids_in(folder):
    """Return the ids of every document of both splits, the separator at its end."""
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
    """Return the documents of both splits, read back."""
    tokenizer = Tokenizer.load(folder / "tokenizer")
    return [[tokenizer.decode(ids[:-1]) for ids in split] for split in ids_in(folder)]


# --- what is written


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
    assert {path.name for path in out.iterdir()} == {
        *("training", "validation", "tokenizer", "prepared.json")
    }


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
            train_bpe("".join(STORIES), 290, [END_OF_TEXT], pattern).save(tmp_path / "t")
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
        patch.setattr(documents, "PIECE", 16)
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
    """Whatever the share and the seed."""
    text = f"{STORIES[0] * 4}{END_OF_TEXT}{STORIES[1] * 4}"
    (tmp_path / "a.txt").write_text(text)
    for seed in range(4):
        out = tmp_path / f"data{seed}"
        prepare_text([tmp_path / "a.txt"], out, vocab_size=260, validation=share, seed=seed)
        assert [len(split) for split in documents_in(out)] == [1, 1]


def test_two_processes_write_what_one_writes(tmp_path):
    """Seven pieces of a megabyte, from a file of text and one of JSON."""
    text = stories(3_500_000, seed=2)
    (tmp_path / "a.txt").write_text(text)
    lines = [json.dumps({"text": each}) for each in text.split(END_OF_TEXT)]
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    inputs = [tmp_path / "b.jsonl", tmp_path / "a.txt"]
    for processes in (1, 2):
        out = tmp_path / f"data{processes}"
        prepare_text(inputs, out, vocab_size=300, shard_tokens=2**16, processes=processes)
    assert files_in(tmp_path / "data1") == files_in(tmp_path / "data2")


# --- ended early


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("writes", [0, 1, 4, 7, 8, 9, 12, 19, 30])
def test_a_call_that_was_cut_short_is_completed_to_the_same_bytes(
    writes, texts, tmp_path, monkeypatch
):
    """Cut before any of its writes: of the state, the tokenizer, a shard, what says it is done."""
    prepare_text([texts], tmp_path / "whole", **SMALL)
    left = writes
    atomically = prepare.files.write_atomically

    def until_killed(path):
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        return atomically(path)

    monkeypatch.setattr(prepare.files, "write_atomically", until_killed)
    monkeypatch.setattr("llmcourse.data.tokenizer.files.write_atomically", until_killed)
    for _ in range(3):  # and the next call is cut short, too
        left = writes
        with contextlib.suppress(Killed):
            prepare_text([texts], tmp_path / "data", **SMALL)
        if not (tmp_path / "data" / "prepared.json").exists():
            with pytest.raises(ValueError, match=r"is not complete|holds no prepared text"):
                read_prepared(tmp_path / "data")
    left = -1
    prepare_text([texts], tmp_path / "data", **SMALL)
    assert files_in(tmp_path / "data") == files_in(tmp_path / "whole")
