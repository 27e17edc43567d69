"""What a trained model does inside: where its heads look, and what each layer would say next.

Shape suffixes:  L layers (layers: one more), B batch, T time, H heads, K head size, V vocabulary,
D width.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.model.decoder import Block, Transformer
from llmcourse.model.ops import linear
from llmcourse_labs.study.inspect import attention_maps


def attention_to_first(
    model: Transformer, ids_BT: Int[Tensor, "B T"], *, skip: int = 8
) -> Float[Tensor, "L H"]:
    """Return what share of its attention each head gives to the first token.

    share = mean over queries t >= skip of attention(t, 0);  the first queries have few others.

    Args:
        model: a decoder.
        ids_BT: texts.
        skip: queries that do not count, fewer than T.

    Raises:
        ValueError: if no query is left.

    Source:
        Xiao et al. 2024 (attention sinks), https://arxiv.org/abs/2309.17453
    """
    if not 0 <= skip < ids_BT.shape[1]:
        raise ValueError(f"skip must leave a query of {ids_BT.shape[1]} tokens, got {skip}")
    # layer, batch, head, query, key: of key 0, the mean over texts and queries
    return attention_maps(model, ids_BT)[:, :, :, skip:, 0].mean((1, 3))


def induction_scores(
    model: Transformer, ids_BT: Int[Tensor, "B T"], *, period: int
) -> Float[Tensor, "L H"]:
    """Return how much each head attends to the token that came next the last time.

    score = mean over queries t >= period of attention(t, t - period + 1)

    In a text that repeats its first `period` tokens, this is the token after the same token.  In
    another text it is one of many: the control.

    Args:
        model: a decoder.
        ids_BT: texts, longer than `period` tokens.
        period: after how many tokens the text repeats, 2 or more.

    Raises:
        ValueError: if no query is left, or a token would look at itself.

    Source:
        Olsson et al. 2022, https://arxiv.org/abs/2209.11895
    """
    if not 2 <= period < ids_BT.shape[1]:
        raise ValueError(
            f"period must be from 2 to {ids_BT.shape[1] - 1} for {ids_BT.shape[1]} tokens, got "
            f"{period}"
        )
    maps_LBHTS = attention_maps(model, ids_BT)[:, :, :, period:]
    return maps_LBHTS.diagonal(1, dim1=-2, dim2=-1).mean((1, 3))


@torch.no_grad()
def logit_lens(model: Transformer, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "layers B V"]:
    """Return the probabilities of the next token, read off before the first block and after each.

    p = softmax(head(norm(x))),  x the residual stream of the last token

    The last row is what the model says.

    Source:
        nostalgebraist 2020, "interpreting GPT: the logit lens"
    """
    streams: list[Tensor] = []
    blocks = list(cast("Iterable[Block]", model.blocks))
    hooks = [blocks[0].register_forward_pre_hook(lambda _, given: streams.append(given[0][:, -1]))]
    for block in blocks:
        hooks.append(block.register_forward_hook(lambda *seen: streams.append(seen[-1][:, -1])))
    try:
        model(ids_BT)
    finally:
        for hook in hooks:
            hook.remove()
    return linear(model.norm(torch.stack(streams)), model.head_weight).softmax(-1)


@contextmanager
def heads_off(model: Transformer, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Switch heads off while the block runs: what they found is multiplied by 0.

    Args:
        model: a decoder; its weights are the same bits afterwards.
        heads: pairs (layer, head), counted from 0.
    """
    size = model.config.head_size
    blocks = list(cast("Iterable[Block]", model.blocks))
    kept = []
    for layer, head in heads:
        columns_DK = blocks[layer].attention.w_o.data[:, head * size : (head + 1) * size]
        kept.append((columns_DK, columns_DK.clone()))
    try:
        for columns_DK, _ in kept:
            columns_DK.zero_()
        yield
    finally:
        for columns_DK, before_DK in kept:
            columns_DK.copy_(before_DK)
