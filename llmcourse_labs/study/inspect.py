"""What happens inside a model: attention maps, the residual stream, the hidden units.

Every function runs the model once, looks on through torch's forward hooks, and changes nothing.

Shape suffixes:  L layers, B batch, T time (queries, and as S keys), H heads, G key/value heads,
K head size, F hidden.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from llmcourse.model.attention import attention_weights, causal_mask, repeat_kv
from llmcourse.model.decoder import Block, Transformer


@torch.no_grad()
def queries_and_keys(
    model: Transformer, ids_BT: Int[Tensor, "B T"]
) -> tuple[Float[Tensor, "L B T H K"], Float[Tensor, "L B T G K"]]:
    """Return the query and key heads of every layer, rotated to their positions."""
    pairs = _watch(
        model,
        ids_BT,
        [block.attention for block in cast("Iterable[Block]", model.blocks)],
        lambda part, given, _: part.queries_and_keys(*given),
    )
    queries, keys = zip(*pairs, strict=True)
    return torch.stack(queries), torch.stack(keys)


def attention_maps(model: Transformer, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "L B H T S"]:
    """Return how much every token reads from every token, in each head of each layer."""
    q_LBTHK, k_LBTGK = queries_and_keys(model, ids_BT)
    return torch.stack([attention_weights(q, k) for q, k in zip(q_LBTHK, k_LBTGK, strict=True)])


def largest_scores(model: Transformer, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "L H"]:
    """Return the largest score q k / sqrt(K) of every head, over the keys that a query may see."""
    q_LBTHK, k_LBTGK = queries_and_keys(model, ids_BT)
    k_LBTHK = repeat_kv(k_LBTGK, q_LBTHK.shape[-2])
    scores_LBHTS = torch.einsum("lbthk,lbshk->lbhts", q_LBTHK, k_LBTHK) / q_LBTHK.shape[-1] ** 0.5
    num_tokens = ids_BT.shape[1]
    forbidden = ~causal_mask(num_tokens, num_tokens).to(scores_LBHTS.device)
    return scores_LBHTS.masked_fill(forbidden, float("-inf")).amax((1, 3, 4))


@torch.no_grad()
def residual_rms(model: Transformer, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, " layers"]:
    """Return the size of the residual stream before the first block and after each.

    rms = sqrt(mean over tokens and channels of x^2), L + 1 numbers.
    """
    before = _watch(model, ids_BT, model.blocks[:1], lambda _part, given, _x: _rms(given[0]))
    after = _watch(model, ids_BT, model.blocks, lambda _part, _given, x_BTD: _rms(x_BTD))
    return torch.stack([*before, *after])


@torch.no_grad()
def hidden_units(model: Transformer, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "L B T F"]:
    """Return the hidden units of every feed-forward network: what w_down reads.

    Raises:
        ValueError: if the model has no feed-forward network.
    """
    parts = [block.feed_forward for block in cast("Iterable[Block]", model.blocks)]
    if not all(hasattr(part, "hidden") for part in parts):
        raise ValueError(
            "hidden units are those of one feed-forward network in each block: this model has "
            "none, or experts"
        )
    return torch.stack(_watch(model, ids_BT, parts, lambda part, given, _: part.hidden(*given)))


def _rms(x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, ""]:
    return x_BTD.square().mean().sqrt()


def _watch(
    model: Transformer,
    ids_BT: Int[Tensor, "B T"],
    parts: Iterable[nn.Module],
    look: Callable[[Any, tuple, Tensor], Any],
) -> list[Any]:
    """Run the model and return look(part, what it was given, what it returned) for each part."""
    seen: list[Any] = []
    hooks = [
        part.register_forward_hook(lambda part, given, out: seen.append(look(part, given, out)))
        for part in parts
    ]
    try:
        model(ids_BT)
    finally:
        for hook in hooks:
            hook.remove()
    return seen
