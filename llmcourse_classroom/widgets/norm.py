"""A widget about two small parts: what a norm does to a list, and how a gate's curve bends."""

from llmcourse_classroom.state import Choice, Limited
from llmcourse_classroom.widget import Widget


class NormAndGate(Widget):
    """A list of two channels is normed, and a gate goes through a curve whose slope is drawn.

    y = x / sqrt(mean(x^2) + 1e-5) for RMSNorm; LayerNorm first subtracts the mean of x.

    Args:
        state: first, second: the two channels, from -4 to 4.  norm: "RMSNorm" or "LayerNorm".
            gate: from -6 to 6.  curve: "SiLU" or "ReLU".
    """

    script = "norm_and_gate.js"
    alt = (
        "Left, a plane whose axes are two channels: an arrow takes the point along its ray to the "
        "circle of radius 1.4, where its root mean square is 1.  Right, the curves SiLU and ReLU "
        "of a gate, with the tangent at one gate: SiLU has a slope below 0 as well, ReLU has none."
    )

    norm = Choice(("RMSNorm", "LayerNorm"))
    curve = Choice(("SiLU", "ReLU"))
    gate = Limited(-2, low=-6, high=6, step=0.1, label="gate g")
    first = Limited(2.6, low=-4, high=4, step=0.1, label="channel 0")
    second = Limited(1.3, low=-4, high=4, step=0.1, label="channel 1")
