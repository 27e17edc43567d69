"""A server of one model with OpenAI's usual interface, over an engine in a thread of its own.

Taught in: chapters/48_serving.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.real.server.app import Served, serving_app
    from llmcourse_labs.real.server.house import Guard, Listener, bound
    from llmcourse_labs.real.server.live import BusyError, EndedError, LiveEngine, Ticket
    from llmcourse_labs.real.server.metrics import Histogram, Metrics

lazy(__name__)
