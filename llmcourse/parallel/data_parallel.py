"""Data parallelism.

Taught in: chapters/23_data_parallel.ipynb
"""
