"""A widget about long context: the wavelengths of rotary positions against the trained length."""

from typing import get_args

from llmcourse.model.attention.rope_scaling import Kind
from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget

LONGEST = 1_048_576
"""Tokens of the longest row."""


class WavelengthChart(Widget):
    """The wavelength of each pair of a head, as trained and under a scaling of its rotations.

    Pairs are marked that come to angles which training did not show: in the trained length they
    never turned full circle, and in the wanted length they turn further.

    Args:
        state: scaling ("none", "linear", "ntk", "yarn", "llama3"), factor (1 to 64), trained and
            wanted (lengths in tokens), theta (the base), pairs (of a head, half its channels).
    """

    script = "wavelength_chart.js"
    alt = (
        "A clock for each pair of a head, from fast to slow.  A thick arc has the angles that the "
        "trained length shows, the hand stands where the wanted length takes the pair, and a thin "
        "red arc has angles that training did not show.  A scaling turns the hands back.  Below, "
        "by how much each pair is slowed."
    )

    scaling = Choice(("none", *get_args(Kind)))
    factor = Limited(4, low=1, high=64, step=0.5, label="factor s")
    trained = Whole(64, low=8, high=LONGEST, step=1, label="trained length, tokens")
    wanted = Whole(256, low=8, high=LONGEST, step=1, label="wanted length, tokens")
    theta = Limited(10_000, low=10, high=10_000_000, step=10, label="base theta")
    pairs = Whole(16, low=2, high=64, step=1, label="pairs of a head")
