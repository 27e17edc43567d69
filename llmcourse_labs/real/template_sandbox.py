"""Where a model's chat template runs: jinja2's sandbox as transformers sets it up, with limits.

A template is code from a file of others.  The sandbox keeps it from everything but the messages;
the limits keep it from filling memory and from running for ever.  All that it makes is counted:
each pass of a loop, each call and filter, and the characters of what comes out of them.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_environment

from llmcourse_labs.real.marked_text import (
    OWN,
    WRITTEN,
    Marked,
    hidden,
    joined,
    marked_whole,
    marks_of,
    origins,
    strings,
    with_between,
)
from llmcourse_labs.real.template_limits import MOST_CHARACTERS, TooMuchError, size_of

MOST_WORK = 1 << 28
"""Passes, calls, and characters made, in one rendering."""

MOST_SECONDS = 5.0
"""Of one rendering."""

_MOST_PRODUCT = 1 << 26
"""What a method is called on times what it is given: none makes more characters than that."""

_MOST_BITS = 4096
"""Of a whole number."""

_LEFT_OUT = ("pprint", "random", "sum", "urlize", "wordwrap", "xmlattr")
"""Filters that may take a time that grows with the square of the text, or are drawn by chance."""

_EXACT = frozenset(
    {"attr", "batch", "capitalize", "d", "default", "dictsort", "first", "groupby", "items"}
    | {"join", "last", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace"}
    | {"reverse", "select", "selectattr", "slice", "sort", "string", "trim", "unique", "upper"}
)
"""Filters that keep the marks of characters."""

REFUSALS = (
    *(TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
)
"""What may come out of a template that is compiled or rendered."""


class _Generator(CodeGenerator):
    """Has loops, `~` and new lists counted."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        passes = nodes.EnvironmentAttribute("passes")
        node.iter = nodes.Call(passes, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concat(map(environment.text, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")


def _counting(name: str) -> Callable[[CodeGenerator, Any, Frame], None]:
    """Return how the code of a new list, tuple or dictionary is written."""
    usual = getattr(CodeGenerator, f"visit_{name}")

    def visit(self: CodeGenerator, node: Any, frame: Frame) -> None:
        counted = getattr(node, "ctx", "load") == "load"
        self.write("environment.counted(" if counted else "")
        usual(self, node, frame)
        self.write(")" if counted else "")

    return visit


for _name in ("List", "Tuple", "Dict"):
    setattr(_Generator, f"visit_{_name}", _counting(_name))


class _Generation(Extension):
    """The tag {% generation %}: what an assistant writes."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        self.environment.has_generation = True  # type: ignore[attr-defined]
        return nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller: Callable[[], str]) -> str:
        text = caller()
        if self.environment.specials is None:  # type: ignore[attr-defined]
            return text
        return Marked(text, "".join(chr(ord(mark) | WRITTEN) for mark in marks_of(text)))


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, LoopControlExtension],
            finalize=self.text,
        )
        self.has_generation = False
        self.specials: re.Pattern[str] | None = None
        self.begin()
        self.filters |= {"tojson": _to_json, "join": _join, "string": self._string}
        for name in _LEFT_OUT:
            del self.filters[name]
        for name, function in self.filters.items():
            self.filters[name] = self._guarded(name, function)
        self.tests = {name: self._ticking(test) for name, test in self.tests.items()}
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _raise,
            "strftime_now": lambda form: datetime.now().strftime(form),
            "dict": _dict,
            "namespace": self._namespace(),
        }

    def begin(self, specials: re.Pattern[str] | None = None) -> None:
        """Count from nothing.

        Args:
            specials: finds control strings, where messages come as `Marked`.
        """
        self.specials = specials
        self.left, self.ends_at = MOST_WORK, time.monotonic() + MOST_SECONDS

    def spend(self, amount: int) -> None:
        """Count work.

        Raises:
            TooMuchError: if too much was done, or for too long.
        """
        self.left -= amount
        if self.left < 0 or amount > MOST_CHARACTERS:
            raise TooMuchError(f"it makes more than {MOST_CHARACTERS:,} characters")
        if time.monotonic() > self.ends_at:
            raise TooMuchError(f"it is not done after {MOST_SECONDS:.0f} s")

    def counted(self, value: Any) -> Any:
        """Return a value, which is counted."""
        self.spend(size_of(value))
        return value

    def text(self, value: Any) -> str:
        """Return the text of a value."""
        text = str(self.counted(value))
        return text if isinstance(value, str) else self._kept(text, value)

    def _string(self, value: Any) -> str:
        return value if isinstance(value, str) else self.text(value)

    def _kept(self, made: Any, *origin: Any) -> Any:
        """Return what was made in a way that loses marks, marked whole if messages are in it.

        Raises:
            SecurityError: if control strings of the template itself may be in there, too.
        """
        if self.specials is None or not (said := origins(origin)):
            return made
        if isinstance(made, bytes) or any(map(self.specials.search, map(hidden, strings(origin)))):
            raise SecurityError("it mixes control strings with messages in a way not known here")
        return marked_whole(made, max(max(marks_of(text), default=OWN) for text in said))

    def concat(self, parts: Iterable[str]) -> str:
        """Return one text."""
        kept, size = [], 0
        for part in parts:
            kept.append(part)
            size += len(part)
            self.spend(len(part))
            if size > MOST_CHARACTERS:
                self.spend(size)
        return joined(kept)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Return what + or * makes, if it is not too much."""
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * (right if operator == "**" else 1) + right.bit_length()
            if bits > _MOST_BITS:
                raise TooMuchError(f"it makes a number of more than {_MOST_BITS:,} bits")
        elif operator in "*%":
            self._limit(left, (right,), formats=operator == "%")
        made = self.counted(super().call_binop(context, operator, left, right))
        return self._kept(made, left, right) if operator == "%" else made

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call something, if that makes not too much."""
        self = __self
        receiver = getattr(__obj, "__self__", None) or getattr(
            getattr(__obj, "__wrapped__", None), "__self__", None
        )
        if isinstance(receiver, str | bytes | int | float):
            formats = getattr(__obj, "__name__", "").startswith("format")
            self._limit(receiver, (*args, *kwargs.values()), formats=formats)
        if not isinstance(receiver, str) or self.specials is None:
            return self.counted(super().call(__context, __obj, *args, **kwargs))
        if (name := __obj.__name__) in vars(Marked) and origins((args, kwargs)):
            __obj = getattr(Marked(receiver, marks_of(receiver)), name)
        made = self.counted(super().call(__context, __obj, *args, **kwargs))
        return made if name in vars(Marked) else self._kept(made, receiver, args, kwargs)

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that counts, and makes not too much."""
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            value, *others = args[skipped:]
            self._limit(value, (*others, *kwargs.values()), formats=name == "format")
            if name in _EXACT and isinstance(value, str) and origins((others, kwargs)):
                value = Marked(value, marks_of(value))
            made = self.counted(function(*args[:skipped], value, *others, **kwargs))
            return made if name in _EXACT else self._kept(made, args[skipped:], kwargs)

        return guarded

    def _ticking(self, test: Any) -> Callable[..., bool]:
        """Return a test that counts."""

        @wraps(test)
        def ticking(*args: Any) -> bool:
            self.spend(1)
            return test(*args)

        return ticking

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Refuse an attribute that is none of a template's business."""
        raise SecurityError(f"it asks for {attribute!r} of a {type(obj).__name__}")

    def _limit(self, receiver: Any, given: tuple[Any, ...], *, formats: bool) -> None:
        """Refuse a call that could make far more than it is given."""
        wide = 0
        size = size_of(receiver) if not isinstance(receiver, int) else receiver.bit_length()
        if isinstance(receiver, str) and formats:
            digits = "".join(c if c.isdigit() else " " for c in receiver).split()
            wide = sum(int(d[:12]) for d in digits)
        if max(1, size) * (size_of(given, numbers=True) + wide) > _MOST_PRODUCT:
            raise TooMuchError("it calls a method with something too large")

    def passes(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield what a loop goes through."""
        for item in items:
            self.spend(1)
            yield item

    def _namespace(self) -> type[Namespace]:
        """Return the class of namespaces: no name in them begins with an underscore."""
        environment = self

        class Checked(Namespace):
            def __init__(*args: Any, **kwargs: Any) -> None:
                self, given = args[0], dict(*args[1:], **kwargs)
                Namespace.__init__(self)
                for name, value in given.items():
                    self[name] = value

            def __setitem__(self, name: str, value: Any) -> None:
                if str(name).startswith("_"):
                    raise SecurityError(f"it sets {name!r} of a namespace")
                environment.counted((value,))
                super().__setitem__(name, value)

        return Checked


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """Return a dictionary; the class itself has more than a template needs."""
    return dict(*args, **kwargs)


@pass_environment
def _join(environment: Sandbox, value: Any, d: str = "", attribute: Any = None) -> str:
    """Return parts in one text, with `d` in between."""
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    return with_between(environment.text(d), map(environment.text, value))


def _raise(message: Any) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as transformers writes it: what HTML would escape stays."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
