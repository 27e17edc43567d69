"""A widget about crashes: what was saved and when the crash comes, and whether the run is the same.

The toy run is that of `llmcourse_labs.study.toy_run`: small enough to be done in the page.
"""

import traitlets

from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.study.toy_run import CRASHES, FILES, STEPS


class CrashLab(Widget):
    """A run of 24 steps that is ended once: what is on disk, where it goes on, and how it ends.

    Args:
        state: weights, moments, generators, position (whether each is saved), every (steps from one
            save to the next), crash_step, crash_when (of the write after that step), atomic,
            files ("one for each save" or "one, written over"), shown (steps of both processes that
            are drawn; 48 is all).
    """

    script = "crash_lab.js"
    alt = (
        "A run that saves now and then is ended, and a second process goes on from the newest "
        "whole file.  If weights, moments, generators and the position in the data were saved, it "
        "ends as the uninterrupted run does, to the last bit.  If one is left out, it is another "
        "run.  A crash inside a write harms nothing if the write is atomic."
    )

    weights = traitlets.Bool(True).tag(sync=True)
    moments = traitlets.Bool(True).tag(sync=True)
    generators = traitlets.Bool(True).tag(sync=True)
    position = traitlets.Bool(True).tag(sync=True)
    every = Whole(5, low=1, high=12, step=1, label="steps between saves")
    crash_step = Whole(15, low=1, high=STEPS, step=1, label="crash at step")
    crash_when = Choice(CRASHES, default="inside the write")
    atomic = traitlets.Bool(True).tag(sync=True)
    files = Choice(FILES)
    shown = Whole(2 * STEPS, low=0, high=2 * STEPS, step=1, label="steps shown")
