"""Put the answers of the exercise notebooks together into one file, in the nutshell's order."""

import ast
import builtins
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager

from llmcourse.base.files import write_atomically
from llmcourse_classroom.exercises import exercise

MY_LLAMA = "my_llama.py"
PIECE = re.compile(
    r"^# --- (?P<number>\d\d\.\d) (?P<names>[\w, ]+): (?P<what>.+)\n(?P<body>(?:.*\n)*?)\n*"
    r"# --- end\n",
    re.MULTILINE,
)
YOURS, BORROWED = "yours", "borrowed from the course"
SEAL = "# made by llmcourse own assemble; a file that you change is never overwritten: "
_STUB = "raise NotImplementedError"


@dataclass(frozen=True)
class Piece:
    """One function of the file, or two, which an exercise asks for."""

    number: str
    """Of the exercise, such as "11.1"."""
    names: tuple[str, ...]
    what: str


@dataclass
class Answer:
    """What a reader's notebook has of a piece."""

    problem: str = ""
    """Why it cannot be used; empty if it can."""
    imports: set[str] = field(default_factory=set)
    helpers: dict[str, str] = field(default_factory=dict)
    """Sources of what else the answer uses of its notebook, by name."""
    source: str = ""


class NotPossibleError(ValueError):
    """The file cannot be made; the message says why and what to do."""


def template() -> str:
    """Return the file with every piece borrowed."""
    own = resources.files("llmcourse_classroom.own")
    return own.joinpath("my_llama.txt").read_text(encoding="utf8")


def pieces(text: str) -> list[Piece]:
    """Return the pieces of the file, in its order."""
    return [
        Piece(found["number"], tuple(found["names"].split(", ")), found["what"])
        for found in PIECE.finditer(text)
    ]


def assemble(folder: Path, out: Path, *, borrow: bool) -> dict[str, str]:
    """Write the file from the notebooks of a folder; nothing is written if that cannot be.

    Args:
        folder: holds the exercise notebooks, NN_topic.ipynb.
        out: the file to write.
        borrow: whether the course's own functions stand in for missing answers, marked as such.

    Returns:
        For each piece's number whose it is.

    Raises:
        NotPossibleError: if answers are missing, two define different things of one name, or the
            file has been edited since it was made.
    """
    text = template()
    answers = {piece.number: answer(folder, piece) for piece in pieces(text)}
    missing = [f"{number}: {a.problem}" for number, a in answers.items() if a.problem]
    if missing and not borrow:
        raise NotPossibleError(
            "these pieces are missing:\n  "
            + "\n  ".join(missing)
            + "\nAnswer them, or let the course stand in for them: llmcourse own assemble --borrow"
        )
    usable = {number: a for number, a in answers.items() if not a.problem}
    _refuse_clashes(text, usable)
    placed: set[str] = set()

    def placed_in(found: re.Match[str]) -> str:
        head = found[0].split("\n", 1)[0]
        if found["number"] not in usable:
            return f"{head} ({BORROWED})\n{found['body'].rstrip()}\n\n\n# --- end\n"
        own = usable[found["number"]]
        helpers = [source for name, source in own.helpers.items() if name not in placed]
        placed.update(own.helpers)
        return f"{head} ({YOURS})\n" + "\n\n\n".join([*helpers, own.source, "# --- end\n"])

    made = PIECE.sub(placed_in, text)
    made = _with_imports(made, set().union(*(own.imports for own in usable.values())))
    if out.exists() and not _as_assembled(out.read_text(encoding="utf8", errors="replace")):
        raise NotPossibleError(
            f"{out} has changes of your own, or was not made by this command, and would be lost: "
            "move it, or name another file with --out"
        )
    with write_atomically(out) as file:
        file.write(f"{made}\n{SEAL}{_sum_of(made)}\n".encode())
    return {number: YOURS if number in usable else BORROWED for number in answers}


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_assembled(text: str) -> bool:
    """Return whether a file is as it was made: nobody's work is lost with it."""
    made, _, seal = text.rpartition(f"\n{SEAL}")
    return seal.strip() == _sum_of(made)


def _originals_first(path: Path) -> tuple[bool, str]:
    """Return what puts a notebook before the copies that JupyterLab and browsers make of it."""
    return re.search(r"(-Copy\d+| ?\(\d+\)| copy)$", path.stem) is not None, path.name


def _has_questions(path: Path, chapter: str) -> bool:
    """Say whether a notebook has a question of a chapter, by the marks of its cells."""
    try:
        cells = exercise.read(path).cells
    except exercise.ExerciseError:
        return False
    marks = (cell.metadata.get("nbgrader", {}).get("grade_id", "") for cell in cells)
    return any(str(mark).startswith(f"{chapter}-") for mark in marks)


def answer(folder: Path, piece: Piece) -> Answer:
    """Return what a folder's notebook has of a piece."""
    found = sorted(folder.glob(f"{piece.number[:2]}_*.ipynb"), key=_originals_first)
    if not found:  # somebody has given it another name
        every = sorted(folder.glob("*.ipynb"), key=_originals_first)
        found = [path for path in every if _has_questions(path, piece.number[:2])]
    asked = " and ".join(piece.names)
    if not found:
        return Answer(f"there is no notebook {piece.number[:2]}_*.ipynb in {folder}")
    try:
        cells = [c.source for c in exercise.read(found[0]).cells if c.cell_type == "code"]
    except exercise.ExerciseError as error:
        return Answer(str(error))
    parsed = [list(_parsed(source)) for source in cells]
    known = {name: part for cell in parsed for part in cell for name in part.names}
    if missing := [name for name in piece.names if name not in known]:
        return Answer(f"{found[0].name} defines no {' and no '.join(missing)}, or not as Python")
    own = list(dict.fromkeys(known[name] for name in piece.names))
    if any(_STUB in part.text for part in own):
        return Answer(f"{asked} in {found[0].name} is not answered yet")
    # The check may call the answer through a function that its cell gives.
    beside = [
        part
        for cell in parsed
        for part in cell
        if set(own) & {*cell} and isinstance(part.node, ast.FunctionDef) and part not in own
    ]
    made = Answer(source="\n\n\n".join(part.text for part in own))
    for name in [*_needed([*own, *beside], known), *(n for part in beside for n in part.names)]:
        part = known[name]
        if isinstance(part.node, ast.Import | ast.ImportFrom):
            made.imports.add(_import_of(part.node, name))
        elif _STUB in part.text:
            return Answer(f"{asked} uses {name}, which is not answered yet")
        elif part not in own:
            made.helpers[name] = part.text
    return made


@dataclass(frozen=True)
class _Part:
    """A statement at the top of a cell, with its text as it was written."""

    node: ast.stmt
    text: str

    @property
    def names(self) -> list[str]:
        return _defined(self.node)


def _parsed(source: str) -> Iterator[_Part]:
    """Yield what a cell says; what only IPython understands is a call of it, which nothing uses."""
    if source.lstrip().startswith("%%"):  # such as %%time: what follows is Python, or no answer
        source = source.lstrip().partition("\n")[2]
    try:
        plain = TransformerManager().transform_cell(source).split("\n")
        body = ast.parse("\n".join(plain)).body
    except (SyntaxError, ValueError):
        return
    for node in body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        yield _Part(node, "\n".join(plain[first - 1 : node.end_lineno]))


def _defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a cell defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        names = [part for target in node.targets for part in ast.walk(target)]
        return [part.id for part in names if isinstance(part, ast.Name)]
    return []


def _needed(parts: Sequence[_Part], known: dict[str, _Part]) -> list[str]:
    """Return what some statements use of a notebook, and what that uses, each after its own."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(part: _Part) -> None:
        for node in ast.walk(part.node):
            name = node.id if isinstance(node, ast.Name) else ""
            if name in known and name not in seen and not hasattr(builtins, name):
                seen.add(name)
                visit(known[name])
                order.append(name)

    for part in parts:
        visit(part)
    return order


def _import_of(node: ast.Import | ast.ImportFrom, name: str) -> str:
    """Return the line that imports one name of a statement."""
    (alias,) = (a for a in node.names if (a.asname or a.name.split(".")[0]) == name)
    return ast.unparse(
        ast.ImportFrom(node.module, [alias], node.level)
        if isinstance(node, ast.ImportFrom)
        else ast.Import([alias])
    )


def _with_imports(text: str, more: set[str]) -> str:
    """Return a file that imports more, in the block that ends with torch."""
    nodes = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
    lines = text.split("\n")
    first, last = nodes[0].lineno - 1, nodes[-1].end_lineno
    known = {line for line in lines[first:last] if line} | more
    own = sorted(line for line in known if "llmcourse" in line)
    torch = sorted(line for line in known if "torch" in line)
    others = sorted(known.difference(own, torch), key=lambda line: ("from" in line, line))
    return "\n".join([*lines[:first], *others, "", *torch, "", *own, *lines[last:]])


def _refuse_clashes(text: str, usable: dict[str, Answer]) -> None:
    """Raise if a helper's name is taken by the file or by another helper.

    Raises:
        NotPossibleError: as said.
    """
    taken = {name: ("the file", "") for node in ast.parse(text).body for name in _defined(node)}
    for number, own in usable.items():
        for name, source in own.helpers.items():
            where, other = taken.setdefault(name, (number, source))
            if other != source:
                raise NotPossibleError(
                    f"{number} has a helper {name}, and so has {where}, another one: give the "
                    f"helper of {number} another name in its notebook"
                )
