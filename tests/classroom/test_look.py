"""The course's hues: far apart for every kind of colour vision, and readable on both themes.

Colour vision is simulated with the matrices for a whole missing cone of Machado, Oliveira and
Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), on
linear RGB.  Distances are CIEDE2000 (Sharma, Wu and Dalal, 2005), where 1 is just seen in patches
side by side.  The bound is what the seven hues of Okabe and Ito (2008), which are the usual measure
of a safe set, come to; four of theirs are too pale for text.
"""

from itertools import combinations

import numpy as np
import pytest

from llmcourse_classroom import look
from llmcourse_classroom.widget import source, styles

OKABE_ITO = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")


def rows(numbers):
    return np.reshape(list(map(float, numbers.split())), (3, 3))


VISIONS = {
    "usual": np.eye(3),
    "protan": rows(".152286 1.052583 -.204868 .114503 .786281 .099216 -.003882 -.048116 1.051998"),
    "deutan": rows(".367322 .860646 -.227968 .280085 .672501 .047413 -.01182 .04294 .968881"),
    "tritan": rows("1.255528 -.076749 -.178779 -.078411 .930809 .147602 .004733 .691367 .3039"),
}
TO_XYZ = rows(".4124564 .3575761 .1804375 .2126729 .7151522 .072175 .0193339 .119192 .9503041")


def linear(colour):
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    x, y, z = TO_XYZ @ rgb / TO_XYZ.sum(1)
    f = [t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def distance(one, other):
    """CIEDE2000 of two colours in CIELAB."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_c = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = (1 - np.sqrt(mean_c**7 / (mean_c**7 + 25**7))) / 2
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    light, c, h = (l1 + l2) / 2, (c1 + c2) / 2, (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    cos = [np.cos(np.radians(angle)) for angle in (h - 30, 2 * h, 3 * h + 6, 4 * h - 63)]
    t = 1 - 0.17 * cos[0] + 0.24 * cos[1] + 0.32 * cos[2] - 0.20 * cos[3]
    s_l = 1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2)
    d_l, d_c = (l2 - l1) / s_l, (c2 - c1) / (1 + 0.045 * c)
    d_h = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * c * t)
    swing = np.sin(np.radians(60 * np.exp(-(((h - 275) / 25) ** 2))))
    turned = swing * d_c * d_h
    return np.sqrt(d_l**2 + d_c**2 + d_h**2 - 2 * np.sqrt(c**7 / (c**7 + 25**7)) * turned)


def contrast(one, other):
    dark, light = sorted(TO_XYZ[1] @ linear(colour) + 0.05 for colour in (one, other))
    return light / dark


def seen(colour, vision):
    return lab(np.clip(np.array(VISIONS[vision]) @ linear(colour), 0, 1))


@pytest.mark.parametrize(
    ("one", "other", "published"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1, 2), (50, 0, 0), 2.3669),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
    ],
)
def test_the_distance_is_that_of_its_authors(one, other, published):
    assert distance(one, other) == pytest.approx(published, abs=1e-4)


def closest(hues):
    seen_hues = ([seen(hue, vision) for hue in hues] for vision in VISIONS)
    return min(distance(*pair) for of_vision in seen_hues for pair in combinations(of_vision, 2))


@pytest.mark.parametrize("theme", look.THEMES)
def test_hues_are_told_apart_as_well_as_a_safe_set_and_text_in_them_can_be_read(theme):
    assert closest(look.hues(theme)) >= closest(OKABE_ITO) > 10
    own = look.read_look()[theme]
    for colour in (*own["hues"], own["text"], own["muted"]):
        assert min(contrast(colour, own["back"]), contrast(colour, own["surface"])) >= 4.5
    assert min(contrast(own["on"], hue) for hue in own["hues"]) >= 4.5
    assert contrast(own["line"], own["back"]) >= 3


@pytest.mark.parametrize("theme", look.THEMES)
def test_concepts_of_a_group_have_hues_of_their_own_in_figures_and_widgets(theme):
    hues = look.hues(theme)
    for group in look.read_look()["concepts"].values():
        assert len(set(group.values())) == len(group) > 1
        drawn = [look.concept(name, theme) for name in group]
        assert not set(drawn) & {hue for each in look.THEMES for hue in look.hues(each)}
        assert closest(drawn) >= closest(OKABE_ITO)
        back = look.read_look()[theme]["back"]
        assert min(contrast(colour, back) for colour in drawn) >= 4.5
        for name, number in group.items():
            near = [seen(each, "usual") for each in (look.concept(name, theme), hues[number - 1])]
            assert distance(*near) < 1
            assert f"--lc-{name}: var(--phase-{number});" in styles()
            assert f".lc .lc-{name} {{ color: var(--lc-{name}); }}" in styles()
    assert [look.concept(name, theme)[:6] for name in ("data", "checkpoint")] == [
        hues[0][:6],
        hues[-1][:6],
    ]
    with pytest.raises(ValueError, match="there is no concept 'quary'; there are query, key"):
        look.concept("quary")


def test_colours_stand_in_one_place_and_a_phase_turns_them_round():
    assert "#" not in source("kit.css").replace("#fff", "")
    assert all(hue in styles() for theme in look.THEMES for hue in look.hues(theme))
    assert len(look.read_look()["phases"]) == len(look.hues("light")) == len(look.hues("dark")) == 7
    assert look.hues("light", 3) == [*look.hues("light")[2:], *look.hues("light")[:2]]
    assert "--hue-7: var(--phase-2);" in look.rotation(3)
