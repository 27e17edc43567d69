"""Splitting a model: a step of `stories` in every layout on 2 and 4 ranks.

Beside each layout stand the same step on one rank, the same layout by torch where torch has it, and
the bytes that the formulas of `llmcourse_labs.scale.cost` expect.  All sides take the same batch,
with our AdamW; ours do not compare calls before each collective.  More ranks than cores cannot be
faster than one: rates on such a machine say what a layout costs, not what it gains.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from bench.data_parallel import slowest, step_seconds
from bench.timing import row
from llmcourse import loss, optim
from llmcourse.model import ModelConfig, Transformer, stories
from llmcourse.model.attention import rope_adjacent
from llmcourse.parallel import mesh, pipeline, world
from llmcourse_labs.scale import cost

BATCH, LENGTH, MICRO_BATCHES = 24, 96, 4
DENSE = replace(stories(), tied_head=False)
MIXTURE = replace(DENSE, hidden=112, num_experts=4, experts_per_token=2)

PIPELINES = {
    "gpipe": {"pipeline": "gpipe"},
    "1f1b": {"pipeline": "1f1b"},
    "interleaved": {"pipeline": "interleaved", "chunks": 2},
    "zero bubble": {"pipeline": "zero_bubble"},
}
LAYOUTS: dict[int, dict[str, dict[str, Any]]] = {
    2: {
        "dp": {"dp": 2},
        "tp": {"tp": 2},
        "tp with sequence parallelism": {"tp": 2, "sequence_parallel": True},
        "cp": {"cp": 2},
        **{
            f"pp, {name}": {"pp": 2, "micro_batches": MICRO_BATCHES, **settings}
            for name, settings in PIPELINES.items()
        },
        "ep": {"ep": 2},
    },
    4: {
        "dp": {"dp": 4},
        "dp x tp": {"dp": 2, "tp": 2},
        "tp": {"tp": 4, "replicate_kv": True},
        "cp": {"cp": 4},
        "pp, 1f1b": {"pp": 4, "micro_batches": MICRO_BATCHES},
        "ep": {"ep": 4},
    },
}
"""By number of ranks, and by name; `ep` runs a mixture, all others a dense model."""


def config_of(name: str) -> ModelConfig:
    """Return the model of a layout."""
    return MIXTURE if name.startswith("ep") else DENSE


def batch() -> tuple[Tensor, Tensor]:
    """Return ids and targets of the whole batch, alike on every rank."""
    shape, g = (2, BATCH, LENGTH), torch.Generator().manual_seed(1)
    ids, targets = torch.randint(0, DENSE.vocab_size, shape, generator=g)
    return ids, targets


def new_model(config: ModelConfig) -> Transformer:
    """Return the model, alike on every rank."""
    return Transformer(config, generator=torch.Generator().manual_seed(0))


def stepper(model: nn.Module, gradients: Callable[[], None]) -> Callable[[], None]:
    """Return a training step from what leaves the gradients of the batch."""
    optimizer = optim.AdamW(list(model.parameters()), lr=1e-3)

    def step() -> None:
        gradients()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def alone(config: ModelConfig, index: int) -> Callable[[], None]:
    """Return a step of the whole batch on the first rank, while the others wait."""
    if index > 0:
        return lambda: None
    model, (ids, targets) = new_model(config), batch()
    return stepper(model, lambda: loss.cross_entropy(model(ids), targets).backward())


def ours(rank: world.Rank, name: str, settings: dict[str, Any]) -> tuple[Callable, world.Rank]:
    """Return a step in one of our layouts, and the rank that counts its bytes."""
    split = mesh.Split(**settings)
    rank = world.Rank(rank.index, split.sizes, messages=[])
    for axis in mesh.AXES:
        rank.axis(axis).check_calls = False
    part = mesh.LocalModel(new_model(config_of(name)), rank, split)
    share = rank.place["dp"] * split.ep + rank.place["ep"]
    ids, targets = (x.chunk(split.batch_shares)[share] for x in batch())

    def gradients() -> None:
        part.forward_and_backward(ids, targets, num_tokens=BATCH * LENGTH)
        part.sync()

    return stepper(part, gradients), rank


class TorchBlock(nn.Module):
    """A Llama's layer of torch's own modules, which `parallelize_module` knows how to cut."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.head_size = config.width, config.head_size
        queries, keys = (n * config.head_size for n in (config.num_heads, config.num_kv_heads))
        self.attention_norm = nn.RMSNorm(width, eps=config.norm_eps)
        self.network_norm = nn.RMSNorm(width, eps=config.norm_eps)
        self.w_q, self.w_o = _linear(width, queries), _linear(queries, width)
        self.w_k, self.w_v = _linear(width, keys), _linear(width, keys)
        self.w_gate, self.w_up = _linear(width, config.hidden), _linear(width, config.hidden)
        self.w_down = _linear(config.hidden, width)

    def forward(self, x: Tensor, rotations: Tensor) -> Tensor:
        """Add what the two parts of the layer contribute."""
        normed = self.attention_norm(x)
        q, k, v = (
            w(normed).unflatten(-1, (-1, self.head_size)) for w in (self.w_q, self.w_k, self.w_v)
        )
        q, k = rope_adjacent(q, rotations), rope_adjacent(k, rotations)
        heads = (each.transpose(1, 2) for each in (q, k, v))
        read = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        x = x + self.w_o(read.transpose(1, 2).flatten(-2))
        normed = self.network_norm(x)
        return x + self.w_down(F.silu(self.w_gate(normed)) * self.w_up(normed))


class TorchLlama(nn.Module):
    """The dense model of torch's own modules."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(TorchBlock(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.head = _linear(config.width, config.vocab_size)
        self.rotations = new_model(config).rotations_TJ2[:LENGTH]

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of every position."""
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.rotations)
        return self.head(self.norm(x))


def _linear(given: int, width: int) -> nn.Linear:
    return nn.Linear(given, width, bias=False)


def torch_ddp(rank: world.Rank) -> Callable[[], None]:
    """Return a step of torch's DDP around our model."""
    model = DistributedDataParallel(new_model(DENSE))
    ids, targets = (x.chunk(rank.size)[rank.index] for x in batch())
    return stepper(model, lambda: loss.cross_entropy(model(ids), targets).backward())


def torch_tensors(ranks: DeviceMesh, *, sequence_parallel: bool) -> Callable[[], None]:
    """Return a step of torch's tensor parallelism, its loss cut by vocabulary too."""
    stream = Shard(1) if sequence_parallel else Replicate()
    torch.manual_seed(0)
    model = TorchLlama(DENSE)
    inside = {name: ColwiseParallel(input_layouts=stream) for name in ("w_q", "w_k", "w_v")}
    inside |= {name: ColwiseParallel(input_layouts=stream) for name in ("w_gate", "w_up")}
    inside |= {name: RowwiseParallel(output_layouts=stream) for name in ("w_o", "w_down")}
    norms = {"attention_norm": SequenceParallel(), "network_norm": SequenceParallel()}
    for block in model.blocks:
        parallelize_module(block, ranks, inside | (norms if sequence_parallel else {}))
    parallelize_module(
        model,
        ranks,
        {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=stream),
            "head": ColwiseParallel(
                input_layouts=stream, output_layouts=Shard(-1), use_local_output=False
            ),
            **({"norm": SequenceParallel()} if sequence_parallel else {}),
        },
    )
    ids, targets = batch()

    def gradients() -> None:
        with loss_parallel():
            F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()

    # torch's optimizer, which knows tensors that are cut.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def step() -> None:
        gradients()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def torch_pipeline(rank: world.Rank, schedule: type, chunks: int = 1) -> Callable[[], None]:
    """Return a step of torch's schedule over our stages."""
    parts = pipeline.cut(new_model(DENSE), rank.size, rank.index, chunks)
    cpu, num_stages = torch.device("cpu"), rank.size * chunks
    stages = [
        PipelineStage(part, rank.index + chunk * rank.size, num_stages, cpu)
        for chunk, part in enumerate(parts)
    ]
    order = schedule(stages if chunks > 1 else stages[0], MICRO_BATCHES, loss_fn=loss.cross_entropy)
    ids, targets = batch()
    is_first, is_last = rank.index == 0, rank.index == rank.size - 1

    def gradients() -> None:
        order.step(*([ids] if is_first else []), **({"target": targets} if is_last else {}))

    return stepper(nn.ModuleList(parts), gradients)


def torchs(rank: world.Rank) -> dict[str, Callable[[], None]]:
    """Return torch's steps by the name of the layout."""
    ranks = init_device_mesh("cpu", (rank.size,))
    sides = {"dp": torch_ddp(rank), "pp, 1f1b": torch_pipeline(rank, Schedule1F1B)}
    if rank.size == 2:  # of 2 key/value heads
        sides["tp"] = torch_tensors(ranks, sequence_parallel=False)
        sides["tp with sequence parallelism"] = torch_tensors(ranks, sequence_parallel=True)
        sides["pp, gpipe"] = torch_pipeline(rank, ScheduleGPipe)
        sides["pp, interleaved"] = torch_pipeline(rank, ScheduleInterleaved1F1B, 2)
    return sides


def compare(rank: world.Rank, repeats: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Time one rank's steps of every side; return them, and the bytes of one step by layout."""
    torch.set_num_threads(1)
    counted, sides, sent = {}, {}, {}
    for name, settings in LAYOUTS[rank.size].items():
        sides[name], counted[name] = ours(rank, name, settings)
    sides |= {f"torch's {name}": step for name, step in torchs(rank).items()}
    sides |= {"one rank": alone(DENSE, rank.index), "one rank, ep": alone(MIXTURE, rank.index)}
    for name, its in counted.items():
        axes = [its.axis(axis) for axis in mesh.AXES]
        before = sum(axis.sent_bytes for axis in axes)
        sides[name]()
        sent[name] = sum(axis.sent_bytes for axis in axes) - before
    return step_seconds(rank.world, sides, repeats=repeats), sent


def expected_bytes(name: str, settings: dict[str, Any]) -> float:
    """Return the mean over ranks of the bytes that one sends in a step, by formula."""
    split = mesh.Split(**settings)
    totals = [
        cost.layout_bytes(
            config_of(name),
            split,
            batch_size=BATCH,
            context_length=LENGTH,
            place=world.place_of(index, split.sizes),
        )
        for index in range(split.num_ranks)
    ]
    return sum(sum(each.values()) for each in totals) / split.num_ranks


def rows(*, quick: bool) -> list[dict]:
    """Return the rows of this benchmark."""
    found = []
    for num_ranks, layouts in LAYOUTS.items():
        with world.Pool(num_ranks, timeout_s=300) as pool:
            results = pool.run(compare, 3 if quick else 21)
        seconds = slowest([each for each, _ in results])
        rates = {name: BATCH * LENGTH / s for name, s in seconds.items()}
        for name, settings in layouts.items():
            what = f"split by {name}, {num_ranks} ranks"
            single = rates["one rank, ep" if name == "ep" else "one rank"]
            found.append(row(what, rates[name], single, "one rank", "tokens/s"))
            if f"torch's {name}" in rates:
                peer = rates[f"torch's {name}"]
                found.append(row(what, rates[name], peer, "torch's", "tokens/s"))
            sent = sum(by_name[name] for _, by_name in results) / num_ranks
            aim = "1" if name != "ep" else ""  # the formula takes a router that is uniform
            formula = expected_bytes(name, settings)
            found.append(row(what, sent, formula, "cost.layout_bytes", "bytes/step", aim=aim))
    return found
