"""parallel: what cannot be is refused by name, with the rule and the nearest that can."""

from dataclasses import replace

import parallel_kit as kit
import programs
import programs_context_parallel
import programs_expert_parallel
import programs_pipeline
import programs_tensor_parallel
import pytest
import torch
from torch import nn

from llmcourse import optim, train
from llmcourse.model import Transformer, tiny, tiny_moe
from llmcourse.parallel import collectives, mesh, pipeline, world, zero
from llmcourse.parallel import context_parallel as cp
from llmcourse.parallel import data_parallel as dp
from llmcourse.parallel import expert_parallel as ep
from llmcourse.parallel import tensor_parallel as tp
from llmcourse_labs.scale import arithmetic

AXIS, PAIR, X = kit.axis(), kit.axis(2), torch.ones(4)
QKV, PARAMETER = torch.ones(2, 4, 2, 6), nn.Parameter(torch.randn(3))
EVEN, SPARSE = programs_tensor_parallel.EVEN, nn.Embedding(3, 2, sparse=True)
UNCUT = replace(tiny(), num_layers=4, num_heads=4, num_kv_heads=2, context_length=24)
WIDER = replace(UNCUT, num_heads=8, num_kv_heads=4, context_length=12)
DEEPER = replace(UNCUT, num_layers=8)
WIDE = replace(tiny(), num_layers=8, num_heads=8, num_kv_heads=8)
SIX_EXPERTS = replace(tiny_moe(), num_experts=6)
INTERLEAVED = {"pipeline": "interleaved", "chunks": 2}
SEQUENCE, COPIES = {"sequence_parallel": True}, {"replicate_kv": True}


def cost(**changes):
    return arithmetic.sent_bytes(**{"name": "reduce", "num_bytes": 12, "num_ranks": 3} | changes)


def seconds(**link):
    return arithmetic.seconds("reduce", 12, 3, **link)


def attend(length=4, **settings):
    return cp.ring_attention(AXIS)(*[QKV[:, :length]] * 3, **settings)


def masked(*shape):
    return attend(mask=torch.ones(shape, dtype=torch.bool))


def linear_ddp(axis=AXIS, module=None, **settings):
    return dp.BucketedDDP(module or nn.Linear(3, 2), axis, **settings)


def synced(wrapper):
    ddp = wrapper(SPARSE, AXIS)
    ddp(torch.tensor([1])).sum().backward()
    ddp.sync()


def sparse_sum():
    p = nn.Parameter(torch.zeros(3, 2))
    p.grad = torch.zeros(3, 2).to_sparse()
    dp.sum_gradients([p], PAIR)


def zero_of(*params, **settings):
    return zero.ZeroOptimizer(params or [PARAMETER], optim.AdamW, AXIS, lr=1e-2, **settings)


def other_state():
    other = zero_of(PARAMETER, nn.Parameter(torch.randn(2)))
    zero_of().load_full_state_dict(other.full_state_dict())


def sharded(**settings):
    return zero.FullyShardedModel(nn.Linear(3, 2), AXIS, **settings)


def tensors(size, changes, **settings):
    tp.check_shape(replace(EVEN, **changes), size, **settings)


def mixture(axis=AXIS):
    model = programs_expert_parallel.model_of("float32")
    ep.shard_experts(model, axis)
    return model


def split(model=UNCUT, batch_size=8, **settings):
    mesh.Split(**settings).check(model, batch_size)


def tiny_run(**changes):
    return train.PRESETS["tiny"]().replace(**changes)


REFUSED = [
    # worlds
    (lambda: world.run(programs.place, 0), "1 rank or more"),
    (lambda: world.run(programs.place, 4, mesh={"dp": 3}), "3 places for 4 ranks"),
    (lambda: world.run(programs.place, 2, mesh={"dp": 2, "tp": 0}), "1 rank or more"),
    (lambda: world.run(programs.place, 2, timeout_s=0), "timeout_s must be above 0"),
    # collectives, and what they cost
    (lambda: collectives.broadcast(X, AXIS, source=1), "source must be an index along dp, 0 to 0"),
    (lambda: collectives.reduce(X, AXIS, to=-1), "to must be an index along dp, 0 to 0, got -1"),
    (lambda: collectives.all_reduce(X, AXIS, algorithm="star"), "of naive, tree, ring, ordered"),
    (lambda: collectives.all_gather(X, AXIS, length=5), "0 of 1 holds 5, got 4: cut by chunk_siz"),
    (lambda: collectives.all_to_all([X, X], AXIS, lengths=[4]), "chunks must be 1, .*, got 2"),
    (lambda: collectives.all_to_all([X], AXIS, lengths=[]), "lengths must be 1, one .*, got 0"),
    (lambda: collectives.chunk_sizes(-1, 2), "length must be 0 or greater, got -1"),
    (lambda: collectives.chunk_sizes(1, 0), "parts must be 1 or greater, got 0"),
    (lambda: cost(name="all_reduce"), "name must be one of broadcast, .*, got 'all_reduce'"),
    (lambda: cost(num_bytes=-1), "num_bytes must be 0 or greater"),
    (lambda: cost(num_ranks=0), "num_ranks must be 1 or greater, got 0"),
    (lambda: cost(element_bytes=5), "12 bytes are not made of elements of 5 bytes"),
    (lambda: cost(element_bytes=0), "12 bytes are not made of elements of 0 bytes"),
    (lambda: cost(index=3), "index must be 0 to 2, got 3"),
    (lambda: seconds(latency_s=-1.0, bytes_per_s=1), "latency_s must be 0 or greater"),
    (lambda: seconds(latency_s=0, bytes_per_s=0), "bytes_per_s must be above 0"),
    # data parallelism
    (lambda: linear_ddp(PAIR, bucket_bytes=0), "bucket_bytes must be 1 or greater"),
    (lambda: linear_ddp(PAIR, channel=0), "channel must be 1 or greater"),
    (lambda: synced(dp.NaiveDDP), "use sparse=False"),
    (lambda: synced(dp.BucketedDDP), "use sparse=False"),
    (sparse_sum, "gradients must be dense.*sparse=False"),
    (lambda: dp.NaiveDDP(nn.LazyLinear(2), AXIS), "weight has no value yet"),
    (lambda: linear_ddp(module=nn.Linear(3, 2, device="meta")), "weight has no value yet"),
    # ZeRO
    (lambda: arithmetic.memory_bytes(-1, 2, 1), "num_parameters must"),
    (lambda: arithmetic.memory_bytes(1, 0, 1), "num_ranks must"),
    (lambda: arithmetic.memory_bytes(1, 2, 4), "stage must"),
    (lambda: arithmetic.traffic_bytes(-1, 2, 1), "num_parameters must"),
    (lambda: arithmetic.traffic_bytes(1, 0, 1), "num_ranks must"),
    (lambda: arithmetic.traffic_bytes(1, 2, 4), "stage must"),
    (lambda: zero_of(stage=3), "1 or 2, got 3; stage 3 is FullyShardedModel"),
    (lambda: zero_of(bucket_bytes=0), "bucket_bytes must be 1 or greater, got 0"),
    (lambda: zero_of().zero_grad(set_to_none=False), "set_to_none"),
    (lambda: zero_of().state_dict(), "full_state_dict"),
    (lambda: zero_of().load_state_dict(zero_of().full_state_dict()), "full_state_dict"),
    (lambda: zero_of().add_param_group({"params": [PARAMETER]}), "shards are cut"),
    (other_state, r"\[1\] parameters.*\[2\]"),
    (lambda: sharded().clip_grad_norm(-1), "max_norm"),
    (lambda: sharded(units=[nn.Linear(2, 2)]), "not part of the Linear"),
    (lambda: sharded().full_optimizer_state(optim.AdamW([PARAMETER], 1.0)), "not of this model"),
    # tensor parallelism
    (lambda: tensors(0, {}), "size must be 1 or more"),
    (lambda: tensors(4, {"num_heads": 7, "num_kv_heads": 7}), r"num_heads must .*7 \(.*: 4 or 8\)"),
    (lambda: tensors(2, {"hidden": 37}), r"hidden must be divisible, .*37 \(nearest: 36 or 38\)"),
    (lambda: tensors(4, {"vocab_size": 3}), r"vocab_size must be divisible, .*3 \(nearest: 4\)"),
    (lambda: tensors(4, {"num_kv_heads": 2}), r"4\), or with replicate_kv=True 2 ranks hold each"),
    (lambda: tensors(3, {"num_kv_heads": 2}), r"num_kv_heads must be .*, got 2 \(nearest: 3\)"),
    (lambda: tensors(3, {"num_kv_heads": 2}, **COPIES), r"divide 3 \(nearest: 1 or 3\)"),
    (lambda: tensors(4, {"num_kv_heads": 3}, **COPIES), r"divide 4 \(nearest: 2 or 4\)"),
    (lambda: tensors(2, {"context_length": 25}, **SEQUENCE), "context_length .*24 or 26"),
    (lambda: tensors(2, {"hidden": 35, "vocab_size": 47}), "2 tensor.*hidden.*; vocab_size"),
    (lambda: tensors(2, {"num_experts": 4, "experts_per_token": 2}), "num_experts must be 0"),
    (lambda: tp.style_of("blocks.0.router.w_router"), r"blocks\.0\.router"),
    (lambda: tp.slice_of("embedding", (48, 10), EVEN, 0, 5), "does not divide among 5"),
    (lambda: tp.slice_of("embedding", (48, 10), EVEN, 3, 3), "index must be from 0 to 2"),
    # pipelines
    (lambda: pipeline.gpipe(0, 2), "num_ranks must be 1 or greater, got 0"),
    (lambda: pipeline.one_f_one_b(2, 0), "num_micro_batches must be 1 or greater, got 0"),
    (lambda: pipeline.zero_bubble(-1, 2), "num_ranks must be 1 or greater, got -1"),
    (lambda: pipeline.interleaved(4, 6, 2), "multiple of num_ranks = 4, got 6; .*: 4 or 8"),
    (lambda: pipeline.interleaved(4, 3, 2), "multiple of num_ranks = 4, got 3; .*: 4$"),
    (lambda: pipeline.interleaved(4, 8, 1), "num_chunks of 2 or more, got 1"),
    (lambda: pipeline.dualpipe_v(3, 5), "more for each of 3 ranks, got 5; nearest: 6"),
    (lambda: pipeline.dualpipe_v(0, 5), "num_ranks must be 1 or greater, got 0"),
    (lambda: pipeline.schedule_of("dual", 2, 2), "must be one of gpipe, 1f1b, interleaved"),
    (lambda: pipeline.schedule_of("1f1b", 4, 3), "nearest: 4 micro-batches, or 3 ranks"),
    (lambda: pipeline.schedule_of("1f1b", 4, 0), "num_micro_batches must be 1 or greater"),
    (lambda: pipeline.schedule_of("gpipe", 2, 2, 2), "gpipe has one chunk per rank, got"),
    (lambda: arithmetic.bubble_share("dual", 2, 2), "must be one of gpipe"),
    (lambda: arithmetic.peak_micro_batches("dual", 2, 2), "must be one of gpipe"),
    (lambda: arithmetic.simulate(pipeline.gpipe(2, 2), forward=0), "actions take positive time"),
    (lambda: arithmetic.simulate(pipeline.gpipe(2, 2), message=-1), "messages 0 or more"),
    (lambda: arithmetic.simulate(programs_pipeline.written("F0", "F0", m=1)), "cannot be run"),
    (lambda: pipeline.stages_of(6, 4, 2), "nearest: num_ranks = 3 or num_chunks = 1"),
    (lambda: pipeline.stages_of(3, 4, 1), "nearest: num_ranks = 3$"),
    (lambda: pipeline.stages_of(3, 2, 4), "nearest: num_chunks = 1$"),
    (lambda: pipeline.stages_of(3, 4, 4), "nearest: 3 stages"),
    (lambda: pipeline.stages_of(4, 0, 1), "num_ranks must be 1 or greater"),
    (lambda: pipeline.stages_of(4, 1, 0), "num_chunks must be 1 or greater"),
    # context parallelism
    (lambda: cp.check_length(20, 3, "zigzag"), "multiple of 6.*got 20; nearest: 18 or 24"),
    (lambda: cp.check_length(20, 3, "blocks"), "multiple of 3.*got 20; nearest: 18 or 21"),
    (lambda: cp.check_length(1, 2, "zigzag"), "got 1; nearest: 4$"),
    (lambda: cp.check_length(-3, 2, "zigzag"), "got -3; nearest: 4$"),
    (lambda: cp.check_length(0, 2, "blocks"), "got 0; nearest: 2$"),
    (lambda: cp.check_length(8, 0, "zigzag"), "size must be 1 or greater, got 0"),
    (lambda: cp.positions(8, 2, 2), "index must be 0 to 1, got 2"),
    (lambda: cp.share(torch.zeros(2, 9), 0, 2), "multiple of 4"),
    (lambda: cp.ring_attention(AXIS, tile=0), "tile must be 1 or greater, got 0"),
    (lambda: masked(4, 3), r"the mask must end in \(4, 4\)"),
    (lambda: masked(3, 4), r"the mask must end in \(4, 4\)"),
    (lambda: masked(2, 5, 4), r"the mask must end in \(4, 4\)"),
    (lambda: attend(3), "multiple of 2.*got 3"),
    # expert parallelism
    (lambda: mixture(kit.axis(5)), "12 .* 5 ranks; nearest: 4 or 6 ranks, or 10 or 15"),
    (lambda: ep.check_experts(12, 13), "nearest: 12 ranks, or 13 experts"),
    (lambda: ep.check_experts(0, 1), "without experts"),
    (lambda: ep.shard_experts(Transformer(tiny()), AXIS), "no mixture of experts"),
    (lambda: ep.shard_experts(mixture(), AXIS), "cut already"),
    # meshes
    (lambda: split(tp=3), "num_heads must be divisible, got 4.*nearest: 3 or 6"),
    (lambda: split(tp=4), "num_kv_heads must be divisible, got 2.*nearest: 4"),
    (lambda: split(tp=1_000_000_007), "num_heads must be divisible"),  # at once
    (lambda: split(pp=5, micro_batches=8), "5 stages.*4"),
    (lambda: split(pp=4, micro_batches=2), "at least the 4 stages of pp, got 2.*nearest: 4"),
    (lambda: split(batch_size=10**9, pp=2), "at least the 2 stages of pp, got 1; nearest: 2"),
    (lambda: split(pp=2, micro_batches=3), "divide a rank's share of 8 seq.*nearest: 2 or 4"),
    (lambda: split(cp=5), "multiple of 10, the chunks of the layout.*nearest: 20 or 30"),
    (lambda: split(dp=3), "multiple of dp x ep = 3, got 8.*nearest: 6 or 9"),
    (lambda: split(dp=16), "multiple of dp x ep = 16, got 8.*nearest: 16"),
    (lambda: split(ep=2), "ep must be 1 for a model without experts.*got 2"),
    (lambda: split(dp=4, pp=4, micro_batches=2), "change batch_size = 8.*nearest: 16"),
    (lambda: split(pp=2, micro_batches=4, **INTERLEAVED | {"chunks": 4}), "8 stages.*4"),
    (lambda: split(UNCUT, 12, pp=2, micro_batches=3, **INTERLEAVED), "of 2, got 3; .*: 2 or 4"),
    (lambda: split(DEEPER, 9, pp=2, **INTERLEAVED), "change batch_size = 9; nearest: 8 or 10"),
    (lambda: split(DEEPER, 6, pp=4, **INTERLEAVED), "change batch_size = 6; nearest: 4 or 8"),
    (lambda: split(SIX_EXPERTS, ep=4), "6 experts .* over 4 ranks; nearest: 3 or 6"),
    (lambda: split(SIX_EXPERTS, tp=2), "tp must be 1 for a model with experts"),
    (lambda: split(WIDER, cp=2, tp=4, **SEQUENCE), "divide the 6 tok.* got 4.* nearest: 3 or 6"),
    (lambda: split(tp=2, replicate_kv=True), "replicate_kv has no effect"),
    (lambda: mesh.Split(dp=0), "dp must be 1 or greater"),
    (lambda: mesh.Split(micro_batches=0), "micro_batches must be 1 or greater"),
    (lambda: mesh.Split(sequence_parallel=True), "have no effect with tp = 1"),
    (lambda: mesh.Split(replicate_kv=True), "have no effect with tp = 1"),
    (lambda: mesh.Split(pipeline="gpipe"), "has no effect with pp = 1"),
    (lambda: mesh.Split(pp=2, chunks=2), "interleaved wants 2"),
    (lambda: mesh.Split(pp=2, pipeline="interleaved"), "interleaved wants 2"),
    (lambda: mesh.parse("dp=2,xp=2"), "an axis 'xp'"),
    (lambda: mesh.parse("dp=2,dp=2"), "names the axis dp twice"),
    (lambda: mesh.parse("dp=two"), "gives dp the size 'two'"),
    (lambda: mesh.parse("dp=0"), "gives dp the size '0'"),
    (lambda: mesh.parse("dp"), "gives dp the size ''"),
    (lambda: mesh.parse("dp=2;tp=2"), "gives dp the size '2;tp=2'"),
    # settings of a run
    (lambda: tiny_run(mesh="tp=3"), "num_heads must be divisible, got 4"),
    (lambda: tiny_run(mesh="pp=2,dp=8"), "2 stages of pp, which no .* = 8; nearest: 16"),
    (lambda: tiny_run(mesh="pp=2", micro_batches=1), "at least the 2 stages of pp, got 1"),
    (lambda: tiny_run(mesh="pp=2", micro_batches=-1), "micro_batches must be 0 or greater, got -1"),
    (lambda: tiny_run(mesh="zz=3"), "an axis 'zz'"),
    (lambda: tiny_run(mesh="dp=2", ranks=2), "leave out ranks"),
    (lambda: tiny_run(mesh="dp=2", parallel="zero3"), "zero3 with a mesh, such as .*: choose from"),
    (lambda: tiny_run(mesh="tp=2", parallel="zero1"), "no effect with dp = 1"),
    (lambda: tiny_run(mesh="tp=2", device="auto"), "run on the cpu"),
    (lambda: tiny_run(mesh="tp=2", without="position"), "leave out without"),
    (lambda: tiny_run(mesh="tp=2", engine="torch"), "for engine = own"),
    (lambda: tiny_run(micro_batches=2), "micro_batches = 2 has no effect without a mesh"),
    (lambda: tiny_run(sequence_parallel=True), "no effect without a mesh"),
    (lambda: tiny_run(ranks=3), "cannot be shared equally by 3 ranks"),
    (lambda: tiny_run(ranks=0), "ranks must be 1 or greater"),
    (lambda: tiny_run(parallel="zero1"), "has no effect on one rank"),
    (lambda: tiny_run(ranks=2, device="auto"), "run on the cpu"),
]
LEGAL = [
    lambda: tensors(2, {"context_length": 25}),
    lambda: tensors(4, {"num_kv_heads": 2}, replicate_kv=True),
    lambda: tp.check_shape(tiny(), 2, sequence_parallel=True),
    lambda: split(SIX_EXPERTS, ep=2),
    lambda: split(WIDER, tp=4, sequence_parallel=True),
    lambda: split(pp=2, micro_batches=4, **INTERLEAVED),
    lambda: split(DEEPER, 10, pp=2, micro_batches=10, **INTERLEAVED),
    lambda: split(DEEPER, 4, pp=4, micro_batches=4, **INTERLEAVED),
    lambda: split(tp=4, replicate_kv=True),
    lambda: tiny_run(model=WIDE, mesh="dp=2,pp=2,cp=2,tp=4", micro_batches=2),
]
"""Next to what is refused."""


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_what_cannot_be_is_refused(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()
    assert not PAIR.messages, "something was sent"


@pytest.mark.parametrize("call", LEGAL)
def test_what_can_be_is_not_refused(call):
    call()


def test_what_annotations_exclude_is_refused_without_them(pools):
    *layouts, keys = pools(2).run(programs_context_parallel.refused)[0]
    assert layouts == ["layout must be one of zigzag, blocks, got 'stripes'"] * 3
    assert keys.startswith("2 queries and 4 keys: a rank has both of the same tokens")


def test_what_a_cut_model_refuses(pools):
    for said in pools(2).run(programs_tensor_parallel.refused):
        assert "weights" not in said
        assert "7 positions do not divide into 2" in said["time"]
        assert "make it 6 or 8" in said["time"]
        assert "ids must be from 0 to 47, got" in said["id"]
        assert "outside the vocabulary [0, 48)" in said["target"]
        assert "num_tokens must be above 0, got 0" in said["nothing"]
        assert "num_tokens must be above 0, got 0" in said["number"]
        assert "cut already" in said["again"]
        assert "call shard first" in said["whole"]
