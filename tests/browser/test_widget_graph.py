"""The widget of chapter 18: the page's gradients are the engine's, and the page obeys."""

import random

import pytest
import torch

from llmcourse.backward.autodiff import Value
from llmcourse_classroom.widgets.graph import GraphStepper, program_of, values_of
from tests.browser.hands import enter, keys, later, press, stop_time
from tests.browser.kit import holds, look, said, table
from tests.browser.registry import PROGRAMS, TWO_LINES
from tests.browser.twins import each

FORMULAS = ("{0} + {1}", "{0} * {1} * 0.3", "1.5 - {0} - {1}", "{0} / (2 + tanh({1}))")
FORMULAS += ("exp(tanh({0})) + {0}", "relu({0}) - -{1}", "(tanh({0}) + 3) ** -2 + {0} ** 3 * 0.01")
FORMULAS += ("log(tanh({0}) + 2.5)",)


def random_program(seed):
    """Earlier results are used again, so that most values have several uses."""
    rng, names, lines = random.Random(seed), ["a", "b", "c"], []
    lines += [f"{name} = {rng.uniform(-1.5, 1.5):.3f}" for name in names]
    for i in range(rng.randint(1, 3)):
        lines.append(f"v{i} = {rng.choice(FORMULAS).format(rng.choice(names), rng.choice(names))}")
        names.append(f"v{i}")
    return "; ".join([*lines, f"end = {' + '.join(names[-3:])}"])


def by_torch(program):
    known = {name: getattr(torch, name) for name in ("exp", "log", "tanh", "relu")}
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
    for given, slope in value.inputs:
        given.grad += slope * value.grad
        hurried(given)


DRAWN = [*PROGRAMS.values(), *map(random_program, range(60))]


def test_values_and_gradients_are_torchs_and_the_engines(arithmetic):
    cases = [[program, False] for program in DRAWN]
    for (program, _), got in each(arithmetic, GraphStepper, "outcome", cases):
        expected, engine = by_torch(program), values_of(program)
        list(engine.values())[-1].backward()
        assert {name for name, *_ in got} == set(expected)
        for name, value, gradient in got:
            assert (value, gradient) == pytest.approx(expected[name], rel=1e-9, abs=1e-12), program
            assert gradient == pytest.approx(engine[name].grad, rel=1e-9, abs=1e-12), name


def test_without_order_goes_wrong_as_in_the_chapter(arithmetic):
    programs = [TWO_LINES, PROGRAMS["with a skip"]]
    programs += ["x = 0.4; s = x * x; t = s * x; u = tanh(t) * s; y = u + t"]
    programs += ["x = 2; y = exp(x); z = y * y"]
    for (program, _), got in each(
        arithmetic, GraphStepper, "outcome", [[program, True] for program in programs]
    ):
        named = values_of(program)
        last = list(named.values())[-1]
        last.grad = 1.0
        hurried(last)
        assert [g for *_, g in got] == pytest.approx([named[n].grad for n, *_ in got], rel=1e-12)
    wrong, right = arithmetic(GraphStepper, "outcome", [[TWO_LINES, True], [TWO_LINES, False]])
    assert (wrong[0], right[0]) == (["a", 3, 6], ["a", 3, 4])


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
    for (nodes,), at in each(arithmetic, GraphStepper, "places", [[nodes] for nodes in graphs]):
        for i, node in enumerate(nodes):
            assert all(given < i for given in node["inputs"])
            assert all(at["depth"][given] < at["depth"][i] for given in node["inputs"])
        assert len(set(zip(at["depth"], at["lane"], strict=True))) == len(nodes)
        assert 0 <= min(at["lane"]) <= max(at["lane"]) <= at["widest"] - 1


def test_without_order_stops_where_paths_explode(show):
    lines = [f"v{i + 1} = v{i} + v{i}" for i in range(14)]
    page = show(GraphStepper("; ".join(["v0 = 1", *lines]), without_order=True, step=400))
    holds(said(page), "after 300 passes")


def test_buttons_and_keys_walk_the_graph_and_what_cannot_be_read_is_explained(show):
    page = show(GraphStepper(TWO_LINES))
    assert said(page).startswith("8 steps")
    press(page, "Step", "Step 1 of 8", "Forward: a = 3")
    keys(page, "step", "ArrowRight " * 4, "b, which now has 1: 1 of 2 arrows", "waits")
    press(page, "Back", "c has gradient 1 by itself")
    enter(page, "step", "8", "complete", "Done: a 4.")
    holds(page.get_by_role("img").get_attribute("aria-label"), "a 3, 4; b 6, 2; c 12, 1")
    page.get_by_label("without order").check()
    holds(said(page), "Step 3 of 10")
    press(page, "Step", "too early", times=2)
    enter(page, "step", "10", "Done, and wrong: a has 6, right is 4")
    press(page, "Reset", "10 steps")
    page.get_by_label("without order").uncheck()
    for typed, problem in PROBLEMS.items():
        page.get_by_label("program: names").fill(typed)
        holds(said(page), problem)
        page.get_by_label("program: names").fill(TWO_LINES)
        holds(said(page), "8 steps")


def test_examples_and_own_programs_and_the_numbers_of_the_picture_in_a_table(show):
    page = show(GraphStepper(PROGRAMS, step=4))
    page.get_by_label("example").select_option("with a skip")
    holds(said(page), "11 steps: 4 values")
    page.get_by_label("program: names").fill("x = 2\ny = x * x * x")
    enter(page, "step", "8", "Done: x 12.")
    rows = table(show(GraphStepper(PROGRAMS["a neuron"], step=100)))
    assert ["w", "0.5", "0.5", "3", "1 of 1", "3"] in rows
    assert ["product + bias", "product + bias", "2.5", "1", "1 of 1", "1"] in rows


PROBLEMS = {"": "write a formula", "a = ": "missing at the end", "a = b + 1": "“b” has no value"}
PROBLEMS |= {"a = 1; a = 2": "“a” is given twice", "a = (1 + 2": "“)” is missing"}
PROBLEMS |= {"a = 2; b = 3; c = a ** b": "exponent", "a = -1; b = log(a)": "log of -1"}
PROBLEMS |= {"a = 1; b = a $ a": "“$” is not expected"}
PROBLEMS |= {"a = 1; b = " + " + ".join(["a"] * 40): "at most 24 values"}


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


CROSSINGS = """() => {
  const slider = document.querySelector(".lc input[type=range]"), found = new Set();
  for (let step = 0; step <= Number(slider.max); step++) {
    slider.value = step;
    slider.dispatchEvent(new Event("input"));
    const frames = [...document.querySelectorAll(".gs-node > rect")];
    for (const text of document.querySelectorAll(".gs-words text")) {
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


WAY = """() => [...document.querySelectorAll(".gs-travels")]
  .filter((one) => one.getAttribute("opacity") !== "0")
  .map((one) => [one.transform.baseVal.consolidate().matrix.e, Number(one.textContent)])"""


def grown(page):
    texts = page.locator(".gs-node").evaluate_all(
        "all => all.filter((one) => Number(one.getAttribute('opacity') ?? 1) > 0.5)"
        ".map((one) => one.children[3].textContent)"
    )
    return sorted(texts)


def test_a_gradient_runs_against_its_arrow_is_multiplied_half_way_and_added_on_arrival(show):
    """Mutants: nothing runs; it runs along the arrow; it is added at once; no slope."""
    page = show(GraphStepper("a = 2; b = 3 * a; c = b * b", step=5), as_is=True)
    stop_time(page)
    press(page, "Step", "c passes slope 6 × gradient 1 = 6 to b, which now has 12")
    seen = []
    for _ in range(9):
        later(page, 100)
        seen += page.evaluate(WAY)
        if len(seen) < 6:
            assert grown(page) == ["grad 1", "grad 6", "grad –"]
    places, carried = [place for place, _ in seen], [number for _, number in seen]
    assert len(seen) >= 7
    assert (places, carried) == (sorted(places, reverse=True), sorted(carried))
    assert set(carried) == {1, 6}
    later(page, 300)
    assert (page.evaluate(WAY), grown(page)) == ([], ["6 + 6 = 12", "grad 1", "grad –"])


def test_values_run_along_their_arrows(show):
    page = show(GraphStepper("a = 2; b = 3 * a; c = b * b", step=2), as_is=True)
    stop_time(page)
    press(page, "Step", "Forward: c = b × b = 36")
    later(page, 200)
    first = page.evaluate(WAY)
    later(page, 300)
    then = page.evaluate(WAY)
    assert [number for _, number in first] == [6, 6]
    assert all(a[0] < b[0] for a, b in zip(first, then, strict=True))


def test_with_reduced_motion_a_gradient_has_come_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(GraphStepper("a = 2; b = 3 * a; c = b * b", step=5), as_is=True)
    stop_time(page)
    press(page, "Step", "which now has 12")
    assert (page.locator(".gs-travels").count(), page.locator(".gs-node").count()) == (0, 3)
    assert grown(page) == ["6 + 6 = 12", "grad 1", "grad –"]
