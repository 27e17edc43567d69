"""What shows and grades the course: widgets, exercises, quizzes, the grader.

It knows `llmcourse` and `llmcourse_labs`; nothing imports it.

Taught in: chapters/00_how_to_use.ipynb, chapters/01_whole_run.ipynb, chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb, chapters/22_collectives.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_classroom.listing import show
    from llmcourse_classroom.widget import Widget

lazy(__name__)
