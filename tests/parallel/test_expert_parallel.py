"""Expert parallelism in real processes equals one process that has all experts."""

from functools import lru_cache

import numpy as np
import programs_expert_parallel as programs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from parallel_kit import axis, error

from llmcourse.parallel import expert_parallel
from llmcourse.parallel.expert_parallel.experts import regroup

NUM_RANKS = (1, 2, 3, 4)
AXIS = "ep"
MUTANTS = list(programs.MUTANTS)


def mine(name: str, whole, index: int, size: int):
    cut = expert_parallel.slice_of(name, whole.shape, index, size)
    return whole if cut is None else whole.narrow(cut[0], cut[1], cut[2] - cut[1])


# Rows
@pytest.mark.parametrize("num_ranks", NUM_RANKS)
def test_rows_arrive_by_rank_and_gradients_go_back(run, num_ranks):
    for index, (rows, gradient, counts) in enumerate(run(num_ranks, programs.exchange_rows)):
        # Rank s sends s + index rows to this one; rank s gives its gradients the value s + 1.
        sources = np.repeat(np.arange(num_ranks), np.arange(num_ranks) + index)
        np.testing.assert_array_equal(rows, np.stack([sources, sources], 1))
        owners = np.repeat(np.arange(num_ranks), counts)
        np.testing.assert_array_equal(gradient, np.stack([owners, owners], 1) + 1.0)


counts_tables = st.integers(1, 4).flatmap(
    lambda e: st.lists(st.lists(st.integers(0, 3), min_size=e, max_size=e), min_size=1, max_size=4)
)


@given(counts_tables)
def test_regrouping_sorts_by_expert_then_rank_and_back(table):
    counts = torch.tensor(table)
    n, e = counts.shape
    names = [(b, a, i) for a in range(n) for b in range(e) for i in range(table[a][b])]
    rows = torch.tensor(names, dtype=torch.float32).view(-1, 3)
    grouped = regroup(rows, counts)
    assert grouped.tolist() == sorted(rows.tolist())
    assert torch.equal(regroup(grouped, counts.T), rows)


# A layer
def check_layer(run, num_ranks, case, dtype, mutant=None):
    expected = programs.layer_alone(case, num_ranks, dtype)
    results = run(num_ranks, programs.layer_on_ranks, case, dtype, mutant=mutant)
    # Two orders of a sum of n terms differ by 2 (n-1) u of the sum of magnitudes, u half of eps.
    # Magnitudes add up to no more than a few times the largest entry; 4 for three sums in a row:
    # D, F, and an expert's rows.
    bound = 4 * (programs.WIDTH + programs.HIDDEN + 5 * 4) * torch.finfo(getattr(torch, dtype)).eps
    errors = []
    for name, whole in expected["weights"].items():
        parts = [result["weights"][name] for result in results]
        assert all(part is not None for part in parts), "an expert without a gradient"
        errors.append(compared(np.concatenate(parts), whole))
    for key in ("out", "drows"):
        ours = np.concatenate([result[key] for result in results])
        errors.append(compared(ours, torch.cat(expected[key])))
    assert max(errors) <= bound, max(errors)
    return max(errors)


def compared(ours, theirs) -> float:
    """Return the error; where the reference has nothing but zeros, there is none to be found."""
    if not torch.any(theirs):
        assert not np.any(ours)
        assert ours.shape == theirs.shape
        return 0.0
    return error(ours, theirs)


@pytest.mark.parametrize("num_ranks", NUM_RANKS)
@pytest.mark.parametrize("case", programs.CASES)
def test_a_layer_is_that_of_one_process(run, num_ranks, case):
    check_layer(run, num_ranks, case, "float64" if num_ranks % 2 else "float32")


@pytest.mark.parametrize("mutant", MUTANTS[:7])
def test_a_wrong_layer_is_noticed(run, mutant):
    with pytest.raises(AssertionError):
        check_layer(run, 3, "uneven", "float32", mutant)


def test_rows_may_come_back_in_another_dtype(run):
    alone, together = run(1, programs.narrow_layer), run(3, programs.narrow_layer)
    assert {result["dtype"] for result in (*alone, *together)} == {"torch.bfloat16"}
    expected = programs.layer_alone("uneven", 3, "float32")
    for key in ("out", "drows"):
        ours = np.concatenate([result[key] for result in together])
        # Products of bf16, whose half eps is 2^-9, three in a row; then sums of some 10 of them.
        assert 1e-4 < compared(ours, torch.cat(expected[key])) < 4 * 2**-8


# A model
alone = lru_cache(programs.alone)


def check_model(run, num_ranks, dtype, *, mutant=None, expected=None, **settings):
    """Check losses, gradients and parameters over several steps against one process."""
    expected = expected or alone(num_ranks, dtype, **settings)
    results = run(num_ranks, programs.on_ranks, dtype, mutant=mutant, **settings)
    by_share = settings.get("balance_weight", 0) > 0
    first, later, parameters = [], [], []
    for step, losses in enumerate(expected["losses"]):
        ours = [result["losses"][step] for result in results]
        # Means of means over shares, equally large.
        later.append(error(ours, losses) if by_share else error([np.mean(ours)], losses))
    for index, result in enumerate(results):
        for name, whole in expected["parameters"].items():
            part = mine(name, whole, index, num_ranks)
            parameters.append(error(result["parameters"][name], part))
        for step, gradients in enumerate(expected["gradients"]):
            for name, whole in gradients.items():
                assert bool(whole.any()), name
                assert name in result["gradients"][step], f"{name} without a gradient"
                part, ours = mine(name, whole, index, num_ranks), result["gradients"][step][name]
                assert ours.shape == tuple(part.shape)
                # Relative to the whole: nobody may have chosen any of this rank's experts.
                found = np.abs(ours - part.numpy()).max() / float(whole.abs().max())
                (later if step else first).append(float(found))
    # Seen at most 11, 19 and 21 eps; sums of some 50 terms follow each other in two layers.
    eps = torch.finfo(getattr(torch, dtype)).eps
    assert max(first) <= 64 * eps, max(first)
    assert max(later + parameters) <= 128 * eps, max(later + parameters)
    return results


@pytest.mark.parametrize(
    ("num_ranks", "dtype", "balance_weight"),
    [  # every pair of two
        (1, "float64", 0.0),
        (2, "float64", 0.1),
        (2, "float32", 0.0),
        (3, "float64", 0.0),
        (3, "float32", 0.1),
        (4, "float64", 0.1),
        (4, "float32", 0.0),
    ],
)
def test_a_model_follows_one_process(run, num_ranks, dtype, balance_weight):
    results = check_model(run, num_ranks, dtype, balance_weight=balance_weight)
    # Ranks begin with different losses, and hold different experts.
    experts = "blocks.1.feed_forward.experts.w_down"
    assert len({result["losses"][0] for result in results}) == num_ranks
    assert len({result["parameters"][experts].tobytes() for result in results}) == num_ranks


def test_a_capacity_is_of_each_share_and_what_is_computed_again_travels_again(run):
    """Every rank drops what exceeds the capacity of its own share, as GShard's groups do."""
    check_model(run, 3, "float64", balance_weight=0.1, capacity_factor=0.75)
    # Backward computes a block again, on all ranks at the same time, and sends its rows again.
    kept, again = (run(2, programs.on_ranks, "float64", steps=1, again=x) for x in (None, "block"))
    for before, after in zip(kept, again, strict=True):
        for name, gradient in before["gradients"][0].items():
            assert error(after["gradients"][0][name], gradient) <= 1e-14
        # Of four messages of a row, two are sent twice, and so are the counts of two layers.
        counts_bytes = 2 * programs.NUM_EXPERTS // 2 * 8
        assert after["sent_bytes"][0] == 1.5 * before["sent_bytes"][0] + counts_bytes / 2


@pytest.mark.parametrize("mutant", [*MUTANTS[:5], *MUTANTS[7:10]])
def test_a_wrong_model_is_noticed(run, mutant):
    with pytest.raises(AssertionError):
        check_model(run, 2, "float32", mutant=mutant)


def test_experts_without_rows_decay_like_all_others(run):
    """A rank whose experts nobody chose has gradients of 0, so that its optimizer moves on."""
    favoured = [0, 1, 5]
    expected = programs.alone(3, "float64", favoured=favoured)
    assert not expected["gradients"][0]["blocks.0.feed_forward.experts.w_up"][8:].any()
    settings = {"expected": expected, "favoured": favoured}
    check_model(run, 3, "float64", **settings)
    with pytest.raises(AssertionError, match="without a gradient"):
        check_model(run, 3, "float64", mutant="no rows, no gradient", **settings)


# Names
def test_names_tell_how_a_parameter_is_cut_and_frozen_experts_stay_frozen():
    model = programs.model_of("float32")
    whole = {name: tuple(p.shape) for name, p in model.named_parameters()}
    expert_parallel.shard_experts(model, axis())
    owned = expert_parallel.owned_parameters(model)
    assert whole.keys() == dict(model.named_parameters()).keys()
    for name, shape in whole.items():
        cut = expert_parallel.slice_of(name, shape, 2, 4)
        assert cut == ((0, 6, 9) if name in owned else None), name
    assert len(owned) == 3 * model.config.num_layers
    model = programs.model_of("float32")
    model.blocks[0].feed_forward.experts.requires_grad_(False)
    expert_parallel.shard_experts(model, axis())
    experts = [block.feed_forward.experts for block in model.blocks]
    assert [each.w_up.requires_grad for each in experts] == [False, True]
