"""The batch slider of chapter 32: its law is the package's, and every control obeys."""

from llmcourse_classroom.widgets.batch import BatchSlider
from llmcourse_labs.study.batch_law import BatchLaw
from tests.browser.hands import drag, enter, press
from tests.browser.kit import holds, numbers, pictured, said, table, value
from tests.browser.twins import compared, twin

GRID = [
    (batch, least, noise)
    for batch in (1, 2, 7, 48, 1_024)
    for least in (0.5, 45.2, 1e6)
    for noise in (1, 3.7, 48, 1_000)
]
NOISES = [(batch, noise) for batch, _, noise in GRID]


def doubled(batch, noise):
    now, then = (BatchLaw(1.0, noise) for _ in range(2))
    return [
        1 - then.steps(2 * batch) / now.steps(batch),
        then.sequences(2 * batch) / now.sequences(batch) - 1,
    ]


test_the_page_reckons_with_the_law_of_the_package = compared(
    BatchSlider,
    twin("stepsAt", GRID, lambda batch, *law: BatchLaw(*law).steps(batch), rel=1e-13),
    twin("sequencesAt", GRID, lambda batch, *law: BatchLaw(*law).sequences(batch), rel=1e-13),
    twin("worth", NOISES, lambda batch, noise: 1 / BatchLaw(1.0, noise).steps(batch), rel=1e-12),
    twin("doubled", NOISES, doubled, rel=1e-9),
    twin("batchAt", [([BatchLaw(*law).sequences(b), *law], b) for b, *law in GRID], rel=1e-9),
    twin("batchAt", [([1, 45, 48], 0)]),
    twin("decades", {(1.5, 20_000): [10, 100, 1_000, 10_000], (30, 900): [50, 100, 200, 500]}),
    twin("decades", {(0.8, 1.2): [1]}),
)


def test_a_batch_in_words_picture_and_table(show):
    page = show(BatchSlider(60, {2: [1066.3, 1110.0], 32: [112.3]}, batch=10, noise=30))
    assert numbers(said(page))[:5] == [10, 240, 4, 2_400, 1.33]
    holds(said(page), "worth 25 %", "save 38 %", "read 25 % more", "below the knee")
    holds(
        pictured(page), "1,860 steps and 1,860 sequences at a batch of 1 to 61.8 steps and 63,240"
    )
    holds(pictured(page), "knee at a batch of 30", "ring at 10", "batches 2, 32")
    rows = table(page)
    assert [row[0] for row in rows] == [f"{2**i:,}" for i in range(11)]
    assert rows[1] == ["2", "960", "1,920", "6.3 %"]
    assert page.locator(".lc-stage path[transform]").count() == 3 + 1


def test_every_control_changes_the_law(show):
    page = show(BatchSlider(60, batch=10, noise=30))
    enter(page, "batch, sequences", "60", "batch of 60 takes 90 steps, 1.5 times", "above the knee")
    enter(page, "noise scale, sequences", "90", "batch of 60 takes 150 steps")
    press(page, "To the knee")
    holds(said(page), "batch of 90 takes 120 steps, 2 times", "10,800 sequences", "is the knee")
    assert value(page, "batch, sequences") == "90"
    picture = page.locator(".lc-stage svg")
    width = picture.bounding_box()["width"]
    for place, least, most in ((width - 16, 1_024, 1_024), (60, 1, 1), (width / 2, 31, 599)):
        drag(page, picture, (place, 100))
        assert least <= int(value(page, "batch, sequences")) <= most
