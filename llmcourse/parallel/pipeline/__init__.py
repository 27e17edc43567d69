"""A pipeline: the model is cut by layers, and micro-batches go from rank to rank and back.

`schedules` says who does what in which order, `validate` whether that can be done, `simulate` how
long it takes, and `run_schedule` does it.

Taught in: chapters/21_pipelines.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.parallel.pipeline.execute import MicroBatch, PipelineRun, run_schedule
    from llmcourse.parallel.pipeline.later import WeightQueue, deferred_weight_grads
    from llmcourse.parallel.pipeline.schedules import (
        SCHEDULES,
        Action,
        Schedule,
        actions_of,
        dualpipe_v,
        gpipe,
        interleaved,
        one_f_one_b,
        schedule_of,
        stage_at,
        zero_bubble,
    )
    from llmcourse.parallel.pipeline.stage import Stage, cut, stages_of, sync_tied
    from llmcourse.parallel.pipeline.timed import Timed
    from llmcourse.parallel.pipeline.validity import (
        ScheduleSlot,
        needs,
        problems,
        run_order,
        validate,
    )

lazy(__name__)
