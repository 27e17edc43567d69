"""scale: what cannot be is refused by name, with the rule and what was given."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from llmcourse.model import llama3_8b, llama3_70b, tiny
from llmcourse.parallel.mesh import Split
from llmcourse_labs.scale import cluster, cost, laws, roofline, simulator
from llmcourse_labs.scale.laws import KaplanLaw, ParametricLaw
from llmcourse_labs.scale.simulator import Cluster, Efficiency, Job, choose, search, simulate
from tests.strategies import small_config

TINY, EIGHT = tiny(), replace(llama3_8b(), context_length=8_192)
MIXTURE = small_config(num_experts=4, experts_per_token=2)
SIZES = np.tile(np.geomspace(2e4, 1e6, 6), 5)
TOKENS = np.repeat(np.geomspace(3e11, 6e12, 5), 6) / 6 / SIZES
ONES, VALLEY = np.ones(30), [1e5, 1e6, 1e7]
LAW = ParametricLaw(E=0.38, A=60.0, B=400.0, alpha=0.45, beta=0.5)
H100, V100 = cost.HARDWARE["H100"], cost.HARDWARE["V100"]
MACHINE = roofline.accelerator("H100")


LENGTHS = {"batch_size": 3, "length": 16}
RING, AGAIN = LENGTHS | {"num_parameters": 0}, LENGTHS | {"gather_again": True}
ROWS = {"num_tokens": 1, "num_parameters": 0}
NO_BATCHES = {"index": 0, "message_bytes": 1, "num_micro_batches": 0}
ON_TPU = {"hardware": cost.HARDWARE["TPUv5p"], "mfu": 0.4, "num_gpus": 1}
ON_TPU |= {"flop": 1e20, "dollars_per_gpu_hour": 1}


def found(by, config, num_gpus, num_tokens):
    return by(config, Cluster(num_gpus=num_gpus), num_tokens=num_tokens)


def simulated(num_gpus, batch_size=2, **axes):
    return simulate(TINY, Split(**axes), Cluster(num_gpus=num_gpus), batch_size=batch_size)


def sharded(shards, zero_stage=3, **axes):
    split = Split(dp=8, **axes)
    return Job(config=EIGHT, split=split, batch_size=16, shards=shards, zero_stage=zero_stage)


def seconds(**changes):
    right = {"num_parameters": 1e9, "num_tokens": 1e9, "num_gpus": 8, "utilisation": 0.4}
    return cost.training_seconds(**right | changes, hardware=cost.HARDWARE["A100"])


def rate(**changes):
    right = {"tokens_per_s": 100, "flop_per_token": 1e6, "num_gpus": 1, "hardware": H100}
    return cost.utilisation_from_rate(**right | changes)


def faults(**changes):
    return cluster.Faults(**{"interval_s": 1, "save_s": 1, "restart_s": 1, "mtbf_s": 1} | changes)


def hours(flop=1e19, gpu_hours=10, hardware=H100):
    return cost.utilisation_from_hours(flop=flop, gpu_hours=gpu_hours, hardware=hardware)


def energy(**changes):
    return cost.energy_kwh(**{"gpu_hours": 10, "watts_per_gpu": 700} | changes)


def break_even(large):
    sizes = {"small_parameters": 10, "large_tokens": 1, "small_tokens": 1}
    return cost.break_even_tokens(large_parameters=large, **sizes)


REFUSED = [
    # simulator
    (lambda: Cluster(accelerator="H1000"), "accelerator must be one of V100"),
    (lambda: Cluster(num_gpus=0), "num_gpus must be 1 or greater, got 0"),
    (lambda: Cluster(oversubscription=7), "no effect without a pod"),
    (lambda: Cluster(pod=4), "pod must be at least a domain of 8 GPUs, got 4"),
    (lambda: Cluster(pod=64, oversubscription=0.5), "oversubscription must be 1 or greater"),
    (lambda: Efficiency(link=-1), "link must be above 0, got -1"),
    (lambda: Efficiency(memory=1.1), "memory must be at most 1, got 1.1"),
    (lambda: Efficiency(launch_s=-1e-6), "launch_s must be 0 or greater"),
    (lambda: simulated(4, dp=2), "has 2 ranks, and the cluster 4 GPUs"),
    (lambda: simulated(3, tp=3), "a model cannot be cut among 3 tensor-parallel ranks"),
    (lambda: simulated(2, 3, dp=2), "a multiple of dp x ep x micro_batches = 2, got 3"),
    (lambda: found(search, TINY, 1, 40), "multiple of the 32 tokens of a sequence, got 40"),
    (lambda: found(search, llama3_8b(), 1, 2**16), "layout of 1 GPUs: .* 80: take more.*fits on 2"),
    (lambda: found(search, TINY, 7, 32), "no layout of 7 GPUs divides 1 sequences"),
    (lambda: sharded(8, 1), "shards must divide dp x cp = 8, at stage 3 and without"),
    (lambda: sharded(3), "shards must divide dp x cp = 8, at stage 3 and without"),
    (lambda: sharded(8, pp=2, micro_batches=2), "dp x cp = 8, at stage 3 and without"),
    (lambda: found(choose, EIGHT, 8_192, 2**22), "512 tokens for each of 8,192 GPUs, .* wants 1"),
    (lambda: found(choose, EIGHT, 1, 8_193), "multiple of the 8,192 tokens of a seq.*, got 8,193"),
    (lambda: found(choose, llama3_70b(), 8, 2**26), "the rule finds no layout of 8 GPUs that fits"),
    # cost
    (lambda: cost.kept_bytes(MIXTURE, "cheap"), "experts keep other tensors"),
    (lambda: cost.model_flop_per_token(1e9, num_layers=3), "give all of num_layers, attention_wid"),
    (lambda: cost.model_flop_per_token(0), "num_parameters must be above 0"),
    (lambda: cost.context_parallel_bytes(TINY, 3, **RING), "multiple of the 3 ranks"),
    (lambda: cost.expert_parallel_bytes(MIXTURE, 3, **ROWS), "4 experts cannot be cut evenly over"),
    (lambda: cost.tensor_parallel_bytes(TINY, 2, **AGAIN), "gather_again needs sequence_parallel"),
    (lambda: cost.pipeline_bytes(2, **NO_BATCHES), "num_micro_batches must be 1 or greater"),
    (lambda: seconds(num_gpus=0), "num_gpus must be above 0"),
    (lambda: seconds(num_tokens=-1), "num_tokens must be above 0"),
    (lambda: seconds(utilisation=0.0), "utilisation must be above 0"),
    (lambda: seconds(utilisation=1.2), "utilisation must be at most 1"),
    (lambda: cost.forward_flop_by_part(TINY, context_length=0), "context_length must be 1 or"),
    (lambda: hours(3.14e23, 3_640, V100), "at least 697,778 GPU-hours, 3,640 are given: check"),
    (lambda: hours(gpu_hours=0), "gpu_hours must be above 0, got 0"),
    (lambda: hours(flop=-1), "flop must be above 0"),
    (lambda: cost.gpu_hours(flop=1e20, hardware=H100, mfu=40), "got 40: write 40 % as 0.4"),
    (lambda: cost.gpu_hours(flop=1e20, hardware=H100, mfu=0), "mfu must be above 0"),
    (lambda: cost.gpu_hours(flop=1e20, hardware=H100, mfu=math.nan), "mfu must be above 0"),
    (lambda: cost.days(gpu_hours=-2, num_gpus=2), "gpu_hours must be above 0, got -2: give GPUs"),
    (lambda: cost.days(gpu_hours=10, num_gpus=0), "num_gpus must be 1 or greater"),
    (lambda: cost.dollars(gpu_hours=10, dollars_per_gpu_hour=0), "dollars_per_gpu_hour must be ab"),
    (lambda: energy(pue=0.9), "pue must be 1 or greater, got 0.9: a data centre draws"),
    (lambda: energy(pue=math.nan), "pue must be 1 or greater"),
    (lambda: energy(host_share=82), "host_share must be at most 1, got 82: write"),
    (lambda: energy(host_share=-0.1), "host_share must be 0 or greater"),
    (lambda: energy(watts_per_gpu=0), "watts_per_gpu must be above 0"),
    (lambda: cost.bill(**ON_TPU), "power of a Google TPU v5p is not published: give watts_per_gpu"),
    (lambda: rate(tokens_per_s=0), "tokens_per_s must be"),
    (lambda: rate(flop_per_token=0), "flop_per_token must be"),
    (lambda: rate(num_gpus=0), "num_gpus must be"),
    (lambda: break_even(10), "large_parameters must be above 10"),
    # roofline
    (lambda: replace(MACHINE, products=()), "products must be pairs above 0"),
    (lambda: replace(MACHINE, streams=((1.0, -3.0),)), "streams must be pairs above 0"),
    (lambda: replace(MACHINE, attention=((2.0, 1.0), (1.0, 1.0))), "must have ascending sizes"),
    (lambda: replace(MACHINE, call_s=-1), "call_s must be"),
    (lambda: roofline.accelerator("H1000"), "accelerator must be one of V100, .*, got 'H1000'"),
    (lambda: roofline.attainable_flop_per_s(MACHINE, 0), "intensity must be above 0"),
    (lambda: roofline.training_operations(TINY, batch_size=0), "batch_size must be"),
    (lambda: roofline.decode_operations(MIXTURE, batch_size=1, length=1), "num_experts must be 0"),
    (lambda: roofline.product(1, 0, 1, number_bytes=2), "k must be"),
    (lambda: roofline.median_seconds(lambda: None, rounds=0), "rounds must be"),
    # failures
    (lambda: cluster.mean_time_between(0, 5.0), "num_failures must be above 0, got 0"),
    (lambda: cluster.young_interval(0, 5.0), "save_s must be above 0, got 0"),
    (lambda: cluster.daly_interval(5, -1.0), "mtbf_s must be above 0"),
    (lambda: cluster.best_interval(5, math.nan), "mtbf_s must be above 0, got nan"),
    (lambda: cluster.seconds_for_share(1, 8), "lost_share must be below 1, got 1"),
    (lambda: faults(interval_s=0), "interval_s must be ab"),
    (lambda: faults(save_s=-1), "save_s must be 0 or"),
    (lambda: faults(spares=-1), "spares must be 0 or greater"),
    (lambda: faults(repair_s=5), "repair_s has no effect"),
    (lambda: cluster.simulate(0, faults(), generator=torch.Generator()), "duration_s must be abo"),
    (lambda: cluster.expected_share(1, save_s=1, restart_s=-1, mtbf_s=1), "restart_s must be 0 or"),
    # laws
    (lambda: LAW.optimum(0), "flop must be above 0"),
    (lambda: replace(LAW, beta=-1), "beta must be above 0, got -1"),
    (lambda: laws.interval([1, 2, 3], share=1.0), "share must be below 1"),
    (lambda: ParametricLaw.fit(SIZES, TOKENS, ONES, delta=0), "delta must be above 0"),
    (lambda: ParametricLaw.bootstrap(SIZES, TOKENS, ONES, num=0), "num must be 1 or greater"),
    (lambda: laws.valley([1e5, 1e6, 1e6], [1, 2, 3]), "2 sizes make no parabola"),
    (lambda: laws.valley(VALLEY, [1, 2, 1]), "no valley, the curvature is -.*smaller and larger"),
    (lambda: laws.valley(VALLEY, [3, 2, 1]), "no valley, the curvature is|outside the sizes"),
    (lambda: laws.valley(VALLEY, [3, 2, 1.5]), r"from 1e\+05 to 1e\+07 parameters: add larger"),
    (lambda: laws.valley(VALLEY, [1, 1.5, 2.5]), "outside the sizes, .*: add smaller ones"),
    (lambda: laws.valley(VALLEY, [1, math.nan, 2.5]), "loss 1 is nan: it must be finite and above"),
    (lambda: laws.valley([1e5, -1e6, 1e7], [1, 2, 2.5]), "size 1 is -1000000.0: it must be finite"),
    (lambda: laws.valley([1e5, 1e6], [1, 2, 2.5]), r"the shapes are \(2,\) and \(3,\)"),
    (lambda: laws.power_law([2.0, 2.0], [1.0, 3.0]), "one x gives no exponent: give 2 or more"),
    (lambda: laws.power_law([2.0, 3.0], [0.0, 3.0]), r"y 0 is 0\.0: it must be finite and above"),
    (lambda: laws.LLAMA3_FIGURE.value(0), "x must be above 0"),
    (lambda: laws.PowerLaw(coefficient=0, exponent=0.5), "coefficient must be above 0"),
    (lambda: laws.effective_tokens(-1, 2), "unique_tokens must be 0 or greater"),
    (lambda: laws.effective_tokens(1, -0.5), "epochs must be 0 or greater"),
    (lambda: laws.effective_tokens(1, math.nan), "epochs must be 0"),
    (lambda: laws.effective_tokens(1, 2, repeats_worth=0), "repeats_worth must be above 0"),
]


@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_what_cannot_be_is_refused_in_a_line(call, fact):
    with pytest.raises(ValueError, match=fact) as refusal:
        call()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("law", [ParametricLaw, KaplanLaw])
@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"losses": ONES[:29]}, r"the shapes \(30,\), \(30,\), \(29,\): give one of each"),
        ({"losses": np.where(SIZES[3] == SIZES, np.nan, 1)}, "the loss of run 3 is nan"),
        ({"losses": -ONES}, "the loss of run 0 is -1.0: it must be finite and above 0"),
        ({"num_tokens": 0 * ONES}, "the number of tokens of run 0 is 0.0"),
        ({"num_parameters": np.inf * ONES}, "the size of run 0 is inf"),
        ({"num_parameters": 1e5 * ONES}, "have 1 different values of size"),
        ({"num_tokens": np.tile([1e5, 1e6], 15)}, "2 different values of number of tokens"),
    ],
)
def test_runs_that_tell_no_law_are_refused(law, change, fact):
    runs = {"num_parameters": SIZES, "num_tokens": TOKENS, "losses": ONES}
    with pytest.raises(ValueError, match=fact) as refusal:
        law.fit(**runs | change)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("recompute", "one of nothing, attention, block, cheap"),
        ("scores", "one of kept, again, fused"),
    ],
)
def test_a_word_that_is_none_of_a_setting(name, rule):
    job = simulator.Job(config=TINY, split=Split(), batch_size=1)
    object.__setattr__(job, name, "all")  # past the check of types, which users do not run
    with pytest.raises(ValueError, match=f"{name} must be {rule}, got 'all'"):
        job.__post_init__()


def test_an_unknown_choice_of_what_to_forget_is_refused():
    for count in (cost.kept_bytes, cost.training_flop_by_phase):
        with pytest.raises(Exception, match="forgotten"):
            count(TINY, forgotten="half")


@pytest.mark.parametrize(("law", "least"), [(ParametricLaw, 5), (KaplanLaw, 4)])
def test_fewer_runs_than_numbers_are_refused(law, least):
    runs = SIZES[: least - 1], TOKENS[: least - 1], ONES[: least - 1]
    message = f"{least - 1} different runs cannot tell the {least} numbers of {law.__name__}"
    for given in (runs, [np.tile(each, 5) for each in runs]):  # again: they tell nothing new
        with pytest.raises(ValueError, match=message):
            law.fit(*given)


def test_what_was_changed_for_the_table_is_right_without_the_change():
    assert min(seconds(), rate(), hours(), energy()) > 0
    assert break_even(11) >= 0
    assert faults()
