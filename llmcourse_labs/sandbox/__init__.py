"""A process without a network, with limits, of code that nobody trusts.

Taught in: book/instructors.md
"""
