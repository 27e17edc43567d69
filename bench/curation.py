"""From a crawl to a corpus: each step, copies beside `datasketch`, extraction beside `trafilatura`.

The crawl is generated, and its labels say what each page's text is.  A step takes what the step
before it has left.  Two processes are a pool that is given the texts in portions, as the funnel
gives them; they are compared with one process, which is given them all.
"""

import contextlib
import io
import itertools
import json
import multiprocessing
import statistics
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import datasketch
import numpy as np
import trafilatura
from loguru import logger

from bench.timing import medians, row
from llmcourse_labs.curation import Document, Dropped, MinHash, NearDuplicates, bands_for, curate
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.dedup import exact_key, line_hashes
from llmcourse_labs.curation.extract import extract, main_text
from llmcourse_labs.curation.language import KeepLanguage, default_model
from llmcourse_labs.curation.minhash import shingles
from llmcourse_labs.curation.pii import replace_personal
from llmcourse_labs.curation.quality import KeepQuality, Quality
from llmcourse_labs.curation.rules import C4, Gopher, Repetition

PAGES, PORTION = 3_000, 64
SIMILARITY, NUM_HASHES = 0.75, 128
MINHASH = MinHash(num_hashes=NUM_HASHES)


def rows(quick: bool = False) -> list[dict]:
    """Return every row of this benchmark."""
    crawl = Crawl(300 if quick else PAGES, seed=0)
    pages = [page.html for page in crawl.pages()]
    labels = list(crawl.labels())
    repeats = 1 if quick else 5
    found = extraction(pages, [label.main_text for label in labels], repeats)
    kept = [text for text in map(extract, pages) if not isinstance(text, Dropped)]
    found += signatures(kept, repeats) + copies(kept, repeats)
    good = [label.main_text for label in labels if label.wanted][:100]
    bad = [label.main_text for label in labels if label.main_text and not label.wanted][:100]
    found += each_step(pages, crawl.test_items, Quality.train(good, bad), repeats)
    return found + under_datatrove(list(crawl.documents()), repeats)


def megabytes(texts: Iterable[str]) -> float:
    """Return the size of texts in UTF-8."""
    return sum(len(text.encode()) for text in texts) / 1e6


# --- Beside others


def extraction(pages: list[str], truths: list[str], repeats: int) -> list[dict]:
    """Compare speed, and the words found with the words that were written."""
    sides = {"ours": main_text, "theirs": lambda page: trafilatura.extract(page) or ""}
    seconds = medians(
        {name: lambda side=side: [side(page) for page in pages] for name, side in sides.items()},
        repeats=repeats,
        warm_up=0,
    )
    size = megabytes(pages)
    speed = [size / seconds["ours"], size / seconds["theirs"]]
    found = [row("extraction of main text", *speed, "trafilatura", "MB/s", aim=">= 1.0")]
    scores = {name: overlap(map(side, pages), truths) for name, side in sides.items()}
    for number, what in enumerate(("precision", "recall")):
        values = [scores[name][number] for name in sides]
        found.append(row(f"extraction of main text: {what}", *values, "trafilatura", "of words"))
    return found


def overlap(texts: Iterable[str], truths: Iterable[str]) -> tuple[float, float]:
    """Return which share of the found words is in the truth, and of the true ones was found."""
    both = taken = true = 0
    for text, truth in zip(texts, truths, strict=True):
        ours, theirs = Counter(text.split()), Counter(truth.split())
        both += (ours & theirs).total()
        taken += ours.total()
        true += theirs.total()
    return both / taken, both / true


def sketched(texts: Iterable[str], hash_of: Callable[[bytes], int] | None) -> list:
    """Return datasketch's signatures of the same shingles, the functions drawn once for all."""
    template = datasketch.MinHash(num_perm=NUM_HASHES, hashfunc=hash_of)
    made = []
    for text in texts:
        sketch = template.copy()
        sketch.update_batch([" ".join(run).encode() for run in shingles(text)])
        made.append(sketch)
    return made


def signatures(texts: list[str], repeats: int) -> list[dict]:
    """From texts, and from the hashes of shingles alone."""
    hashed = [[zlib.crc32(" ".join(run).encode()) for run in shingles(text)] for text in texts]
    arrays = [np.array(each, np.uint32) for each in hashed]
    template = datasketch.MinHash(num_perm=NUM_HASHES, hashfunc=int)
    sides = {
        "ours": lambda: [MINHASH(text) for text in texts],
        "datasketch": lambda: sketched(texts, None),
        "datasketch with CRC-32": lambda: sketched(texts, zlib.crc32),
        "ours, hashed": lambda: [MINHASH.of_hashes(each) for each in arrays],
        "datasketch, hashed": lambda: [template.copy().update_batch(each) for each in hashed],
    }
    seconds = medians(sides, repeats=repeats)
    size = megabytes(texts)
    what = f"MinHash, {NUM_HASHES} minima"
    found = [
        row(what, size / seconds["ours"], size / seconds[peer], peer, "MB/s", aim=">= 1.0")
        for peer in ("datasketch", "datasketch with CRC-32")
    ]
    runs = sum(map(len, hashed))
    rates = [runs / seconds[f"{side}, hashed"] for side in ("ours", "datasketch")]
    what += ", shingles hashed already"
    return [*found, row(what, *rates, "datasketch", "shingles/s", aim=">= 1.0")]


def copies(texts: list[str], repeats: int) -> list[dict]:
    """From texts to which of them stay, with the same bands."""
    bands, rows_of_one = bands_for(SIMILARITY, NUM_HASHES)

    def ours() -> int:
        near = NearDuplicates(bands, rows_of_one)
        for number, text in enumerate(texts):
            near.add(str(number), MINHASH(text))
        return len(texts) - len(near.dropped())

    def theirs() -> int:
        index = datasketch.MinHashLSH(num_perm=NUM_HASHES, params=(bands, rows_of_one))
        stay = 0
        for number, sketch in enumerate(sketched(texts, None)):
            stay += not index.query(sketch)
            index.insert(str(number), sketch)
        return stay

    seconds = medians({"ours": ours, "theirs": theirs}, repeats=repeats, warm_up=0)
    rates = [len(texts) / seconds[side] for side in ("ours", "theirs")]
    what = f"near copies, {bands} bands of {rows_of_one}"
    return [
        row(what, *rates, "datasketch's MinHashLSH", "documents/s", aim=">= 1.0"),
        row(f"{what}: left", ours(), theirs(), "datasketch's MinHashLSH", "documents"),
    ]


def under_datatrove(documents: list[Document], repeats: int) -> list[dict]:
    """Compare the funnel on files in processes of ours with the same on datatrove's executor."""
    words = ["--separator", "|"]
    with tempfile.TemporaryDirectory() as name:
        folder, runs = Path(name), itertools.count()
        (folder / "in").mkdir()
        for number in range(4):
            lines = [json.dumps({"text": each.text}) + "\n" for each in documents[number::4]]
            (folder / "in" / f"{number}.jsonl").write_text("".join(lines))

        def of(processes: int, *more: str) -> Callable[[], object]:
            def call() -> None:
                out = ["--out", str(folder / str(next(runs))), "--processes", str(processes)]
                with contextlib.redirect_stdout(io.StringIO()):
                    assert curate.main([str(folder / "in"), *out, *words, *more]) == 0

            return call

        on_executor = ("--executor", "local", "--tasks", "4")
        sides = {f"ours {n}": of(n) for n in (1, 2)}
        sides |= {f"theirs {n}": of(n, *on_executor) for n in (1, 2)}
        logger.remove()  # what each task says of itself
        seconds = medians(sides, repeats=min(repeats, 3), warm_up=0)
    rates = {side: len(documents) / value for side, value in seconds.items()}
    return [
        row(
            f"llmcourse curate on files, --processes {n}",
            rates[f"ours {n}"],
            rates[f"theirs {n}"],
            f"with --executor local (datatrove), --processes {n}",
            "documents/s",
        )
        for n in (1, 2)
    ]


# --- Each step, one process and two

_step: Callable[[str], object]


def _begin(step: Callable[[str], object]) -> None:
    global _step  # noqa: PLW0603 - of a worker process, set once
    _step = step


def _take(texts: list[str]) -> list[object]:
    return [_step(text) for text in texts]


def each_step(pages: list[str], items: list[str], quality: Quality, repeats: int) -> list[dict]:
    """Time the steps in their order."""
    steps: dict[str, Callable[[str], object]] = {
        "extract": extract,
        "language": KeepLanguage(model=default_model()),
        "C4's rules": C4(),
        "Gopher's rules": Gopher(),
        "Gopher's repetition": Repetition(),
        "exact keys": exact_key,
        "signatures": MINHASH,
        "hashes of lines": line_hashes,
        "quality": KeepQuality(classifier=quality),
        "decontaminate": Decontaminate(items),
        "personal data": replace_personal,
    }
    found, texts = [], pages
    for name, step in steps.items():
        alone = statistics.median(itertools.starmap(once, [(step, texts)] * repeats))
        rates = (len(texts), megabytes(texts))
        with ProcessPoolExecutor(
            2, multiprocessing.get_context("fork"), initializer=_begin, initargs=(step,)
        ) as pool:
            list(pool.map(_take, [["warm up"]] * 2))
            shared = statistics.median(itertools.starmap(once_shared, [(pool, texts)] * repeats))
        for amount, unit in zip(rates, ("documents/s", "MB/s"), strict=True):
            what = f"step of the funnel: {name}, 2 processes"
            found.append(row(what, amount / shared, amount / alone, "1 process", unit))
        outcomes = [step(text) for text in texts]
        if all(isinstance(each, str | Dropped) for each in outcomes):
            texts = [each for each in outcomes if isinstance(each, str)]
    return found


def once(step: Callable[[str], object], texts: list[str]) -> float:
    """Return the seconds of a step in this process."""
    began = time.perf_counter()
    for text in texts:
        step(text)
    return time.perf_counter() - began


def once_shared(pool: ProcessPoolExecutor, texts: list[str]) -> float:
    """Return the seconds of a step in the processes of a pool."""
    began = time.perf_counter()
    portions = [texts[first : first + PORTION] for first in range(0, len(texts), PORTION)]
    for _ in pool.map(_take, portions):
        pass
    return time.perf_counter() - began
