"""The last stages: what the three models can do, what may be believed of it, and the report."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from llmcourse.data.corpus import stories_entropy
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train.sampling import load
from llmcourse_labs.capstone.corpus import exam_texts, mixed_texts
from llmcourse_labs.capstone.exam import marbles
from llmcourse_labs.capstone.sections import sections
from llmcourse_labs.capstone.stage import Artifact, StageFolder, identity_of
from llmcourse_labs.capstone.tuning import TASKS
from llmcourse_labs.evaluate import (
    are_right,
    bootstrap,
    choice_scores,
    evaluate,
    overlapping_items,
    story_items,
    wilson,
)
from llmcourse_labs.evaluate.report import report as write_report
from llmcourse_labs.tuning import answers
from llmcourse_labs.tuning.preference_data import OPENING, utility
from llmcourse_labs.tuning.tasks import make_tasks

MODELS = {"pre-trained": "train", "fine-tuned": "sft", "preferred": "dpo"}
"""The models that are asked, and the stage that made each."""

Row = dict[str, Any]


def judge(place: StageFolder) -> Artifact:
    """Ask every model the exam, and look for its items in the training text."""
    exam, facts, files = place.config.evaluate, {}, []
    quiet: Row = {"num_items": exam.items, "seed": exam.seed, "write": lambda _: None}
    for name, stage in MODELS.items():
        model, tokenizer = load(place.before[stage] / "run")
        found: Row = {}
        for suite in ("stories", *(["tasks"] if stage != "train" else [])):
            file = place.folder / f"{stage}_{suite}.json"
            found[suite] = evaluate(model, tokenizer, suite, file=file, **quiet)["rows"]
            files.append(file)
        found["marbles"] = _marbles(model, tokenizer, place)
        if stage != "train":
            found["taste"] = _taste(model, tokenizer, place)
        facts[name] = found
    contamination = _contamination(place, facts["pre-trained"]["stories"])
    return Artifact({"models": facts, "contamination": contamination} | _floor(), files)


def _floor() -> Row:
    """Return what no model of the stories can be better than, in bits per byte."""
    return {"floor": round(stories_entropy(), 4)}


def _marbles(model: Transformer, tokenizer: Tokenizer, place: StageFolder) -> Row:
    """Return how many of the marbles a model finds; one of four is right by chance."""
    items = marbles(seed=place.config.seed)
    right = are_right(items, choice_scores(model, tokenizer, items), "plain")
    return _share(right)


@torch.no_grad()
def _taste(model: Transformer, tokenizer: Tokenizer, place: StageFolder) -> Row:
    """Return what the judge of the pairs would say of a model's own answers."""
    exam = place.config.evaluate
    drawn = make_tasks(50 * exam.items, seed=exam.seed, part="test", **TASKS)
    tasks = list(dict.fromkeys(drawn))[: 2 * exam.items]  # each is asked once
    said = answers(model, tokenizer, tasks)
    worth = [utility(task, text) for task, text in zip(tasks, said, strict=True)]
    generator = torch.Generator().manual_seed(exam.seed)
    low, high = bootstrap(worth, generator=generator)
    return {
        "holds the right answer": _share([t.answer in s for t, s in zip(tasks, said, strict=True)]),
        "is kind": _share([text.startswith(OPENING.strip()) for text in said]),
        "words": round(sum(len(text.split()) for text in said) / len(said), 2),
        "utility": {
            "mean": round(sum(worth) / len(worth), 4),
            "low": round(low, 4),
            "high": round(high, 4),
        },
        "examples": [[t.prompt, s] for t, s in zip(tasks[:3], said[:3], strict=True)],
    }


def _share(right: list[bool]) -> Row:
    low, high = wilson(sum(right), len(right))
    share = {"right": sum(right), "of": len(right), "share": round(sum(right) / len(right), 4)}
    return share | {"low": round(low, 4), "high": round(high, 4)}


def _contamination(place: StageFolder, rows: Row) -> Row:
    """Return how many items share a run of words with the training text, by what they are of."""
    exam, texts = place.config.evaluate, mixed_texts(place.before["mixture"])
    # `exam_texts` holds the marbles first, and then the tasks.
    number = len(marbles(seed=place.config.seed))
    texts_of_exam = exam_texts(place)
    leaked, tasks = texts_of_exam[:number], texts_of_exam[number:]
    # The crawl as it was, before the funnel took pages with items out.
    with (place.before["crawl"] / "pages.jsonl").open("rb") as file:
        pages = [json.loads(line)["text"] for line in file]
    items = story_items(exam.items, seed=exam.seed)
    # As a text that has leaked would have it: with the right choice.
    whole = [f"{item.prompt}{item.choices[item.right]}" for item in items]
    n = exam.run_of_words
    flagged = overlapping_items(whole, texts, n=n)
    verdicts = [v == "1" for v in rows["all"]["plain"]["verdicts"]]
    found: Row = {
        "words in a run": n,
        "marbles": {
            "items": number,
            "in the crawl": sum(overlapping_items(leaked, pages, n=n)),
            "in the training text": sum(overlapping_items(leaked, texts, n=n)),
        },
        "tasks": {
            "items": len(tasks),
            "in the training text": sum(overlapping_items(tasks, texts, n=n)),
        },
        "stories": {"items": len(items), "in the training text": sum(flagged)},
    }
    # Are items that share words answered better than the others?
    for name, wanted in (("flagged", True), ("clean", False)):
        part = [v for v, flag in zip(verdicts, flagged, strict=True) if flag == wanted]
        found["stories"][name] = _share(part) if part else None
    return found


def require_measured(judged: dict[str, Any], folder: Path) -> None:
    """Raise ValueError if what is to be reported of the exam is not what was measured.

    Args:
        judged: the facts of the exam, in which a hand may have changed a number and its hash.
        folder: of the exam, with the file that `evaluate` wrote for each model and suite.
    """
    for name, stage in MODELS.items():
        for suite in ("stories", "tasks"):
            file = folder / f"{stage}_{suite}.json"
            told = judged["models"][name].get(suite)
            if told is not None and json.loads(file.read_bytes())["rows"] != told:
                raise ValueError(
                    f"what is told of the model {name} and the suite {suite} is not what {file} "
                    "has: remove the folder of the exam, and it is measured again"
                )


def report(place: StageFolder) -> Artifact:
    """Write one page and one JSON file of all that was found."""
    require_measured(place.facts["evaluate"], place.before["evaluate"])
    run, out = place.before["train"] / "run", place.folder / "report"
    # Where `llmcourse evaluate` would have put it, and `llmcourse report` looks for it.
    shutil.copy(place.before["evaluate"] / "train_stories.json", run / "evaluation_stories.json")
    record = write_report(run, out, stages=sections(place.facts))
    lasting = {name: part for name, part in record["sections"].items() if name != "times"}
    facts = {"sections": list(lasting), "hash": identity_of(lasting)}
    return Artifact(facts, [out / "report.html", out / "report.json"])
