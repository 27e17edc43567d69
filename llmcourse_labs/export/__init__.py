"""A trained run for others: Hugging Face's files, and a model card with the figures of the run.

    llmcourse export --run runs/a --to exported/a

Taught in: chapters/30_checkpoints.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.export.folder import export, export_model
    from llmcourse_labs.export.model_card import model_card

lazy(__name__)
