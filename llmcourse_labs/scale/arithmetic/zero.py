"""What the three stages of ZeRO keep on a rank, and what they send, as formulas."""

from llmcourse.base.arguments import require
from llmcourse_labs.scale.arithmetic import sent_bytes

STAGES = (0, 1, 2, 3)
"""0 is plain data parallelism: everything is on every rank."""


def memory_bytes(
    num_parameters: int,
    num_ranks: int,
    stage: int,
    *,
    parameter_bytes: int = 2,
    gradient_bytes: int = 2,
    optimizer_bytes: int = 12,
) -> int:
    """Return the bytes of parameters, gradients and optimizer state on the fullest rank.

    With P parameters on n ranks, q = P / n rounded up, and bytes w, g and o for each of them::

        stage 0:  (w + g + o) P          every rank has everything
        stage 1:  (w + g) P + o q        optimizer state is sharded
        stage 2:  w P + (g + o) q        gradients too
        stage 3:  (w + g + o) q          parameters too

    Activations, buffers and what is gathered for the moment come on top.

    Args:
        num_parameters: P, 0 or more.
        num_ranks: n, 1 or more.
        stage: 0 to 3.
        parameter_bytes: of a parameter as the model computes with it; 2 for bf16.
        gradient_bytes: of its gradient.
        optimizer_bytes: of its optimizer state; 12 for a float32 copy and Adam's two means.

    Raises:
        ValueError: if a number is out of range.

    Source:
        Rajbhandari et al. 2020, section 5 and table 1, https://arxiv.org/abs/1910.02054
    """
    _check(num_parameters, num_ranks, stage)
    part = -(-num_parameters // num_ranks)
    parameters, gradients, states = (part if stage >= s else num_parameters for s in (3, 2, 1))
    return parameter_bytes * parameters + gradient_bytes * gradients + optimizer_bytes * states


def traffic_bytes(
    num_parameters: int,
    num_ranks: int,
    stage: int,
    *,
    parameter_bytes: int = 2,
    gradient_bytes: int = 2,
    index: int | None = None,
) -> int | float:
    """Return the bytes that a rank sends in one step.

    Every term is (n-1)/n of its bytes::

        stage 0:      2 g P              all-reduce of the gradients
        stage 1, 2:   g P + w P          reduce-scatter of gradients, all-gather of parameters
        stage 3:      g P + 2 w P        reduce-scatter; all-gather for forward and for backward

    With g = w, that is 2, 2, 2 and 3 times the bytes of the parameters, for large n.  Cut into
    buckets the mean stays the same.  `BucketedDDP` sends one more number for each parameter tensor,
    a mark: count it in P.  The figure is the mean of all ranks, or with an index that rank's, where
    all tensors lie in one row, end to end; other arguments and errors as in `memory_bytes`.

    Source:
        Rajbhandari et al. 2020, section 7, https://arxiv.org/abs/1910.02054
    """
    _check(num_parameters, num_ranks, stage)
    sums, gathers = ("all_reduce_ring", 0) if stage == 0 else ("reduce_scatter", max(1, stage - 1))
    sent = [
        sent_bytes(name, num_parameters * size, num_ranks, index=index, element_bytes=size)
        for name, size in ((sums, gradient_bytes), ("all_gather", parameter_bytes))
    ]
    return sent[0] + gathers * sent[1]


def _check(num_parameters: int, num_ranks: int, stage: int) -> None:
    require("num_parameters", num_parameters, least=0)
    require("num_ranks", num_ranks, least=1)
    if stage not in STAGES:
        raise ValueError(f"stage must be one of {STAGES}, got {stage}")
