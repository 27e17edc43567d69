"""What holds for every widget, in every extreme state: each is opened once, for all looks."""

import gzip
import importlib
import json
import math
import pkgutil
import re

import pytest
import traitlets

from llmcourse.model import tiny
from llmcourse_classroom import widgets
from llmcourse_classroom.state import Choice, Limited, Named
from llmcourse_classroom.widget import Widget, module
from tests.browser import kit, registry
from tests.browser.registry import REGISTRY

STATES = [
    pytest.param(make, place, id=f"{widget.__name__}-{place}")
    for widget, entry in REGISTRY.items()
    for place, make in enumerate(entry.states)
]
LOOKS = (("dark", 360, 100), ("light", 900, 100), ("light", 760, 200), ("light", 760, 100))
"""Theme, width, and size of the text in percent; later states have the first two by turns."""
OTHERS = ["1", None, math.nan, True]
"""None of them is a number."""

every_widget = pytest.mark.parametrize(
    "entry", REGISTRY.values(), ids=[widget.__name__ for widget in REGISTRY]
)


def widget_classes():
    found = set()
    for name in pkgutil.iter_modules(widgets.__path__, f"{widgets.__name__}."):
        classes = vars(importlib.import_module(name.name)).values()
        found |= {each for each in classes if isinstance(each, type) and issubclass(each, Widget)}
    return found - {Widget}


def payload(widget):
    return json.loads(re.search(r'-state">(.*?)</script>', widget.page(), re.DOTALL)[1])


def test_every_widget_is_in_the_table():
    assert widget_classes() == set(REGISTRY)
    assert sorted(widgets.__all__) == sorted(widget.__name__ for widget in REGISTRY)
    for widget, entry in REGISTRY.items():
        assert all(isinstance(make(), widget) for make in entry.states)


@pytest.mark.parametrize(("make", "place"), STATES)
def test_it_fits_has_names_and_is_reached_by_keyboard(show, make, place, soaking):
    """On a dark phone or wide and light; in its first state in every look, and by keyboard.

    `make soak` opens the states after the second.
    """
    if place > 1 and not soaking:
        pytest.skip("make soak")
    first, *wider = LOOKS if place == 0 else LOOKS[place % 2 :][:1]
    theme, width, _ = first
    page = show(make(), theme=theme, width=width)
    found = {first: kit.widget_faults(page)}
    for theme, width, text in wider:
        kit.look(page, theme=theme, width=width, text=text)
        found[theme, width, text] = kit.widget_faults(page)
    if place == 0:
        found |= {"keyboard": kit.unreached(page), "numbers": kit.unclamped(page)}
    assert {name: faults for name, faults in found.items() if faults} == {}


@every_widget
def test_its_page_form_is_small_carries_itself_and_is_always_the_same(entry):
    for make in entry.states:
        widget = make()
        page = widget.page()
        assert len(gzip.compress(page.encode())) < 1_000 * entry.kilobytes
        assert payload(widget) == payload(make())
        assert payload(widget)["esm"] == module(widget.script)
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


@every_widget
def test_an_unknown_name_is_refused(entry):
    with pytest.raises(TypeError, match=r"has no \['nonsense'\]"):
        entry.make(nonsense=3)


@every_widget
def test_a_choice_is_one_of_its_options(entry):
    widget = entry.make()
    for name, trait in widget.traits().items():
        if isinstance(trait, Choice | Named):
            before = getattr(widget, name)
            options = trait.options if isinstance(trait, Choice) else widget.bounds[name]
            said = re.escape(f"{name} must be one of {', '.join(options)}, not 'nonsense'")
            with pytest.raises(traitlets.TraitError, match=said):
                setattr(widget, name, "nonsense")
            if name != "pattern":  # which a board reads off its tokenizer
                with pytest.raises(ValueError, match=said):
                    entry.make(**{name: "nonsense"})
            assert getattr(widget, name) == before


STARTS = [
    (registry.isoflop_valley, {"law": "stories", "budget": 13, "off": 1}),
    (widgets.LiveEpochs, {"size": "1,000 tokens", "step": 0, "patience": 3}),
    (registry.leak_board, {"copies": "0", "words": "13", "level": 0.05}),
    (registry.loss_axis, {"beginning": registry.BEGINNINGS[0], "sample": 1}),
    (lambda: widgets.BlockTapper(tiny()), {"tokens": 32}),
    (lambda: widgets.CostCalculator(preset="your own", tokens_b=3), {"tokens_b": 3}),
    (lambda: widgets.MeshGrid("llama3_long"), {"dp": 8, "pp": 16, "cp": 16, "tp": 8}),
    (lambda: widgets.MeshGrid("small", dp=4), {"dp": 4, "pp": 2, "cp": 2, "tp": 2}),
    (lambda: registry.spike_lab(on=["warm-up", "clipping"]), {"on": ["clipping", "warm-up"]}),
    (widgets.StepSimulator, {"dp": 128}),
    (lambda: widgets.StepSimulator(preset="your own", dp=3), {"dp": 3}),
    (lambda: widgets.ShareBar(hidden=5), {"follow_rule": False}),
    (lambda: widgets.ShareBar(width=1_024), {"follow_rule": True}),
    (lambda: widgets.ShareBar(hidden=5, follow_rule=True), {"follow_rule": True, "hidden": 5}),
    (
        lambda: widgets.GraphStepper({"x": "a = 1", "y": "b = 2"}, example="y", step=7),
        {"expression": "b = 2", "step": 7},
    ),
]


@pytest.mark.parametrize(("make", "state"), STARTS)
def test_it_starts_with_what_it_was_given_and_else_with_its_own(make, state):
    made = make()
    assert {name: getattr(made, name) for name in state} == state


@every_widget
def test_an_impossible_number_is_clamped_and_said(entry):
    for name, trait in entry.make().traits().items():
        if not isinstance(trait, Limited):
            continue
        for given in (math.inf, -math.inf, 1e15, -1e15):
            widget = entry.make()
            setattr(widget, name, given)
            assert trait.low <= getattr(widget, name) <= widget.limits[name]["high"], name
            assert "is used" in widget.note, (name, given)
        for other in OTHERS:
            with pytest.raises(traitlets.TraitError, match="must be a number from"):
                setattr(widget, name, other)
