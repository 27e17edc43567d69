"""choose: the first layout that passes five questions; and what of the simulator it hangs on.

Mutants that these tests reject: ZeRO-3 that gathers once in a step, or holds no gathered layer;
messages of all micro-batches hidden behind one; shards that take a ring of all ranks, or whose
copies sum nothing; rows of experts that leave a server through all its cards; cheap recomputation
that is free, or repeats products; a rule that takes tp across the domain, more stages than it
must, slices below its limit while blocks can be computed again, or ZeRO-3 with messages in sight.
"""

from dataclasses import replace
from functools import partial

import pytest

from llmcourse.model import llama3_8b, llama3_70b, llama3_405b, mixtral_8x7b
from llmcourse.parallel.mesh import Split
from llmcourse_labs.scale import arithmetic, cost, simulator
from llmcourse_labs.scale.simulator import SLICE, Cluster, Job, choose, search, simulate, step
from tools.pages import hardware_card, layout_page

EIGHT = replace(llama3_8b(), context_length=8_192)
SEVENTY = replace(llama3_70b(), context_length=8_192)
MIXTRAL = replace(mixtral_8x7b(), context_length=8_192)


def sharded(micro_batches=1, cluster=None, **settings):
    split, batch = Split(dp=64, micro_batches=micro_batches), 64 * micro_batches
    cluster = cluster or Cluster(num_gpus=64)
    return simulate(EIGHT, split, cluster, batch_size=batch, zero_stage=3, **settings)


def test_zero_3_sends_in_every_micro_batch_and_hides_behind_each():
    one, four = sharded(), sharded(4)
    held = cost.num_parameters(EIGHT)
    each = arithmetic.traffic_bytes(held, 64, 3, gradient_bytes=4, parameter_bytes=2)
    assert one.sent_bytes["dp"] == each
    assert four.sent_bytes["dp"] == 4 * each
    bare = [sharded(m, overlap=False).seconds_by_part["dp"] for m in (1, 4)]
    assert bare[1] == pytest.approx(4 * bare[0])
    # Eight cards for a ring; each layer waits for three rings of 63 messages.
    assert bare[0] == pytest.approx(each / min(450e9 * 0.82, 8 * 50e9 * 0.92) + 3 * 32 * 63 * 1e-5)
    cluster = Cluster(num_gpus=64, reached=replace(Cluster(num_gpus=64).shares, network=0.02))
    one, three = (sharded(m, cluster).seconds_by_part["dp"] for m in (1, 3))
    assert one > 0
    assert three == pytest.approx(3 * one)


def test_shards_keep_more_and_wait_less():
    every, eight = sharded(), sharded(shards=8)
    held = cost.num_parameters(EIGHT)
    assert eight.bytes_by_part["optimizer"] == pytest.approx(12 * held / 8)
    assert every.bytes_by_part["optimizer"] == pytest.approx(12 * held / 64)
    copies = arithmetic.traffic_bytes(held // 8, 8, 0, gradient_bytes=4, parameter_bytes=2)
    assert (every.sent_bytes["copies"], eight.sent_bytes["copies"]) == (0, copies)
    how = {"batch_size": 2_048, "zero_stage": 3, "overlap": False}
    wide = partial(simulate, EIGHT, Split(dp=2_048), Cluster(num_gpus=2_048), **how)
    ring, rings = (wide(shards=shards).seconds_by_part["dp"] for shards in (None, 64))
    assert ring > 3 * rings


@pytest.mark.parametrize("ep", [4, 8])
def test_rows_of_experts_leave_a_server_through_one_card(ep, monkeypatch):
    """In domains of four GPUs, in which ep 8 has half of its ranks elsewhere."""
    monkeypatch.setitem(cost.HARDWARE, "half", replace(cost.HARDWARE["H100"], domain=4))
    cluster = Cluster(accelerator="half", num_gpus=ep)
    half, shares = cluster.hardware, cluster.shares
    job = Job(config=MIXTRAL, split=Split(ep=ep), batch_size=ep)
    operations = simulator.operations(job, cluster)
    found = sum(f + b for _, part, f, b in operations if part == "ep")
    once = step.layer_bytes(job)["ep"][0]
    away = once * 4 / 7 if ep == 8 else 0
    link, card = half.link_bytes_per_s * shares.link, half.network_bytes_per_s * shares.network
    slowest = max((once - away) / link, away / card)
    assert found == pytest.approx(2 * (slowest + 2 * (ep - 1) * 1e-5))


def test_cheap_recomputation_repeats_what_memory_bounds():
    nothing, cheap, block = (sharded(recompute=r) for r in ("nothing", "cheap", "block"))
    job, cluster = cheap.job, cheap.cluster
    again = sum(f for _, part, f, _ in simulator.operations(job, cluster) if part == "memory")
    assert cheap.seconds_by_part["recomputation"] == pytest.approx(32 * again)
    assert nothing.seconds < cheap.seconds < 1.03 * nothing.seconds < block.seconds
    kept = [s.bytes_by_part["activations"] for s in (nothing, cheap, block)]
    assert kept == sorted(kept, reverse=True)
    assert kept[1] == 8_192 * (32 * cost.kept_bytes(EIGHT, "cheap") + cost.kept_bytes(EIGHT))


CASES = [
    (EIGHT, 8, 512),
    (EIGHT, 512, 512),
    (EIGHT, 4_096, 512),  # no more GPUs than have tokens
    (SEVENTY, 64, 512),
    (SEVENTY, 2_048, 512),
    (replace(llama3_405b(), context_length=8_192), 16_384, 2_048),
    (MIXTRAL, 64, 512),
]


@pytest.mark.parametrize(("config", "gpus", "batch"), CASES)
def test_what_is_chosen_keeps_the_rule(config, gpus, batch):
    cluster = Cluster(num_gpus=gpus)
    found = choose(config, cluster, num_tokens=batch * 8_192)
    job, split = found.job, found.job.split
    assert found.fits
    assert split.num_ranks == gpus
    split.check(config, batch)
    assert split.tp <= 8
    assert split.ep == (8 if config.num_experts else 1)
    assert 8_192 // split.cp >= SLICE
    if split.pp > 1:
        assert step._bubble(split) <= simulator.BUBBLE
        assert job.zero_stage == 1
        # Fewer stages at the same cut do not divide, do not fit, or have a long bubble.
        for other in simulator.rule.candidates(config, cluster, batch):
            mesh = other.split
            if (mesh.cp, mesh.tp, mesh.ep) == (split.cp, split.tp, split.ep):
                if mesh.pp == split.pp:
                    break
                assert other.zero_stage == 3 or not step.simulate_job(other, cluster).fits
    if job.zero_stage == 3:
        assert found.seconds_by_part["dp"] <= 0.02 * found.seconds


def test_a_search_and_the_layouts_of_the_page_are_never_slower_than_the_rule():
    cluster, tokens = Cluster(num_gpus=4), 8 * 8_192
    chosen = choose(EIGHT, cluster, num_tokens=tokens)
    menu = ("nothing", "cheap", "attention", "block")
    wide = search(EIGHT, cluster, num_tokens=tokens, recompute=menu, sharded=True)
    assert wide[0].seconds <= chosen.seconds < 1.05 * wide[0].seconds
    assert wide[0].seconds <= search(EIGHT, cluster, num_tokens=tokens)[0].seconds
    assert {each.job.zero_stage for each in wide} == {1, 3}
    assert all(each.job.zero_stage == 1 for each in wide if each.job.split.pp > 1)
    for name, gpus in (("1B", 2_048), ("8B", 64), ("405B", 16_384), ("671B, experts", 2_048)):
        best, chosen = layout_page.best(name, gpus), layout_page.picked(name, gpus)
        assert best.fits
        assert best.seconds <= chosen.seconds


# Which files are stale is a line of make lint.
@pytest.mark.parametrize(("owner", "writer"), [(layout_page, "page"), (hardware_card, "card")])
def test_a_stale_page_is_found(owner, writer, tmp_path, monkeypatch):
    monkeypatch.setattr(owner, writer, lambda: "new")
    monkeypatch.setattr(owner, "PAGE", tmp_path / "page.md")
    assert (owner.main(["--check"]), owner.main([]), owner.main(["--check"])) == (1, 0, 0)
