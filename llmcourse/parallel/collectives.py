"""Collectives from send and receive alone.

Taught in: chapters/22_collectives.ipynb
"""
