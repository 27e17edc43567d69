"""Runs whose size, hardware and hours are known, or were estimated by others."""

from dataclasses import dataclass

from llmcourse_labs.scale.cost.hardware import HARDWARE
from llmcourse_labs.scale.cost.utilisation import model_flop_per_token, utilisation_from_hours


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """A pre-training run, as its makers or others describe it."""

    name: str
    num_parameters: float
    """Of a mixture of experts, the active ones."""
    num_tokens: float
    hardware: str
    """A name in `HARDWARE`."""
    gpu_hours: float
    num_gpus: int
    """Of the pre-training at its largest; where none is published, see the source."""
    dollars_per_gpu_hour: float | None
    """What the source assumes; None where it names no price."""
    source: str

    @property
    def flop(self) -> float:
        """Return 6 N D."""
        return model_flop_per_token(self.num_parameters) * self.num_tokens

    @property
    def mfu(self) -> float:
        """Return the share of the peak over all hours, by 6 N D."""
        hardware = HARDWARE[self.hardware]
        return utilisation_from_hours(flop=self.flop, gpu_hours=self.gpu_hours, hardware=hardware)


PUBLISHED = {
    "GPT-3": PublishedRun(
        name="GPT-3 175B",
        num_parameters=174.6e9,
        num_tokens=300e9,
        hardware="V100",
        gpu_hours=3.14e23 / 28e12 / 3600,
        num_gpus=10_000,
        dollars_per_gpu_hour=1.50,
        source="estimate of Lambda 2020: 28 TFLOP/s and $1.50, "
        "https://lambdalabs.com/blog/demystifying-gpt-3; "
        "10,000 V100 by Patterson et al. 2021, https://arxiv.org/abs/2104.10350",
    ),
    "Llama 3.1 405B": PublishedRun(
        name="Llama 3.1 405B",
        num_parameters=405.85e9,
        num_tokens=15.6e12,
        hardware="H100",
        gpu_hours=30.84e6,
        num_gpus=16_384,
        dollars_per_gpu_hour=None,
        source="model card of Llama 3.1; https://arxiv.org/abs/2407.21783",
    ),
    "Llama 3 70B": PublishedRun(
        name="Llama 3 70B",
        num_parameters=70.55e9,
        num_tokens=15e12,
        hardware="H100",
        gpu_hours=6.4e6,
        num_gpus=16_384,
        dollars_per_gpu_hour=None,
        source="model card of Llama 3; the number of GPUs is not published, this is the 405B's",
    ),
    "DeepSeek-V3": PublishedRun(
        name="DeepSeek-V3",
        num_parameters=37.55e9,
        num_tokens=14.8e12,
        hardware="H800",
        gpu_hours=2.664e6,
        num_gpus=2_048,
        dollars_per_gpu_hour=2.00,
        source="https://arxiv.org/abs/2412.19437, table 1; 2.788 M hours with all later stages",
    ),
}
"""Runs by short name."""
