"""llmcourse: how training a large language model works, in code that is meant to be read.

The modules stand on floors; a module imports from lower floors only (see docs/adr/0002-floors.md).
A package's names arrive when they are asked for (`lazy`), so that who needs one module loads one.
"""

import ast
import importlib.util
import sys
from types import ModuleType
from typing import Any

__version__ = "2.0.0"


class _LazyPackage(ModuleType):
    """A package that imports a module, or the module of a name, when it is first asked for."""

    _homes: dict[str, str]

    def _fetched(self, name: str) -> object:
        return getattr(importlib.import_module(self._homes[name]), name)

    def __getattr__(self, name: str) -> object:
        if name not in self.__dict__.get("_homes", {}):
            module = f"{self.__name__}.{name}"
            if name.startswith("__") or importlib.util.find_spec(module) is None:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            return importlib.import_module(module)
        setattr(self, name, value := self._fetched(name))
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # Python puts every imported module into its package; a function of that name stays.
        if isinstance(value, ModuleType) and name in self._homes:
            value = self._fetched(name)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple:
        # Sent to another process, as other modules are: by its name.
        return importlib.import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._homes})


def lazy(package: str) -> None:
    """Let the names that a package's `__init__` imports for type checkers arrive when asked for.

    Args:
        package: `__name__` of the package, whose imports stand under `if TYPE_CHECKING:`.

    Source: PEP 562; a class, because a module and a function may share a name (`train.prepare`).
    """
    module: Any = sys.modules[package]  # a plain one, until the last line
    source = module.__spec__.loader.get_source(package)
    branch = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    module._homes = {
        alias.name: node.module
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module.__all__ = sorted(module._homes)
    module.__class__ = _LazyPackage
