"""curation.curate: the funnel on files is the funnel in memory, whatever it meets."""

import gzip
import json
import subprocess
import sys
from html.parser import HTMLParser

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
from llmcourse_labs.curation.quality import KeepQuality
from llmcourse_labs.curation.report import page
from tests.labs.curation import crawls
from tests.labs.curation.crawls import Killed, cut_short, kill_half_way, left_in, quality_of

CRAWL = Crawl(240, seed=31)
CLASSIFIER = quality_of(Crawl(300, seed=32))
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
    folder = tmp_path_factory.mktemp("whole") / "out"
    curate([pages], folder, FUNNEL)
    return folder


def files_in(folder):
    """All files, those aside that tell seconds."""
    return crawls.files_in(folder, but=("report.json", "report.html"))


def in_memory(folder, funnel):
    ids = [f"a.jsonl:{n}" for n in range(1, 101)] + [f"b.jsonl.gz:{n}" for n in range(1, 141)]
    pages = zip(ids, CRAWL.pages(), strict=True)
    return funnel([Document(f"{folder}/{place}", page.html) for place, page in pages])


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


@pytest.mark.parametrize("writes", [0, 1, 2, 3, 6, 11, 14])
def test_a_call_that_was_cut_short_is_completed_to_the_same_bytes(writes, pages, whole, tmp_path):
    for _ in range(2):
        cut_short(writes, lambda: curate([pages], tmp_path / "out", FUNNEL))
    curate([pages], tmp_path / "out", FUNNEL)
    assert files_in(tmp_path / "out") == files_in(whole)
    assert not (tmp_path / "out" / "chunks").exists()


def test_what_is_done_is_not_done_again(pages, tmp_path, monkeypatch):
    first = curate([pages], tmp_path / "out", FUNNEL)
    monkeypatch.setattr(module, "first_pass", None)
    assert curate([pages], tmp_path / "out", FUNNEL) == json.loads(json.dumps(first))


def test_a_killed_call_leaves_no_process_and_is_completed(tmp_path):
    Crawl(1_000, seed=5).write(tmp_path / "in")
    (tmp_path / "in" / "labels.jsonl").unlink()
    out, whole = tmp_path / "out", tmp_path / "whole"
    program = (
        "from llmcourse_labs.curation import curate, passes\n"
        f"passes.CHUNK = 100_000\ncurate.main([{str(tmp_path / 'in')!r}, '--out', {str(out)!r}, "
        "'--processes', '2'])"
    )
    kill_half_way(program, out / "chunks" / "000003.jsonl")
    for each in (program, program.replace(str(out), str(whole))):
        subprocess.run([sys.executable, "-c", each], check=True)
    assert files_in(out) == files_in(whole)
    assert len(left_in(out)) > 200


STORY = next(x.main_text for x in CRAWL.labels() if x.wanted and len(x.main_text) > 600)


def test_what_is_no_document_is_survived_counted_and_named(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    deep = "<html>" + "<div>" * 100_000 + STORY[::-1]
    texts = [STORY, "", deep, "a" * (passes.LONGEST + 1), "b" * 1_000_000]
    lines = [json.dumps({"text": text}).encode() for text in texts]
    lines[1:1] = [b'{"text": "caf\xe9"}', b"not json", b'{"other": 1}', b"[" * 100_000, b"   "]
    (folder / "a.jsonl").write_bytes(b"\n".join(lines))
    bad = b"<|endoftext|>bad \xff\xfe bytes<|endoftext|> \n <|endoftext|>ok."
    (folder / "b.txt").write_bytes(bad)
    (folder / "c.txt").write_text("word " * 4_000_000 + f"<|endoftext|>{STORY} And \ufffd more.")
    record = curate([folder], tmp_path / "out", Funnel(without=(NEAR,)))
    read = StepStats.from_dict(record["tallies"][0])
    assert read.reasons == {"no UTF-8": 2, "no document in the line": 3, "too long": 2}
    assert read.examples["no document in the line"][0].id == f"{folder / 'a.jsonl'}:3"
    assert "a.jsonl, line 3: no JSON" in read.examples["no document in the line"][0].detail
    assert read.examples["too long"][1].detail == "20,000,000 characters, at most 10,000,000"
    assert [d.text for d in left_in(tmp_path / "out")] == [STORY, f"{STORY} And \ufffd more."]


def test_a_file_that_is_damaged_ends_there_and_the_others_are_read(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    lines = "\n".join(json.dumps({"text": STORY}) for _ in range(3)).encode()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines)[:-20])
    parquet.write_table(pyarrow.table({"text": [STORY[5:], None, STORY[9:]]}), folder / "b.parquet")
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


def test_two_calls_do_not_write_into_one_folder(pages, tmp_path, monkeypatch):
    refused = []

    def meanwhile(*_):
        for _ in range(2):  # the first refusal must not open the door for the second
            with pytest.raises(ValueError, match="in use by another call"):
                curate([pages], tmp_path / "out", FUNNEL)
            refused.append(True)
        raise Killed

    monkeypatch.setattr(module, "_first_pass", meanwhile)
    with pytest.raises(Killed):
        curate([pages], tmp_path / "out", FUNNEL)
    assert len(refused) == 2


def test_the_same_files_by_other_names_are_another_call(pages, tmp_path, monkeypatch):
    """Documents carry the name of their file as it was given."""
    curate([pages], tmp_path / "out", FUNNEL)
    monkeypatch.chdir(pages.parent)
    with pytest.raises(ValueError, match="from other files or with other settings"):
        curate(["pages"], tmp_path / "out", FUNNEL)


class Checked(HTMLParser):
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
        (["--executor", "local", "--tasks", "3"], "--tasks 3 for 2 files: a task takes whole"),
        (["--executor", "local", "--tasks", "0"], "tasks must be 1 or greater, got 0"),
        (["--executor", "slurm"], "--executor slurm needs --partition"),
        (["--executor", "ray", "--partition", "cpu"], "no effect without --executor slurm"),
        (["--executor", "ray", "--time", "1:00:00"], "--time 1:00:00 has no effect without"),
        (["--executor", "local", "--submit"], "are for a cluster: leave them out"),
        (["--tasks", "2"], "--tasks 2 has no effect without --executor"),
        (["--executor", "spark"], "spark"),
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
    assert files_in(tmp_path / "out") == {"letter.txt": b"dear"}


def test_a_chunk_of_nothing_has_nothing():
    documents, remembered, tallies = passes.first_pass(FUNNEL, [])
    assert (documents, [tally.taken for tally in tallies]) == ([], [0] * 4)
    assert [len(each) for each in remembered] == [0, 0, 0, 0]
