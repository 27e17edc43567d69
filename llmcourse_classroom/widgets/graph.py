"""A widget about backpropagation: a graph of numbers, forward and backward, one step at a time."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import traitlets

from llmcourse.backward.autodiff import Value, topological_order
from llmcourse_classroom.state import Whole, one_of
from llmcourse_classroom.widget import Widget

FUNCTIONS = ("exp", "log", "tanh", "relu")
OPERATORS: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
MOST_VALUES = 24


def values_of(program: str) -> dict[str, Value]:
    """Return the named values of a program such as "a = 3; b = a + a", the result last.

    Args:
        program: assignments, separated by semicolons or lines, of numbers, earlier names,
            ``+ - * / **``, exp, log, tanh and relu.

    Raises:
        ValueError: if it cannot be read, with the part at fault.
    """
    try:
        lines = ast.parse(program.strip()).body
    except SyntaxError as error:
        raise ValueError(f"not a program: {program!r} ({error.msg})") from None
    named: dict[str, Value] = {}
    for line in lines:
        if not (isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)):
            raise ValueError(f"every line must be name = formula, not {ast.unparse(line)!r}")
        name = line.targets[0].id
        if name in named or len(line.targets) > 1:
            raise ValueError(f"{name!r} is given twice")
        value = _evaluate(line.value, named)
        named[name] = value if isinstance(value, Value) else Value(value, name=name)
    if not named:
        raise ValueError("an empty program; write such as a = 3; b = a + a")
    return named


def program_of(result: Value) -> str:
    """Return a program that computes a graph of values, one line for each of them.

    Raises:
        ValueError: if a computed value was renamed, so that its operation is not known.
    """
    called: dict[int, str] = {}
    lines = []
    for value in topological_order(result):
        given = [called[id(each)] for each, _ in value.inputs]
        if not given and not value.name:
            called[id(value)] = f"({value.data!r})"
            continue
        formula = _formula(value, given) if given else repr(value.data)
        name = value.name if not given else f"v{len(called) + 1}"
        if not name.isidentifier() or name in FUNCTIONS or name in called.values():
            name = f"x{len(called) + 1}"
        called[id(value)] = name
        lines.append(f"{name} = {formula}")
    return "\n".join(lines)


class GraphStepper(Widget):
    """A program's graph, with values stepped forward and gradients stepped backward.

    The state holds the program and the number of steps done; the picture follows from both.

    Args:
        graph: a program such as "a = 3; b = a + a; c = b + b", a `Value` with what it was computed
            from, or several of these by name, among which the page offers a choice.
        state: the rest of the state, such as `step` or `without_order`.

    Raises:
        ValueError: if a program cannot be read, or has more than 24 values.
    """

    script = "graph_stepper.js"
    alt = (
        "A graph of numbers.  Forward each gets its value, backward each collects its gradient, "
        "and passes it on when all arrows have arrived.  Without that order the result is wrong."
    )

    examples = traitlets.List().tag(sync=True)
    example = traitlets.Unicode().tag(sync=True)
    expression = traitlets.Unicode().tag(sync=True)
    without_order = traitlets.Bool(False).tag(sync=True)
    step = Whole(0, low=0, high=400, step=1, label="step")

    def __init__(self, graph: str | Value | Mapping[str, str | Value], **state: Any) -> None:
        graphs = dict(graph) if isinstance(graph, Mapping) else {"program": graph}
        if not graphs:
            raise ValueError("no graph was given")
        programs = {
            name: program_of(each) if isinstance(each, Value) else each
            for name, each in graphs.items()
        }
        for program in programs.values():
            _check_size(program)
        example = one_of("example", state.pop("example", next(iter(programs))), programs)
        super().__init__(
            examples=[[name, program] for name, program in programs.items()],
            example=example,
            **{"expression": programs[example], **state},
        )


def _evaluate(node: ast.expr, named: Mapping[str, Value]) -> Value | int | float:
    """Return a formula's value; numbers stay numbers until they meet a value."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in named:
            return named[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, named)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = _evaluate(right, named)
            if isinstance(exponent, Value):
                raise ValueError(f"an exponent must be a number, not {ast.unparse(right)!r}")
            return _evaluate(left, named) ** exponent
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_evaluate(left, named), _evaluate(right, named))
        case ast.Call(func=ast.Name(id=function), args=[given]) if function in FUNCTIONS:
            value = _evaluate(given, named)
            value = value if isinstance(value, Value) else Value(value)
            return getattr(value, function)()
    raise ValueError(f"cannot read {ast.unparse(node)!r}; known are {sorted(named)}")


def _formula(value: Value, given: list[str]) -> str:
    if value.name in FUNCTIONS and len(given) == 1:
        return f"{value.name}({given[0]})"
    if value.name in ("+", "×") and len(given) == 2:
        return f"{given[0]} {value.name.replace('×', '*')} {given[1]}"
    if value.name.startswith("^") and len(given) == 1:
        return f"{given[0]} ** {value.name[1:]}"
    raise ValueError(f"a computed value has to keep its operation's name, not {value.name!r}")


def _check_size(program: str) -> None:
    values_of(program)
    lines = ast.parse(program.strip()).body
    # A box for each operation on a value and for each named number, as the page draws them.
    operations = sum(
        isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call) and _has_value(node)
        for line in lines
        for node in ast.walk(line)
    )
    size = operations + sum(not _has_value(line.value) for line in lines)
    if size > MOST_VALUES:
        raise ValueError(f"at most {MOST_VALUES} values have room, not {size}")


def _has_value(formula: ast.AST) -> bool:
    """Whether a formula contains a name, other than that of a function."""
    return any(isinstance(n, ast.Name) and n.id not in FUNCTIONS for n in ast.walk(formula))
