"""A widget about the cost of a run: from parameters and tokens to hours, money and energy."""

from typing import Any

import traitlets

from llmcourse_classroom.state import Choice, Limited, Whole
from llmcourse_classroom.widget import Widget
from llmcourse_labs.scale import cost
from llmcourse_labs.scale.cost import PUBLISHED, PublishedRun

OWN = "your own"
ASSUMED_RENT = 2.0
"""Dollars for a GPU-hour, where the source of a run names none."""


class CostCalculator(Widget):
    """The chain from FLOPs to GPU-hours, days, dollars and energy, with published runs beside it.

    Args:
        preset: a name in `cost.PUBLISHED`, or "your own".
        state: parameters_b and tokens_b (in billions), gpu (a name in `cost.HARDWARE`
            whose power is known), gpus,
            mfu, price (dollars per GPU-hour), watts, host_share, pue, and shown: what the picture
            compares.

    Raises:
        ValueError: if there is no such preset.
    """

    script = "cost_calculator.js"
    alt = (
        "The chain from FLOPs to GPU-hours, days, dollars and kilowatt-hours with its formulas, "
        "and the result on a logarithmic axis beside GPT-3, Llama 3.1 405B, Llama 3 70B and "
        "DeepSeek-V3."
    )

    preset = Choice((*PUBLISHED, OWN))
    presets = traitlets.Dict().tag(sync=True)
    hardware = traitlets.Dict().tag(sync=True)
    gpu = Choice(tuple(name for name, part in cost.HARDWARE.items() if part.watts))
    shown = Choice(("GPU-hours", "days", "dollars", "kWh"), default="dollars")
    parameters_b = Limited(1, low=1e-4, high=1e5, step=1e-4, label="parameters N, billion")
    tokens_b = Limited(1, low=1e-4, high=1e6, step=1e-4, label="tokens D, billion")
    gpus = Whole(1, low=1, high=1_000_000, step=1, label="GPUs")
    mfu = Limited(0.4, low=0.01, high=1, step=0.001, label="MFU")
    price = Limited(ASSUMED_RENT, low=0.01, high=100, step=0.01, label="dollars per GPU-hour")
    watts = Limited(700, low=1, high=2_000, step=1, label="watts of a GPU")
    host_share = Limited(0, low=0, high=1, step=0.01, label="server and network, share")
    pue = Limited(1, low=1, high=3, step=0.01, label="PUE")

    def __init__(self, preset: str = "Llama 3.1 405B", **state: Any) -> None:
        presets = {name: state_of(run) for name, run in PUBLISHED.items()}
        hardware = {
            name: {
                "name": part.name,
                "peak": part.dense_bf16_flop_per_s,
                "watts": part.watts,
                "source": _plain(part.source),
            }
            for name, part in cost.HARDWARE.items()
            if part.watts
        }
        chosen = {k: v for k, v in presets.get(preset, {}).items() if k != "source"}
        super().__init__(preset=preset, presets=presets, hardware=hardware, **(chosen | state))


def state_of(run: PublishedRun) -> dict[str, Any]:
    """Return what the widget shows of a published run."""
    return {
        "parameters_b": run.num_parameters / 1e9,
        "tokens_b": run.num_tokens / 1e9,
        "gpu": run.hardware,
        "gpus": run.num_gpus,
        "mfu": run.mfu,
        "price": run.dollars_per_gpu_hour or ASSUMED_RENT,
        "watts": cost.HARDWARE[run.hardware].watts,
        "host_share": 0,
        "pue": 1,
        "source": _plain(run.source),
    }


def _plain(source: str) -> str:
    """Leave out what makes an address one that a page might load."""
    return source.replace("https://", "")
