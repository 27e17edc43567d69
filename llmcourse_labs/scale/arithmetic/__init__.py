"""The arithmetic of parallel training: bytes, memory, bubbles and seconds, without a process.

Taught in: chapters/15_splitting_the_model.ipynb, chapters/21_pipelines.ipynb, chapters/22_collectives.ipynb, chapters/23_data_parallel.ipynb, chapters/24_zero.ipynb, chapters/38_orchestration.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.scale.arithmetic.collectives import seconds, sent_bytes
    from llmcourse_labs.scale.arithmetic.overlap import (
        BucketTimes,
        bucket_times,
        exposed_s,
        full_buckets,
        gradient_tensors,
    )
    from llmcourse_labs.scale.arithmetic.pipeline import bubble_share, peak_micro_batches
    from llmcourse_labs.scale.arithmetic.timeline import Timeline, peak_live, simulate, timeline_of
    from llmcourse_labs.scale.arithmetic.zero import STAGES, memory_bytes, traffic_bytes

lazy(__name__)
