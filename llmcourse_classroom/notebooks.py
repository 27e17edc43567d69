"""nbformat, without a grammar of web addresses that takes three seconds and that no notebook needs.

JupyterLab brings `rfc3987_syntax`, and jsonschema, with which nbformat validates, imports it where
it finds it.  The import compiles the grammar.
"""

import sys

__all__ = ["nbformat"]

_GRAMMAR = "rfc3987_syntax"

_is_away = _GRAMMAR not in sys.modules
if _is_away:
    sys.modules[_GRAMMAR] = None  # type: ignore[assignment] - as if it were not installed
try:
    import nbformat
finally:
    if _is_away:
        del sys.modules[_GRAMMAR]
