"""Bytes that training keeps for each parameter, accelerators, and the time that they take.

Times assume a stated share of the peak of a stated part.
"""

from dataclasses import dataclass

from llmcourse.base.arguments import require, require_each


@dataclass(frozen=True, kw_only=True)
class TrainingBytes:
    """Bytes per parameter that training keeps, by what they hold."""

    weights: int
    """Weights that the forward pass reads."""
    gradients: int
    """One gradient per weight."""
    master: int
    """A second, precise copy of the weights, where the first is bf16."""
    moments: int
    """AdamW's mean and mean square."""

    @property
    def optimizer(self) -> int:
        """Bytes per parameter of the optimizer's state: moments and master copy."""
        return self.master + self.moments

    @property
    def total(self) -> int:
        """Bytes per parameter in all."""
        return self.weights + self.gradients + self.optimizer


FP32_TRAINING = TrainingBytes(weights=4, gradients=4, master=0, moments=8)
"""Everything in float32, as on the CPU here: 16 bytes."""

MIXED_TRAINING = TrainingBytes(weights=2, gradients=2, master=4, moments=8)
"""bf16 weights and gradients, fp32 master and moments: 16 bytes (ZeRO, arXiv 1910.02054)."""

MIXED_WIDE_GRADIENTS = TrainingBytes(weights=2, gradients=4, master=4, moments=8)
"""The same with gradients summed in fp32, as Llama 3 was trained: 18 bytes."""

MOMENTS_IN_BF16 = TrainingBytes(weights=2, gradients=2, master=0, moments=4)
"""Nothing in fp32: 8 bytes, and updates that round away (chapter 27)."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One accelerator, from its data sheet."""

    name: str
    dense_bf16_flop_per_s: float
    """Peak without sparsity; data sheets often print twice that."""
    memory_bytes: float
    memory_bytes_per_s: float
    watts: int | None
    """Highest power of the accelerator alone, without its server; None where unpublished."""
    link_bytes_per_s: float
    """What one accelerator sends inside its domain, in one direction (data sheets print both)."""
    domain: int
    """How many accelerators these links join: one server, one rack, or one TPU pod (a torus)."""
    network_bytes_per_s: float
    """What one accelerator sends to another domain, in one direction: its share of the server's
    network cards."""
    source: str


HARDWARE = {
    "V100": Hardware(
        name="NVIDIA V100 SXM2 32 GB",
        dense_bf16_flop_per_s=125e12,
        memory_bytes=32e9,
        memory_bytes_per_s=0.9e12,
        watts=300,
        link_bytes_per_s=150e9,
        domain=8,
        network_bytes_per_s=6.25e9,
        source="NVIDIA V100 data sheet, 2018 (the peak is that of fp16: it has no bf16; NVLink 300 "
        "GB/s both ways); DGX-1: 4 cards of 100 Gb/s for 8 GPUs",
    ),
    "TPUv4": Hardware(
        name="Google TPU v4",
        dense_bf16_flop_per_s=275e12,
        memory_bytes=32e9,
        memory_bytes_per_s=1.2e12,
        watts=192,
        link_bytes_per_s=300e9,
        domain=4_096,
        network_bytes_per_s=6.25e9,
        source="Jouppi et al. 2023, table 4 (6 links of 50 GB/s), "
        "https://arxiv.org/abs/2304.01433; network: taken to be the v5p's",
    ),
    "A100": Hardware(
        name="NVIDIA A100 SXM 80 GB",
        dense_bf16_flop_per_s=312e12,
        memory_bytes=80e9,
        memory_bytes_per_s=2.039e12,
        watts=400,
        link_bytes_per_s=300e9,
        domain=8,
        network_bytes_per_s=25e9,
        source="NVIDIA A100 data sheet, 2021 (624 TFLOP/s is with sparsity, NVLink 600 GB/s both "
        "ways); DGX A100: 200 Gb/s for each GPU",
    ),
    "H100": Hardware(
        name="NVIDIA H100 SXM 80 GB",
        dense_bf16_flop_per_s=989.4e12,
        memory_bytes=80e9,
        memory_bytes_per_s=3.35e12,
        watts=700,
        link_bytes_per_s=450e9,
        domain=8,
        network_bytes_per_s=50e9,
        source="NVIDIA H100 data sheet, 2023 (1,979 TFLOP/s is with sparsity, NVLink 900 GB/s both "
        "ways); DGX H100: 400 Gb/s for each GPU",
    ),
    "H200": Hardware(
        name="NVIDIA H200 SXM 141 GB",
        dense_bf16_flop_per_s=989.4e12,
        memory_bytes=141e9,
        memory_bytes_per_s=4.8e12,
        watts=700,
        link_bytes_per_s=450e9,
        domain=8,
        network_bytes_per_s=50e9,
        source="NVIDIA H200 data sheet, 2024 (an H100 with more and faster memory)",
    ),
    "H800": Hardware(
        name="NVIDIA H800 SXM 80 GB",
        dense_bf16_flop_per_s=989.4e12,
        memory_bytes=80e9,
        memory_bytes_per_s=3.35e12,
        watts=700,
        link_bytes_per_s=200e9,
        domain=8,
        network_bytes_per_s=50e9,
        source="as the H100, with slower links, NVLink 400 GB/s both ways "
        "(https://arxiv.org/abs/2505.09343, section 4.1)",
    ),
    "B200": Hardware(
        name="NVIDIA B200 192 GB",
        dense_bf16_flop_per_s=2.25e15,
        memory_bytes=192e9,
        memory_bytes_per_s=8e12,
        watts=1_000,
        link_bytes_per_s=900e9,
        domain=8,
        network_bytes_per_s=50e9,
        source="NVIDIA Blackwell architecture brief, 2024 (NVLink 1.8 TB/s both ways); DGX B200: "
        "400 Gb/s for each GPU",
    ),
    "GB200": Hardware(
        name="NVIDIA GB200 NVL72, one of its 72 GPUs",
        dense_bf16_flop_per_s=2.5e15,
        memory_bytes=186e9,
        memory_bytes_per_s=8e12,
        watts=1_200,
        link_bytes_per_s=900e9,
        domain=72,
        network_bytes_per_s=50e9,
        source="NVIDIA GB200 NVL72 data sheet, 2024 (a rack: 360 PFLOP/s with sparsity, 13.4 TB, "
        "576 TB/s, NVLink 130 TB/s both ways); 400 Gb/s for each GPU",
    ),
    "TPUv5p": Hardware(
        name="Google TPU v5p",
        dense_bf16_flop_per_s=459e12,
        memory_bytes=95e9,
        memory_bytes_per_s=2.765e12,
        watts=None,
        link_bytes_per_s=600e9,
        domain=8_960,
        network_bytes_per_s=6.25e9,
        source="Google Cloud, TPU v5p, https://cloud.google.com/tpu/docs/v5p (links 1,200 GB/s "
        "both ways, network 50 Gb/s a chip; power not published)",
    ),
}
"""Accelerators by short name."""


def training_seconds(
    *,
    num_parameters: int | float,
    num_tokens: int | float,
    num_gpus: int,
    hardware: Hardware,
    utilisation: int | float,
) -> float:
    """Return the time to train, by the rule of six:  6 N D / (GPUs x peak x utilisation).

    Args:
        num_parameters: N.
        num_tokens: D.
        num_gpus: how many work on it, 1 or more.
        hardware: which ones.
        utilisation: share of the dense bf16 peak that is reached (MFU), in (0, 1].

    Raises:
        ValueError: if an argument is outside its range.

    Source:
        Kaplan et al. 2020, section 2.1, https://arxiv.org/abs/2001.08361
    """
    sizes = {"num_parameters": num_parameters, "num_tokens": num_tokens, "num_gpus": num_gpus}
    require_each(sizes, above=0)
    require("utilisation", utilisation, above=0, most=1)
    flop = 6 * num_parameters * num_tokens
    return flop / (num_gpus * hardware.dense_bf16_flop_per_s * utilisation)
