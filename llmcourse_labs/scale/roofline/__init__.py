"""How fast a machine can be, where each operation of a step is bound, and how long a step takes.

Taught in: chapters/37_hardware.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.scale.roofline.machine import Machine, accelerator
    from llmcourse_labs.scale.roofline.measure import measured_machine, median_seconds
    from llmcourse_labs.scale.roofline.operations import (
        PHASES,
        Operation,
        decode_operations,
        product,
        training_operations,
    )
    from llmcourse_labs.scale.roofline.prediction import (
        Placed,
        attainable_flop_per_s,
        place,
        predicted_seconds,
    )

lazy(__name__)
