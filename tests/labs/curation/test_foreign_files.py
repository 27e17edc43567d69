"""Files as others write them: what cannot be read is told, and an end of file is no end of text."""

import gzip
import io
import json
import logging
import os
import random

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from llmcourse.data import read_raw_tokens
from llmcourse_labs.curation import curate, prepare
from llmcourse_labs.curation.documents import documents_of, read_pieces
from llmcourse_labs.curation.extract import is_page
from llmcourse_labs.curation.sources import DamagedFileError, find_sources

TEXTS = [f"document {i} of the river, the mill, {random.Random(i).random()}" for i in range(6)]
LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()


def texts_of(path, separator="<|endoftext|>", errors="strict"):
    (source,) = find_sources([path], pages=True)
    pieces = read_pieces(source, field="text", separator=separator, errors=errors)
    return [text for piece in pieces for text in documents_of(piece, field="text")]


def frames(*contents):
    """Frames of zstandard, one after the other, with a block for each line."""
    out = io.BytesIO()
    for content in contents:
        with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as writer:
            for line in content.splitlines(keepends=True):
                writer.write(line)
                writer.flush(zstandard.FLUSH_BLOCK)
    return out.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, frames, lambda x: frames(x, LINES)])
def test_a_cut_file_is_damaged_wherever_it_is_cut(pack, tmp_path):
    whole = pack(LINES)
    ending = ".gz" if pack is gzip.compress else ".zst"
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(whole)
    assert texts_of(path) in (TEXTS, TEXTS * 2)
    borders = {0, len(frames(LINES))} if ending == ".zst" else {0}
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        if size in borders:
            assert len(texts_of(path)) == 6
            continue
        with pytest.raises(DamagedFileError, match=r"a\.jsonl.* is damaged"):
            texts_of(path)
    path.write_bytes(whole + b"and more")
    with pytest.raises(DamagedFileError, match="is damaged"):
        texts_of(path)


def test_a_skippable_frame_and_an_empty_one_are_passed_and_a_long_window_is_named(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x03\0\0\0abc" + frames(b"") + frames(LINES))
    assert texts_of(path) == TEXTS
    settings = zstandard.ZstdCompressionParameters(window_log=28)
    packed = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    path.write_bytes(frames(LINES) + packed.compress(LINES) + packed.flush())
    with pytest.raises(ValueError, match=r"window of 268,435,456 bytes \(zstd --long\)") as told:
        texts_of(path)
    assert not isinstance(told.value, DamagedFileError)
    assert curated([path], tmp_path / "out") == 2  # and not as the end of the file
    assert not (tmp_path / "out").exists()


def test_a_file_that_has_shrunk_since_it_was_found_is_damaged_and_one_that_grew_is_not(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    (source,) = find_sources([path])
    path.write_bytes(LINES + LINES)
    (piece,) = read_pieces(source, field="text", separator="x")
    assert piece.content == LINES
    path.write_bytes(LINES[:-40])
    with pytest.raises(DamagedFileError, match="40 bytes are missing"):
        list(read_pieces(source, field="text", separator="x"))


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "binary", "dictionary"])
def test_every_kind_of_column_that_holds_text_is_read(kind, tmp_path):
    path = tmp_path / "a.parquet"
    column = pyarrow.array(TEXTS[:2] * 3)
    is_dictionary = kind == "dictionary"
    column = column.dictionary_encode() if is_dictionary else column.cast(getattr(pyarrow, kind)())
    parquet.write_table(pyarrow.table({"text": column}), path, row_group_size=4)
    assert texts_of(path) == TEXTS[:2] * 3


def curated(files, out, **settings):
    without = list(curate.STEPS)
    words = [*map(str, files), "--out", str(out), "--without", *without, "--processes", "1"]
    return curate.main([*words, *(f"--{name}={value}" for name, value in settings.items())])


def test_a_null_or_no_text_is_a_single_row_and_a_damaged_page_ends_its_file(tmp_path):
    path = tmp_path / "a.parquet"
    column = pyarrow.array([b"one", None, b"t\xff\xfewo", b"three"], pyarrow.binary())
    parquet.write_table(pyarrow.table({"text": column}), path)
    parquet.write_table(pyarrow.table({"text": column.take([0, 2])}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="row 2: 'text' has a byte 0xff"):
        texts_of(tmp_path / "b.parquet")
    assert curated([path], tmp_path / "out") == 0
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert (report["left"], report["tallies"][0]["reasons"]) == (2, {"no text": 1, "no UTF-8": 1})
    table = pyarrow.table({"text": [f"{text} {i}" for i in range(100) for text in TEXTS]})
    parquet.write_table(table, path, row_group_size=300, compression="zstd", use_dictionary=False)
    content = bytearray(path.read_bytes())
    where = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset + 40
    content[where : where + 60] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="is damaged after row 300"):
        texts_of(path)


@pytest.mark.parametrize("field", ["content", "number"])
def test_a_wrong_column_is_a_wrong_call_that_leaves_nothing(field, tmp_path, capfd):
    parquet.write_table(pyarrow.table({"text": ["a"], "number": [1]}), tmp_path / "b.parquet")
    (tmp_path / "a.jsonl").write_bytes(LINES)
    files = [tmp_path / "a.jsonl", tmp_path / "b.parquet"]
    assert curated(files, tmp_path / "out", field=field) == 2
    assert f"'{field}'" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_where_nothing_can_be_read_a_call_fails_and_the_next_may_use_the_folder(tmp_path, capfd):
    (tmp_path / "a.jsonl").write_bytes(LINES)
    assert curated([tmp_path / "a.jsonl"], tmp_path / "out", field="content") == 2
    said = capfd.readouterr().err
    assert "none of the 6 documents" in said
    assert "no text 'content'; it has text" in said
    assert curated([tmp_path / "a.jsonl"], tmp_path / "out") == 0


def test_a_dictionary_bomb_is_read_a_row_at_a_time(tmp_path):
    """Ten thousand rows of one text of 3 MB: 30 GB at once."""
    path, texts = tmp_path / "a.parquet", pyarrow.array(["river " * 500_000])
    column = pyarrow.DictionaryArray.from_arrays(np.zeros(10_000, np.int32), texts)
    how = {"dictionary_pagesize_limit": 1 << 25, "row_group_size": 10_000}
    parquet.write_table(pyarrow.table({"text": column}), path, **how)
    assert path.stat().st_size < 1_000_000
    (source,) = find_sources([path])
    pieces = read_pieces(source, field="text", separator="x")
    assert [len(next(pieces).content) for _ in range(5)] == [1] * 5
    assert pyarrow.total_allocated_bytes() < 500_000_000


def test_a_line_without_an_end_is_refused_or_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("llmcourse_labs.curation.documents.LONGEST_LINE", 1 << 20)
    monkeypatch.setattr("llmcourse_labs.curation.passes.LONGEST", 1 << 18)
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES + b'{"text": "' + b"a" * (5 << 20) + b'"}\n' + LINES)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 7: longer than 1,048,576 bytes"):
        texts_of(path)
    assert curated([path], tmp_path / "out") == 0
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert (report["left"], report["tallies"][0]["reasons"]) == (12, {"too long": 1})


def test_what_a_folder_has_beside_is_counted_by_reason(tmp_path, caplog):
    folder, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    for each in (folder / ".git", elsewhere):
        each.mkdir(parents=True)
    for name in ("a.jsonl", "b.ndjson", "c.json", "d.md", "e.jsonl.xz", "f.html", ".g.jsonl"):
        (folder / name).write_bytes(LINES)
    (folder / "c4.json.gz").write_bytes(gzip.compress(LINES))
    (elsewhere / "h.jsonl").write_bytes(LINES)
    (folder / "linked").symlink_to(elsewhere)
    (folder / "z.jsonl").symlink_to(folder / "a.jsonl")
    with caplog.at_level(logging.WARNING):
        found = find_sources([folder])
    assert [source.path.name for source in found] == ["a.jsonl", "b.ndjson", "c4.json.gz"]
    (said,) = caplog.messages
    for told in (
        "1 that is of the kind .json",
        "1 that is of the kind .md",
        "1 that is of the kind .xz",
        "1 that is a web page, of which llmcourse curate takes the text",
        "2 that is hidden",
        "1 that is a link to a folder",
        "1 that is another name of one that is read",
    ):
        assert told in said
    assert [source.path.name for source in find_sources([folder], pages=True)][-1] == "f.html"
    caplog.clear()
    find_sources([elsewhere])
    assert caplog.messages == []


def test_two_folders_may_share_a_file_and_a_file_is_not_named_twice(tmp_path):
    blob = tmp_path / "blob.txt"
    blob.write_text("a")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.txt").symlink_to(blob)
    assert len(find_sources([tmp_path / "one", tmp_path / "two"])) == 1
    with pytest.raises(ValueError, match="is named twice"):
        find_sources([tmp_path / "one", blob])


def test_what_may_have_no_end_is_not_read(tmp_path, caplog):
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", tmp_path):
        with pytest.raises(ValueError, match=r"pipe\.txt is no regular file"):
            find_sources([path])
    (tmp_path / "circle.txt").symlink_to("circle.txt")
    with pytest.raises(ValueError, match=r"circle\.txt cannot be read"):
        find_sources([tmp_path / "circle.txt"])


@pytest.mark.parametrize(
    ("separator", "count"), [("\n\n", 3), ("\r\n\r\n", 2), ("\n---\n", 2), ("#", 1)]
)
def test_a_separator_knows_the_line_ends_of_windows(separator, count, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\n\r\ntwo\n\nthree\r\n---\r\nfour")
    assert len(texts_of(path, separator)) == count


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_separator_of_windows_may_be_cut_by_a_block(cut, tmp_path, monkeypatch):
    monkeypatch.setattr("llmcourse_labs.curation.unpack.PIECE", cut)
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\n\r\ntwo\r\n\r\nthree\n\nfour")
    assert texts_of(path, "\n\n") == ["one", "two", "three", "four"]


def test_the_signs_of_a_separator_are_read_from_the_command_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one a b\r\n\r\ntwo a b\r\n\r\nthree a b")
    arguments = [str(tmp_path / "a.txt"), "--vocab", "257", "--processes", "1"]
    out = tmp_path / "out"
    assert prepare.main([*arguments, "--out", str(out), "--separator", r"\r\n\r\n"]) == 0
    made = json.loads((out / "prepared.json").read_bytes())
    assert made["training"]["documents"] + made["validation"]["documents"] == 3


@pytest.mark.parametrize(
    "begin",
    [
        "<!DOCTYPE html><p>",
        "\ufeff<html>",
        "\u200b\n<HTML lang='en'>",
        "\0<body>",
        "<!-- made by hand -->\n<head>",
        "<?xml version='1.0'?><!DOCTYPE html>",
        "<meta charset='utf8'><p>",
        "<title>T</title>",
        "<div class='a'>",
        "<p>",
    ],
)
def test_a_page_is_a_page_whatever_stands_before(begin):
    assert is_page(f"{begin} Some text of the river.</div></p>\n")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- a comment -->\n# A title\n\nSome Markdown, with <b>HTML</b> in it.",
        "<p align='center'><img src='a.png'></p>\n\n# A title\n\nMarkdown goes on.",
        "a < b and b > c",
        "<river> is no element of HTML, and this is a text.",
        "",
    ],
)
def test_markdown_and_text_are_no_pages(text):
    assert not is_page(text)


def test_pages_are_files_of_their_own(tmp_path):
    (tmp_path / "in").mkdir()
    said = "A page tells of the river that runs under the old stone bridge, and of the miller "
    said += "who opens the gate each morning, whatever the weather is."
    (tmp_path / "in" / "a.html").write_text(f"<!DOCTYPE html><body><p>{said}</p>")
    (tmp_path / "in" / "b.htm").write_text(f"{said} <b>No tag</b> before.")
    arguments = ["--without", *(set(curate.STEPS) - {"extract"}), "--processes", "1"]
    assert curate.main([str(tmp_path / "in"), "--out", str(tmp_path / "out"), *arguments]) == 0
    rows = (tmp_path / "out" / "documents" / "000000.jsonl").read_text().splitlines()
    assert [json.loads(row)["text"] for row in rows] == [said, f"{said} No tag before."]


@pytest.mark.parametrize(
    ("written", "read", "vocab_size"),
    [
        ("<u4", "uint16", 50_304),
        ("<i8", "uint16", 50_304),
        ("<i8", "uint32", 50_304),
        ("<i8", "uint32", 200_000),
        ("<u4", "uint16", 65_536),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_ids_of_another_width_are_refused(written, read, vocab_size, seed, tmp_path):
    ids = np.random.default_rng(seed).integers(0, vocab_size, 5_000)
    ids.astype(written).tofile(tmp_path / "a.bin")
    with pytest.raises(ValueError, match="every second id is"):
        read_raw_tokens(tmp_path / "a.bin", vocab_size=vocab_size, dtype=read)
    ids.astype(read).tofile(tmp_path / "b.bin")  # as wide as they are read
    found = read_raw_tokens(tmp_path / "b.bin", vocab_size=vocab_size, dtype=read)
    assert np.array_equal(found, ids)


def test_a_vocabulary_that_the_dtype_does_not_hold_and_a_header_are_refused(tmp_path):
    ids = np.arange(5_000, dtype="<u2")
    ids.tofile(tmp_path / "a.bin")
    with pytest.raises(ValueError, match="holds ids up to 65,535 and the vocabulary has 128,256"):
        read_raw_tokens(tmp_path / "a.bin", vocab_size=128_256)
    np.save(tmp_path / "b.npy", ids)
    with pytest.raises(ValueError, match=r"header of a \.npy file"):
        read_raw_tokens(tmp_path / "b.npy", vocab_size=65_536)
