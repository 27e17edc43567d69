"""From FLOPs to hours, days, money and energy, and where a smaller model is cheaper in the end.

    GPU-hours = FLOPs / (peak x MFU x 3600)
    days      = GPU-hours / GPUs / 24
    dollars   = GPU-hours x price of a GPU-hour
    kWh       = GPU-hours x watts of a GPU x (1 + share of host and network) x PUE / 1000

PUE, the power usage effectiveness, is what a data centre draws over what its computers draw.

Source: Patterson et al. 2021, section 2, https://arxiv.org/abs/2104.10350, for the energy.
"""

from typing import NamedTuple

from llmcourse.base.arguments import require, require_each
from llmcourse_labs.scale.cost.hardware import Hardware


class Bill(NamedTuple):
    """What a run takes."""

    flop: int | float
    gpu_hours: float
    days: float
    dollars: int | float
    energy_kwh: float


def gpu_hours(*, flop: int | float, hardware: Hardware, mfu: int | float) -> float:
    """Return the hours of one accelerator that a run takes, shared by however many there are.

    Args:
        flop: of the whole run, as the model counts them.
        hardware: which accelerator.
        mfu: share of its dense bf16 peak that the model's FLOPs reach, above 0, at most 1.

    Raises:
        ValueError: if a number is impossible.
    """
    require("flop", flop, above=0)
    _check_share("mfu", mfu, above=0)
    return flop / (hardware.dense_bf16_flop_per_s * mfu * 3600)


def days(*, gpu_hours: int | float, num_gpus: int) -> float:
    """Return the days that a number of accelerators need for their hours."""
    _check_hours(gpu_hours)
    require("num_gpus", num_gpus, least=1)
    return gpu_hours / num_gpus / 24


def dollars(*, gpu_hours: int | float, dollars_per_gpu_hour: int | float) -> int | float:
    """Return what the hours would cost if they were rented."""
    _check_hours(gpu_hours)
    require("dollars_per_gpu_hour", dollars_per_gpu_hour, above=0)
    return gpu_hours * dollars_per_gpu_hour


def energy_kwh(
    *,
    gpu_hours: int | float,
    watts_per_gpu: int | float,
    host_share: int | float = 0,
    pue: int | float = 1,
) -> float:
    """Return the energy of the hours in kilowatt-hours.

    Args:
        gpu_hours: number of accelerators times hours.
        watts_per_gpu: mean power of one accelerator.
        host_share: power of its part of server and network, as a share of its own, 0 to 1.  With
            eight H100 of 700 W in a server of 10.2 kW it is 0.82 (NVIDIA DGX H100 data sheet).
        pue: power of the data centre over that of its computers, 1 or greater.

    Raises:
        ValueError: if a number is impossible.
    """
    _check_hours(gpu_hours)
    require("watts_per_gpu", watts_per_gpu, above=0)
    _check_share("host_share", host_share, least=0)
    if not pue >= 1:
        raise ValueError(
            f"pue must be 1 or greater, got {pue}: a data centre draws at least what its "
            "computers draw; divide its power by theirs"
        )
    return gpu_hours * watts_per_gpu * (1 + host_share) * pue / 1000


def bill(
    *,
    flop: int | float,
    hardware: Hardware,
    mfu: int | float,
    num_gpus: int,
    dollars_per_gpu_hour: int | float,
    watts_per_gpu: int | float | None = None,
    host_share: int | float = 0,
    pue: int | float = 1,
) -> Bill:
    """Return the whole chain, from FLOPs to energy.

    Args:
        flop: see `gpu_hours`.
        hardware: which accelerator.
        mfu: see `gpu_hours`.
        num_gpus: accelerators at work.
        dollars_per_gpu_hour: rent of one.
        watts_per_gpu: None takes the highest power of the data sheet.
        host_share: see `energy_kwh`.
        pue: see `energy_kwh`.

    Raises:
        ValueError: if a number is impossible, or the power neither given nor published.
    """
    hours = gpu_hours(flop=flop, hardware=hardware, mfu=mfu)
    watts = hardware.watts if watts_per_gpu is None else watts_per_gpu
    if watts is None:
        raise ValueError(f"the power of a {hardware.name} is not published: give watts_per_gpu")
    return Bill(
        flop,
        hours,
        days(gpu_hours=hours, num_gpus=num_gpus),
        dollars(gpu_hours=hours, dollars_per_gpu_hour=dollars_per_gpu_hour),
        energy_kwh(gpu_hours=hours, watts_per_gpu=watts, host_share=host_share, pue=pue),
    )


def break_even_tokens(
    *,
    large_parameters: int | float,
    large_tokens: int | float,
    small_parameters: int | float,
    small_tokens: int | float,
) -> float:
    """Return after how many served tokens a smaller model that trained longer costs no more.

    Training takes 6 N D FLOPs, and to serve a token takes 2 N.  Both together are equal after

        3 (N_small D_small - N_large D_large) / (N_large - N_small)

    tokens; 0 where the smaller model takes no more FLOPs to train.

    Raises:
        ValueError: if a number is not above 0, or the smaller model is not smaller.

    Source:
        Sardana et al. 2023, https://arxiv.org/abs/2401.00448
    """
    tokens = {"large_tokens": large_tokens, "small_tokens": small_tokens}
    require_each({"small_parameters": small_parameters, **tokens}, above=0)
    require("large_parameters", large_parameters, above=small_parameters)
    more = small_parameters * small_tokens - large_parameters * large_tokens
    return max(0.0, 3 * more / (large_parameters - small_parameters))


def _check_hours(gpu_hours: int | float) -> None:
    """Refuse no hours."""
    if not gpu_hours > 0:
        raise ValueError(f"gpu_hours must be above 0, got {gpu_hours}: give GPUs times hours")


def _check_share(name: str, value: int | float, **least: int | float) -> None:
    """Refuse what is no share."""
    if value > 1:
        raise ValueError(f"{name} must be at most 1, got {value}: write 40 % as 0.4")
    require(name, value, **least)
