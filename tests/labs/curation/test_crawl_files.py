"""curation.crawl_files: WARC and WET record by record, what is damaged told, real files read."""

import gzip
import io
import json
import random
import subprocess
import sys
import tarfile

import pytest

from llmcourse_labs.curation.crawl_files import texts_of_crawl
from llmcourse_labs.curation.curate import main
from llmcourse_labs.curation.sources import DamagedFileError, find_sources
from llmcourse_labs.curation.step import Dropped
from tests.labs.curation.crawls import HTTP, answer, left_in, record, warc

PAGE = "<html><body><p>A cat sat on the mat.</p></body></html>"
LATIN = "<html><head><meta charset='iso-8859-1'></head><body>caf\xe9</body></html>"


def read(path, content, longest=10_000):
    path.write_bytes(content)
    (source,) = find_sources([path], pages=True)
    return list(texts_of_crawl(source, longest))


def read_to_its_damage(path, content):
    path.write_bytes(content)
    texts, found = texts_of_crawl(*find_sources([path], pages=True), 10_000), []
    try:
        while True:
            found.append(next(texts))
    except DamagedFileError:
        return [*found, Dropped("damaged file")]
    except StopIteration:
        return found


def reasons(found):
    return [each.reason if isinstance(each, Dropped) else each for each in found]


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_pages_are_what_servers_answered(name, tmp_path):
    """Mutants: requests that are taken for pages, a head that stays before the page."""
    pages = [PAGE, "<p>no head", "<html>\xe9\u4e2d</html>"]
    found = read(tmp_path / name, warc(pages, packed=name.endswith(".gz")))
    assert found == [PAGE, "<body><p>no head", pages[2]]


def test_what_is_no_page_is_told_and_the_next_is_read(tmp_path):
    gone = answer("<html>gone</html>", status="404 Not Found")
    kinds = {"Content_Type": "text/plain"}
    content = [
        record("response", answer(PAGE), **HTTP),
        record("response", gone, **HTTP),
        record("response", answer(b"\x89PNG", kind="image/png"), **HTTP),
        record("response", answer(PAGE), digest="A" * 32, **HTTP),
        record("response", answer("x" * 20_000), **HTTP),
        record("revisit", answer(""), **HTTP),
        record("response", answer(LATIN.encode("latin-1"), kind="text/html"), **HTTP),
        record("response", answer("x", kind="text/html; charset=martian"), **HTTP),
        record("conversion", b"the words of a page", **kinds),
        record("resource", PAGE.encode(), Content_Type="text/html"),
        record("metadata", b"fetchTimeMs: 3\r\n", Content_Type="application/warc-fields"),
    ]
    found = read(tmp_path / "a.warc", b"".join(content))
    assert reasons(found) == [
        *(PAGE, "no answer", "no page", "damaged record", "too long"),
        *(LATIN, "unknown letters", "the words of a page", PAGE),
    ]
    details = [each.detail for each in found if isinstance(each, Dropped)]
    assert details[:2] == ["status 404", "image/png"]


def test_what_is_packed_inside_an_answer_is_unpacked(tmp_path):
    body = gzip.compress(PAGE.encode())
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    packed = f"{head}Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
    halves = [PAGE[:20].encode(), PAGE[20:].encode()]
    chunked += b"".join(b"%x\r\n%b\r\n" % (len(half), half) for half in halves) + b"0\r\n\r\n"
    content = [record("response", each, **HTTP) for each in (packed, chunked)]
    assert read(tmp_path / "a.warc", b"".join(content)) == [PAGE, PAGE]


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_file_gives_what_is_whole_and_says_so(packed, tmp_path):
    """Mutants: the length of a record that nobody compares, a file that ends early in silence."""
    pages = [f"<html>{number} {'x' * 300}</html>" for number in range(4)]
    content = warc(pages, packed=packed)
    name = f"a.warc{'.gz' if packed else ''}"
    for cut in range(30, len(content) - 4, 97):
        found = read_to_its_damage(tmp_path / name, content[:cut])
        whole = [text for text in found if isinstance(text, str)]
        assert whole == pages[: len(whole)]
    assert len(whole) == 3
    assert isinstance(found[-1], Dropped)


@pytest.mark.parametrize("name", ["a.warc", "a.wet.gz"])
def test_what_is_no_crawl_is_refused_with_its_name(name, tmp_path):
    content = b"no record at all\n" * 50
    content = gzip.compress(content) if name.endswith(".gz") else content
    with pytest.raises(DamagedFileError, match=rf"{name} is damaged from its beginning"):
        read(tmp_path / name, content)
    assert read(tmp_path / "empty.warc", b"") == []


def test_changed_bytes_end_nothing_but_a_record_or_a_file(tmp_path):
    """Two hundred files with a byte changed: a text, a reason, or a damaged file, and no more."""
    rng, content = random.Random(0), warc([PAGE, PAGE.replace("cat", "dog")])
    told = 0
    for _ in range(200):
        changed = bytearray(content)
        changed[rng.randrange(len(changed))] = rng.randrange(256)
        found = read_to_its_damage(tmp_path / "a.warc", bytes(changed))
        told += any(isinstance(each, Dropped) for each in found)
    assert told > 50


def test_the_command_reads_crawls_and_counts_what_it_left_out(tmp_path, capsys):
    story = " ".join(["The cat sat on the mat and saw the dog in the garden."] * 12)
    page = f"<html><body><p>{story}</p></body></html>"
    bad = record("response", answer(PAGE), digest="A" * 32, **HTTP)
    (tmp_path / "a.warc.gz").write_bytes(warc([page], packed=True) + gzip.compress(bad))
    wet = record("conversion", story.replace("cat", "cow").encode(), Content_Type="text/plain")
    (tmp_path / "b.warc.wet.gz").write_bytes(gzip.compress(wet)[:-4])
    out = tmp_path / "out"
    words = [str(tmp_path / "a.warc.gz"), str(tmp_path / "b.warc.wet.gz"), "--out", str(out)]
    steps = ["language", "rules", "near copies", "repeated lines", "personal data"]
    assert main([*words, "--without", *steps, "--processes", "1"]) == 0
    assert "2 of 4 documents are left" in capsys.readouterr().out
    report = json.loads((out / "report.json").read_bytes())
    assert set(report["tallies"][0]["reasons"]) == {"damaged record", "the rest of the file"}
    first, second = left_in(out)
    assert first == (f"{tmp_path / 'a.warc.gz'}:1", story)
    assert second.text == story.replace("cat", "cow")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Files that crawlers have written, of the source distribution of warcio."""
    folder = tmp_path_factory.mktemp("warcio")
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    words += ["--dest", str(folder), "warcio==1.6.3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot have warcio: {done.stderr[-200:]}")
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        members = [each for each in archive.getmembers() if "/test/data/" in each.name]
        files = [each for each in members if each.isfile()]
        return {each.name.rpartition("/")[2]: archive.extractfile(each).read() for each in files}


@pytest.mark.parametrize("name", ["example.warc", "example.warc.gz"])
def test_a_real_answer_is_read(name, real, tmp_path):
    """Of example.com, packed by the server; what is asked and what is repeated is passed over."""
    (page,) = read(tmp_path / name, real[name], 10_000_000)
    assert "<title>Example Domain</title>" in page
    assert "HTTP/1.1" not in page


def test_real_files_with_half_a_record_a_page_in_chunks_and_no_pages(real, tmp_path):
    path = tmp_path / "example.warc"
    path.write_bytes(real["example-trunc.warc"])
    (source,) = find_sources([path], pages=True)
    texts = texts_of_crawl(source, 10_000_000)
    assert next(texts).reason == "damaged record"
    with pytest.raises(DamagedFileError, match="is damaged after record 1: Invalid WARC header"):
        list(texts)
    (page,) = read(tmp_path / "a.warc", real["example-iana.org-chunked.warc"], 10_000_000)
    assert "Internet Assigned Numbers Authority" in page
    found = read(tmp_path / "b.warc.gz", real["post-test.warc.gz"], 10_000_000)
    assert reasons(found) == ["no page"] * 3
    assert {each.detail for each in found} == {"application/json"}
    (resource,) = read(tmp_path / "c.warc.gz", real["example-resource.warc.gz"], 10_000_000)
    assert isinstance(resource, str | Dropped)
    assert io.StringIO(str(resource)).readline()
