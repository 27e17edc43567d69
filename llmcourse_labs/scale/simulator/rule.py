"""A layout by five questions in order, in place of trying all layouts.

1. Is the batch large enough?  Every replica needs a sequence, and every GPU `TOKENS` of a step.
2. Do the activations fit?  If not: compute again what is cheap; cut each sequence (cp), down to
   `SLICE` tokens; then cut each layer (tp), as far as the domain's links reach; then compute whole
   blocks again; and only then take thinner slices.
3. Does the state fit?  With ZeRO-1; else with ZeRO-3 over as few GPUs as will do, if its messages
   hide behind a micro-batch; else in stages (pp), as few as will do.
4. Of a mixture, ep cuts the experts, as far as the domain's links reach; tp cuts nothing.
5. Is the bubble small?  As many chunks as there are layers; if it is larger than `BUBBLE`, this
   number of stages is none, and the next cut of question 2 has its turn.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Literal

from llmcourse.model import ModelConfig
from llmcourse.parallel.legal import divisors
from llmcourse.parallel.mesh import Pipeline, Split
from llmcourse_labs.scale.arithmetic import bubble_share
from llmcourse_labs.scale.simulator.cluster import Cluster
from llmcourse_labs.scale.simulator.job import Job, Step
from llmcourse_labs.scale.simulator.search import sharding
from llmcourse_labs.scale.simulator.step import simulate_job

Menu = Literal["nothing", "cheap", "block"]
"""What may be computed again."""

TOKENS = 1_024
"""Of a step, for each GPU: with fewer, messages and waiting take most of the time."""

SLICE = 2_048
"""Tokens of a sequence below which cp does not cut: real products lose speed there."""

BUBBLE = 0.15
"""The longest bubble, as a share of the working time."""

EXPOSED = 0.02
"""The share of a step in which messages of ZeRO-3 may travel alone."""


def choose(config: ModelConfig, cluster: Cluster, *, num_tokens: int) -> Step:
    """Return the step of the layout that the rule picks: the first one of its list that will do.

    Args:
        config: the model, and the length of its sequences.
        cluster: on what.
        num_tokens: of a step, over all GPUs.

    Raises:
        ValueError: if the batch is no whole number of sequences or too small for so many GPUs, or
            nothing fits.
    """
    if num_tokens < 1 or num_tokens % config.context_length:
        raise ValueError(
            f"num_tokens must be a multiple of the {config.context_length:,} tokens of a sequence, "
            f"got {num_tokens:,}"
        )
    each = num_tokens // cluster.num_gpus
    if each < TOKENS:
        raise ValueError(
            f"a step has {each:,} tokens for each of {cluster.num_gpus:,} GPUs, and the rule wants "
            f"{TOKENS:,}: take a larger batch, or at most {num_tokens // TOKENS:,} GPUs"
        )
    for job in candidates(config, cluster, num_tokens // config.context_length):
        step = simulate_job(job, cluster)
        exposed = job.zero_stage == 3 and step.seconds_by_part["dp"] > EXPOSED * step.seconds
        if step.fits and not exposed:
            return step
    raise ValueError(
        f"the rule finds no layout of {cluster.num_gpus:,} GPUs that fits: take more of them, "
        "or ask search"
    )


def candidates(config: ModelConfig, cluster: Cluster, batch_size: int) -> Iterator[Job]:
    """Yield layouts in the order in which the rule wants them."""
    for cp, tp, ep, menu in _cuts(config, cluster):
        left, rest = divmod(cluster.num_gpus, cp * tp * ep)
        if rest or config.context_length % (2 * cp * tp) or config.num_heads % tp:
            continue
        for pp in (p for p in divisors(left) if p <= config.num_layers):
            split = _split(config, batch_size, dp=left // pp, pp=pp, cp=cp, ep=ep, tp=tp)
            if split is None:
                continue
            for (stage, shards), recompute in product(sharding(split, cluster), menu):
                yield Job(
                    config=config,
                    split=split,
                    batch_size=batch_size,
                    recompute=recompute,
                    zero_stage=stage,
                    shards=shards,
                )


def _cuts(
    config: ModelConfig, cluster: Cluster
) -> Iterator[tuple[int, int, int, tuple[Menu, ...]]]:
    """Yield cp, tp and ep, and what may be computed again with them.

    cp down to slices of `SLICE`, then tp as far as the domain reaches; the same with whole blocks
    computed again; and thinner slices as the last resort.  Experts are cut by ep, never by tp.
    """
    domain = cluster.hardware.domain
    powers = [2**n for n in range(domain.bit_length()) if 2**n <= domain]
    most = max(1, config.context_length // SLICE).bit_length()
    thick, thin = [2**n for n in range(most)], [2 ** (most + n) for n in range(3)]
    cheap: tuple[Menu, ...] = ("nothing",) if config.num_experts else ("nothing", "cheap")
    if config.num_experts:
        shared = math.gcd(config.num_experts, cluster.num_gpus)
        ep = max(n for n in divisors(shared) if n <= domain)
        usual, last = [(cp, 1, ep) for cp in thick], [(cp, 1, ep) for cp in thin]
    else:
        usual = [(cp, 1, 1) for cp in thick] + [(thick[-1], tp, 1) for tp in powers[1:]]
        last = [(cp, powers[-1], 1) for cp in thin]
    for cuts, menu in ((usual, cheap), (usual, ("block",)), (last, (*cheap, "block"))):
        yield from ((*cut, menu) for cut in cuts)


def _split(config: ModelConfig, batch_size: int, **axes: int) -> Split | None:
    """Return a split with one sequence in a micro-batch, or None if the batch is too small for it.

    Too small is one that has fewer micro-batches than stages, or a bubble beyond `BUBBLE`.
    """
    pp, tp = axes["pp"], axes["tp"]
    m, left = divmod(batch_size, axes["dp"] * axes["ep"])
    if left or m < pp:
        return None
    chunks = max(1, config.num_layers // pp) if pp > 1 and m % pp == 0 else 1
    pipeline: Pipeline = "interleaved" if chunks > 1 else "1f1b"
    if pp > 1 and bubble_share(pipeline, pp, m, chunks) > BUBBLE:
        return None
    return Split(
        **axes,
        micro_batches=m,
        chunks=chunks,
        pipeline=pipeline,
        sequence_parallel=tp > 1,
        replicate_kv=tp > config.num_kv_heads,
    )
