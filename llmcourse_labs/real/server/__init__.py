"""A server of one model with OpenAI's usual interface, over an engine in a thread of its own.

Taught in: chapters/48_serving.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.real.server.live import BusyError, EndedError, LiveEngine, Ticket

lazy(__name__)
