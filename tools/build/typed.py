"""A pytest plugin: shapes are checked where they are written, and kinds everywhere.

jaxtyping's own hook wraps every function of a package, at 20 microseconds a call and more at the
import.  Only those that name the shape of a tensor need that; beartype alone does for the others.
"""

import dataclasses
import inspect
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

_jaxtyped = jaxtyping.jaxtyped  # what the import hook calls for each function and class
_beartyped = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))


def names_a_shape(hint: Any) -> bool:
    """Say whether a type hint, or a part of it, gives the shape of a tensor."""
    is_shape = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return is_shape or any(names_a_shape(part) for part in get_args(hint))


def typed(decorated: Any = None, *, typechecker: Any = None) -> Any:
    """Take the place of `jaxtyping.jaxtyped`, as a decorator with a type checker."""
    if decorated is None:
        return lambda each: typed(each, typechecker=typechecker)
    if inspect.isclass(decorated):
        if dataclasses.is_dataclass(decorated):
            decorated.__init__ = typed(decorated.__init__, typechecker=typechecker)
        return decorated
    if not inspect.isfunction(decorated):  # of a property, or made by another decorator
        return _jaxtyped(decorated, typechecker=typechecker)
    hints = decorated.__annotations__.values()
    if any(names_a_shape(hint) for hint in hints):
        return _jaxtyped(decorated, typechecker=typechecker)
    return _beartyped(decorated)


jaxtyping.jaxtyped = typed
