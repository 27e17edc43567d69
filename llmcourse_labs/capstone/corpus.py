"""The first four stages: a crawl, what a funnel leaves of it, a mixture, tokens."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from llmcourse.base.files import write_atomically
from llmcourse.data import corpus
from llmcourse.data.mixture import shares_of
from llmcourse.data.order import permuted
from llmcourse.data.prepared import SPLITS
from llmcourse_labs.capstone.exam import marbles
from llmcourse_labs.capstone.stage import Artifact, StageFolder, file_hash
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.curate import curate
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.funnel import TEST_ITEMS, Funnel
from llmcourse_labs.curation.prepare import prepare_text
from llmcourse_labs.tuning.tasks import make_tasks


def crawl(place: StageFolder) -> Artifact:
    """Write the pages of the generated web, and what each really is."""
    web = Crawl(place.config.crawl.pages, seed=place.config.seed)
    web.write(place.folder)
    pages, labels = place.folder / "pages.jsonl", list(web.labels())
    facts = {
        "pages": web.num_pages,
        "bytes": pages.stat().st_size,
        "wanted": sum(label.wanted for label in labels),
        "pages that hold an item of the exam": sum(bool(label.leaks) for label in labels),
        "items of the exam that leak": len({item for label in labels for item in label.leaks}),
        "hash": file_hash(pages),
    }
    return Artifact(facts, [pages, place.folder / "labels.jsonl"])


def exam_texts(place: StageFolder) -> list[str]:
    """Return what no page may hold: the marbles, and the tasks in the wordings of the exam.

    Items that are cut from stories are not among them: the grammar says most sentences again and
    again, so that runs of words tell nothing about them; the last stage counts that.
    """
    exam = place.config.evaluate
    tasks = make_tasks(exam.items, seed=exam.seed, held_out=True)
    return [
        *(item.prompt for item in marbles(seed=place.config.seed)),
        *(task.prompt for task in tasks),
    ]


def funnel(place: StageFolder) -> Artifact:
    """Keep the prose; drop copies, and pages that hold items of the exam."""
    settings, pages = place.config.funnel, place.before["crawl"] / "pages.jsonl"
    judge = None
    if settings.run_of_words:
        judge = Decontaminate(exam_texts(place), settings.run_of_words)
    out = place.folder / "curated"
    report = curate([pages], out, Funnel(similarity=settings.similarity, test_items=judge))
    files = sorted((out / "documents").glob("*.jsonl"))
    names = ("taken", "kept", "kept_bytes", "reasons")
    labels = list(Crawl(place.config.crawl.pages, seed=place.config.seed).labels())
    numbers = [int(name.rpartition(":")[2]) - 1 for name in _lines(files, "id")]
    facts = {
        "documents": report["documents"],
        "left": report["left"],
        "wanted and left": sum(labels[number].wanted for number in numbers),
        "steps": {each["name"]: {k: each[k] for k in names} for each in report["tallies"]},
        "hash": _hash_of_texts(_texts(files)),
    }
    if not report["left"]:
        raise ValueError("the funnel left no page: give [crawl] pages more of them")
    return Artifact(facts, files)


def mixture(place: StageFolder) -> Artifact:
    """Write the documents of every source in their shares, shuffled, as one stream.

    Packed rows are made of one stream of whole documents, so the sources are mixed before they are
    packed.  A source that has too little is read again, in another order.
    """
    settings, seed = place.config.mixture, place.config.seed
    files = sorted((place.before["funnel"] / "curated" / "documents").glob("*.jsonl"))
    chosen: list[str] = []
    facts: dict[str, Any] = {"sources": {}}
    for number, (name, share) in enumerate(shares_of(settings.shares).items()):
        wanted = round(share * settings.num_bytes)
        texts = list(_texts(files)) if name == "web" else _stories(wanted, seed)
        taken = list(_taken(texts, wanted, seed=seed + number))
        size, there = (sum(len(text.encode()) for text in each) for each in (taken, texts))
        facts["sources"][name] = {
            "share": share,
            "documents": len(taken),
            "bytes": size,
            "epochs": round(size / there, 3),
        }
        chosen += taken
    order = permuted(np.arange(len(chosen)), len(chosen), seed=seed)
    path = place.folder / "mixture.jsonl"
    with write_atomically(path) as file:
        file.writelines(json.dumps({"text": chosen[i]}).encode() + b"\n" for i in order)
    facts["documents"] = len(chosen)
    facts["hash"] = file_hash(path)
    return Artifact(facts, [path])


def _stories(num_bytes: int, seed: int) -> list[str]:
    return [text for text in corpus.stories(num_bytes, seed).split(corpus.END_OF_TEXT) if text]


def _taken(texts: list[str], num_bytes: int, *, seed: int) -> Iterator[str]:
    """Yield texts in a shuffled order, epoch after epoch, until there are enough bytes."""
    taken, epoch = 0, 0
    while True:
        for place in permuted(np.arange(len(texts)), len(texts), seed=seed, epoch=epoch):
            if taken >= num_bytes:
                return
            taken += len(texts[place].encode())
            yield texts[place]
        epoch += 1


def tokens(place: StageFolder) -> Artifact:
    """Train the tokenizer on the mixture, and write its tokens in shards."""
    settings, out = place.config.tokens, place.folder / "data"
    made = prepare_text(
        [place.before["mixture"] / "mixture.jsonl"],
        out,
        vocab_size=settings.vocab_size,
        validation=settings.validation,
        seed=place.config.seed,
    )
    facts = {
        "tokenizer": made.tokenizer,
        "vocab_size": made.vocab_size,
        **{name: getattr(made, name)._asdict() for name in SPLITS},
    }
    return Artifact(facts, [p for p in out.rglob("*") if p.is_file()])


def mixed_texts(folder: Path) -> list[str]:
    """Return the documents of the mixture that a stage has written into its folder."""
    return list(_texts([folder / "mixture.jsonl"]))


def _texts(files: Iterable[Path]) -> Iterator[str]:
    return _lines(files, "text")


def _lines(files: Iterable[Path], name: str) -> Iterator[str]:
    for path in files:
        with path.open("rb") as file:
            for line in file:
                yield json.loads(line)[name]


def _hash_of_texts(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def dropped_items(facts: dict[str, Any]) -> int:
    """Return how many pages the funnel dropped because they held an item of the exam."""
    step = facts["steps"].get(TEST_ITEMS)
    return step["taken"] - step["kept"] if step else 0
