"""Hidden tests of the exercises of chapter 30."""

import torch


def check_1(t, call, rng):
    """What stood in the folder at every moment, for parts of all sizes and every failure."""
    shapes = [[1], [3, 0, 5], [70_000, 1, 70_000], [rng.randrange(1, 9_000) for _ in range(9)]]
    for sizes in shapes:
        old, parts = rng.randbytes(40), [rng.randbytes(size) for size in sizes]
        new = b"".join(parts)
        half = {}
        for before in (old, None):
            seen = call("observed_save", before, parts)
            case = f"parts of {sizes} bytes, {'an old file' if before else 'no old file'}"
            _look(t, seen, before, new, case)
            half = seen["half"]
        seen = call("observed_save", old, parts, "", half)
        _look(t, seen, old, new, f"parts of {sizes} bytes after a save that was killed")
    for fails in ("part", "stop", "fsync", "rename"):
        old, parts = rng.randbytes(50), [rng.randbytes(9_000) for _ in range(4)]
        for before in (old, None):
            seen = call("observed_save", before, parts, fails)
            left = {} if before is None else {"state.ckpt": before}
            t.equal(seen["raised"], "the error", f"the error of {fails} is passed on")
            t.equal(seen["left"], left, f"{fails} fails: nothing is left but what was there")
            t({*seen["found"]} == {before}, f"{fails} fails: the old file is there all the time")


def _look(t, seen, old, new, case):
    """A save that succeeds."""
    t.equal(seen["raised"], "nothing", case)
    t.equal(seen["left"].get("state.ckpt"), new, case)
    t({*seen["found"]} <= {old, new}, f"{case}: the old file or the new one at every moment")
    log = seen["log"]
    renames = [place for place, event in enumerate(log) if event[0] == "rename"]
    t(len(renames) == 1, f"{case}: one rename")
    name, content = log[renames[0]][1:]
    t(name != "elsewhere" and content == new, f"{case}: from a whole file in the same folder")
    synced = [event for event in log[: renames[0]] if event[0] == "fsync"]
    t(any(event[1:] in ((name, new), [name, new]) for event in synced), f"{case}: brought to disk")
    behind = [tuple(event[:2]) for event in log[renames[0] :]]
    t(("fsync", "folder") in behind, f"{case}: then the folder")


def check_2(t, call, rng):
    """Any parts are left out, and the step is made without them."""
    names = ("weights", "mean", "mean_square", "updates", "steps", "position", "generator")
    cases = [[name] for name in names] + [[], list(names), list(names[1:4])]
    cases += [[name for name in names if rng.random() < 0.5] for _ in range(12)]
    for case in cases:
        dice = torch.Generator().manual_seed(rng.randrange(2**31))
        shape = (rng.randrange(2, 6), rng.randrange(1, 4))

        def drawn(dice=dice, shape=shape):
            return torch.randn(shape, generator=dice, dtype=torch.float64)

        saved = {
            "weights": drawn(),
            "mean": drawn(),
            "mean_square": drawn().square() + 0.5,
            "updates": rng.randrange(2, 30),
            "steps": rng.randrange(2, 30),
            "position": rng.randrange(3, 1_000),
            "generator": dice.get_state(),
        }
        draws = torch.rand(4, generator=dice)
        other = torch.rand(4, generator=dice)
        has = {name: name not in case for name in names}
        gradient, elsewhere = drawn(), drawn()
        before = saved["weights"] if has["weights"] else elsewhere
        steps = saved["steps"] if has["steps"] else rng.randrange(min(saved["steps"], 9))
        rate = 0.01 * min(1.0, (steps + 1) / 10)
        n = saved["updates"] * has["updates"] + 1
        mean = 0.9 * saved["mean"] * has["mean"] + 0.1 * gradient
        square = 0.95 * saved["mean_square"] * has["mean_square"] + 0.05 * gradient**2
        root = (square / (1 - 0.95**n)).sqrt() + 1e-8
        seen = {
            "batch": saved["position"] + (0 if has["position"] else rng.choice([-3, -1, 1, 2])),
            "draws": draws if has["generator"] else other,
            "rate": rate,
            "gradient": gradient,
            "before": before,
            "after": before - rate * mean / (1 - 0.9**n) / root,
        }
        right = [name for name in names if not has[name]]
        t.equal(call("missing_parts", saved, seen), right, f"missing: {right}")


def check_3(t, call, rng):
    """Every entry is looked up by itself, then neighbours are put together."""
    for number in range(14):
        sizes = {f"tensor {k}": rng.choice([0, 1, 7, rng.randrange(40)]) for k in range(3)}
        files = [[] for _ in range(rng.choice([1, 4, 4, 6]))]
        for name, size in sizes.items():
            cuts = sorted(rng.randrange(size + 1) for _ in range(rng.randrange(5)))
            for first, last in zip([0, *cuts], [*cuts, size], strict=True):
                rng.choice(files).append((name, first, last))
        for content in files:
            rng.shuffle(content)
        if number % 2:
            _spoil(rng, files, sizes)
        num_readers = rng.choice([1, 2, 2, 3, 5])
        right = _plan(files, sizes, num_readers)
        given = [list(content) for content in files]
        case = f"files {files}, sizes {sizes}, {num_readers} readers"
        t.equal(call("read_plan", given, dict(sizes), num_readers), right, case)
    # As many entries as there should be, but not the right ones.
    spoilt = [[("w", 0, 5)], [("w", 4, 8), ("w", 9, 10)]]
    t.equal(call("read_plan", spoilt, {"w": 10}, 2), None, "one entry twice, and one missing")
    long = [[("w", 0, 5)], [("w", 5, 9)], [("w", 9, 17)], [("w", 17, 23)]]
    right = _plan(long, {"w": 23}, 4)
    t.equal(call("read_plan", long, {"w": 23}, 4), right, "23 entries on four readers")
    behind = [[("v", 0, 2), ("w", 0, 3)], [("w", 3, 4), ("v", 2, 9)]]
    right = _plan(behind, {"w": 4, "v": 9}, 2)
    t.equal(call("read_plan", behind, {"w": 4, "v": 9}, 2), right, "pieces behind others")


def _spoil(rng, files, sizes):
    """Take a piece away, or add one that is there already."""
    pieces = [(f, p) for f, content in enumerate(files) for p in content if p[1] < p[2]]
    if not pieces:
        return
    number, piece = rng.choice(pieces)
    if rng.random() < 0.5:
        files[number].remove(piece)
    else:
        rng.choice(files).append((piece[0], piece[1], piece[1] + 1))


def _plan(files, sizes, num_readers):
    where = {name: {} for name in sizes}
    for number, content in enumerate(files):
        place = 0
        for piece, (name, first, last) in enumerate(content):
            for entry in range(first, last):
                if entry in where[name]:
                    return None
                where[name][entry] = (number, piece, place)
                place += 1
    if any(sorted(where[name]) != list(range(size)) for name, size in sizes.items()):
        return None
    plans = [[] for _ in range(num_readers)]
    for name, size in sizes.items():
        for reader, plan in enumerate(plans):
            last_piece = None
            for entry in range(size * reader // num_readers, size * (reader + 1) // num_readers):
                number, piece, place = where[name][entry]
                if (number, piece) == last_piece:
                    plan[-1] = (*plan[-1][:3], place + 1)
                else:
                    plan.append((name, number, place, place + 1))
                last_piece = number, piece
    return plans


def check_4(t, call, rng):
    """What is written is the state of the step after which it was saved, and errors are told."""
    for num_saves in (1, 2, rng.randrange(3, 6)):
        for failing in ([], [rng.randrange(num_saves)], list(range(num_saves))):
            seen = call("observed_saves", num_saves, failing)
            case = f"{num_saves} saves, of which {failing} fail"
            steps, raised, waited, pending = [], [], [], None
            for save in range(num_saves):
                waited.append(pending is not None)
                if pending is not None and pending in failing:
                    raised.append(["begin_save", f"write {pending} failed"])
                    pending = None
                    continue
                pending = len(steps)
                steps.append(save + 1)
            if pending is not None and pending in failing:
                raised.append(["finish", f"write {pending} failed"])
            right = [
                [s, [float(s)] * 2, [float(s)] * 2, [float(k + 1) for k in range(s)]] for s in steps
            ]
            t.equal(seen["written"], right, f"{case}: what is written")
            t.equal(seen["raised"], raised, f"{case}: what is raised")
            t.equal(seen["waited"], waited, f"{case}: whether it waited for the one before")
            t.equal(seen["ended"], len(steps), f"{case}: the last call waits")
            t(not seen["in_training"] and not seen["stood_still"], f"{case}: training goes on")


def check_5(t, call, rng):
    """Runs are resumed after any number of steps, twice, and make the steps of the saved run."""
    for num_steps in (0, 1, 4, 5, rng.randrange(6, 30)):
        seen = call("observed_resume", rng.randrange(1_000), num_steps, 9)
        case = f"saved after {num_steps} steps"
        t(seen["plain"], f"{case}: torch.load reads it")
        batches = [step[0] for step in seen["right"]]
        t.equal(batches, list(range(num_steps, num_steps + 9)), f"{case}: the saved run trains on")
        t.equal(seen["first"], seen["right"], f"{case}: every step is equal")
        t.equal(seen["second"], seen["right"], f"{case}: a second run is equal, too")
