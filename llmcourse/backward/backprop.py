"""A training step without autograd: forward with an explicit tape, backward by our own functions.

Every function here is the composition, in the order of `Transformer.forward` and then in reverse,
of the pairs in `ops`, `attention` and `loss`.  Where a value is used twice, its gradients are
added: at the two sides of each residual connection, at the three projections of one norm, and at
the embedding that is also the head.

Shape suffixes:  B batch, T time, D width, V vocabulary, N rows (all tokens of a batch).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from llmcourse.loss import (
    CrossEntropySaved,
    counted_tokens,
    token_losses_backward,
    token_losses_forward,
)
from llmcourse.model import Transformer
from llmcourse.model.attention import (
    FlashSaved,
    flash_backward,
    flash_forward,
    rope_adjacent,
    rope_adjacent_backward,
)
from llmcourse.model.decoder import Attention, Block, FeedForward, RMSNorm
from llmcourse.model.ops import (
    LinearSaved,
    RMSNormSaved,
    SiluGateSaved,
    embedding_backward,
    linear_backward,
    linear_forward,
    rmsnorm_backward,
    rmsnorm_forward,
    silu_gate_backward,
    silu_gate_forward,
)

Gradients = dict[str, Tensor]
"""The gradient of each parameter, by the names of `named_parameters`."""

_TILE = 48
"""Queries and keys of one tile of attention: small, so that its scores stay in the cache."""

_LAYERS = (Transformer, nn.ModuleList, Block, Attention, FeedForward, RMSNorm)
"""The modules whose backward pass is written here."""


class BlockTape(NamedTuple):
    """What the backward pass of one block needs."""

    attention_norm: RMSNormSaved
    query: LinearSaved
    key: LinearSaved
    value: LinearSaved
    attention: FlashSaved
    output: LinearSaved
    feed_forward_norm: RMSNormSaved
    gate: LinearSaved
    up: LinearSaved
    silu: SiluGateSaved
    down: LinearSaved


class Tape(NamedTuple):
    """What the backward pass of the whole model needs."""

    ids_BT: Int[Tensor, "B T"]
    rotations_TJ2: Float[Tensor, "*rows T J 2"]
    mask: Bool[Tensor, "*masked T T"] | None
    blocks: list[BlockTape]
    norm: RMSNormSaved
    head: LinearSaved
    losses: CrossEntropySaved
    num_tokens: int | float


@torch.no_grad()
def forward(
    model: Transformer,
    ids_BT: Int[Tensor, "B T"],
    targets_BT: Int[Tensor, "B T"],
    *,
    positions_BT: Int[Tensor, "B T"] | None = None,
    mask: Bool[Tensor, "*masked T T"] | None = None,
    num_tokens: int | float | None = None,
) -> tuple[Float[Tensor, ""], Tape]:
    """Return the loss of a batch in nats per token, and the tape of how it came about.

    Args:
        model: the decoder, whole.
        ids_BT: token ids, at most as many as the context holds.
        targets_BT: the token after each, `IGNORE_INDEX` where none is asked for.
        positions_BT: where each token stands; None counts from 0.
        mask: True where a token may look; None is causal.
        num_tokens: the one global normaliser; None means that this call holds the whole batch.

    Raises:
        ValueError: if no position is asked and no normaliser is given, a part of the model was
            replaced, or the tokens or their positions do not fit into the context.
    """
    _require_plain(model)
    counted_N = counted_tokens(targets_BT).flatten()
    num_tokens = int(counted_N.sum()) if num_tokens is None else num_tokens
    if num_tokens <= 0:
        raise ValueError(f"num_tokens must be positive, got {num_tokens}: every target is ignored")
    rotations_TJ2 = model.rotations_of(ids_BT.shape[1], positions_BT)
    x_BTD, blocks = model.embedding[ids_BT], []
    for block in model.blocks:
        assert isinstance(block, Block)  # `_require_plain` has seen to it
        x_BTD, of_block = _block_forward(block, x_BTD, rotations_TJ2, mask)
        blocks.append(of_block)
    normed_BTD, norm = rmsnorm_forward(x_BTD, model.norm.gain, model.norm.eps)
    logits_BTV, head = linear_forward(normed_BTD, model.head_weight)
    losses_N, losses = token_losses_forward(
        logits_BTV.flatten(0, 1), targets_BT.flatten(), counted_N
    )
    tape = Tape(ids_BT, rotations_TJ2, mask, blocks, norm, head, losses, num_tokens)
    return losses_N.sum() / num_tokens, tape


@torch.no_grad()
def backward(model: Transformer, tape: Tape) -> Gradients:
    """Return the gradient of the loss for every parameter of the model.

    The tape is used up on the way, block by block; it serves one backward pass.

    Raises:
        ValueError: if the tape was used before.
    """
    if len(tape.blocks) != len(model.blocks):
        raise ValueError("this tape was used up by an earlier backward pass: run forward again")
    dlosses_N = torch.full_like(tape.losses.probabilities_NV[:, 0], 1 / tape.num_tokens)
    (dlogits_NV,) = token_losses_backward(dlosses_N, tape.losses)
    dnormed_BTD, dhead_VD = linear_backward(dlogits_NV.view(*tape.ids_BT.shape, -1), tape.head)
    dx_BTD, dgain_D = rmsnorm_backward(dnormed_BTD, tape.norm)
    gradients = {"norm.gain": dgain_D}
    for layer in reversed(range(len(tape.blocks))):
        # Taken off the tape, so that its memory is free for the gradients of the block below.
        dx_BTD, of_block = _block_backward(dx_BTD, tape.blocks.pop(), tape)
        gradients |= {f"blocks.{layer}.{name}": value for name, value in of_block.items()}
    dembedding_VD = embedding_backward(dx_BTD, tape.ids_BT, len(model.embedding))
    if model.config.tied_head:
        gradients["embedding"] = dembedding_VD.add_(dhead_VD)  # one matrix, used twice
    else:
        gradients["embedding"], gradients["head"] = dembedding_VD, dhead_VD
    return gradients


def step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    ids_BT: Int[Tensor, "B T"],
    targets_BT: Int[Tensor, "B T"],
) -> float:
    """Do one training step without autograd; return the loss before it."""
    value, tape = forward(model, ids_BT, targets_BT)
    gradients = backward(model, tape)
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[name]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return value.item()


def _require_plain(model: Transformer) -> None:
    """Refuse a model with a part that these functions do not know, such as `without` makes."""
    if model.config.qk_norm:
        raise ValueError("qk_norm has no backward pass here: leave it off, or let autograd do it")
    for name, module in model.named_modules():
        if type(module) not in _LAYERS:
            raise ValueError(
                f"{name} is a {type(module).__name__}, for which there is no backward pass here: "
                "give a whole decoder, or let autograd do it"
            )


def _block_forward(
    block: Block,
    x_BTD: Float[Tensor, "B T D"],
    rotations_TJ2: Float[Tensor, "*rows T J 2"],
    mask: Bool[Tensor, "*masked T T"] | None,
) -> tuple[Float[Tensor, "B T D"], BlockTape]:
    """One block, forward:  x = x + attention(norm(x));  x = x + feed_forward(norm(x))."""
    read, feed = block.attention, block.feed_forward
    assert isinstance(feed, FeedForward)  # `_require_plain`, too
    heads = (-1, read.head_size)
    n_BTD, attention_norm = rmsnorm_forward(
        x_BTD, block.attention_norm.gain, block.attention_norm.eps
    )
    q_BTX, query = linear_forward(n_BTD, read.w_q)
    k_BTX, key = linear_forward(n_BTD, read.w_k)
    v_BTX, value = linear_forward(n_BTD, read.w_v)
    out_BTHK, attention = flash_forward(
        rope_adjacent(q_BTX.unflatten(-1, heads), rotations_TJ2),
        rope_adjacent(k_BTX.unflatten(-1, heads), rotations_TJ2),
        v_BTX.unflatten(-1, heads),
        mask,
        _TILE,
    )
    y_BTD, output = linear_forward(out_BTHK.flatten(-2), read.w_o)
    x_BTD = x_BTD + y_BTD
    n_BTD, feed_forward_norm = rmsnorm_forward(
        x_BTD, block.feed_forward_norm.gain, block.feed_forward_norm.eps
    )
    gate_BTF, gate = linear_forward(n_BTD, feed.w_gate)
    up_BTF, up = linear_forward(n_BTD, feed.w_up)
    hidden_BTF, silu = silu_gate_forward(gate_BTF, up_BTF)
    y_BTD, down = linear_forward(hidden_BTF, feed.w_down)
    reading = (attention_norm, query, key, value, attention, output)
    return x_BTD + y_BTD, BlockTape(*reading, feed_forward_norm, gate, up, silu, down)


def _block_backward(
    dx_BTD: Float[Tensor, "B T D"], saved: BlockTape, tape: Tape
) -> tuple[Float[Tensor, "B T D"], Gradients]:
    """One block, backward: the gradient of its input, and those of its parameters."""
    # x + y: the same gradient goes both ways, round the network and through it.
    dhidden_BTF, dw_down = linear_backward(dx_BTD, saved.down)
    dgate_BTF, dup_BTF = silu_gate_backward(dhidden_BTF, saved.silu)
    dn_gate_BTD, dw_gate = linear_backward(dgate_BTF, saved.gate)
    dn_up_BTD, dw_up = linear_backward(dup_BTF, saved.up)
    dn_BTD = dn_gate_BTD.add_(dn_up_BTD)  # both projections read the same norm
    dround_BTD, dgain_feed_D = rmsnorm_backward(dn_BTD, saved.feed_forward_norm)
    dx_BTD = dx_BTD + dround_BTD

    dout_BTX, dw_o = linear_backward(dx_BTD, saved.output)
    dout_BTHK = dout_BTX.view(saved.attention.out_BTHK.shape)
    dq_BTHK, dk_BTGK, dv_BTGK = flash_backward(dout_BTHK, saved.attention, tape.mask, _TILE)
    dq_BTHK = rope_adjacent_backward(dq_BTHK, tape.rotations_TJ2)
    dk_BTGK = rope_adjacent_backward(dk_BTGK, tape.rotations_TJ2)
    dn_BTD, dw_q = linear_backward(dq_BTHK.flatten(-2), saved.query)
    dn_key_BTD, dw_k = linear_backward(dk_BTGK.flatten(-2), saved.key)
    dn_value_BTD, dw_v = linear_backward(dv_BTGK.flatten(-2), saved.value)
    dn_BTD = dn_BTD.add_(dn_key_BTD).add_(dn_value_BTD)
    dround_BTD, dgain_attention_D = rmsnorm_backward(dn_BTD, saved.attention_norm)
    return dx_BTD + dround_BTD, {
        "attention_norm.gain": dgain_attention_D,
        "attention.w_q": dw_q,
        "attention.w_k": dw_k,
        "attention.w_v": dw_v,
        "attention.w_o": dw_o,
        "feed_forward_norm.gain": dgain_feed_D,
        "feed_forward.w_gate": dw_gate,
        "feed_forward.w_up": dw_up,
        "feed_forward.w_down": dw_down,
    }
