"""Bytes of a step by formula, by hand for Llama 3; tests/parallel/test_traffic.py counts them."""

from dataclasses import replace

import pytest

from llmcourse.model import Transformer, llama3_405b, stories, tiny, tiny_moe
from llmcourse.parallel.mesh import Split
from llmcourse_labs.scale import cost


def test_one_rank_sends_nothing():
    for config in (stories(), tiny_moe()):
        assert not any(cost.layout_bytes(config, Split(), batch_size=2).values())


NORMED = replace(tiny(), tied_head=False, qk_norm=True), replace(tiny_moe(), qk_norm=True)


@pytest.mark.parametrize("config", [tiny(), tiny_moe(), *NORMED])
def test_what_ranks_hold_adds_up_to_the_model(config):
    whole = cost.rank_parameters(config, Split())
    assert whole.numbers == cost.num_parameters(config)
    assert whole.tensors == len(list(Transformer(config).parameters()))
    stages = [cost.rank_parameters(config, Split(pp=2), place={"pp": i}) for i in range(2)]
    twice = config.tied_head * config.vocab_size * config.width
    assert sum(stage.numbers for stage in stages) == whole.numbers + twice


def test_stages_with_uneven_layers_and_llama_405b_at_scale_and_with_long_sequences():
    def layers(config, pp, **settings):
        split = Split(pp=pp, **settings)
        return [cost.rank_parameters(config, split, place={"pp": i}).layers for i in range(pp)]

    config = replace(tiny(), num_layers=7)
    assert layers(config, 3) == layers(config, 3, pipeline="interleaved", chunks=2) == [3, 2, 2]
    assert sum(layers(llama3_405b(), 16)) == 126
    # By hand, for a rank of stage 8 with 8 of 126 layers, of 16 sequences in a step.
    step = cost.llama_405b_steps()["16 M tokens of 8,192, 16,384 GPUs"]
    assert step.batch_size * step.context_length == 2**24
    sent = step.traffic()
    activations = 8192 * 16384 * 2  # of one micro-batch, in bytes
    assert sent["tp"]["blocks"] == 8 * 4 * 16 * activations * 2 * 7 // 8
    assert sent["pp"]["forward"] == sent["pp"]["backward"] == 16 * activations // 8
    layer = (2 * 16384 * 16384 + 2 * 16384 * 1024 + 3 * 16384 * 53248) // 8 + 2 * 16384
    assert step.held.numbers == 8 * layer
    assert sum(sent["dp"].values()) == pytest.approx(127 / 128 * 8 * layer * (4 + 2), rel=1e-7)
    totals = {axis: sum(parts.values()) / 1e9 for axis, parts in sent.items()}
    printed = {"tp": 240.52, "dp": 18.98, "pp": 1.074, "cp": 0, "ep": 0}
    assert totals == pytest.approx(printed, rel=1e-3)
    # Keys and values of one head of 8 on each tp rank; the ring has 15 hops.
    cp = cost.llama_405b_steps()["16 M tokens of 131,072, 16,384 GPUs"].traffic()["cp"]
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
