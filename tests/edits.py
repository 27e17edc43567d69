"""Mutants as edits: a class or function of the package, made again with other text in it."""

import inspect
import sys
import textwrap


def edited(thing, *edits):
    """Return a class or function made from its source after edits, in the names of its module.

    An edit is what goes and what comes; what goes must stand in the source once.
    """
    source = textwrap.dedent(inspect.getsource(thing))
    for old, new in edits:
        assert source.count(old) == 1, f"{source.count(old)} times in {thing.__name__}: {old}"
        source = source.replace(old, new)
    names = dict(vars(sys.modules[thing.__module__]))
    exec(compile(source, f"<edited {thing.__name__}>", "exec"), names)
    return names[thing.__name__]
