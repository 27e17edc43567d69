"""The same run on torch's own engine, under torchrun, on any number of machines.

Taught in: chapters/30_checkpoints.ipynb
"""
