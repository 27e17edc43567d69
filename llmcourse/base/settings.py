"""Settings in groups, each beside its owner, with flat names for commands and files.

Where there is a choice, such as one schedule or another, each choice is a group of its own: what
one of them does not have cannot be set.  Commands and files name settings without their group.
"""

import ast
import functools
import inspect
import itertools
import math
import textwrap
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from llmcourse.base.arguments import require

LARGEST = 10**12
"""Of every integer in the settings: a thousand times what anybody trains with, and far below what
the integers of arrays and files hold."""


Kind = TypeVar("Kind", bound="Settings")


class Setting(NamedTuple):
    """A setting by its flat name."""

    hint: Any
    """Its type; where several choices have it, what any of them allows."""
    default: Any
    """`MISSING` if it has none."""
    help: str
    needs: str
    """What it has no effect without, in words; empty if it always has one."""


@dataclass(frozen=True, kw_only=True)
class Settings(metaclass=type):  # noqa: UP050 - says to mypy that a kind is hashable
    """Settings, or groups of settings: fields whose types are `Settings`, or a choice of them."""

    needs: ClassVar[str] = ""
    """Of a choice: what says that it is meant, such as "schedule = wsd"."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Of settings that only other choices have: what this one says of them."""

    def __post_init__(self) -> None:
        """Refuse what is not among the values of a choice, and numbers beyond any machine's."""
        _check_words(type(self), vars(self))
        for name, hint in _hints(type(self)).items():
            value = getattr(self, name)
            for part in (vars(value) if is_dataclass(hint) else {name: value}).items():
                _refuse_beyond(*part)

    @classmethod
    def is_meant(cls, flat: Mapping[str, Any]) -> bool:
        """Whether settings by their flat names choose this of several; the last is always meant."""
        return True

    @classmethod
    def of(cls: type[Kind], **flat: Any) -> Kind:
        """Return settings by their flat names.

        Raises:
            ValueError: if there is no such setting, a value cannot be, or it has no effect.
            TypeError: if a setting is missing.
        """
        return from_flat(cls, {}, flat)

    def replace(self: Kind, **changes: Any) -> Kind:
        """Return a copy, changed by flat names.

        With another choice in a group, what that does not have is left behind, and what nobody has
        set follows the defaults of the new one.

        Raises:
            ValueError: if there is no such setting, a value cannot be, or it has no effect.
        """
        chosen = _chosen(type(self), {**held(self), **changes})
        kept = {name: getattr(self, name) for name in _hints(type(self)).keys() - chosen}
        for name, choice in chosen.items():
            kept |= _carried(getattr(self, name), choice)
        return from_flat(type(self), kept, changes)

    def flat(self) -> dict[str, Any]:
        """Return every setting by its flat name, as plain data; one without effect is at rest."""
        defaults = {name: each.default for name, each in settings_of(type(self)).items()}
        return {
            name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
            for name, value in (defaults | held(self)).items()
        }


def idle(value: Any, **rule: Any) -> Any:
    """Return a field that its choice must be given, and that other choices show at this value."""
    return field(metadata={"idle": value}, **rule)


@functools.cache
def settings_of(kind: type[Settings]) -> Mapping[str, Setting]:
    """Return the settings of a kind and of its groups by their flat names, in their order."""
    found: dict[str, Setting] = {}
    for name, hint in _hints(kind).items():
        here = kind.__dataclass_fields__[name]
        if not (choices := _choices(hint)):
            own = Setting(hint, _default(here), _help(kind).get(name, ""), kind.needs)
            found[name] = _joined(found.get(name), own)
            continue
        began = held(here.default_factory()) if here.default_factory is not MISSING else {}
        for choice in choices:
            for inner, each in settings_of(choice).items():
                usual = each._replace(default=began.get(inner, each.default))
                found[inner] = _joined(found.get(inner), usual)
    return types.MappingProxyType(found)


def from_flat(kind: type[Kind], kept: Mapping[str, Any], changes: Mapping[str, Any]) -> Kind:
    """Return settings of flat ones.

    Args:
        kind: of the settings.
        kept: from a file, or of settings as they were; those without effect are left behind.
        changes: what somebody asks for, and so must have an effect.

    Raises:
        ValueError: if there is no such setting, a value cannot be, or a change has no effect.
        TypeError: if a setting is missing.
    """
    known = settings_of(kind)
    if unknown := sorted(changes.keys() - known):
        raise ValueError(f"{kind.__name__} has no setting {unknown[0]!r}")
    given = {**kept, **changes}
    # Which choice each group is comes first: it says what has an effect.
    chosen = _chosen(kind, given)
    own = _hints(kind).keys() - chosen
    used = own.union(*(_hints(choice) for choice in chosen.values()))
    for name in changes.keys() - used:
        if changes[name] != known[name].default:
            why = f"has no effect without {known[name].needs}: give both, or leave out {name}"
            for choice in chosen.values():
                why = choice.refused.get(name, why)
            raise ValueError(f"{name} = {changes[name]} {why}")
    groups = {}
    for name, choice in chosen.items():
        usual = kind.__dataclass_fields__[name].default_factory
        values = {**(_carried(usual(), choice) if callable(usual) else {}), **given}
        _check_words(choice, values)
        groups[name] = choice(**{n: values[n] for n in _hints(choice) if n in values})
    return kind(**{name: given[name] for name in own if name in given}, **groups)


def _carried(group: Settings, choice: type[Settings]) -> dict[str, Any]:
    """Return what a choice takes of a group: of another one its name, and what is no default."""
    known, values = settings_of(type(group)), held(group)
    if type(group) is choice:
        return values
    names = {name for name, each in known.items() if len(get_args(each.hint)) == 1}
    return {n: value for n, value in values.items() if n in names or value != known[n].default}


def _chosen(kind: type[Settings], given: Mapping[str, Any]) -> dict[str, type[Settings]]:
    """Return which choice each group is."""
    defaults = {name: each.default for name, each in settings_of(kind).items()}
    flat = {**defaults, **given}
    return {
        name: next((c for c in choices if c.is_meant(flat)), choices[-1])
        for name, hint in _hints(kind).items()
        if (choices := _choices(hint))
    }


def held(settings: Settings) -> dict[str, Any]:
    """Return the settings that have an effect by their flat names."""
    found: dict[str, Any] = {}
    for name in _hints(type(settings)):
        value = getattr(settings, name)
        found |= held(value) if isinstance(value, Settings) else {name: value}
    return found


def _joined(known: Setting | None, other: Setting) -> Setting:
    """Return a setting that several choices have: what any allows; the last is the usual one."""
    if known is None:
        return other
    allowed = dict.fromkeys((*get_args(known.hint), *get_args(other.hint)))
    hint = Literal[tuple(allowed)] if get_origin(other.hint) is Literal else known.hint
    needs = dict.fromkeys((known.needs, other.needs))
    return other._replace(
        hint=hint, help=other.help or known.help, needs="" if "" in needs else " or ".join(needs)
    )


def _default(here: Any) -> Any:
    if here.default_factory is not MISSING:
        return here.default_factory()
    return here.metadata.get("idle", here.default)


def _choices(hint: Any) -> tuple[type[Settings], ...]:
    """Return the groups that a field may hold; none if it is a setting of its own."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return kinds if all(isinstance(k, type) and issubclass(k, Settings) for k in kinds) else ()


@functools.cache
def _hints(kind: type[Settings]) -> Mapping[str, Any]:
    return {each.name: each.type for each in fields(kind)}


@functools.cache
def _help(kind: type[Settings]) -> Mapping[str, str]:
    """Return the text under each field, in one line."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__[: kind.__mro__.index(Settings)]):
        (source,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(source, ast.ClassDef)
        for node, after in itertools.pairwise(source.body):
            if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
                found[ast.unparse(node.target)] = " ".join(ast.literal_eval(after.value).split())
    return found


def _check_words(kind: type[Settings], values: Mapping[str, Any]) -> None:
    """Refuse a word that is not among those of a choice."""
    for name, hint in _hints(kind).items():
        allowed = get_args(hint) if get_origin(hint) is Literal else ()
        if allowed and values.get(name, allowed[0]) not in allowed:
            where = f" with {kind.needs}" if kind.needs else ""
            words = ", ".join(map(str, allowed))
            raise ValueError(f"{name} = {values[name]}{where}: choose from {words}")


def _refuse_beyond(name: str, value: Any) -> None:
    if isinstance(value, int):
        require(name, value, most=LARGEST)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
