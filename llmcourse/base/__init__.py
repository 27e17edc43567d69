"""What every room stands on: devices and seeds, files, progress, pairs, checks.

Taught in: chapters/00_how_to_use.ipynb, chapters/19_llama_backward.ipynb, chapters/30_checkpoints.ipynb
"""  # noqa: E501 - one line, which tests and pages read
