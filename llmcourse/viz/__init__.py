"""What the course shows: widgets that live in a notebook and in a static page.

Taught in: chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb
"""

from llmcourse.viz.widget import Widget

__all__ = ["Widget"]
