"""A widget about optimizers: who is first at the lowest point of a bowl or a valley."""

import traitlets

from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget

SURFACES = ("bowl", "rotated bowl", "valley")
DECAYS = ("decoupled (AdamW)", "in the gradient (Adam)")


def _rate(default: float, name: str) -> Limited:
    return Limited(default, low=0.0001, high=3, step=0.0001, label=f"rate of {name}")


class OptimizerRace(Widget):
    """SGD, momentum, RMSProp and Adam from one start, on a bowl, a turned bowl or a valley.

    The heights, with s the `stretch` and (u, v) the axes of the bowl, turned by `angle`::

        bowl     (u^2 + s v^2) / 2
        valley   ((1 - x)^2 + s (y - x^2 / 2)^2) / 2

    The state holds the number of steps taken, and the paths follow from it: Python may set
    `steps` to any value.  On a bowl the start is given along its axes, and turns with it.
    """

    script = "optimizer_race.js"
    alt = (
        "Four optimizers start at one point of a bowl that is steep in one direction and flat in "
        "the other.  Upright, Adam and RMSProp walk as fast in the flat direction as in the steep "
        "one.  When the bowl is turned, they lose this, and SGD and momentum walk as before."
    )

    surface = Choice(SURFACES)
    angle = Limited(45, low=0, high=90, step=1, label="turned by, degrees")
    stretch = Limited(50, low=1, high=200, step=1, label="steep direction, times as curved")
    start_x = Limited(-2.0, low=-2, high=2, step=0.1, label="start, along the flat direction")
    start_y = Limited(1.0, low=-2, high=2, step=0.1, label="start, along the steep one")
    steps = Whole(0, low=0, high=300, step=1, label="steps taken")
    sgd = traitlets.Bool(True).tag(sync=True)
    momentum = traitlets.Bool(True).tag(sync=True)
    rmsprop = traitlets.Bool(True).tag(sync=True)
    adam = traitlets.Bool(True).tag(sync=True)
    sgd_rate = _rate(0.03, "SGD")
    momentum_rate = _rate(0.005, "momentum")
    rmsprop_rate = _rate(0.03, "RMSProp")
    adam_rate = _rate(0.08, "Adam")
    beta1 = Limited(0.9, low=0, high=0.99, step=0.01, label="memory of the slope, β1")
    beta2 = Limited(0.95, low=0, high=0.999, step=0.001, label="memory of its square, β2")
    decay = Limited(0.0, low=0, high=2, step=0.05, label="weight decay of Adam")
    decay_kind = Choice(DECAYS)
