"""Grading a class: submissions shut off from each other, hidden tests, a report.

Taught in: book/instructors.md
"""
