"""The operations of one layer and one micro-batch on one rank, and their seconds.

Bytes that are sent are those of `scale.cost`, which equal those of the package's own ranks.

Shape letters: D width, H heads, G key/value heads, K head size, F hidden (H, G, F of this rank),
T tokens on this rank, S keys, E experts here, k experts of one token.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

from llmcourse.model import ModelConfig
from llmcourse_labs.scale.cost.traffic import (
    context_parallel_bytes,
    expert_parallel_bytes,
    tensor_parallel_bytes,
)
from llmcourse_labs.scale.simulator.cluster import Cluster
from llmcourse_labs.scale.simulator.job import Job

Half = Literal["attention", "scores", "feed-forward"]


class Operation(NamedTuple):
    """A kind of work in a layer."""

    half: Half
    """Where it is; what is computed again is chosen by it."""
    part: str
    """Of the step, see `Step.seconds_by_part`."""
    forward: float
    """Seconds."""
    backward: float
    """Seconds."""


class Product(NamedTuple):
    """A product of matrices, and in backward the two for the gradients of its factors."""

    rows: float
    out: float
    into: float

    def seconds(self, cluster: Cluster) -> tuple[float, float]:
        """Return the time of its forward and of its backward pass."""
        rows, out, into = self
        return product_seconds(rows, out, into, cluster), (
            product_seconds(rows, into, out, cluster) + product_seconds(out, into, rows, cluster)
        )


def product_seconds(
    rows: int | float, out: int | float, into: int | float, cluster: Cluster
) -> float:
    """Return the time of one product in bf16, by the roofline.

    ::

        max(2 rows out into / rate, 2 (rows into + into out + rows out) / bandwidth) + launch
    """
    moved = 2 * (rows * into + into * out + rows * out)
    seconds = max(2 * rows * out * into / cluster.product_flop_per_s, moved / cluster.memory_rate)
    return seconds + cluster.shares.launch_s


def operations(job: Job, cluster: Cluster) -> Iterator[Operation]:
    """Yield the operations of a layer.

    Operations that memory bounds move so many numbers for each token::

        residual stream   5 D forward, 8 D backward, for each half (norm and sum)
        rotation          4 (H + G) K, both ways
        activation        3 k F forward, 5 k F backward
        scores            6 S H forward, 9 S H backward, where they are written

    A fused attention skips what the mask removes, and computes its scores again in backward.
    """
    one, split, number = one_layer(job.config), job.split, job.precision.activation
    rows, keys = job.sequences * job.length, one.context_length
    # What is on this rank: tp cuts heads and hidden units, ep shares out the experts.
    heads, groups = one.num_heads / split.tp, max(1, one.num_kv_heads / split.tp)
    width, size, hidden = one.width, one.head_size, one.hidden / split.tp
    chosen, local = max(1, one.experts_per_token), max(1, one.num_experts // split.ep)
    # Side by side, the two halves have one norm and one sum between them: half for each.
    stream = width / (split.tp if split.sequence_parallel else 1) / (1 + job.side_by_side)

    def moved(half: Half, forward: int | float, backward: int | float) -> Operation:
        unit = rows * number / cluster.memory_rate
        return Operation(half, "memory", forward * unit, backward * unit)

    for product in (
        # Queries, keys and values in one product; then the output.
        Product(rows, (heads + 2 * groups) * size, width),
        Product(rows, width, heads * size),
    ):
        yield Operation("attention", "products", *product.seconds(cluster))
    turned = 4 * (heads + groups) * size
    yield moved("attention", 5 * stream + turned, 8 * stream + turned)
    pairs_flop = 4 * rows * keys * heads * size
    if job.scores == "fused":
        core = pairs_flop / 2 / cluster.attention_flop_per_s
        # Five products to two: the scores again, and two gradients for each product of forward.
        yield Operation("scores", "attention", core, 2.5 * core)
    else:
        core = pairs_flop / cluster.product_flop_per_s
        yield Operation("scores", "attention", core, 2 * core)
        yield moved("scores", 6 * keys * heads, 9 * keys * heads)
    for product in (
        # Gate and up in one product; then down.  T k / E rows each, if the routing is even.
        Product(rows * chosen / local, 2 * hidden, width),
        Product(rows * chosen / local, width, hidden),
    ):
        forward, backward = product.seconds(cluster)
        yield Operation("feed-forward", "products", local * forward, local * backward)
    yield moved("feed-forward", 5 * stream + 3 * chosen * hidden, 8 * stream + 5 * chosen * hidden)
    yield from messages(job, cluster)


def messages(job: Job, cluster: Cluster) -> Iterator[Operation]:
    """Yield the messages of a layer along tp, cp and ep; nothing hides them."""
    split, wait, sent = job.split, cluster.shares.message_s, layer_bytes(job)
    if split.tp > 1:
        once = sent["tp"][0] / 2 / cluster.bandwidth(split.tp, 1) + 2 * (split.tp - 1) * wait
        # With sequence parallelism the input of a half is gathered once more in backward.
        again = 1.5 if split.sequence_parallel else 1.0
        yield Operation("attention", "tp", once, again * once)
        yield Operation("feed-forward", "tp", once, again * once)
    if split.cp > 1:
        rate = cluster.bandwidth(split.cp, split.tp * split.ep)
        forward, backward = (each / rate for each in sent["cp"])
        hops = (split.cp - 1) * wait
        yield Operation("attention", "cp", forward + hops, backward + 2 * hops)
    if split.ep > 1:
        once = _exchange(sent["ep"][0], job, cluster) + 2 * (split.ep - 1) * wait
        yield Operation("feed-forward", "ep", once, once)


def _exchange(sent: int | float, job: Job, cluster: Cluster) -> float:
    """Return the seconds in which every rank along ep has sent rows to every other one.

    No ring carries them: what goes to another domain leaves through the rank's own card.
    """
    ep, inner = job.split.ep, job.split.tp
    inside = max(1, min(ep, cluster.hardware.domain // inner))
    away = sent * (ep - inside) / (ep - 1)
    return max(
        (sent - away) / cluster.hop_rate(inside * inner), away / cluster.hop_rate(ep * inner)
    )


def layer_bytes(job: Job) -> dict[str, tuple[int | float, int | float]]:
    """Return what a rank sends in one layer of one micro-batch, by axis, forward and backward."""
    one, split, number = one_layer(job.config), job.split, job.precision.activation
    rows, nothing = job.sequences * job.length, (0.0, 0.0)
    found: dict[str, tuple[int | float, int | float]]
    found = {"tp": nothing, "cp": nothing, "ep": nothing}
    if split.tp > 1:
        sent = tensor_parallel_bytes(
            one, split.tp, batch_size=job.sequences, length=job.length, number_bytes=number
        )["blocks"]
        found["tp"] = (sent / 2 / (1 + job.side_by_side),) * 2
    if split.cp > 1:
        ring = context_parallel_bytes(
            _slice(one, split.tp),
            split.cp,
            batch_size=job.sequences,
            length=one.context_length,
            num_parameters=0,
            number_bytes=number,
        )
        found["cp"] = (ring["forward"], ring["backward"])
    if split.ep > 1:
        sizes = {"num_tokens": rows, "num_parameters": 0}
        sent = expert_parallel_bytes(one, split.ep, **sizes, number_bytes=number)["rows"]
        found["ep"] = (sent / 2,) * 2
    return found


@lru_cache(maxsize=64)
def one_layer(config: ModelConfig) -> ModelConfig:
    """Return a model of one layer."""
    return replace(config, num_layers=1)


@lru_cache(maxsize=64)
def _slice(one: ModelConfig, tp: int) -> ModelConfig:
    """Return a model with the key/value heads of one tensor-parallel rank."""
    heads = max(1, one.num_kv_heads // tp)
    return replace(one, num_heads=heads, num_kv_heads=heads)
