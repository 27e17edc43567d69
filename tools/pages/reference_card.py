"""Write the page of reference figures, book/reference_figures.md, from the JSON and the package.

python -m tools.pages.reference_card [--check]
"""

import argparse
import math
import re
import sys
from pathlib import Path
from typing import Any

from tools.pages.figures import RECOMPUTED, figures

PAGE = Path(__file__).resolve().parents[2] / "book" / "reference_figures.md"
TEST = "tests/book/test_reference_figures.py::test_figure"
GROUPS = {  # title, and the chapters
    "parameters": (
        "Numbers of parameters",
        "10_blueprint",
        "12_feed_forward",
        "14_mixture_of_experts",
    ),
    "memory": ("Cache and training state", "11_attention", "27_mixed_precision"),
    "loss": ("Losses that must come out", "02_step_by_hand", "16_cross_entropy"),
    "laws": ("Scaling laws", "34_scaling_laws"),
    "budget": ("FLOPs and time of published runs", "35_cost"),
    "utilisation": ("Utilisation: PaLM and Llama 3", "35_cost"),
    "failures": ("Interruptions of Llama 3 405B", "31_failures"),
    "megatron": ("Megatron-LM in 2021", "39_why_16384"),
    "korthikanti": ("Megatron-LM in 2022", "20_activation_memory", "35_cost"),
    "zero": ("The 54 cells of ZeRO's table 1", "24_zero"),
}
COUNTS = {"parameters": "", "tokens": "tokens", "FLOPs": "FLOPs"}
"""Units of large numbers, as they are printed."""
PERCENT = "\N{NO-BREAK SPACE}%"
HEAD = """# Reference figures

Appendix B: the published figures that this book teaches or is tested against. {recomputed} of \
them can be computed from the package, and are: {agree} agree with what is printed, within the \
tolerance of their row, and {differ} do not, with the reason where it is known. The last table has \
{quoted} more that are quoted, since nothing can be computed from them.

- *Printed* is what the source says (for *own arithmetic*, what this book says), *computed* what \
the functions of `llmcourse` give, and *error* how far the second is from the first, before the \
columns are rounded. How much is allowed is set for each figure.
- A figure is *recomputed* where one test, `{test}`, computes it anew under its id and finds the \
error within the tolerance. For one that *does not reproduce*, the same test fails as soon as it \
does.
- *Own arithmetic* is a number that no source prints and this book states.

Peaks and bandwidths of hardware stand in [hardware and units](hardware.md), and popular accounts \
that are wrong in the [errata](errata.md).
"""
TABLE = """
| figure | printed | computed | error | status | source | id |
|---|---:|---:|---:|---|---|---|"""
QUOTED = """
## Quoted

Nobody but those who ran them can know these figures. A test holds that the chapter says what \
stands here.

| figure | printed | chapter | source |
|---|---:|---|---|"""


def number(value: float, unit: str, *, exact: bool = False) -> str:
    """Return a value with its unit, as the book writes them."""
    if unit == "%":
        return f"{100 * value:.3g} %"
    if unit in COUNTS and not exact:
        return _rounded(value, unit).strip()
    text = f"{value:,.4g}" if abs(value) < 1_000 else f"{value:,.2f}".rstrip("0").rstrip(".")
    return f"{text} {COUNTS.get(unit, unit)}".strip()


def _rounded(value: float, unit: str) -> str:
    """Return a large number with four digits: 405.9 B, or 3.8 · 10²⁵ beyond trillions."""
    if value >= 1e15 or unit == "FLOPs":
        power = math.floor(math.log10(value))
        raised = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{value / 10**power:.4g} · 10{raised} {COUNTS[unit]}"
    size, letter = (1e12, "T") if value >= 1e12 else (1e9, "B")
    return f"{value / size:,.4g} {letter} {COUNTS[unit]}"


def error(figure: dict[str, Any], value: float) -> str:
    """Return how far the computed value is from the printed one."""
    share = value / figure["published"] - 1
    if abs(share) < 1e-5:
        return "below 0.001 %" if share else "none"
    digits = 2 if abs(share) >= 1e-3 else 1
    return f"{'+' if share > 0 else '−'}{abs(100 * share):.{digits}g} %"


def status(figure: dict[str, Any]) -> str:
    """Return what is claimed of a figure, and why if it does not reproduce."""
    word = "recomputed" if figure["reproduces"] else "**does not reproduce**"
    return word + (f": {figure['note']}" if figure["note"] else "")


def source(text: str) -> str:
    """Return a source with its paper linked."""
    return re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def chapter_link(stem: str) -> str:
    return f"[{stem[:2]}](../chapters/{stem}.ipynb)"


def row(figure: dict[str, Any]) -> str:
    """Return the line of a figure that is recomputed."""
    value, unit, exact = RECOMPUTED[figure["id"]](), figure["unit"], figure["tolerance"] == 0
    cells = (
        figure["what"],
        number(figure["published"], unit, exact=exact),
        number(value, unit, exact=isinstance(value, int)),
        error(figure, value),
        status(figure),
        source(figure["source"]),
        f"`{figure['id']}`",
    )
    return f"| {' | '.join(cells).replace(' %', PERCENT)} |"


def page() -> str:
    """Return the page."""
    every = figures()
    recomputed = [figure for figure in every if figure["group"] != "quoted"]
    quoted = [figure for figure in every if figure["group"] == "quoted"]
    agree = sum(figure["reproduces"] for figure in recomputed)
    counts = {"recomputed": len(recomputed), "agree": agree, "differ": len(recomputed) - agree}
    parts = [HEAD.format(**counts, quoted=len(quoted), test=TEST)]
    for group, (title, *chapters) in GROUPS.items():
        where = "Chapter " if len(chapters) == 1 else "Chapters "
        links = ", ".join(map(chapter_link, chapters))
        rows = [row(figure) for figure in recomputed if figure["group"] == group]
        parts.append("\n".join((f"\n## {title}\n\n{where}{links}.", TABLE, *rows, "")))
    lines = (
        f"| {f['what']} | {f['quoted']} | {chapter_link(f['chapter'])} | {source(f['source'])} |"
        for f in quoted
    )
    parts.append("\n".join((QUOTED, *lines, "")))
    return "".join(parts)


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or say whether it is stale; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    fresh = page()
    if not parser.parse_args(arguments).check:
        PAGE.write_text(fresh, encoding="utf8")
        return 0
    current = PAGE.exists() and PAGE.read_text(encoding="utf8") == fresh
    print("book/reference_figures.md is " + ("fresh" if current else "stale: run make format"))
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
