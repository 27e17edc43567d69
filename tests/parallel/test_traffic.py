"""Ranks send exactly the bytes that the formulas of `scale.cost` say, in real small runs."""

import programs_traffic as programs
import pytest
from programs_traffic import MODELS

from llmcourse.parallel import mesh
from llmcourse_labs.scale import cost

BATCH, LENGTH = 8, 24


# Each kind of parallelism by itself
@pytest.mark.parametrize(
    ("num_ranks", "name"),
    [(2, "tied"), (2, "untied"), (3, "three"), (4, "tied"), (4, "untied"), (4, "one kv head")],
)
def test_each_kind_sends_its_formula(pools, num_ranks, name):
    results = pools(num_ranks).run(programs.sent_by_each, name, 3, LENGTH)
    for index, sent in enumerate(results):
        assert sent == programs.each_by_formula(MODELS[name], num_ranks, index, 3, LENGTH)
        assert min(sent.values()) > 0
    if name == "three":  # 3 divides neither parameters nor activations
        assert len({sent["bucketed"] for sent in results}) > 1


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_a_mixture_sends_at_least_counts_and_gradients(pools, num_ranks):
    """What it sends to the byte is tested on meshes, where rows are counted."""
    config = MODELS["mixture"]
    results = pools(num_ranks).run(programs.sent_by_each, "mixture", 3, LENGTH)
    held = cost.rank_parameters(config, mesh.Split(ep=num_ranks))
    summed = held.numbers - held.expert_numbers + held.tensors - held.expert_tensors
    settings = {"num_tokens": 3 * LENGTH, "num_parameters": summed}
    settings |= {"sent_rows": 0, "received_rows": 0}
    rest = []
    for index, sent in enumerate(results):
        nothing = cost.expert_parallel_bytes(config, num_ranks, index=index, **settings)
        rest.append(sent["experts"] - sum(nothing.values()))
    # A row that leaves one rank is one that another one gets: 4 messages in all.
    assert sum(rest) % (4 * config.width * 4) == 0
    most = config.num_layers * num_ranks * 3 * LENGTH * config.experts_per_token
    assert 0 < sum(rest) < most * 4 * config.width * 4


# Layouts
CHUNKS = {"pipeline": "interleaved", "chunks": 2}
LAYOUTS = {
    "dp": {"dp": 2},
    "dp, 3 ranks": {"dp": 3},
    "pp": {"pp": 2, "micro_batches": 4},
    "pp, 3 ranks": {"pp": 3, "micro_batches": 4, "pipeline": "zero_bubble"},
    "pp, 4 ranks": {"pp": 4, "micro_batches": 4, "pipeline": "gpipe"},
    "pp, 2 chunks": {"pp": 2, "micro_batches": 2, **CHUNKS},
    "cp": {"cp": 2, "micro_batches": 2},
    "cp, 3 ranks": {"cp": 3},
    "tp": {"tp": 2, "micro_batches": 2},
    "tp, 4 ranks, copies": {"tp": 4, "replicate_kv": True, "sequence_parallel": True},
    "dp x tp": {"dp": 2, "tp": 2, "micro_batches": 2, "sequence_parallel": True},
    "dp x pp": {"dp": 2, "pp": 2, "micro_batches": 4},
    "pp x cp": {"pp": 2, "cp": 2, "micro_batches": 2},
    "cp x tp": {"cp": 2, "tp": 2, "sequence_parallel": True},
    "pp x tp": {"pp": 2, "tp": 2, "micro_batches": 4, "sequence_parallel": True},
    "pp x tp, 2 chunks": {"pp": 2, "tp": 2, "micro_batches": 2, **CHUNKS},
}
WITH_EXPERTS = {
    "ep": {"ep": 2, "micro_batches": 2},
    "ep, 3 ranks": {"ep": 3},
    "dp x ep": {"dp": 2, "ep": 2},
    "pp x ep": {"pp": 2, "ep": 2, "micro_batches": 2},
    "cp x ep": {"cp": 2, "ep": 2},
}
CASES = [
    *((text, name) for text in LAYOUTS for name in ("tied", "untied")),
    *((text, "mixture") for text in WITH_EXPERTS),
]


def check_layout(pools, text, name, mutant=None):
    """Check every rank's bytes along every axis, and what it holds."""
    settings, config = (LAYOUTS | WITH_EXPERTS)[text], MODELS[name]
    if settings.get("replicate_kv") and config.num_kv_heads % settings["tp"] == 0:
        settings = {**settings, "replicate_kv": False}
    split = mesh.Split(**settings)
    batch = 12 if 3 in split.sizes.values() else BATCH
    given = name, settings, batch, LENGTH
    results = pools(split.num_ranks).run(programs.sent_on_mesh, *given, mutant=mutant)
    for result in results:
        place = result["place"]
        along_ep = [each for each in results if each["place"] | {"ep": 0} == place | {"ep": 0}]
        sent = sum(rows for rank, rows in enumerate(result["rows"]) if rank != place["ep"])
        received = sum(other["rows"][place["ep"]] for other in along_ep if other is not result)
        shape = {"batch_size": batch, "context_length": LENGTH}
        rows = int(sent), int(received)
        expected = cost.layout_bytes(config, split, **shape, place=place, rows=rows)
        assert result["sent"] == expected, place
        held = cost.rank_parameters(config, split, place=place)
        assert (held.numbers, held.tensors) == (result["numbers"], result["tensors"])
        assert sorted(mesh.names_of(config, split, place)) == result["names"]
        assert all(expected[axis] > 0 for axis, size in split.sizes.items() if size > 1)


@pytest.mark.parametrize(("text", "name"), CASES)
def test_a_layout_sends_its_formula_along_every_axis(pools, text, name):
    check_layout(pools, text, name)


@pytest.mark.parametrize(
    ("mutant", "text", "name"),
    [
        ("the embedding's two gradients are not exchanged", "pp", "tied"),
        ("gradients of norms are not summed", "cp x tp", "tied"),
        ("gradients are not summed over cp, ep and dp", "cp", "untied"),
        ("counts travel as int32", "ep", "mixture"),
    ],
)
def test_other_bytes_are_noticed(pools, mutant, text, name):
    with pytest.raises(AssertionError):
        check_layout(pools, text, name, mutant)
