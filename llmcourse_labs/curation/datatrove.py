"""The funnel on many machines: its steps as blocks of `datatrove`, here and on Slurm.

    python -m llmcourse_labs.curation.datatrove pages/ --out curated/ --tasks 100 --workers 2
    python -m llmcourse_labs.curation.datatrove pages/ --out curated/ --tasks 100 --slurm cpu

A judge needs one text, so any task may have it.  Copies need all of them.  There are three stages,
each begun when the one before is done, as in the two passes of the funnel:

    judge     N tasks   read, the judges before copies, write; and of each document a few numbers
    copies    1 task    from these numbers alone: which documents and lines are copies
    finish    N tasks   leave copies out, the judges after them, write the survivors

A task takes every N-th file, and a stage that was cut short goes on with the tasks that are not
done.  The survivors are those of `Funnel` in one process, document for document.
"""

import argparse
import importlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep

from llmcourse.base.arguments import require_fields
from llmcourse.base.command_line import fail
from llmcourse_labs.curation.curate import add_steps, funnel_of
from llmcourse_labs.curation.datatrove_blocks import (
    DropCopies,
    DropLines,
    FindCopies,
    Judged,
    Read,
    Remember,
    Write,
)
from llmcourse_labs.curation.funnel import BEFORE_COPIES, LINES, Funnel

PROGRAM = "python -m llmcourse_labs.curation.datatrove"

Stages = dict[str, tuple[int, list[PipelineStep]]]


def stages(source: str | Path, out: str | Path, funnel: Funnel, *, tasks: int) -> Stages:
    """Return the three stages: how many tasks each has, and its blocks.

    Args:
        source: a folder of JSON Lines, `id` and `text`, at any depth; one file at least a task,
            or some have nothing to do.
        out: a folder for the survivors, `documents`, and what lies between.
        funnel: the steps.
        tasks: into how many parts the files are divided.
    """
    source, out = Path(source), Path(out)
    judges = funnel.judges()
    before = [Judged(name, judge) for name, judge in judges.items() if name in BEFORE_COPIES]
    after = [Judged(name, judge) for name, judge in judges.items() if name not in BEFORE_COPIES]
    remember = Remember(out / "remembered", funnel)
    found = out / "copies"
    drop: list[PipelineStep] = [DropCopies(found)]
    if LINES not in funnel.without:
        drop.append(DropLines(found, funnel.most_documents))
    return {
        "judge": (tasks, [Read(source), *before, remember, Write(out / "judged")]),
        "copies": (1, [FindCopies(out / "remembered", found, funnel)]),
        "finish": (tasks, [Read(out / "judged"), *drop, *after, Write(out / "documents")]),
    }


def run_here(work: Stages, logs: str | Path, *, workers: int) -> None:
    """Run the stages one after the other, with so many processes at a time."""
    for name, (tasks, pipeline) in work.items():
        LocalPipelineExecutor(
            pipeline, tasks, workers=min(workers, tasks), logging_dir=str(Path(logs) / name)
        ).run()


def for_slurm(
    work: Stages, logs: str | Path, *, workers: int, partition: str, time: str
) -> list[SlurmPipelineExecutor]:
    """Return an executor for each stage, which begins when the one before is done.

    The last one's `run` submits all of them, where `sbatch` is.

    Args:
        work: from `stages`, on folders that all machines see.
        logs: a folder that all machines see.
        workers: tasks at a time.
        partition: of the cluster.
        time: limit of a task, such as 10:00:00.
    """
    executors: list[SlurmPipelineExecutor] = []
    for name, (tasks, pipeline) in work.items():
        executors.append(
            SlurmPipelineExecutor(
                pipeline,
                tasks,
                time,
                partition,
                workers=workers,
                job_name=f"curate_{name}",
                qos="",
                env_command=f"export PATH={Path(sys.executable).parent}:$PATH",
                logging_dir=str(Path(logs) / name),
                depends=executors[-1] if executors else None,
            )
        )
    return executors


def script(executor: SlurmPipelineExecutor) -> str:
    """Return what `executor.run` would give to `sbatch`."""
    run = (
        f"srun -l -n 1 launch_pickled_pipeline {executor.logging_dir.resolve_paths('executor.pik')}"
    )
    return executor.get_launch_file_contents(executor.get_sbatch_args(executor.tasks), run)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="the funnel as datatrove runs it")
    add = parser.add_argument
    add("source", help="folder of JSON Lines with id and text, which may be HTML")
    add("--out", required=True, help="folder for the survivors and all between")
    add("--tasks", type=int, default=1, help="parts into which the files are divided")
    add("--workers", type=int, default=1, help="tasks at a time")
    add_steps(parser)
    add("--slurm", metavar="PARTITION", help="print the jobs for this partition of a cluster")
    add("--time", default="24:00:00", help="limit of a task on the cluster")
    add("--submit", action="store_true", help="with --slurm, give the jobs to sbatch")
    options = parser.parse_args(arguments)
    try:
        require_fields(options, "tasks", "workers", least=1)
        if options.submit and (options.slurm is None or shutil.which("sbatch") is None):
            raise ValueError("--submit is for --slurm PARTITION, on a machine that has sbatch")
        if not Path(options.source).is_dir():
            raise ValueError(f"{options.source} is no folder")
        work = stages(options.source, options.out, funnel_of(options), tasks=options.tasks)
        _run(work, options)
    except (OSError, ValueError) as problem:
        return fail(PROGRAM, problem)
    return 0


def _run(work: Stages, options: argparse.Namespace) -> None:
    """Run the stages here, or say or do what runs them on a cluster."""
    logs = Path(options.out) / "logs"
    if options.slurm is None:
        run_here(work, logs, workers=options.workers)
        return
    executors = for_slurm(
        work, logs, workers=options.workers, partition=options.slurm, time=options.time
    )
    if options.submit:
        executors[-1].run()
        return
    print("\n".join(map(script, executors)))


if __name__ == "__main__":
    # Under its own name, by which the processes of both executors find what it defines.
    sys.exit(importlib.import_module("llmcourse_labs.curation.datatrove").main())
