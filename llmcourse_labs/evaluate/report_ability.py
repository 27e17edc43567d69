"""The sections of a report that say what a model can do, and whether that may be believed."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.shards import TokenShards
from llmcourse.data.tokenizer import Tokenizer
from llmcourse_labs.evaluate.command import SUITES
from llmcourse_labs.evaluate.contamination import overlapping_items, split_score
from llmcourse_labs.evaluate.report_run import ReportedRun, Section, facts, table
from llmcourse_labs.evaluate.suites import story_items
from llmcourse_labs.tuning.tasks import KINDS, make_tasks

RUN_WORDS = 13
"""Words in a row that a test item and a training text may not have in common."""

MOST_SEARCHED = 20_000_000
"""Tokens of each source's training text in which items are looked for."""

FALSE_POSITIVES = (
    "False positives: texts of the same kind share runs of words by chance. What is found in "
    "held-out text, which no step has read, has not leaked from there; compare it with as much "
    "training text. Only what the training text has beyond that speaks for a leak. An item that "
    "was put into other words is not found at all."
)

ALL, AS_MUCH, HELD_OUT = "training text", "as much of it as is held out", "held-out text"


def benchmarks_section(evaluations: Mapping[str, Mapping[str, Any]], name: str) -> Section:
    """Return shares with their intervals.

    Args:
        evaluations: from `read_evaluation`, by file.
        name: of the run.
    """
    tables, notes = [], []
    for file, found in evaluations.items():
        suite, names = found["suite"], SUITES[found["suite"]][0]
        shares, others = [], []
        for row in (row for row in names if row in found["rows"]):
            for what, value in found["rows"][row].items():
                # Shares come with an interval, as a dict; other measures are numbers.
                if not isinstance(value, dict):
                    others += [[row, what, value]] if what != "items" else []
                    continue
                # Refusals say of how many they are; elsewhere each item has its verdict.
                total = value["of"] if "of" in value else len(value["verdicts"])
                ends = (value["share"], value["low"], value["high"])
                shares.append([row, what, total, value["right"], *ends])
        columns = ["of", "counted", "items", "right", "share", "95 % from", "to"]
        for caption, heads, rows in (
            (f"{suite}: shares of right answers", columns, shares),
            (f"{suite}: other measures", ["of", "measure", "value"], others),
        ):
            if rows:
                tables.append(table(caption, heads, rows, file))
        # A skill that has no row was not reached before the evaluation was ended.
        if lacking := [row for row in names if row not in found["rows"]]:
            notes.append(f"{suite}: not measured: {', '.join(lacking)}; the evaluation was ended.")
    for suite in sorted(set(SUITES) - {found["suite"] for found in evaluations.values()}):
        command = f"llmcourse evaluate --run {name} --suite {suite}"
        notes.append(f"{suite}: not measured; {command} does it.")
    if not tables:
        return {"missing": "there is no evaluation of these weights", "notes": notes}
    notes.append(
        "Intervals: Wilson's; of all skills together a bootstrap that draws whole stories."
    )
    return {"tables": tables, "notes": notes}


def contamination_section(run: ReportedRun) -> Section:
    """Return which items of the evaluations stand in the training text, and how many by chance.

    Text that no step has read shows how often items are found that cannot have leaked from it.
    """
    if not run.evaluations:
        return {"missing": "there is no evaluation, so there are no items to look for"}
    # The weights know the text of every run of the chain: without one of them nothing is sure.
    if run.chain[0].config.stage == "sft" or any(
        None in (r.prepared, r.tokenizer) for r in run.chain
    ):
        return {"missing": "training text of the run, or of one that it started from, is not here"}
    found_in, notes, cut = [], [], False
    scores: list[list[Any]] = []
    for file, found in run.evaluations.items():
        suite, (items, right) = found["suite"], _items(found)
        if not items:
            notes.append(f"{suite}: not measured; the evaluation in {file} was ended.")
            continue
        # Held-out text cannot leak: finds there are chance, to compare with as much that was read.
        for where in (ALL, AS_MUCH, HELD_OUT):
            texts = _Texts(run, where)
            try:
                flagged = overlapping_items(items, texts, n=RUN_WORDS)
            except ValueError as error:
                notes.append(f"{suite}, {where}: not measured: {error}.")
                continue
            number = sum(flagged)
            found_in.append([suite, where, texts.tokens, len(items), number, number / len(items)])
            cut = cut or texts.is_cut
            # Scores are divided once, by all that was read.
            if where == ALL:
                scores += _scores(suite, right, flagged)
    columns = ["suite", "searched", "tokens", "items", "items found", "share found"]
    tables = [table("Overlap", columns, found_in, "evaluate.overlapping_items and the shards")]
    columns = ["suite", "items", "number", "right", "share right"]
    of = "evaluate.split_score and the verdicts"
    tables.append(table("Score without what was found", columns, scores, of))
    # No evaluation could be looked at; the notes say why.
    if not found_in:
        return {"missing": " ".join(notes)}
    notes += [
        f"An item is found if {RUN_WORDS} of its words in a row, or all of fewer, stand in a text.",
        FALSE_POSITIVES,
    ]
    if cut:
        notes.append(f"Of each source the first {MOST_SEARCHED:,} tokens were searched.")
    found = facts("evaluate.overlapping_items", {"words of a run": RUN_WORDS})
    return {"facts": found, "tables": [each for each in tables if each["rows"]], "notes": notes}


def _items(found: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the texts of an evaluation's items and its verdicts; none if it was ended."""
    number, seed, rows = found["items"], found["seed"], found["rows"]
    if found["suite"] == "stories":
        if "all" not in rows:
            return [], ""
        items = [i.prompt + i.choices[i.right] for i in story_items(number, seed=seed)]
        return items, rows["all"]["plain"]["verdicts"]
    if not set(KINDS) <= set(rows):
        return [], ""
    items = [
        task.prompt
        for kind in KINDS
        for task in make_tasks(number, seed=seed, held_out=True, kinds=[kind])
    ]
    return items, "".join(rows[kind]["exact"]["verdicts"] for kind in KINDS)


def _scores(suite: str, right: str, flagged: list[bool]) -> Iterator[list[Any]]:
    """Yield the score on all items, on those that were not found, and on those that were."""
    verdicts = [each == "1" for each in right]
    yield [suite, "all", len(verdicts), sum(verdicts), sum(verdicts) / len(verdicts)]
    if all(flagged):
        yield [suite, "not found", 0, 0, "not measured: all were found"]
        return
    each = split_score(verdicts, flagged)
    yield [suite, "not found", each.clean_items, each.clean_right, each.clean]
    share = each.flagged if each.flagged_items else "not measured: none was found"
    yield [suite, "found", each.flagged_items, each.flagged_right, share]


class _Texts:
    """The documents that the weights of a run have learnt from, or that were held out."""

    def __init__(self, run: ReportedRun, where: str) -> None:
        self.parts: list[tuple[Tokenizer, TokenShards, int]] = []
        for each in run.chain:
            assert each.prepared is not None  # or the section is missing
            assert each.tokenizer is not None
            for source in each.prepared.sources.values():
                shards = source.validation if where == HELD_OUT else source.training
                most = len(source.validation) if where == AS_MUCH else MOST_SEARCHED
                self.parts.append((each.tokenizer, shards, min(most, MOST_SEARCHED, len(shards))))
        self.tokens = sum(most for _, _, most in self.parts)
        self.is_cut = any(most == MOST_SEARCHED < len(shards) for _, shards, most in self.parts)

    def __iter__(self) -> Iterator[str]:
        for tokenizer, shards, most in self.parts:
            ids, end = shards[:most], tokenizer.special_tokens.get(END_OF_TEXT)
            ends: list[int] | np.ndarray = [] if end is None else np.flatnonzero(ids == end) + 1
            for part in np.split(ids, ends):
                if len(part):
                    yield tokenizer.decode(part.tolist())
