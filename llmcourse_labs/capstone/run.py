"""The machine: its stages in their order, in a folder that one process at a time has."""

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llmcourse.base.files import LOCK, refuse_others, write_atomically
from llmcourse.base.lock import locked
from llmcourse_labs.capstone import corpus, judging, training, tuning
from llmcourse_labs.capstone.config import CapstoneConfig
from llmcourse_labs.capstone.log import Log
from llmcourse_labs.capstone.stage import BEGUN, DONE, ArtifactStore, CapstoneStage

FREE_BYTES = 50_000_000
"""Room on the disk that the smallest machine needs."""


def _train_settings(config: CapstoneConfig) -> dict[str, Any]:
    return {**config.train.flat(), "data": ""}


def _loss(facts: dict[str, Any]) -> str:
    last = list(facts["validations"].values())[-1]["validation_loss"]
    return f"{facts['steps']} steps, validation {last:.3f} nats per token"


STAGES = (
    CapstoneStage(
        "crawl",
        "pages of a generated web",
        (),
        lambda c: {"seed": c.seed, **asdict(c.crawl)},
        corpus.crawl,
        lambda f: f"{f['pages']:,} pages, {f['bytes']:,} bytes",
    ),
    CapstoneStage(
        "funnel",
        "prose, without copies and without the exam",
        ("crawl",),
        lambda c: {
            "seed": c.seed,
            **asdict(c.funnel),
            "items": c.evaluate.items,
            "exam seed": c.evaluate.seed,
        },
        corpus.funnel,
        lambda f: (
            f"{f['left']:,} of {f['documents']:,} pages, "
            f"{corpus.dropped_items(f)} dropped for the exam"
        ),
    ),
    CapstoneStage(
        "mixture",
        "documents of several sources in their shares",
        ("funnel",),
        lambda c: {"seed": c.seed, **asdict(c.mixture)},
        corpus.mixture,
        lambda f: ", ".join(
            f"{name} {each['epochs']:.2f} epochs" for name, each in f["sources"].items()
        ),
    ),
    CapstoneStage(
        "tokens",
        "a tokenizer, and shards",
        ("mixture",),
        lambda c: {"seed": c.seed, **asdict(c.tokens)},
        corpus.tokens,
        lambda f: (
            f"{f['training']['tokens']:,} to train on, {f['validation']['tokens']:,} held out"
        ),
    ),
    CapstoneStage("train", "pre-training", ("tokens",), _train_settings, training.train, _loss),
    CapstoneStage(
        "sft",
        "answers",
        ("train",),
        lambda c: {**c.sft.flat(), "start": ""},
        tuning.fine_tune,
        _loss,
    ),
    CapstoneStage(
        "dpo",
        "preferences",
        ("sft",),
        lambda c: {"seed": c.seed, **asdict(c.dpo)},
        tuning.prefer,
        lambda f: f"{f['steps']} steps, loss {f['losses'][-1]:.3f}",
    ),
    CapstoneStage(
        "evaluate",
        "the exam, with intervals",
        ("crawl", "mixture", "train", "sft", "dpo"),
        lambda c: {"seed": c.seed, **asdict(c.evaluate)},
        judging.judge,
        lambda f: (
            f"{f['models']['pre-trained']['stories']['all']['plain']['share']:.0%} of the "
            "choices in stories"
        ),
    ),
    CapstoneStage(
        "report",
        "one page",
        ("crawl", "funnel", "mixture", "tokens", "train", "sft", "dpo", "evaluate"),
        lambda c: {},
        judging.report,
        lambda f: f"{len(f['sections'])} sections",
    ),
)
"""The machine, in its order."""


def _is_ours(folder: Path) -> bool:
    """Say whether a machine has begun in a folder."""
    first = folder / f"01_{STAGES[0].name}"
    return any(path.exists() for path in (folder / LOCK, first / BEGUN, first / DONE))


def run_capstone(
    config: CapstoneConfig,
    folder: str | Path,
    *,
    show: Callable[[str], Any] = lambda _: None,
    until: str = "",
) -> dict[str, dict[str, Any]]:
    """Bring every stage to its end; keep what is done, redo what is not as it was.

    Args:
        config: of the machine.
        folder: of the machine; an earlier call's, or a new one.
        show: is given the plan and a line for each stage.
        until: the last stage; "" is all.

    Returns:
        What done.json says of each stage.

    Raises:
        ValueError: if the folder is in use or holds something else, or a stage cannot be done with
            these settings.
        OSError: if a file cannot be written.
        RankError: if a process of the training fails; the next call goes on.
        KeyboardInterrupt: for Ctrl-C; the next call goes on.
    """
    folder = Path(folder)
    names = [stage.name for stage in STAGES]
    if until and until not in names:
        raise ValueError(f"there is no stage {until!r}: choose from {', '.join(names)}")
    refuse_others(folder, _is_ours)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), Log(folder) as log:
        _require_room(folder)
        shelf = ArtifactStore(config, folder, STAGES, log)
        for name, why in shelf.planned().items():
            stage = shelf.stages[name]
            show(f"  {shelf.place_of(name).name:12} {stage.does:45} {why or 'done before'}")
        try:
            for name in names[: names.index(until) + 1 if until else None]:
                done = shelf.bring(name)
                told = shelf.stages[name].told(done["facts"])
                show(f"{shelf.place_of(name).name}: {told}, {done['seconds']:.1f} s")
        except BaseException as error:
            with contextlib.suppress(OSError):
                log("stop", why=f"{type(error).__name__} {error}"[:200])
            raise
        with write_atomically(folder / "hashes.txt") as file:
            file.write(_table(hashes_of(shelf.done)).encode())
        return shelf.done


def hashes(folder: str | Path) -> dict[str, str]:
    """Return the identity of every stage that is done in a folder, weights included."""
    found = {}
    for line in (Path(folder) / "hashes.txt").read_text(encoding="utf8").splitlines():
        digest, _, name = line.partition("  ")
        found[name] = digest
    return found


def hashes_of(done: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the identity of every stage, and the hashes of the weights that it made."""
    found = {}
    for name, each in done.items():
        found[name] = each["identity"]
        if "weights" in each["facts"]:
            found[f"{name} weights"] = each["facts"]["weights"]
    return found


def _table(found: dict[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in found.items())


def _require_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES:
        raise ValueError(
            f"{folder} has {free:,} bytes of room left, and the machine needs {FREE_BYTES:,}: make "
            "room, or name a folder on another disk with --out"
        )
