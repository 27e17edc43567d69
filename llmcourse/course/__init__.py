"""What the course shows: widgets that live in a notebook and in a static page.

Taught in: chapters/00_how_to_use.ipynb, chapters/01_whole_run.ipynb, chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb, chapters/22_collectives.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.course.listing import show
    from llmcourse.course.widget import Widget

lazy(__name__)
