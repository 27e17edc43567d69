"""A widget about a training step on many GPUs: its time and memory by part, for any layout."""

from dataclasses import asdict
from typing import Any

import traitlets

from llmcourse.model import ModelConfig, llama3_8b, llama3_70b, llama3_405b
from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale.cost import FORGOTTEN, HARDWARE
from llmcourse_labs.scale.simulator import FITTED, PREDICTED, Cluster, PublishedStep

OWN = "your own"
PUBLISHED = {row.name: row for row in (*FITTED, *PREDICTED)}
"""The runs to start from, by name."""


def _shapes() -> dict[str, dict[str, Any]]:
    """Return the models that can be chosen; runs of one model share its name."""
    models = {_model_of(row): row.config for row in PUBLISHED.values()}
    models |= {"Llama 3 8B": llama3_8b(), "Llama 3 70B": llama3_70b()}
    models["Llama 3 405B"] = llama3_405b()
    return {name: shape_of(config) | {"beside": "PaLM" in name} for name, config in models.items()}


def _model_of(row: PublishedStep) -> str:
    """Return the name of the model of a published run."""
    return row.name.split(",")[0]


def shape_of(config: ModelConfig) -> dict[str, Any]:
    """Return the numbers of a dense model in the letters of the page."""
    return {
        "L": config.num_layers,
        "D": config.width,
        "H": config.num_heads,
        "G": config.num_kv_heads,
        "K": config.head_size,
        "F": config.hidden,
        "V": config.vocab_size,
        "tied": config.tied_head,
    }


def hardware_of(name: str) -> dict[str, Any]:
    """Return what the page needs of an accelerator: its data sheet, and what is reached of it."""
    part = HARDWARE[name]
    return {
        "hardware": {
            "peak": part.dense_bf16_flop_per_s,
            "memory": part.memory_bytes,
            "bandwidth": part.memory_bytes_per_s,
            "link": part.link_bytes_per_s,
            "domain": part.domain,
            "network": part.network_bytes_per_s,
        },
        "reached": asdict(Cluster(accelerator=name).shares),
    }


def state_of(row: PublishedStep) -> dict[str, Any]:
    """Return the state of the widget for a published run."""
    job = row.simulated().job
    split = job.split
    return {
        "shape": _model_of(row),
        "gpu": row.accelerator,
        "length": job.config.context_length,
        "batch": job.batch_size,
        "dp": split.dp,
        "pp": split.pp,
        "cp": split.cp,
        "tp": split.tp,
        "sequences": job.sequences,
        "chunks": split.chunks,
        "again": job.recompute,
        "scores": job.scores,
        "zero": str(job.zero_stage),
        "gradient": str(job.precision.gradient),
        "cut": split.sequence_parallel,
        "overlap": job.overlap,
    }


class StepSimulator(Widget):
    """One training step of a dense model, as `scale.simulator` sees it.

    Args:
        preset: the name of a published run, or "your own".
        state: shape (a model), gpu (a name in `cost.HARDWARE`), length (tokens of a sequence),
            batch, dp, pp, cp, tp, sequences (of a micro-batch), chunks, again, scores, zero,
            gradient (bytes), cut (whether tp cuts the tokens, too), overlap and tried (meshes that
            the search has ranked).

    Raises:
        ValueError: if there is no such preset.
    """

    script = "step_simulator.js"
    alt = (
        "Controls for a model, its batch, the GPU and the mesh; bars with the seconds of a "
        "training step by part, the memory of a GPU by part against what it has, and published "
        "runs to start from.  A search tries all meshes of as many GPUs, and each that fits goes "
        "to its place in a ranking."
    )

    preset = Choice((*PUBLISHED, OWN))
    presets = traitlets.Dict().tag(sync=True)
    shapes = traitlets.Dict().tag(sync=True)
    hardware = traitlets.Dict().tag(sync=True)
    shape = Choice(tuple(_shapes()))
    gpu = Choice(tuple(HARDWARE))
    length = Whole(8_192, low=2, high=1_048_576, step=1, label="tokens of a sequence")
    batch = Whole(2_048, low=1, high=1_048_576, step=1, label="sequences of a step")
    dp = Whole(1, low=1, high=65_536, step=1, label="dp: replicas")
    pp = Whole(1, low=1, high=256, step=1, label="pp: stages")
    cp = Whole(1, low=1, high=1_024, step=1, label="cp: parts of a sequence")
    tp = Whole(1, low=1, high=128, step=1, label="tp: parts of a layer")
    sequences = Whole(1, low=1, high=1_024, step=1, label="sequences of a micro-batch")
    chunks = Whole(1, low=1, high=128, step=1, label="chunks of a rank")
    again = Choice(FORGOTTEN)
    scores = Choice(("fused", "kept", "again"))
    zero = Choice(("0", "1", "2", "3"), default="1")
    gradient = Choice(("2", "4"), default="4")
    cut = traitlets.Bool(False).tag(sync=True)
    overlap = traitlets.Bool(True).tag(sync=True)
    tried = Whole(0, low=0, high=1_000, step=1, label="meshes tried")

    def __init__(
        self, preset: str = "Llama 3 405B, 16,384 GPUs, 8,192 tokens", **state: Any
    ) -> None:
        presets = {
            name: {
                "state": state_of(row),
                "seconds": row.seconds,
                "printed": row.printed,
                "source": row.source.replace("https://", ""),
            }
            for name, row in PUBLISHED.items()
        }
        chosen = presets[preset]["state"] if preset in presets else {}
        hardware = {name: hardware_of(name) for name in HARDWARE}
        super().__init__(
            preset=preset, presets=presets, shapes=_shapes(), hardware=hardware, **(chosen | state)
        )
