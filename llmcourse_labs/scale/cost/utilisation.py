"""FLOPs of training by part and phase, and the share of the hardware's peak that they are.

    utilisation = FLOPs / (accelerators x seconds x peak)

With the FLOPs that the model asks for, forward and backward, this is the model FLOPs utilisation,
MFU.  With those that were computed, recomputation included, it is the hardware FLOPs utilisation,
HFU.  The peak is that of dense bf16 products.

Source: Chowdhery et al. 2022, appendix B, https://arxiv.org/abs/2204.02311.
"""

from llmcourse.base.arguments import require, require_each
from llmcourse.model import ModelConfig
from llmcourse_labs.scale.cost.hardware import Hardware
from llmcourse_labs.scale.cost.model import FORGOTTEN, Forgotten, forward_flop_by_part

FlopByPart = dict[str, int | float]


def training_flop_by_phase(
    config: ModelConfig, *, context_length: int | None = None, forgotten: Forgotten = "nothing"
) -> dict[str, FlopByPart]:
    """Count the FLOPs per token of a training step, by phase and then by part.

    Each product of the forward pass has two in backward, for the gradients of both its factors.
    What was forgotten is computed again before that: as many FLOPs as it took forward.

    Args:
        config: the shape.
        context_length: in tokens; None takes the configuration's.
        forgotten: what each layer computes again: nothing; attention, its matrices included; or
            the block, which is all but the head.

    Returns:
        "forward", "backward" and "recomputation", each by the parts of `forward_flop_by_part`.

    Raises:
        ValueError: if there is no such choice.

    Source:
        Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, for what is worth forgetting.
    """
    if forgotten not in FORGOTTEN:
        raise ValueError(f"forgotten must be one of {', '.join(FORGOTTEN)}, got {forgotten!r}")
    forward = forward_flop_by_part(config, context_length=context_length)
    again = {
        "nothing": set(),
        "attention": {"projections", "attention pairs"},
        "block": forward.keys() - {"head"},
    }[forgotten]
    return {
        "forward": forward,
        "backward": {part: 2 * flop for part, flop in forward.items()},
        "recomputation": {part: flop if part in again else 0 for part, flop in forward.items()},
    }


def model_flop_per_token(
    num_parameters: int | float,
    *,
    num_layers: int = 0,
    attention_width: int | float = 0,
    context_length: int = 0,
    causal: bool = True,
) -> int | float:
    """Return the FLOPs per token of training, from the few numbers that a paper gives of a model::

        6 N + 6 L A (T + 1)    each token with the tokens up to itself, T + 1 of 2 on average
        6 N + 12 L A T         with all T, as PaLM and Megatron-LM count

    Without layers it is the rule of six, 6 N.

    Args:
        num_parameters: N, of a mixture the active ones.
        num_layers: L.
        attention_width: A, heads times their size; where scores and values have different sizes,
            heads times the mean of the two.
        context_length: T in tokens.
        causal: count only the pairs that are needed.

    Raises:
        ValueError: if a number is impossible, or only some of L, A and T are given.

    Source:
        Chowdhery et al. 2022, appendix B, https://arxiv.org/abs/2204.02311
    """
    require("num_parameters", num_parameters, above=0)
    shape = {"num_layers": num_layers, "attention_width": attention_width}
    shape["context_length"] = context_length
    require_each(shape, least=0)
    if any(shape.values()) and not all(shape.values()):
        raise ValueError(f"give all of {', '.join(shape)}, or none for 6 N alone; got {shape}")
    keys = (context_length + 1) / 2 if causal else context_length
    return 6 * num_parameters + (12 * num_layers * attention_width * keys if num_layers else 0)


def utilisation(
    *, flop: int | float, gpu_seconds: int | float, peak_flop_per_s: int | float
) -> float:
    """Return the share of the peak that was reached:  FLOPs / (GPU-seconds x peak).

    Args:
        flop: of the model alone for MFU, all that were computed for HFU.
        gpu_seconds: number of accelerators times seconds.
        peak_flop_per_s: of one accelerator, dense.

    Raises:
        ValueError: if a number is not above 0, or more than the peak would have been reached.
    """
    require_each(
        {"flop": flop, "gpu_seconds": gpu_seconds, "peak_flop_per_s": peak_flop_per_s}, above=0
    )
    # The denominator: what all accelerators could have computed in that time.
    share = flop / (gpu_seconds * peak_flop_per_s)
    if share > 1:
        raise ValueError(
            f"{flop:.4g} FLOPs take at least {flop / peak_flop_per_s / 3600:,.0f} GPU-hours, "
            f"{gpu_seconds / 3600:,.0f} are given: check the units, a PF-day is no GPU-hour"
        )
    return share


def utilisation_from_rate(
    *, tokens_per_s: int | float, flop_per_token: int | float, num_gpus: int, hardware: Hardware
) -> float:
    """Return MFU or HFU from the tokens that all accelerators together train on in a second.

    Args:
        tokens_per_s: of the whole run.
        flop_per_token: see `utilisation`.
        num_gpus: accelerators at work.
        hardware: which ones.

    Raises:
        ValueError: see `utilisation`.
    """
    require_each({"tokens_per_s": tokens_per_s, "flop_per_token": flop_per_token}, above=0)
    require("num_gpus", num_gpus, least=1)
    return utilisation(
        flop=tokens_per_s * flop_per_token,
        gpu_seconds=num_gpus,
        peak_flop_per_s=hardware.dense_bf16_flop_per_s,
    )


def utilisation_from_hours(
    *, flop: int | float, gpu_hours: int | float, hardware: Hardware
) -> float:
    """Return MFU or HFU from all hours of a run, in which failures and pauses count.

    Args:
        flop: of the whole run, see `utilisation`.
        gpu_hours: number of accelerators times hours.
        hardware: which ones.

    Raises:
        ValueError: see `utilisation`.
    """
    require("gpu_hours", gpu_hours, above=0)
    peak = hardware.dense_bf16_flop_per_s
    return utilisation(flop=flop, gpu_seconds=3600 * gpu_hours, peak_flop_per_s=peak)
