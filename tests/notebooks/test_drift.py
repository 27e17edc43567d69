"""tools.check.drift: a number of the words that other kernels print otherwise is found."""

import math

import nbformat
import pytest
from nbformat import v4

from tools.check import drift

SAYS = """## 13.2 The gap

After step 30 the loss is **1.27** nats, in chapter 12 it was 3.1 ([Doe, 2023](https://a.example)).

With four heads it falls to 1.3, a share of 44 %, and six of eight runs agree; `x = 1.27` stays.

| run | loss |
|---|---|
| first | 1.27 |
"""


def page(printed, says=SAYS, **metadata):
    output = v4.new_output("stream", name="stdout", text=printed)
    code = v4.new_code_cell("show()", id="losses", outputs=[output], metadata=metadata)
    return v4.new_notebook(cells=[v4.new_markdown_cell(says, id="text"), code])


def found(usual, other, says=SAYS, quiz=None, **metadata):
    """What drifts between two runs of a page, as written, with what is there instead."""
    runs = {"usual": drift.printed(page(usual)), "other": drift.printed(page(other))}
    listed = drift.drifts(drift.claims(page("", says, **metadata), quiz or {}), runs)
    return [(each.claim.text, *each.instead.items()) for each in listed]


@pytest.mark.parametrize(
    ("usual", "other", "told"),
    [
        ("loss 1.2718, 1.304", "loss 1.2719, 1.3041", []),
        ("loss 1.2718", "loss 1.309", [("1.27", ("other", 1.309))]),
        ("share 0.4379", "share 0.452", [("44 %", ("other", 0.452))]),  # as a percentage
        ("runs: 6 of 8", "runs: 5 of 8", [("six", ("other", 5.0))]),  # in words
        ("1.27, later 1.2704", "1.31, later 1.2704", []),  # one place that holds is enough
        ("1.2704, before 1.27", "1.2704, before 1.31", []),
        ("steps 30, 12, 3.1", "steps 31, 13, 9.9", []),  # of a citation, and a chapter's number
        ("loss 1.2488", "loss 1.26, 1.31", [("1.3", ("usual", 1.2488))]),  # of another's run
        ("loss 9", "loss 9", []),
    ],
)
def test_a_number_that_other_kernels_print_otherwise_is_told(usual, other, told):
    assert repr(found(usual, other)) == repr(told)


def test_what_is_not_printed_and_quiz_and_alternative_text_are_told():
    told = found("loss 1.2718", "")
    assert [text for text, _ in told] == ["1.3", "1.27"]
    assert all(math.isnan(instead) for _, (_, instead) in told)
    quiz = {"question": [{"text": "Which loss?", "option": [{"text": "2.5 nats"}]}]}
    image = {"mystnb": {"image": {"alt": "The loss falls to 2.5."}}}
    told = found("2.5", "2.6", says="", quiz=quiz, **image)
    assert told == [("2.5", ("other", 2.6))] * 2


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("1.27", 1.2749, 1.2751),
        ("12,000", 12_000.4, 12_001),
        ("2.5e-07", 2.52e-07, 2.58e-07),
        ("half", 0.54, 0.56),
        ("Twice", 2.4, 2.6),
        ("−0.5", -0.52, 0.52),
        ("37 %", 0.372, 0.38),
        ("37%", 37.4, 37.6),
        ("37", 37.4, 0.372),
    ],
)
def test_a_number_is_said_if_it_rounds_to_it(text, right, wrong):
    (claim,) = drift.claims_in("", f"It is {text} then.")
    assert claim.text == text
    assert drift.is_said(claim, right)
    assert not drift.is_said(claim, wrong)


def test_letters_of_figures_and_tables_are_printed_and_those_of_widgets_are_not():
    svg = v4.new_output("display_data", data={"image/svg+xml": "<svg><!-- 0.25 --></svg>"})
    table = v4.new_output("display_data", data={"text/html": "<td>1,250</td>", "text/plain": "7"})
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/html": "<p>3.5</p>"}
    outputs = [svg, table, v4.new_output("display_data", data=widget)]
    notebook = v4.new_notebook(cells=[v4.new_code_cell(outputs=outputs)])
    assert [each.value for each in drift.printed(notebook)] == [0.25, 1250.0]


def refused(capsys, says, *words):
    with pytest.raises(SystemExit):
        drift.main([*words])
    assert says in capsys.readouterr().err


def test_a_chapter_is_executed_with_each_kind_of_kernel_once(tmp_path, monkeypatch, capsys):
    """And compared; a changed cell is executed again, changed words are not."""
    path = tmp_path / "chapters" / "13_gap.ipynb"
    path.parent.mkdir()
    code = "import os\nloss = {'a': 1.27, 'b': 1.31}[os.environ['WHICH']]\n"
    code += "print('loss', loss)\nassert loss < 2 == 1 + 1"
    cells = [v4.new_markdown_cell(SAYS, id="text"), v4.new_code_cell(code, id="losses")]
    nbformat.write(v4.new_notebook(cells=cells), path)
    kernels = {"usual": {"WHICH": "a"}, "same": {"WHICH": "a"}, "other": {"WHICH": "b"}}
    monkeypatch.setattr(drift, "KERNELS", kernels)
    monkeypatch.setattr(drift, "OUT", tmp_path / "drift")
    monkeypatch.setattr(drift, "probe_all", lambda: {n: k["WHICH"] for n, k in kernels.items()})
    monkeypatch.setattr(drift.build_book, "chapters", lambda: [path])
    refused(capsys, "13_gap.ipynb is not executed with the kernels usual", "13")
    assert drift.main(["run", "13"]) == 0
    assert "usual, other" in capsys.readouterr().out
    assert not (tmp_path / "drift" / "same").exists()
    assert drift.main(["13"]) == 1
    told = capsys.readouterr().out
    assert "13_gap text: 1.27 is 1.31 (other): | first | 1.27 |" in told
    assert "13_gap text: 44 % is carried by nothing" in told
    table = (tmp_path / "drift" / "13_gap.csv").read_text().splitlines()
    assert table == ["cell,what,asserted,number,usual,other", "losses,loss,below,2,1.27,1.31"]
    nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell("Six, below 2."), cells[1]]), path)
    monkeypatch.setattr(drift, "execute", None)
    assert (drift.main(["run"]), drift.main([])) == (0, 0)
    assert "0 numbers drift in 1 chapters" in capsys.readouterr().out
    monkeypatch.setattr(drift, "packages", lambda: "of tomorrow")
    refused(capsys, "is not executed", "13")
    monkeypatch.setattr(drift, "probe_all", lambda: {"usual": "1", "other": "1"})
    refused(capsys, "all kernels give the same bits", "run", "13")
    refused(capsys, "there is no chapter '99'", "99")


HAND = "## A\n\nIt has 17 · 21 = 357 weights.\n\nSo 357 are left of 400."


def test_what_two_numbers_of_a_sentence_make_by_hand_is_carried_in_its_section():
    words = list(drift.claims_in("text", HAND))
    by_code = [drift.Printed("text", -1, value) for value in (17.0, 21.0)]
    told = drift.uncarried(words, [], [], by_code, {"text": 1})
    assert [fault.claim.text for fault in told] == ["400"]
    alone = [claim._replace(beside=()) for claim in words]
    assert len(drift.uncarried(alone, [], [], by_code, {"text": 1})) == 3
    far = [words[-2]._replace(place="far"), *words[:3]]
    (fault,) = drift.uncarried(far, [], [], by_code, {"text": 1, "far": 2})
    assert fault.claim.place == "far"


def test_what_another_section_prints_or_an_axis_names_carries_nothing():
    def told(cell, number, is_tick=False):
        printed = [drift.Printed(cell, 0, number, is_tick)]
        words = [*drift.claims_in("text", "It is 0.7."), *drift.claims_in("take-away", "Or 0.7.")]
        sections = {"text": 1, "cell": 1, "far": 2, "take-away": 3}
        return [each.claim.place for each in drift.uncarried(words, [printed], [], [], sections)]

    assert (told("cell", 0.7), told("far", 0.7)) == ([], ["text"])
    assert told("cell", 0.7, is_tick=True) == told("cell", 0.6) == ["text", "take-away"]


@pytest.mark.parametrize(
    ("says", "carried", "not_carried"),
    [
        ("Six of the seven agree.", ["6 of 7", "share 0.857"], ["6 of 8", "5 of 7"]),
        ("Nine of ten or more are found.", ["0.9"], ["0.94", ""]),
        ("Four to six of the eight are idle.", ["4 and 6 of 8"], ["3 and 6 of 8"]),
        ("Three in a hundred pass.", ["3 %", "0.031"], ["0.02", "3"]),
        (
            "It changes by 0.03 %.",
            ["0.03 %", "0.0003", "in %: 0.03"],
            ["sd 0.03", "0.1 %, sd 0.03"],
        ),
        ("It falls to 2.8.", ["2.8", "2.84", "2.75"], ["2.85"]),
        ("One of two; half of it; 32 rows; about twice.", [""], []),
    ],
)
def test_shares_and_percentages_are_printed_in_each_run(says, carried, not_carried):
    def told(*runs):
        printed = [drift.printed(page(text)) for text in runs]
        words = drift.claims_in("text", says)
        return drift.uncarried(words, printed, [], [], {"text": 0, "losses": 0})

    assert [told(text, text) for text in carried] == [[] for _ in carried]
    assert all(told(text, text) for text in not_carried)
    assert all(told(right, wrong) for right in carried for wrong in not_carried)


def test_a_ratio_is_tested_and_never_merely_printed():
    says, checks = "It is more than twice as large.", "assert wide / narrow > 2"
    assert others({}, checks, says) == others({}, "assert narrow / wide < 0.5", says) == []
    wrong = "assert wide > 2.4\nprint(2)"
    assert others({}, wrong, says) == [("twice", "is carried by nothing")]


def test_letters_beside_an_axis_are_told_from_those_within():
    svg = '<svg><g id="xtick_1"><g id="text_1"><!-- 0.25 --></g></g><g id="text_2"><!-- 3.5 --></g>'
    output = v4.new_output("display_data", data={"image/svg+xml": svg})
    notebook = v4.new_notebook(cells=[v4.new_code_cell(outputs=[output])])
    told = [(each.value, each.is_tick) for each in drift.printed(notebook)]
    assert told == [(3.5, False), (0.25, True)]


def test_right_answers_are_tested_with_the_other_kernels(tmp_path, monkeypatch, capfd):
    test = tmp_path / "test_answer.py"
    test.write_text("import os\n\ndef test_it():\n    assert os.environ['WHICH'] != 'c'\n")
    monkeypatch.setattr(drift, "RIGHT_ANSWERS", ("-c", str(tmp_path / "pytest.ini"), str(test)))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    kernels = {name: {"WHICH": name} for name in "abc"}
    monkeypatch.setattr(drift, "KERNELS", kernels)
    monkeypatch.setattr(drift, "probe_all", lambda: {name: name for name in kernels})
    assert drift.main(["exercises"]) == 1
    told = capfd.readouterr().out
    assert "kernels a:" not in told
    assert told.index("kernels b:") < told.index("1 passed") < told.index("kernels c:")
    assert "1 failed" in told


CHECKED = """## 13.3 The price

It is more than twice as dear, about 0.7 in all, and costs 0.35 nats.

It ends between 30 and 40 steps later, with 99 channels, after 120 steps.
"""
CHECKS = """STEPS = 120
assert dear / cheap > 2
assert abs(share - 0.7) < 0.1
assert round(cost, 2) == 0.35
assert all(30 < later < 40 for later in late)
"""


def others(seen, checks=CHECKS, says=CHECKED):
    cells = [v4.new_markdown_cell(says, id="text"), v4.new_code_cell(checks, id="checks")]
    notebook = v4.new_notebook(cells=cells)
    claims = drift.claims(notebook, {})
    bounds, by_code = drift.carriers(notebook)
    told = list(drift.uncarried(claims, [], bounds, by_code, drift.sections_of(notebook)))
    told += drift.loose(claims, bounds, {"usual": seen}, drift.sections_of(notebook))
    return [(each.claim.text, each.what.split(" (")[0]) for each in told]


SEEN = {"checks|dear / cheap": (2.2, 2.2), "checks|share": (0.68, 0.68)}
SEEN |= {"checks|cost": (0.3504, 0.3504), "checks|later": (33.0, 38.0)}
WITHIN = ("0.7", "is tested within 0.1")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, [WITHIN]),
        ({"checks|dear / cheap": (3.7, 3.7)}, [("twice", "is 1.9 times off"), WITHIN]),
        ({"checks|later": (33.0, 34.0)}, [WITHIN, ("40", "is 1.2 times off")]),
    ],
)
def test_a_number_without_a_carrier_and_a_loose_one_are_told(change, told):
    assert others(SEEN | change) == [("99", "is carried by nothing"), *told]


def test_a_check_of_the_words_themselves_is_not_loose():
    checks = CHECKS.replace("< 0.1", "< 0.05")
    says = CHECKED.replace(", with 99 channels", "")
    assert others(SEEN, checks, says) == []
    checks = checks.replace("assert round(cost, 2) == 0.35", "assert 0.3 < cost < 0.35")
    assert others(SEEN, checks, says) == [("0.35", "is carried by nothing")]


def test_what_assertions_compare_is_noted_as_it_passes(tmp_path):
    source = """import torch
values = torch.tensor([3.0, 5.0])
assert abs(values[0] - 3.1) < 0.2 < values.max(), "text"
assert all(round(v, 1) == w and "a" != "b" for v, w in ((0.52, 0.5), (0.31, 0.3)))
assert (values > 2).all() and len(values) == 2
assert values == values if False else True
"""
    cells = [v4.new_code_cell(source, id="checks"), v4.new_code_cell("print(6)", id="other")]
    path = tmp_path / "chapters" / "13_gap.ipynb"
    path.parent.mkdir()
    nbformat.write(v4.new_notebook(cells=cells), path)
    drift.execute(path, tmp_path / "out.ipynb", {})
    made = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert [cell.source for cell in made.cells] == [source, "print(6)"]
    assert [(each.cell, each.value) for each in drift.printed(made)] == [("other", 6.0)]
    compared = {"values[0]": [3, 3], "values.max()": [5, 5], "v": [0.31, 0.52], "w": [0.3, 0.5]}
    compared |= {"values": [3, 5], "len(values)": [2, 2]}
    found = {name.removeprefix("checks|"): ends for name, ends in made.metadata["asserted"].items()}
    assert found == {name: pytest.approx(ends) for name, ends in compared.items()}


@pytest.mark.parametrize(
    ("call", "alt", "caption", "told"),
    [
        ("plt.subplots(2, 1)", "Two panels. Left: losses.", "Above: losses.", ["Left"]),
        ("plt.subplots(2, 1)", "Above, losses.", "Left: losses.", ["Left"]),
        ("plt.subplots(1, 2)", "Above, losses.", "Left: losses.", ["Above"]),
        ("plt.subplots(ncols=2)", "Left, losses.", "Left: losses.", []),
        ("plt.subplots(2, 2)", "Above left, losses.", "Left: losses.", []),
        ("plt.subplots(rows, 1)", "Left: losses.", "Left: losses.", []),
        ("plt.subplots(1, 2)", "Losses lie below 2, and above 1.", "Far above.", []),
    ],
)
def test_sides_that_a_figure_has_not_are_told(call, alt, caption, told):
    image = {"mystnb": {"image": {"alt": alt}}}
    figure = v4.new_code_cell(f"fig, axes = {call}", id="figure", metadata=image)
    notebook = v4.new_notebook(cells=[figure, v4.new_markdown_cell(f"**Figure 13.1.** {caption}")])
    assert [each.claim.text for each in drift.sides(notebook)] == told


@pytest.mark.soak
def test_the_kernels_are_told_apart_by_what_they_compute():
    assert drift.probe() == drift.probe()
