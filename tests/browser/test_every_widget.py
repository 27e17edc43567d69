"""What holds for every widget, in every extreme state: each is opened once, for all looks."""

import gzip
import importlib
import json
import math
import pkgutil
import re

import pytest
import traitlets

from llmcourse_classroom import widgets
from llmcourse_classroom.state import Choice, Limited, Named
from llmcourse_classroom.widget import Widget, module
from tests.browser import kit
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
    """Return the classes of widgets that the package has."""
    found = set()
    for name in pkgutil.iter_modules(widgets.__path__, f"{widgets.__name__}."):
        classes = vars(importlib.import_module(name.name)).values()
        found |= {each for each in classes if isinstance(each, type) and issubclass(each, Widget)}
    return found - {Widget}


def payload(widget):
    """Return what a page is given of a widget: its state and its module."""
    found = re.search(r'-state">(.*?)</script>', widget.page(), re.DOTALL)
    return json.loads(found[1])


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
            with pytest.raises(traitlets.TraitError, match=f"{name} must be one of"):
                setattr(widget, name, "nonsense")
            assert getattr(widget, name) == before


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
