"""Which keys a query may see: masks as data, tensors of booleans that are combined with `&`.

True means "may look".  A mask says nothing about how attention is computed, so every form of
attention takes every mask, and a new kind needs no new code.

Shape suffixes:  B batch, T time of the queries, S time of the keys (S >= T with a cache).
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def causal_mask(num_queries: int, num_keys: int) -> Bool[Tensor, "T S"]:
    """Return which keys a query may see: True where key position <= query position.

    The queries are the last `num_queries` of `num_keys` positions, as they are when the earlier
    keys come from a cache.

    Raises:
        ValueError: if there are more queries than keys.
    """
    if num_queries > num_keys:
        raise ValueError(f"{num_queries} queries cannot be the last of {num_keys} keys")
    allowed_TS = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return allowed_TS.tril(diagonal=num_keys - num_queries)


def mask_or_causal(
    mask: Bool[Tensor, "*masked T S"] | None, num_queries: int, num_keys: int
) -> Bool[Tensor, "*masked T S"]:
    """Return the mask itself, or the causal one where None.

    Raises:
        ValueError: if the mask is for other numbers of queries and keys.
    """
    if mask is None:
        return causal_mask(num_queries, num_keys)
    if mask.shape[-2:] != (num_queries, num_keys):
        raise ValueError(
            f"the mask must end in (queries, keys) = ({num_queries}, {num_keys}), got "
            f"{tuple(mask.shape)}"
        )
    return mask


def sliding_window_mask(num_queries: int, num_keys: int, window: int) -> Bool[Tensor, "T S"]:
    """Return a causal mask in which a query sees itself and the window - 1 positions before it.

    Args:
        num_queries: the last of the positions.
        num_keys: all positions.
        window: keys that a query may see at most, 1 or more.

    Raises:
        ValueError: if there are more queries than keys, or the window is below 1.

    Source:
        Beltagy et al. 2020, section 3.1, https://arxiv.org/abs/2004.05150;
        Jiang et al. 2023 (Mistral 7B), section 2, https://arxiv.org/abs/2310.06825
    """
    if window < 1:
        raise ValueError(f"window must be 1 or greater, got {window}: a query sees itself at least")
    allowed_TS = causal_mask(num_queries, num_keys)
    return allowed_TS.triu(diagonal=num_keys - num_queries - window + 1)


def document_mask(documents_BS: Int[Tensor, "*B S"]) -> Bool[Tensor, "*B S S"]:
    """Return a causal mask in which no token sees another document of its row.

    Args:
        documents_BS: the number of the document that each token belongs to.  Padding has a number
            of its own, such as -1, and so is kept apart like a document.
    """
    same_BSS = documents_BS.unsqueeze(-1) == documents_BS.unsqueeze(-2)
    length = documents_BS.shape[-1]
    return same_BSS & causal_mask(length, length).to(documents_BS.device)
