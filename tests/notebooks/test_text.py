"""The counts of a chapter's text: what belongs to it, what does not, and where the limits are."""

import nbformat
import pytest

from tools.check import check_notebooks, check_text
from tools.check.check_text import Counts

TEXT = """## The thing

Four words and $x + 1$, see [that](https://example.org/a_(b)).

| not | counted |
|---|---|

$$ y = x \\tag{7.1} $$

```
neither is this
```
"""
COUNTED = 11  # The start. Minutes 5: Four words and formula, see that; (formula)


def notebook(*, minutes=5, extra="", lines=3, boxes=1):
    folded = {"jupyter": {"source_hidden": True}}
    made = [
        nbformat.v4.new_markdown_cell(f"# 07 A title\n\nThe start. **Minutes** {minutes}\n"),
        nbformat.v4.new_markdown_cell("## You need\n\nNot the main line.\n"),
        nbformat.v4.new_markdown_cell(TEXT + extra),
        nbformat.v4.new_code_cell("\n\n".join(["x = 1"] * lines)),
        nbformat.v4.new_code_cell("plot()\nplot()", metadata=folded),
        nbformat.v4.new_markdown_cell("## Take away\n\nRead, too.\n\n## Deeper\n\nMore of it.\n"),
        nbformat.v4.new_code_cell("y = 2"),
        nbformat.v4.new_markdown_cell(
            "## Where popular accounts go wrong\n\n"
            + '> **Popular claim: "no".** It is.\n\n' * boxes
        ),
    ]
    return nbformat.v4.new_notebook(cells=made)


def test_words_lines_and_boxes_are_those_of_the_main_line_and_minutes_count_listings():
    found = check_text.counts(notebook())
    assert (found.words, found.lines, found.boxes, found.minutes) == (COUNTED, 3, 1, 5)
    around = 6  # Not the main line. Read, too.
    assert found.expected_minutes == pytest.approx((COUNTED + around) / 150 + 3 / 4)
    plain, shown = notebook(), notebook()
    source = "%config x\nfrom llmcourse import nutshell as n\nfrom llmcourse_classroom import show"
    imports = nbformat.v4.new_code_cell(source, metadata={"jupyter": {"source_hidden": True}})
    shown.cells[1:1] = [imports, nbformat.v4.new_code_cell("show(n.Block, start='def forward')")]
    minutes = [check_text.counts(each).expected_minutes for each in (plain, shown)]
    # The line that asks for it, and the three of the function.
    assert minutes[1] - minutes[0] == pytest.approx(4 / 4)
    shown.cells[2].source = "show(nobody.knows)"
    with pytest.raises(ValueError, match="shows nobody and does not import it"):
        check_text.counts(shown)


GOOD = Counts(words=2500, lines=200, boxes=2, minutes=60, expected_minutes=60.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"words": 2501}, "has 2,501 words in the main line; at most 2,500"),
        ({"lines": 201}, "has 201 lines of code"),
        ({"boxes": 3}, "has 3 boxes"),
        ({"minutes": 47}, "says 47 minutes and takes 60"),
        ({"minutes": 73}, "says 73 minutes and takes 60"),
    ],
)
def test_beyond_a_limit_is_a_fault(change, says):
    for minutes in (48, 60, 72):  # the limits themselves are allowed
        assert list(check_text.problems(GOOD._replace(minutes=minutes))) == []
    (problem,) = check_text.problems(GOOD._replace(**change))
    assert problem.startswith(says)


def test_private_words_and_long_sentences_are_warnings():
    long = "It goes " + "on " * 39 + "so. This one is short.\n\n- " + "an item " * 20 + "ends.\n"
    found = list(check_text.warnings(notebook(extra="\nHeads are keen on it.\n\n" + long)))
    assert found == [
        "'keen': in the sense of attends to? Then say that",
        f"a sentence of 42 words: {('It goes ' + 'on ' * 39)[:60]}...",
        f"a sentence of 42 words: {('- ' + 'an item ' * 20)[:60]}...",
    ]
    assert list(check_text.warnings(notebook(extra="\nIt " + "was " * 38 + "so.\n"))) == []


def test_a_chapter_beyond_a_limit_fails(tmp_path, capsys):
    path = tmp_path / "27_mixed_precision.ipynb"
    path.write_text(check_notebooks.written(notebook(minutes=500)))
    assert check_text.main([str(path)]) == 1
    said, summary = capsys.readouterr().out.splitlines()
    assert said.startswith("27_mixed_precision.ipynb says")
    assert summary == "1 faults and 0 warnings of texts"
