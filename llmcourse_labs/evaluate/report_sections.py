"""The sections of a report that say what was trained, on what, how long and with which result.

Each is as `report` describes it: facts, tables, curves, notes, or why it is missing.
"""

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llmcourse.checkpoint.state import code_version
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.mixture import MixedBatches
from llmcourse.data.shards import TokenShards
from llmcourse_labs.evaluate.report_run import METRICS, SPLITS, ReportedRun, Section, facts, table
from llmcourse_labs.scale import cost

MOST_POINTS = 500
"""Of a curve: of a longer log every k-th step is taken, and the last."""

NOT_MEASURED = "not measured"


def run_section(run: ReportedRun) -> Section:
    """Return what kind of run it was."""
    config = run.config
    told = {
        "stage": {"pretrain": "pretraining", "sft": "supervised fine-tuning"}[config.stage],
        "corpus": config.text.corpus,
        "steps done": run.steps_done,
        "steps asked for": config.steps,
        "step of the reported weights": run.saved.step,
        "order of the text": config.text.order,
        "processes": config.layout.num_ranks,
        "mesh": config.flat()["mesh"] or "none",
        "shared by the processes": config.layout.parallel
        if config.layout.num_ranks > 1
        else "nothing",
        "precision of the products": config.precision,
    }
    return {"facts": facts(run.checkpoint, told)}


# --- data


def data_section(run: ReportedRun) -> Section:
    """Return documents, bytes and tokens of every source."""
    if not run.tokens:
        return {"missing": "the tokens of the run are not here any more"}
    if run.prepared is None:
        made = run.made_from.get("sources") or {"": run.made_from}
        counts = {
            (n, s): [made[n][s][k] for k in ("documents", "num_bytes")] for n, s in run.tokens
        }
        source, notes = "data/complete", ["The shards are not here: nobody compared their hashes."]
    else:
        parts = run.prepared.sources.items()
        counts = {(n, s): _counted(run, getattr(part, s)) for n, part in parts for s in SPLITS}
        source, notes = "the token shards, compared with their hashes", []
    rows = [[n or "own", s, *counts[n, s], each[0]] for (n, s), each in run.tokens.items()]
    names = {"tokens to train on": "training", "tokens held out": "validation"}
    told = {what: run.num_tokens(split) for what, split in names.items()}
    columns = ["source", "split", "documents", "bytes of text", "tokens"]
    tables = [table("Sources", columns, rows, source)]
    return {"facts": facts(source, told), "tables": tables, "notes": notes}


def _counted(run: ReportedRun, shards: TokenShards) -> list[int | str]:
    """Count documents and bytes of their text, special tokens left out."""
    if run.tokenizer is None:
        return [NOT_MEASURED, NOT_MEASURED]
    assert run.prepared is not None  # who has shards
    assert run.prepared.bytes_per_id is not None  # who has a tokenizer
    counts = np.zeros(len(run.prepared.bytes_per_id), np.int64)
    for start in range(0, len(shards), 1 << 20):
        counts += np.bincount(shards[start : start + (1 << 20)], minlength=len(counts))
    sizes = run.prepared.bytes_per_id.copy()
    sizes[list(run.tokenizer.special_tokens.values())] = 0
    end = run.tokenizer.special_tokens.get(END_OF_TEXT)
    return [NOT_MEASURED if end is None else int(counts[end]), int(counts @ sizes)]


def funnel_section(run: ReportedRun, curated: Path | None) -> Section:
    """Return what each step of the curation dropped, if its documents are those of the data.

    Raises:
        ValueError: if `curated` is given and holds no funnel, or that of other documents.
    """
    # Text that is no mixture has one source, without a name.
    sources = run.made_from.get("sources") or {"": run.made_from}
    if run.config.text.corpus != "prepared":
        return {"missing": "the text of this run was not prepared from files"}
    # Unless it is named, the funnel is looked for in the folder above the data.
    path = (curated or Path(run.config.text.data).resolve().parent) / "report.json"
    try:
        record = json.loads(path.read_bytes())
        tallies, left_out, last = record["tallies"], record["left_out"], record["tallies"][-1]
        kept = last["kept"], last["kept_bytes"]
        names = ("name", "taken", "kept", "changed", "kept_bytes")
        rows = [[tally[name] for name in names] for tally in tallies]
        told = {"documents read": record["documents"], "documents left": record["left"]}
        # It is the funnel of a source if what it left has as many documents and bytes.
        sizes = {
            name: tuple(sum(each[s][k] for s in SPLITS) for k in ("documents", "num_bytes"))
            for name, each in sources.items()
        }
        owners = [name for name, size in sizes.items() if size == kept]
        problem = "" if owners else "is of other documents than the data"
    except OSError:
        problem = "is not there"
    except (ValueError, LookupError, TypeError):
        problem = "is no report of llmcourse curate"
    if problem:
        where = path if curated else "report.json in the folder above the data"
        problem = f"{where} {problem}: name the folder that llmcourse curate wrote with --curated"
        # What was named must fit; what was only looked for may be missing.
        if curated:
            raise ValueError(problem)
        return {"missing": problem}
    source = "report.json of llmcourse curate" + (f", for {owners[0]}" if owners[0] else "")
    notes = ["Documents and bytes that the funnel left are those of the data."]
    notes += [f"Left out: {', '.join(left_out)}."] if left_out else []
    columns = ["step", "documents before", "documents after", "changed", "bytes after"]
    tables = [table("Steps", columns, rows, source)]
    return {"facts": facts(source, told), "tables": tables, "notes": notes}


def mixture_section(run: ReportedRun) -> Section:
    """Return the shares of the sources, and how often each was read."""
    config = run.config
    if not config.text.stages:
        tokens, of = run.num_tokens("training"), "positions of all steps / tokens to train on"
        passes = config.tokens_before(run.steps_done) / tokens if tokens else NOT_MEASURED
        found = facts(run.checkpoint, {"sources": 1}) | facts(of, {"passes over the text": passes})
        return {"facts": found}
    rows = [
        [stage.step, n, share] for stage in config.text.stages for n, share in stage.shares.items()
    ]
    tables = [table("Shares", ["from step", "source", "share"], rows, run.checkpoint)]
    notes = []
    if run.prepared is None:
        notes = ["How often each source was read: not measured, its tokens are not here any more."]
    else:
        order = MixedBatches(
            {name: source.training for name, source in run.prepared.sources.items()},
            config.text.stages,
            batch_size=config.batch_size,
            context_length=config.model.context_length,
            seed=config.seed,
        )
        counts, epochs = order.counts(run.steps_done), order.epochs(run.steps_done)
        rows = [[name, counts[name], epochs[name]] for name in counts]
        columns, source = ["source", "windows", "epochs"], "data.MixedBatches and the token shards"
        tables.append(table("Read", columns, rows, source))
    found = facts(run.checkpoint, {"sources": len(config.text.source_names)})
    return {"facts": found, "tables": tables, "notes": notes}


# --- model


def shape_section(run: ReportedRun) -> Section:
    """Return the shape of the model, and its parameters counted and by formula."""
    model, notes = run.config.model, []
    counted = sum(weight.numel() for weight in run.saved.model.values())
    found = facts(run.checkpoint, {"parameters in the checkpoint": counted})
    formula, used = cost.num_parameters(model), cost.num_active_parameters(model)
    found |= facts("scale.cost.num_parameters", {"parameters by formula": formula})
    found |= facts("scale.cost.num_active_parameters", {"parameters that a token uses": used})
    names = {"layers": "num_layers", "width": "width", "query heads": "num_heads"}
    names |= {"key/value heads": "num_kv_heads", "size of a head": "head_size"}
    names |= {"hidden units": "hidden", "vocabulary": "vocab_size", "context": "context_length"}
    found |= facts(run.checkpoint, {what: getattr(model, name) for what, name in names.items()})
    parts = [[name, count] for name, count in cost.parameters_by_part(model).items()]
    if run.config.without != "nothing":
        notes.append(f"The formula counts the whole model; this one lacks {run.config.without}.")
    if run.config.stage == "sft" and run.config.lora_rank:
        notes.append("The checkpoint holds the thin matrices beside the weights, the formula not.")
    of = "scale.cost.parameters_by_part"
    tables = [table("Parameters by part", ["part", "parameters"], parts, of)]
    return {"facts": found, "tables": tables, "notes": notes}


def compute_section(run: ReportedRun) -> Section:
    """Return the positions and FLOPs of the run."""
    config = run.config
    told: dict[str, tuple[int | float, str]] = {}
    positions = config.tokens_before(run.steps_done)
    each = cost.training_flop_per_token(config.model)
    told["positions learnt from"] = positions, "train.TrainConfig.tokens_before"
    told["FLOPs for a position"] = each, "scale.cost.training_flop_per_token"
    told["FLOPs of the run"] = each * positions, "the two above, multiplied"
    used = cost.num_active_parameters(config.model)
    told["6 N D"] = 6 * used * positions, "6 x parameters that a token uses x positions"
    found = {what: {"value": value, "from": of} for what, (value, of) in told.items()}
    notes = ["Forward and backward of whole rows by formula; nothing is computed twice."]
    if config.text.order == "packed":
        notes.append("Rows are packed: some positions are padding, and attention does less.")
    return {"facts": found, "notes": notes}


def losses_section(run: ReportedRun) -> Section:
    """Return the losses by step, from the run's own log."""
    rows, tables = run.metrics, []
    if not rows:
        return {"missing": f"the run has no {METRICS}"}
    every = -(-len(rows) // MOST_POINTS)
    taken = [row for place, row in enumerate(rows) if place % every == 0 or row is rows[-1]]
    lines = {"training": [[row["step"], row["loss"]] for row in taken]}
    told = {f"training loss at step {rows[-1]['step']}": rows[-1]["loss"]}
    notes = ["Losses in nats per token."]
    if validated := [row for row in rows if "validation_loss" in row]:
        lines["validation"] = [[row["step"], row["validation_loss"]] for row in validated]
        best = min(validated, key=lambda row: row["validation_loss"])
        for what, row in (("last", validated[-1]), ("lowest", best)):
            told[f"{what} validation loss, at step {row['step']}"] = row["validation_loss"]
        names = sorted({n for row in validated for n in row if n.startswith("validation")})
        cells = [[row["step"], *(row.get(n, NOT_MEASURED) for n in names)] for row in validated]
        columns = ["step", *(name.replace("_", " ") for name in names)]
        tables = [table("Validations", columns, cells, METRICS)]
    notes += [] if validated else ["Validation: not measured; the log has none."]
    if every > 1:
        notes.append(f"Of the training loss the curve has one step in {every}, and the last.")
    if len(rows) < run.steps_done:
        notes.append(f"The log lacks {run.steps_done - len(rows):,} of {run.steps_done:,} steps.")
    curves = [{"x": "step", "y": "nats per token", "lines": lines, "from": METRICS}]
    return {"facts": facts(METRICS, told), "tables": tables, "curves": curves, "notes": notes}


def before_section(run: ReportedRun) -> Section:
    """Return the runs that this one started from, the first one first."""
    *before, _ = run.chain
    origin = Path(getattr(run.chain[0].config, "start", "")).name
    of = "the folders of these runs, as they are now"
    if not before:
        if origin:
            return {"missing": f"{origin}, which the run started from, is not here any more"}
        return {"facts": facts(run.checkpoint, {"stages before this run": 0})}
    rows = []
    for each in before:
        losses = [row["validation_loss"] for row in each.metrics if "validation_loss" in row]
        last, positions = losses[-1:] or [NOT_MEASURED], each.config.tokens_before(each.steps_done)
        kind = [each.folder.name, each.config.stage, each.config.text.corpus, each.steps_done]
        rows.append([*kind, positions, *last, each.weights])
    columns = ["run", "stage", "corpus", "steps", "positions", "last validation loss", "weights"]
    notes = ["A run does not record the hash of the weights that it started from."]
    notes += [f"{origin}, before these, is not here any more."] if origin else []
    found = facts(of, {"stages before this run": len(before)})
    return {"facts": found, "tables": [table("Runs", columns, rows, of)], "notes": notes}


# --- so that it can be made again


def seeds_section(run: ReportedRun) -> Section:
    """Return what every draw of chance came from."""
    found = facts(run.checkpoint, {"weights, order of the text, samples": run.config.seed})
    for each in run.chain[:-1]:
        found |= facts(each.checkpoint, {f"the same of {each.folder.name}": each.config.seed})
    for file, told in run.evaluations.items():
        found |= facts(file, {f"items of the {told['suite']}": told["seed"]})
    return {"facts": found}


def versions_section(run: ReportedRun) -> Section:
    """Return the code that trained, and code and machine of this report."""
    trained = {"llmcourse that trained": run.saved.code["version"]}
    trained["hash of its sources"] = run.saved.code["source_sha256"]
    trained["device that trained"] = run.config.layout.device
    now = {
        "llmcourse of this report": code_version()["version"],
        "hash of these sources": code_version()["source_sha256"],
        "Python": platform.python_version(),
        "torch": str(torch.__version__),
        "NumPy": np.__version__,
        "system and processor": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or NOT_MEASURED,
    }
    found = facts(run.checkpoint, trained) | facts("the process that wrote this report", now)
    return {"facts": found, "notes": ["A run does not record the machine that trained it."]}


def hashes_section(run: ReportedRun) -> Section:
    """Return what names weights, tokenizer and tokens."""
    found = facts(f"{run.checkpoint}, by evaluate.weights_hash", {"weights": run.weights})
    if run.tokenizer is not None:
        found |= facts("data/tokenizer", {"tokenizer": run.tokenizer.fingerprint})
    for each in run.chain:
        of = "" if each is run else f"{each.folder.name}: "
        source = "the headers of the token shards" if each.prepared else "data/complete"
        for (name, split), (_, hash_of) in each.tokens.items():
            found |= facts(source, {f"{of}{split} tokens{' of ' * bool(name)}{name}": hash_of})
    return {"facts": found}


def settings_section(run: ReportedRun) -> Section:
    """Return every setting; of a path its last name."""
    settings: dict[str, Any] = run.config.flat()
    settings |= {f"model.{name}": value for name, value in settings.pop("model").items()}
    for name in settings.keys() & {"start", "data", "bin_folder"}:
        settings[name] = Path(settings[name]).name
    told = {
        name: value if isinstance(value, int | float) else json.dumps(value)
        for name, value in sorted(settings.items())
    }
    return {"facts": facts(run.checkpoint, told)}
