"""The checks of the exercises, a module for each notebook, written by tools.exercises.

Taught in: book/instructors.md
"""
