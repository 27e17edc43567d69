"""Every rule for chapters accepts a good notebook and rejects the one that breaks it."""

import json
from pathlib import Path

import nbformat
import pytest

from tools.check import check_notebooks
from tools.pages import setup_cells

TITLE = "# 07 A title\n\n**Minutes** 5"
EXERCISES = "## Exercises\n\n[Open them](../exercises/07_title.ipynb)"
ERRATA = "## Where popular accounts go wrong\n\n> **Claim.** No.\n"
CAPTION = "**Figure 7.1.** Loss against steps, which falls from six to one."
PLAIN = "By (7.1) and [a paper](https://example.org) <sub>2</sub>."


def with_alt(text):
    return {"mystnb": {"image": {"alt": text}}}


FIGURE_METADATA = with_alt("A curve that falls from six to one within a hundred steps.")
CHECKS_METADATA = {**check_notebooks.FOLDED, "tags": ["checks", "hide-input"]}
FIGURE = "fig, ax = plt.subplots()\nax.plot([1, 2])\nplt.show()"
NAMES = {"cross_entropy", "Tokenizer"}


def markdown(name, source):
    return nbformat.v4.new_markdown_cell(source, id=name)


def code(name, source, metadata=None):
    return nbformat.v4.new_code_cell(source, id=name, metadata=metadata or {})


def good():
    cells = [
        markdown("title", TITLE),
        markdown("need", "## You need\n\n## You will be able to\n\n## Predict"),
        code("install", setup_cells.source(), dict(setup_cells.METADATA)),
        code("setup", "from llmcourse import runtime\n\nruntime.set_up(num_threads=1, seed=0)"),
        code("figure", FIGURE, FIGURE_METADATA),
        markdown("caption", f"{CAPTION}\n\n$$ a = b \\tag{{7.1}} $$"),
        markdown("scale", f"## At scale\n\n{PLAIN}"),
        code("scale-table", "assert 6 * 7 == 42\nprint(42)"),
        code("checks", "# @title Checks\nassert 6 < 7", CHECKS_METADATA),
        markdown("exercises", EXERCISES),
        markdown("quiz-md", "## Quiz"),
        code("quiz", 'Quiz("07_title")'),
        markdown("end", "## Take away\n\n" + ERRATA + "\n## Further reading"),
    ]
    return {cell.id: cell for cell in cells}


def found_in(tmp_path, cells, *, text=None):
    metadata = check_notebooks.TOP_METADATA
    notebook = nbformat.v4.new_notebook(cells=[*cells.values()], metadata=metadata)
    path = tmp_path / "07_title.ipynb"
    path.write_text(text(notebook) if text else check_notebooks.written(notebook))
    return list(check_notebooks.problems(path, NAMES))


PROSE = {
    "title": ("title", "# 07", "# 08", "not a title '# 07"),
    "minutes": ("title", "**Minutes**", "Minutes", "does not say the minutes"),
    "need": ("need", "## You need", "## Needed", "no section 'You need'"),
    "able": ("need", "## You will be able to", "", "no section 'You will be able to'"),
    "predict": ("need", "## Predict", "", "no section 'Predict'"),
    "deeper": ("scale", "## At scale", "## Deeper", "not in the order"),
    "take away": ("end", "## Take away", "", "no section 'Take away'"),
    "wrong": ("end", "## Where", "## There", "no section 'Where popular"),
    "reading": ("end", "## Further reading", "", "no section 'Further reading'"),
    "in a fence": ("need", "## Predict", "```\n## Predict\n```", "no section 'Predict'"),
    "order": ("need", "## Predict", "## Take away\n\n## Predict", "not in the order"),
    "last": ("end", "## Further reading", "## Further reading\n\n## End", "last section"),
    "exercises": ("exercises", "07_title", "08_other", "does not link its exercises"),
    "quiz": ("quiz", "07_title", "08_other", 'has no cell with the id quiz and Quiz("07_title")'),
    "errata": ("end", "> **Claim", "**Claim", "has no box"),
    "caption": ("caption", "**Figure 7.1.**", "Figure 7.1:", "draws without a caption"),
    "figure": ("caption", "Figure 7.1.", "Figure 7.2.", "figures are not numbered 7.1"),
    "no tag": ("caption", "\\tag{7.1}", "", "equations are not tagged 7.1"),
    "tag": ("caption", "\\tag{7.1}", "\\tag{7.2}", "equations are not tagged 7.1"),
    "role": ("scale", "(7.1)", "{eq}`x`", "is a role"),
    "directive": ("scale", "By", "```{note}\nBy\n```", "is a directive"),
    "colon fence": ("scale", "By", ":::{note}\nBy\n:::", "is a directive"),
    "label": ("scale", "By", "(here)=\nBy", "is a label"),
    "equation label": ("caption", "{7.1} $$", "{7.1} $$ (eq-x)", "a label of an equation"),
    "image": ("scale", "[a paper](https://example.org)", "![a](a.png)", "an image beside"),
    "image by name": ("scale", "[a paper](https://example.org)", "![a][b]", "an image beside"),
    "html": ("scale", "<sub>", "<div>", "is HTML"),
}


@pytest.mark.parametrize(("cell", "old", "new", "message"), PROSE.values(), ids=PROSE)
def test_prose_that_breaks_a_rule(tmp_path, cell, old, new, message):
    cells = good()
    assert old in cells[cell].source
    cells[cell].source = cells[cell].source.replace(old, new)
    assert any(message in problem for problem in found_in(tmp_path, cells))


CODE = {
    "function": ("def cross_entropy(x):\n    return x", "defines cross_entropy"),
    "class": ("class Tokenizer:\n    pass", "defines Tokenizer"),
    "lambda": ("cross_entropy = lambda x: x", "defines cross_entropy"),
    "nested": ("if True:\n    def cross_entropy(x):\n        return x", "defines cross_entropy"),
    "requests": ("import requests", "imports requests"),
    "urllib": ("from urllib.request import urlopen", "imports urllib.request"),
    "socket": ("import socket as s", "imports socket"),
    "pretrained": ("model = Model.from_pretrained('gpt2')", "calls from_pretrained"),
    "getsource": ("print(inspect.getsource(f))", "show code with llmcourse_classroom.show"),
    "pip": ("!pip install x", "installs packages"),
    "python -m pip": ("!python -m pip install x", "installs packages"),
    "magic pip": ("%pip install x", "installs packages"),
    "curl": ("!curl -O file", "fetches something"),
    "unix path": ("open('/home/me/data.txt')", "absolute path"),
    "home": ("open('~/data.txt')", "absolute path"),
    "windows path": (r"open(r'C:\data.txt')", "absolute path"),
    "star": ("from llmcourse import *", "imports all names"),
    "widgets": ("from tqdm.auto import tqdm", "puts widgets into the page"),
    "new widget": ("from ipywidgets import TagsInput", "ipywidgets 7.7 lacks"),
    "new argument": ("Slider(tabbable=True)", "ipywidgets 7.7 lacks"),
    "syntax": ("def f(:", "does not parse"),
    "constant": ("assert True", "cannot fail"),
    "tuple": ("assert (1 == 2, 'text')", "cannot fail"),
    "comparison": ("6 * 7 == 42", "compares without assert"),
    "legend": ("ax.legend()", "has a legend"),
    "legend of a figure": ("fig.legend(\n    loc='upper left'\n)", "has a legend"),
    "legend without a reason": ("ax.legend()  # a legend:", "has a legend"),
}


@pytest.mark.parametrize(("source", "message"), CODE.values(), ids=CODE)
def test_code_that_breaks_a_rule(tmp_path, source, message):
    cells = good()
    cells["scale-table"].source = source
    problems = found_in(tmp_path, cells)
    assert len(problems) == 1
    assert "cell scale-table" in problems[0]
    assert message in problems[0]


ALLOWED = {
    "call": "loss.cross_entropy(x, y)",
    "variable": "start = 3",
    "division": "share = 1 / 2\nprint('a/b')",
    "magic": '%config InlineBackend.figure_formats = ["retina"]\nx = 1',
    "shell": "!{sys.executable} -m llmcourse.train --steps 3",
    "cell magic": "%%time\nx = 1",
    "url in a text": "print('https://example.org')",
    "legend with a reason": "ax.legend()  # a legend: forty points cover each other",
    "nothing else": "assert 6 * 7 == 42\nprint(42)",
}


@pytest.mark.parametrize("source", ALLOWED.values(), ids=ALLOWED)
def test_a_good_notebook_has_no_problem(tmp_path, source):
    cells = good()
    cells["scale-table"].source = source
    assert found_in(tmp_path, cells) == []


FIGURES = {
    "no show": (FIGURE.replace("plt.show()", ""), FIGURE_METADATA, "without plt.show()"),
    "no alt": (FIGURE, {"mystnb": {}}, "without an alt text"),
    "file name as alt": (FIGURE, with_alt(f"{'0f' * 16}.png"), "without an alt text"),
    "caption repeated": (FIGURE, with_alt(CAPTION.split("** ")[1]), "repeats the caption"),
}


@pytest.mark.parametrize(("source", "metadata", "message"), FIGURES.values(), ids=FIGURES)
def test_figures_that_break_a_rule(tmp_path, source, metadata, message):
    cells = good()
    cells["figure"] = code("figure", source, metadata)
    assert any(message in problem for problem in found_in(tmp_path, cells))


@pytest.mark.parametrize("front_end", ["tags", "jupyter", "cellView"])
@pytest.mark.parametrize("name", ["setup", "checks"])
def test_what_is_folded_is_folded_everywhere(tmp_path, name, front_end):
    cells = good()
    cells[name].source = "# @title A title\n" + cells[name].source
    metadata = CHECKS_METADATA if name == "checks" else check_notebooks.FOLDED
    cells[name].metadata = nbformat.from_dict(metadata)
    assert found_in(tmp_path, cells) == []
    del cells[name].metadata[front_end]
    (problem,) = (p for p in found_in(tmp_path, cells) if "alike" in p)
    assert problem.startswith(f"cell {name}: is not folded alike")


def test_lines_of_72_columns_and_three_assertions_stay_in_sight(tmp_path):
    cells = good()
    cells["checks"].source = "# @title Checks\nassert 6 < 7  # " + 90 * "x"  # folded: no limit
    cells["scale-table"].source = "print(42)\nprint('" + 63 * "x" + "')"
    assert found_in(tmp_path, cells) == []
    cells["scale-table"].source += ";"
    (problem,) = found_in(tmp_path, cells)
    assert problem == "cell scale-table: line 2 has 73 columns, more than 72"
    cells["scale-table"].source = "for n in (1, 2):\n    assert n\nassert n == 2\nassert n > 0"
    assert found_in(tmp_path, cells) == []
    cells["setup"].source += "\nassert runtime"
    assert any("shows 4 assertions" in problem for problem in found_in(tmp_path, cells))


BROKEN = {
    "in sight": ("checks", {"metadata": {"tags": ["checks"]}}, "has the tag checks"),
    "empty": ("checks", {"source": "# @title Checks\nprint(6)"}, "has the tag checks"),
    "no title in Colab": ("checks", {"source": "assert 6 < 7"}, "folded without a title"),
    "no set-up": ("setup", {"source": "import math"}, "runtime.set_up()"),
    "nothing at scale": ("scale-table", {}, "no code cell"),
}


@pytest.mark.parametrize(("cell", "change", "message"), BROKEN.values(), ids=BROKEN)
def test_cells_that_break_a_rule(tmp_path, cell, change, message):
    cells = good()
    broken = {**cells[cell], **change}
    cells[cell] = nbformat.from_dict(broken) if change else markdown(cell, "Words.")
    assert any(message in problem for problem in found_in(tmp_path, cells))


UNSTRIPPED = {
    "executed": lambda cell: cell.update(execution_count=1),
    "with output": lambda cell: cell.update(outputs=[nbformat.v4.new_output("stream", text="42")]),
    "with metadata of an editor": lambda cell: cell.metadata.update(collapsed=True),
    "on one line": None,
}


@pytest.mark.parametrize("case", UNSTRIPPED)
def test_only_stripped_notebooks_pass(tmp_path, case):
    def text(notebook):
        if not UNSTRIPPED[case]:
            return json.dumps(notebook, indent=1)
        UNSTRIPPED[case](notebook.cells[2])
        return check_notebooks.written(notebook)

    problems = found_in(tmp_path, good(), text=text)
    assert any("run make format" in problem for problem in problems)
    path = tmp_path / "07_title.ipynb"
    assert check_notebooks.main(["--strip", str(path)]) == 0
    assert list(check_notebooks.problems(path, NAMES)) == []
    before = path.stat().st_mtime_ns
    check_notebooks.strip_file(path)
    assert path.stat().st_mtime_ns == before


def test_stripping_keeps_sources_tags_and_captions(tmp_path):
    path = tmp_path / "07_title.ipynb"
    notebook = nbformat.v4.new_notebook(cells=list(good().values()))
    figure = next(place for place, cell in enumerate(notebook.cells) if cell.id == "figure")
    notebook.cells[figure].metadata["tags"] = ["hide-input"]
    notebook.cells[figure].metadata["vscode"] = {"languageId": "python"}
    nbformat.write(notebook, path)
    check_notebooks.strip_file(path)
    cells = nbformat.read(path, as_version=4).cells
    assert [cell.source for cell in cells] == [cell.source for cell in notebook.cells]
    assert cells[figure].metadata == {"tags": ["hide-input"], **FIGURE_METADATA}


def test_an_invalid_notebook_is_named_and_the_program_says_what_is_wrong(tmp_path, capsys):
    path = tmp_path / "07_title.ipynb"
    notebook = json.loads(check_notebooks.written(nbformat.v4.new_notebook()))
    notebook["cells"] = [{"cell_type": "code", "source": "x"}]
    path.write_text(json.dumps(notebook))
    assert "not a valid notebook" in next(check_notebooks.problems(path, NAMES))
    cells = good()
    cells["title"].source = "# 99 Another"
    path.write_text(check_notebooks.written(nbformat.v4.new_notebook(cells=list(cells.values()))))
    assert check_notebooks.main([str(path)]) == 1
    assert "07_title.ipynb its first cell is not a title" in capsys.readouterr().out


def test_widgets_of_the_package_need_no_newer_ipywidgets_than_colab_has(tmp_path, monkeypatch):
    assert check_notebooks.main([str(CHAPTERS[0])]) == 0
    module = tmp_path / "llmcourse_classroom" / "new.py"
    module.parent.mkdir(parents=True)
    module.write_text("import ipywidgets\n\nbox = ipywidgets.Stack()\n")
    monkeypatch.setattr(check_notebooks, "ROOT", tmp_path)
    assert check_notebooks.main([str(CHAPTERS[0])]) == 1


def test_public_names_are_those_of_the_package():
    names = check_notebooks.public_names()
    assert {"cross_entropy", "rmsnorm_forward", "Transformer", "train_bpe", "fit"} <= names
    assert "Tensor" not in names


CHAPTERS = sorted((Path(check_notebooks.ROOT) / "chapters").glob("*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_chapter_keeps_the_rules(path):
    assert list(check_notebooks.problems(path, check_notebooks.public_names())) == []
