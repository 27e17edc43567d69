"""The sections of a report, each as `report` describes them: facts, tables, curves, notes.

A fact is a value with where it came from.  A section without any says why in "missing".
"""

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llmcourse.checkpoint.state import code_version
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.mixture import MixedBatches
from llmcourse.data.shards import TokenShards
from llmcourse.evaluate.report_run import METRICS, ReportedRun, Section, fact
from llmcourse.scale import cost

MOST_POINTS = 500
"""Of a curve: of a longer log every k-th step is taken, and the last."""

SPLITS = ("training", "validation")


def run_section(run: ReportedRun) -> Section:
    """Return what kind of run it was."""
    config, source = run.config, run.checkpoint
    facts = {
        "stage": fact(config.stage, source),
        "corpus": fact(config.corpus, source),
        "steps done": fact(run.steps_done, source),
        "steps asked for": fact(config.steps, source),
        "step of the reported weights": fact(run.saved.step, source),
        "order of the text": fact(config.order, source),
        "processes": fact(config.num_ranks, source),
        "mesh": fact(config.mesh or "none", source),
        "shared by the processes": fact(config.parallel, source),
        "precision of the products": fact(config.precision, source),
        "engine": fact(config.engine, source),
    }
    return {"facts": facts}


# --- data


def data_section(run: ReportedRun) -> Section:
    """Return documents, bytes, tokens and hashes of every source."""
    if run.prepared is None:
        return _recorded_data(run)
    rows = []
    for name, source in run.prepared.sources.items():
        for split, shards in zip(SPLITS, source, strict=True):
            documents, num_bytes = _counted(run, shards)
            hash_of = shards.fingerprint
            rows.append([name or "the run's", split, documents, num_bytes, len(shards), hash_of])
    return _data(rows, "the token shards, compared with their hashes")


def _recorded_data(run: ReportedRun) -> Section:
    """Return what the run wrote of text that lies elsewhere now."""
    made = run.made_from
    sources = made.get("sources") or ({"": made} if "training" in made else {})
    if not sources:
        return {"missing": "the tokens of the run are not here any more"}
    keys = ("documents", "num_bytes", "tokens", "fingerprint")
    rows = [
        [name or "the run's", split, *(source[split][key] for key in keys)]
        for name, source in sources.items()
        for split in SPLITS
    ]
    note = "The shards are not here any more, so their hashes were not compared."
    return _data(rows, "data/complete") | {"notes": [note]}


def _data(rows: list[list[Any]], source: str) -> Section:
    total = {split: sum(row[4] for row in rows if row[1] == split) for split in SPLITS}
    columns = ["source", "split", "documents", "bytes of text", "tokens", "hash of the tokens"]
    return {
        "facts": {
            "tokens to train on": fact(total["training"], source),
            "tokens held out": fact(total["validation"], source),
        },
        "tables": [{"caption": "Sources", "columns": columns, "rows": rows, "from": source}],
    }


def _counted(run: ReportedRun, shards: TokenShards) -> tuple[int | str, int | str]:
    """Count documents and bytes of their text, special tokens left out."""
    if run.tokenizer is None:
        return "unknown", "unknown"
    counts = np.zeros(run.config.model.vocab_size, np.int64)
    for start in range(0, len(shards), 1 << 20):
        counts += np.bincount(shards[start : start + (1 << 20)], minlength=len(counts))
    sizes = run.prepared.bytes_per_id.copy()
    sizes[list(run.tokenizer.special_tokens.values())] = 0
    end = run.tokenizer.special_tokens.get(END_OF_TEXT)
    return "unknown" if end is None else int(counts[end]), int(counts @ sizes)


def funnel_section(run: ReportedRun, curated: Path | None) -> Section:
    """Return what each step of the curation dropped, if its documents are those of the data."""
    for_user = "give the folder of llmcourse curate that the data was prepared from with --curated"
    if run.config.corpus != "prepared":
        return {"missing": "the text of this run went through no funnel that its folder knows of"}
    folder = curated or Path(run.config.data).resolve().parent
    path = folder / "report.json"
    if not path.is_file():
        if curated is not None:
            raise ValueError(f"{folder} holds no report.json: {for_user}")
        return {"missing": f"there is no report of a funnel beside the data; {for_user}"}
    try:
        record = json.loads(path.read_bytes())
        last = record["tallies"][-1]
        kept = {"documents": last["kept"], "num_bytes": last["kept_bytes"]}
        rows = [
            [t["name"], t["taken"], t["taken"] - t["kept"], t["changed"], t["kept_bytes"]]
            for t in record["tallies"]
        ]
        left_out = record["left_out"]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is no report of llmcourse curate: {for_user}") from error
    sources = run.made_from.get("sources") or {"": run.made_from}
    sums = {n: {key: sum(s[p][key] for p in SPLITS) for key in kept} for n, s in sources.items()}
    owner = next((name for name, each in sums.items() if each == kept), None)
    if owner is None:
        told = f"{path} left {kept['documents']:,} documents of {kept['num_bytes']:,} bytes"
        raise ValueError(f"{told}, which are those of no source of the run: {for_user}")
    columns = ["step", "documents before", "dropped", "changed", "bytes after"]
    source = f"report.json of llmcourse curate{f', for {owner}' if owner else ''}"
    notes = [f"Left out: {', '.join(left_out)}."] if left_out else []
    notes.append("Documents and bytes that the funnel left are those of the data.")
    facts = {"documents read": fact(record["documents"], source)}
    facts["documents left"] = fact(record["left"], source)
    table = {"caption": "Steps", "columns": columns, "rows": rows, "from": source}
    return {"facts": facts, "tables": [table], "notes": notes}


def mixture_section(run: ReportedRun) -> Section:
    """Return the shares of the sources, and how often each was read."""
    config, prepared = run.config, run.prepared
    if not config.mix:
        tokens = data_section(run).get("facts", {}).get("tokens to train on")
        if tokens is None:
            return {"missing": "the run has one source, and its tokens are not here any more"}
        passes = config.tokens_before(run.steps_done) / tokens["value"]
        told = "positions of all steps / tokens to train on"
        facts = {"sources": fact(1, run.checkpoint), "passes over the text": fact(passes, told)}
        return {"facts": facts}
    rows = [[stage.step, n, share] for stage in config.stages for n, share in stage.shares.items()]
    columns = ["from step", "source", "share"]
    tables = [{"caption": "Shares", "columns": columns, "rows": rows, "from": run.checkpoint}]
    facts = {"sources": fact(len(config.source_names), run.checkpoint)}
    notes = []
    if prepared is None:
        notes = ["How often each source was read is not known: the tokens are not here any more."]
    else:
        order = MixedBatches(
            {name: source.training for name, source in prepared.sources.items()},
            config.stages,
            batch_size=config.batch_size,
            context_length=config.model.context_length,
            seed=config.seed,
        )
        counts, epochs = order.counts(run.steps_done), order.epochs(run.steps_done)
        table = {"caption": "Read", "columns": ["source", "windows read", "epochs"]}
        table["rows"] = [[name, counts[name], epochs[name]] for name in counts]
        tables.append(table | {"from": "data.MixedBatches and the token shards"})
    return {"facts": facts, "tables": tables, "notes": notes}


# --- model


def shape_section(run: ReportedRun) -> Section:
    """Return the shape of the model, and its parameters counted and by formula."""
    state, formula = run.saved.model, "scale.cost.num_parameters"
    counted = sum(weight.numel() for weight in state.values())
    facts = {"parameters in the checkpoint": fact(counted, run.checkpoint)}
    facts["parameters by formula"] = fact(cost.num_parameters(run.config.model), formula)
    if run.config.model.num_experts:
        active = cost.num_active_parameters(run.config.model)
        facts["parameters that a token uses"] = fact(active, "scale.cost.num_active_parameters")
    for name in ("num_layers", "width", "num_heads", "num_kv_heads", "head_size", "hidden"):
        facts[name.replace("num_", "number of ").replace("_", " ")] = fact(
            getattr(run.config.model, name), run.checkpoint
        )
    facts["vocabulary"] = fact(run.config.model.vocab_size, run.checkpoint)
    facts["context, tokens"] = fact(run.config.model.context_length, run.checkpoint)
    parts = [[name, count] for name, count in cost.parameters_by_part(run.config.model).items()]
    table = {"caption": "Parameters by part", "columns": ["part", "parameters"], "rows": parts}
    notes = []
    if run.config.without != "nothing":
        notes.append(
            f"The formula is that of the whole model; this one lacks {run.config.without}."
        )
    if run.config.lora_rank:
        notes.append("The checkpoint holds the thin matrices beside the weights, the formula not.")
    return {
        "facts": facts,
        "tables": [table | {"from": "scale.cost.parameters_by_part"}],
        "notes": notes,
    }


def compute_section(run: ReportedRun) -> Section:
    """Return the tokens and FLOPs of the run."""
    tokens = run.config.tokens_before(run.steps_done)
    each = cost.training_flop_per_token(run.config.model)
    facts = {
        "positions learnt from": fact(tokens, "train.TrainConfig.tokens_before"),
        "FLOPs for a position": fact(each, "scale.cost.training_flop_per_token"),
        "FLOPs of the run": fact(each * tokens, "FLOPs for a position x positions"),
        "6 N D": fact(
            6 * cost.num_active_parameters(run.config.model) * tokens,
            "6 x parameters that a token uses x positions",
        ),
    }
    notes = ["Counted by formula for whole rows: forward and backward, no recomputation."]
    if run.config.order == "packed":
        notes.append("Rows are packed: some positions are padding, and attention does less.")
    return {"facts": facts, "notes": notes}


def losses_section(run: ReportedRun) -> Section:
    """Return the losses by step, from the run's own log."""
    rows = run.metrics
    if not rows:
        return {"missing": f"the run has no {METRICS}"}
    every = -(-len(rows) // MOST_POINTS)
    taken = [row for place, row in enumerate(rows) if place % every == 0 or row is rows[-1]]
    validated = [row for row in rows if "validation_loss" in row]
    lines = {"training": [[row["step"], row["loss"]] for row in taken]}
    facts = {f"training loss at step {rows[-1]['step']}": fact(rows[-1]["loss"], METRICS)}
    tables, notes = [], []
    if validated:
        lines["validation"] = [[row["step"], row["validation_loss"]] for row in validated]
        last, best = validated[-1], min(validated, key=lambda row: row["validation_loss"])
        for what, row in (("last", last), ("lowest", best)):
            name = f"{what} validation loss, step {row['step']}"
            facts[name] = fact(row["validation_loss"], METRICS)
        names = sorted({n for row in validated for n in row if n.startswith("validation")})
        table = {"caption": "Validations", "columns": ["step", *names]}
        rows_of = [[row["step"], *(row.get(n, "not measured") for n in names)] for row in validated]
        tables = [table | {"rows": rows_of, "from": METRICS}]
    else:
        notes.append("Validation: not measured; the log has none.")
    if every > 1:
        notes.append(f"Of the training loss, every step that follows {every} others is shown.")
    if len(rows) < run.steps_done:
        notes.append(f"The log lacks {run.steps_done - len(rows):,} of {run.steps_done:,} steps.")
    notes.append("Losses in nats per token.")
    curves = {"x": "step", "y": "nats per token", "lines": lines, "from": METRICS}
    return {"facts": facts, "tables": tables, "curves": [curves], "notes": notes}


def before_section(run: ReportedRun) -> Section:
    """Return the runs that this one started from, the first one first."""
    if not run.config.start:
        return {"facts": {"stages before this run": fact(0, run.checkpoint)}}
    *before, _ = run.chain
    if not before:
        return {"missing": f"{Path(run.config.start).name}, which it started from, is not here"}
    columns = ["run", "stage", "corpus", "steps", "positions", "last validation loss", "weights"]
    rows = []
    for each in before:
        losses = [r["validation_loss"] for r in each.metrics if "validation_loss" in r]
        last = losses[-1] if losses else "not measured"
        kind = (each.folder.name, each.config.stage, each.config.corpus)
        positions = each.config.tokens_before(each.steps_done)
        rows.append([*kind, each.steps_done, positions, last, each.weights])
    source = "the folders of these runs, as they are now"
    table = {"caption": "Runs", "columns": columns, "rows": rows, "from": source}
    notes = ["A run does not record the hash of the weights that it started from."]
    if run.chain[0].config.start:
        notes.append(f"{Path(run.chain[0].config.start).name}, before these, is not here.")
    facts = {"stages before this run": fact(len(before), source)}
    return {"facts": facts, "tables": [table], "notes": notes}


# --- so that it can be made again


def seeds_section(run: ReportedRun) -> Section:
    """Return what every draw of chance came from."""
    facts = {"weights, order of the text, samples": fact(run.config.seed, run.checkpoint)}
    for each in run.chain[:-1]:
        facts[f"the same of {each.folder.name}"] = fact(each.config.seed, each.checkpoint)
    for file, found in run.evaluations.items():
        facts[f"items of {found['suite']}"] = fact(found["seed"], file)
    return {"facts": facts}


def versions_section(run: ReportedRun) -> Section:
    """Return the code that trained, and code and machine of this report."""
    here, code = "the process that wrote this report", run.saved.code
    facts = {
        "llmcourse that trained": fact(code["version"], run.checkpoint),
        "hash of its sources": fact(code["source_sha256"], run.checkpoint),
        "device that trained": fact(run.config.device, run.checkpoint),
    }
    now = code_version()
    facts["llmcourse of this report"] = fact(now["version"], here)
    facts["hash of these sources"] = fact(now["source_sha256"], here)
    facts["Python"] = fact(platform.python_version(), here)
    facts["torch"] = fact(torch.__version__, here)
    facts["NumPy"] = fact(np.__version__, here)
    facts["system and processor"] = fact(f"{platform.system()} {platform.machine()}", here)
    facts["cores"] = fact(os.cpu_count() or 0, here)
    note = "A run does not record the machine that trained it: the last lines are of this report."
    return {"facts": facts, "notes": [note]}


def hashes_section(run: ReportedRun) -> Section:
    """Return what names weights, tokenizer and tokens."""
    facts = {"weights": fact(run.weights, f"{run.checkpoint}, by evaluate.weights_hash")}
    if run.tokenizer is not None:
        facts["tokenizer"] = fact(run.tokenizer.fingerprint, "data/tokenizer")
    for each in run.chain:
        of_run = "" if each is run else f"{each.folder.name}: "
        for row in data_section(each).get("tables", [{"rows": []}])[0]["rows"]:
            source = "the headers of the token shards" if each.prepared else "data/complete"
            facts[f"{of_run}{row[1]} tokens of {row[0]}"] = fact(row[-1], source)
    return {"facts": facts}


def settings_section(run: ReportedRun) -> Section:
    """Return every setting; of a path its last name."""
    settings = asdict(run.config)
    settings |= {f"model.{name}": value for name, value in settings.pop("model").items()}
    for name in ("start", "data", "bin_folder"):
        settings[name] = Path(settings[name]).name
    facts = {name: fact(_told(settings[name]), run.checkpoint) for name in sorted(settings)}
    return {"facts": facts}


def _told(value: Any) -> int | float | str:
    """Return a setting as a value of a fact."""
    return value if isinstance(value, int | float) else json.dumps(value).strip('"') or "none"
