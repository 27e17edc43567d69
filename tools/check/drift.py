"""Find the numbers of a page's words that hold on one processor and not on another.

    python -m tools.check.drift run [NN ...]     execute chapters on every kind of kernel
    python -m tools.check.drift [NN ...]         compare, and list what drifts
    python -m tools.check.drift exercises        test right answers on every kind of kernel

Torch adds in another order on another processor, so a run that trains ends with other digits.  A
sentence that was written beside one run then contradicts the page that a reader makes.  Here a
chapter is executed with several kernels, and each number of its text, tables, alternative texts and
quiz is held beside what its cells print and what its assertions compare.  Listed are:

* one that *drifts*: printed with some kernels and not with others, with what stands in its place;
* one that *nothing carries*: not every run prints it in its section, no assertion tests it, no code
  sets it, and no two numbers beside it make it by hand (halves, numbers up to twelve and powers of
  two are told only as shares, "six of the eight", and as ratios, "more than twice");
* one that is *loose*: its assertion allows more than the words, or the value is far from the bound;
* an alternative text or a caption that names *sides* of a figure with other sides.

Links, code, numbers of chapters, figures and equations, and what a citation carries are no such
numbers.  What the assertions compared on which kernels is written as a table, `_build/drift/*.csv`.
"""

import argparse
import ast
import csv
import functools
import hashlib
import html
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch

from llmcourse import train
from llmcourse.base import progress, runtime
from llmcourse.base.pairs import matmul_nt
from llmcourse.train import phases
from llmcourse_classroom.notebooks import nbformat
from tools.build import build_book, uses
from tools.check import asserted
from tools.check.check_notebooks import ROOT

OUT = ROOT / "_build" / "drift"
QUIZZES = ROOT / "llmcourse_classroom" / "exercises" / "quizzes"
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
KERNELS: Mapping[str, Mapping[str, str]] = {
    "usual": {},
    "avx2": AVX2,
    "sse": dict(zip(AVX2, ("default", "SSE41", "SSE4_2"), strict=True)),
    "torch": {"LLMCOURSE_PRODUCTS": "torch"},
    "onednn": {"LLMCOURSE_PRODUCTS": "onednn"},
    "avx2 and onednn": AVX2 | {"LLMCOURSE_PRODUCTS": "onednn"},
}
"""Environments, by name; pages are made with the first."""
RIGHT_ANSWERS = ("-n", "2", "tests/exercises/test_gates.py", "-k", "the_solution_passes")
"""Words for pytest."""
ONES = "zero one two three four five six seven eight nine ten eleven twelve"
WORDS = {word: float(value) for value, word in enumerate(ONES.split())}
WORDS |= {"twice": 2.0, "thrice": 3.0, "half": 0.5, "thirteen": 13.0, "twenty": 20.0}
SHARES = {"hundred": 100.0, "thousand": 1000.0}
_DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_NUMBER = re.compile(
    rf"(?<![\w.,])[-−]?(?:{_DIGITS})(?:e[-+]?\d+)?(?!\w|\.\d|,\d)(?:\s?%)?"
    rf"|\b(?:{'|'.join(WORDS)})\b",
    re.IGNORECASE,
)
PARTS = "chapter|figure|equation|exercise|section|table|step|lap"
_NO_CLAIM = (
    r"^(`{3,})(?:.|\n)*?^\1`*",  # fences
    r"`[^`\n]*`",
    r"\$\$.*?\$\$",
    r"\]\((?:[^()\s]|\([^()\s]*\))*\)",  # where links lead
    r"\\tag\{[^}]*\}",
    rf"(?i)\b(?:{PARTS})s?\s+\**\d[\d.]*(?:(?:,| and| to)\s+\d[\d.]*)*",
    r"\(\d+\.\d+\)",
    r"^#.*$",
    r"\*\*Minutes\*\* .*$",
    r"\*\*Figure [\d.]+\*\*",
    r"^\| \d\d\.\d \|.*$",  # an exercise
    r"\b(?:19|20)\d\d\b",  # a year
)
TICK = "\N{SYMBOL FOR UNIT SEPARATOR}"
"""Stands before the letters of a place on an axis."""
_TICKS = re.compile(rf"{TICK}.*")
_TAGS = re.compile(r"<style.*?</style>|<script.*?</script>|<[^>]+>", re.DOTALL)
_CITED = re.compile(r"\[[^\]]*\d{4}[^\]]*\]\(https?://")


_BY_HAND = re.compile(r"[=·×/+|]|\\cdot|\\times")
_BEFORE = re.compile(
    r"\b(?:(?:more|less|fewer|longer|higher|lower|larger|smaller|better|worse|further|later|sooner)"
    r" than|over|above|below|under|at least|at most|up to|within|almost|nearly|beyond|between|from"
    rf"|(?:[\d.,]+|{'|'.join(WORDS)})(?: %)? (?:to|and))\s+(?:about\s+)?$",
    re.IGNORECASE,
)
_OF = re.compile(
    rf"(?: (?:or more|or fewer|to (?:{'|'.join(WORDS)}|\d+)))?"
    rf" (?:of|in) (?:(?:the|its|our|these|those|a|an|every|all) )?"
    rf"({'|'.join(WORDS)}|\d+|hundred|thousand)\b(?!,\d|\.\d)",
    re.IGNORECASE,
)
_AFTER = re.compile(
    rf"\s+(?:(?:to|and)\s+(?:\d|{'|'.join(WORDS)})|or more|or less|or fewer)", re.IGNORECASE
)


class Claim(NamedTuple):
    """A number in the words of a page."""

    place: str
    """The cell, or what else it stands in."""
    text: str
    """As it is written."""
    around: str
    """The words before and after it."""
    is_bound: bool = False
    """Whether the words around it make it a bound: more than, at most, from ... to."""
    beside: tuple[float, ...] = ()
    """The other numbers of its sentence, if it calculates."""
    of: float = 0.0
    """The number that it is a share of: eight, in six of the eight."""


class Printed(NamedTuple):
    """A number that a cell prints."""

    cell: str
    nth: int
    """Of the numbers of this cell."""
    value: float
    is_tick: bool = False
    """Whether it names a place on an axis, and no result."""
    may_be_percent: bool = True
    """Whether its sign is that of a percentage, or its cell has one and no number has."""


def value_of(text: str) -> tuple[float, float]:
    """Return a number as it is written, and how far a value may be off that rounds to it."""
    word = text.lower().rstrip(" %")
    if word in WORDS | SHARES:
        return (WORDS | SHARES)[word], 0.05 if word == "half" else 0.5
    plain = word.replace(",", "").replace("−", "-")
    mantissa, _, power = plain.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(plain), 0.5 * 10.0 ** ((int(power) if power else 0) - decimals)


def is_said(claim: Claim, printed: float, may_be_percent: bool = True) -> bool:
    """Whether a printed number is the claimed one: the same after rounding, or as a percentage."""
    value, off = value_of(claim.text)
    is_percent = claim.text.endswith("%")

    def rounds(number: float) -> bool:
        apart, slack = abs(value - number), off * (1 + 1e-9)
        is_half = apart > off * (1 - 1e-9) and claim.text.lower() not in WORDS
        return apart <= slack and (not is_half or abs(value) > abs(number) or number % 0.125 == 0)

    as_fraction = is_percent and rounds(100 * printed)
    return as_fraction or ((may_be_percent or not is_percent) and rounds(printed))


def numbers(text: str) -> list[str]:
    """Return the numbers of a text, in digits and in words."""
    return [found[0] for found in _NUMBER.finditer(text)]


def claims_in(place: str, text: str) -> Iterator[Claim]:
    """Yield the numbers of a text that no citation beside them carries."""
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z*(])|\n\s*\n|\n(?=- |\d+\. |\|)", text)
    for sentence in sentences:
        if _CITED.search(sentence):
            continue
        kept = sentence
        for pattern in _NO_CLAIM:
            kept = re.sub(pattern, lambda m: "] " if "](" in m[0] else " ", kept, flags=re.M)
        values = [value_of(found[0])[0] for found in _NUMBER.finditer(kept)]
        for nth, found in enumerate(_NUMBER.finditer(kept)):
            around = kept[max(0, found.start() - 60) : found.end() + 40]
            before, after = kept[: found.start()], kept[found.end() :]
            is_bound = bool(_BEFORE.search(before[-40:]) or _AFTER.match(after))
            beside = (*values[:nth], *values[nth + 1 :]) if _BY_HAND.search(kept) else ()
            whole = _OF.match(" ".join(after[:50].split(" ")).replace("\n", " "))
            of = value_of(whole[1])[0] if whole else 0.0
            yield Claim(place, found[0], " ".join(around.split()), is_bound, beside, of)


def claims(notebook: nbformat.NotebookNode, quiz: Mapping[str, object]) -> list[Claim]:
    """Return the numbers of a chapter's words: text, tables, alternative texts, quiz."""
    found: list[Claim] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            found += claims_in(cell.id, cell.source)
        else:
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            found += claims_in(f"{cell.id} (alternative text)", alt)
    for text in texts_of(quiz):
        found += claims_in("quiz", text)
    return found


def texts_of(value: object) -> Iterator[str]:
    """Yield the texts of nested data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)


def printed(notebook: nbformat.NotebookNode) -> list[Printed]:
    """Return the numbers that the cells print, and those in the letters of their figures."""
    found = []
    for cell in notebook.cells:
        shown = "\n".join(_shown(output) for output in cell.get("outputs", ()))
        ticks = " ".join(_TICKS.findall(shown))
        told = [(each, False) for each in numbers(_TICKS.sub("", shown))]
        told += [(each, True) for each in numbers(ticks)]
        has_sign = any(each.endswith("%") for each, _ in told)
        may_be_percent = not has_sign and ("%" in shown or "percent" in shown)
        digits = [
            (value_of(each)[0], is_tick, may_be_percent or each.endswith("%"))
            for each, is_tick in told
            if each.lower() not in WORDS
        ]
        found += [Printed(cell.id, nth, *each) for nth, each in enumerate(digits)]
    return found


def _shown(output: nbformat.NotebookNode) -> str:
    """Return the letters of an output."""
    if output.output_type == "stream":
        return output.text
    data = output.get("data", {})
    if "image/svg+xml" in data:  # matplotlib writes what it draws as letters into comments
        letters = re.findall(r'id="([xy])tick_|<!-- (.*?) -->', data["image/svg+xml"])
        axes = ["", *(axis for axis, _ in letters)]
        told = zip(axes, letters, strict=False)
        return "\n".join(f"{TICK * bool(axis)}{text}" for axis, (_, text) in told if text)
    if "text/html" in data and "widget-view" in str(list(data)):
        return ""  # a widget, whose state is no sentence
    for kind in ("text/markdown", "text/html", "text/plain"):
        if kind in data:
            return html.unescape(_TAGS.sub(" ", data[kind]))
    return ""


class Drift(NamedTuple):
    """A claim that some kernels print, and others do not."""

    claim: Claim
    instead: dict[str, float]
    """By the kernels' name, what is printed in its place."""

    def __str__(self) -> str:
        there = ", ".join(f"{value:.6g} ({name})" for name, value in self.instead.items())
        return f"{self.claim.place}: {self.claim.text} is {there}: {self.claim.around}"


class Fault(NamedTuple):
    """What else is wrong with a claim."""

    claim: Claim
    what: str

    def __str__(self) -> str:
        return f"{self.claim.place}: {self.claim.text} {self.what}: {self.claim.around}"


def drifts(found: Iterable[Claim], runs: Mapping[str, Sequence[Printed]]) -> list[Drift]:
    """Return the claims that do not hold with all kernels.

    A claim holds if some cell prints it, at the same place, in every run.  One that no run prints
    does not drift, and neither does one that is far from what the other runs print.

    Args:
        found: of a page.
        runs: by kernels.
    """
    tables = {name: {(p.cell, p.nth): p.value for p in run} for name, run in runs.items()}
    everywhere = {place for table in tables.values() for place in table}
    result = []
    for claim in found:
        least: dict[str, float] = {}
        for place in sorted(everywhere):
            there = {name: table.get(place, float("nan")) for name, table in tables.items()}
            wrong = {name: value for name, value in there.items() if not is_said(claim, value)}
            if not wrong:
                least = {}
                break
            if len(wrong) < len(runs) and all(_is_near(claim, value) for value in wrong.values()):
                least = wrong if not least or len(wrong) < len(least) else least
        if least:
            result.append(Drift(claim, least))
    return result


def _is_near(claim: Claim, printed: float) -> bool:
    """Whether a number may be another run's of a claim; what is not printed at all may."""
    value, off = value_of(claim.text)
    scale = 100 if claim.text.endswith("%") and abs(printed) <= 1 else 1
    return math.isnan(printed) or abs(value - scale * printed) <= max(0.35 * abs(value), 4 * off)


# --- what carries a number

APART = {"title", "you-need", "exercise-list", "take-away", "quiz"}
"""Cells, and the quiz, whose words belong to the whole page."""
EVERYWHERE = {0.5, *range(13), *(2.0**power for power in range(4, 21))}
"""Numbers that are seldom a result: halves, a few, sizes."""
LOOSE = 1.15
"""So many times further than the nearest value a bound may be that words name."""


def carriers(notebook: nbformat.NotebookNode) -> tuple[list[asserted.Bound], list[Printed]]:
    """Return what the assertions of a chapter bound, and the numbers that its code sets."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    bounds = [b for cell in code for b in asserted.bounds_of(cell.id, cell.source)]
    literals = [Printed(cell.id, -1, v) for cell in code for v in asserted.literals(cell.source)]
    return bounds, literals


def sections_of(notebook: nbformat.NotebookNode) -> dict[str, int]:
    """Return the number of each cell's section; what ends with a heading is of the one before."""
    found, number = {}, 0
    for cell in notebook.cells:
        is_text = cell.cell_type == "markdown"
        if is_text and re.match(r"#{2,3} ", cell.source):
            number += 1
        found[cell.id] = number
        if is_text and re.search(r"\n#{2,3} ", cell.source):
            number += 1
    return found


def carried_by(claim: Claim, bounds: Sequence[asserted.Bound]) -> list[asserted.Bound]:
    """Return the comparisons that a claim's words may mean."""
    kinds = ("equal", "around", "below", "above")[: 4 if claim.is_bound else 2]
    return [bound for bound in bounds if bound.kind in kinds and is_said(claim, bound.number)]


def uncarried(
    found: Iterable[Claim],
    runs: Iterable[Sequence[Printed]],
    bounds: Sequence[asserted.Bound],
    set_by_code: Iterable[Printed],
    sections: Mapping[str, int],
) -> list[Fault]:
    """Return the claims that nothing of their section prints with all kernels, tests or sets.

    What stands apart from the sections, such as a question or the summary, may quote any of them.

    Args:
        found: of a page.
        runs: what each prints.
        bounds: of the page's assertions.
        set_by_code: numbers of its code.
        sections: the number of each cell's section.
    """
    words, literals = list(found), list(set_by_code)
    by_hand = [(claim.place, value_of(claim.text)[0]) for claim in words if is_by_hand(claim)]
    printed_by = [list(run) for run in runs] or [[]]
    faults = []
    for claim in words:
        value, (cell, _, part) = value_of(claim.text)[0], claim.place.partition(" (")
        if value in EVERYWHERE and not is_share(claim) and not is_ratio(claim):
            continue

        def is_near(other: str, cell: str = cell) -> bool:
            return cell in APART or sections.get(other.partition(" (")[0]) == sections[cell]

        tested = [bound for bound in bounds if is_near(bound.key.partition("|")[0])]
        made = [Printed(place, -1, each) for place, each in by_hand if is_near(place)]
        sets = [*made, *(each for each in literals if is_near(each.cell))]
        if _is_tested(claim, tested):
            continue
        for run in printed_by:
            shown = [p for p in run if is_near(p.cell) and (part or not p.is_tick)]
            if not _is_shown(claim, shown, sets):
                faults.append(Fault(claim, "is carried by nothing"))
                break
    return faults


def _is_tested(claim: Claim, bounds: Sequence[asserted.Bound]) -> bool:
    """Whether one of these comparisons is that of a claim."""
    if is_ratio(claim):
        value, _ = value_of(claim.text)
        return any(bound.number in (value, 1 / value) for bound in bounds)
    return bool(carried_by(claim, bounds))


def _is_shown(claim: Claim, shown: Sequence[Printed], sets: Sequence[Printed]) -> bool:
    """Whether a number is printed, or set by what is no result."""
    if is_ratio(claim):
        return False
    if is_share(claim):
        value, _ = value_of(claim.text)
        share = Claim(claim.place, f"{100 * value / claim.of:.0f} %", "")
        has_both = {value, claim.of} <= {each.value for each in shown}
        return has_both or any(is_said(share, each.value, each.may_be_percent) for each in shown)
    return any(is_said(claim, each.value, each.may_be_percent) for each in [*shown, *sets])


def is_share(claim: Claim) -> bool:
    """Whether a number counts some of a few: six of the eight; one of two is an article."""
    return 0 < value_of(claim.text)[0] < claim.of and claim.text.lower() not in {"one", "half"}


def is_ratio(claim: Claim) -> bool:
    """Whether words bound a ratio: more than twice."""
    than = rf"(?i)\b(?:than|least|most) {claim.text}\b"
    return bool(re.search(than, claim.around)) and claim.text.lower() in {"twice", "thrice", "half"}


def is_by_hand(claim: Claim) -> bool:
    """Whether a number is a sum, difference, product or quotient of two others of its sentence."""
    found = (
        each
        for x, y in itertools.permutations(claim.beside, 2)
        for each in (x + y, x - y, x * y, x / y if y else math.nan)
    )
    return any(is_said(claim, each) for each in found)


def loose(
    found: Iterable[Claim],
    bounds: Sequence[asserted.Bound],
    seen: Mapping[str, asserted.Ranges],
    sections: Mapping[str, int],
) -> list[Fault]:
    """Return the claims whose assertions, all of the same section, allow more than their words.

    Args:
        found: of a page.
        bounds: of its assertions.
        seen: by kernels, the values that were compared.
        sections: the number of each cell's section.
    """
    result = []
    for claim in found:
        value, off = value_of(claim.text)
        if value in range(13) and not (claim.text.lower() in WORDS and claim.is_bound):
            continue  # too many things are a few
        here = sections.get(claim.place.partition(" (")[0])
        said = []
        for bound in carried_by(claim, bounds):
            ranges = [run[bound.key] for run in seen.values() if bound.key in run]
            is_here = sections.get(bound.key.partition("|")[0]) == here
            if ranges and is_here and (value not in WORDS.values() or value == bound.number):
                said.append(_allowed(claim, bound, off, ranges))
        if said and all(said):
            result.append(Fault(claim, said[0]))
    return result


def _allowed(
    claim: Claim, bound: asserted.Bound, off: float, ranges: list[tuple[float, float]]
) -> str:
    """Return what an assertion allows beyond a claim's words, or nothing."""
    unit = 0.01 if claim.text.endswith("%") and abs(bound.number) < 1 else 1.0
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    what = f"{bound.expression} is {low:.4g}" + (f" to {high:.4g}" if high > low else "")
    if bound.kind == "around" and bound.within > off * unit * 1.01:
        return f"is tested within {bound.within:g} ({what})"
    ratio = asserted.looseness(bound, ranges)
    return f"is {ratio:.2g} times off ({what})" if ratio > LOOSE else ""


SIDES = {
    "columns": r"\b(?:Left|Right|left panel|right panel)\b",
    "rows": r"\b(?:Above|Below|Upper|Lower|above|below|top panel|bottom panel)\b",
}


def sides(notebook: nbformat.NotebookNode) -> list[Fault]:
    """Return the alternative texts and captions that name sides which their figure has not."""
    result = []
    cells = list(notebook.cells)
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
        shape = _panels(cell.source) if alt else None
        if shape is None:
            continue
        texts = {"alternative text": alt}
        if after is not None and after.cell_type == "markdown" and after.source.startswith("**Fig"):
            texts["caption"] = after.source.split("\n", maxsplit=1)[0]
        rows, columns = shape
        if (rows > 1) == (columns > 1):
            continue  # one panel may have sides of its own; a grid has both
        wrong = SIDES["columns"] if rows > 1 else SIDES["rows"]
        for name, text in texts.items():
            begins = rf"(?:^|[.:;]\W+)(?:\w+ panels?[.:,] )?({wrong})[,:]"
            if said := re.search(begins, text):
                panels = f"{rows} rows" if rows > 1 else f"{columns} columns"
                claim = Claim(f"{cell.id} ({name})", said[1], text[:60])
                result.append(Fault(claim, f"of a figure of {panels}"))
    return result


def _panels(source: str) -> tuple[int, int] | None:
    """Return the rows and columns of `subplots` in a cell, where they are plain numbers."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("subplots"):
            named = {k.arg: k.value for k in node.keywords}
            given = [*node.args, *[ast.Constant(1)] * 2][:2]
            rows, columns = named.get("nrows", given[0]), named.get("ncols", given[1])
            values = [asserted.number_of(each) for each in (rows, columns)]
            return (int(values[0]), int(values[1])) if None not in values else None
    return None


# --- executions


def execute(path: Path, out: Path, kernels: Mapping[str, str]) -> None:
    """Execute a notebook with some kernels, and write it with its outputs.

    Raises:
        ValueError: if a cell fails.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_suffix(".new.ipynb")
    program = str(Path(sys.executable).with_name("jupyter-execute"))
    plain = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        env = build_book.environment(Path(scratch)) | dict(kernels)
        env.pop("PYTHONPATH")  # what notes the files of an execution
        noting = Path(scratch) / "noting.ipynb"
        noting.write_text(nbformat.writes(with_notes(plain)), encoding="utf8")
        command = [program, "--timeout=600", f"--output={new}", str(noting)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{path.name} fails with {dict(kernels)}: {done.stderr[-2_000:]}")
    notebook = nbformat.read(new, as_version=4)
    last = notebook.cells.pop()
    del notebook.cells[0]
    for cell, own in zip(notebook.cells, plain.cells, strict=True):
        cell.source = own.source
    notebook.metadata["asserted"] = asserted.noted(last.outputs[0].text)
    notebook.metadata["packages"] = packages()
    new.write_text(nbformat.writes(notebook), encoding="utf8")
    new.replace(out)


def with_notes(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a notebook whose assertions note what they compare, printed by one more cell."""
    noting = nbformat.from_dict(notebook)
    for cell in noting.cells:
        if cell.cell_type == "code":
            cell.source = asserted.with_notes(cell.id, cell.source)
    first, last = (nbformat.v4.new_code_cell(s) for s in (asserted.PRELUDE, asserted.POSTLUDE))
    noting.cells = [first, *noting.cells, last]
    return noting


@functools.cache
def packages() -> str:
    """Return a hash of the three packages, which an execution belongs to."""
    folders = [path for name in uses.PACKAGES for path in build_book.files_of(ROOT / name)]
    return build_book.digest(folders)


def probe() -> str:
    """Return a hash of what a product and three steps of training make in this process."""
    runtime.set_up(num_threads=1, seed=0)
    product = matmul_nt(torch.randn(1536, 384), torch.randn(1536, 384))
    with tempfile.TemporaryDirectory() as scratch:
        run = train.start(train.PRESETS["tiny"](), Path(scratch) / "run")
        losses = [phases.step(run).loss for _ in range(3)]
    weights = product.numpy().tobytes() + b"".join(
        p.detach().numpy().tobytes() for p in run.model.parameters()
    )
    return hashlib.sha256(repr(losses).encode() + weights).hexdigest()


def probe_all() -> dict[str, str]:
    """Return that hash by kernels, each made in a process of its own."""
    found = {}
    for name, kernels in KERNELS.items():
        env = os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1", **kernels}
        command = [sys.executable, "-m", "tools.check.drift", "probe"]
        done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
        found[name] = done.stdout.decode().split()[-1]
    return found


# --- the command


def chapters(numbers: Sequence[str]) -> list[Path]:
    """Return the chapters of these numbers, or all."""
    every = {path.stem[:2]: path for path in build_book.chapters()}
    if strange := sorted(set(numbers) - set(every)):
        raise ValueError(f"there is no chapter {strange[0]!r}: give two digits, such as 26")
    return [every[number] for number in numbers or every]


def names_of_bits() -> list[str]:
    """Return kernels, the first of each kind of bits that they give here.

    Raises:
        ValueError: if all kernels give the same bits.
    """
    hashes = probe_all()
    bits = list(hashes.values())
    names = [name for nth, name in enumerate(hashes) if bits.index(bits[nth]) == nth]
    if len(names) < 2:
        raise ValueError("all kernels give the same bits on this processor: try another one")
    print(f"kernels whose bits differ here: {', '.join(names)}")
    return names


def run_all(paths: Sequence[Path]) -> None:
    """Execute chapters with kernels that give other bits here, two at a time.

    What is executed already is left out.
    """
    names = names_of_bits()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "kernels.json").write_text(json.dumps(names))
    todo = [
        (path, OUT / name / path.name, KERNELS[name])
        for path in paths
        for name in names
        if not is_executed(path, OUT / name / path.name)
    ]
    with ThreadPoolExecutor(2) as pool, progress.bar(total=len(todo), unit="run") as bar:
        for _ in pool.map(lambda item: execute(*item), todo):
            bar.update()


def check_right_answers() -> int:
    """Test that each right answer passes with the other kernels, too; return how many fail."""
    failed = 0
    for name in names_of_bits()[1:]:
        print(f"right answers with the kernels {name}:", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", *RIGHT_ANSWERS]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | KERNELS[name], check=False)
        failed += done.returncode != 0
    return failed


def is_executed(path: Path, out: Path) -> bool:
    """Whether the code of a chapter, and of the packages, is that of an execution."""
    if not out.exists():
        return False
    chapter, made = (nbformat.read(each, as_version=4) for each in (path, out))
    code, done = ([c.source for c in n.cells if c.cell_type == "code"] for n in (chapter, made))
    is_noted = made.metadata.get("packages") == packages() and "asserted" in made.metadata
    return code == done and is_noted


def report(paths: Sequence[Path]) -> dict[str, list[Drift | Fault]]:
    """Return what is wrong, by chapter; the words are those of today.

    Writes beside the executions what the assertions of each chapter compared.
    """
    found: dict[str, list[Drift | Fault]] = {}
    noted = OUT / "kernels.json"
    names = json.loads(noted.read_text()) if noted.exists() else list(KERNELS)
    for path in paths:
        outs = {name: OUT / name / path.name for name in names}
        if missing := [name for name, out in outs.items() if not is_executed(path, out)]:
            raise ValueError(
                f"{path.name} is not executed with the kernels {missing[0]}: "
                f"python -m tools.check.drift run {path.stem[:2]}"
            )
        made = {name: nbformat.read(out, as_version=4) for name, out in outs.items()}
        runs = {name: printed(notebook) for name, notebook in made.items()}
        seen = {name: notebook.metadata["asserted"] for name, notebook in made.items()}
        file = QUIZZES / f"{path.stem}.toml"
        quiz = tomllib.loads(file.read_text(encoding="utf8")) if file.exists() else {}
        chapter = nbformat.read(path, as_version=4)
        words = claims(chapter, quiz)
        bounds, set_by_code = carriers(chapter)
        found[path.stem] = [
            *drifts(words, runs),
            *uncarried(words, runs.values(), bounds, set_by_code, sections_of(chapter)),
            *loose(words, bounds, seen, sections_of(chapter)),
            *sides(chapter),
        ]
        write_table(OUT / f"{path.stem}.csv", bounds, seen)
    return found


def write_table(
    out: Path, bounds: Iterable[asserted.Bound], seen: Mapping[str, asserted.Ranges]
) -> None:
    """Write what assertions compare, with its value by kernels, where kernels differ."""
    with out.open("w", newline="", encoding="utf8") as file:
        table = csv.writer(file)
        table.writerow(["cell", "what", "asserted", "number", *seen])
        for bound in dict.fromkeys(bounds):
            values = [run.get(bound.key) for run in seen.values()]
            if any(value != values[0] for value in values):
                texts = [" to ".join(dict.fromkeys(f"{x:.6g}" for x in v or ())) for v in values]
                cell = bound.key.partition("|")[0]
                table.writerow([cell, bound.expression, bound.kind, f"{bound.number:g}", *texts])


def main(arguments: list[str] | None = None) -> int:
    """Execute, or compare; return 1 if a number drifts."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words == ["probe"]:
        print(probe())
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "words", nargs="*", help="run or exercises, to execute; numbers of chapters"
    )
    words = parser.parse_args(words).words
    is_run = words[:1] == ["run"]
    try:
        if words == ["exercises"]:
            return check_right_answers()
        paths = chapters(words[is_run:])
        if is_run:
            run_all(paths)
            return 0
        found = report(paths)
    except ValueError as error:
        parser.error(str(error))
    for topic, listed in found.items():
        for each in listed:
            print(f"{topic} {each}")
    total = sum(map(len, found.values()))
    print(f"{total} numbers drift in {len(found)} chapters")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
