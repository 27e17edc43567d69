"""What a run costs, what small runs foretell, how hardware fails, and how jobs share a cluster.

Taught in: chapters/07_mixture.ipynb, chapters/10_blueprint.ipynb, chapters/31_failures.ipynb, chapters/35_cost.ipynb, chapters/37_hardware.ipynb, chapters/38_orchestration.ipynb, chapters/39_why_16384.ipynb
"""  # noqa: E501 - one line, which tests and pages read
