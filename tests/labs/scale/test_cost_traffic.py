"""Bytes of a step by formula: against other formulas, published ones, and hand-made cases."""

from dataclasses import replace

import pytest

from llmcourse.model import Transformer, llama3_405b, mixtral_8x7b, stories, tiny, tiny_moe
from llmcourse.parallel.mesh import Split
from llmcourse_labs.scale import arithmetic, cost

# Published formulas, in numbers sent per layer, rank and micro-batch

SIZES = {"batch_size": 3, "length": 16}
WIDE = replace(tiny(), num_heads=8, num_kv_heads=8, qk_norm=False)


@pytest.mark.parametrize("t", [2, 4, 8])
def test_tensor_parallelism_sends_8_b_s_h_per_layer(t):
    """Narayanan et al. 2021, section 3.2: 8 b s h (t-1)/t, twice in forward, twice in backward."""
    sent = cost.tensor_parallel_bytes(WIDE, t, number_bytes=1, **SIZES)
    bsh = 3 * 16 * WIDE.width
    assert sent["blocks"] == WIDE.num_layers * 8 * bsh * (t - 1) / t
    assert sent["gradients"] == 0
    # Korthikanti et al. 2022, section 4.2.2: sequence parallelism sends the same.
    cut = cost.tensor_parallel_bytes(WIDE, t, sequence_parallel=True, number_bytes=1, **SIZES)
    parts = ("embedding", "blocks", "head", "loss")
    assert [cut[part] for part in parts] == [sent[part] for part in parts]
    # And a quarter more with the second all-gather of a layer's input, in backward.
    again = cost.tensor_parallel_bytes(
        WIDE, t, sequence_parallel=True, gather_again=True, number_bytes=1, **SIZES
    )
    assert again == cut | {"blocks": 1.25 * cut["blocks"]}
    assert cut["gradients"] == 2 * (t - 1) / t * 4 * (2 * WIDE.num_layers + 1) * WIDE.width


def test_a_pipeline_sends_b_s_h_each_way_and_v_times_as_much_in_chunks():
    """Narayanan et al. 2021, sections 2.2.2 and 3.2."""
    settings = {"message_bytes": 1000, "num_micro_batches": 5}
    middle = cost.pipeline_bytes(4, index=1, **settings)
    assert (middle["forward"], middle["backward"], middle["tied"]) == (5000, 5000, 0)
    ends = [cost.pipeline_bytes(4, index=i, tied_bytes=7, **settings) for i in (0, 3)]
    assert [e["forward"] for e in ends] == [5000, 0]
    assert [e["backward"] for e in ends] == [0, 5000]
    assert [e["tied"] for e in ends] == [7, 7]
    # Of p v stages, all but the last send forward, all but the first backward.
    for v in (1, 2, 3):
        all_ranks = [cost.pipeline_bytes(4, index=i, num_chunks=v, **settings) for i in range(4)]
        assert sum(each["forward"] for each in all_ranks) == (4 * v - 1) * 5000
        assert sum(each["backward"] for each in all_ranks) == (4 * v - 1) * 5000


def test_a_ring_sends_what_an_all_gather_does_and_twice_as_much_back():
    """Liu et al. 2023, section 3: keys and values go round; back, with their gradients."""
    n, settings = 4, {"batch_size": 3, "length": 16, "num_parameters": 0, "number_bytes": 4}
    sent = cost.context_parallel_bytes(tiny(), n, **settings)
    whole = 2 * tiny().num_layers * 3 * 16 * tiny().num_kv_heads * tiny().head_size
    assert sent["forward"] == arithmetic.sent_bytes("all_gather", 4 * whole, n)
    assert sent["backward"] == 2 * sent["forward"]
    narrow = cost.context_parallel_bytes(tiny(), n, **settings | {"number_bytes": 2})
    assert narrow["backward"] == 3 * narrow["forward"]  # gradients stay float32


def test_a_uniform_router_sends_each_row_away_with_probability_1_minus_1_over_n():
    """Lepikhin et al. 2020: four all-to-alls of a layer's rows, with forward and backward."""
    config = mixtral_8x7b()
    sent = cost.expert_parallel_bytes(config, 8, num_tokens=1000, num_parameters=0, number_bytes=2)
    assert sent["rows"] == 4 * 32 * 2000 * 7 / 8 * 4096 * 2
    assert sent["counts"] == 32 * 7 * 8
    exact = cost.expert_parallel_bytes(
        config, 8, num_tokens=1000, num_parameters=0, sent_rows=5, received_rows=6, number_bytes=2
    )
    assert exact["rows"] == 2 * 11 * 4096 * 2


def test_one_rank_sends_nothing():
    for config in (stories(), tiny_moe()):
        assert not any(cost.layout_bytes(config, Split(), batch_size=2).values())


# Layouts


@pytest.mark.parametrize(
    "config",
    [
        tiny(),
        tiny_moe(),
        replace(tiny(), tied_head=False, qk_norm=True),
        replace(tiny_moe(), qk_norm=True),
    ],
)
def test_what_ranks_hold_adds_up_to_the_model(config):
    whole = cost.rank_parameters(config, Split())
    assert whole.numbers == cost.num_parameters(config)
    assert whole.tensors == len(list(Transformer(config).parameters()))
    stages = [cost.rank_parameters(config, Split(pp=2), place={"pp": i}) for i in range(2)]
    twice = config.tied_head * config.vocab_size * config.width
    assert sum(stage.numbers for stage in stages) == whole.numbers + twice


def test_stages_with_uneven_layers():
    config = replace(tiny(), num_layers=7)
    layers = [cost.rank_parameters(config, Split(pp=3), place={"pp": i}).layers for i in range(3)]
    assert layers == [3, 2, 2]
    in_chunks = Split(pp=3, pipeline="interleaved", chunks=2)
    assert [cost.rank_parameters(config, in_chunks, place={"pp": i}).layers for i in range(3)] == [
        3,
        2,
        2,
    ]
    sixteen = [
        cost.rank_parameters(llama3_405b(), Split(pp=16), place={"pp": i}) for i in range(16)
    ]
    assert sum(stage.layers for stage in sixteen) == 126


def test_llama_405b_at_scale():
    """By hand, for a rank of stage 8 with 8 of 126 layers, of 16 sequences in a step."""
    step = cost.llama_405b_steps()["16 M tokens of 8,192, 16,384 GPUs"]
    assert step.batch_size * step.context_length == 2**24
    sent = step.traffic()
    activations = 8192 * 16384 * 2  # of one micro-batch, in bytes
    assert sent["tp"]["blocks"] == 8 * 4 * 16 * activations * 2 * 7 // 8
    assert sent["pp"]["forward"] == sent["pp"]["backward"] == 16 * activations // 8
    layer = (2 * 16384 * 16384 + 2 * 16384 * 1024 + 3 * 16384 * 53248) // 8 + 2 * 16384
    assert step.held.numbers == 8 * layer
    exact = 127 / 128 * 8 * layer * (4 + 2)
    assert sum(sent["dp"].values()) == pytest.approx(exact, rel=1e-7)
    totals = {axis: sum(parts.values()) / 1e9 for axis, parts in sent.items()}
    assert totals == pytest.approx(
        {"tp": 240.52, "dp": 18.98, "pp": 1.074, "cp": 0, "ep": 0}, rel=1e-3
    )


def test_llama_405b_with_long_sequences():
    """Keys and values of one head of 8 on each tp rank; the ring has 15 hops."""
    step = cost.llama_405b_steps()["16 M tokens of 131,072, 16,384 GPUs"]
    cp = step.traffic()["cp"]
    tokens = 131072 // 16 * 16  # of 16 sequences, an eighth of 128
    assert cp["forward"] == 15 * 8 * 2 * tokens * 128 * 2
    assert cp["backward"] == 3 * cp["forward"]
    names = cost.llama_405b_steps()
    assert [s.batch_size * s.context_length for s in names.values()] == [2**22, *[2**24] * 3]


COPIES = {"sequence_parallel": True, "replicate_kv": True}


@pytest.mark.parametrize(
    ("sizes", "settings", "message"),
    [
        ({"dp": 3}, {}, "batch_size must be a multiple of 3, got 8"),
        ({"cp": 3}, {}, "context_length must be a positive multiple of 6"),
        ({"cp": 2, "tp": 4, **COPIES}, {"context_length": 36}, "divide the 18"),
        ({"pp": 3}, {}, "is 3 stages, more than the 2 layers"),
        ({"pp": 2}, {"place": {"pp": 2}}, "place must be inside"),
        ({"dp": 2}, {"place": {"xp": 0}}, "place must be inside"),
        ({"dp": 2}, {"zero_stage": 4}, "stage must be"),
        ({"tp": 3}, {}, "3 tensor-parallel ranks: num_heads must be divisible, got 4"),
        ({"ep": 2}, {}, "ep must be 1 for a model without experts, got 2"),
        ({"dp": 2}, {"rows": (-1, 2)}, "rows must be two numbers of 0 or more"),
        ({"ep": 3}, {"config": tiny_moe(), "batch_size": 9}, "over 3 ranks; nearest: 2 or 4"),
        ({"tp": 2}, {"config": tiny_moe()}, "tp must be 1 for a model with experts, got 2"),
    ],
)
def test_layouts_that_cannot_be_are_refused(sizes, settings, message):
    given = {"config": tiny(), "batch_size": 8} | settings
    with pytest.raises(ValueError, match=message):
        cost.layout_bytes(split=Split(**sizes), **given)


def test_formulas_refuse_what_cannot_be():
    with pytest.raises(ValueError, match="multiple of the 3 ranks"):
        cost.context_parallel_bytes(tiny(), 3, num_parameters=0, **SIZES)
    with pytest.raises(ValueError, match="4 experts cannot be cut evenly over 3"):
        cost.expert_parallel_bytes(tiny_moe(), 3, num_tokens=1, num_parameters=0)
    with pytest.raises(ValueError, match="gather_again needs sequence_parallel"):
        cost.tensor_parallel_bytes(tiny(), 2, gather_again=True, **SIZES)
    with pytest.raises(ValueError, match="num_micro_batches must be 1 or greater"):
        cost.pipeline_bytes(2, index=0, message_bytes=1, num_micro_batches=0)
