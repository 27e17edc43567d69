"""The drawings of the parts that are no phase: from the map to a model that others trained."""

from pencil import Drawing, around, arrow, dot, path, rect


def journey(place: int) -> Drawing:
    """Part 0: the ring of phases; in the middle, what the chapter does with it."""
    ring = "".join(
        dot("on", x, y, 8, f'style="--phase: var(--phase-{k})"')
        for k, (x, y) in enumerate(around(7, 58), start=1)
    )
    middle = (
        (path("hue", "M104,70l10,12l22,-26"), "a tick"),
        (path("hue", "M88,45C96,86 120,90 152,92"), "a loss that falls"),
        (
            "".join(
                rect("on" if k == 3 else "soft", 90 + 13 * k, 92 - h, 9, h)
                for k, h in enumerate((18, 12, 6, 24, 48))
            ),
            "five probabilities",
        ),
        (
            path("ink", "M84,46C100,112 140,112 156,46") + dot("on", 144, 76, 6),
            "a ball in a valley",
        ),
        (
            "".join(
                rect("on" if k == 3 else "soft", 90 + 16 * k, 46 + 13 * k, 12, 48 - 13 * k)
                for k in range(4)
            ),
            "four bars, each lower than the one before",
        ),
    )[place]
    return ring + middle[
        0
    ], f"The seven phases of a step in a ring, with {middle[1]} in the middle."


def loop(place: int) -> Drawing:
    """Part 8: the loop, and what is in it."""
    turn = ""
    for r in (62, 54, 46) if place == 1 else (62,):
        x, y = 120 + r * 0.7, 70 - r * 0.7
        turn += path("hue", f"M{120 + r},70A{r},{r} 0 1 1 {x:.0f},{y:.0f}")
        turn += arrow("hue", round(x) - 0.1, round(y) - 0.1, round(x), round(y)) if r == 62 else ""
    inside = (
        (
            "".join(
                rect("on", 120 - 13 * w / 2 + 13 * k, 44 + 18 * n, 10, 12)
                for n, w in enumerate((1, 2, 4))
                for k in range(w)
            ),
            "batches of one, two and four",
        ),
        (rect("on", 106, 60, 28, 20), "one text, read three times"),
        ("".join(dot("on", 90 + 15 * k, 48 + 11 * k, 4) for k in range(5)), "losses on a line"),
        (
            "".join(rect("on" if n < 3 else "soft", 98, 92 - 11 * n, 44, 8) for n in range(5)),
            "a pile of coins",
        ),
        (
            "".join(rect("on" if k == 1 else "soft", 76 + 9 * k, 62, 7, 16) for k in range(10)),
            "a long row",
        ),
    )[place]
    return turn + inside[0], f"The loop of training, and in it {inside[1]}."


def machines(place: int) -> Drawing:
    """Part 9: processors."""
    if place == 0:
        pins = "".join(path("ink", f"M{84 + 18 * k},34V22M{84 + 18 * k},106V118") for k in range(5))
        return (
            pins
            + rect("soft", 72, 34, 96, 72)
            + rect("on", 92, 52, 20, 36)
            + "".join(rect("off", 122, 46 + 14 * k, 34, 9) for k in range(4)),
            "A chip: a small part that multiplies, beside a large part that waits.",
        )
    columns, rows_, size = ((8, 4, 20), (24, 13, 8))[place - 1]
    lit = (lambda c, r: r == 1 and 2 <= c < 6) if place == 1 else (lambda c, r: c < 18)
    left, top = 120 - columns * size / 2, 70 - rows_ * size / 2
    grid = "".join(
        rect("on" if lit(c, r) else "off", left + c * size, top + r * size, size - 3, size - 3)
        for c in range(columns)
        for r in range(rows_)
    )
    return grid, (
        "Four racks of eight nodes, of which one job has four.",
        "A hall of processors, most of them in one run.",
    )[place - 1]


def answers(place: int) -> Drawing:
    """Part 10: questions and answers."""

    def bubble(look: str, x: float, y: float, w: float, h: float, *, side: int) -> str:
        foot = x + (20 if side < 0 else w - 20)
        return rect(look, x, y, w, h, more='ry="8"') + path(
            look, f"M{foot},{y + h - 1}l{6 * side},12l10,-12z"
        )

    def lines(x: float, y: float, number: int, w: float) -> str:
        return "".join(path("paper", f"M{x},{y + 12 * k}h{w}") for k in range(number))

    if place == 0:
        return (
            bubble("soft", 14, 14, 120, 40, side=-1)
            + bubble("on", 100, 76, 124, 44, side=1)
            + lines(112, 92, 2, 90),
            "A question, and the answer to it.",
        )
    if place == 1:
        return (
            bubble("on", 14, 30, 100, 70, side=-1)
            + lines(28, 48, 3, 70)
            + bubble("off", 128, 30, 98, 70, side=1)
            + path("hue", "M50,120l8,9l16,-19"),
            "Two answers to the same question; the first is preferred.",
        )
    return (
        bubble("soft", 14, 12, 60, 30, side=-1)
        + bubble("on", 60, 30, 168, 90, side=1)
        + lines(76, 46, 6, 136),
        "A short question, and a huge answer that repeats itself.",
    )


def measuring(place: int) -> Drawing:
    """Part 11: points with their intervals on an axis."""
    axis = path("ink", "M20,124H222" + "".join(f"M{x},124v-6" for x in range(20, 230, 25)))
    if place == 2:
        gates = "".join(
            path(
                "on" if k == 3 else "soft",
                f"M{22 + 52 * k},118V64a20,20 0 0 1 40,0V118h-9V66a11,11 0 0 0 -22,0V118z",
            )
            for k in range(4)
        )
        return gates + path("ink", "M10,118H230"), "Four gates in a row; the last is lit."
    points = ((96, 40, 36), (128, 82, 34)) if place == 0 else ((88, 40, 22), (186, 82, 22))
    drawn = "".join(
        path("hue", f"M{x - w},{y}H{x + w}M{x - w},{y - 7}v14M{x + w},{y - 7}v14")
        + dot("on", x, y, 7)
        for x, y, w in points
    )
    if place == 1:
        drawn += "".join(
            rect("on" if k in (2, 5) else "off", 20 + 22 * k, 8, 18, 12) for k in range(9)
        )
    words = (
        "Two scores, whose intervals overlap.",
        "Two scores far apart; above them a text in which two pieces are of the test.",
    )[place]
    return axis + drawn, words


def opened(place: int) -> Drawing:
    """Part 12: a box that others packed, open; what lies in it, and what is done with that."""
    box = path("ink", "M60,58V134H180V58M60,58L28,44M180,58L212,44")
    rows = "".join(
        rect("soft", 68 + 18 * k, 72 + 20 * n, 15, 15)
        for n in range(3)
        for k in range(6)
        if (k, n) != (3, 0)
    )
    taken = rect("on", 122, 14, 15, 15) + arrow("hue", 129.5, 84, 129.5, 36)
    narrow = "".join(
        rect("on", 68, 72 + 20 * n, 15, 15)
        + "".join(rect("soft", 88 + 9 * k, 72 + 20 * n, 6, 15) for k in range(10))
        for n in range(3)
    )
    users = "".join(
        "".join(
            rect("on" if k == n else "soft", 68 + 18 * k, 72 + 20 * n, 15, 15) for k in range(6)
        )
        + arrow("hue", 75.5 + 18 * n, 70 + 20 * n, 86 + 34 * n, 32)
        + dot("on", 86 + 34 * n, 22, 7)
        for n in range(3)
    )
    adapter = (
        "".join(rect("soft", 68 + 18 * k, 72 + 20 * n, 15, 15) for n in range(3) for k in range(5))
        + rect("on", 161, 72, 9, 55)
        + rect("on", 68, 26, 87, 9)
        + arrow("hue", 111.5, 39, 111.5, 66)
    )
    full = "".join(
        rect("soft", 68 + 18 * k, 72 + 20 * n, 15, 15) for n in range(3) for k in range(6)
    )
    right = (1, 4, 5)
    eight = "".join(
        path("hue" if k in right else "ink", f"M120,66L{29 + 26 * k},33")
        + rect("on" if k in right else "off", 18 + 26 * k, 8, 22, 22)
        + (path("paper", f"M{23 + 26 * k},19l4,5l8,-10") if k in right else "")
        for k in range(8)
    )
    inside = (
        (rows + taken, "one of which is taken out"),
        (narrow, "all narrow but the first of each row, which is lit"),
        (users, "and from each row an arrow leads up to somebody of their own"),
        (adapter, "beside them a thin lit column, above them a thin lit row"),
        (full + eight, "and eight answers that come out of it, three with a tick"),
    )[place]
    return box + inside[0], f"An open box in which numbers lie in rows, {inside[1]}."
