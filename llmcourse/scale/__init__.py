"""What a run costs on how much hardware, how it fails there, and how it is launched.

Taught in: chapters/10_blueprint.ipynb, chapters/31_failures.ipynb
"""
