"""data.curation.datatrove: several tasks and processes keep what one pass over all keeps."""

import gzip
import json
import random

import pytest

from llmcourse.data.curation import Document, Dropped, LineCounts, NearDuplicates, Tally, judged
from llmcourse.data.curation.dedup import exact_key

pytest.importorskip("datatrove")

from llmcourse.data.curation import datatrove as on_many  # noqa: E402 - an extra
from llmcourse.data.curation.datatrove_blocks import Copies  # noqa: E402

COPIES = Copies(most=3)
WORDS = [f"w{i}" for i in range(300)]


def no_short(text):
    """Drop a text of fewer than 20 words, and put a point behind the others."""
    return f"{text} ." if len(text.split()) >= 20 else Dropped("short")


def no_w7(text):
    """Drop a text with a certain word."""
    return Dropped("w7") if "w7" in text.split() else text


BEFORE, AFTER = {"short": no_short}, {"w7": no_w7}


def documents(num_documents=150):
    """Return documents of which some are short, copies, near copies, or have lines of others."""
    g = random.Random(0)
    texts = []
    for number in range(num_documents):
        words = g.choices(WORDS, k=g.choice([5, 40, 60]))
        if texts and g.random() < 0.4:
            words = g.choice(texts).split(" ")
            if g.random() < 0.5 and len(words) > 20:
                words[g.randrange(len(words))] = "other"
        text = " ".join(words)
        texts.append(text + ("\nHome | About" if number % 5 == 0 and "\n" not in text else ""))
    return [Document(f"d{i}", text) for i, text in enumerate(texts)]


def in_order(stream):
    """Restate: the judges and the copies on the whole stream, one step after the other."""
    stream = list(judged(stream, no_short, Tally(name="short")))
    seen, once = set(), []
    for document in stream:
        if exact_key(document.text) not in seen:
            once.append(document)
        seen.add(exact_key(document.text))
    near = NearDuplicates(*COPIES.bands)
    for document in once:
        near.add(document.id, COPIES.minhash(document.text))
    dropped = near.dropped()
    left = [document for document in once if document.id not in dropped]
    counts = LineCounts()
    for document in left:
        counts.add(document.text)
    left = judged(left, counts.repeated(COPIES.most), Tally(name="lines"))
    return list(judged(left, no_w7, Tally(name="w7")))


def write(folder, stream, num_files):
    """Write files of different lengths, every second one compressed."""
    folder.mkdir()
    cuts = sorted(random.Random(1).sample(range(len(stream)), num_files - 1))
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, None], strict=True)):
        lines = "".join(json.dumps(each._asdict()) + "\n" for each in stream[first:last])
        packed = number % 2 == 0
        path = folder / f"{number}.jsonl{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(lines.encode()) if packed else lines.encode())


def survivors(out):
    """Return the documents of all tasks by name."""
    found = {}
    for path in sorted((out / "documents").iterdir()):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            record = json.loads(line)
            assert record["id"] not in found
            found[record["id"]] = record["text"]
    return found


def work(source, out, tasks):
    """Return the stages with the judges of these tests."""
    return on_many.stages(source, out, BEFORE, AFTER, COPIES, tasks=tasks)


@pytest.mark.parametrize(("tasks", "workers"), [(1, 1), (3, 2), (9, 2)])
def test_survivors_are_those_of_one_pass(tmp_path, tasks, workers):
    stream = documents()
    write(tmp_path / "in", stream, 7)
    on_many.run_here(
        work(tmp_path / "in", tmp_path / "out", tasks), tmp_path / "logs", workers=workers
    )
    expected = in_order(stream)
    assert survivors(tmp_path / "out") == dict(expected)
    assert 20 < len(expected) < 100
