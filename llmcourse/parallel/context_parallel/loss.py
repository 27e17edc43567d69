"""The loss when every rank has the loss of its own tokens only.

Taught in: chapters/15_splitting_the_model.ipynb
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from llmcourse.loss import counted_tokens
from llmcourse.parallel.collectives import all_reduce_ordered
from llmcourse.parallel.world import Axis


def counted_by_all(
    targets_Bt: Int[Tensor, "*B"], axis: Axis, *, mask_Bt: Bool[Tensor, "*B"] | None = None
) -> int:
    """Return how many tokens count towards the loss on all ranks together.

    It is the divisor on every rank:

        loss of a rank = (sum of nats over its counted tokens) / (counted tokens of all ranks)

    which is ``loss.cross_entropy(logits, targets, num_tokens=counted_by_all(targets, axis))``.  The
    sum of the losses of the ranks is then the mean over all tokens, and the sum of their gradients
    its gradient.  Means of the ranks would weigh a rank with few counted tokens too much.

    Args:
        targets_Bt: of this rank's tokens, shifted before they were shared out.
        axis: the ranks.
        mask_Bt: True where the token counts; None counts all that are not ignored.
    """
    counted = counted_tokens(targets_Bt, mask_BT=mask_Bt).sum()
    return int(all_reduce_ordered(torch.as_tensor(counted).reshape(1), axis))
