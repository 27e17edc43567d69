"""Rules that every chapter keeps, checked without running it; `--strip` mends what can be mended.

python -m tools.check.check_notebooks [--strip] [NOTEBOOK ...]
"""

import argparse
import ast
import importlib
import itertools
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from llmcourse_classroom.notebooks import nbformat
from tools.build.uses import PACKAGES, python_of
from tools.pages import setup_cells

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = (
    "You need",
    "You will be able to",
    "Predict",
    "At scale",
    "Exercises",
    "Quiz",
    "Take away",
    "Deeper",
    "Where popular accounts go wrong",
    "Further reading",
)
OPTIONAL = {"At scale", "Deeper"}
"""Sections that stand where scale is the point, and where some readers want more."""
NETWORK = {"requests", "urllib", "socket", "http", "httpx", "aiohttp", "ftplib", "urllib3"}
DOWNLOADS = {"from_pretrained", "load_dataset", "hf_hub_download", "urlopen", "urlretrieve"}
# A change in a docstring or a comment does not execute chapters again.
SOURCES = {"getsource", "getsourcelines", "getdoc", "help"}
KEPT = ("tags", "mystnb", "jupyter", "cellView")
"""What stays of a cell's metadata: tags and images of the page, and who folds the code."""
FOLDED = {"tags": ["hide-input"], "jupyter": {"source_hidden": True}, "cellView": "form"}
"""The metadata of a cell whose code is folded: in the page, in JupyterLab, in Colab."""
CHECKS = "checks"
"""The tag of the cell that holds a section's assertions, out of sight."""
MAX_ASSERTIONS = 3
"""So many assertions of a chapter stay in sight: those that teach."""
MAX_COLUMNS = 72
"""So long may a line of code in sight be: the page's column shows it whole."""
NEW_IN_8 = {
    *(
        "CheckboxStyle",
        "ColorsInput",
        "DatetimePicker",
        "FloatsInput",
        "HTMLMathStyle",
        "HTMLStyle",
    ),
    *("IntsInput", "LabelStyle", "NaiveDatetimePicker", "Stack", "TagsInput", "TextStyle"),
    *("TimePicker", "ToggleButtonStyle", "description_allow_html", "tabbable"),
}
"""What ipywidgets has since 8.0 alone, compared with 7.7.1, which Colab has."""
NOT_PORTABLE = {
    r"\{[a-z:]+\}`": "a role",
    r"^ *(?:`{3,}|~{3,}|:{3,})\{": "a directive",
    r"^ *\([\w-]+\)= *$": "a label",
    r"\$\$ *\([\w-]+\) *$": "a label of an equation",
    r"!\[[^\]]*\](?!\((?:https?:|attachment:))": "an image beside the notebook",
    r"<(?!/?(?:span|sub|sup|br|kbd|details|summary)\b|https?:)/?[a-zA-Z][^>\n]*>": "HTML",
}
"""What JupyterLab, Colab or GitHub cannot show, by its pattern."""
TOP_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def public_names() -> set[str]:
    """Return every public function and class of the package: a chapter must not define these."""
    packages = [importlib.import_module(name) for name in PACKAGES]
    walked = [pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in packages]
    names = set()
    for module in itertools.chain(*walked):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            own = (getattr(value, "__module__", None) or "").startswith("llmcourse")
            if own and callable(value) and not name.startswith("_"):
                names.add(name)
    return names


def stripped(
    notebook: nbformat.NotebookNode, metadata: Sequence[str] = KEPT
) -> nbformat.NotebookNode:
    """Remove outputs, counts and editor metadata; keep the cells' metadata of some names."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        kept = {key: cell.metadata[key] for key in metadata if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept)
    notebook.metadata = nbformat.from_dict(TOP_METADATA)
    return notebook


def written(notebook: nbformat.NotebookNode) -> str:
    """Return a notebook's file content in the one form that is committed: a line for a line."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def strip_file(path: Path) -> None:
    """Rewrite a notebook in the form that is committed; leave it alone when it has it."""
    old = path.read_text(encoding="utf8")
    new = written(stripped(nbformat.reads(old, as_version=4)))
    if new != old:
        path.write_text(new, encoding="utf8")


def problems(path: Path, names: set[str]) -> Iterator[str]:
    """Yield what is wrong with a chapter, a line each."""
    text = path.read_text(encoding="utf8")
    try:
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        yield f"is not a valid notebook: {error.message}"
        return
    if text != written(stripped(nbformat.reads(text, as_version=4))):
        yield "has outputs, editor metadata or another layout: run make format"
    yield from prose_problems(path, notebook)
    yield from section_problems(path.stem, notebook)
    yield from portable_problems(notebook)
    yield from figure_problems(notebook)
    yield from fold_problems(notebook)
    yield from width_problems(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not setup_cells.is_stamped(notebook):
        yield "its first code cell is not the setup cell: run make format"
    # That cell alone may install and use the network; a tool writes it.
    code = [cell for cell in code if cell.source != setup_cells.source_for(notebook)]
    if not code or ("set_up(" not in code[0].source and "set_num_threads(1)" not in code[0].source):
        yield "its first own code cell does not call runtime.set_up()"
    for cell in code:
        for problem in code_problems(cell, names):
            yield f"cell {cell.get('id')}: {problem}"


def is_folded(cell: nbformat.NotebookNode) -> bool:
    """Say whether the page shows a code cell's code at a click, or not at all."""
    return bool({"hide-input", "remove-input", "remove-cell"} & {*cell.metadata.get("tags", ())})


def width_problems(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Yield the lines of code in sight that are too long."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or is_folded(cell):
            continue
        for number, line in enumerate(cell.source.split("\n"), start=1):
            if len(line) > MAX_COLUMNS:
                yield (
                    f"cell {cell.get('id')}: line {number} has {len(line)} columns,"
                    f" more than {MAX_COLUMNS}"
                )


def fold_problems(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Yield code that is folded in one front end alone, and checks that are in sight."""
    in_sight = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        name, tags = f"cell {cell.get('id')}", {*cell.metadata.get("tags", ())}
        folds = (
            is_folded(cell),
            cell.metadata.get("jupyter", {}).get("source_hidden", False),
            cell.metadata.get("cellView") == "form",
        )
        if len(set(folds)) > 1:
            yield f"{name}: is not folded alike in the page, in JupyterLab and in Colab"
        if all(folds) and not cell.source.startswith("# @title "):
            yield f"{name}: is folded without a title for Colab: begin it with '# @title ...'"
        num_assertions = len(re.findall(r"^ *assert\b", cell.source, re.MULTILINE))
        in_sight += 0 if any(folds) else num_assertions
        if CHECKS in tags and not (all(folds) and num_assertions):
            yield f"{name}: has the tag {CHECKS}, and is not folded or checks nothing"
    if in_sight > MAX_ASSERTIONS:
        yield (
            f"shows {in_sight} assertions: keep the {MAX_ASSERTIONS} that teach, and put the others"
            f" into a folded cell with the tag {CHECKS} at the end of their section"
        )


def prose_problems(path: Path, notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Yield what is wrong with the title, the skeleton and the order of the sections."""
    number = path.stem[:2]
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith(f"# {number} "):
        yield f"its first cell is not a title '# {number} ...'"
    if "**Minutes**" not in first.source:
        yield "its first cell does not say the minutes"
    found = re.findall(r"^## (.+)$", _markdown(notebook), flags=re.MULTILINE)
    places = [found.index(heading) if heading in found else None for heading in HEADINGS]
    for heading, place in zip(HEADINGS, places, strict=True):
        if place is None and heading not in OPTIONAL:
            yield f"has no section '{heading}'"
    known = [place for place in places if place is not None]
    if known != sorted(known):
        yield f"its sections are not in the order {', '.join(HEADINGS)}"
    if found and found[-1] != HEADINGS[-1]:
        yield f"its last section is not '{HEADINGS[-1]}'"


def section_problems(topic: str, notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Yield what the sections of the skeleton lack."""
    sections = _sections(notebook)
    quiz = "\n".join(cell.source for cell in notebook.cells if cell.get("id") == "quiz")
    if f"(../exercises/{topic}.ipynb)" not in sections.get("Exercises", ("", 0))[0]:
        yield "does not link its exercises: make exercises fills the cell exercise-list"
    if f'Quiz("{topic}")' not in quiz:
        yield f'has no cell with the id quiz and Quiz("{topic}")'
    if "At scale" in sections and not sections["At scale"][1]:
        yield "its section 'At scale' computes nothing: it has no code cell"
    wrong = HEADINGS[-2]
    if wrong in sections and not re.search(r"^> \*\*", sections[wrong][0], re.MULTILINE):
        yield f"its section '{wrong}' has no box: a quote that begins with a bold label"


def portable_problems(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Yield what front ends other than the book cannot show, and equations out of order."""
    tags = []
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        prose = re.sub(r"^(`{3,})(?!\{).*?^\1", "", cell.source, flags=re.MULTILINE | re.DOTALL)
        plain = re.sub(r"`[^`\n]*`", "``", prose)
        for pattern, what in NOT_PORTABLE.items():
            for found in re.finditer(pattern, plain, re.MULTILINE):
                yield f"cell {cell.get('id')}: {found[0]!r} is {what}, which notebooks cannot show"
        blocks = re.findall(r"\$\$(.+?)\$\$", prose, re.DOTALL)
        tags += [re.findall(r"\\tag\{([\d.]+)\}", block) for block in blocks]
    number = int(re.match(r"# (\d+)", notebook.cells[0].source + "# 0")[1])
    wanted = [[f"{number}.{place}"] for place in range(1, len(tags) + 1)]
    if tags != wanted:
        yield f"its equations are not tagged {number}.1, {number}.2, ...: they have {tags}"


def figure_problems(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Yield figures without a caption after them, and captions out of order."""
    number = int(re.match(r"# (\d+)", notebook.cells[0].source + "# 0")[1])
    captions = []
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type != "code" or not re.search(r"\bplt\.(subplots|figure)\(", cell.source):
            continue
        after = notebook.cells[place + 1].source if place + 1 < len(notebook.cells) else ""
        found = re.match(r"\*\*Figure (\d+\.\d+)\.\*\* (\S.*)", after)
        if not found:
            yield f"cell {cell.get('id')}: draws without a caption: begin the next cell with one"
            continue
        captions.append(found[1])
        if found[2] == cell.metadata.get("mystnb", {}).get("image", {}).get("alt"):
            yield f"cell {cell.get('id')}: repeats the caption as alt text"
    if captions != [f"{number}.{place}" for place in range(1, len(captions) + 1)]:
        yield f"its figures are not numbered {number}.1, {number}.2, ...: they are {captions}"


def _markdown(notebook: nbformat.NotebookNode) -> str:
    """Return the prose, without what stands in fences of three or more backticks."""
    prose = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    return re.sub(r"^(`{3,}).*?^\1", "", prose, flags=re.MULTILINE | re.DOTALL)


def _sections(notebook: nbformat.NotebookNode) -> dict[str, tuple[str, int]]:
    """Return for every section its prose and the number of its code cells, checks aside."""
    sections: dict[str, tuple[str, int]] = {}
    heading = ""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            prose, count = sections.get(heading, ("", 0))
            sections[heading] = (prose, count + (CHECKS not in cell.metadata.get("tags", ())))
            continue
        pieces = re.split(r"^## (.+)$", cell.source, flags=re.MULTILINE)
        prose, count = sections.get(heading, ("", 0))
        sections[heading] = (prose + pieces[0], count)
        for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
            heading = title.strip()
            sections[heading] = (body, 0)
    return sections


def code_problems(cell: nbformat.NotebookNode, names: set[str]) -> Iterator[str]:
    """Yield what is wrong with a code cell."""
    source = cell.source
    if re.search(r"^\s*[!%].*\b(pip|conda)\b", source, flags=re.MULTILINE):
        yield "installs packages"
    if re.search(r"^\s*!.*\b(curl|wget|git)\b", source, flags=re.MULTILINE):
        yield "fetches something"
    if re.search(r"""["'](/[A-Za-z]|[A-Za-z]:\\|~/)""", source):
        yield "has an absolute path"
    try:
        tree = ast.parse(python_of(source))
    except SyntaxError as error:
        yield f"does not parse: {error.msg}"
        return
    yield from widget_problems(tree)
    for line in re.findall(r"^.*\.legend\(.*$", source, flags=re.MULTILINE):
        if not re.search(r"# a legend: \S", line):
            yield (
                "has a legend: write the names at the lines (llmcourse_classroom.plots.name_lines),"
                " or end the line with '# a legend: ' and why names cannot stand there"
            )
    methods = {m for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for m in node.body}
    for node in ast.walk(tree):
        yield from _import_problems(node)
        if node not in methods:  # a module's `forward` is a name of its class alone
            yield from _name_problems(node, names)
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant | ast.Tuple):
            yield "has an assert that cannot fail"
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare):
            yield "compares without assert"
    if re.search(r"\bplt\.(subplots|figure)\(", source):
        yield from _figure_problems(cell, tree)


def widget_problems(tree: ast.Module) -> Iterator[str]:
    """Yield uses of what Colab's ipywidgets lacks."""
    for node in ast.walk(tree):
        for name in ("name", "attr", "arg"):  # of imports, attributes and keywords
            if (used := getattr(node, name, None)) in NEW_IN_8:
                yield f"uses {used}, which ipywidgets 7.7 lacks: Colab has that"


def _import_problems(node: ast.AST) -> Iterator[str]:
    """Yield imports and calls of what a chapter must not use."""
    modules = []
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = [node.module or ""]
        if any(alias.name == "*" for alias in node.names):
            yield f"imports all names of {node.module}"
    for module in modules:
        if module.split(".")[0] in NETWORK:
            yield f"imports {module}: chapters do not use the network"
        if module.startswith(("tqdm.auto", "tqdm.notebook")):
            yield f"imports {module}: it puts widgets into the page"
    if isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in DOWNLOADS:
            yield f"calls {called}: chapters do not use the network"
        if called in SOURCES:
            yield f"calls {called}: show code with llmcourse_classroom.show (docs/adr/0004)"


def _name_problems(node: ast.AST, names: set[str]) -> Iterator[str]:
    """Yield functions and classes that the package has under the same name."""
    defined = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        defined = [node.name]
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        defined = [target.id for target in node.targets if isinstance(target, ast.Name)]
    for name in defined:
        if name in names:
            yield f"defines {name}, which the package has"


def _figure_problems(cell: nbformat.NotebookNode, tree: ast.Module) -> Iterator[str]:
    """Yield what is missing from a cell that draws."""
    calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if "plt.show()" not in calls:
        yield "draws without plt.show()"
    settings = cell.metadata.get("mystnb", {})
    alt = settings.get("image", {}).get("alt", "")
    if len(alt) < 30 or " " not in alt:
        yield "draws without an alt text that describes the figure"


def main(arguments: list[str] | None = None) -> int:
    """Check, or strip, the named notebooks or all of them; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--strip", action="store_true", help="rewrite notebooks without outputs")
    parser.add_argument("notebooks", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    paths = options.notebooks or sorted((ROOT / "chapters").glob("*.ipynb"))
    if options.strip:
        for path in paths:
            strip_file(path)
        return 0
    names = public_names()
    found = [f"{path.name} {problem}" for path in paths for problem in problems(path, names)]
    for path in (ROOT / "llmcourse_classroom").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf8"))
        found += [f"{path.relative_to(ROOT)} {problem}" for problem in widget_problems(tree)]
    print("\n".join(found) or f"{len(paths)} notebooks keep the rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
