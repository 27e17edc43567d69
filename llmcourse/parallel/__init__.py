"""Training in several processes: the processes, the collectives between them, and what is built on them.

Taught in: chapters/15_splitting_the_model.ipynb, chapters/22_collectives.ipynb, chapters/23_data_parallel.ipynb, chapters/24_zero.ipynb
"""  # noqa: E501 - one line, which tests and pages read
