"""Find the numbers of a page's words that hold on one processor and not on another.

    python -m tools.check.drift run [NN ...]     execute chapters on every kind of kernel
    python -m tools.check.drift [NN ...]         compare, and list what drifts

Torch adds in another order on another processor, so a run that trains ends with other digits.  A
sentence that was written beside one run then contradicts the page that a reader makes.  Here a
chapter is executed with several kernels, and each number of its text, tables, alternative texts and
quiz is looked for in what its cells print: one that is printed with some kernels and not with
others is listed, with what stands in its place.  Links, code, numbers of chapters, figures and
equations, and what a citation carries are no such numbers.
"""

import argparse
import functools
import hashlib
import html
import json
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
ONES = "zero one two three four five six seven eight nine ten eleven twelve"
WORDS = {word: float(value) for value, word in enumerate(ONES.split())}
WORDS |= {"twice": 2.0, "thrice": 3.0, "half": 0.5, "thirteen": 13.0, "twenty": 20.0}
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
    r"\]\((?:[^()\s]|\([^()\s]*\))*\)",  # where links lead
    r"\\tag\{[^}]*\}",
    rf"(?i)\b(?:{PARTS})s?\s+\**\d[\d.]*(?:(?:,| and| to)\s+\d[\d.]*)*",
    r"\(\d+\.\d+\)",
    r"^#.*$",
    r"\*\*Minutes\*\* \d+",
    r"\*\*Figure [\d.]+\*\*",
)
_TAGS = re.compile(r"<style.*?</style>|<script.*?</script>|<[^>]+>", re.DOTALL)
_CITED = re.compile(r"\[[^\]]*\d{4}[^\]]*\]\(https?://")


class Claim(NamedTuple):
    """A number in the words of a page."""

    place: str
    """The cell, or what else it stands in."""
    text: str
    """As it is written."""
    around: str
    """The words before and after it."""


class Printed(NamedTuple):
    """A number that a cell prints."""

    cell: str
    nth: int
    """Of the numbers of this cell."""
    value: float


def value_of(text: str) -> tuple[float, float]:
    """Return a number as it is written, and how far a value may be off that rounds to it."""
    word = text.lower().rstrip(" %")
    if word in WORDS:
        return WORDS[word], 0.05 if word == "half" else 0.5
    plain = word.replace(",", "").replace("−", "-")
    mantissa, _, power = plain.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(plain), 0.5 * 10.0 ** ((int(power) if power else 0) - decimals)


def is_said(claim: Claim, printed: float) -> bool:
    """Whether a printed number is the claimed one: the same after rounding, or as a percentage."""
    value, off = value_of(claim.text)
    slack = off * (1 + 1e-9)
    as_percent = claim.text.endswith("%") and abs(value - 100 * printed) <= slack
    return as_percent or abs(value - printed) <= slack


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
        for found in _NUMBER.finditer(kept):
            around = kept[max(0, found.start() - 60) : found.end() + 40]
            yield Claim(place, found[0], " ".join(around.split()))


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
        shown = [_shown(output) for output in cell.get("outputs", ())]
        digits = [each for each in numbers("\n".join(shown)) if each.lower() not in WORDS]
        found += [Printed(cell.id, nth, value_of(each)[0]) for nth, each in enumerate(digits)]
    return found


def _shown(output: nbformat.NotebookNode) -> str:
    """Return the letters of an output."""
    if output.output_type == "stream":
        return output.text
    data = output.get("data", {})
    if "image/svg+xml" in data:  # matplotlib writes what it draws as letters into comments
        return "\n".join(re.findall(r"<!-- (.*?) -->", data["image/svg+xml"]))
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


def drifts(found: Iterable[Claim], runs: Mapping[str, Sequence[Printed]]) -> list[Drift]:
    """Return the claims that do not hold with all kernels.

    A claim holds if some cell prints it, at the same place, in every run.  One that no run prints
    is none of this tool's.

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
            if len(wrong) < len(runs) and (not least or len(wrong) < len(least)):
                least = wrong
        if least:
            result.append(Drift(claim, least))
    return result


# --- executions


def execute(path: Path, out: Path, kernels: Mapping[str, str]) -> None:
    """Execute a notebook with some kernels, and write it with its outputs.

    Raises:
        ValueError: if a cell fails.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_suffix(".new.ipynb")
    program = str(Path(sys.executable).with_name("jupyter-execute"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        env = build_book.environment(Path(scratch)) | dict(kernels)
        env.pop("PYTHONPATH")  # what notes the files of an execution
        command = [program, "--timeout=600", f"--output={new}", str(path)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{path.name} fails with {dict(kernels)}: {done.stderr[-2_000:]}")
    notebook = nbformat.read(new, as_version=4)
    notebook.metadata["packages"] = packages()
    new.write_text(nbformat.writes(notebook), encoding="utf8")
    new.replace(out)


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


def run_all(paths: Sequence[Path]) -> None:
    """Execute chapters with kernels that give other bits here, two at a time.

    What is executed already is left out.

    Raises:
        ValueError: if all kernels give the same bits.
    """
    hashes = probe_all()
    bits = list(hashes.values())
    names = [name for nth, name in enumerate(hashes) if bits.index(bits[nth]) == nth]
    if len(names) < 2:
        raise ValueError("all kernels give the same bits on this processor: try another one")
    print(f"kernels whose bits differ here: {', '.join(names)}")
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


def is_executed(path: Path, out: Path) -> bool:
    """Whether the code of a chapter, and of the packages, is that of an execution."""
    if not out.exists():
        return False
    chapter, made = (nbformat.read(each, as_version=4) for each in (path, out))
    code, done = ([c.source for c in n.cells if c.cell_type == "code"] for n in (chapter, made))
    return code == done and made.metadata.get("packages") == packages()


def report(paths: Sequence[Path]) -> dict[str, list[Drift]]:
    """Return what drifts, by chapter; the words are those of today."""
    found = {}
    noted = OUT / "kernels.json"
    names = json.loads(noted.read_text()) if noted.exists() else list(KERNELS)
    for path in paths:
        outs = {name: OUT / name / path.name for name in names}
        if missing := [name for name, out in outs.items() if not is_executed(path, out)]:
            raise ValueError(
                f"{path.name} is not executed with the kernels {missing[0]}: "
                f"python -m tools.check.drift run {path.stem[:2]}"
            )
        runs = {n: printed(nbformat.read(out, as_version=4)) for n, out in outs.items()}
        file = QUIZZES / f"{path.stem}.toml"
        quiz = tomllib.loads(file.read_text(encoding="utf8")) if file.exists() else {}
        found[path.stem] = drifts(claims(nbformat.read(path, as_version=4), quiz), runs)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Execute, or compare; return 1 if a number drifts."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words == ["probe"]:
        print(probe())
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("words", nargs="*", help="run, to execute; numbers of chapters, or all")
    words = parser.parse_args(words).words
    is_run = words[:1] == ["run"]
    try:
        paths = chapters(words[is_run:])
        if is_run:
            run_all(paths)
            return 0
        found = report(paths)
    except ValueError as error:
        parser.error(str(error))
    for topic, listed in found.items():
        for each in listed:
            there = ", ".join(f"{value:.6g} ({name})" for name, value in each.instead.items())
            print(f"{topic} {each.claim.place}: {each.claim.text} is {there}: {each.claim.around}")
    total = sum(map(len, found.values()))
    print(f"{total} numbers drift in {len(found)} chapters")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
