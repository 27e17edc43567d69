"""A cluster that many jobs want: queues, gangs, racks, failing nodes, and where the GPU time goes.

Taught in: chapters/38_orchestration.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.scale.scheduler.elastic import ANSWERS, Failure, after_failure, node_seconds
    from llmcourse_labs.scale.scheduler.queueing import erlang_c, mean_wait_s, random_jobs
    from llmcourse_labs.scale.scheduler.run import schedule
    from llmcourse_labs.scale.scheduler.settings import (
        STATES,
        Fleet,
        Job,
        JobRecord,
        Policy,
        Result,
        Segment,
    )

lazy(__name__)
