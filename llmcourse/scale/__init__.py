"""What a run costs, what small runs foretell, how hardware fails, and how a run is launched.

Taught in: chapters/07_mixture.ipynb, chapters/10_blueprint.ipynb, chapters/31_failures.ipynb, chapters/35_cost.ipynb
"""  # noqa: E501 - one line, which tests and pages read
