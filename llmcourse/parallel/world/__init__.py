"""Real processes on one machine: start them, name them, watch over them.

Taught in: chapters/22_collectives.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.world.errors import MismatchError, RankError
    from llmcourse.parallel.world.pool import Pool, Results, run
    from llmcourse.parallel.world.rank import Axis, Message, Rank, place_of

lazy(__name__)
