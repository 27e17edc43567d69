"""One training step on a cluster: how long it takes, and what memory a GPU needs.

A rank computes m micro-batches one after the other.  With t the time of one on the slowest stage, a
step takes

::

    m t (1 + bubble) + what nothing hides of data parallelism + optimizer
"""

from functools import lru_cache
from typing import Any

from llmcourse.model import ModelConfig
from llmcourse.parallel.mesh import Split
from llmcourse.parallel.pipeline import stages_of
from llmcourse_labs.scale import arithmetic
from llmcourse_labs.scale.arithmetic import bubble_share, peak_micro_batches
from llmcourse_labs.scale.cost.model import Recomputed, kept_bytes
from llmcourse_labs.scale.cost.traffic import pipeline_bytes
from llmcourse_labs.scale.simulator.cluster import Cluster
from llmcourse_labs.scale.simulator.job import Job, Step
from llmcourse_labs.scale.simulator.layer import Product, layer_bytes, operations

OPTIMIZER_BYTES = 28
"""That AdamW moves for a parameter: reads gradient, master and moments, writes them and weights."""

RECOMPUTED = {
    "nothing": set(),
    "cheap": set(),
    "attention": {"attention", "scores"},
    "block": {"attention", "scores", "feed-forward"},
}
"""Halves of a layer by what is computed again; cheap are operations that memory bounds."""


def simulate(config: ModelConfig, split: Split, cluster: Cluster, **settings: Any) -> Step:
    """Return one training step of a model on a mesh of a cluster, by part.

    Args:
        config: the whole model, and the length of its sequences.
        split: the mesh, its micro-batches and its pipeline.
        cluster: what it runs on; as many GPUs as the mesh has ranks.
        settings: other fields of `Job`; batch_size at least.

    Raises:
        ValueError: if the mesh is not as large as the cluster, or does not fit the model.
    """
    return simulate_job(Job(config=config, split=split, **settings), cluster)


def simulate_job(job: Job, cluster: Cluster) -> Step:
    """Return one training step of a job; see `simulate`."""
    split, m = job.split, job.split.micro_batches
    if split.num_ranks != cluster.num_gpus:
        raise ValueError(
            f"the mesh {split.sizes} has {split.num_ranks:,} ranks, and the cluster "
            f"{cluster.num_gpus:,} GPUs: make them equal"
        )
    layer, head = _layer(job, cluster), _head(job, cluster)
    # The slowest stage: a middle one, or the last one with its head.
    most, last = _stages(job.config.num_layers, split.pp)
    body = sum(layer.values())
    stage = {part: most * seconds for part, seconds in layer.items()}
    if last * body + head > most * body:
        stage = {part: last * seconds for part, seconds in layer.items()} | {"head": head}
    sent = sent_bytes(job)
    hidden = _syncs_per_step(job) * sum(stage.values()) if job.overlap else 0.0
    stage["pp"] = _between_stages(job, cluster, sent["pp"] / m)
    seconds = {part: m * each for part, each in stage.items()}
    seconds["bubble"] = sum(seconds.values()) * _bubble(split)
    travel = _data_seconds(job, cluster, sent["dp"]) + _copies_seconds(job, cluster, sent["copies"])
    seconds["dp"] = max(0.0, travel - hidden)
    held, sharded = _held(job.config, split.pp, split.tp, split.ep), _sharded(job)
    seconds["optimizer"] = OPTIMIZER_BYTES * held / sharded / cluster.memory_rate
    memory = _memory(job, held, most)
    return Step(
        job=job, cluster=cluster, seconds_by_part=seconds, bytes_by_part=memory, sent_bytes=sent
    )


def _layer(job: Job, cluster: Cluster) -> dict[str, float]:
    """Return the seconds of one layer and one micro-batch, by part."""
    repeated = RECOMPUTED[job.recompute] | ({"scores"} if job.scores == "again" else set())
    seconds = {"recomputation": 0.0}
    for half, part, forward, backward in operations(job, cluster):
        seconds[part] = seconds.get(part, 0.0) + forward + backward
        if half in repeated or (job.recompute == "cheap" and part == "memory"):
            seconds["recomputation"] += forward
    return seconds


def _head(job: Job, cluster: Cluster) -> float:
    """Return the seconds of the head and the loss, of one micro-batch.

    The logits are written, and read twice for the loss; their gradient the same.
    """
    rows, vocabulary = job.sequences * job.length, job.config.vocab_size / job.split.tp
    moved = 6 * rows * vocabulary * job.precision.activation
    product = Product(rows, vocabulary, job.config.width)
    return sum(product.seconds(cluster)) + moved / cluster.memory_rate


@lru_cache(maxsize=1024)
def _stages(num_layers: int, pp: int) -> tuple[int, int]:
    """Return the layers of the first stage, which has the most, and of the last."""
    stages = stages_of(num_layers, pp)
    return len(stages[0]), len(stages[-1])


def _bubble(split: Split) -> float:
    if split.pp == 1:
        return 0.0
    return float(bubble_share(split.pipeline, split.pp, split.micro_batches, split.chunks))


# --- messages


def sent_bytes(job: Job) -> dict[str, int | float]:
    """Return the bytes that a rank of a middle stage sends in a step, by axis, hidden or not."""
    split, m = job.split, job.split.micro_batches
    most, _ = _stages(job.config.num_layers, split.pp)
    tokens = job.sequences * job.length // (split.tp if split.sequence_parallel else 1)
    between = pipeline_bytes(
        split.pp,
        index=min(1, split.pp - 1),
        message_bytes=tokens * job.config.width * job.precision.activation,
        num_micro_batches=m,
        num_chunks=split.chunks,
    )
    held, size = _held(job.config, split.pp, split.tp, split.ep), split.dp * split.cp
    shards = job.shards or size
    number = {"gradient_bytes": job.precision.gradient, "parameter_bytes": job.precision.parameter}
    summed = arithmetic.traffic_bytes(held, shards, job.zero_stage, **number)
    copies = arithmetic.traffic_bytes(held // shards, size // shards, 0, **number)
    layer = {axis: m * most * sum(both) for axis, both in layer_bytes(job).items()}
    between_stages = between["forward"] + between["backward"]
    return layer | {
        "pp": between_stages,
        "dp": _syncs_per_step(job) * summed,
        "copies": _syncs_per_step(job) * copies,
    }


def _syncs_per_step(job: Job) -> int:
    """Return how often a step sums gradients and gathers parameters.

    At stage 3 nobody keeps the whole of either, and every micro-batch does so.
    """
    return job.split.micro_batches if job.zero_stage == 3 else 1


def _between_stages(job: Job, cluster: Cluster, sent: int | float) -> float:
    """Return the seconds of a micro-batch's messages between stages that nothing hides."""
    split = job.split
    if split.pp == 1 or job.overlap:
        return 0.0
    # Without sequence parallelism each rank sends a part, and the receivers gather the rest.
    part = sent / (1 if split.sequence_parallel else split.tp)
    rate = cluster.hop_rate(split.pp * split.tp * split.ep * split.cp)
    return part / rate + 2 * split.chunks * cluster.shares.message_s


def _data_seconds(job: Job, cluster: Cluster, sent: int | float) -> float:
    """Return the seconds in which gradients are summed and parameters gathered, hidden or not.

    The ring is that of dp and cp; dp is the outermost axis of the mesh, outside of pp.
    """
    split, domain = job.split, cluster.hardware.domain
    size, inner = split.dp * split.cp, split.tp * split.ep
    if size == 1:
        return 0.0
    inside = min(split.cp, max(1, domain // inner))
    inside *= min(split.dp, max(1, domain // (inner * split.cp * split.pp)))
    span = split.num_ranks if split.dp > 1 else inner * split.cp
    if job.shards:
        size, inside, span = job.shards, min(job.shards, inside), job.shards * inner
    rate = cluster.ring(inside=inside, span=span, rings=inner * split.pp)
    # At stage 3 each layer is gathered twice and summed once; before, all layers together.
    rings = 3 * job.config.num_layers * _syncs_per_step(job) if job.zero_stage == 3 else 2
    return sent / rate + rings * (size - 1) * cluster.shares.message_s


def _copies_seconds(job: Job, cluster: Cluster, sent: int | float) -> float:
    """Return the seconds in which ranks with equal shards sum their gradients (HSDP)."""
    split = job.split
    copies = split.dp * split.cp // (job.shards or split.dp * split.cp)
    if copies == 1:
        return 0.0
    inner = split.num_ranks // copies
    wait = (
        2 * (copies - 1) * job.config.num_layers * _syncs_per_step(job) * cluster.shares.message_s
    )
    return sent / cluster.bandwidth(copies, inner) + wait


# --- memory


@lru_cache(maxsize=1024)
def _held(config: ModelConfig, pp: int, tp: int, ep: int) -> int:
    """Return the parameters of a rank of the first stage, which has the most."""
    width, layers = config.width, _stages(config.num_layers, pp)[0]
    heads = 2 * config.num_heads + 2 * max(config.num_kv_heads, tp)
    experts = max(1, config.num_experts)
    block = width * heads * config.head_size / tp + experts / ep * 3 * width * config.hidden / tp
    block += 2 * width + config.num_experts * width + 2 * config.head_size * config.qk_norm
    tables = 1 + (pp == 1 and not config.tied_head)
    last_norm = width * (pp == 1)
    return round(layers * block + tables * config.vocab_size * width / tp + last_norm)


def _sharded(job: Job) -> int:
    """Return over how many ranks ZeRO shares out the optimizer's state."""
    return (job.shards or job.split.dp * job.split.cp) if job.zero_stage else 1


def _memory(job: Job, held: int, layers: int) -> dict[str, int | float]:
    """Return the bytes of a GPU by part.

    A rank of the first stage keeps the activations of p micro-batches, or more with chunks.  What
    is computed again lives for one layer at a time.
    """
    split, precision, sharded = job.split, job.precision, _sharded(job)
    of_stage = peak_micro_batches(split.pipeline, split.pp, split.micro_batches, split.chunks)[0]
    rows = job.sequences * job.length
    kept = layers * of_stage / split.chunks * _kept(job, job.recompute)
    if job.recompute != "nothing":
        kept += _kept(job, "nothing")
    gathered = 2 * held / layers if job.zero_stage == 3 else 0  # a layer, and the one after it
    weights = held / sharded + gathered if job.zero_stage == 3 else held
    return {
        "weights": precision.parameter * weights,
        "gradients": precision.gradient * held / (sharded if job.zero_stage >= 2 else 1),
        "optimizer": 12 * held / sharded,
        "activations": rows * kept,
    }


def _kept(job: Job, recompute: Recomputed) -> int | float:
    """Return what a layer keeps of one token on this rank, in bytes.

    tp cuts all but the residual stream, 4 D of a layer, 2 D without what its norms return, or D of
    a whole block computed again;
    sequence parallelism cuts that, too.
    """
    config, split, number = job.config, job.split, job.precision.activation
    whole = kept_bytes(config, recompute, number_bytes=number)
    if job.scores == "kept" and recompute == "nothing":  # scores twice, and a mask
        whole += (2 * number + 1) * config.num_heads * config.context_length
    stream = number * config.width * {"block": 1, "cheap": 2}.get(recompute, 4)
    if split.sequence_parallel:
        return whole / split.tp
    return stream + (whole - stream) / split.tp
