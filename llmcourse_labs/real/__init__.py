"""Models of others: their folders, their names of weights, their tokenizers.

Taught in: book/coming_from.md, chapters/46_real_model.ipynb, chapters/48_serving.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.real.huggingface_config import config_from_huggingface
    from llmcourse_labs.real.huggingface_folder import load_huggingface
    from llmcourse_labs.real.huggingface_names import (
        from_huggingface,
        split_experts,
        to_huggingface,
    )
    from llmcourse_labs.real.opening import open_model

lazy(__name__)
