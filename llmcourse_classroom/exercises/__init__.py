"""Exercises: checks that name the misconception, progress, quizzes and the grading of a class.

Taught in: chapters/00_how_to_use.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_classroom.exercises.check import Check, check
    from llmcourse_classroom.exercises.quiz import Quiz

lazy(__name__)
