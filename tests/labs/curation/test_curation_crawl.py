"""curation.crawl: the same web everywhere, and labels that say what the pages really hold."""

import hashlib
import json
from collections import Counter
from functools import cache
from html import unescape

import pytest

from llmcourse_labs.curation import crawl as module
from llmcourse_labs.curation.crawl import SHARES, Crawl
from llmcourse_labs.curation.crawl_texts import FALSEHOOD, questions, rewritten
from llmcourse_labs.curation.minhash import jaccard

NUM_PAGES = 1_500


@cache
def pages():
    return list(Crawl(NUM_PAGES, seed=3).pages())


@cache
def labels():
    return list(Crawl(NUM_PAGES, seed=3).labels())


@cache
def by_id():
    return dict(zip((page.id for page in pages()), labels(), strict=True))


def test_a_crawl_is_the_same_everywhere_begins_with_a_shorter_one_and_has_its_shares():
    short = Crawl(100, seed=3)
    assert list(short.pages()) == pages()[:100]
    assert list(short.labels()) == labels()[:100]
    assert next(Crawl(1, seed=4).pages()).html != pages()[0].html
    assert len(by_id()) == NUM_PAGES
    page = next(Crawl(1).pages())
    assert (page.id, page.url) == ("page-0000000", "https://site0.example/0")
    assert page.html.startswith("<!DOCTYPE html>")
    assert hashlib.sha256(page.html.encode()).hexdigest()[:12] == "ff45627a2ddb"
    counts = Counter(label.kind for label in labels())
    for kind, share in SHARES.items():
        spread = (share * (1 - share) / NUM_PAGES) ** 0.5
        assert abs(counts[kind] / NUM_PAGES - share) < 4 * spread, kind
    assert sum(SHARES.values()) == pytest.approx(1)


def test_the_text_of_a_label_is_in_its_page_and_copies_have_that_of_an_earlier_one():
    for page, label in zip(pages(), labels(), strict=True):
        plain = unescape(page.html.replace("<span>", "").replace("</span>", ""))
        if label.kind in ("prose", "machine", "ocr", "spam"):
            assert all(text in plain for text in label.main_text.split("\n\n"))
        assert label.kind == "prose" or not label.wanted
        assert (FALSEHOOD in label.main_text) == label.falsehood
        assert all(item in label.main_text for item in label.personal)
        assert page.id not in page.html
        assert not label.copy_of or label.copy_of not in page.html
    copies = [(page, label) for page, label in zip(pages(), labels(), strict=True) if label.copy_of]
    assert len(copies) > 100
    for page, label in copies:
        original = by_id()[label.copy_of]
        assert label.copy_of < page.id
        assert original.copy_of is None
        assert label.main_text == original.main_text or label.similarity < 1
    near = [label for _, label in copies if label.similarity < 1]
    changed = [label.main_text != by_id()[label.copy_of].main_text for label in near]
    assert sum(changed) > 0.8 * len(near)
    exact = [(page, label) for page, label in copies if label.similarity == 1]
    menus = [page.html != pages()[int(label.copy_of[5:])].html for page, label in exact]
    assert sum(menus) > 0.9 * len(exact)  # other menus around it


def test_near_copies_are_as_near_as_was_aimed_at_and_leaked_questions_are_whole():
    found, wanted = [], []
    for label in labels():
        if label.copy_of and label.similarity < 1:
            found.append(jaccard(label.main_text, by_id()[label.copy_of].main_text, 5))
            wanted.append(label.similarity)
    assert len(found) > 50
    assert sum(found) / len(found) == pytest.approx(sum(wanted) / len(wanted), abs=0.05)
    assert min(found) < 0.6
    assert max(found) > 0.85
    words = [f"w{i}" for i in range(100_000)]
    near = rewritten(module.random.Random(0), " ".join(words), 0.7).split(" ")
    assert len(near) == len(words)
    assert jaccard(" ".join(words), " ".join(near), 5) == pytest.approx(0.7, abs=0.01)
    items = questions(seed=3)
    leaking = [label for label in labels() if label.leaks]
    assert len(set(items)) == len(items) == 40
    assert len(leaking) > 10
    for label in leaking:
        assert items[label.leaks[0]] in label.main_text
        assert not label.wanted
    whole = " ".join(label.main_text for label in labels() if not label.leaks and not label.copy_of)
    assert not any(item in whole for item in items)


def test_pages_and_labels_are_written_apart(tmp_path):
    Crawl(20, seed=3).write(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == [page.html for page in pages()[:20]]
    assert set(rows[0]) == {"id", "url", "text"}
    told = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in told] == [label.kind for label in labels()[:20]]
    assert [row["id"] for row in told] == [row["id"] for row in rows]
