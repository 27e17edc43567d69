"""What the machine adds to the report of its pre-trained model: the stages around it, as facts."""

from collections.abc import Iterable, Mapping
from typing import Any

from llmcourse_labs.evaluate import wilson

Facts = Mapping[str, Any]

SHARE = ["of", "items", "right", "share", "95 % from", "to"]


def sections(facts: Mapping[str, Facts]) -> dict[str, Any]:
    """Return sections for `evaluate.report`.

    Args:
        facts: of the stages, by name.
    """
    return {
        "funnel": _funnel(facts["crawl"], facts["funnel"]),
        "mixture": _mixture(facts["mixture"]),
        "sft": _tuned("Answers (SFT)", "sft", facts["sft"], facts["evaluate"]["models"]),
        "dpo": _preferred(facts["dpo"], facts["evaluate"]["models"]),
        "exam": _exam(facts["evaluate"]),
        "machine": _machine(facts),
    }


def _from(stage: str) -> str:
    return f"{stage}/done.json"


def _fact(value: Any, stage: str, **ends: float) -> dict[str, Any]:
    return {"value": value, "from": _from(stage), **ends}


def _funnel(crawl: Facts, funnel: Facts) -> dict[str, Any]:
    rows = [
        [name, each["taken"], each["kept"], each["taken"] - each["kept"]]
        for name, each in funnel["steps"].items()
    ]
    wanted = crawl["wanted"]
    return {
        "facts": {
            "pages of the crawl": _fact(crawl["pages"], "crawl"),
            "pages that a perfect funnel keeps": _fact(wanted, "crawl"),
            "pages left": _fact(funnel["left"], "funnel"),
            "of them pages that a perfect funnel keeps": _fact(funnel["wanted and left"], "funnel"),
            "items of the exam that leak": _fact(crawl["items of the exam that leak"], "crawl"),
            "pages that held an item of the exam": _fact(
                crawl["pages that hold an item of the exam"], "crawl"
            ),
        },
        "tables": [
            {
                "caption": "Pages, step by step",
                "columns": ["step", "came", "kept", "dropped"],
                "rows": rows,
                "from": _from("funnel"),
            }
        ],
    }


def _mixture(mixture: Facts) -> dict[str, Any]:
    rows = [
        [name, each["share"], each["documents"], each["bytes"], each["epochs"]]
        for name, each in mixture["sources"].items()
    ]
    columns = ["source", "share", "documents", "bytes", "times read in an epoch"]
    table = {"caption": "Sources", "columns": columns, "rows": rows, "from": _from("mixture")}
    note = "Documents were mixed before they were packed: one stream, each document in one row."
    return {"tables": [table], "notes": [note]}


def _tuned(title: str, stage: str, facts: Facts, models: Mapping[str, Facts]) -> dict[str, Any]:
    kept = [[step, row.get("validation_loss_kept")] for step, row in _validations(facts)]
    rows = [
        [f"{name}, {kind}", *_share(row["exact"])]
        for name in ("fine-tuned", "preferred")
        for kind, row in models[name]["tasks"].items()
        if "exact" in row
    ]
    section: dict[str, Any] = {
        "title": title,
        "facts": {
            "steps": _fact(facts["steps"], stage),
            "hash of the weights": _fact(facts["weights"], stage),
        },
        "tables": [
            _shares("Tasks in new wordings, right to the letter", rows),
            _shares("Refusals", _refusals(models)),
        ],
        "curves": [_losses("loss on answers", stage, facts)],
    }
    if any(loss is not None for _, loss in kept):
        lines = {"text of the first run, held out": kept}
        kept_curve = {"x": "step", "y": "loss on text", "from": _from(stage), "lines": lines}
        section["curves"].append(kept_curve)
    return section


def _preferred(facts: Facts, models: Mapping[str, Facts]) -> dict[str, Any]:
    # A share of few pairs: the interval says how much of it may be chance.
    moved, of = facts["moved as the judge wants"], facts["held-out pairs"]
    low, high = wilson(moved, of)
    # By question, so that before and after stand side by side.
    rows = [
        [f"{name}, {what}", *_share(models[name]["taste"][what])]
        for what in ("holds the right answer", "is kind")
        for name in ("fine-tuned", "preferred")
    ]
    # What the judge goes by, a mean and no share, with an interval of its own.
    utilities = {
        f"utility of the answers, {name}": _fact(
            models[name]["taste"]["utility"]["mean"],
            "evaluate",
            low=models[name]["taste"]["utility"]["low"],
            high=models[name]["taste"]["utility"]["high"],
        )
        for name in ("fine-tuned", "preferred")
    }
    return {
        "title": "Preferences (DPO)",
        "facts": {
            "pairs": _fact(facts["pairs"], "dpo"),
            "pairs on which the judge erred": _fact(facts["pairs on which the judge erred"], "dpo"),
            f"share of {of} held-out pairs that moved as the judge wants": _fact(
                moved / of, "dpo", low=low, high=high
            ),
            **utilities,
            "hash of the weights": _fact(facts["weights"], "dpo"),
        },
        "tables": [_shares("What the judge would see", rows)],
        "curves": [_losses("loss of DPO", "dpo", facts)],
    }


def _exam(judged: Facts) -> dict[str, Any]:
    models, found = judged["models"], judged["contamination"]
    # What the three models can do.
    rows = [[f"{name}, marbles", *_share(each["marbles"])] for name, each in models.items()]
    # Rows with choices; the row of the loss has none, and becomes a table of its own.
    stories = [
        [f"{name}, {skill}", *_share(row["plain"])]
        for name, each in models.items()
        for skill, row in each["stories"].items()
        if "plain" in row
    ]
    losses = [
        [name, each["stories"]["loss"]["bits per byte"], judged["floor"]]
        for name, each in models.items()
    ]
    # Whether that may be believed.  In the crawl itself only the marbles were looked for.
    leaks = [
        [
            what,
            found[what]["items"],
            found[what].get("in the crawl", "not measured"),
            found[what]["in the training text"],
        ]
        for what in ("marbles", "tasks", "stories")
    ]
    # A part without items has no share.
    split = [
        [f"stories, {part}", *_share(found["stories"][part])]
        for part in ("clean", "flagged")
        if found["stories"].get(part)
    ]
    return {
        "title": "Exam of all three models",
        "tables": [
            _shares("Choices in stories", stories),
            _shares("Marbles: 1 of 4 is right by chance", rows),
            {
                "caption": "Loss on new stories, in bits per byte",
                "columns": ["model", "loss", "floor"],
                "rows": losses,
                "from": _from("evaluate"),
            },
            {
                "caption": f"Items that share {found['words in a run']} words in a row",
                "columns": ["items of", "number", "with the crawl", "with the training text"],
                "rows": leaks,
                "from": _from("evaluate"),
            },
            _shares("Choices in stories, by whether the item shares such a run", split),
        ],
        "notes": [
            "Stories of one grammar share sentences by chance: a flagged item need not have leaked."
        ],
    }


def _machine(facts: Mapping[str, Facts]) -> dict[str, Any]:
    rows = [[name, each["weights"]] for name, each in facts.items() if "weights" in each]
    return {
        "title": "The machine",
        "tables": [
            {
                "caption": "Weights, by the stage that made them",
                "columns": ["stage", "SHA-256"],
                "rows": rows,
                "from": "done.json of each stage",
            }
        ],
    }


def _share(row: Mapping[str, Any]) -> list[Any]:
    number = row["of"] if "of" in row else len(row["verdicts"])
    return [number, row["right"], row["share"], row["low"], row["high"]]


def _shares(caption: str, rows: Iterable[list[Any]]) -> dict[str, Any]:
    rows = list(rows)
    return {"caption": caption, "columns": SHARE, "rows": rows, "from": _from("evaluate")}


def _refusals(models: Mapping[str, Facts]) -> Iterable[list[Any]]:
    for name in ("fine-tuned", "preferred"):
        for which, row in models[name]["tasks"]["refusals"].items():
            if isinstance(row, Mapping):
                yield [f"{name}, {which}", *_share(row)]


def _validations(facts: Facts) -> list[tuple[int, Facts]]:
    return [(int(step), row) for step, row in facts.get("validations", {}).items()]


def _losses(y: str, stage: str, facts: Facts) -> dict[str, Any]:
    lines = {"training": [[step, loss] for step, loss in enumerate(facts["losses"], 1)]}
    if validations := _validations(facts):
        lines["validation"] = [[step, row["validation_loss"]] for step, row in validations]
    return {"x": "step", "y": y, "from": _from(stage), "lines": lines}
