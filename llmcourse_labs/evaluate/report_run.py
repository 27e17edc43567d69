"""What a report reads: a run's settings, weights, tokens, log and evaluations, and that they agree.

Nothing here writes into the folder of the run.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmcourse.base.arguments import require, require_each
from llmcourse.checkpoint import Checkpoint, list_checkpoints
from llmcourse.checkpoint import load as load_checkpoint
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.train.config import TrainConfig
from llmcourse.train.prepare import COMPLETE, SPLITS, Prepared, prepare, read_provenance, verify
from llmcourse.train.saved import BEST, as_value_error, config_and_checkpoint, require_run
from llmcourse_labs.evaluate.command import SUITES, weights_hash
from llmcourse_labs.evaluate.intervals import wilson
from llmcourse_labs.tuning.lora import merged

METRICS = "metrics.jsonl"
"""The log of a run."""

Section = dict[str, Any]
"""A part of a report, see `report`."""


def facts(source: str, values: Mapping[str, int | float | str]) -> dict[str, Any]:
    """Return the facts of a section that come from the same source."""
    return {what: {"value": value, "from": source} for what, value in values.items()}


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], source: str
) -> dict[str, Any]:
    """Return a table of a section."""
    return {"caption": caption, "columns": columns, "rows": rows, "from": source}


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """A run as its folder tells of it."""

    folder: Path
    """Its name stands in the report, the way to it does not."""
    config: TrainConfig
    """Its settings."""
    saved: Checkpoint
    """The weights that count: of a run with patience the best, of others the newest."""
    checkpoint: str
    """Where `saved` lies in the folder."""
    steps_done: int
    """Of the newest checkpoint."""
    weights: str
    """What `weights_hash` says of them."""
    tokenizer: Tokenizer | None
    """None where the tokens came without one."""
    made_from: Mapping[str, Any]
    """What the run wrote of its text before the first step."""
    prepared: Prepared | None
    """Its tokens; None if the folder of prepared text has gone."""
    metrics: list[dict[str, Any]]
    """A row of each step of its log, up to the newest checkpoint."""
    evaluations: dict[str, Mapping[str, Any]]
    """By file, what `llmcourse evaluate` found of these weights."""
    before: "ReportedRun | None"
    """The run that it started from; None if there is none, or it has gone."""

    @property
    def chain(self) -> list["ReportedRun"]:
        """The runs whose weights these were before, the first one first, and this one."""
        return [*([] if self.before is None else self.before.chain), self]

    @property
    def tokens(self) -> dict[tuple[str, str], tuple[int, str]]:
        """By source and split, how many tokens and their hash; none if nobody knows any more."""
        if self.prepared is not None:
            parts = {
                (n, s): getattr(p, s) for n, p in self.prepared.sources.items() for s in SPLITS
            }
            return {key: (len(shards), shards.fingerprint) for key, shards in parts.items()}
        made = self.made_from.get("sources") or {"": self.made_from}
        told = {(n, s): each[s] for n, each in made.items() for s in SPLITS if s in each}
        return {key: (split["tokens"], split["fingerprint"]) for key, split in told.items()}

    def num_tokens(self, split: str) -> int:
        """Return how many tokens all sources have of a split."""
        return sum(number for (_, each), (number, _) in self.tokens.items() if each == split)


def read_run(folder: Path, *, is_last: bool = True) -> ReportedRun:
    """Read a run, and those before it.

    Args:
        folder: of the run.
        is_last: whether it must be finished, and its evaluations count.

    Raises:
        ValueError: if there is no run, it is unfinished or damaged, its tokens are not those that
            it has learnt from, or an evaluation is of another model or was changed.
    """
    folder = folder.resolve()
    require_run(folder)
    # `newest` says how far the run has come, `saved` has the weights that count.
    newest = _newest(folder)
    config, saved = config_and_checkpoint(folder)
    metrics = _metrics(folder / METRICS, newest.step)
    # A run that others started from counts as it is, finished or not.
    if is_last and newest.step < config.steps and not _stopped_early(config, metrics):
        raise ValueError(
            f"{folder} is at step {newest.step} of {config.steps}: go on with llmcourse train "
            f"--resume {folder} before it is reported"
        )
    # What the report counts in the tokens holds only if they are those that were learnt.
    tokenizer, prepared = _tokens(folder, config)
    if prepared is not None:
        _require_same_tokens(folder, saved, prepared)
    with as_value_error(folder):
        weights = weights_hash(merged(saved.model))
    start = Path(config.start) if config.stage == "sft" else None
    # Where `saved` was read from: with patience the best, otherwise the newest.
    best = list_checkpoints(folder / BEST) if config.watching.patience else []
    path = (best or list_checkpoints(folder / "checkpoints"))[-1]
    return ReportedRun(
        folder=folder,
        config=config,
        saved=saved,
        checkpoint=path.relative_to(folder).as_posix(),
        steps_done=newest.step,
        weights=weights,
        tokenizer=tokenizer,
        made_from=read_provenance(folder / "data"),
        prepared=prepared,
        metrics=metrics,
        evaluations=_evaluations(folder, weights, tokenizer) if is_last else {},
        before=read_run(start, is_last=False)
        if start and (start / "config.json").exists()
        else None,
    )


def _newest(folder: Path) -> Checkpoint:
    """Return the newest checkpoint; a damaged one is an error here, and not passed over."""
    listed = list_checkpoints(folder / "checkpoints")
    if not listed:
        raise ValueError(f"{folder} holds no checkpoint yet: train until the first one is saved")
    for path in list_checkpoints(folder / BEST)[-1:]:
        load_checkpoint(path)
    return load_checkpoint(listed[-1])


def _stopped_early(config: TrainConfig, metrics: list[dict[str, Any]]) -> bool:
    """Say whether a run with patience ended because it had waited long enough."""
    losses = [row["validation_loss"] for row in metrics if "validation_loss" in row]
    since_best = len(losses) - 1 - losses.index(min(losses)) if losses else 0
    return 0 < config.watching.patience <= since_best


def _tokens(folder: Path, config: TrainConfig) -> tuple[Tokenizer | None, Prepared | None]:
    """Return the tokenizer of a run and, where they still are, its tokens, each compared."""
    data = folder / "data"
    tokenizer = Tokenizer.load(data / "tokenizer") if (data / "tokenizer").exists() else None
    elsewhere = config.text.corpus == "prepared" and not Path(config.text.data).exists()
    if elsewhere or not (data / COMPLETE).exists():
        return tokenizer, None
    prepared = prepare(config, data)
    verify(prepared)
    return tokenizer, prepared


def _require_same_tokens(folder: Path, saved: Checkpoint, prepared: Prepared) -> None:
    """Raise ValueError if the run has learnt from other tokens than there are now."""
    here = {name: source.training.fingerprint for name, source in prepared.sources.items()}
    there = (saved.data or {}).get("data")
    if there is not None and there != (here if isinstance(there, dict) else here.get("")):
        raise ValueError(
            f"{folder} has learnt from other tokens than its data holds now: bring back the ones "
            "that it began with"
        )


def _metrics(path: Path, last: int) -> list[dict[str, Any]]:
    """Return the rows of a log up to a step, without lines that no run has written."""
    rows = {}
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            row = json.loads(line)
            step, loss = row["step"], row["loss"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if type(step) is int and 1 <= step <= last and isinstance(loss, float):
            rows[step] = row
    return [rows[step] for step in sorted(rows)]


# --- evaluations


def _evaluations(
    folder: Path, weights: str, tokenizer: Tokenizer | None
) -> dict[str, Mapping[str, Any]]:
    """Return what was evaluated, by file."""
    paths = sorted(folder.glob("evaluation_*.json"))
    fingerprint = None if tokenizer is None else tokenizer.fingerprint
    return {
        path.name: read_evaluation(path, weights=weights, tokenizer=fingerprint) for path in paths
    }


def read_evaluation(path: Path, *, weights: str, tokenizer: str | None) -> Mapping[str, Any]:
    """Return what `llmcourse evaluate` wrote, if it is of these weights and was not changed.

    Args:
        path: of the file.
        weights: what `weights_hash` says of the model.
        tokenizer: its fingerprint; None if there is none.

    Raises:
        ValueError: if it is no evaluation, of another model or tokenizer, or its shares and
            intervals do not follow from its verdicts.
    """
    again = "run llmcourse evaluate again, or move the file away"
    try:
        found = json.loads(path.read_text(encoding="utf8"))
        model, told, rows, suite = (found[n] for n in ("model", "tokenizer", "rows", "suite"))
        require_each({name: found[name] for name in ("items", "seed")}, least=0)
        if suite not in SUITES or not all(isinstance(row, dict) for row in rows.values()):
            raise ValueError("its suite or its rows are strange")
        if model != weights:
            raise ValueError(f"of other weights, {model}; those of the run are {weights}: {again}")
        if told != tokenizer:
            raise ValueError(f"of another tokenizer than the run's: {again}")
        for name, row in rows.items():
            for what, share in row.items():
                if isinstance(share, dict):
                    _check_share(f"{name}, {what}", share, is_wilson=name != "all")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no evaluation: {again}") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}") from None
    return found


def _check_share(name: str, row: Mapping[str, Any], *, is_wilson: bool) -> None:
    """Raise ValueError if a share or its interval does not follow from the verdicts."""
    right, total = row["right"], row["of"] if "of" in row else len(row["verdicts"])
    require(f"the number of items of {name}", total, least=1)
    expected = {"right": row["verdicts"].count("1")} if "verdicts" in row else {}
    expected["share"] = right / total
    if is_wilson:
        expected |= wilson(right, total)._asdict()
    for what, value in expected.items():
        if not math.isclose(row[what], value, abs_tol=5.1e-5):
            raise ValueError(
                f"{name} has {what} {row[what]}, and what it counted gives {value:.4f}: it was "
                "changed by hand"
            )
    if not row["low"] <= row["share"] <= row["high"]:
        raise ValueError(f"{name} has a share outside of its own interval")
