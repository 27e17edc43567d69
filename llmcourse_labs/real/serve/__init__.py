"""A serving engine to be read: a cache in pages, many rows in one pass, drafts, growing text.

Taught in: chapters/48_serving.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.real.serve.draft import Draft, Guess, OwnDraft, PromptLookup, checked
    from llmcourse_labs.real.serve.engine import Engine
    from llmcourse_labs.real.serve.paged import PagedCache, PagedDecoder, Span
    from llmcourse_labs.real.serve.pages import PagePool, page_names
    from llmcourse_labs.real.serve.request import Counts, Event, Request
    from llmcourse_labs.real.serve.text import TextStream

lazy(__name__)
