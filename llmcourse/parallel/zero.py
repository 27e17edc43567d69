"""ZeRO.

Taught in: chapters/24_zero.ipynb
"""
