"""viz.plots: every message is drawn once, where and when it happened."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from llmcourse.course import plots
from llmcourse.parallel.world import Message

LOG = [
    Message(0, "all_reduce_ring", "dp", 8, 1.000, 1.002),
    Message(1, "all_reduce_ring", "dp", 8, 1.001, 1.002),
    Message(1, "broadcast", "tp", 0, 1.004, 1.005),
]


@pytest.fixture(autouse=True)
def without_a_window():
    mpl.use("agg")
    yield
    plt.close("all")


def test_every_message_is_a_bar_on_the_row_of_its_rank():
    ax = plots.timeline(LOG)
    rows = [round(bar.get_y() + bar.get_height() / 2) for bar in ax.patches]
    bars = sorted((row, b.get_x(), b.get_width()) for row, b in zip(rows, ax.patches, strict=True))
    expected = [(0, 0.0, 2.0), (1, 1.0, 1.0), (1, 4.0, 1.0)]
    assert bars == [pytest.approx(each) for each in expected]
    assert ax.get_legend_handles_labels()[1] == ["all_reduce_ring, dp", "broadcast, tp"]
    assert ax.yaxis_inverted()


def test_it_draws_into_given_axes():
    _, ax = plt.subplots()
    assert plots.timeline(LOG, ax) is ax


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="no messages"):
        plots.timeline([])
