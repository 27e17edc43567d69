"""The checks of the exercises: a module for each notebook, a function for each question.

A function's parameters, behind `t`, are the names that it takes from the notebook: first those that
the answer defines, and after a star those of other cells.

Taught in: book/instructors.md
"""
