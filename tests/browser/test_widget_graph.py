"""The widget of chapter 18: the page's gradients are the engine's, and the page obeys."""

import random
from itertools import pairwise

import pytest
import torch

from llmcourse.backward.autodiff import Value
from llmcourse.course.widgets.graph import GraphStepper, program_of, values_of
from tests.browser.kit import enter, look, noted, said
from tests.browser.registry import PROGRAMS, TWO_LINES

FORMULAS = (
    "{0} + {1}",
    "{0} * {1} * 0.3",
    "1.5 - {0} - {1}",
    "{0} / (2 + tanh({1}))",
    "exp(tanh({0})) + {0}",
    "relu({0}) - -{1}",
    "(tanh({0}) + 3) ** -2 + {0} ** 3 * 0.01",
    "log(tanh({0}) + 2.5)",
)


def random_program(seed):
    """Earlier results are used again, so that most values have several uses."""
    rng, names, lines = random.Random(seed), ["a", "b", "c"], []
    lines += [f"{name} = {rng.uniform(-1.5, 1.5):.3f}" for name in names]
    for i in range(rng.randint(1, 3)):
        lines.append(f"v{i} = {rng.choice(FORMULAS).format(rng.choice(names), rng.choice(names))}")
        names.append(f"v{i}")
    return "; ".join([*lines, f"end = {' + '.join(names[-3:])}"])


def by_torch(program):
    """Return what torch computes for the same program: name -> (value, gradient)."""
    known = {
        name: getattr(torch, name) for name in ("exp", "log", "tanh", "relu")
    }  # the program's own words
    named = {}
    for line in program.replace("\n", ";").split(";"):
        name, formula = (part.strip() for part in line.split("="))
        result = eval(formula, {"__builtins__": {}}, {**known, **named})
        if not torch.is_tensor(result):
            result = torch.tensor(float(result), dtype=torch.float64, requires_grad=True)
        result.retain_grad()
        named[name] = result
    result.backward()
    return {name: (t.item(), t.grad.item()) for name, t in named.items() if t.grad is not None}


def hurried(value):
    """Pass on at once, at every arrival."""
    for given, slope in value.inputs:
        given.grad += slope * value.grad
        hurried(given)


DRAWN = [*PROGRAMS.values(), *map(random_program, range(60))]


def test_values_and_gradients_are_torchs_and_the_engines(arithmetic):
    results = arithmetic(GraphStepper, "outcome", [[program, False] for program in DRAWN])
    for program, got in zip(DRAWN, results, strict=True):
        expected, engine = by_torch(program), values_of(program)
        list(engine.values())[-1].backward()
        assert {name for name, *_ in got} == set(expected)
        for name, value, gradient in got:
            assert (value, gradient) == pytest.approx(expected[name], rel=1e-9, abs=1e-12), program
            assert gradient == pytest.approx(engine[name].grad, rel=1e-9, abs=1e-12), name


def test_without_order_goes_wrong_as_in_the_chapter(arithmetic):
    programs = [
        TWO_LINES,
        PROGRAMS["with a skip"],
        "x = 0.4; s = x * x; t = s * x; u = tanh(t) * s; y = u + t",
        "x = 2; y = exp(x); z = y * y",
    ]
    results = arithmetic(GraphStepper, "outcome", [[program, True] for program in programs])
    for program, got in zip(programs, results, strict=True):
        named = values_of(program)
        last = list(named.values())[-1]
        last.grad = 1.0
        hurried(last)
        assert [g for *_, g in got] == pytest.approx([named[n].grad for n, *_ in got], rel=1e-12)
    assert results[0][0] == ["a", 3, 6]
    (right,) = arithmetic(GraphStepper, "outcome", [[TWO_LINES, False]])
    assert right[0] == ["a", 3, 4]


def test_a_value_of_the_engine_becomes_a_program(arithmetic):
    a, b = Value(0.8, name="a"), Value(-1.2, name="b")
    once = (a * b + 2.0).tanh()
    result = (once * a - once / (b**2 + 1.0)).exp() + once.relu() + (a + 3.0).log()
    result.backward()
    program = program_of(result)
    (got,) = arithmetic(GraphStepper, "outcome", [[program, False]])
    found = {name: (value, gradient) for name, value, gradient in got}
    assert found["a"] == pytest.approx((a.data, a.grad), rel=1e-12)
    assert found["b"] == pytest.approx((b.data, b.grad), rel=1e-12)
    assert got[-1][1:] == pytest.approx([result.data, 1], rel=1e-12)
    assert GraphStepper(result).expression == program


def test_boxes_stand_after_their_inputs_and_none_on_another(arithmetic):
    graphs = arithmetic(GraphStepper, "graphOf", [[program] for program in DRAWN])
    for nodes, at in zip(
        graphs, arithmetic(GraphStepper, "places", [[nodes] for nodes in graphs]), strict=True
    ):
        for i, node in enumerate(nodes):
            assert all(given < i for given in node["inputs"])
            assert all(at["depth"][given] < at["depth"][i] for given in node["inputs"])
        spots = list(zip(at["depth"], at["lane"], strict=True))
        assert len(set(spots)) == len(nodes)
        assert 0 <= min(at["lane"]) <= max(at["lane"]) <= at["widest"] - 1


def test_without_order_stops_where_paths_explode(show):
    names = [f"v{i}" for i in range(15)]
    lines = [f"{after} = {before} + {before}" for before, after in pairwise(names)]
    page = show(GraphStepper("; ".join(["v0 = 1", *lines]), without_order=True, step=400))
    assert "Stopped after 300 passes" in said(page)


def test_buttons_keys_and_toggle_walk_the_graph(show):
    page = show(GraphStepper(TWO_LINES))
    status = page.get_by_role("status")
    assert status.text_content().startswith("8 steps")
    page.get_by_role("button", name="Step", exact=True).click()
    assert "Step 1 of 8. Forward: a = 3." in status.text_content()
    for _ in range(4):
        page.get_by_role("slider", name="step").press("ArrowRight")
    assert "b, which now has 1: 1 of 2 arrows, so it waits" in status.text_content()
    page.get_by_role("button", name="Back").click()
    assert "the result c has gradient 1 by itself" in status.text_content()
    enter(page, "step", "8")
    assert "its sum is complete. Done: a 4." in status.text_content()
    assert "a 3, 4; b 6, 2; c 12, 1" in page.get_by_role("img").get_attribute("aria-label")

    page.get_by_label("without order").check()
    assert "Step 3 of 10" in status.text_content()
    for _ in range(2):
        page.get_by_role("button", name="Step", exact=True).click()
    assert "passes it on at once, too early" in status.text_content()
    enter(page, "step", "10")
    assert "Done, and wrong: a has 6, right is 4." in status.text_content()
    page.get_by_role("button", name="Reset").click()
    assert "10 steps" in status.text_content()


def test_the_table_has_the_numbers_of_the_picture(show):
    page = show(GraphStepper(PROGRAMS["a neuron"], step=100))
    page.locator(".lc-table > summary").click()
    rows = [row.split("\t") for row in page.locator("tbody").inner_text().split("\n")]
    assert ["w", "0.5", "0.5", "3", "1 of 1", "3"] in rows
    assert ["product + bias", "product + bias", "2.5", "1", "1 of 1", "1"] in rows


def test_examples_and_own_programs(show):
    page = show(GraphStepper(PROGRAMS, step=4))
    page.get_by_label("example").select_option("with a skip")
    assert "11 steps: 4 values forward" in said(page)
    page.get_by_label("program: names").fill("x = 2\ny = x * x * x")
    enter(page, "step", "99")
    assert "8 is used" in noted(page)
    assert "Done: x 12." in said(page)


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("", "write a formula"),
        ("a = ", "missing at the end"),
        ("a = b + 1", "“b” has no value yet"),
        ("a = 1; a = 2", "“a” is given twice"),
        ("a = (1 + 2", "“)” is missing at the end"),
        ("a = 2; b = 3; c = a ** b", "an exponent must be a number"),
        ("a = -1; b = log(a)", "log of -1 is not a number"),
        ("a = 1; b = a $ a", "“$” is not expected here"),
        ("a = 1; b = " + " + ".join(["a"] * 40), "at most 24 values"),
    ],
)
def test_a_program_that_cannot_be_read_is_explained(show, typed, problem):
    page = show(GraphStepper(TWO_LINES))
    page.get_by_label("program: names").fill(typed)
    assert problem in said(page)
    page.get_by_label("program: names").fill(TWO_LINES)
    assert "8 steps" in said(page)


def test_play_goes_on_and_reduced_motion_goes_to_the_end(show):
    page = show(GraphStepper(TWO_LINES))
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("/Step [2-9] of/.test(document.querySelector('.lc-status').textContent)")
    page.get_by_role("button", name="Pause").click()
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("button", name="To the end").click()
    assert "Done: a 4." in said(page)


@pytest.mark.parametrize("program", PROGRAMS.values())
def test_a_phone_needs_no_sideways_scroll_and_shows_every_box(show, program):
    page = show(GraphStepper(program, step=400), width=360, theme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    outside = page.evaluate(
        """() => { const frame = document.querySelector(".lc-stage").getBoundingClientRect();
        return [...document.querySelectorAll(".lc-stage rect, .lc-stage path")].filter((box) => {
          const at = box.getBoundingClientRect();
          return at.left < frame.left - 1 || at.right > frame.right + 1
            || at.top < frame.top - 1 || at.bottom > frame.bottom + 1; }).length; }"""
    )
    assert outside == 0


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ("", "empty"),
        ("b = a + a", "cannot read 'a'"),
        ("a = 1; a = 2", "twice"),
        ("a = 1; a + a", "name = formula"),
        ("a = = 1", "not a program"),
        ("a = 2; b = a ** a", "exponent"),
        ("a = 2; b = sin(a)", "cannot read"),
        ("; ".join(["a = 1", "b = " + " + ".join(["a"] * 30)]), "at most 24"),
        ({}, "no graph"),
    ],
)
def test_python_says_what_is_wrong(graph, said):
    with pytest.raises(ValueError, match=said):
        GraphStepper(graph)


def test_python_refuses_a_renamed_operation_and_an_unknown_example():
    b = Value(1.0, name="a") + 1.0
    b.name = "b"
    with pytest.raises(ValueError, match="keep its operation's name"):
        GraphStepper(b)
    with pytest.raises(ValueError, match="example must be one of"):
        GraphStepper(TWO_LINES, example="other")


def test_the_state_starts_as_python_says():
    stepper = GraphStepper(
        {"x": TWO_LINES, "y": PROGRAMS["with a skip"]}, example="y", without_order=True, step=7
    )
    assert (stepper.expression, stepper.step, stepper.without_order) == (
        PROGRAMS["with a skip"],
        7,
        True,
    )
    stepper.step = 1_000
    assert stepper.step == 400
    assert "400 is used" in stepper.note


CROSSINGS = """() => {
  const slider = document.querySelector(".lc input[type=range]"), found = new Set();
  for (let step = 0; step <= Number(slider.max); step++) {
    slider.value = step;
    slider.dispatchEvent(new Event("input"));
    const frames = [...document.querySelectorAll(".lc-stage > svg > rect")];
    for (const text of document.querySelectorAll(".lc-stage > svg > g text")) {
      const inner = text.getBoundingClientRect();
      for (const one of frames) {
        const outer = one.getBoundingClientRect();
        if (inner.left < outer.right && inner.right > outer.left
          && inner.top + 3 < outer.bottom && inner.bottom - 3 > outer.top)
          found.add(`“${text.textContent}” at step ${step}`);
      }
    }
  }
  return [...found];
}"""


@pytest.mark.parametrize("name", ["two lines", "with a skip", "a neuron"])
def test_no_number_of_an_arrow_crosses_a_frame(show, name):
    page = show(GraphStepper(PROGRAMS[name]), width=360)
    found = {360: page.evaluate(CROSSINGS)}
    for width in (520, 760, 900):
        look(page, theme="light", width=width)
        found[width] = page.evaluate(CROSSINGS)
    assert not any(found.values()), found
