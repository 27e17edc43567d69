"""The table of contents, the curriculum, the chapters and the modules name each other."""

import ast
import importlib
import json
import re
from functools import cache
from pathlib import Path

import nbformat
import portable
import pytest

from llmcourse.__main__ import commands
from tools.build import build_book, uses
from tools.pages import api_pages

COMMANDS, ROOT = commands(), Path(__file__).parents[2]
CURRICULUM = ROOT / "llmcourse_classroom" / "curriculum.json"
PARTS, LAPS = (json.loads(CURRICULUM.read_text(encoding="utf8"))[n] for n in ("parts", "laps"))
COURSE = [f"{c['number']}_{c['slug']}" for part in PARTS for c in part["chapters"]]
AFTER = {c["number"]: c["after"] for part in PARTS for c in part["chapters"] if "after" in c}
"""Chapters that can be read right after another, which lies further back than in the laps."""
DOCUMENTS = build_book.documents()
IN_TOC = [Path(name).name for name in DOCUMENTS if name.startswith("chapters/")]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "chapters").glob("*.ipynb"))
SOURCES = sorted(path for name in uses.PACKAGES for path in (ROOT / name).rglob("*.py"))
ROOTS = [ROOT / name / "__init__.py" for name in uses.PACKAGES]
PACKAGES = [path for path in SOURCES if path.stem == "__init__" and path not in ROOTS[:2]]
PAGE = r"(?:chapters/\w+\.ipynb|book/\w+\.md)"
TAUGHT = re.compile(rf"Taught in: ({PAGE}(?:, {PAGE})*)")


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def taught_in(path):
    last = (ast.get_docstring(ast.parse(path.read_text(encoding="utf8"))) or "").split("\n")[-1]
    found = TAUGHT.fullmatch(last)
    return [Path(name).stem for name in found[1].split(", ")] if found else []


@cache
def read(path):
    return nbformat.read(path, as_version=4).cells


def cells_of(chapter):
    return read(ROOT / "chapters" / f"{chapter}.ipynb")


def files_of(cells):
    shown = (portable.file_of(path) for _, path, _ in portable.shown(cells))
    return [file.relative_to(ROOT).as_posix() for file in shown]


@cache
def shown_in(chapter):
    return set(files_of(cells_of(chapter)))


@cache
def named_in(chapter):
    names = set()
    for cell in cells_of(chapter):
        for command in re.findall(r"\bllmcourse ([a-z]+)\b", cell.source):
            names |= {COMMANDS[command].module} if command in COMMANDS else set()
        if cell.cell_type != "code":
            continue
        imports = r"^\s*from (llmcourse[\w.]*) import (\([^)]*\)|[^\n]*)"
        for place, listed in re.findall(imports, cell.source, re.MULTILINE):
            words = (name.split() for name in listed.strip("()").split(","))
            names |= {place, *(f"{place}.{word[0]}" for word in words if word)}
        names |= set(re.findall(r"^\s*import (llmcourse[\w.]+)", cell.source, re.MULTILINE))
    return names


def test_the_curriculum_has_each_chapter_once_and_the_table_of_contents_all_of_them():
    """Mutants: a number twice, a chapter in no lap or in two, a part without a chapter."""
    numbers = [name[:2] for name in COURSE]
    assert numbers == sorted(set(numbers))
    assert numbers[:46] == [f"{number:02d}" for number in range(46)]  # they keep their numbers
    assert all(re.fullmatch(r"\d\d_[a-z0-9_]+", name) for name in COURSE)
    assert all(part["chapters"] for part in PARTS)
    names = [part["part"].split(" · ")[0] for part in PARTS]
    assert names == [f"Part {n}" for n in range(len(PARTS))]
    for number in range(1, 8):
        assert f"Phase {number}" in PARTS[number]["part"]
    in_laps = [number for lap in LAPS for number in lap["chapters"]]
    assert sorted(in_laps) == numbers[1:]
    assert all(lap["chapters"] == sorted(lap["chapters"]) for lap in (LAPS[0], *LAPS[2:]))
    named = [lap["lap"].partition(" lap: ")[0] for lap in LAPS]
    assert named == ["First", "Second", "Third"][: len(LAPS)]
    assert IN_TOC == NOTEBOOKS == COURSE
    for name in DOCUMENTS:
        assert any((ROOT / f"{name}{suffix}").exists() for suffix in (".md", ".ipynb")), name
    pages = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "book").rglob("*.md")]
    assert {path.as_posix() for path in pages} <= set(DOCUMENTS)


@pytest.mark.parametrize("chapter", NOTEBOOKS)
def test_a_chapter_has_its_title_and_needs_what_comes_before_it_in_the_laps(chapter):
    """Each lap after the first needs the first, and what it has had itself."""
    assert chapter in COURSE
    titles = {c["number"]: c["title"] for part in PARTS for c in part["chapters"]}
    first_line = cells_of(chapter)[0].source.split("\n")[0]
    assert first_line == f"# {chapter[:2]} {titles[chapter[:2]]}"
    own = [number for lap in LAPS if chapter[:2] in lap["chapters"] for number in lap["chapters"]]
    before = ["00", *LAPS[0]["chapters"], *own]
    after = AFTER.get(chapter[:2])
    before = before[: before.index(after) + 1 if after else before.index(chapter[:2])]
    text = "\n".join(cell.source for cell in cells_of(chapter))
    needs = text.split("## You need", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"\((\d\d)_\w+\.ipynb\)", needs)) <= set(before)


@pytest.mark.parametrize("path", PACKAGES, ids=name_of)
def test_a_package_names_the_chapters_that_teach_it(path):
    """Both ways: each of them shows or uses it, and whoever shows a module of it is named."""
    chapters, name = taught_in(path), name_of(path)
    assert chapters, "the docstring does not end with 'Taught in: chapters/NN_slug.ipynb'"
    modules = {each.relative_to(ROOT).as_posix() for each in path.parent.glob("*.py")}
    for chapter in set(chapters) & set(IN_TOC):
        uses = any(f"{used}.".startswith(f"{name}.") for used in named_in(chapter))
        assert uses or modules & shown_in(chapter), chapter
    assert {each for each in IN_TOC if modules & shown_in(each)} <= set(chapters)
    assert set(chapters) <= {*COURSE, "instructors", "coming_from"}


ROOMS = {}
"""The modules and folders that have a page, by its address."""
for package in uses.PACKAGES:
    ROOMS |= {api_pages.address(package, n): p for n, p in api_pages.rooms(package).items()}


def exported_by(package):
    """What a package fetches when it is asked for: module, names; as Python finds it out."""
    homes = vars(importlib.import_module(package)).get("_homes", {})
    return {home: [n for n, h in homes.items() if h == home] for home in homes.values()}


@pytest.mark.parametrize("address", ROOMS)
def test_a_page_has_what_its_folder_exports(address):
    """Mutants: a folder without a page, a name that is exported and not shown, one of its own."""
    page = (ROOT / "book" / "api" / f"{address}.md").read_text()
    shown = re.findall(r"automodule:: (\S+)\n   :members: ([\w, ]+)", page)
    names = {f"{module}.{name}" for module, listed in shown for name in listed.split(", ")}
    init = ROOMS[address]
    if init.stem != "__init__":
        assert f"automodule:: {name_of(init)}\n   :members:\n" in page
        return
    for each in (init, *init.parent.glob("**/__init__.py")):
        for module, listed in exported_by(name_of(each)).items():
            assert {f"{module}.{name}" for name in listed} <= names
    assert all(name.rsplit(".", 2)[-1][0] != "_" for name in names)


def test_every_folder_of_the_packages_has_a_page_that_is_fresh():
    folders = {path.parent for path in PACKAGES} - {path.parent for path in ROOTS}
    rooms = {path.parent for path in ROOMS.values() if path.stem == "__init__"}
    assert all(rooms & {folder, *folder.parents} for folder in folders)
    pages = {path.relative_to(ROOT / "book" / "api") for path in (ROOT / "book/api").rglob("*.md")}
    assert {path.with_suffix("").as_posix() for path in pages} == {"index", *ROOMS}
    index = (ROOT / "book" / "api" / "index.md").read_text()
    for address in ROOMS:
        assert f"]({address}.md)" in index
        assert f"book/api/{address}" in DOCUMENTS
    assert api_pages.stale() == []


def test_the_links_see_what_they_should(tmp_path, monkeypatch):
    module = tmp_path / "loss.py"
    one, other = (f"chapters/{name}.ipynb" for name in ("16_cross_entropy", "05_tokens"))
    for last, expected in {
        f"Taught in: {one}": ["16_cross_entropy"],
        f"Taught in: {other}, {one}": ["05_tokens", "16_cross_entropy"],
        "Taught in: chapter 16": [],
        f"Taught in: {one}\n\nMore": [],
    }.items():
        module.write_text(f'"""Loss.\n\n{last}\n"""\n')
        assert taught_in(module) == expected
    (tmp_path / "chapters").mkdir()
    sources = ["from llmcourse.model import config", "show(config.ModelConfig.__post_init__)"]
    sources += ["from llmcourse import loss, data as d\nimport llmcourse.model.ops"]
    sources += ["from llmcourse.model.config import ModelConfig"]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "chapters" / "16_x.ipynb")
    assert files_of(cells) == ["llmcourse/model/config.py"]
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    found = named_in("16_x")
    wanted = ("loss", "data", "model.ops", "model.config.ModelConfig")
    assert {f"llmcourse.{name}" for name in wanted} <= found
    assert not any("moe" in name for name in found)


INIT = """\"\"\"A model: its numbers.\"\"\"

if TYPE_CHECKING:
    from llmcourse.model.config import ModelConfig
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name in uses.PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('"""The package."""\n')
    source = tmp_path / "llmcourse"
    (source / "model").mkdir()
    (tmp_path / "api").mkdir()
    for name in ("loss.py", "model/config.py"):
        (source / name).write_text('"""First line.\n\nMore.\n"""\n\n\ndef public():\n    pass\n')
    (source / "model" / "__main__.py").write_text('"""A program."""\n\n\ndef main():\n    pass\n')
    (source / "model" / "__init__.py").write_text(INIT)
    contracts = "".join(
        f'[[tool.importlinter.contracts]]\ncontainers = ["{name}"]\nlayers = ["model", "loss"]\n'
        for name in uses.PACKAGES
    )
    (tmp_path / "pyproject.toml").write_text(contracts)
    monkeypatch.setattr(api_pages, "ROOT", tmp_path)
    monkeypatch.setattr(api_pages, "PAGES", tmp_path / "api")
    return tmp_path


def test_pages_are_written_from_the_packages(package):
    assert (api_pages.main(["--check"]), api_pages.main([])) == (1, 0)
    assert api_pages.main(["--check"]) == 0
    written = {path.name for path in (package / "api").iterdir()}
    assert written == {"index.md", "loss.md", "model.md"}
    assert "automodule:: llmcourse.loss\n   :members:\n" in (package / "api/loss.md").read_text()
    model = (package / "api" / "model.md").read_text()
    assert "automodule:: llmcourse.model.config\n   :members: ModelConfig\n" in model
    assert "public" not in model
    assert "| [model](model.md) | A model: its numbers. |" in (package / "api/index.md").read_text()


def test_stale_pages_are_found(package, capsys):
    api_pages.main([])
    (package / "llmcourse_labs" / "cost").mkdir()
    (package / "llmcourse_labs" / "cost" / "__init__.py").write_text('"""Costs."""\n')
    (package / "api" / "loss.md").write_text("# Another\n")
    (package / "api" / "gone.md").write_text("# Gone\n")
    assert api_pages.main(["--check"]) == 1
    assert "stale: gone, index, labs/cost, loss: run make format" in capsys.readouterr().out
    api_pages.main([])
    assert api_pages.stale() == []
    assert not (package / "api" / "gone.md").exists()
