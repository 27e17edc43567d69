"""A training step on thousands of GPUs, simulated: time and memory by part, for any layout.

Taught in: chapters/39_why_16384.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.scale.simulator.cluster import REACHED, Cluster, Efficiency
    from llmcourse_labs.scale.simulator.job import Job, Step
    from llmcourse_labs.scale.simulator.layer import Operation, operations, product_seconds
    from llmcourse_labs.scale.simulator.published import (
        FITTED,
        KORTHIKANTI,
        LLAMA,
        MEGATRON,
        PALM,
        PREDICTED,
        PublishedStep,
        Row,
        fit,
        gpt,
        megatron_flop,
        root_mean_square,
        validate,
    )
    from llmcourse_labs.scale.simulator.rule import BUBBLE, SLICE, TOKENS, choose
    from llmcourse_labs.scale.simulator.search import search, splits
    from llmcourse_labs.scale.simulator.step import simulate, simulate_job

lazy(__name__)
