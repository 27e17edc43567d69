"""A reader's own Llama: the answers to the exercises, put together into one file that trains.

Taught in: chapters/26_learning_rate.ipynb
"""
