"""Context parallelism: every rank holds some tokens of every sequence, and attention is a ring.

Everything but attention treats each token by itself, and so needs no other rank.  In attention,
keys and values travel round the ring of ranks, and each rank merges what its queries read from
them.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.context_parallel.layout import (
        LAYOUTS,
        Layout,
        check_length,
        join,
        positions,
        share,
        work_pairs,
    )
    from llmcourse.parallel.context_parallel.partial import Partial, empty_partial, merge, read_part
    from llmcourse.parallel.context_parallel.ring import (
        RingSaved,
        ring_attention,
        ring_backward,
        ring_forward,
        round_the_ring,
    )

lazy(__name__)
