"""The widget of chapter 29: its sizes and ranks are the package's, and every control obeys."""

import base64
import itertools
import math

import numpy as np
import pytest
import torch

from llmcourse_classroom.widgets.scrubber import MOST_DIRECTIONS, WeightScrubber, sampled
from llmcourse_labs.study import weights
from tests.browser import registry
from tests.browser.hands import by_key, choose, enter, keys, press
from tests.browser.kit import holds, pictured, said, table
from tests.browser.registry import FEW, WEIGHT_STEPS, weight_checkpoints, weight_scrubber


def as_number(text):
    return float(text.replace(",", "").removesuffix(" %"))


def matrices():
    noise = torch.randn(12, 17, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return [
        noise,
        noise[:, :2] @ noise[:2],
        noise.T * 1e-6,
        noise[:1],
        torch.eye(7, dtype=torch.float64) * 3,
        torch.diag(torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64)),
        torch.zeros(4, 5, dtype=torch.float64),
    ]


def test_ratios_are_the_packages(arithmetic):
    pairs = [(a, b) for a, b in itertools.product(matrices(), repeat=2) if a.shape == b.shape]
    pairs += [(w, w * 1.25) for w in matrices()] + [(torch.zeros(3, 4), torch.ones(3, 4))]
    given = [
        [weights.spectrum(after - before).tolist(), weights.spectrum(before).tolist()]
        for before, after in pairs
    ]
    expected = [weights.update_ratios({"w": a}, {"w": b})["w"] for a, b in pairs]
    got = [math.inf if x is None else x for x in arithmetic(WeightScrubber, "ratio", given)]
    assert (got, expected[-1]) == (pytest.approx(expected, rel=1e-12, abs=1e-15), math.inf)
    norms = arithmetic(WeightScrubber, "norm", [[weights.spectrum(w).tolist()] for w in matrices()])
    assert norms == pytest.approx([float(w.norm()) for w in matrices()], rel=1e-12)


def test_ranks_and_shares_held_are_the_packages(arithmetic):
    every = [[weights.spectrum(w).tolist()] for w in matrices()]
    expected = [weights.effective_rank(w) for w in matrices()]
    assert arithmetic(WeightScrubber, "effectiveRank", every) == pytest.approx(expected, rel=1e-9)
    assert (expected[4], expected[-1]) == (pytest.approx(7), 0)
    given = list(itertools.product(matrices()[:-1], (0.001, 0.5, 0.8, 0.9, 0.99, 1)))
    cases = [[weights.spectrum(w).tolist(), share] for w, share in given]
    got = arithmetic(WeightScrubber, "rankFor", cases)
    assert got == [weights.rank_for(w, share) for w, share in given]
    assert len(set(got)) > 6
    for w, shares in zip(
        matrices()[:-1], arithmetic(WeightScrubber, "held", every[:-1]), strict=True
    ):
        nearest = [weights.low_rank(w, k) for k in range(min(w.shape) + 1)]
        expected = [float(near.square().sum() / w.square().sum()) for near in nearest]
        assert shares == pytest.approx(expected, abs=1e-12)
    assert arithmetic(WeightScrubber, "held", [[[0.0, 0.0]]]) == [[0, 0, 0]]


def test_numbers_and_products_are_those_of_numpy(arithmetic):
    values = np.array([[-127, -1, 0], [1, 64, 127]], dtype=np.int8)
    packed = {"scale": 0.5, "values": base64.b64encode(values.tobytes()).decode()}
    assert arithmetic(WeightScrubber, "numbersOf", [[packed]]) == [list(values.ravel() * 0.5)]
    draws = np.random.default_rng(0)
    left, right = draws.normal(size=(5, 3)), draws.normal(size=(3, 4))
    given = [[left.ravel().tolist(), right.ravel().tolist(), 3, 4, rank] for rank in range(4)]
    for rank, got in enumerate(arithmetic(WeightScrubber, "product", given)):
        expected = left[:, :rank] @ right[:rank]
        assert got == pytest.approx(expected.ravel().tolist(), rel=1e-12, abs=1e-15)


def test_the_page_gets_the_matrix_its_change_and_its_nearest_ones(arithmetic):
    held, made = weight_checkpoints(), weight_scrubber()
    part = np.ix_(made.rows, made.columns)
    (first,) = arithmetic(WeightScrubber, "numbersOf", [[made.start]])
    assert first == pytest.approx(held[0].numpy()[part].ravel(), abs=0.51 * made.start["scale"])
    for matrix, packed in zip(held, made.changes, strict=True):
        change = (matrix - held[0]).double()
        left, right, got = arithmetic(
            WeightScrubber, "numbersOf", [[packed["left"]], [packed["right"]], [packed]]
        )
        assert got == pytest.approx(
            change.numpy()[part].ravel(), abs=0.51 * packed["scale"] + 1e-12
        )
        count = MOST_DIRECTIONS
        products = arithmetic(
            WeightScrubber, "product", [[left, right, count, 32, rank] for rank in (1, 2, 3, 8)]
        )
        for rank, near in zip((1, 2, 3, 8), products, strict=True):
            expected = weights.low_rank(change, rank).numpy()[part].ravel()
            # Both factors have 8 bits: what each entry may be off by.
            off = 0.51 * (
                packed["left"]["scale"] * np.abs(right).max()
                + packed["right"]["scale"] * np.abs(left).max()
            )
            assert near == pytest.approx(expected, abs=3 * off + 1e-12)


def test_singular_values_are_those_of_the_whole_matrices():
    held, made = weight_checkpoints(), weight_scrubber()
    for matrix, spectra in zip(held, made.spectra, strict=True):
        change = matrix.double() - held[0].double()
        for name, w in (("weights", matrix.double()), ("change", change)):
            expected = torch.linalg.svdvals(w).tolist()
            assert spectra[name] == pytest.approx(expected, rel=5.1e-5)  # 5 digits
    assert len(made.random) == 40
    assert made.random[0] > made.random[-1] > 0


def test_rows_are_left_out_evenly():
    assert (sampled(5, 24), sampled(24, 24)) == ([0, 1, 2, 3, 4], list(range(24)))
    for size in (25, 47, 64, 1000):
        places = sampled(size, 24)
        assert (len(set(places)), places[0], places[-1]) == (24, 0, size - 1)
        gaps = np.diff(places)
        assert gaps.max() - gaps.min() <= 1
    made = weight_scrubber()
    assert (made.rows, made.columns) == (sampled(40, 24), sampled(60, 32))


def test_the_start_is_the_last_checkpoint_in_words_and_numbers(show):
    held = weight_checkpoints()
    change, page = held[-1].double() - held[0].double(), show(weight_scrubber())
    moved = 100 * weights.update_ratios({"w": held[0]}, {"w": held[-1]})["w"]
    holds(said(page), "Step 200: loss 1.75", f"moved by {moved:.3g} %")
    share = weights.low_rank(change, 1).square().sum() / change.square().sum()
    holds(said(page), "largest direction of 40", f"{100 * share:.3g} % of the change")
    need = [weights.rank_for(w, 0.9) for w in (change, held[-1])]
    holds(said(page), f"change needs {need[0]} directions", f"weights {need[1]}, a random")
    holds(pictured(page), "layer 1, up: 24 rows by 32 columns", "step 200")
    holds(page.locator(".lc").text_content(), "24 of 40 rows and 32 of 60 columns")
    rows = table(page, "Every checkpoint")
    assert [row[0] for row in rows] == ["0", "10", "50", "200"]
    for row, matrix in zip(rows, held, strict=True):
        after = matrix.double() - held[0].double()
        assert as_number(row[4]) == pytest.approx(weights.effective_rank(after), rel=1e-3)
        assert as_number(row[5]) == pytest.approx(weights.effective_rank(matrix), rel=1e-3)
    assert rows[0][2:4] == ["0 %", "0"]


def test_checkpoints_by_keyboard(show):
    page = show(weight_scrubber())
    keys(page, "checkpoint (0 to 3)", "ArrowLeft", "Step 50: loss 2.5 ")
    holds(pictured(page, 1), "step 50, 2.5 and ")
    enter(page, "checkpoint (0 to 3)", "0", "Step 0: loss 6.2", "all zeros")
    enter(page, "checkpoint (0 to 3)", "9", note=["9 is not possible", "from 0 to 3", "3 is used"])
    by_key(page, "Step", "Step 0:")  # it begins again
    press(page, "Step", "Step 10:")
    press(page, "Reset", "Step 0:")
    page.emulate_media(reduced_motion="reduce")
    press(page, "Reset")
    by_key(page, "To the end", "Step 200:")


def test_few_directions_draw_nearly_the_same_picture(show):
    """With more directions, the picture comes nearer to the change."""
    page = show(weight_scrubber(view=FEW))

    def shown():
        return np.array([row[1:] for row in table(page, "The cells of the picture")], dtype=float)

    assert shown().shape == (24, 32)
    choose(page, "show", "change since the start")
    whole = shown()
    choose(page, "show", FEW)
    off = []
    for few in (1, 2, 3):
        enter(page, "largest directions", str(few))
        off.append(np.linalg.norm(shown() - whole) / np.linalg.norm(whole))
    assert off == sorted(off, reverse=True)
    assert off[0] > 0.2
    assert off[2] < 0.1
    change = weight_checkpoints()[-1].double() - weight_checkpoints()[0].double()
    share = 100 * weights.low_rank(change, 3).square().sum() / change.square().sum()
    holds(said(page), f"3 largest directions of 40 hold {share:.3g} %")
    holds(pictured(page, 2), f"3 largest of 40 hold {share:.3g} %")
    made = weight_scrubber()
    choose(page, "show", "weights")
    expected = weight_checkpoints()[-1].numpy()[np.ix_(made.rows, made.columns)]
    assert shown() == pytest.approx(expected, abs=0.02 * float(np.abs(expected).max()))


def test_signs_have_a_shape_of_their_own(show):
    after = np.array([[1.0, -1.0], [0.5, 0.0]])
    page = show(WeightScrubber("w", [0, 5], [np.zeros((2, 2)), after], [2.0, 1.0]))
    cells = page.locator(".lc-stage svg").first.locator("path")
    drawn = cells.evaluate_all(
        "all => all.map((c) => [c.getAttribute('d').split('z').length - 1, "
        "c.getAttribute('fill'), Number(c.getAttribute('opacity'))])"
    )
    plus, minus = [1, "var(--lc-2)"], [2, "var(--lc-1)"]  # holes and colour
    assert [one[:2] for one in drawn] == [plus, minus, plus]
    assert [opacity for *_, opacity in drawn] == pytest.approx([1, 1, 0.5**0.5], abs=0.01)
    holds(said(page), "all zeros at the start")
    holds(page.locator(".lc").text_content(), "2 rows, 2 columns")


def test_tensors_arrays_and_lists_give_the_same():
    held = [w.double().requires_grad_() for w in weight_checkpoints(4, 6)]
    arrays = [w.detach().numpy() for w in held]
    state, *others = (
        WeightScrubber("w", WEIGHT_STEPS, given, registry.WEIGHT_LOSSES).state()
        for given in (held, arrays, [w.tolist() for w in held])
    )
    assert others == [state, state]
