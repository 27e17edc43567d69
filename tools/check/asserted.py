"""What the assertions of a chapter compare: the values, and how far these are from the bounds.

An assertion that holds says only that a number lies somewhere within its bounds.  Here each operand
of a comparison notes its value as it passes, so that words such as "more than twice" can be held
beside the 3.7 that was there.
"""

import ast
import json
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

NOTES = "_asserted"
PRELUDE = f"""
import json as _json
import math as _math

{NOTES} = {{}}


def _note(key, value):
    ends = [value]
    if hasattr(value, "numel") or hasattr(value, "dtype"):
        ends = [value.min(), value.max()] if len(getattr(value, "shape", ())) else [value]
    for each in ends:
        try:
            number = None if isinstance(each, str) else float(each)
        except (TypeError, ValueError, RuntimeError):
            number = None
        if number is not None and _math.isfinite(number):
            low, high = {NOTES}.get(key, (number, number))
            {NOTES}[key] = min(low, number), max(high, number)
    return value
"""
"""What runs before the cells: a function that passes a value on, and keeps its ends."""
POSTLUDE = f"print(_json.dumps({NOTES}))"

Ranges = Mapping[str, tuple[float, float]]
"""By key, the least and the greatest value that passed."""


class Bound(NamedTuple):
    """A comparison with a number, as an assertion makes it."""

    expression: str
    """What is compared."""
    kind: str
    """`below`, `above`, `around`, or `equal`."""
    number: float
    within: float
    """How far off `around` allows; 0 for the others."""
    key: str
    """Of the values that were noted."""


def number_of(node: ast.expr) -> float | None:
    """Return the value of a plain number, such as -0.4 or 2**-8; None of anything else."""
    if any(isinstance(part, ast.Name | ast.Call | ast.Attribute) for part in ast.walk(node)):
        return None
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
    except (TypeError, ValueError, ArithmeticError):
        return None
    return float(value) if isinstance(value, int | float) else None


def comparisons(test: ast.expr) -> Iterator[ast.Compare]:
    """Yield the comparisons of an assertion."""
    return (node for node in ast.walk(test) if isinstance(node, ast.Compare))


def bounds_of(cell: str, source: str) -> list[Bound]:
    """Return the comparisons with numbers that the assertions of a cell make."""
    found = []
    for compare in _compares(source):
        operands = [compare.left, *compare.comparators]
        for left, operator, right in zip(operands, compare.ops, operands[1:], strict=False):
            for what, than, mirrored in ((left, right, False), (right, left, True)):
                number = number_of(than)
                if number is not None and number_of(what) is None:
                    found += _bound(cell, what, operator, number, mirrored)
    return found


def _bound(
    cell: str, what: ast.expr, operator: ast.cmpop, number: float, mirrored: bool
) -> list[Bound]:
    """Return the bound of one comparison, or none."""
    is_less = isinstance(operator, ast.Lt | ast.LtE) != mirrored
    inner, centre, digits = _inside(what)
    expression = ast.unparse(inner)
    key = f"{cell}|{expression}"
    if isinstance(operator, ast.Eq):
        if digits is not None:
            return [Bound(expression, "around", number, 0.5 * 10.0**-digits, key)]
        return [Bound(expression, "equal", number, 0.0, key)]
    if not isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return []
    if centre is not None:
        return [Bound(expression, "around", centre, number, key)] if is_less else []
    return [Bound(expression, "below" if is_less else "above", number, 0.0, key)]


def _inside(node: ast.expr) -> tuple[ast.expr, float | None, int | None]:
    """Return what `abs(x - 0.7)` and `round(x, 2)` are about, with the 0.7 or the 2."""
    match node:
        case ast.Call(func=ast.Name("abs"), args=[ast.BinOp(left=x, op=ast.Sub(), right=c)]):
            if (centre := number_of(c)) is not None:
                return x, centre, None
        case ast.Call(func=ast.Name("round"), args=[x]):
            return x, None, 0
        case ast.Call(func=ast.Name("round"), args=[x, n]):
            if (digits := number_of(n)) is not None:
                return x, None, int(digits)
    return node, None, None


def _compares(source: str) -> Iterator[ast.Compare]:
    """Yield the comparisons of all assertions of a cell; a cell with magics has none."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield from comparisons(node.test)


class _Noting(ast.NodeTransformer):
    """Lets each operand of a comparison note its value."""

    def __init__(self, cell: str) -> None:
        self.cell = cell

    def noted(self, node: ast.expr) -> ast.expr:
        """Return an operand that notes itself, or what `abs` and `round` hold."""
        inner, *_ = _inside(node)
        if number_of(inner) is not None:
            return node
        key = f"{self.cell}|{ast.unparse(inner)}"
        call = ast.Call(ast.Name("_note", ast.Load()), [ast.Constant(key), inner], [])
        if inner is node:
            return call
        assert isinstance(node, ast.Call)
        first = node.args[0]
        node.args[0] = (
            ast.BinOp(call, first.op, first.right)
            if isinstance(first, ast.BinOp) and first.left is inner
            else call
        )
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.left = self.noted(node.left)
        node.comparators = [self.noted(each) for each in node.comparators]
        return node


def with_notes(cell: str, source: str) -> str:
    """Return a cell whose assertions note what they compare; any other cell as it is."""
    if not any(True for _ in _compares(source)):
        return source
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            node.test = _Noting(cell).visit(node.test)
    return ast.unparse(ast.fix_missing_locations(tree))


def noted(printed: str) -> dict[str, tuple[float, float]]:
    """Return what the last cell printed, by key."""
    return {key: (low, high) for key, (low, high) in json.loads(printed).items()}


def looseness(bound: Bound, ranges: list[tuple[float, float]]) -> float:
    """Return how many times further a bound is than the nearest value of all runs; 1 if tight."""
    low, high = min(each[0] for each in ranges), max(each[1] for each in ranges)
    near = high if bound.kind == "below" else low
    if bound.kind not in ("below", "above") or near * bound.number <= 0:
        return 1.0
    ratio = bound.number / near
    return ratio if bound.kind == "below" else 1 / ratio


def literals(source: str) -> set[float]:
    """Return the numbers that a cell's code is written with, but for those of assertions."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    tests = (node.test for node in ast.walk(tree) if isinstance(node, ast.Assert))
    asserted = {id(part) for test in tests for part in ast.walk(test)}
    constants = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in asserted)
    return {
        float(node.value)
        for node in constants
        if isinstance(node.value, int | float) and math.isfinite(node.value)
    }
