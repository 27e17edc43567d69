"""A generated crawl whose true labels are known: a small web of pages, most of them not wanted::

    crawl = Crawl(3_000, seed=0)
    for page, label in zip(crawl.pages(), crawl.labels()): ...

Page i follows from the seed and i alone: any size, the same everywhere, and a longer crawl begins
with a shorter one.  Labels are never in the pages.
"""

import json
import random
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from llmcourse.base.arguments import require
from llmcourse.base.files import write_atomically
from llmcourse_labs.curation import crawl_pages, crawl_texts
from llmcourse_labs.curation.crawl_texts import number, pick
from llmcourse_labs.curation.step import Document

SHARES = {
    "prose": 0.52,
    "listing": 0.10,
    "spam": 0.10,
    "machine": 0.08,
    "not_found": 0.07,
    "menu": 0.07,
    "ocr": 0.06,
}
"""How often each kind of page is drawn."""

FOREIGN = 0.2
"""Share of the prose that is German or Spanish, half each."""

EXACT_COPIES, NEAR_COPIES = 0.16, 0.16
"""Shares of the English prose that copy an earlier page."""

LEAKING, LYING, PERSONAL, SHORT = 0.05, 0.04, 0.08, 0.1
"""Shares of the English prose that hold a question of the test, the false sentence, the address of
a person, or a single paragraph."""


class Page(NamedTuple):
    """What a crawler keeps of an address."""

    id: str
    url: str
    html: str


class Label(NamedTuple):
    """What a page really is."""

    kind: str
    """A key of `SHARES`."""
    language: str = "en"
    """en, de or es."""
    main_text: str = ""
    """What its author wrote, paragraphs divided by an empty line; nothing if nobody wrote it."""
    copy_of: str | None = None
    """The earlier page of which it has the text."""
    similarity: float = 0.0
    """To that page: 1 for an exact copy, else the Jaccard similarity that was aimed at."""
    leaks: tuple[int, ...] = ()
    """Numbers of the test's questions that it holds."""
    falsehood: bool = False
    """Whether it says `crawl_texts.FALSEHOOD`."""
    personal: tuple[str, ...] = ()
    """Addresses and telephone numbers in it."""

    @property
    def wanted(self) -> bool:
        """Whether a model of English should read it."""
        is_prose = self.kind == "prose" and self.language == "en"
        return is_prose and self.copy_of is None and not self.leaks


class Crawl:
    """Pages with menus and boilerplate, spam, lists, copies, and their labels.

    Args:
        num_pages: 1 or more.
        seed: which web, 0 or greater.

    Raises:
        ValueError: if a number is outside its range.
    """

    def __init__(self, num_pages: int, *, seed: int = 0) -> None:
        require("num_pages", num_pages, least=1)
        require("seed", seed, least=0)
        self.num_pages, self.seed = num_pages, seed

    def pages(self) -> Iterator[Page]:
        """Yield the pages, one at a time."""
        for i in range(self.num_pages):
            rng, label = self._drawn(i)
            yield Page(_id(i), f"https://site{i % 97}.example/{i}", _html(rng, label))

    def labels(self) -> Iterator[Label]:
        """Yield what they are, in the same order."""
        for i in range(self.num_pages):
            yield self._drawn(i)[1]

    def documents(self) -> Iterator[Document]:
        """Yield the pages as a funnel takes them: the id and the HTML."""
        for page in self.pages():
            yield Document(page.id, page.html)

    @cached_property
    def test_items(self) -> list[str]:
        """The questions of the test, which some pages hold."""
        return crawl_texts.questions(seed=self.seed)

    def write(self, folder: str | Path) -> None:
        """Write pages.jsonl (id, url, text: the HTML), and labels.jsonl beside it."""
        rows = {
            "pages": ({"id": p.id, "url": p.url, "text": p.html} for p in self.pages()),
            "labels": ({"id": _id(i), **each._asdict()} for i, each in enumerate(self.labels())),
        }
        for name, some in rows.items():
            with write_atomically(Path(folder) / f"{name}.jsonl") as file:
                file.writelines(json.dumps(row).encode() + b"\n" for row in some)

    def _drawn(self, i: int) -> tuple[random.Random, Label]:
        """Return the label of a page, and the generator that goes on to write its HTML."""
        rng = random.Random(f"page {self.seed} {i}")
        kind = _drawn_of(rng, SHARES)
        if kind in ("menu", "not_found"):
            return rng, Label(kind)
        if kind != "prose":
            writes = {
                "listing": crawl_texts.listing,
                "spam": crawl_texts.spam,
                "machine": crawl_texts.machine_text,
                "ocr": _ocr,
            }
            return rng, Label(kind, main_text="\n\n".join(writes[kind](rng)))
        if rng.random() < FOREIGN:
            language = pick(rng, ("de", "es"))
            texts = crawl_texts.foreign(rng, language, number(rng, 1, 4))
            return rng, Label(kind, language, "\n\n".join(texts))
        copy = rng.random()
        if copy < EXACT_COPIES + NEAR_COPIES and (copied := self._original_before(rng, i)):
            return rng, self._copied(rng, copied, is_exact=copy < EXACT_COPIES)
        return rng, self._original(rng)

    def _original_before(self, rng: random.Random, i: int) -> tuple[str, Label] | None:
        """Return an earlier page that is no copy itself; None if a few tries find none."""
        for _ in range(20 if i else 0):
            j = int(rng.random() * i)
            other = random.Random(f"page {self.seed} {j}")
            is_english = _drawn_of(other, SHARES) == "prose" and other.random() >= FOREIGN
            if is_english and other.random() >= EXACT_COPIES + NEAR_COPIES:
                return _id(j), self._original(other)
        return None

    def _copied(self, rng: random.Random, copied: tuple[str, Label], *, is_exact: bool) -> Label:
        """Return the label of a copy, exact or with some words replaced."""
        original, label = copied
        if is_exact:
            return label._replace(copy_of=original, similarity=1.0)
        similarity = 0.5 + 0.45 * rng.random()
        texts = label.main_text.split("\n\n")
        near = "\n\n".join(crawl_texts.rewritten(rng, text, similarity) for text in texts)
        return label._replace(
            main_text=near,
            copy_of=original,
            similarity=similarity,
            leaks=(),  # its words may have changed
            falsehood=crawl_texts.FALSEHOOD in near,
            personal=tuple(each for each in label.personal if each in near),
        )

    def _original(self, rng: random.Random) -> Label:
        """Return the label of a page of English prose that copies none."""
        count = 1 if rng.random() < SHORT else number(rng, 2, 5)
        texts = crawl_texts.stories_of_a_page(rng, count)
        leaks: tuple[int, ...] = ()
        personal: tuple[str, ...] = ()
        lies = rng.random() < LYING
        if lies:
            texts[-1] += f" {crawl_texts.FALSEHOOD}"
        if rng.random() < LEAKING:
            leaks = (int(rng.random() * len(self.test_items)),)
            texts.insert(1, self.test_items[leaks[0]])
        if rng.random() < PERSONAL:
            sentence, personal = crawl_texts.personal_data(rng)
            texts[0] += f" {sentence}"
        text = "\n\n".join(texts)
        return Label("prose", "en", text, leaks=leaks, falsehood=lies, personal=personal)


def _id(i: int) -> str:
    return f"page-{i:07d}"


def _drawn_of(rng: random.Random, shares: dict[str, float]) -> str:
    """Return a key, each with the probability of its share."""
    place, behind = rng.random(), 0.0
    for name, share in shares.items():
        behind += share
        if place < behind:
            return name
    return name


def _ocr(rng: random.Random) -> list[str]:
    rate = 0.06 + 0.1 * rng.random()
    texts = crawl_texts.stories_of_a_page(rng, number(rng, 2, 4))
    return [crawl_texts.scanned(rng, text, rate) for text in texts]


def _html(rng: random.Random, label: Label) -> str:
    """Return a page for what a label says."""
    if label.kind == "menu":
        return crawl_pages.links_page(rng)
    if label.kind == "not_found":
        return crawl_pages.not_found(rng)
    texts = label.main_text.split("\n\n")
    if label.kind == "listing":
        return crawl_pages.listing_page(rng, texts)
    return crawl_pages.page(rng, pick(rng, crawl_texts.NAMES) + "'s page", texts)
