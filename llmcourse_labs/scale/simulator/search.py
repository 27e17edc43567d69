"""The fastest legal layout of a model on a cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from llmcourse.model import ModelConfig
from llmcourse.parallel.legal import divisors
from llmcourse.parallel.mesh import Split
from llmcourse_labs.scale.cost.model import FORGOTTEN, Recomputed
from llmcourse_labs.scale.simulator.cluster import Cluster
from llmcourse_labs.scale.simulator.job import Job, Step
from llmcourse_labs.scale.simulator.step import simulate_job

SEQUENCES = (1, 2, 4, 8)
"""Of a micro-batch, that are tried."""


def splits(config: ModelConfig, cluster: Cluster, batch_size: int) -> Iterator[Split]:
    """Yield all legal splits of a model and a batch over a cluster.

    tp stays inside a domain, cuts the residual stream, too, and is 1 for a mixture; cp, ep and tp
    are powers of two, or divide the experts; pp divides the GPUs that remain, and dp is the rest.
    Micro-batches have 1, 2, 4 or 8 sequences, and a pipeline one chunk, two, or as many as layers.
    """
    domain, length = cluster.hardware.domain, config.context_length
    # What each axis may be by itself, before they have to fit together.
    experts = divisors(config.num_experts) if config.num_experts else [1]
    tensor = [1] if config.num_experts else _powers(min(domain, config.num_heads))
    for tp, cp, ep in product(tensor, _powers(length // 2), experts):
        rest, left = divmod(cluster.num_gpus, tp * cp * ep)
        # Zigzag gives a rank two pieces of a row, and tp cuts what it has along time.
        if left or config.num_heads % tp or length % (2 * cp * tp):
            continue
        for pp in (p for p in divisors(rest) if p <= config.num_layers):
            # The sequences of a rank: the batch is divided among dp and ep.
            share, left = divmod(batch_size, rest // pp * ep)
            if left:
                continue
            for sequences in (n for n in SEQUENCES if share % n == 0):
                m, layers = share // sequences, config.num_layers // pp
                for chunks in sorted({1, min(2, layers), layers}):
                    # As `Split` has it: chunks need a pipeline, and micro-batches have to fill it.
                    if (pp == 1 and chunks > 1) or m < pp or (chunks > 1 and m % pp):
                        continue
                    yield Split(
                        dp=rest // pp,
                        pp=pp,
                        cp=cp,
                        ep=ep,
                        tp=tp,
                        micro_batches=m,
                        chunks=chunks,
                        pipeline="interleaved" if chunks > 1 else "1f1b",
                        sequence_parallel=tp > 1,
                        replicate_kv=tp > config.num_kv_heads,
                    )


def sharding(split: Split, cluster: Cluster) -> list[tuple[int, int | None]]:
    """Return the stages of ZeRO for a split, with numbers of shards, those that wait least first.

    With a pipeline it is stage 1: its many micro-batches would each gather all parameters again.
    At stage 3 the ranks of a domain share, at least, or as many as divide them.
    """
    of_all = divisors(split.dp * split.cp)
    domain = max(1, cluster.hardware.domain // (split.tp * split.ep))
    least = max(n for n in of_all if n <= domain)
    shards = [(3, n) for n in of_all if n >= max(2, least)] if split.pp == 1 else []
    return [(1, None), *shards]


def _powers(most: int) -> list[int]:
    return [2**n for n in range(most.bit_length()) if 2**n <= most]


def search(
    config: ModelConfig,
    cluster: Cluster,
    *,
    num_tokens: int,
    recompute: Sequence[Recomputed] = FORGOTTEN,
    sharded: bool = False,
) -> list[Step]:
    """Return the fastest step of every legal mesh that fits into memory, the fastest first.

    Of a mesh (dp, pp, cp, ep, tp) that is the best choice of micro-batches, chunks and
    recomputation; a layer computes nothing again where that fits.

    Args:
        config: the model, and the length of its sequences.
        cluster: on what.
        num_tokens: of a step, over all GPUs; a multiple of the length.
        recompute: what a layer may compute again, of `scale.cost.MENU`, the cheapest first.
        sharded: whether ZeRO-3 is tried, too, without a pipeline, over all numbers of shards.

    Raises:
        ValueError: if no layout is legal, or none fits; then with the least that it needs, and the
            nearest larger cluster, of twice as many GPUs and so on, on which it fits.
    """
    length = config.context_length
    if num_tokens < 1 or num_tokens % length:
        raise ValueError(
            f"num_tokens must be a multiple of the {length:,} tokens of a sequence, "
            f"got {num_tokens:,}"
        )
    menu = (recompute, sharded)
    best, least = _tried(config, cluster, num_tokens // length, *menu)
    if least is None:
        raise ValueError(
            f"no layout of {cluster.num_gpus:,} GPUs divides {num_tokens // length:,} sequences, "
            f"{config.num_layers} layers and {config.num_heads} heads: take another number of one"
        )
    if not best:
        axes = " ".join(f"{axis} {size}" for axis, size in least.job.split.sizes.items())
        raise ValueError(
            f"the model fits on no layout of {cluster.num_gpus:,} GPUs: the least, "
            f"{axes}, needs {least.memory_bytes / 1e9:,.0f} GB on each, and one "
            f"has {cluster.hardware.memory_bytes / 1e9:,.0f}: take "
            f"{_nearest(config, cluster, num_tokens // length, *menu)}, or a smaller model"
        )
    return sorted(best.values(), key=lambda step: step.seconds)


def _tried(
    config: ModelConfig,
    cluster: Cluster,
    batch_size: int,
    menu: Sequence[Recomputed],
    sharded: bool,
) -> tuple[dict[tuple[int, ...], Step], Step | None]:
    """Return the fastest step that fits of every mesh, and the step that needs least memory."""
    best: dict[tuple[int, ...], Step] = {}
    least: Step | None = None
    for split in splits(config, cluster, batch_size):
        mesh = tuple(split.sizes.values())
        of_all = sharding(split, cluster) if sharded else [(1, None)]
        for stage, shards in of_all:
            job = Job(
                config=config,
                split=split,
                batch_size=batch_size,
                zero_stage=stage,
                shards=shards,
            )
            for recompute in menu:
                step = simulate_job(replace(job, recompute=recompute), cluster)
                if least is None or step.memory_bytes < least.memory_bytes:
                    least = step
                if step.fits:
                    if mesh not in best or step.seconds < best[mesh].seconds:
                        best[mesh] = step
                    break
    return best, least


def _nearest(
    config: ModelConfig,
    cluster: Cluster,
    batch_size: int,
    menu: Sequence[Recomputed],
    sharded: bool,
) -> str:
    """Say on how many more GPUs a model fits."""
    for num_gpus in (cluster.num_gpus * 2**doublings for doublings in range(1, 15)):
        if _tried(config, replace(cluster, num_gpus=num_gpus), batch_size, menu, sharded)[0]:
            return f"more GPUs (for example, it fits on {num_gpus:,})"
    return "another accelerator"
