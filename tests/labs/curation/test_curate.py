"""curation.curate: the funnel on files is the funnel in memory, whatever it meets."""

import contextlib
import gzip
import json
import subprocess
import sys
import time
from html.parser import HTMLParser

import psutil
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from llmcourse_labs.curation import Document, Dropped, StepStats, passes
from llmcourse_labs.curation import curate as module
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.curate import curate, main
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.funnel import EXACT, NEAR, STEPS, Funnel
from llmcourse_labs.curation.quality import KeepQuality, Quality
from llmcourse_labs.curation.report import page

CRAWL = Crawl(240, seed=31)
OTHER = list(Crawl(300, seed=32).labels())
CLASSIFIER = Quality.train(
    [x.main_text for x in OTHER if x.wanted],
    [x.main_text for x in OTHER if x.kind in ("machine", "ocr", "spam")],
)
FUNNEL = Funnel(
    quality=KeepQuality(classifier=CLASSIFIER), test_items=Decontaminate(CRAWL.test_items)
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Two files of web pages, read in chunks of a few documents; tests only read them."""
    every = list(CRAWL.pages())
    folder = tmp_path_factory.mktemp("crawl") / "pages"
    folder.mkdir()
    for name, some in (("a.jsonl", every[:100]), ("b.jsonl.gz", every[100:])):
        opened = gzip.open if name.endswith(".gz") else open
        with opened(folder / name, "wb") as file:
            file.writelines(json.dumps({"text": page.html}).encode() + b"\n" for page in some)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "CHUNK", 60_000)
        yield folder


@pytest.fixture(scope="module")
def whole(pages, tmp_path_factory):
    """What one call makes of them that nobody interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    curate([pages], folder, FUNNEL)
    return folder


def left_in(out):
    """The documents that are left, in their order."""
    rows = [
        json.loads(line)
        for path in sorted((out / "documents").iterdir())
        for line in path.read_text().splitlines()
    ]
    return [Document(**row) for row in rows]


def files_in(folder, *, but=("report.json", "report.html")):
    """All files with their bytes, those aside that tell seconds."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in but
    }


def in_memory(folder, funnel):
    """What the funnel does to the same documents in memory."""
    documents = [
        Document(f"{folder / name}:{number}", page.html)
        for name, some in (
            ("a.jsonl", list(CRAWL.pages())[:100]),
            ("b.jsonl.gz", list(CRAWL.pages())[100:]),
        )
        for number, page in enumerate(some, 1)
    ]
    return funnel(documents)


@pytest.mark.parametrize("without", [(), (EXACT,), (NEAR, "rules"), ("extract", "quality")])
def test_files_go_through_the_funnel_as_documents_in_memory_do(pages, tmp_path, without):
    funnel = Funnel(quality=FUNNEL.quality, test_items=FUNNEL.test_items, without=without)
    record = curate([pages], tmp_path / "out", funnel)
    expected = in_memory(pages, funnel)
    assert left_in(tmp_path / "out") == expected.documents
    tallies = [StepStats.from_dict(each) for each in record["tallies"]]
    assert (tallies[0].name, tallies[0].taken, tallies[0].kept) == ("read", 240, 240)
    for tally, other in zip(tallies[1:], expected.tallies, strict=True):
        assert (tally.name, tally.taken, tally.kept) == (other.name, other.taken, other.kept)
        assert (tally.taken_bytes, tally.kept_bytes) == (other.taken_bytes, other.kept_bytes)
        assert sum(tally.reasons.values()) == sum(other.reasons.values())
    assert [t.name for t in tallies[1:]] == [name for name in STEPS if name not in without]
    assert record["left"] == len(expected.documents)
    assert (not without) <= (record["left"] > 30)


def test_processes_change_nothing(pages, whole, tmp_path):
    curate([pages], tmp_path / "3", FUNNEL, processes=3)
    one, three = files_in(whole), files_in(tmp_path / "3")
    assert one == three
    assert len(one) > 4  # several chunks


class KilledError(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("writes", [0, 1, 2, 3, 6, 11, 14])
def test_a_call_that_was_cut_short_is_completed_to_the_same_bytes(
    writes, pages, whole, tmp_path, monkeypatch
):
    atomically, left = passes.files.write_atomically, writes

    def until_killed(path):
        nonlocal left
        if left == 0:
            raise KilledError
        left -= 1
        return atomically(path)

    monkeypatch.setattr(passes.files, "write_atomically", until_killed)
    for _ in range(2):
        left = writes
        with contextlib.suppress(KilledError):
            curate([pages], tmp_path / "out", FUNNEL)
    left = -1
    curate([pages], tmp_path / "out", FUNNEL)
    assert files_in(tmp_path / "out") == files_in(whole)
    assert not (tmp_path / "out" / "chunks").exists()


def test_what_is_done_is_not_done_again(pages, tmp_path, monkeypatch):
    first = curate([pages], tmp_path / "out", FUNNEL)
    monkeypatch.setattr(module, "first_pass", None)
    assert curate([pages], tmp_path / "out", FUNNEL) == json.loads(json.dumps(first))


def test_a_killed_call_leaves_no_process_and_is_completed(tmp_path):
    """By SIGKILL, in the middle, with two other processes."""
    Crawl(1_000, seed=5).write(tmp_path / "in")
    (tmp_path / "in" / "labels.jsonl").unlink()
    out, seconds = tmp_path / "out", 60
    program = (
        "from llmcourse_labs.curation import curate, passes\n"
        f"passes.CHUNK = 100_000\ncurate.main([{str(tmp_path / 'in')!r}, '--out', {str(out)!r}, "
        "'--processes', '2'])"
    )
    call = subprocess.Popen([sys.executable, "-c", program])
    limit = time.monotonic() + seconds
    while not (out / "chunks" / "000003.jsonl").exists():
        assert call.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.01)
    others = psutil.Process(call.pid).children(recursive=True)
    call.kill()
    call.wait()
    assert others
    assert not psutil.wait_procs(others, timeout=seconds)[1]
    subprocess.run([sys.executable, "-c", program], check=True)
    whole = tmp_path / "whole"
    subprocess.run([sys.executable, "-c", program.replace(str(out), str(whole))], check=True)
    assert files_in(out) == files_in(whole)
    assert len(left_in(out)) > 200


STORY = next(x.main_text for x in CRAWL.labels() if x.wanted and len(x.main_text) > 600)


def test_what_is_no_document_is_survived_counted_and_named(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(
        b"\n".join(
            [
                json.dumps({"text": STORY}).encode(),
                b'{"text": "caf\xe9"}',
                b"not json",
                b'{"other": 1}',
                b"[" * 100_000,
                json.dumps({"text": ""}).encode(),
                b"   ",
                json.dumps({"text": "<html>" + "<div>" * 100_000 + STORY[::-1]}).encode(),
                json.dumps({"text": "a" * (passes.LONGEST + 1)}).encode(),
                json.dumps({"text": "b" * 1_000_000}).encode(),
            ]
        )
    )
    (folder / "b.txt").write_bytes(
        b"<|endoftext|>bad \xff\xfe bytes<|endoftext|> \n <|endoftext|>ok."
    )
    (folder / "c.txt").write_text("word " * 4_000_000 + f"<|endoftext|>{STORY} And more.")
    record = curate([folder], tmp_path / "out", Funnel(without=(NEAR,)))
    read = StepStats.from_dict(record["tallies"][0])
    assert read.reasons == {"no UTF-8": 2, "no document in the line": 3, "too long": 2}
    assert read.examples["no document in the line"][0].id == f"{folder / 'a.jsonl'}:3"
    assert "a.jsonl, line 3: no JSON" in read.examples["no document in the line"][0].detail
    assert read.examples["too long"][1].detail == "20,000,000 characters, at most 10,000,000"
    assert [d.text for d in left_in(tmp_path / "out")] == [STORY, f"{STORY} And more."]


def test_a_file_that_is_damaged_ends_there_and_the_others_are_read(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    lines = "\n".join(json.dumps({"text": STORY}) for _ in range(3)).encode()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines)[:-20])
    table = pyarrow.table({"text": [STORY[5:], None, STORY[9:]]})
    parquet.write_table(table, folder / "b.parquet")
    (folder / "d.jsonl.zst").write_bytes(zstandard.compress(lines)[:-3])
    (folder / "c.jsonl").write_text(json.dumps({"text": STORY}))
    record = curate([folder], tmp_path / "out", Funnel(without=STEPS))
    read = StepStats.from_dict(record["tallies"][0])
    assert read.reasons == {"the rest of the file": 2, "no text": 1}
    said = [each.detail for each in read.examples["the rest of the file"]]
    assert "a.jsonl.gz is damaged" in said[0]
    assert "d.jsonl.zst is damaged" in said[1]
    assert read.examples["no text"][0].id.endswith("b.parquet:2")
    assert left_in(tmp_path / "out")[-1] == Document(f"{folder / 'c.jsonl'}:1", STORY)
    assert record["left_out"] == list(STEPS)


def test_a_character_that_stands_for_others_is_no_damage(tmp_path):
    (tmp_path / "a.txt").write_text(f"{STORY} \ufffd is a character.")
    curate([tmp_path / "a.txt"], tmp_path / "out", Funnel(without=STEPS))
    assert left_in(tmp_path / "out")[0].text.endswith("\ufffd is a character.")


def test_two_calls_do_not_write_into_one_folder(pages, tmp_path, monkeypatch):
    refused = []

    def meanwhile(*_):
        for _ in range(2):  # the first refusal must not open the door for the second
            with pytest.raises(ValueError, match="in use by another call"):
                curate([pages], tmp_path / "out", FUNNEL)
            refused.append(True)
        raise KilledError

    monkeypatch.setattr(module, "_first_pass", meanwhile)
    with pytest.raises(KilledError):
        curate([pages], tmp_path / "out", FUNNEL)
    assert len(refused) == 2


def test_the_same_files_by_other_names_are_another_call(pages, tmp_path, monkeypatch):
    """Documents carry the name of their file as it was given."""
    curate([pages], tmp_path / "out", FUNNEL)
    monkeypatch.chdir(pages.parent)
    with pytest.raises(ValueError, match="from other files or with other settings"):
        curate(["pages"], tmp_path / "out", FUNNEL)


class Checked(HTMLParser):
    """What a page holds: its tags, its addresses, its text."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def test_the_report_shows_texts_as_texts_and_asks_nobody_for_anything(pages, tmp_path):
    tally = StepStats(name="rules")
    tally.note(Document("<i>x", "<script>alert(1)</script>"), Dropped("a < b", "<b>"))
    record = curate([pages], tmp_path / "out", FUNNEL)
    record["tallies"].append(tally.as_dict())
    found = Checked()
    found.feed(page(record))
    assert "script" not in found.tags
    assert {"i", "b"}.isdisjoint(found.tags)
    assert found.addresses == []
    assert "<script>alert(1)</script>" in found.text
    assert "a < b: 1" in found.text
    assert found.tags.count("th") == 7 + len(record["tallies"]) + 2 + 7
    assert "color-scheme: light dark" in found.text
    assert f"{record['left']} of 240 documents are left" in found.text
    assert str(16 + 8 * 18) in found.text  # bytes of a document


def test_the_command_says_what_is_left_and_what_to_do_with_it(pages, tmp_path, capsys):
    CLASSIFIER.save(tmp_path / "quality.npz")
    (tmp_path / "items.txt").write_text("\n".join([*CRAWL.test_items, "", "?!"]))
    words = [str(pages), "--out", str(tmp_path / "out"), "--processes", "1"]
    more = ["--quality", str(tmp_path / "quality.npz"), "--test_items", str(tmp_path / "items.txt")]
    assert main([*words, *more]) == 0
    said = capsys.readouterr().out
    assert left_in(tmp_path / "out") == in_memory(pages, FUNNEL).documents
    assert f"{len(left_in(tmp_path / 'out'))} of 240 documents are left" in said
    assert f"llmcourse prepare {tmp_path / 'out' / 'documents'}" in said
    assert main(words) == 2
    assert "from other files or with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--language", "fr"], "no language 'fr'"),
        (["--without", "magic"], "there is no step 'magic'"),
        (["--similarity", "1.5"], "similarity must be"),
        (["--least_quality", "0.7"], "no effect without --quality"),
        (["--quality", "pages"], "pages"),
        (["--test_items", "missing.txt"], "missing.txt"),
        (["--processes", "0.5"], "processes"),
        (["missing/"], "missing"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(given, said, pages, tmp_path, capsys):
    assert main([str(pages), *given, "--out", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr().err
    assert captured.count("\n") == 1
    assert said in captured
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_else_is_left_as_it_is(pages, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("dear")
    assert main([str(pages), "--out", str(tmp_path / "out")]) == 2
    assert "holds something else, letter.txt" in capsys.readouterr().err
    assert files_in(tmp_path / "out").keys() == {(tmp_path / "out/letter.txt").relative_to(
        tmp_path / "out")}  # fmt: skip


def test_a_chunk_of_nothing_has_nothing():
    documents, remembered, tallies = passes.first_pass(FUNNEL, [])
    assert documents == []
    assert [tally.taken for tally in tallies] == [0] * 4
    assert [len(each) for each in remembered] == [0, 0, 0, 0]
