"""The funnel on many machines: its passes as blocks of `datatrove`, here, on Slurm and on Ray.

    llmcourse curate crawl/ --out curated/ --executor local --tasks 8 --processes 2
    llmcourse curate crawl/ --out curated/ --executor slurm --tasks 100 --partition cpu
    llmcourse curate crawl/ --out curated/ --executor ray --tasks 100

A judge needs one text, so any task may have it.  Copies need all of them.  There are four stages,
each begun when the one before is done:

    first pass     N tasks   read, the judges before copies; and of each document a few numbers
    find copies    1 task    from these numbers alone: which documents and lines are copies
    second pass    N tasks   leave copies out, the judges after them, write the survivors
    report         1 task    add what was counted

A task takes every N-th file, and a stage that was cut short goes on with the tasks that are not
done.  The survivors are those of `curate` in one process, document for document.
"""

import importlib
import math
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor

from llmcourse.base.arguments import require_each
from llmcourse.base.resumable import Resumable
from llmcourse_labs.curation.executor_blocks import (
    Block,
    FindCopies,
    FirstPass,
    Report,
    SecondPass,
)
from llmcourse_labs.curation.funnel import Funnel
from llmcourse_labs.curation.sources import Source

Kind = Literal["local", "slurm", "ray"]
WORK = "tasks"
"""The folder for what lies between the stages, in that of the result."""
MEMORY = 2
"""GiB of a task that reads or writes documents."""


class Work(NamedTuple):
    """What is to be done: the stages, by name, with their tasks."""

    stages: dict[str, tuple[int, Block]]
    logs: Path
    workers: int
    memory: int
    """GiB for the search for copies; the other tasks get `MEMORY`."""


def work_on(
    sources: list[Source],
    folder: Resumable,
    funnel: Funnel,
    *,
    field: str,
    separator: str,
    tasks: int,
    workers: int,
) -> Work:
    """Return the stages of a funnel on files.

    Args:
        sources: the files, on a disk that all machines see.
        folder: of the result, there, too.
        funnel: the steps.
        field: name of the text in JSON Lines and Parquet.
        separator: what stands between the documents of a .txt.
        tasks: parts into which the files are divided; no more than there are files.
        workers: tasks at a time.

    Raises:
        ValueError: if tasks or workers is below 1, or some task would have no file.
    """
    require_each({"tasks": tasks, "processes": workers}, least=1)
    if tasks > len(sources):
        raise ValueError(
            f"--tasks {tasks} for {len(sources)} files: a task takes whole files, so give at most "
            "as many, or cut the files"
        )
    # Machines may work in other folders; documents are named as in one process.
    out = folder.folder.resolve()
    named = [(each._replace(path=each.path.resolve()), str(each.path)) for each in sources]
    settings = (named, out / WORK, out, funnel)
    stages: dict[str, tuple[int, Block]] = {
        "first": (tasks, FirstPass(*settings, field=field, separator=separator)),
        "copies": (1, FindCopies(*settings)),
        "second": (tasks, SecondPass(*settings)),
        "report": (1, Report(*settings, folder=folder.at(out))),
    }
    # About 250 bytes of a document are held, four times over at the end: less than its text has.
    memory = math.ceil(sum(source.num_bytes for source in sources) / 2**30)
    return Work(stages, out / WORK / "logs", workers, max(MEMORY, memory))


def executors(
    work: Work, kind: Kind, *, partition: str = "", time: str = ""
) -> list[PipelineExecutor]:
    """Return an executor for each stage; on a cluster each waits for the one before.

    Args:
        work: from `work_on`.
        kind: local, slurm or ray.
        partition: of Slurm's cluster.
        time: limit of a task there; a day if it is empty.

    Raises:
        ValueError: if there is no such kind, a cluster of Slurm has no partition, or another kind
            has what is Slurm's alone.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"--executor must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    if kind == "slurm" and not partition:
        raise ValueError("--executor slurm needs --partition: a part of the cluster, see sinfo")
    for name, value in {"partition": partition, "time": time}.items():
        if kind != "slurm" and value:
            raise ValueError(f"--{name} {value} has no effect without --executor slurm")
    made: list[PipelineExecutor] = []
    for name, (tasks, block) in work.stages.items():
        logs, workers = str(work.logs / name), min(work.workers, tasks)
        before = made[-1] if made else None
        memory = work.memory if name == "copies" else MEMORY
        if kind == "local":
            made.append(LocalPipelineExecutor([block], tasks, workers=workers, logging_dir=logs))
        elif kind == "ray":
            made.append(
                RayPipelineExecutor(
                    [block],
                    tasks,
                    workers,
                    depends=before,
                    logging_dir=logs,
                    mem_per_cpu_gb=memory,
                )
            )
        else:
            made.append(
                SlurmPipelineExecutor(
                    [block],
                    tasks,
                    time or "24:00:00",
                    partition,
                    mem_per_cpu_gb=memory,
                    workers=workers,
                    job_name=f"curate_{name}",
                    qos="",
                    env_command=f"export PATH={Path(sys.executable).parent}:$PATH",
                    logging_dir=logs,
                    depends=before,
                )
            )
    return made


def run_here(work: Work) -> None:
    """Run the stages one after the other in processes of this machine, and clear up."""
    for executor in executors(work, "local"):
        executor.run()
    shutil.rmtree(work.logs.parent)


def job_of(made: Sequence[PipelineExecutor], words: Sequence[str]) -> str:
    """Return what would be given to a cluster: Slurm's scripts, or Ray's command.

    Args:
        made: the executors of the stages.
        words: of the command line that asks.
    """
    if isinstance(made[-1], SlurmPipelineExecutor):
        return "\n".join(_script(each) for each in made if isinstance(each, SlurmPipelineExecutor))
    again = shlex.join(["llmcourse", "curate", *words, "--submit"])
    return f"#!/bin/sh\n# Where `ray status` finds the cluster.\nray job submit -- {again}\n"


def require_cluster(kind: Kind) -> None:
    """Raise ValueError if this machine cannot give work to a cluster."""
    if kind == "slurm" and shutil.which("sbatch") is None:
        raise ValueError("--submit needs sbatch, which this machine has not: leave it out")
    if kind == "ray" and find_spec("ray") is None:
        raise ValueError("--submit needs ray: pip install ray on the cluster")


def submit(made: Sequence[PipelineExecutor]) -> None:
    """Give the stages to the cluster; the last one brings those it waits for."""
    if isinstance(made[-1], RayPipelineExecutor):
        importlib.import_module("ray").init(address="auto", ignore_reinit_error=True)
    made[-1].run()


def _script(executor: SlurmPipelineExecutor) -> str:
    """Return what `executor.run` would give to `sbatch`."""
    job = executor.logging_dir.resolve_paths("executor.pik")
    run = f"srun -l -n 1 launch_pickled_pipeline {job}"
    return executor.get_launch_file_contents(executor.get_sbatch_args(executor.tasks), run)
