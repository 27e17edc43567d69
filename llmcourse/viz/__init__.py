"""What the course shows: widgets that live in a notebook and in a static page.

Taught in: chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.viz.widget import Widget

__all__ = ["Widget"]

lazy(__name__)
