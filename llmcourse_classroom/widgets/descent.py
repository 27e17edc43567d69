"""Widgets about one step, and about many steps downhill."""

from collections.abc import Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Limited, Whole
from llmcourse_classroom.widget import Widget


class Bowl(Widget):
    """Gradient descent, momentum and Adam on the bowl (lambda_x x^2 + lambda_y y^2) / 2.

    The state holds the number of steps taken, and the paths follow from it: Python may set
    `steps` to any value.
    """

    script = "bowl.js"
    alt = (
        "A ball rolls down a bowl that is narrower along y than along x.  Below the critical "
        "learning rate, 2 divided by the largest curvature, it comes to rest; above, it runs away."
    )

    lambda_x = Limited(1.0, low=0.1, high=20, step=0.1, label="curvature along x")
    lambda_y = Limited(10.0, low=0.1, high=20, step=0.1, label="curvature along y")
    learning_rate = Limited(0.15, low=0.001, high=3, step=0.001, label="learning rate")
    noise = Limited(0.0, low=0, high=5, step=0.1, label="noise of the gradient")
    steps = Whole(0, low=0, high=300, step=1, label="steps taken")
    start_x = Limited(8.0, low=-10, high=10, step=0.1, label="start at x")
    start_y = Limited(2.5, low=-4, high=4, step=0.1, label="start at y")
    sgd = traitlets.Bool(True).tag(sync=True)
    momentum = traitlets.Bool(False).tag(sync=True)
    adam = traitlets.Bool(False).tag(sync=True)


def _share(word: str) -> Limited:
    return Limited(0.2, low=0.001, high=0.996, step=0.001, label=f"probability of {word}")


class StepByHand(Widget):
    """Five probabilities to edit: the loss, its gradient, and a step of gradient descent.

    Args:
        probabilities: five numbers that add up to 1.
        words: what they are the probabilities of.
        target: the word that came.
    """

    script = "step_by_hand.js"
    alt = "Bars of five probabilities, the loss of the word that came, and the gradient p - y."

    words = traitlets.List(traitlets.Unicode()).tag(sync=True)
    target = traitlets.Unicode().tag(sync=True)
    learning_rate = Limited(1.0, low=0.1, high=20, step=0.1, label="learning rate")
    p0, p1, p2, p3, p4 = (_share(f"word {number}") for number in range(1, 6))

    def __init__(
        self, *, probabilities: Sequence[float], words: Sequence[str], target: str, **state: Any
    ) -> None:
        if len(probabilities) != len(words) or len(words) != 5:
            raise ValueError(f"five of each, not {len(words)} words, {len(probabilities)} shares")
        if abs(sum(probabilities) - 1) > 1e-6:
            raise ValueError(f"probabilities must add up to 1, not {sum(probabilities)}")
        if target not in words:
            raise ValueError(f"target must be one of {list(words)}, not {target!r}")
        shares = {f"p{place}": share for place, share in enumerate(probabilities)}
        super().__init__(words=list(words), target=target, **shares, **state)
