"""Hidden tests of the exercises of chapter 18."""

import math

import torch

BY_AUTOGRAD = {
    "sub": torch.sub,
    "div": torch.div,
    "max": torch.maximum,
    "sigmoid": torch.sigmoid,
    "softplus": torch.nn.functional.softplus,
    "silu": torch.nn.functional.silu,
}


def check_1(t, call, rng):
    """Every operation at random numbers, at ties and far out; torch tells the slopes."""
    cases = [("max", [0.0, 0.0]), ("max", [-2.5, -2.5]), ("div", [0.0, -4.0])]
    cases += [(name, [a]) for name in ("sigmoid", "softplus", "silu") for a in (-450.0, 450.0)]
    for name in BY_AUTOGRAD:
        for _ in range(3):
            count = 2 if name in ("sub", "div", "max") else 1
            cases.append((name, [rng.choice((-1, 1)) * rng.uniform(0.3, 6) for _ in range(count)]))
    for name, numbers in cases:
        inputs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in numbers]
        result = BY_AUTOGRAD[name](*inputs)
        slopes = torch.autograd.grad(result, inputs)
        right = result.item(), [slope.item() for slope in slopes]
        answer = call("local_slopes", name, numbers)
        t.close(answer, right, f"{name} of {numbers}", relative=1e-9, absolute=1e-12)


def ancestors(edges, root):
    """Return the root and all that it depends on, by growing a set until nothing is added."""
    found, size = {root}, 0
    while size < len(found):
        size = len(found)
        found |= {x for x, y in edges if y in found}
    return found


def check_2(t, call, rng):
    """Random graphs with double edges and nodes aside, ladders and a long chain."""
    graphs = [([], "alone"), ([("x", "y"), ("y", "z")], "x")]
    for size in (3, 6, 10, 15, 25, 40) * 2:
        names = rng.sample(range(1_000), size)  # an edge leads from an earlier to a later name
        pairs = [(i, j) for j in range(size) for i in range(j)]
        edges = [(names[i], names[j]) for i, j in rng.choices(pairs, k=2 * size)]
        edges += rng.choices(edges, k=2)
        rng.shuffle(edges)
        graphs += [(edges, names[-1]), (edges, names[size // 2])]
    rungs = [(f"{a}{i}", f"{b}{i + 1}") for i in range(8) for a in "lr" for b in "lr"]
    # Distance from the root and depth of a branch both mislead here, in whatever order edges stand.
    bait = [(0, 9), (0, 1), (1, 2), (2, 3), (3, 9), (0, 4), (4, 9), (5, 0), (3, 7), (7, 8)]
    graphs += [
        (rungs, "l8"),
        (bait, 9),
        (bait[::-1], 9),
        ([(i, i + 1) for i in range(5_000)], 5_000),
    ]
    for edges, root in graphs:
        order = call("backward_order", edges, root)
        case = f"{len(edges)} edges, root {root!r}: {edges[:12]}"
        if not t(isinstance(order, list | tuple), f"{case}: a list"):
            continue
        place = {node: i for i, node in enumerate(order)}
        needed = set(range(5_001)) if root == 5_000 else ancestors(edges, root)
        t(len(place) == len(order) and set(place) == needed, f"{case}: each needed node once")
        late = [(x, y) for x, y in edges if x in place and y in place and place[x] < place[y]]
        t(not late, f"{case}: {late[:3]} are in the wrong order")


def check_3(t, call, rng):
    """Random tapes, with double inputs and a result in the midst; all paths are added up."""
    for size in (1, 2, 4, 8, 12, 16):
        for _ in range(3):
            names, tape = ["p", "q"], []
            for i in range(size):
                used = rng.choices(names, k=rng.randrange(1, 4))
                if i % 3 == 1:
                    used += [used[0]]
                slopes = [float(rng.choice((-3, -2, -1, 1, 2, 3))) for _ in used]
                tape.append((f"n{i}", list(zip(used, slopes, strict=True))))
                names.append(f"n{i}")
            for result in {tape[-1][0], tape[size // 2][0]}:
                on_tape = {name for output, inputs in tape for name in (output, *dict(inputs))}
                # Forward: how fast does everything move when one name moves?
                right = {}
                for name in on_tape:
                    speed = dict.fromkeys(names, 0.0) | {name: 1.0}
                    for output, inputs in tape:
                        if output != name:
                            speed[output] = sum(slope * speed[x] for x, slope in inputs)
                    right[name] = speed[result]
                answer = call("gradients", tape, result)
                t.close(answer, right, f"result {result} of {tape}", relative=1e-12)
    longer = [("b", [("a", 2.0), ("a", 2.0)]), ("c", [("b", 3.0), ("a", 1.0)]), ("d", [("c", 5.0)])]
    t.close(call("gradients", longer, "c"), {"a": 13.0, "b": 3.0, "c": 1.0, "d": 0.0}, "c of d")


def slopes_of(name, x_D):
    """Return the exact gradient of a loss."""
    one_hot = (torch.arange(len(x_D)) == 0).double()
    return {
        "plane": torch.arange(1, len(x_D) + 1).double(),
        "bowl": 2 * x_D,
        "waves": 3 * (3 * x_D).cos(),
        "surprise": x_D.softmax(0) - one_hot,
        "faint": 1e-9 * (x_D.softmax(0) - one_hot),
        "far": 3e-6 * (x_D / 1e6).square(),
    }[name]


def check_4(t, call, rng):
    """Every loss at random vectors: right, slightly wrong, scaled, shuffled, in any order."""
    for name in ("plane", "bowl", "waves", "surprise", "faint", "far"):
        for size in (2, 5):
            x = torch.tensor([rng.choice((-1, 1)) * rng.uniform(0.2, 1.5) for _ in range(size)])
            x = x.double() * (1e6 if name == "far" else 1)
            if name == "waves":
                x[0] = math.pi / 6
            right = slopes_of(name, x)
            largest, place = right.abs().max(), rng.randrange(size)
            slip, pair = torch.zeros_like(x), torch.zeros_like(x)
            slip[place] = rng.choice((-2e-7, 2e-7)) * largest
            pair[0], pair[-1] = 1e-3 * largest, -1e-3 * largest
            claims = {
                "right": right,
                "right, otherwise rounded": right * (1 + 2.0**-52),
                "slip": right + slip,
                "two errors that cancel": right + pair,
                "double": 2 * right,
                "negative": -right,
            }
            labels = rng.sample(sorted(claims), len(claims))
            answer = call("wrong_claims", name, x, {label: claims[label] for label in labels})
            wrong = [label for label in labels if not label.startswith("right")]
            t.equal(answer, wrong, f"{name} at {x.tolist()}")
