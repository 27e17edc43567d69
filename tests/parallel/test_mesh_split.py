"""Which splits are legal: said by numbers alone, with the rule and the nearest legal values."""

import re
from dataclasses import replace

import pytest

from llmcourse.model import tiny, tiny_moe
from llmcourse.parallel import mesh
from llmcourse.parallel.mesh import Split

DENSE = replace(tiny(), num_layers=4, num_heads=4, num_kv_heads=2, context_length=24)
BATCH = 8


def check(config=DENSE, batch_size=BATCH, **settings):
    Split(**settings).check(config, batch_size)


@pytest.mark.parametrize(
    ("settings", "rule", "nearest"),
    [
        ({"tp": 3}, "num_heads must be divisible, got 4", "nearest: 3 or 6"),
        ({"tp": 4}, "num_kv_heads must be divisible, got 2", "nearest: 4"),
        ({"pp": 5, "micro_batches": 8}, "5 stages", "4"),
        ({"pp": 4, "micro_batches": 2}, "at least the 4 stages of pp, got 2", "nearest: 4"),
        ({"pp": 2, "micro_batches": 3}, "divide a rank's share of 8 sequences", "nearest: 2 or 4"),
        ({"cp": 5}, "multiple of 10, the chunks of the layout", "nearest: 20 or 30"),
        ({"dp": 3}, "multiple of dp x ep = 3, got 8", "nearest: 6 or 9"),
        ({"dp": 16}, "multiple of dp x ep = 16, got 8", "nearest: 16"),
        ({"ep": 2}, "ep must be 1 for a model without experts", "got 2"),
        ({"dp": 4, "pp": 4, "micro_batches": 2}, "change batch_size = 8", "nearest: 16"),
        (
            {"pp": 2, "micro_batches": 4, "chunks": 4, "pipeline": "interleaved"},
            "8 stages",
            "4",
        ),
    ],
)
def test_an_illegal_split_names_the_rule_and_the_nearest_legal_values(settings, rule, nearest):
    with pytest.raises(ValueError, match=re.escape(rule)) as error:
        check(**settings)
    assert nearest in str(error.value)


def test_experts_are_cut_by_ep_and_not_by_tp():
    config = replace(tiny_moe(), num_experts=6)
    check(config, ep=2)
    with pytest.raises(ValueError, match=r"6 experts .* over 4 ranks; nearest: 3 or 6"):
        check(config, ep=4)
    with pytest.raises(ValueError, match="tp must be 1 for a model with experts"):
        check(config, tp=2)


def test_sequence_parallel_needs_a_part_of_the_sequence_that_divides():
    config = replace(DENSE, num_heads=8, num_kv_heads=4, context_length=12)
    check(config, tp=4, sequence_parallel=True)
    with pytest.raises(ValueError, match=r"tp must divide the 6 tokens .* got 4.* nearest: 3 or 6"):
        check(config, cp=2, tp=4, sequence_parallel=True)


def test_interleaving_wants_a_multiple_of_the_stages():
    settings = {"pp": 2, "chunks": 2, "pipeline": "interleaved"}
    check(**settings, micro_batches=4)
    with pytest.raises(ValueError, match=r"a multiple of 2, got 3; nearest: 2 or 4"):
        check(batch_size=12, **settings, micro_batches=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dp": 0}, "dp must be 1 or greater"),
        ({"micro_batches": 0}, "micro_batches must be 1 or greater"),
        ({"sequence_parallel": True}, "have no effect with tp = 1"),
        ({"replicate_kv": True}, "have no effect with tp = 1"),
        ({"pipeline": "gpipe"}, "has no effect with pp = 1"),
        ({"pp": 2, "chunks": 2}, "interleaved wants 2"),
        ({"pp": 2, "pipeline": "interleaved"}, "interleaved wants 2"),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Split(**settings)


def test_copies_of_key_value_heads_are_asked_for_and_needed():
    check(tp=4, replicate_kv=True)
    with pytest.raises(ValueError, match="replicate_kv has no effect"):
        check(tp=2, replicate_kv=True)


def test_a_mesh_is_read_from_text():
    assert mesh.parse("dp=2, tp=4,pp=1") == {"dp": 2, "tp": 4, "pp": 1}
    split = Split(**mesh.parse("tp=2,dp=3"))
    assert list(split.sizes.items()) == [("dp", 3), ("pp", 1), ("cp", 1), ("ep", 1), ("tp", 2)]
    assert split.num_ranks == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=2,xp=2", "an axis 'xp'"),
        ("dp=2,dp=2", "names the axis dp twice"),
        ("dp=two", "gives dp the size 'two'"),
        ("dp=0", "gives dp the size '0'"),
        ("dp", "gives dp the size ''"),
        ("dp=2;tp=2", "gives dp the size '2;tp=2'"),
    ],
)
def test_a_mesh_that_cannot_be_read_says_how_to_write_one(text, message):
    with pytest.raises(ValueError, match=message):
        mesh.parse(text)


def test_interleaving_names_a_batch_that_can_be_cut():
    deep, settings = replace(DENSE, num_layers=8), {"chunks": 2, "pipeline": "interleaved"}
    with pytest.raises(ValueError, match=r"change batch_size = 9; nearest: 8 or 10"):
        check(deep, 9, pp=2, **settings)
    with pytest.raises(ValueError, match=r"change batch_size = 6; nearest: 4 or 8"):
        check(deep, 6, pp=4, **settings)
    check(deep, 10, pp=2, micro_batches=10, **settings)
    check(deep, 4, pp=4, micro_batches=4, **settings)


def test_a_number_beyond_all_machines_is_refused_at_once():
    with pytest.raises(ValueError, match="num_heads must be divisible"):
        check(tp=1_000_000_007)
    with pytest.raises(ValueError, match="at least the 2 stages of pp, got 1; nearest: 2"):
        check(batch_size=1_000_000_000, pp=2)
