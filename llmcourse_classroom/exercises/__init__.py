"""Exercises: checks that name the misconception, progress, quizzes and the grading of a class.

Taught in: chapters/00_how_to_use.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_classroom.exercises.check import AnswerError, Check, NotAnsweredError, check
    from llmcourse_classroom.exercises.exercise import ExerciseError
    from llmcourse_classroom.exercises.quiz import Quiz

lazy(__name__)
