"""Schedules as data: what they cost, what is wrong with a wrong one, and how layers are cut."""

import graphlib
import itertools
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs_pipeline import schedule_named, written
from torch.distributed.pipelining.schedules import ScheduleDualPipeV

from llmcourse.parallel import pipeline
from llmcourse.parallel.pipeline import Action, actions_of
from llmcourse_labs.scale import arithmetic

units = st.integers(1, 7)
ranks, micro_batches, chunks = st.integers(1, 6), st.integers(1, 13), st.integers(2, 4)


@st.composite
def any_numbers(draw):
    p, name = draw(ranks), draw(st.sampled_from(pipeline.SCHEDULES))
    if name == "interleaved":
        return name, p, draw(st.integers(1, 3)) * p, draw(chunks)
    return name, p, draw(micro_batches), 1


# Orders
def rows(*texts):
    return tuple(actions_of(text) for text in texts)


def test_the_orders_of_the_papers():
    assert pipeline.gpipe(2, 2).actions == rows("F0 F1 B0 B1", "F0 F1 B0 B1")
    # Narayanan et al. 2021, figure 4: 4 ranks, 8 micro-batches.
    assert pipeline.one_f_one_b(4, 8).actions == rows(
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
    )
    assert pipeline.interleaved(2, 4, 2).actions == rows(
        "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3",
        "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3",
    )
    assert pipeline.zero_bubble(2, 3).actions == rows(
        "F0 F1 I0 W0 F2 I1 W1 I2 W2", "F0 I0 F1 I1 W0 F2 I2 W1 W2"
    )


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 5), (3, 6), (4, 10), (5, 11)])
def test_dualpipe_v_is_torchs(p, m):
    kinds = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    sizes = SimpleNamespace(pp_group_size=p, _n_microbatches=m)
    schedule = pipeline.dualpipe_v(p, m)
    for rank, row in enumerate(schedule.actions):
        ours = [(schedule.stage(rank, a), a.kind, a.micro_batch) for a in row]
        theirs = ScheduleDualPipeV._calculate_single_rank_operations(sizes, rank)
        pairs = [each.sub_actions or (each,) for each in theirs if each is not None]
        assert ours == [
            (each.stage_index, kinds[each.computation_type.name], each.microbatch_index)
            for pair in pairs
            for each in pair
        ]


def test_a_schedule_is_written_as_it_is_read():
    schedule = pipeline.interleaved(2, 2, 2)
    assert str(schedule).splitlines()[1] == "rank 1: F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1"
    for row in schedule.actions:
        assert actions_of(" ".join(map(str, row))) == row
    for text in ("G0", "F", "F-1", "F1.x", "0F"):
        with pytest.raises(ValueError, match="an action is written like"):
            actions_of(text)


@given(any_numbers())
def test_gradients_add_up_in_the_order_of_the_micro_batches(numbers):
    schedule = schedule_named(*numbers)
    pipeline.validate(schedule)
    for row in schedule.actions:
        for chunk in range(schedule.num_chunks):
            for kinds in ("B", "W"):
                order = [a.micro_batch for a in row if a.kind in kinds and a.chunk == chunk]
                assert order == sorted(order)


# Cost
@given(any_numbers(), units, units, units)
def test_simulation_is_the_formula(numbers, forward, input_gradient, weight_gradient):
    schedule = schedule_named(*numbers)
    times = {
        "forward": Fraction(forward, 3),
        "input_gradient": input_gradient,
        "weight_gradient": weight_gradient,
    }
    timeline = arithmetic.simulate(schedule, **times)
    assert timeline.bubble == arithmetic.bubble_share(*numbers, **times)
    assert arithmetic.peak_live(schedule) == arithmetic.peak_micro_batches(*numbers)
    busy = (sum(times.values())) * schedule.num_micro_batches * schedule.num_chunks
    assert {timeline.busy(rank) for rank in range(schedule.num_ranks)} == {busy}
    assert timeline.total == busy * (1 + timeline.bubble)


@given(ranks, st.integers(0, 9), st.tuples(units, units, units).map(sorted))
def test_dualpipe_v_waits_half_as_long_as_zb_h1(p, more, times):
    m, (w, i, f) = 2 * p + more, times
    f = min(f, i + w)  # else the way down, one forward after the other, sets the pace
    schedule = pipeline.dualpipe_v(p, m)
    timeline = arithmetic.simulate(schedule, forward=f, input_gradient=i, weight_gradient=w)
    assert timeline.bubble == Fraction((p - 1) * (f + i - w), 2 * m * (f + i + w))
    at_rank = {"forward": 2 * f, "input_gradient": 2 * i, "weight_gradient": 2 * w}
    assert 2 * timeline.bubble == arithmetic.bubble_share("zero_bubble", p, m, **at_rank)
    assert arithmetic.peak_live(schedule) == (2 * p + 1,) * p


def test_the_numbers_of_the_papers():
    # Narayanan et al. 2021: (p - 1) / m, and 1/v of it.
    assert arithmetic.bubble_share("1f1b", 4, 8) == Fraction(3, 8)
    assert arithmetic.bubble_share("interleaved", 4, 8, 2) == Fraction(3, 16)
    # Qi et al. 2023, table 1, for equal times: a third of 1F1B's, with its memory on rank 0.
    assert arithmetic.bubble_share("zero_bubble", 4, 8) == Fraction(3, 24)
    assert arithmetic.peak_micro_batches("1f1b", 4, 8) == (4, 3, 2, 1)
    assert arithmetic.peak_micro_batches("zero_bubble", 4, 8) == (4, 4, 4, 4)
    assert arithmetic.peak_micro_batches("gpipe", 4, 8) == (8, 8, 8, 8)
    # Section 2.2 of the first: interleaving holds 1 + (p - 1) / (p v) times what 1F1B does.
    p, v = 4, 3
    held = Fraction(arithmetic.peak_micro_batches("interleaved", p, 8, v)[0], v)
    assert held == p * (1 + Fraction(p - 1, p * v))


@given(any_numbers(), st.integers(0, 5))
def test_slow_messages_never_help(numbers, message):
    schedule = schedule_named(*numbers)
    fast, slow = arithmetic.simulate(schedule), arithmetic.simulate(schedule, message=message)
    assert slow.total >= fast.total
    if message and schedule.num_ranks > 1:
        # A micro-batch goes down and up again.
        assert slow.total >= 3 + 2 * (schedule.num_stages - 1) * message


# What is wrong with it
@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (written("F0 B0", "F0", m=1), "rank 1 never does B0"),
        (written("F0 B0 B0", "F0 B0", m=1), "rank 0 does B0 2 times"),
        (written("B0 F0", "F0 B0", m=1), r"rank 0 does B0 \(action 0\) before its F0 \(action 1\)"),
        (written("F0 W0 I0", m=1), r"rank 0 does W0 \(action 1\) before its I0 \(action 2\)"),
        (written("F0 I0", m=1), "rank 0 never does W0"),
        (written("F0 W0", m=1), "rank 0 never does I0"),
        (written("F0 B0 W0", m=1), r"rank 0 does B0 and parts of it \(I, W\): choose one"),
        (written("F0 B0 F1 B1", m=1), r"rank 0, action 2 \(F1\): micro-batches are 0 to 0"),
        (written("F0 B0.1", m=1), r"rank 0, action 1 \(B0.1\): chunks are 0 to 0"),
        (written("B0", m=1), "rank 0 never does F0"),
        (written("", m=1), "never does F0; rank 0 never does B0"),
        (replace(written("F0 B0", m=1), num_ranks=2), "it has 1 rows for 2 ranks"),
        (
            replace(written("F0 B0", m=1), actions=((Action("X", 0),),)),
            r"rank 0, action 0 \(X0\): the kind must be one of F, B, I, W",
        ),
        (
            written("F0 B0 F1 B1", "F1 F0 B0 B1", m=2),
            (
                r"deadlock, rank 0 at action 1 \(B0\) waits for the gradient of B0 of rank 1, its "
                r"action 2, and rank 1 at action 0 \(F1\) waits for the activations of F1 of rank "
                "0, its action 2$"
            ),
        ),
        (
            written("F0.1 F0 B0.1 B0", m=1, v=2),
            r"deadlock, rank 0 at action 0 \(F0.1\) waits for the activations of F0 of rank 0",
        ),
    ],
)
def test_a_wrong_schedule_is_explained(schedule, message):
    with pytest.raises(ValueError, match=message):
        pipeline.validate(schedule)


def test_faults_of_a_schedule_are_few_none_for_the_order_of_use_and_name_the_circle_alone():
    with pytest.raises(ValueError, match=r"and 3 more$"):
        pipeline.validate(written("", m=4))
    assert pipeline.problems(written("F0 F1 B0 B1", "F1 F0 B1 B0", m=2)) == []
    (fault,) = pipeline.problems(written("F0 B0 F1 B1", "F1 F0 B0 B1", "F0 F1 B0 B1", m=2))
    assert "rank 0" in fault
    assert "rank 1" in fault
    assert "rank 2" not in fault.replace("of rank 2", "")


def can_run(schedule):
    """Judge by brute force: the right multiset of actions, and no circle in one graph of all."""
    p, m, v = schedule.num_ranks, schedule.num_micro_batches, schedule.num_chunks
    for row in schedule.actions:
        by_place = {}
        for kind, micro_batch, chunk in row:
            by_place.setdefault((micro_batch, chunk), Counter())[kind] += 1
        if set(by_place) != {(k, c) for k in range(m) for c in range(v)}:
            return False
        if any(c not in (Counter("FB"), Counter("FIW")) for c in by_place.values()):
            return False
    rounds = [range(p)[::-1] if c % 2 and schedule.v_shape else range(p) for c in range(v)]
    way = [(rank, c) for c, each in enumerate(rounds) for rank in each]
    graph = graphlib.TopologicalSorter()
    for rank, row in enumerate(schedule.actions):
        for before, after in itertools.pairwise(row):
            graph.add((rank, after), (rank, before))
        for action in row:
            kind, k, chunk = action
            stage, parts = way.index((rank, chunk)), ""
            if kind == "F" and stage > 0:
                source, at = way[stage - 1]
                graph.add((rank, action), (source, Action("F", k, at)))
            if kind in "BI":
                graph.add((rank, action), (rank, Action("F", k, chunk)))
            if kind in "BI" and stage < p * v - 1:
                other, at = way[stage + 1]
                parts = [x for x in "BI" if Action(x, k, at) in schedule.actions[other]]
                graph.add((rank, action), (other, Action(parts[0], k, at)))
            if kind == "W":
                graph.add((rank, action), (rank, Action("I", k, chunk)))
    try:
        graph.prepare()
    except graphlib.CycleError:
        return False
    return True


def corrupted(schedule, luck):
    changed = [list(row) for row in schedule.actions]
    for _ in range(luck.randint(1, 3)):
        row = luck.choice([row for row in changed if row] or [[Action("F", 0)]])
        i, j = luck.randrange(len(row)), luck.randrange(len(row))
        what = luck.choice([*["swap"] * 14, "move", "drop", "again", "kind", "beyond", "number"])
        if what == "swap":
            row[i], row[j] = row[j], row[i]
        elif what == "kind":
            row[i] = row[i]._replace(kind=luck.choice("FBIW"))
        elif what == "number":
            row[i] = row[i]._replace(**{luck.choice(["micro_batch", "chunk"]): luck.randint(-1, 3)})
        else:
            action = row[i] if what in ("again", "beyond") else row.pop(i)
            if what == "beyond":
                action = action._replace(micro_batch=schedule.num_micro_batches)
            row[j:j] = [] if what == "drop" else [action]
    return replace(schedule, actions=tuple(map(tuple, changed)))


def some_schedules():
    for p, m in ((1, 2), (2, 3), (3, 3), (4, 4)):
        yield from (f(p, m) for f in (pipeline.gpipe, pipeline.one_f_one_b, pipeline.zero_bubble))
        if m % p == 0:
            yield pipeline.interleaved(p, m, 2)
    yield from (pipeline.dualpipe_v(p, 2 * p) for p in (1, 2, 3))


def verdicts(num):
    """Give schedules, most of them wrong, with what the validator and brute force say."""
    luck, whole = random.Random(0), list(some_schedules())
    for _ in range(num):
        schedule = corrupted(luck.choice(whole), luck)
        try:
            faults = pipeline.problems(schedule)
        except (KeyError, ValueError) as error:  # a mutant stumbles over what it does not look for
            faults = [repr(error)]
        yield schedule, faults, can_run(schedule)


def test_the_validator_agrees_with_brute_force():
    tally = Counter()
    for schedule, faults, is_right in verdicts(3000):
        assert (not faults) == is_right, f"{schedule}\n{faults}"
        tally[" ".join(faults).partition(" ")[0].strip(",")] += 1
    assert set(tally) == {"", "rank", "deadlock"}
    assert min(tally.values()) > 100


@pytest.mark.parametrize("part", ["_wrong_numbers", "_wrong_counts", "_wrong_order", "_deadlock"])
def test_a_validator_without_one_of_its_parts_is_noticed(part, monkeypatch):
    monkeypatch.setattr(f"llmcourse.parallel.pipeline.validity.{part}", lambda schedule: [])
    assert any(
        (not faults) != is_right or not faults[0].startswith(("rank", "deadlock"))
        for _, faults, is_right in verdicts(500)
        if faults or not is_right
    )


@given(any_numbers())
def test_schedules_have_names(numbers):
    name, p, m, v = numbers
    if m >= p:
        schedule = pipeline.schedule_of(*numbers)
        assert schedule == schedule_named(*numbers)
        assert schedule.name == name
        assert schedule.num_stages == p * v


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 4))
def test_stages_share_out_all_layers(num_layers, p, v):
    if p * v > num_layers:
        with pytest.raises(ValueError, match=f"more than the {num_layers} layers"):
            pipeline.stages_of(num_layers, p, v)
        return
    stages = pipeline.stages_of(num_layers, p, v)
    assert [layer for stage in stages for layer in stage] == list(range(num_layers))
    sizes = list(map(len, stages))
    assert len(sizes) == p * v
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
