"""The report of a funnel: report.json for programs, report.html for people.

The page is one file that loads nothing: no script, no font, no picture.
"""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from llmcourse import __version__
from llmcourse.base.files import write_atomically
from llmcourse_labs.curation.step import StepStats

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border-bottom: 1px solid GrayText; padding: 0.25rem 0.75rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
blockquote { border-left: 3px solid GrayText; margin: 0.5rem 0; padding-left: 0.75rem;
  overflow-wrap: anywhere; white-space: pre-wrap; }
.wide { overflow-x: auto; }
"""


def write_page(folder: Path, record: dict[str, Any]) -> None:
    """Write report.html, whole or not at all.

    Args:
        folder: of the curated documents.
        record: documents, left, left_out, tallies, made_from, bytes_held_of_a_document.
    """
    with write_atomically(folder / "report.html") as file:
        file.write(page(record).encode("utf8", "replace"))


def page(record: dict[str, Any]) -> str:
    """Return the page of a report."""
    tallies = [StepStats.from_dict(each) for each in record["tallies"]]
    settings = [[name, _plain(value)] for name, value in record["made_from"]["steps"].items()]
    held = record["bytes_held_of_a_document"]
    # Whatever comes from the documents and their files is escaped on its way into the page.
    parts = [
        "<h1>What the funnel left</h1>",
        f"<p>{record['left']:,} of {record['documents']:,} documents are left.</p>",
        f"<p>Kept of each for the search for copies: {held:,} bytes, and 8 for each line.</p>",
        "<p>While copies are looked for, about four times as much is in memory.</p>",
        *(f"<p>Left out: {escape(name)}.</p>" for name in record["left_out"]),
        # The funnel from its first step to its last, and then what each has dropped, and why.
        "<h2>Steps</h2>",
        _table(
            ["step", "documents before", "dropped", "changed", "MB before", "MB after", "seconds"],
            [
                [
                    tally.name,
                    f"{tally.taken:,}",
                    f"{tally.taken - tally.kept:,}",
                    f"{tally.changed:,}",
                    f"{tally.taken_bytes / 1e6:,.2f}",
                    f"{tally.kept_bytes / 1e6:,.2f}",
                    f"{tally.seconds:,.1f}",
                ]
                for tally in tallies
            ],
        ),
        "<h2>Reasons, with examples</h2>",
        *(part for tally in tallies for part in _reasons(tally)),
        "<h2>Settings</h2>",
        _table(["setting", "value"], settings),
        f"<p>llmcourse {escape(__version__)}</p>",
    ]
    # The style stands inside: the page loads nothing.
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>What the funnel left</title><style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def _reasons(tally: StepStats) -> Iterator[str]:
    """Yield what one step dropped, the most frequent reason first."""
    if not tally.reasons:
        return
    yield f"<h3>{escape(tally.name)}</h3>"
    for reason, count in sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0])):
        yield f"<h4>{escape(reason)}: {count:,}</h4>"
        for example in tally.examples.get(reason, []):
            detail = f" ({escape(example.detail)})" if example.detail else ""
            yield f"<p>{escape(example.id)}{detail}</p>"
            if example.excerpt.strip():
                yield f"<blockquote>{escape(example.excerpt)}</blockquote>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    lines = [
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    ]
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>\n<tbody>'
        + "\n".join(lines)
        + "</tbody></table></div>"
    )


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
