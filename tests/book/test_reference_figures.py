"""Published figures: what the package can recompute, and what is quoted."""

import math
from pathlib import Path

import pytest
from test_contents import cells_of

from llmcourse_labs.scale import cost
from tools.pages import figures, reference_card

ROOT, EVERY = Path(__file__).parents[2], figures.figures()
QUOTED = [figure for figure in EVERY if figure["group"] == "quoted"]
FIGURES = {figure["id"]: figure for figure in EVERY if figure["group"] != "quoted"}


def test_every_figure_is_recomputed_or_quoted():
    assert figures.RECOMPUTED.keys() == FIGURES.keys()
    assert len({figure["id"] for figure in EVERY}) == len(EVERY) == 148 + len(QUOTED)
    assert all(figure["source"] and figure["what"] for figure in EVERY)
    assert {figure["group"] for figure in FIGURES.values()} == reference_card.GROUPS.keys()


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_figure(name):
    figure = FIGURES[name]
    error = abs(figures.RECOMPUTED[name]() / figure["published"] - 1)
    if figure["tolerance"] == 0:
        assert error == 0
    elif figure["reproduces"]:
        assert error <= figure["tolerance"]
    else:
        assert error > figure["tolerance"], "now it reproduces: correct the errata"
        assert figure["note"]


@pytest.mark.parametrize("figure", QUOTED, ids=lambda figure: figure["id"])
def test_a_chapter_quotes_it(figure):
    assert any(figure["quoted"] in cell.source for cell in cells_of(figure["chapter"]))


def test_a_wrong_recomputation_another_stage_and_a_line_with_errors_are_noticed():
    """Of the 54 cells of ZeRO, those on more than one GPU reject the stage before their own."""
    figure = FIGURES["P-70b-one-emb"]
    assert abs(cost.num_parameters(figures.SEVENTY) / figure["published"] - 1) > figure["tolerance"]
    guesses = figures.equal_guesses(256)
    assert not math.isclose(guesses, FIGURES["LNV-65"]["published"], rel_tol=1e-4)
    for name, figure in FIGURES.items():
        if name.startswith("ZERO") and name[-1] != "1" and "-1-s" not in name:
            before = figures.RECOMPUTED[f"{name[:-1]}{int(name[-1]) - 1}"]()
            assert abs(before / figure["published"] - 1) > figure["tolerance"]
    line = reference_card.row(FIGURES["L3-MFU-400"])
    assert line.replace(reference_card.PERCENT, " %") == (
        "| 400 TFLOP/s as a share of 989.4 | 41 % | 40.4 % | −1.4 % "
        "| **does not reproduce**: 400 / 989.4 is printed as 41 % "
        "| [arXiv 2407.21783](https://arxiv.org/abs/2407.21783), table 4 | `L3-MFU-400` |"
    )
    assert reference_card.error({"published": 2}, 2) == "none"
    assert reference_card.error({"published": 2}, 2.01) == "+0.5 %"
    assert reference_card.error({"published": 2}, 1.2) == "−40 %"
    assert reference_card.error({"published": 2}, 2.00001) == "below 0.001 %"


@pytest.mark.parametrize(
    ("value", "unit", "exact", "text"),
    [
        (8_030_261_248, "parameters", True, "8,030,261,248"),
        (70.6e9, "parameters", False, "70.6 B"),
        (3.8e25, "FLOPs", False, "3.8 · 10²⁵ FLOPs"),
        (16.55e12, "tokens", False, "16.55 T tokens"),
        (0.4624, "%", False, "46.2 %"),
        (4_187.5, "GB", False, "4,187.5 GB"),
        (16_000.0, "GB", False, "16,000 GB"),
        (1.875, "GB", False, "1.875 GB"),
        (419, "", True, "419"),
    ],
)
def test_numbers_as_the_book_writes_them(value, unit, exact, text):
    assert reference_card.number(value, unit, exact=exact) == text


def test_a_stale_page_is_noticed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference_card, "PAGE", tmp_path / "page.md")
    assert reference_card.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().out
    assert (reference_card.main([]), reference_card.main(["--check"])) == (0, 0)


def test_the_page_has_every_figure_once_and_names_the_test():
    text = reference_card.PAGE.read_text(encoding="utf8")
    assert all(text.count(f"`{name}`") == 1 for name in FIGURES)
    path, _, name = reference_card.TEST.partition("::")
    assert (ROOT / path).samefile(__file__)
    assert name in globals()
