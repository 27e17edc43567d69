"""What a run can do, with intervals:  llmcourse evaluate --run runs/a --suite stories.

Rows are written as soon as they are known, so that a call which was ended goes on where it was.
"""

import hashlib
import json
import sys
from argparse import HelpFormatter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace

from llmcourse.base.arguments import require
from llmcourse.base.command_line import ended
from llmcourse.base.files import write_atomically
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.data.shards import TokenShards
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train.prepare import COMPLETE, read_provenance
from llmcourse.train.sampling import add_source, check_source, load
from llmcourse_labs.evaluate import named
from llmcourse_labs.evaluate.benchmarks import HOW, are_right, choice_scores, text_loss
from llmcourse_labs.evaluate.drawing import Setting
from llmcourse_labs.evaluate.intervals import bootstrap, wilson
from llmcourse_labs.evaluate.suites import SKILLS, story_items
from llmcourse_labs.evaluate.trust import (
    confidences,
    expected_calibration_error,
    refusals,
    reliability,
)
from llmcourse_labs.real import load_huggingface
from llmcourse_labs.real.huggingface_tokenizer import read_tokenizer_json
from llmcourse_labs.real.opening import open_model
from llmcourse_labs.real.template import Template
from llmcourse_labs.tuning.sft import answers
from llmcourse_labs.tuning.tasks import KINDS, check, in_format, make_tasks

PROGRAM = "llmcourse evaluate"

STORY_BYTES = 40_000
"""Of new stories whose loss is measured."""

ITEMS = 200
"""Of each skill or kind, if nothing is said."""

Row = dict[str, Any]


def load_model(folder: str | Path) -> tuple[Transformer, Tokenizer]:
    """Return model and tokenizer of a run, or of the folder it was exported to.

    Raises:
        ValueError: if the folder holds neither, or the tokenizer is that of another run.
    """
    folder = Path(folder)
    if (folder / "tokenizer.json").is_file():
        return load_huggingface(folder).eval(), read_tokenizer_json(folder)
    model, tokenizer = load(folder)
    if not _is_of_run(tokenizer, folder / "data"):
        raise ValueError(
            f"{folder / 'data' / 'tokenizer'} is the tokenizer of another run: the tokens that "
            "this one has learnt from were made with another; bring theirs back"
        )
    return model, tokenizer


def _is_of_run(tokenizer: Tokenizer, data: Path) -> bool:
    """Say whether the tokens of a run are those of a tokenizer, as far as its folder knows."""
    if (data / COMPLETE).exists() and (learnt := read_provenance(data).get("tokenizer")):
        return learnt == tokenizer.fingerprint
    if (data / "training").exists():
        try:
            TokenShards(data / "training", tokenizer_fingerprint=tokenizer.fingerprint)
        except ValueError:
            TokenShards(data / "training")  # which says so if they are damaged
            return False
    return True


def evaluate(
    model: Transformer,
    tokenizer: Tokenizer,
    suite: str,
    *,
    num_items: int,
    seed: int,
    file: Path,
    write: Callable[[str], Any],
    template: Template | None = None,
    begin_ids: Sequence[int] = (),
) -> Row:
    """Evaluate a model on a suite, and return what its file holds in the end.

    Args:
        model: in evaluation mode.
        tokenizer: of the same run.
        suite: one of `SUITES`.
        num_items: of each skill or kind.
        seed: of the items.
        file: takes the rows one by one; rows of the same model, items and seed are kept.
        write: is given each line of the table.
        template: of a model of others, which answers tasks by it.
        begin_ids: that its texts begin with, in place of the separator of documents.

    Raises:
        ValueError: if a number is out of its range, or the model cannot do the suite.
    """
    require("items", num_items, least=2)
    require("seed", seed, least=0)
    names, measure, head = SUITES[suite]
    about = {
        "suite": suite,
        "items": num_items,
        "seed": seed,
        "model": weights_hash(model.state_dict()),
        "tokenizer": tokenizer.fingerprint,
    } | ({"begins with": list(begin_ids)} if begin_ids else {})
    found = _kept(file, about)
    write(head)
    for name in names:
        if name not in found["rows"]:
            found["rows"][name] = measure(
                model, tokenizer, name, num_items, seed, template=template, begin_ids=begin_ids
            )
            _save(file, found)
        write(_line(name, found["rows"][name]))
    return found


# --- the suites


def _story_row(
    model: Transformer,
    tokenizer: Tokenizer,
    name: str,
    num_items: int,
    seed: int,
    *,
    begin_ids: Sequence[int],
    **_: object,
) -> Row:
    """Return the row of a skill, of all skills, or of the loss."""
    if name == "loss":
        texts = [text for text in stories(STORY_BYTES, seed + 1_000).split(END_OF_TEXT) if text]
        losses = text_loss(model, tokenizer, texts, begin_ids=begin_ids)
        total = sum(losses[1:], losses[0])
        return {
            "stories": len(texts),
            "bits per byte": round(total.bits_per_byte, 4),
            "perplexity": round(total.perplexity, 4),
        }
    items = story_items(num_items, seed=seed, skills=SKILLS if name == "all" else [name])
    scores = choice_scores(model, tokenizer, items, begin_ids=begin_ids)
    row: Row = {"items": len(items)}
    for how in HOW:
        right = are_right(items, scores, how)
        if name == "all":
            generator = torch.Generator().manual_seed(seed)
            low, high = bootstrap(right, generator=generator, clusters=[i.cluster for i in items])
        else:
            low, high = wilson(sum(right), len(right))
        row[how] = _share(right, low, high)
    bins = reliability(confidences(scores), are_right(items, scores, "plain"))
    row["calibration error"] = round(expected_calibration_error(bins), 4)
    row["always the same answer"] = round(_commonest(items), 4)
    return row


def _task_row(
    model: Transformer,
    tokenizer: Tokenizer,
    name: str,
    num_items: int,
    seed: int,
    *,
    template: Template | None,
    **_: object,
) -> Row:
    """Return the row of a kind of tasks, or of refusals, in wordings that no training has."""
    kinds = ["ball", "refuse"] if name == "refusals" else [name]
    tasks = make_tasks(num_items, seed=seed, held_out=True, kinds=kinds)
    with torch.no_grad():
        said = answers(model, tokenizer, tasks, template)
    if name == "refusals":
        told = refusals(tasks, said)
        row: Row = {"items": len(tasks)}
        for which, tally in zip(("wanted", "unwanted"), told, strict=True):
            if tally.total:
                row[which] = {"right": tally.right, "of": tally.total, "share": tally.share}
                row[which] |= _ends(*wilson(tally.right, tally.total))
        return row
    right = [check(task, text) for task, text in zip(tasks, said, strict=True)]
    formed = [in_format(task, text) for task, text in zip(tasks, said, strict=True)]
    return {
        "items": len(tasks),
        "exact": _share(right, *wilson(sum(right), len(right))),
        "in the right form": _share(formed, *wilson(sum(formed), len(formed))),
    }


SUITES: dict[str, tuple[tuple[str, ...], Callable[..., Row], str]] = {
    "stories": (
        (*SKILLS, "all", "loss"),
        _story_row,
        "choices in stories: share right, and its interval of 95 %",
    ),
    "tasks": (
        (*KINDS, "refusals"),
        _task_row,
        "tasks in new wordings: share right to the letter, and its interval of 95 %",
    ),
}
"""The rows of each suite, what measures one, and the line above the table."""


def _commonest(items: Sequence[Any]) -> float:
    """Return the share right of whoever says the same on every item, as well as that can be."""
    places = [item.choices[item.right] for item in items]
    return max(places.count(each) for each in set(places)) / len(items)


def _share(verdicts: Sequence[bool], low: float, high: float) -> Row:
    share = sum(verdicts) / len(verdicts)
    row = {"right": sum(verdicts), "share": round(share, 4)} | _ends(low, high)
    return row | {"verdicts": "".join("01"[bool(v)] for v in verdicts)}


def _ends(low: float, high: float) -> Row:
    return {"low": round(low, 4), "high": round(high, 4)}


# --- the file and the table


def weights_hash(state: Mapping[str, torch.Tensor]) -> str:
    """Return 16 hexadecimal digits that name weights: what an evaluation says it is of.

    Args:
        state: weights by name, as `state_dict()` has them.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(state.items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _kept(file: Path, about: Row) -> Row:
    """Return what a file already holds of the same evaluation, or an empty one."""
    if file.is_file():
        try:
            found = json.loads(file.read_text(encoding="utf8"))
            if {name: found[name] for name in about} == about and isinstance(found["rows"], dict):
                return found
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{file} is no evaluation: move it away, or give another file with --out"
            ) from None
        print(f"{file} is of another model or other items: starting anew", file=sys.stderr)
    return about | {"rows": {}}


def _save(file: Path, found: Row) -> None:
    with write_atomically(file) as out:
        out.write(f"{json.dumps(found, indent=1)}\n".encode())


def _line(name: str, row: Row) -> str:
    """Return a row for a person."""
    told = [f"{name:9}"]
    for key, value in row.items():
        if isinstance(value, dict):
            ends = f"{100 * value['low']:.0f} to {100 * value['high']:.0f}"
            told.append(f"{key} {100 * value['share']:.0f} % ({ends})")
        else:
            told.append(f"{key} {value}")
    return "  ".join(told)


# --- the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _evaluate(arguments))


def _evaluate(arguments: Sequence[str] | None) -> None:
    options = _parser().parse_args(arguments)
    known = (*SUITES, *named.SUITES)
    if options.suite not in known:
        raise ValueError(f"suite must be {' or '.join(known)}, got {options.suite!r}")
    check_source(options)
    given = {f.name: v for f in fields(Setting) if (v := options[f.name]) is not None}
    if options.suite in named.SUITES:
        _evaluate_named(options, given)
        return
    named.setting_of(options.suite, given)  # which says what this suite does not have
    name, template = f"evaluation_{options.suite}.json", None
    begin_ids: Sequence[int] = ()
    if options.model is None:
        model, tokenizer = load_model(options.run)
        file = Path(options.out or Path(options.run) / name)
    else:
        opened = open_model(options.model)
        model, tokenizer, template = opened
        begin_ids = opened.begin_ids
        file = Path(options.out or f"{Path(options.model).stem}_{name}")
    evaluate(
        model,
        tokenizer,
        options.suite,
        num_items=ITEMS if options["items"] is None else options["items"],
        seed=options.seed,
        file=file,
        write=lambda line: print(line, flush=True),
        template=template,
        begin_ids=begin_ids,
    )
    print(f"written to {file}")


def _evaluate_named(options: Namespace, given: dict[str, Any]) -> None:
    """Evaluate a model of others on one of its own suites."""
    if options.model is None:
        raise ValueError(f"the suite {options.suite} is for models of others: give --model")
    setting, suite = named.setting_of(options.suite, given), options.suite
    require("seed", options.seed, least=0)
    opened = open_model(options.model)
    num_items = named.SUITES[suite] if options["items"] is None else options["items"]
    about = {"suite": suite, "items": num_items, "seed": options.seed}
    about |= {"model": weights_hash(opened.decoder.state_dict())}
    about |= {"tokenizer": opened.tokenizer.fingerprint} | named.about(opened, suite, setting)
    file = Path(options.out or f"{Path(options.model).stem}_evaluation_{suite}.json")
    table = named.evaluate_named(
        opened,
        suite,
        setting,
        _kept(file, about),
        num_items=num_items,
        seed=options.seed,
        save=lambda found: _save(file, found),
    )
    for name, told in table:
        print(f"{name:16}  {told}")
    print(f"written to {file}")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Let a run answer questions, and say how sure its scores are.",
    )
    add_source(parser, "folder of the run, or of its export")
    told = (
        "stories (choices, for any run on stories), tasks (answers, for a fine-tuned run), or for "
        "a model of others humaneval, lines (programs), refusals, judge"
    )
    parser.add_argument("--suite", default="stories", help=f"{told} (%(default)s)")
    told = f"items of each skill or kind ({ITEMS}; of a suite for models of others all that it has)"
    parser.add_argument("--items", type=int, metavar="N", help=told)
    told = "the same seed asks the same questions (%(default)s)"
    parser.add_argument("--seed", type=int, default=1, help=told)
    told = "the file of the results (RUN/evaluation_SUITE.json, MODEL_evaluation_SUITE.json)"
    parser.add_argument("--out", metavar="FILE", help=told)
    for field in fields(Setting):
        told = f"of programs ({field.default} for humaneval)"
        hint: Any = field.type
        parser.add_argument(f"--{field.name}", type=hint | None, help=told)
    return parser
