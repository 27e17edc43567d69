"""curation.executors: tasks on datatrove's executors leave what one call of `curate` leaves."""

import gzip
import json
import os
import sys

import dill
import pytest

from llmcourse_labs.curation import curate as module
from llmcourse_labs.curation import executors, passes
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.curate import curate, funnel_of, main
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.funnel import STEPS, Funnel
from llmcourse_labs.curation.quality import KeepQuality
from tests.labs.curation.crawls import left_in, quality_of, warc

CRAWL = Crawl(160, seed=1)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of a crawl in files of four kinds, one of them damaged; tests only read them."""
    every = [page.html for page in CRAWL.pages()]
    folder = tmp_path_factory.mktemp("crawl") / "pages"
    folder.mkdir()
    lines = [json.dumps({"text": html}).encode() + b"\n" for html in every]
    (folder / "a.jsonl").write_bytes(b"".join(lines[:60]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[60:110])))
    (folder / "c.warc.gz").write_bytes(warc(every[110:150], packed=True))
    for number, html in enumerate(every[150:]):
        (folder / f"d{number}.html").write_text(html)
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[:20]))[:-9])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "CHUNK", 60_000)
        yield folder


@pytest.fixture(scope="module")
def whole(pages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    return folder, curate([pages], folder, Funnel())


def without_seconds(record):
    tallies = [{k: v for k, v in each.items() if k != "seconds"} for each in record["tallies"]]
    return {**record, "tallies": tallies}


def same(out, whole):
    """Whether a folder has what one call made: documents, their order, and all counts."""
    folder, record = whole
    made = json.loads((out / "report.json").read_bytes())
    assert without_seconds(made) == without_seconds(record)
    return left_in(out) == left_in(folder) != []


@pytest.mark.parametrize(("tasks", "processes"), [(1, 1), (3, 2)])
def test_here_it_leaves_the_same_and_nothing_else(pages, whole, tmp_path, tasks, processes):
    """Mutants: a task that takes other files, copies in another order, a count that is lost."""
    words = [str(pages), "--out", str(tmp_path / "out"), "--executor", "local"]
    words += ["--tasks", str(tasks), "--processes", str(processes)]
    assert main(words) == 0
    assert same(tmp_path / "out", whole)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"documents", "report.html", "report.json"}
    before = (tmp_path / "out" / "report.json").stat().st_mtime_ns
    assert main(words) == 0  # and is not done again
    assert (tmp_path / "out" / "report.json").stat().st_mtime_ns == before


def test_all_steps_leave_the_same(pages, tmp_path):
    quality = quality_of(Crawl(300, seed=2))
    quality.save(tmp_path / "quality.npz")
    (tmp_path / "items.txt").write_text("\n".join(CRAWL.test_items))
    steps = ["--quality", str(tmp_path / "quality.npz"), "--similarity", "0.5"]
    steps += ["--test_items", str(tmp_path / "items.txt"), "--without", "exact copies"]
    words = [str(pages), "--out", str(tmp_path / "out"), "--executor", "local", "--tasks", "2"]
    assert main([*words, *steps]) == 0
    wanted = {"similarity": 0.5, "test_items": Decontaminate(CRAWL.test_items)}
    funnel = Funnel(quality=KeepQuality(classifier=quality), without=("exact copies",), **wanted)
    record = curate([pages], tmp_path / "one", funnel)
    assert same(tmp_path / "out", (tmp_path / "one", record))
    dropped = {tally["name"] for tally in record["tallies"] if tally["kept"] < tally["taken"]}
    assert dropped >= {"read", "quality", "test items"}
    assert set(STEPS) - dropped <= {"exact copies", "repeated lines", "personal data"}


def test_what_was_cut_short_is_not_done_again(pages, whole, tmp_path, monkeypatch):
    words = [str(pages), "--out", str(tmp_path / "out"), "--executor", "local", "--tasks", "2"]
    first = tmp_path / "out" / "tasks" / "first"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(passes, "find_copies", killed)
        assert main([*words, "--processes", "1"]) == 130
    written = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    assert len(written) > 6
    seen = []
    rmtree = executors.shutil.rmtree

    def looked_at(path):
        seen.append({each.name: each.stat().st_mtime_ns for each in first.iterdir()})
        rmtree(path)

    monkeypatch.setattr(executors.shutil, "rmtree", looked_at)
    assert main([*words, "--processes", "1"]) == 0
    assert seen == [written]
    assert same(tmp_path / "out", whole)


def test_files_without_a_document_are_told_and_leave_nothing(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text("{")
    words = [str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "out"), "--executor", "local"]
    assert main(words) == 2
    assert "none of the 1 documents in these files can be read" in capsys.readouterr().err
    assert not (tmp_path / "out" / "unfinished").exists()


def test_what_ray_gets_does_the_same(pages, whole, tmp_path, monkeypatch):
    """As bytes, where another folder is the working one: a cluster's part, without a cluster."""
    out = tmp_path / "out"
    parsed = module._parser().parse_args([str(pages), "--out", str(out)])
    settings = {"field": "text", "separator": "|"}
    sources, folder = module._begun([pages], out, funnel_of(parsed), **settings)
    large = [sources[0]._replace(num_bytes=5 << 30), *sources[1:]]
    wanted = {"tasks": 3, "workers": 2, **settings}
    made = executors.executors(executors.work_on(large, folder, Funnel(), **wanted), "ray")
    assert [each.mem_per_cpu_gb for each in made] == [2, 6, 2, 2]
    made = executors.executors(executors.work_on(sources, folder, Funnel(), **wanted), "ray")
    assert [each.depends for each in made] == [None, *made[:-1]]
    sent = [dill.dumps(each, recurse=True) for each in made]
    out.mkdir()
    folder.save()
    monkeypatch.chdir("/")
    for stage in map(dill.loads, sent):
        for rank in reversed(range(stage.world_size)):
            stage._run_for_rank(rank)
    one, record = whole
    made_from = record["made_from"] | {"separator": "|"}
    assert same(out, (one, record | {"made_from": made_from}))


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


def test_slurms_jobs_follow_each_other_and_leave_the_same(pages, whole, tmp_path, cluster, capsys):
    out = tmp_path / "out"
    words = [str(pages), "--out", str(out), "--tasks", "2", "--processes", "2"]
    assert main([*words, "--executor", "slurm", "--partition", "cpu", "--submit"]) == 0
    jobs = [call for call in cluster.read_text().splitlines() if "RUN_OFFSET" in call]
    assert len(jobs) == 4
    assert ["--dependency=afterok:" in job for job in jobs] == [False, True, True, True]
    assert same(out, whole)


def test_what_would_be_submitted_is_printed_and_nothing_is_written(tmp_path, capsys):
    for number in range(70):
        (tmp_path / f"{number:02d}.txt").write_text("a text")
    out = tmp_path / "out"
    files = [str(path) for path in sorted(tmp_path.glob("*.txt"))]
    words = [*files, "--out", str(out), "--tasks", "70", "--processes", "5"]
    slurm = ["--executor", "slurm", "--partition", "cpu", "--time", "1:00:00"]
    assert main([*words, *slurm]) == 0
    printed = capsys.readouterr().out
    assert printed.count("#!/bin/bash") == 4
    told = {"array=0-69%5": 2, "array=0-0%1": 2, "partition=cpu": 4, "time=1:00:00": 4}
    told["mem-per-cpu=2G"] = 4
    assert {each: printed.count(f"#SBATCH --{each}\n") for each in told} == told
    for name in ("first", "copies", "second", "report"):
        assert f"launch_pickled_pipeline {out}/tasks/logs/{name}/executor.pik" in printed
    assert main([*files[:2], "--out", str(out), "--tasks", "2", "--executor", "ray"]) == 0
    job = capsys.readouterr().out.splitlines()
    assert job[0] == "#!/bin/sh"
    assert job[2].startswith("ray job submit -- llmcourse curate ")
    assert job[2].endswith("--tasks 2 --executor ray --submit")
    slurm = ["--executor", "slurm", "--partition", "cpu"]
    assert main([*files, "--out", str(out), *slurm]) == 0  # however few cores are here
    assert capsys.readouterr().out.count("#SBATCH --array=0-69%70\n") == 2
    for executor, needed in ((["--executor", "ray"], "ray"), (slurm, "sbatch")):
        assert main([*files, "--out", str(out), *executor, "--submit"]) == 2
        assert f"--submit needs {needed}" in capsys.readouterr().err
    assert not out.exists()
