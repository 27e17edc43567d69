"""curation.datatrove: several tasks and processes keep what one pass over all keeps."""

import gzip
import json
import os
import random
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from llmcourse_labs.curation import Document, Dropped
from llmcourse_labs.curation import datatrove as on_many
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.datatrove_blocks import Read
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.funnel import Funnel
from llmcourse_labs.curation.quality import KeepQuality, Quality

WORDS = [f"w{i}" for i in range(300)]


def no_short(text):
    """Drop a text of fewer than 20 words, and put a point behind the others."""
    return f"{text} ." if len(text.split()) >= 20 else Dropped("short")


def no_w7(text):
    """Drop a text with a certain word."""
    return Dropped("w7") if "w7" in text.split() else text


FUNNEL = Funnel(
    rules=(no_short,),
    test_items=no_w7,
    most_documents=3,
    without=("extract", "language", "personal data"),
)


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
    """Return the stages with the funnel of these tests."""
    return on_many.stages(source, out, FUNNEL, tasks=tasks)


@pytest.mark.parametrize(("tasks", "workers"), [(1, 1), (3, 2), (9, 2)])
def test_survivors_are_those_of_one_pass(tmp_path, tasks, workers):
    stream = documents()
    write(tmp_path / "in", stream, 7)
    on_many.run_here(
        work(tmp_path / "in", tmp_path / "out", tasks), tmp_path / "logs", workers=workers
    )
    expected = FUNNEL(stream)
    reasons = {t.name: t.taken - t.kept for t in expected.tallies if "copies" in t.name}
    named = Counter()
    for task in range(tasks):
        named.update(np.load(tmp_path / f"out/copies/{task:05d}.npy").tolist())
    assert named == reasons | {"": len(expected.passed["near copies"])}
    assert survivors(tmp_path / "out") == dict(expected.documents)
    assert 20 < len(expected.documents) < 100
    assert min(tally.taken - tally.kept for tally in expected.tallies if "lines" not in tally.name)


def test_repeated_lines_stay_where_their_step_is_left_out(tmp_path):
    write(tmp_path / "in", documents(60), 2)
    funnel = replace(FUNNEL, without=(*FUNNEL.without, "repeated lines"))
    stages = on_many.stages(tmp_path / "in", tmp_path / "out", funnel, tasks=1)
    on_many.run_here(stages, tmp_path / "logs", workers=1)
    expected = dict(funnel(documents(60)).documents)
    assert survivors(tmp_path / "out") == expected != dict(FUNNEL(documents(60)).documents)


def test_a_run_that_was_cut_short_goes_on(tmp_path):
    write(tmp_path / "in", documents(), 4)
    stages = work(tmp_path / "in", tmp_path / "out", 2)
    first = {"judge": stages["judge"]}
    on_many.run_here(first, tmp_path / "logs", workers=1)
    written = [path.stat().st_mtime_ns for path in (tmp_path / "out/judged").iterdir()]
    on_many.run_here(stages, tmp_path / "logs", workers=1)
    assert written == [path.stat().st_mtime_ns for path in (tmp_path / "out/judged").iterdir()]
    assert survivors(tmp_path / "out") == dict(FUNNEL(documents()).documents)


def test_lines_that_hold_no_document_are_left_out(tmp_path):
    (tmp_path / "in").mkdir()
    good = json.dumps({"id": 1, "text": " ".join(WORDS[20:60])}).encode()
    bad = [b"{", b"[1]", b'{"text": "no name"}', b'{"id": "x", "text": 3}', b"", b"\xff\xfe"]
    deep = b"[" * 100_000
    odd = b'{"id": 2, "text": "' + b"\xff \\ud800 " * 30 + b'"}'
    (tmp_path / "in/0.jsonl").write_bytes(b"\n".join([*bad, good, deep, odd]))
    reader = Read(tmp_path / "in")
    found = list(reader.run(None))
    assert [each.id for each in found] == ["1", "2"]
    assert found[1].text == "\ufffd \ud800 " * 30
    assert reader.stats["no document"].total == 6

    on_many.run_here(work(tmp_path / "in", tmp_path / "out", 3), tmp_path / "logs", workers=1)
    assert list(survivors(tmp_path / "out")) == ["1", "2"]


FAKE_SBATCH = """#!/bin/bash
# Runs each task of an array at once, and says so as sbatch does.
echo "$@" >> {log}
number=$(wc -l < {log})
for last; do :; done
grep -q launch_pickled_pipeline "$last" || { echo "Submitted batch job $number"; exit; }
range=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$last")
for task in $(seq 0 "$range"); do
    SLURM_ARRAY_TASK_ID=$task SLURM_NODELIST=here bash "$last" > {log}.$number.$task 2>&1 || exit 1
done
echo "Submitted batch job $number"
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Put an sbatch, srun and scontrol of our own first on the path; return the log of sbatch."""
    folder, log = tmp_path / "bin", tmp_path / "sbatch.log"
    folder.mkdir()
    programs = {
        "sbatch": FAKE_SBATCH.replace("{log}", str(log)),
        "srun": '#!/bin/bash\nshift 3\n"$@"\n',  # -l -n 1
        "scontrol": "#!/bin/bash\necho here\n",
    }
    for name, program in programs.items():
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return log


def test_jobs_for_slurm_follow_each_other_and_keep_the_same(tmp_path, cluster):
    crawl = list(Crawl(60, seed=1).documents())
    write(tmp_path / "in", crawl, 3)
    out = tmp_path / "out"
    words = [str(tmp_path / "in"), "--out", str(out), "--tasks", "2", "--workers", "2"]
    assert on_many.main([*words, "--slurm", "cpu", "--submit"]) == 0

    calls = cluster.read_text().splitlines()
    jobs = [call for call in calls if "RUN_OFFSET" in call]
    assert len(jobs) == 3
    assert "--dependency=afterok:1" in jobs[1]
    assert "--dependency=afterok:3" in jobs[2]  # job 2 merges the statistics of the first
    here = [*words[:2], str(tmp_path / "here"), *words[3:]]
    assert on_many.main(here) == 0
    expected = Funnel()(crawl).documents
    assert survivors(out) == survivors(tmp_path / "here") == dict(expected) != {}


@pytest.mark.parametrize("without", [(), ("exact copies",), ("near copies", "repeated lines")])
def test_all_steps_of_the_funnel_leave_the_same_documents(tmp_path, without):
    crawl = Crawl(300, seed=1)
    write(tmp_path / "in", list(crawl.documents()), 4)
    labels = list(Crawl(400, seed=2).labels())
    good = [label.main_text for label in labels if label.wanted]
    quality = Quality.train(good, [label.main_text for label in labels if label.kind == "machine"])
    quality.save(tmp_path / "quality.npz")
    (tmp_path / "items.txt").write_text("\n".join(crawl.test_items))
    words = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--tasks", "3", "--workers", "2"]
    words += ["--quality", str(tmp_path / "quality.npz"), "--similarity", "0.5"]
    words += ["--test_items", str(tmp_path / "items.txt"), "--without", *without]
    assert on_many.main(words) == 0
    funnel = Funnel(
        similarity=0.5,
        quality=KeepQuality(classifier=quality),
        test_items=Decontaminate(crawl.test_items),
        without=without,
    )
    curated = funnel(crawl.documents())
    assert survivors(tmp_path / "out") == dict(curated.documents)
    dropped = {tally.name for tally in curated.tallies if tally.kept < tally.taken}
    assert dropped >= {"quality", "test items"}
    assert len(curated.documents) > 40


def test_what_would_be_submitted_is_printed(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    out = str(tmp_path / "out")
    words = [str(tmp_path / "in"), "--out", out, "--tasks", "70", "--workers", "5"]
    assert on_many.main([*words, "--slurm", "cpu", "--time", "1:00:00"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("#!/bin/bash") == 3
    assert printed.count("#SBATCH --array=0-69%5\n") == 2
    assert printed.count("#SBATCH --array=0-0%5\n") == 1
    assert printed.count("#SBATCH --partition=cpu\n") == 3
    for name in ("judge", "copies", "finish"):
        assert f"launch_pickled_pipeline {out}/logs/{name}/executor.pik" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "--out", "x"], "nowhere is no folder"),
        ([".", "--out", "x", "--tasks", "0"], "tasks must be 1 or greater, got 0"),
        ([".", "--out", "x", "--submit"], "--submit is for --slurm PARTITION"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(words, said, capsys):
    assert on_many.main(words) == 2
    assert said in capsys.readouterr().err
