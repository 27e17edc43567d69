"""Checkpoints that can be trusted: complete, atomic, checksummed, compared before they are used.

Taught in: chapters/30_checkpoints.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.checkpoint.background import BackgroundSaver, copied
    from llmcourse.checkpoint.folder import (
        checkpoint_path,
        latest,
        list_checkpoints,
        load,
        remove_later,
    )
    from llmcourse.checkpoint.restore import restore
    from llmcourse.checkpoint.settings import Saving
    from llmcourse.checkpoint.state import Checkpoint, Stateful, code_version
    from llmcourse.checkpoint.store import save

lazy(__name__)
