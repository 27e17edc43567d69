"""The drawing at the head of a chapter: one object for each part, which changes with the chapter.

The words of a drawing are its text alternative.
"""

import math
from itertools import pairwise

from drawings_others import answers, journey, loop, machines, measuring, opened
from pencil import Drawing, around, arrow, cells, dot, path, rect


def stream(place: int) -> Drawing:
    """Phase 1: pieces of text on their way."""
    if place == 0:
        cuts = (0, 52, 84, 130, 150, 200)
        whole = rect("soft", 20, 20, 200, 22)
        pieces = "".join(rect("on", 20 + a, 60, b - a - 4, 22) for a, b in pairwise(cuts))
        return (
            whole + pieces + cells(5, lambda k: "off", 100, 40, 22),
            "A line of text, cut into five pieces, each of which becomes a number.",
        )
    if place == 1:
        rows = (
            cells(12, lambda k: "soft", 14)
            + cells(8, lambda k: "soft", 50)
            + cells(4, lambda k: "on", 86)
        )
        sides = path("ink", "M6,8L80,112V132M234,8L160,112V132")
        return rows + sides, "A funnel: of twelve pieces eight go on, and of these four."
    if place == 2:
        sources = "".join(
            cells(n, lambda k, look=look: look, y)
            for look, n, y in (("off", 11, 10), ("soft", 6, 34), ("on", 3, 58))
        )
        mixed = cells(11, lambda k: ("on", "soft", "off", "soft", "on", "off")[k % 6], 112)
        return (
            sources + arrow("ink", 120, 78, 120, 104) + mixed,
            "Three sources of unequal size, mixed into one row of pieces.",
        )
    if place == 3:
        rows = "".join(
            cells(11, lambda k, n=n: "on" if k % (2 + n) == 0 else "off", 14 + 34 * n)
            for n in range(4)
        )
        return rows, "Four generations of text: each row has fewer kinds of pieces than the last."
    ends = (4, 7, 2, 9)
    rows = "".join(
        cells(10, lambda k, e=e: "on" if k < e else "soft", 14 + 30 * n, 20, 20)
        for n, e in enumerate(ends)
    )
    return rows, "Four rows of a batch, each packed with the pieces of two texts."


def stack(place: int) -> Drawing:
    """Phase 2: a stack of blocks."""
    tops = [108 - 22 * k for k in range(5)]
    plain = "".join(rect("soft", 75, y, 90, 16) for y in tops)
    up = arrow("ink", 120, 136, 120, 6)
    if place == 0:
        return plain + up + dot("on", 120, 72, 7), "A token on its way up through five blocks."
    if place == 1:
        arcs = "".join(
            path("hue", f"M{x},64Q{(x + 165) / 2:g},{64 - (165 - x) / 2.4:g} 165,64")
            for x in (45, 75, 105, 135)
        )
        row = "".join(dot("on" if x == 165 else "soft", x, 72, 8) for x in range(45, 180, 30))
        return row + arcs, "Arcs lead from four earlier tokens to the last one."
    if place == 2:
        wide = rect("on", 30, 64, 180, 16)
        return plain + wide + up, "A stack of blocks, one of them twice as wide as the others."
    if place == 3:
        lines = "".join(rect("on", 75, y - 5, 90, 3) for y in tops)
        return plain + lines + up, "A stack of blocks with a thin layer before each."
    if place == 4:
        experts = "".join(
            rect("on" if (k + y) % 3 == 0 else "off", 48 + 37 * k, y, 32, 16)
            for y in tops
            for k in range(4)
        )
        return experts, "A stack of blocks, each of four experts, of which one or two are at work."
    parts = "".join(
        rect("on" if k == 1 else "soft", 52 + 36 * k, y, 28, 16) for y in tops for k in range(4)
    )
    return parts, "A stack of blocks, cut from top to bottom for four processors."


def bars(place: int) -> Drawing:
    """Phase 3: bars of probability."""
    heights = (22, 44, 98, 14, 62, 30, 8)
    if place == 0:
        drawn = "".join(
            rect("on" if k == 4 else "soft", 22 + 29 * k, 124 - h, 22, h)
            for k, h in enumerate(heights)
        )
        return (
            drawn + path("hue", "M149,58V14M143,14H155"),
            "Bars of probability. Above that of the right token stands what is missing to 1.",
        )
    top = cells(7, lambda k: "soft", 24, 29, 20)
    low = cells(7, lambda k: "on" if k > 2 else "off", 96, 29, 20)
    arrows = "".join(arrow("ink", 36 + 29 * k, 50, 36 + 29 * k, 90) for k in range(3, 7))
    return top + low + arrows, "Seven tokens above their targets, of which the last four count."


def backwards(place: int) -> Drawing:
    """Phase 4: arrows that lead back."""
    if place == 3:
        drawn = ""
        for rank in range(4):
            for k in range(4):
                drawn += rect("soft", 14 + 15 * (rank + k), 14 + 30 * rank, 12, 22)
                drawn += rect("on", 214 - 15 * (rank + k), 14 + 30 * rank, 12, 22)
        return drawn, "Four ranks one below the other: forward in steps down, backward in steps up."
    xs, ys = (30, 75, 120, 165, 210), ((70,) * 5, (70,) * 5, (70,) * 5)[place]
    if place == 0:
        ys = (36, 104, 70, 70, 70)
    links = [(0, 2), (1, 2), (2, 3), (3, 4)] if place == 0 else [(k, k + 1) for k in range(4)]
    drawn = "".join(path("off", f"M{xs[a]},{ys[a]}L{xs[b]},{ys[b]}") for a, b in links)
    for a, b in links:
        lift = 20 if place else 16
        drawn += arrow("hue", xs[b] - 6, ys[b] + lift, xs[a] + 8, ys[a] + lift)
    for k in range(5):
        look = "off" if place == 2 and k in (1, 3) else "soft"
        drawn += dot(f"{look} solid", xs[k], ys[k], 11)
    if place == 1:
        drawn += "".join(rect("on", x - 14, 24, 28, 12) for x in xs)
    words = (
        "A graph of five values, and arrows that lead back from the last to the first two.",
        "A chain of five layers with a gradient above each, and arrows that lead back.",
        "A chain of five layers, two of which keep nothing; arrows lead back.",
    )[place]
    return drawn, words


def ring(place: int) -> Drawing:
    """Phase 5: ranks in a ring."""
    ranks, drawn = around(6, 52), ""
    for k, (x, y) in enumerate(ranks):
        x2, y2 = ranks[(k + 1) % 6]
        drawn += arrow(
            "ink",
            x + 0.36 * (x2 - x),
            y + 0.36 * (y2 - y),
            x + 0.64 * (x2 - x),
            y + 0.64 * (y2 - y),
        )
    for k, (x, y) in enumerate(ranks):
        if place == 1:
            drawn += dot("on", x, y, 14)
        else:
            drawn += dot("soft", x, y, 14)
            if place == 2:
                a, b = (2 * math.pi * (k + side) / 6 - math.pi / 2 for side in (0, 1))
                drawn += path(
                    "on",
                    f"M{x:.1f},{y:.1f}L{x + 14 * math.cos(a):.1f},"
                    f"{y + 14 * math.sin(a):.1f}A14,14 0 0 1 {x + 14 * math.cos(b):.1f},"
                    f"{y + 14 * math.sin(b):.1f}z",
                )
            else:
                drawn += rect("on", x - 5, y - 5, 10, 10)
    if place == 1:
        drawn += path("hue", "M104,62H136M104,78H136")
    words = (
        "each with a piece that it passes on",
        "all with the same weights",
        "each with a different sixth of the state",
    )[place]
    return drawn, f"Six ranks in a ring, {words}."


def valley(place: int) -> Drawing:
    """Phase 6: a ball in a valley."""

    def height(x: float) -> float:
        return 122 - ((x - 120) / 100) ** 2 * 104

    curve = "M" + "L".join(f"{x},{height(x):.1f}" for x in range(20, 221, 5))
    if place == 2:
        curve = "M20,18" + "".join(f"H{x}V{height(x):.0f}" for x in range(40, 221, 20))
    stops = (
        (210, 40, 185, 75, 140),
        (212, 180, 152, 132, 122),
        (200, 160, 140, 120),
        (180, 140, 112, 126, 120),
        (205, 170, 143, 127, 120),
    )[place]
    drawn = path("ink", curve)
    for a, b in pairwise(stops):
        drawn += path("hue", f"M{a},{height(a) - 8:.1f}L{b},{height(b) - 8:.1f}")
    for x in stops[:-1]:
        drawn += dot("soft", x, height(x) - 8, 5)
    drawn += dot("on", stops[-1], height(stops[-1]) - 8, 8)
    if place == 3:
        drawn += path("hue", "M120,108L96,22L84,60", 'stroke-dasharray="4 4"') + dot(
            "on", 96, 22, 5
        )
    if place == 4:
        drawn += "".join(
            rect("on" if k % 4 == 1 else "soft", 64 + 14 * k, 14, 10, 6 + k * 5 % 16)
            for k in range(8)
        )
    words = (
        "A ball jumps from wall to wall of a valley.",
        "A ball rolls down a valley in steps that get shorter.",
        "A ball on its way down a valley made of stairs.",
        "A ball at rest in a valley; a dashed line shows how a spike throws it out.",
        "A ball rolls down a valley; above it, small changes of eight weights.",
    )[place]
    return drawn, words


def shelf(place: int) -> Drawing:
    """Phase 7: boxes on a shelf."""
    boards = path("ink", "M14,66H226M14,130H226")
    boxes = "".join(rect("soft", 24 + 50 * k, y, 40, 40) for k in range(4) for y in (26, 90))
    if place == 0:
        last = rect("on", 174, 90, 40, 40) + path("paper", "M184,110l7,8l14,-16")
        return boards + boxes + last, "Eight boxes on a shelf. The last is lit and has a tick."
    lost = rect("paper", 173, 89, 42, 41) + path("hue", "M178,94l32,32m0,-32l-32,32")
    kept = rect("on", 124, 90, 40, 40)
    return (
        boards + boxes + kept + lost + path("hue", "M194,84C186,72 160,70 146,84"),
        "Boxes on a shelf. The last is lost, and an arrow leads back to the one before.",
    )


PARTS = (journey, stream, stack, bars, backwards, ring, valley, shelf,
         loop, machines, answers, measuring, opened)  # fmt: skip


def drawing(part: int, place: int) -> str:
    """Return the drawing of a chapter: the one at a place of a part, both from 0 on."""
    inside, words = PARTS[part](place)
    return (
        f'<svg class="drawing" viewBox="0 0 240 140" role="img" aria-label="{words}">{inside}</svg>'
    )
