"""The widget of chapter 47: it rounds as the package does, and shows what is recorded."""

from itertools import product

import pytest
import torch

from llmcourse_classroom.widgets.few_bits import BLOCKS, LEVELS, SEEN, FewBitsBoard, setting_name
from llmcourse_labs.real.quantise import Grid, nearest
from tests.browser.hands import choose, enter, keys, press, to_the_end
from tests.browser.kit import holds, per_cent, pictured, said, table
from tests.browser.twins import agrees, each

SHIPPED, SHUFFLED = FewBitsBoard().bounds["weights"]
RECORDED = FewBitsBoard().recorded
LONG = 576


def grid_of(bits, block, levels):
    return Grid(bits, None if block == BLOCKS[-1] else int(block), symmetric=levels == LEVELS[-1])


def row_of(name):
    return RECORDED[name]["row"]["weights"]


def rows():
    """A row of each model, ties, almost ties, zeros; large, small and around 100."""
    real = [row_of(name) for name in (SHIPPED, SHUFFLED)]
    ties = [float(i % 29) / 2 - 7 for i in range(LONG)]
    almost = [0.0, 255.0, *[0.5 - 2.0**-25] * 14] * (LONG // 16)
    others = [
        [size * x + low for x in real[1]] for size, low in ((0, 0), (300, 0), (1e-3, 0), (1, 100))
    ]
    return torch.tensor([*real, ties, almost, *others])


@pytest.mark.parametrize(("block", "levels"), [*product(BLOCKS, LEVELS)])
def test_rounds_as_the_package(arithmetic, block, levels):
    """Mutants: halves to even, codes by the scale in float16, sums in float64."""
    w_FD, long = rows(), LONG if block == BLOCKS[-1] else int(block)
    for bits in (2, 3, 4, 8):
        kept = nearest(w_FD, grid_of(bits, block, levels))
        cases = [(row, long, bits, levels) for row in w_FD.tolist()]
        found = [got for _, got in each(arithmetic, FewBitsBoard, "rounded", cases)]
        assert [one["values"] for one in found] == kept.weights().tolist()
        assert [[g["step"] for g in one["grids"]] for one in found] == kept.scales_FN.tolist()


def test_numbers_of_float16_errors_and_bytes_are_the_package_s(arithmetic):
    """Mutants: below 2^-14 as above, an error of a mean, a minimum that costs nothing."""
    drawn = torch.randn(400, generator=torch.manual_seed(0))
    some = torch.cat([drawn, drawn * 1e-6, torch.tensor([0.0, 2.0**-24, 1 + 2.0**-11, 65504.0])])
    agrees(arithmetic, FewBitsBoard, "half", [[x] for x in some.tolist()], half)
    sizes = [[b, long, levels] for b in (2, 5, 8) for long in (16, LONG) for levels in LEVELS]
    agrees(arithmetic, FewBitsBoard, "bytesOf", sizes, bytes_of, rel=1e-12)
    pairs = [[drawn[i : i + 9].tolist(), drawn[i + 2 : i + 11].tolist()] for i in range(5)]
    agrees(arithmetic, FewBitsBoard, "errorOf", [*pairs, [[0.0], [0.0]]], error_of, rel=1e-12)


def half(x):
    return float(torch.tensor(x).half())


def bytes_of(bits, long, levels):
    return Grid(bits, long, symmetric=levels == LEVELS[-1]).bits_per_weight(LONG) / 8


def error_of(weights, values):
    w, v = torch.tensor([weights, values], dtype=torch.float64)
    return float((w - v).norm() / w.norm()) if w.any() else 0.0


def test_shipped_weights_lie_on_one_grid_alone():
    """What the widget shows first: only the grid of the file costs nothing, in the row and in all.

    8 bits with a minimum have all levels of 4 among theirs, but for the float16 of their scale.
    """
    for bits, block, levels in product(range(2, 9), BLOCKS, LEVELS):
        grid, w_1D = grid_of(bits, block, levels), torch.tensor([row_of(SHIPPED)])
        of_row = error_of(*(x[0].tolist() for x in (w_1D, nearest(w_1D, grid).weights())))
        recorded = RECORDED[SHIPPED]["next"][setting_name(bits, block, levels)]["error"]
        assert (of_row == 0) == (recorded == 0) == ((bits, block, levels) == (4, "32", LEVELS[0]))
        assert of_row == pytest.approx(recorded, rel=0.7, abs=1e-9)


def first_part(bits, name=SHIPPED, part=1, block="32", levels=LEVELS[0]):
    w_1D = torch.tensor([row_of(name)])
    values_1D = nearest(w_1D, grid_of(bits, block, levels)).weights()
    seen = slice((part - 1) * SEEN, part * SEEN)
    return error_of(w_1D[0, seen].tolist(), values_1D[0, seen].tolist())


def next_of(bits, name=SHIPPED, prompt=0, block="32", levels=LEVELS[0]):
    return RECORDED[name]["next"][setting_name(bits, block, levels)]["next"][prompt]


def shown(bits, **of):
    """Facts of a sentence: the error, computed by the package, and the first of the record."""
    _, _, token, share, *_ = next_of(bits, **of)
    return [token.replace(" ", "␣"), f"{share} %"]


def test_bits_are_chosen_and_played(show):
    page = show(FewBitsBoard(part=1), says=["4 bits", "16 levels for each 32", "exactly 0", "77 %"])
    enter(page, "bits a weight", "5", "32 levels", "0.75 bytes", per_cent(first_part(5)), *shown(5))
    keys(page, "bits a weight", "ArrowLeft ArrowLeft", "8 levels", per_cent(first_part(3)))
    holds(said(page), *shown(3))
    enter(page, "bits a weight", "9", used="8", note=["from 2 to 8"])
    press(page, "Step", "7 bits", per_cent(first_part(7)))
    to_the_end(page, "2 bits", per_cent(first_part(2)))
    press(page, "Reset", "8 bits: 256 levels")


def test_blocks_levels_weights_and_prompts_are_chosen(show):
    """Mutants: a code more on one side, a whole row of 64, the first prompt's tokens for all."""
    for width in (760, 360):
        page = show(FewBitsBoard(part=1, bits=3), width=width)
        choose(page, "weights in a block", "whole row", "for each 576 weights")
        holds(said(page), per_cent(first_part(3, block="whole row")), *shown(3, block="whole row"))
        choose(page, "weights in a block", "16")
        choose(page, "a block has", "scale alone", "7 levels", "0.5 bytes")
        of = {"block": "16", "levels": "scale alone", "name": SHUFFLED}
        choose(page, "weights of SmolLM2", SHUFFLED, per_cent(first_part(3, **of)), *shown(3, **of))
        choose(page, "the model reads", "The cat sat", *shown(3, prompt=2, **of))
        enter(page, "part of the row", "9", per_cent(first_part(3, part=9, **of)), used="9")
        for token in next_of(3, prompt=2, **of)[2::2]:
            holds(pictured(page), token.replace(" ", "␣").replace("\n", "↵"))


def test_the_table_has_every_number_of_bits(show):
    rows = table(show(FewBitsBoard(part=2)))
    assert [row[0] for row in rows] == [str(bits) for bits in range(2, 9)]
    for row in rows:
        bits = int(row[0])
        error = first_part(bits, part=2)
        assert row[1] == (per_cent(error) if error else "exactly 0")
        assert float(row[4]) == (bits + 1) / 8
        assert row[5].split()[0] == next_of(bits)[2].replace(" ", "␣").replace("\n", "↵")


def test_the_first_choice_of_the_whole_model_is_never_lost_from_sight(show):
    """It has a row of its own where five others are likelier."""
    place, _, *five = next_of(2)
    assert place > 5
    assert " Paris" not in five
    page = show(FewBitsBoard(bits=2))
    holds(page.locator("[data-key='next  Paris']").text_content(), "Paris", "1 %")
    assert page.locator("[data-key^='next ']").count() == 6
    enter(page, "bits a weight", "8")
    assert page.locator("[data-key^='next ']").count() == 5
