"""The batch slider of chapter 32: its law is the package's, and every control obeys."""

import pytest

from llmcourse.course.widgets.batch import BatchSlider
from llmcourse.optim.batch_law import BatchLaw
from tests.browser.kit import enter, noted, pictured, said, table, value

GRID = [
    (batch, least, noise)
    for batch in (1, 2, 7, 48, 1_024)
    for least in (0.5, 45.2, 1e6)
    for noise in (1, 3.7, 48, 1_000)
]
RUNS = {2: [1066.3, 1110.0], 32: [112.3]}


# --- arithmetic


@pytest.mark.parametrize(("name", "method"), [("stepsAt", "steps"), ("sequencesAt", "sequences")])
def test_the_law_is_the_packages(arithmetic, name, method):
    got = arithmetic(BatchSlider, name, [list(each) for each in GRID])
    right = [getattr(BatchLaw(least, noise), method)(batch) for batch, least, noise in GRID]
    assert got == pytest.approx(right, rel=1e-13)


def test_a_step_is_worth_what_its_number_says(arithmetic):
    got = arithmetic(BatchSlider, "worth", [[batch, noise] for batch, _, noise in GRID])
    right = [least / BatchLaw(least, noise).steps(batch) for batch, least, noise in GRID]
    assert got == pytest.approx(right, rel=1e-12)


def test_what_twice_the_batch_does(arithmetic):
    got = arithmetic(BatchSlider, "doubled", [[batch, noise] for batch, _, noise in GRID])
    for (saved, added), (batch, least, noise) in zip(got, GRID, strict=True):
        law = BatchLaw(least, noise)
        assert saved == pytest.approx(1 - law.steps(2 * batch) / law.steps(batch), rel=1e-9)
        assert added == pytest.approx(law.sequences(2 * batch) / law.sequences(batch) - 1, rel=1e-9)


def test_the_batch_of_a_place_is_found_again(arithmetic):
    given = [[BatchLaw(least, noise).sequences(b), least, noise] for b, least, noise in GRID]
    got = arithmetic(BatchSlider, "batchAt", [*given, [1, 45, 48]])
    assert got[:-1] == pytest.approx([batch for batch, _, _ in GRID], rel=1e-9)
    assert got[-1] == 0


def test_ticks_are_powers_of_ten_or_finer(arithmetic):
    got = arithmetic(BatchSlider, "decades", [[1.5, 20_000], [30, 900], [8e-1, 1.2]])
    assert got == [[10, 100, 1_000, 10_000], [50, 100, 200, 500], [1]]


# --- the page


def test_a_batch_in_words_picture_and_table(show):
    page = show(BatchSlider(60, RUNS, batch=10, noise=30))
    assert said(page) == (
        "A batch of 10 takes 240 steps, 4 times the least, and reads 2,400 sequences, 1.33 times "
        "the least. Each step is worth 25 % of one along the true gradient. Twice the batch would "
        "save 38 % of the steps and read 25 % more. The batch is below the knee."
    )
    assert pictured(page) == (
        "steps against sequences: a curve from 1,860 steps and 1,860 sequences at a batch of 1 to "
        "61.8 steps and 63,240 sequences at 1,024; the knee at a batch of 30; the ring at 10; "
        "measured runs of batches 2, 32"
    )
    rows = table(page)
    assert [row[0] for row in rows] == [f"{2**i:,}" for i in range(11)]
    assert rows[1] == ["2", "960", "1,920", "6.3 %"]
    assert page.locator(".lc-stage path[transform]").count() == 3 + 1


def test_every_control_changes_the_law(show):
    page = show(BatchSlider(60, batch=10, noise=30))
    enter(page, "batch, sequences", "60")
    assert "A batch of 60 takes 90 steps, 1.5 times the least" in said(page)
    assert "The batch is above the knee." in said(page)
    enter(page, "noise scale, sequences", "90")
    assert "A batch of 60 takes 150 steps" in said(page)
    page.get_by_role("button", name="To the knee").click()
    assert "A batch of 90 takes 120 steps, 2 times the least, and reads 10,800 sequences" in said(
        page
    )
    assert value(page, "batch, sequences") == "90"
    assert said(page).endswith("This is the knee.")
    enter(page, "batch, sequences", "5000")
    assert "5,000 is not possible" in noted(page)
    assert value(page, "batch, sequences") == "1024"


def test_a_press_sets_the_batch(show):
    page = show(BatchSlider(60, batch=10, noise=30))
    box = page.locator(".lc-stage svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 16, box["y"] + 100)
    assert value(page, "batch, sequences") == "1024"
    page.mouse.click(box["x"] + 60, box["y"] + 100)
    assert value(page, "batch, sequences") == "1"
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 100)
    assert 30 < int(value(page, "batch, sequences")) < 600


@pytest.mark.parametrize(
    "given",
    [
        {"least_steps": 0},
        {"least_steps": float("inf")},
        {"least_steps": 1_001},
        {"least_steps": 1, "runs": {2: [-1]}},
        {"least_steps": 1, "runs": {0: [1]}},
        {"least_steps": 1, "runs": {2: []}},
        {"least_steps": 1, "runs": {batch: [1] for batch in range(1, 8)}},
    ],
)
def test_what_is_no_run_is_refused(given):
    with pytest.raises(ValueError, match=r"runs of at most|finite and above 0|is at most 1,000"):
        BatchSlider(**given)
