"""viz.plots: messages and losses are drawn once, where they belong."""

import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from llmcourse.parallel.world import Message
from llmcourse_classroom import plots
from llmcourse_classroom.recorded import recorded_runs

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


def test_every_message_is_a_bar_on_the_row_of_its_rank_and_its_kind_is_named_once():
    ax = plots.timeline(LOG)
    rows = [round(bar.get_y() + bar.get_height() / 2) for bar in ax.patches]
    bars = sorted((row, b.get_x(), b.get_width()) for row, b in zip(rows, ax.patches, strict=True))
    expected = [(0, 0.0, 2.0), (1, 1.0, 1.0), (1, 4.0, 1.0)]
    assert bars == [pytest.approx(each) for each in expected]
    assert ax.yaxis_inverted()
    _, ax = plt.subplots()
    assert plots.timeline(LOG, ax) is ax
    ax = plots.timeline([LOG[2], *LOG[:2]])
    assert [text.get_text() for text in ax.texts] == ["all_reduce_ring, dp", "broadcast, tp"]
    assert [text.xy for text in ax.texts] == [(0, -0.3), (pytest.approx(4), 0.7)]
    bars = [bars.patches[0].get_facecolor() for bars in ax.containers]
    assert [mpl.colors.to_rgba(text.get_color()) for text in ax.texts] == bars
    ax.figure.canvas.draw()
    high, low = (mpl.text.Text.get_window_extent(text) for text in ax.texts)
    assert high.y0 >= low.y1
    assert low.y0 >= ax.bbox.y1
    ax = plots.timeline([m for m in LOG if m.axis == "dp"])
    assert [text.get_text() for text in ax.texts] == ["all_reduce_ring"]


ROWS = [("equal chances", 6.64, 0.0), ("pairs", 2.02, 0.0), ("blocks", 0.7, 0.03)]


def test_every_loss_stands_on_the_axis_between_floor_and_chance():
    ax = plots.loss_axis(ROWS, new=["blocks"], floor=0.38, vocab_size=768)
    points = {bar.get_label(): bar for bar in ax.containers}
    assert list(points) == ["equal chances", "pairs", "blocks"]
    for place, (name, loss, spread) in enumerate(ROWS):
        dot, _, (bar,) = points[name].lines
        assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (loss, place)
        ends = [x for x, _ in bar.get_segments()[0]]
        assert ends == pytest.approx([loss - spread, loss + spread])
    assert [dot.lines[0].get_markerfacecolor() for dot in ax.containers] == ["white", "white", "C0"]
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["floor 0.38", "ln 768 = 6.64", "6.64", "2.02", "0.70 ± 0.03"]
    assert ax.yaxis_inverted()


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: plots.timeline([]), "no messages"),
        (lambda: plots.loss_axis([], floor=0.38, vocab_size=768), "no losses"),
        (lambda: plots.loss_axis(ROWS, new=["x"], floor=0.5, vocab_size=9), r"'x'. are not"),
        (lambda: plots.loss_rows(["table"]), "no loss is recorded for 'table'"),
        (lambda: plots.name_lines(plt.subplots()[1]), "no line has a label"),
    ],
)
def test_nothing_to_draw_and_strange_names_are_refused(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()


def test_the_recorded_losses_fall_from_chance_to_above_the_floor():
    rows = plots.loss_rows()
    assert rows[0] == ("equal chances", pytest.approx(6.6438, abs=1e-4), 0.0)
    assert all(0.38 < loss < 6.65 and 0 <= spread < 0.15 for _, loss, spread in rows)
    named = [row for row in rows if row[0] == "table of pairs"]
    assert plots.loss_rows(["table of pairs"]) == named
    recorded = recorded_runs("losses")["runs"]
    (one_block,) = plots.loss_rows(["attention: 1 block"])
    worst, best = max(recorded[one_block[0]]), min(recorded[one_block[0]])
    assert best < one_block[1] < worst  # the mean, from which half of the bar goes each way
    assert 2 * one_block[2] == pytest.approx(worst - best)


def test_lines_are_named_at_their_ends_and_no_name_covers_another():
    figure, ax = plt.subplots()
    for slope in (1.0, 1.01, 3.0):
        ax.plot([0, 1, 2], [0, slope, float("nan")], label=f"slope {slope}")
    ax.plot([0, 1], [0, 2])
    plots.name_lines(ax)
    assert [text.get_text() for text in ax.texts] == ["slope 1.0", "slope 1.01", "slope 3.0"]
    assert [text.get_color() for text in ax.texts] == [line.get_color() for line in ax.lines[:3]]
    ends = [tuple(text.xy) for text in ax.texts]
    assert ends == [pytest.approx(end) for end in ((1, 1.0), (1, 1.01), (1, 3.0))]
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert all(low.y1 <= high.y0 for low, high in itertools.pairwise(boxes))
    middle = (boxes[2].y0 + boxes[2].y1) / 2  # a name that is in nobody's way stays at its line
    assert middle == pytest.approx(ax.transData.transform((1, 3.0))[1], abs=1)


def test_a_line_is_named_where_it_leaves_the_axes_and_one_across_at_their_edge():
    _, ax = plt.subplots()
    ax.plot([0, 1, 2, 3], [0, 1, 90, 3], label="out and in")
    ax.plot([0, 1, 2, 3], [0, 2, 90, 90], label="out")
    ax.axhline(0.5, label="floor")
    ax.set(xlim=(0, 4), ylim=(0, 4))
    plots.name_lines(ax)
    ends = {text.get_text(): pytest.approx(tuple(text.xy)) for text in ax.texts}
    assert ends == {"floor": (4, 0.5), "out": (1, 2), "out and in": (3, 3)}
    ax.plot([0, 1], [9, 9], label="above")
    with pytest.raises(ValueError, match="no point of the line 'above' is in sight"):
        plots.name_lines(ax)
