"""Runs whose throughput was published, and what the simulator says of each.

A paper does not print everything.  What it leaves out is not fitted: of micro-batches and chunks,
the simulator takes the fastest that fit.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from llmcourse.model import ModelConfig, llama3_405b
from llmcourse.parallel.legal import divisors
from llmcourse.parallel.mesh import Split
from llmcourse_labs.scale.cost.layout import LLAMA_3, Precision
from llmcourse_labs.scale.cost.model import training_flop_per_token
from llmcourse_labs.scale.simulator.cluster import REACHED, Cluster
from llmcourse_labs.scale.simulator.job import Job, Step
from llmcourse_labs.scale.simulator.step import simulate_job

HALF = Precision(activation=2, gradient=2, parameter=2)
"""Gradients are summed in 16 bits, as Megatron-LM does when it is not told otherwise."""

OF_MEGATRON = {"overlap": False, "zero_stage": 0, "precision": HALF}
"""Settings of its runs on A100s."""


def gpt(*, num_layers: int, width: int, num_heads: int, vocab_size: int = 51_200) -> ModelConfig:
    """Return a Llama of the size and the cost of a GPT.

    Two matrices of width 4 D have the parameters and FLOPs of three of 8/3 D, which is rounded to a
    multiple of 64 here.  Sequences have 2,048 tokens.
    """
    return ModelConfig(
        num_layers=num_layers,
        width=width,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_size=width // num_heads,
        hidden=64 * round(width / 24),
        vocab_size=vocab_size,
        context_length=2_048,
    )


def megatron_flop(config: ModelConfig, batch_size: int) -> float:
    """Return the FLOPs of a step as Megatron-LM counts them, the block computed again included.

    ::

        96 B s l h^2 (1 + s / 6h + V / 16lh)

    Source:
        Narayanan et al. 2021, equation 3, https://arxiv.org/abs/2104.04473
    """
    length, width, layers = config.context_length, config.width, config.num_layers
    share = 1 + length / (6 * width) + config.vocab_size / (16 * layers * width)
    return 96 * batch_size * length * layers * width**2 * share


@dataclass(frozen=True, kw_only=True)
class PublishedStep:
    """A row of a published table."""

    name: str
    accelerator: str
    config: ModelConfig
    axes: dict[str, int]
    """dp, pp, cp and tp, those of 1 left out."""
    batch_size: int
    """Sequences."""
    seconds: float
    """Of a step, from what the paper prints."""
    printed: str
    """That figure, and its unit."""
    sequences: int | None = None
    """Of a micro-batch; None where the paper does not say."""
    chunks: int | None = None
    """Of a pipeline rank; None where the paper does not say."""
    cuts_stream: bool = True
    """Whether tp cuts the residual stream along time, too."""
    settings: dict[str, Any]
    """Other fields of `simulator.Job`."""
    source: str

    @property
    def num_gpus(self) -> int:
        """How many it ran on."""
        return math.prod(self.axes.values())

    def jobs(self) -> Iterator[Job]:
        """Yield all jobs that the row may have been."""
        dp, pp, tp = (self.axes.get(axis, 1) for axis in ("dp", "pp", "tp"))
        share = self.batch_size // dp
        per_stage = self.config.num_layers // pp
        chunks = [v for v in divisors(per_stage) if pp > 1] or [1]
        for sequences in [self.sequences] if self.sequences else (1, 2, 4, 8):
            if share % sequences:
                continue
            for v in [self.chunks] if self.chunks else chunks:
                if v > 1 and (share // sequences) % pp:
                    continue
                split = Split(
                    **self.axes,
                    micro_batches=share // sequences,
                    chunks=v,
                    pipeline="interleaved" if v > 1 else "1f1b",
                    sequence_parallel=tp > 1 and self.cuts_stream,
                    replicate_kv=tp > self.config.num_kv_heads,
                )
                yield Job(
                    config=self.config, split=split, batch_size=self.batch_size, **self.settings
                )

    def simulated(self, cluster: Cluster | None = None) -> Step:
        """Return the fastest of its jobs that fits; where none fits, the fastest."""
        cluster = cluster or Cluster(accelerator=self.accelerator, num_gpus=self.num_gpus)
        steps = [simulate_job(job, cluster) for job in self.jobs()]
        return min(steps, key=lambda step: (not step.fits, step.seconds))


def _megatron(row: str) -> PublishedStep:
    billions, heads, width, layers, tp, pp, gpus, batch, tflops = row.split()
    config = gpt(num_layers=int(layers), width=int(width), num_heads=int(heads))
    axes = {"dp": int(gpus) // int(tp) // int(pp), "pp": int(pp), "tp": int(tp)}
    flop = megatron_flop(config, int(batch))
    return PublishedStep(
        name=f"Megatron-LM {billions} B",
        accelerator="A100",
        config=config,
        axes=axes,
        batch_size=int(batch),
        seconds=flop / int(gpus) / (float(tflops) * 1e12),
        printed=f"{tflops} TFLOP/s",
        cuts_stream=False,
        settings={**OF_MEGATRON, "recompute": "block", "scores": "kept"},
        source="Narayanan et al. 2021, table 1, https://arxiv.org/abs/2104.04473",
    )


MEGATRON = tuple(
    _megatron(row)
    for row in (
        "1.7 24 2304 24 1 1 32 512 137",
        "3.6 32 3072 30 2 1 64 512 138",
        "7.5 32 4096 36 4 1 128 512 142",
        "18.4 48 6144 40 8 1 256 1024 135",
        "39.1 64 8192 48 8 2 512 1536 138",
        "76.1 80 10240 60 8 4 1024 1792 140",
        "145.6 96 12288 80 8 8 1536 2304 148",
        "310.1 128 16384 96 8 16 1920 2160 155",
        "529.6 128 20480 105 8 35 2520 2520 163",
        "1008.0 160 25600 128 8 64 3072 3072 163",
    )
)
"""Table 1: billions, heads, width, layers, tp, pp, GPUs, sequences, TFLOP/s of a GPU."""


def _korthikanti(row: str) -> Iterator[PublishedStep]:
    name, heads, width, layers, pp, batch, micro, full, present = row.split()
    for how, seconds in (("all again", full), ("scores again", present)):
        whole = how == "all again"
        yield PublishedStep(
            name=f"Megatron-LM {name}, {how}",
            accelerator="A100",
            config=gpt(num_layers=int(layers), width=int(width), num_heads=int(heads)),
            axes={"dp": 1, "pp": int(pp), "tp": 8},
            batch_size=int(batch),
            seconds=float(seconds),
            printed=f"{seconds} s",
            sequences=int(micro),
            chunks={"1": 1, "8": 3, "35": 3}.get(pp),
            cuts_stream=not whole,
            settings={
                **OF_MEGATRON,
                "recompute": "block" if whole else "nothing",
                "scores": "kept" if whole else "again",
            },
            source="Korthikanti et al. 2022, tables 3 and 5, https://arxiv.org/abs/2205.05198",
        )


KORTHIKANTI = tuple(
    step
    for row in (
        "22B 64 6144 48 1 4 4 1.42 1.10",
        "175B 96 12288 96 8 64 1 18.13 13.75",
        "530B 128 20480 105 35 280 1 49.05 37.83",
        "1T 160 25600 128 64 512 1 94.42 71.49",
    )
    for step in _korthikanti(row)
)
"""Table 5: heads, width, layers, pp, sequences, of a micro-batch, seconds of a step."""

PALM = PublishedStep(
    name="PaLM 540B",
    accelerator="TPUv4",
    config=ModelConfig(
        num_layers=118,
        width=18_432,
        num_heads=48,
        num_kv_heads=1,
        head_size=256,
        hidden=4 * 18_432,
        vocab_size=256_008,
        context_length=2_048,
    ),
    axes={"dp": 512, "tp": 12},
    batch_size=2_048,
    seconds=2_048 * 2_048 / 238.3e3,
    printed="238.3 k tokens/s",
    cuts_stream=False,
    settings={
        "recompute": "block",
        "scores": "kept",
        "side_by_side": True,
        "zero_stage": 3,
    },
    source="Chowdhery et al. 2022, sections 4 and 5 and appendix B, "
    "https://arxiv.org/abs/2204.02311; the vocabulary of 256,000 is padded to a multiple of 12",
)


def _llama(tflops: int, length: int, batch: int, axes: dict[str, int]) -> PublishedStep:
    config = replace(llama3_405b(), context_length=length)
    row = PublishedStep(
        name=f"Llama 3 405B, {math.prod(axes.values()):,} GPUs, {length:,} tokens",
        accelerator="H100",
        config=config,
        axes=axes,
        batch_size=batch,
        seconds=math.nan,
        printed=f"{tflops} TFLOP/s",
        settings={"precision": LLAMA_3},
        source="Llama Team 2024, table 4, https://arxiv.org/abs/2407.21783",
    )
    job = next(row.jobs())
    flop = training_flop_per_token(config) * job.num_tokens
    return replace(row, seconds=flop / row.num_gpus / (tflops * 1e12))


LLAMA = (
    _llama(430, 8_192, 2_048, {"dp": 64, "pp": 16, "tp": 8}),
    _llama(400, 8_192, 2_048, {"dp": 128, "pp": 16, "tp": 8}),
    _llama(380, 131_072, 128, {"dp": 8, "pp": 16, "cp": 16, "tp": 8}),
)
"""Table 4.  The paper does not say whether its FLOPs count the pairs that the mask removes; here
they do not."""

FITTED = MEGATRON[:5]
"""The rows on which the one number is fitted."""

PREDICTED = (*MEGATRON[5:], *KORTHIKANTI, PALM, *LLAMA)
"""The rows of which nothing is fitted."""


class Row(NamedTuple):
    """A published step beside the simulated one."""

    published: PublishedStep
    step: Step

    @property
    def error(self) -> float:
        """Of the rate: positive where the simulator is too fast."""
        return self.published.seconds / self.step.seconds - 1


def validate(published: Sequence[PublishedStep] = (*FITTED, *PREDICTED)) -> list[Row]:
    """Return every published step beside the simulated one."""
    return [Row(each, each.simulated()) for each in published]


def root_mean_square(rows: Sequence[Row]) -> float:
    """Return the root mean square of the errors of some rows."""
    return math.sqrt(sum(row.error**2 for row in rows) / len(rows))


def fit(published: Sequence[PublishedStep] = FITTED) -> float:
    """Return the share of the best product that fits some rows best, to a hundredth.

    A larger share makes every step faster, so that the root mean square error has one minimum; it
    is found by bisection between 0.50 and 1.00.
    """

    @cache
    def error(hundredths: int) -> float:
        rows = []
        for each in published:
            reached = replace(REACHED[each.accelerator], fitted=hundredths / 100)
            cluster = Cluster(accelerator=each.accelerator, num_gpus=each.num_gpus, reached=reached)
            rows.append(Row(each, each.simulated(cluster)))
        return root_mean_square(rows)

    low, high = 50, 100
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= error(middle + 1) else (middle + 1, high)
    return low / 100
