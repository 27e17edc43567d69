"""Phase 4: the gradient of the loss, by an engine, by hand, and with part of forward done again.

Taught in: chapters/18_backpropagation.ipynb, chapters/19_llama_backward.ipynb, chapters/20_activation_memory.ipynb
"""  # noqa: E501 - one line, which tests and pages read
