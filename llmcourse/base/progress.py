"""A progress bar, where somebody can see one."""

import sys
import threading
from typing import Any

from tqdm import tqdm

# tqdm's own lock is one between processes, which a process that is killed would leave behind.
tqdm.set_lock(threading.RLock())


def bar(**settings: Any) -> tqdm:
    """Return a progress bar: shown on a terminal and in a live notebook, silent elsewhere.

    In a notebook it is silenced by tqdm's own switch, the environment variable TQDM_DISABLE=1, as
    the book and the tests do.

    Args:
        settings: passed on to tqdm, such as total, unit and desc.
    """
    ipython = sys.modules.get("IPython")
    in_notebook = ipython is not None and hasattr(ipython.get_ipython(), "kernel")
    return tqdm(**settings if in_notebook else {"disable": None} | settings)
