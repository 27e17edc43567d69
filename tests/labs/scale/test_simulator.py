"""simulator: FLOPs, bytes and memory are those of scale.cost; published steps within a few percent.

Mutants that these tests reject: backward once forward; a head that is forgotten, or on every stage;
scores that are moved although they are fused; a message too few in tp's forward or backward;
gradients of keys and values in 16 bits; a bubble of p for p - 1, or without its chunks; a dp that
hides behind a whole step; domains that share one network card; an oversubscribed link inside a pod;
a state that is not sharded; activations of one micro-batch on the first stage; a search that skips
a mesh, or takes the first that fits.
"""

import math
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.model import llama3_8b, llama3_70b, llama3_405b, mixtral_8x7b
from llmcourse.parallel.legal import divisors
from llmcourse.parallel.mesh import Split
from llmcourse.parallel.pipeline.schedules import interleaved, one_f_one_b
from llmcourse_labs.scale import arithmetic, cost, simulator
from llmcourse_labs.scale.arithmetic import timeline
from llmcourse_labs.scale.simulator import Cluster, Efficiency, Job, search, simulate, step
from llmcourse_labs.scale.simulator.__main__ import main
from tests.strategies import small_config

EVERYTHING = Efficiency(
    fitted=1, products=1, attention=1, memory=1, link=1, network=1, launch_s=0, message_s=0
)
SMALL = small_config(
    num_layers=4, width=64, head_size=16, hidden=96, vocab_size=512, context_length=128
)


def alone(config=SMALL, batch_size=1, cluster=None, **how):
    return simulate(config, Split(), cluster or Cluster(num_gpus=1), batch_size=batch_size, **how)


@pytest.fixture
def ideal(monkeypatch):
    """An accelerator of 1 TFLOP/s whose memory and links take no time."""
    fast = replace(
        cost.HARDWARE["H100"],
        dense_bf16_flop_per_s=1e12,
        memory_bytes_per_s=1e40,
        link_bytes_per_s=1e40,
        network_bytes_per_s=1e40,
    )
    monkeypatch.setitem(cost.HARDWARE, "ideal", fast)
    return lambda num_gpus: Cluster(accelerator="ideal", num_gpus=num_gpus, reached=EVERYTHING)


@pytest.mark.parametrize("config", [SMALL, llama3_8b(), mixtral_8x7b()], ids=str)
def test_seconds_without_bandwidth_are_the_flops_of_scale_cost(config, ideal):
    found = alone(config, cluster=ideal(1), scores="kept").seconds_by_part
    length = config.context_length
    flop = cost.forward_flop_by_part(config)
    flop["attention pairs"] *= 2 * length / (length + 1)  # written scores are a whole square
    flop.pop("router", None)
    by_part = {part: seconds * 1e12 / 3 / length for part, seconds in found.items()}
    assert by_part["attention"] == pytest.approx(flop["attention pairs"])
    assert by_part["head"] == pytest.approx(flop["head"])
    assert by_part["products"] == pytest.approx(flop["projections"] + flop["feed_forward"])
    rest = found.keys() - {"attention", "head", "products"}
    assert {part for part in rest if found[part] > 1e-20} == set()


@pytest.mark.parametrize("recompute", cost.FORGOTTEN)
def test_what_is_computed_again_is_scale_costs(recompute, ideal):
    found = alone(SMALL, 2, ideal(1), scores="kept", recompute=recompute).seconds_by_part
    again = cost.training_flop_by_phase(SMALL, forgotten=recompute)["recomputation"]
    again["attention pairs"] *= 2 * 128 / 129
    assert found["recomputation"] * 1e12 == pytest.approx(2 * 128 * sum(again.values()))


def test_fused_attention_does_half_the_pairs_and_computes_them_again_in_backward(ideal):
    kept, again, fused = (
        alone(cluster=ideal(1), scores=scores).seconds_by_part
        for scores in ("kept", "again", "fused")
    )
    assert fused["attention"] == pytest.approx(kept["attention"] / 3 / 2 * 3.5)
    assert again["recomputation"] == pytest.approx(kept["attention"] / 3)
    real = Cluster(accelerator="A100", num_gpus=1)
    kept, fused = (
        alone(cluster=real, scores=s).seconds_by_part["memory"] for s in ("kept", "fused")
    )
    scores_bytes = 4 * 15 * 128 * 128 * 4 * 2  # layers, times moved, pairs, heads, bytes
    assert kept - fused == pytest.approx(scores_bytes / (2.039e12 * 0.86))


@pytest.mark.parametrize(
    ("config", "axes", "settings"),
    [
        (llama3_8b(), {"dp": 2, "tp": 4}, {}),
        (llama3_8b(), {"dp": 2, "tp": 4, "cp": 2}, {"sequence_parallel": True}),
        (llama3_70b(), {"dp": 4, "pp": 4, "tp": 8}, {"sequence_parallel": True}),
        (llama3_70b(), {"pp": 4, "chunks": 5, "tp": 2}, {"pipeline": "interleaved"}),
        (mixtral_8x7b(), {"dp": 2, "ep": 4}, {}),
    ],
    ids=str,
)
def test_bytes_are_those_of_scale_cost(config, axes, settings):
    split = Split(**axes, **settings, micro_batches=8)
    batch = 16 * split.batch_shares
    job = Job(config=config, split=split, batch_size=batch)
    # Without context parallelism's own sum: it is part of dp's here.
    middle = {"pp": min(1, split.pp - 1)}
    whole = cost.Step(
        config=config,
        split=split,
        batch_size=batch,
        context_length=config.context_length,
        zero_stage=1,
        precision=cost.LLAMA_3,
        place=middle,
    ).traffic()
    sent = step.sent_bytes(job)
    assert sent["tp"] == pytest.approx(whole["tp"]["blocks"])
    assert sent["pp"] == whole["pp"]["forward"] + whole["pp"]["backward"]
    assert sent["cp"] == pytest.approx(whole["cp"]["forward"] + whole["cp"]["backward"])
    if split.ep > 1:
        assert sent["ep"] == pytest.approx(whole["ep"]["rows"])
    if split.cp == split.pp == 1:
        mean = whole["dp"]["gradients and parameters"]
        assert sent["dp"] == pytest.approx(mean, rel=1e-6)  # chunks of one number more
    assert (sent["dp"] > 0) == (split.dp * split.cp > 1)


LLAMAS = product((llama3_8b(), llama3_405b()), (1, 3, 4), (1, 8))
HELD = [(config, {"pp": pp, "tp": tp}) for config, pp, tp in LLAMAS]
HELD.append((mixtral_8x7b(), {"ep": 4}))


@pytest.mark.parametrize(("config", "axes"), HELD)
def test_a_rank_of_the_first_stage_holds_what_scale_cost_counts(config, axes):
    split = Split(**axes)
    cluster = Cluster(num_gpus=split.num_ranks)
    found = simulate(config, split, cluster, batch_size=split.ep, zero_stage=1)
    assert found.bytes_by_part["weights"] == 2 * cost.rank_parameters(config, split).numbers


def test_a_message_takes_its_bytes_by_the_bandwidth_of_its_axis_level_and_pod():
    split = Split(dp=2, cp=2, tp=4, sequence_parallel=True)
    cluster = Cluster(accelerator="A100", num_gpus=16, reached=replace(EVERYTHING, link=0.5))
    found = simulate(llama3_8b(), split, cluster, batch_size=2, overlap=False)
    sent, seconds = found.sent_bytes, found.seconds_by_part
    # tp sends five messages for the four of scale.cost: one more gather for each half.
    assert seconds["tp"] == pytest.approx(5 / 4 * sent["tp"] / 150e9)
    assert seconds["cp"] == pytest.approx(sent["cp"] / 150e9)  # still inside the server
    assert seconds["dp"] == pytest.approx(sent["dp"] / (2 * 25e9))  # two ranks of it, two cards
    server = Cluster(accelerator="A100", num_gpus=64, reached=EVERYTHING)
    assert (server.bandwidth(8, 1), server.bandwidth(2, 8)) == (300e9, 25e9)
    assert (server.bandwidth(16, 1), server.bandwidth(16, 4)) == (8 * 25e9, 2 * 25e9)
    assert (server.hop_rate(8), server.hop_rate(16)) == (300e9, 25e9)
    rack = Cluster(accelerator="GB200", num_gpus=144, reached=EVERYTHING)
    assert rack.bandwidth(72, 1) == 900e9
    assert rack.bandwidth(144, 1) == 900e9  # 72 cards of 50 GB/s are more than a link
    meta = Cluster(num_gpus=16_384, pod=3_072, oversubscription=7, reached=EVERYTHING)
    assert meta.bandwidth(128, 128) == 50e9  # 128 rings share what leaves a pod
    assert meta.bandwidth(8, 2_048) == pytest.approx(3_072 * 50e9 / 7 / 2_048)
    assert meta.bandwidth(2, 1_536) == 50e9  # inside a pod


def test_data_parallel_ranks_stand_outside_of_the_stages():
    """As in `parallel.mesh`: with four stages no second replica is in the server."""
    cluster = Cluster(accelerator="A100", num_gpus=32, reached=EVERYTHING)

    def rate(**axes):
        split = Split(**axes, micro_batches=4 if axes.get("pp", 1) > 1 else 1)
        found = simulate(llama3_8b(), split, cluster, batch_size=32, overlap=False)
        return found.sent_bytes["dp"] / found.seconds_by_part["dp"]

    assert rate(dp=16, tp=2) == pytest.approx(4 * 25e9)
    assert rate(dp=4, pp=4, tp=2) == pytest.approx(25e9)
    assert rate(dp=2, pp=4, cp=2, tp=2) == pytest.approx(2 * 25e9)
    assert rate(dp=8, pp=2, tp=2) == pytest.approx(2 * 25e9)
    meta = Cluster(num_gpus=64, pod=8, oversubscription=32, reached=EVERYTHING)
    found = simulate(llama3_8b(), Split(dp=8, tp=8), meta, batch_size=8, overlap=False)
    slow = found.sent_bytes["dp"] / found.seconds_by_part["dp"]
    assert slow == pytest.approx(8 * 50e9 / 32 / 8)  # eight rings leave a pod of eight cards


@pytest.mark.parametrize(
    ("pp", "m", "chunks"), [(2, 4, 1), (4, 4, 1), (4, 12, 1), (2, 4, 2), (4, 8, 3)]
)
def test_stages_take_what_their_timeline_takes(pp, m, chunks, ideal):
    config = replace(SMALL, num_layers=12, vocab_size=1)
    order = "interleaved" if chunks > 1 else "1f1b"
    split = Split(pp=pp, micro_batches=m, chunks=chunks, pipeline=order)
    found = simulate(config, split, ideal(pp), batch_size=m)
    part = replace(config, num_layers=12 // pp // chunks)
    one = simulate(part, Split(), ideal(1), batch_size=1).seconds_by_part
    chunk = one["products"] + one["attention"]
    order = interleaved(pp, m, chunks) if chunks > 1 else one_f_one_b(pp, m)
    units = timeline.simulate(order, forward=1, input_gradient=1, weight_gradient=1)
    expected = float(units.total) / 3 * chunk
    # The head of a single token is all that the last stage has besides.
    assert found.seconds == pytest.approx(expected, rel=1e-2)
    assert found.seconds >= expected * (1 - 1e-12)


def test_one_gpu_sends_nothing():
    found = alone(llama3_8b(), 2)
    axes = ("tp", "cp", "ep", "pp", "dp")
    assert not any(found.seconds_by_part.get(part) for part in (*axes, "bubble"))
    assert not any(found.sent_bytes[axis] for axis in axes)


def test_infinite_bandwidth_leaves_computation_and_bubble(ideal):
    found = simulate(SMALL, Split(dp=2, pp=4, cp=2, tp=2, micro_batches=4), ideal(32), batch_size=8)
    left = {part for part, seconds in found.seconds_by_part.items() if seconds > 1e-20}
    assert left == {"products", "attention", "head", "bubble"}
    assert found.seconds_by_part["bubble"] == pytest.approx(found.seconds * 3 / 7)


def test_the_last_stage_has_the_head_and_data_parallelism_hides_behind_one_micro_batch():
    def parts(config, pp):
        split = Split(pp=pp, micro_batches=pp)
        return simulate(config, split, Cluster(num_gpus=pp), batch_size=pp).seconds_by_part

    both = parts(replace(llama3_8b(), vocab_size=1_000_000), 2)
    assert both["head"] > both["products"] / 2
    # 14 layers on all stages, and the head on the last; seven and the head are less than eight.
    assert parts(llama3_405b(), 9)["head"] > 0
    assert "head" not in parts(llama3_405b(), 16)

    def dp(overlap, micro_batches):
        split = Split(dp=64, micro_batches=micro_batches)
        cluster = Cluster(num_gpus=64, accelerator="V100")
        batch = 64 * micro_batches
        found = simulate(SMALL, split, cluster, batch_size=batch, overlap=overlap).seconds_by_part
        return found["dp"], sum(found[part] for part in ("products", "attention", "memory", "head"))

    (bare, work), (covered, _) = dp(False, 4), dp(True, 4)
    assert covered == pytest.approx(bare - work / 4)
    assert dp(False, 8)[0] == bare


@given(
    share=st.floats(0.2, 0.9),
    name=st.sampled_from(["fitted", "products", "attention", "memory", "link", "network"]),
    scores=st.sampled_from(["kept", "again", "fused"]),
    overlap=st.booleans(),
)
def test_nothing_that_is_faster_makes_a_step_slower(share, name, **how):
    split = Split(dp=4, pp=2, cp=2, tp=8, micro_batches=4, sequence_parallel=True)
    slow, fast = (
        simulate(llama3_8b(), split, Cluster(num_gpus=128, reached=reached), batch_size=16, **how)
        for reached in (replace(Efficiency(), **{name: value}) for value in (share, share + 0.1))
    )
    assert fast.seconds <= slow.seconds * (1 + 1e-12)
    assert fast.seconds == pytest.approx(sum(part * fast.seconds for _, part in fast.shares))


def test_rates_and_utilisation():
    found = simulate(llama3_8b(), Split(dp=4), Cluster(num_gpus=4), batch_size=8)
    tokens = 8 * 8_192
    assert found.tokens_per_s == tokens / found.seconds
    flop = cost.training_flop_per_token(llama3_8b()) * tokens
    assert found.mfu == pytest.approx(flop / found.seconds / 4 / 989.4e12)
    assert 0.3 < found.mfu < 0.803 * 0.79


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_state_is_what_zero_counts(stage):
    found = simulate(SMALL, Split(dp=4), Cluster(num_gpus=4), batch_size=4, zero_stage=stage)
    held = sum(size for part, size in found.bytes_by_part.items() if part != "activations")
    numbers = cost.num_parameters(SMALL)
    expected = arithmetic.memory_bytes(numbers, 4, stage, parameter_bytes=2, gradient_bytes=4)
    if stage == 3:  # and the weights of the layer at work, and of the next one
        expected += 2 * 2 * numbers / 4
    assert held == pytest.approx(expected, rel=1e-6)


def test_activations_are_the_kept_bytes_of_all_micro_batches_on_their_way():
    kept = partial(cost.kept_bytes, SMALL)
    split = Split(pp=4, micro_batches=8)
    first = simulate(SMALL, split, Cluster(num_gpus=4), batch_size=16)  # one layer, four batches
    for found, of_token in (
        (alone(SMALL, 2), 4 * kept()),
        (first, 1 * 4 * kept()),
        (alone(SMALL, 2, recompute="attention"), 4 * kept("attention") + kept()),
        (alone(SMALL, 2, recompute="block"), 4 * kept("block") + kept()),
    ):
        assert found.bytes_by_part["activations"] == 2 * 128 * of_token


def test_tensor_parallelism_cuts_the_stream_only_with_sequence_parallelism_and_the_verdict():
    def kept(**settings):
        found = simulate(SMALL, Split(tp=2, **settings), Cluster(num_gpus=2), batch_size=1)
        return found.bytes_by_part["activations"] / 128 / 4

    whole, stream = cost.kept_bytes(SMALL), 4 * 64 * 2
    assert kept(sequence_parallel=True) == whole / 2
    assert kept() == stream + (whole - stream) / 2
    found = alone(llama3_70b())
    assert not found.fits
    assert found.memory_bytes > 18 * 70e9
    assert alone(SMALL).fits


def test_published_steps_come_out_within_a_few_percent_and_rows_have_their_printed_sizes():
    fitted, predicted = map(simulator.validate, (simulator.FITTED, simulator.PREDICTED))
    assert (len(fitted), len(predicted)) == (5, 17)
    assert simulator.root_mean_square(fitted) < 0.025
    assert 0.05 < simulator.root_mean_square(predicted) < 0.066
    misses = {row.published.name for row in predicted if abs(row.error) > 0.09}
    assert misses == {"Llama 3 405B, 16,384 GPUs, 131,072 tokens"}
    assert max(abs(row.error) for row in predicted) < 0.165
    for row, billions in zip(simulator.MEGATRON, (1.7, 3.6, 7.5, 18.4, 39.1), strict=False):
        assert cost.num_parameters(row.config) / 1e9 == pytest.approx(billions, rel=0.035)
    assert cost.num_parameters(simulator.PALM.config) / 1e9 == pytest.approx(540, rel=0.01)
    assert [row.num_gpus for row in simulator.LLAMA] == [8_192, 16_384, 16_384]
    assert [row.num_gpus for row in simulator.KORTHIKANTI[::2]] == [8, 64, 280, 512]


def brute_force(config, cluster, sequences):
    """The fastest step that fits, of all splits that the rules of search allow."""
    found = []
    sizes = divisors(cluster.num_gpus)
    for dp, pp, cp, tp in product(sizes, repeat=4):
        if dp * pp * cp * tp != cluster.num_gpus or tp > cluster.hardware.domain:
            continue
        for micro, chunks, recompute in product(
            (1, 2, 4, 8), range(1, config.num_layers + 1), cost.FORGOTTEN
        ):
            if sequences % (dp * micro) or chunks not in (1, 2, config.num_layers // pp):
                continue
            m, axes = sequences // dp // micro, {"dp": dp, "pp": pp, "cp": cp, "tp": tp}
            order = "interleaved" if chunks > 1 else "1f1b"
            how = {"sequence_parallel": tp > 1, "replicate_kv": tp > config.num_kv_heads}
            try:
                split = Split(**axes, micro_batches=m, chunks=chunks, pipeline=order, **how)
                split.check(config, sequences)
                one = simulate(config, split, cluster, batch_size=sequences, recompute=recompute)
            except ValueError:
                continue
            if one.fits:
                found.append(one)
    return min(found, key=lambda each: each.seconds)


@pytest.mark.parametrize(("num_gpus", "sequences"), [(1, 4), (4, 8), (16, 8), (8, 32)])
def test_search_finds_what_trying_everything_finds(num_gpus, sequences):
    cluster = Cluster(accelerator="V100", num_gpus=num_gpus)
    config = replace(SMALL, width=1_024, hidden=4_096, head_size=256)
    best = search(config, cluster, num_tokens=sequences * 128)[0]
    assert best.seconds == pytest.approx(brute_force(config, cluster, sequences).seconds, rel=1e-12)


def test_search_returns_every_mesh_once_the_fastest_first():
    config = replace(llama3_8b(), context_length=8_192)
    found = search(config, Cluster(num_gpus=16), num_tokens=2**18)
    seconds = [each.seconds for each in found]
    assert seconds == sorted(seconds)
    meshes = [tuple(each.job.split.sizes.values()) for each in found]
    assert len(set(meshes)) == len(meshes) > 5
    assert all(each.fits for each in found)
    assert {math.prod(mesh) for mesh in meshes} == {16}
    mixture = search(mixtral_8x7b(), Cluster(num_gpus=64), num_tokens=2**22)
    assert {each.job.split.tp for each in mixture} == {1}
    assert {each.job.split.ep for each in mixture} <= {1, 2, 4, 8}


def test_the_command(capsys, monkeypatch):
    monkeypatch.setattr(simulator.published, "fit", lambda: 0.79)
    assert main([]) is None
    printed = capsys.readouterr().out
    assert printed.count("Llama 3 405B") == 3
    assert "not fitted: root mean square" in printed
    assert main(["fit"]) is None
    assert "0.79" in capsys.readouterr().out
    assert "takes fit or nothing, got tune" in main(["tune"])
