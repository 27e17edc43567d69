"""The widget of chapter 15: its plan gives one process's numbers, and the page follows it."""

import itertools
import re

import numpy as np
import pytest
import torch

from llmcourse_classroom.widgets.splitter import MatrixSplitter
from llmcourse_labs.scale.arithmetic import moves as splitter
from llmcourse_labs.scale.arithmetic import sent_bytes
from llmcourse_labs.scale.arithmetic.moves import Move, collective_due, split_moves
from tests.browser.hands import choose, keys
from tests.browser.kit import holds, pictured, said, table
from tests.browser.twins import agrees

PLANS = list(itertools.product(splitter.NETWORKS, splitter.CUTS, splitter.CUTS, ("whole", "rows")))
T, D, F = 12, 24, 36  # divisible by 2, 3 and 4, all different
ALONG = {"rows": 0, "columns": 1}


# --- a run of the plan on arrays, one for each rank


def share(x, layout, n, rank):
    return x if layout == "whole" else np.split(x, n, axis=ALONG[layout])[rank]


def moved(parts, move):
    n = len(parts)
    if move.due == "":
        return parts
    if move.due == "slice":
        wholes = parts
    elif move.due in ("all-reduce", "reduce-scatter"):
        wholes = [sum(parts)] * n
    else:
        wholes = [np.concatenate(parts, axis=ALONG[move.have])] * n
    if move.due in ("all-gather", "all-reduce"):
        return wholes
    return [share(whole, move.need, n, rank) for rank, whole in enumerate(wholes)]


def silu(x):
    return x / (1 + np.exp(-x))


def silu_slope(x):
    s = 1 / (1 + np.exp(-x))
    return s * (1 + x * (1 - s))


def pass_over(given, weights, dy, *, nonlinear):
    x, *ws = leaves = [torch.tensor(each, requires_grad=True) for each in (given, *weights)]
    y = x @ ws[0]
    for w in ws[1:]:
        y = (torch.nn.functional.silu(y) if nonlinear else y) @ w
    dx, *gradients = torch.autograd.grad(y, leaves, torch.tensor(dy))
    return y.detach().numpy(), dx.numpy(), [dw.numpy() for dw in gradients]


def pass_by_plan(moves, plan, n, arrays):
    """Return the same on n ranks, each with its part of everything, by the moves alone."""
    (network, cuts, ends), (given, weights, dy) = plan, arrays
    todo, names = {move.tensor: move for move in moves}, ("A", "B")[: len(weights)]
    held = {
        name: [share(w, cut, n, r) for r in range(n)]
        for name, w, cut in zip(names, weights, cuts, strict=True)
    }
    x = moved([share(given, ends, n, r) for r in range(n)], todo["x"])
    inputs, before = {"A": x}, None
    made = [a @ b for a, b in zip(x, held["A"], strict=True)]
    if network != "single":
        before = moved(made, todo["h"])
        inputs["B"] = [silu(h) for h in before] if network == "mlp" else before
        made = [a @ b for a, b in zip(inputs["B"], held["B"], strict=True)]
    y = moved(made, todo["y"])
    down = moved([share(dy, ends, n, r) for r in range(n)], todo["dy"])
    gradients = []
    for name in reversed(names):
        local = [a.T @ d for a, d in zip(inputs[name], down, strict=True)]
        gradients.append(moved(local, todo[f"d{name}"]))
        down = [d @ w.T for d, w in zip(down, held[name], strict=True)]
        if name == "B" and network == "mlp":
            down = [d * silu_slope(h) for d, h in zip(down, before, strict=True)]
        down = moved(down, todo["dh" if name == "B" else "dx"])
    return y, down, gradients[::-1]


def arrays_for(network):
    g = np.random.default_rng(5)
    shapes = [(D, F)] if network == "single" else [(D, F), (F, D)]
    weights = [g.normal(size=shape) for shape in shapes]
    return g.normal(size=(T, D)), weights, g.normal(size=(T, shapes[-1][1]))


def largest_error(moves, plan, n):
    """Return the error relative to the largest entry, over all ranks; infinite for other shapes."""
    network, cuts, ends = plan
    arrays = arrays_for(network)
    y, dx, gradients = pass_over(*arrays, nonlinear=network == "mlp")
    try:
        got_y, got_dx, got = pass_by_plan(moves, plan, n, arrays)
    except ValueError:
        return float("inf")
    pairs = [(y, got_y, ends), (dx, got_dx, ends), *zip(gradients, got, cuts, strict=True)]
    errors = []
    for right, found, layout in pairs:
        assert np.abs(right).max() > 0.1
        for rank, one in enumerate(found):
            wanted = share(right, layout, n, rank)
            if one.shape != wanted.shape:
                return float("inf")
            errors.append(np.abs(one - wanted).max() / np.abs(right).max())
    return max(errors)


def cuts_of(network, cut_a, cut_b):
    return (cut_a,) if network == "single" else (cut_a, cut_b)


def weights_share(network, cut_a, cut_b, n):
    cuts = cuts_of(network, cut_a, cut_b)
    return sum(1 if cut == "whole" else 1 / n for cut in cuts) / len(cuts)


def work_share(network, cut_a, cut_b, ends, n):
    needs = {move.tensor: move.need for move in split_moves(network, cut_a, cut_b, ends)}
    read = list(zip("xh", cuts_of(network, cut_a, cut_b), strict=False))
    shared = [cut != "whole" or needs[tensor] == "rows" for tensor, cut in read]
    return sum(1 / n if is_shared else 1 for is_shared in shared) / len(read)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_plan_gives_the_numbers_of_one_process(n):
    for network, cut_a, cut_b, ends in PLANS:
        plan = (network, cuts_of(network, cut_a, cut_b), ends)
        assert largest_error(split_moves(network, cut_a, cut_b, ends), plan, n) < 1e-13, plan


def test_no_collective_of_a_plan_can_be_left_out():
    left_out = 0
    for network, cut_a, cut_b, ends in PLANS:
        moves = split_moves(network, cut_a, cut_b, ends)
        plan = (network, cuts_of(network, cut_a, cut_b), ends)
        for place, move in enumerate(moves):
            if move.due not in ("", "slice"):
                mutant = [*moves[:place], move._replace(due=""), *moves[place + 1 :]]
                assert largest_error(mutant, plan, 2) > 1e-3, (plan, move)
                left_out += 1
    assert left_out > 100


def due(*plan):
    return [(m.tensor, m.due) for m in split_moves(*plan) if m.due not in ("", "slice")]


def test_the_cuts_that_the_chapter_names():
    assert due("mlp", "columns", "rows", "whole") == [("y", "all-reduce"), ("dx", "all-reduce")]
    assert due("mlp", "columns", "rows", "rows") == [
        ("x", "all-gather"),
        ("y", "reduce-scatter"),
        ("dy", "all-gather"),
        ("dx", "reduce-scatter"),
    ]
    assert due("mlp", "whole", "whole", "whole") == []
    assert due("mlp", "whole", "whole", "rows") == [("dB", "all-reduce"), ("dA", "all-reduce")]
    assert ("h", "reduce-scatter") in due("mlp", "rows", "rows", "whole")
    assert ("h", "all-reduce") in due("mlp", "rows", "whole", "whole")
    assert ("h", "all-gather") in due("mlp", "columns", "columns", "whole")
    assert due("single", "rows", "whole", "whole") == [("y", "all-reduce"), ("dx", "all-gather")]


def test_bytes_are_those_of_the_collectives():
    names = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 1, "all-to-all": 0}
    for n, (name, whole) in itertools.product((2, 3, 4), names.items()):
        called = {"all-reduce": "all_reduce_ring"}.get(name, name.replace("-", "_"))
        size = sent_bytes(called, 2 * T * D // (1 if whole else n), n)
        move = Move("y", "rows", "whole", name)
        assert splitter.move_bytes(move, (T, D), n) == pytest.approx(size, rel=1e-15)
    with pytest.raises(ValueError, match="need must be whole, rows or columns"):
        collective_due("whole", "partial")  # a sum is not taken apart


def test_the_page_plans_as_the_package(arithmetic):
    plans = [[list(move) for move in split_moves(*plan)] for plan in PLANS]
    assert arithmetic(MatrixSplitter, "splitMoves", PLANS) == plans


def test_the_page_counts_as_the_package(arithmetic):
    def sent(move, shape, n):
        return splitter.move_bytes(Move(*move), tuple(shape), n)

    names = ("all-gather", "all-to-all", "all-reduce", "reduce-scatter", "slice", "")
    moves = [list(Move("y", "rows", "whole", name)) for name in names]
    cases = itertools.product(moves, ((7, 13), (8_192, 14_336)), (2, 3, 4))
    agrees(arithmetic, MatrixSplitter, "moveBytes", cases, sent, rel=1e-14)
    cases = [(*plan, n) for plan in PLANS for n in (2, 3, 4)]
    agrees(arithmetic, MatrixSplitter, "workShare", cases, work_share, rel=1e-14)
    cases = [(network, a, b, n) for network, a, b, _, n in cases]
    agrees(arithmetic, MatrixSplitter, "weightsShare", cases, weights_share, rel=1e-14)


def plan_said(page):
    return re.findall(r"(?:Forward|Backward): ([^.]*)\.", said(page))


def test_the_start_gathers_twice_and_rows_for_b_leave_one_collective(show):
    page = show(MatrixSplitter(), says=["A by columns, B by columns, 2 ranks"])
    assert plan_said(page) == [
        "all-gather of h, all-gather of y",
        "reduce-scatter of dh, all-reduce of dx",
    ]
    holds(pictured(page, 1), "all-gather of h: 117 MB")
    holds(pictured(page, 2), "all-reduce of dx: 67.1 MB")
    keys(page, "ranks", "ArrowRight", "3 ranks")
    keys(page, "ranks", "ArrowLeft")
    keys(page, "matrix B", "ArrowDown Enter")
    assert plan_said(page) == ["all-reduce of y", "all-reduce of dx"]
    holds(said(page), "sends 134 MB", "50 % of the weights", "nothing is sent between")
    assert page.locator(".lc-stage svg").nth(1).locator("circle").count() == 1


def test_other_cuts_and_networks(show):
    """A function after a row cut wants the sum first; whole weights are data parallelism."""
    page = show(MatrixSplitter(cut_a="rows", cut_b="whole"), says=["σ(a + b) is not"])
    assert plan_said(page)[0] == "all-reduce of h"
    choose(page, "network", "linear", "the sum can wait")
    assert plan_said(page)[0] == "all-reduce of y"
    choose(page, "network", "single", "A by rows, 2 ranks")
    assert page.get_by_label("matrix B", exact=True).is_disabled()
    assert plan_said(page) == ["all-reduce of y", "all-gather of dx"]
    assert len(table(page, "All cuts")) == 3
    choose(page, "network", "mlp")
    choose(page, "matrix A", "whole")
    choose(page, "x and y", "rows", "data parallelism")
    assert plan_said(page) == ["nothing", "all-reduce of dB, all-reduce of dA"]


def test_the_tables_have_the_packages_numbers(show):
    made = MatrixSplitter(cut_a="rows", cut_b="columns", ranks=3, ends="rows")
    page = show(made)
    rows = table(page, "Every tensor")
    assert [row[0] for row in rows] == [move.tensor for move in made.moves()]
    assert [row[-1] for row in rows] == [f"{b:,.0f}" for b in made.sent_bytes().values()]
    assert "all-to-all" in rows[0][4]
    rows = table(page, "All cuts")
    assert len(rows) == 9
    for a, b, _, _, _, weights, work in rows:
        share_of = weights_share("mlp", a, b, 3)
        assert weights == f"{100 * share_of:.3g} %"
        assert work == f"{100 * work_share('mlp', a, b, 'rows', 3):.3g} %"
