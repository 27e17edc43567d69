"""llmcourse: how training a large language model works, in code that is meant to be read.

The modules stand on floors; a module imports from lower floors only (see docs/adr/0002-floors.md).
"""

__version__ = "0.1.0"
