"""The decoder: every module of a Llama, put together from `ops`, `attention` and `moe`.

One block is   x = x + attention(norm(x));   x = x + feed_forward(norm(x)),
where feed_forward is one network, or a mixture of experts.
A token id enters as a row of the embedding, passes all blocks, is normalised once more, and leaves
as one logit per vocabulary entry.

Shape suffixes:  B batch, T time, D width, H heads, G key/value heads, K head size, F hidden,
V vocabulary, S time of cached keys, J channel pairs of RoPE, 2 the parts of a rotation.  A mask may
have a batch axis or not.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from llmcourse.base.arguments import require
from llmcourse.model.attention import attention_sdpa, rope_adjacent, rope_rotations
from llmcourse.model.config import ModelConfig
from llmcourse.model.initial import initialise
from llmcourse.model.moe import MixtureOfExperts, Routing, balance_loss, count_choices
from llmcourse.model.ops import dropout, embedding, linear, rmsnorm, silu_gate


class KVCache:
    """Keys and values of the positions that one layer has seen, so that none is computed twice."""

    def __init__(
        self,
        batch_size: int,
        config: ModelConfig,
        num_positions: int | None = None,
        *,
        like: Tensor,
    ) -> None:
        num_positions = num_positions or config.context_length
        shape = (batch_size, num_positions, config.num_kv_heads, config.head_size)
        self.keys_BSGK = like.new_empty(shape)
        self.values_BSGK = like.new_empty(shape)
        self.length = 0

    def append(
        self, k_BTGK: Float[Tensor, "B T G K"], v_BTGK: Float[Tensor, "B T G K"]
    ) -> tuple[Float[Tensor, "B S G K"], Float[Tensor, "B S G K"]]:
        """Store the keys and values of new positions; return those of all positions so far."""
        end = self.length + k_BTGK.shape[1]
        self.keys_BSGK[:, self.length : end] = k_BTGK
        self.values_BSGK[:, self.length : end] = v_BTGK
        self.length = end
        return self.keys_BSGK[:, :end], self.values_BSGK[:, :end]


class Attention(nn.Module):
    """Project to queries, keys and values, rotate, attend, project back.

    Args:
        config: of the whole model.
        generator: of the first weights; None leaves them uninitialised, for loading.
    """

    attend = staticmethod(attention_sdpa)
    """The form of attention; `Transformer.attend_with` puts another in its place."""

    def __init__(self, config: ModelConfig, *, generator: torch.Generator | None) -> None:
        super().__init__()
        self.head_size = config.head_size
        query_width = config.num_heads * config.head_size
        kv_width = config.num_kv_heads * config.head_size
        self.w_q = nn.Parameter(torch.empty(query_width, config.width))
        self.w_k = nn.Parameter(torch.empty(kv_width, config.width))
        self.w_v = nn.Parameter(torch.empty(kv_width, config.width))
        self.w_o = nn.Parameter(torch.empty(config.width, query_width))
        self.q_norm = self.k_norm = None
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_size, config.norm_eps)
            self.k_norm = RMSNorm(config.head_size, config.norm_eps)
        if generator is not None:
            initialise(self, generator, num_layers=config.num_layers)

    def queries_and_keys(
        self, x_BTD: Float[Tensor, "B T D"], rotations_TJ2: Float[Tensor, "*rows T J 2"]
    ) -> tuple[Float[Tensor, "B T H K"], Float[Tensor, "B T G K"]]:
        """Return the rotated query and key heads of every token, normalised first if asked for."""
        heads = (-1, self.head_size)
        q_BTHK = linear(x_BTD, self.w_q).unflatten(-1, heads)
        k_BTGK = linear(x_BTD, self.w_k).unflatten(-1, heads)
        # Left alone, q and k may grow longer, until the softmax sees one token and no other.
        if self.q_norm is not None and self.k_norm is not None:
            q_BTHK, k_BTGK = self.q_norm(q_BTHK), self.k_norm(k_BTGK)
        return rope_adjacent(q_BTHK, rotations_TJ2), rope_adjacent(k_BTGK, rotations_TJ2)

    def forward(
        self,
        x_BTD: Float[Tensor, "B T D"],
        rotations_TJ2: Float[Tensor, "*rows T J 2"],
        *,
        mask: Bool[Tensor, "*masked T S"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return what every token reads from itself and the tokens before it."""
        q_BTHK, k_BSGK = self.queries_and_keys(x_BTD, rotations_TJ2)
        v_BSGK = linear(x_BTD, self.w_v).unflatten(-1, (-1, self.head_size))
        if cache is not None:
            k_BSGK, v_BSGK = cache.append(k_BSGK, v_BSGK)
        return linear(self.attend(q_BTHK, k_BSGK, v_BSGK, mask=mask).flatten(-2), self.w_o)


class FeedForward(nn.Module):
    """SwiGLU: two projections up, one of them a gate, and one down; arguments as of `Attention`."""

    def __init__(self, config: ModelConfig, *, generator: torch.Generator | None) -> None:
        super().__init__()
        self.w_gate = nn.Parameter(torch.empty(config.hidden, config.width))
        self.w_up = nn.Parameter(torch.empty(config.hidden, config.width))
        self.w_down = nn.Parameter(torch.empty(config.width, config.hidden))
        if generator is not None:
            initialise(self, generator, num_layers=config.num_layers)

    def hidden(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T F"]:
        """Return the hidden units of every token: what w_down reads."""
        return self.gated(linear(x_BTD, self.w_gate), linear(x_BTD, self.w_up))

    def gated(
        self, gate_BTF: Float[Tensor, "B T F"], up_BTF: Float[Tensor, "B T F"]
    ) -> Float[Tensor, "B T F"]:
        """Return silu(gate) * up."""
        return silu_gate(gate_BTF, up_BTF)

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Transform every token by itself."""
        return linear(self.hidden(x_BTD), self.w_down)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation with a learned gain, 1 at the start."""

    def __init__(self, num_channels: int, eps: float) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(num_channels))
        self.eps = eps

    def forward(self, x_BTD: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Bring every token, or every head, to root-mean-square 1, then scale its channels."""
        return rmsnorm(x_BTD, self.gain, self.eps)


class Dropout:
    """Draws which activations are set to 0 in training; one for all layers of a model.

    Ranks that share a batch draw for all of it, each from a generator in the same state, and take
    their own rows: together they drop what a single process would, and their states stay equal.

    Args:
        rate: share that is set to 0, above 0 and below 1.
        generator: of the draws.

    Raises:
        ValueError: if `rate` is outside its range.
    """

    def __init__(self, rate: float, *, generator: torch.Generator) -> None:
        require("dropout", rate, above=0, below=1)
        self.rate, self.generator = rate, generator
        self.share, self.num_shares = 0, 1
        """Which part of every batch comes through here, and how many parts there are."""

    def __call__(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Set a share of the numbers to 0, and scale the others up."""
        shape = (self.num_shares, *x_BTD.shape)
        drawn = torch.rand(shape, generator=self.generator, device=self.generator.device)
        kept_BTD = (drawn[self.share] >= self.rate).to(x_BTD.device)
        return dropout(x_BTD, kept_BTD, self.rate)


class Block(nn.Module):
    """One layer: attention, then feed-forward, each added to the residual stream.

    Arguments as of `Attention`.
    """

    dropout: Dropout | None = None
    """Of what both parts add, in training; see `Transformer.drop_out`."""

    def __init__(self, config: ModelConfig, *, generator: torch.Generator | None) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config, generator=None)
        self.feed_forward_norm = RMSNorm(config.width, config.norm_eps)
        self.feed_forward = _feed_forward(config)
        if generator is not None:
            initialise(self, generator, num_layers=config.num_layers)

    def transform(
        self, x_BTD: Float[Tensor, "B t D"], routings: list[Routing] | None
    ) -> Float[Tensor, "B t D"]:
        """Return what the feed-forward network, or the mixture in its place, makes of a layer."""
        normed_BTD = self.feed_forward_norm(x_BTD)
        if isinstance(self.feed_forward, MixtureOfExperts):
            return self.feed_forward(normed_BTD, routings=routings)
        return self.feed_forward(normed_BTD)

    def forward(
        self,
        x_BTD: Float[Tensor, "B t D"],  # t of T positions, if several ranks share them
        rotations_TJ2: Float[Tensor, "*rows T J 2"],
        *,
        mask: Bool[Tensor, "*masked T S"] | None = None,
        cache: KVCache | None = None,
        routings: list[Routing] | None = None,
    ) -> Float[Tensor, "B t D"]:
        """Add what the two parts of the layer contribute."""
        normed_BTD = self.attention_norm(x_BTD)
        attended_BTD = self.attention(normed_BTD, rotations_TJ2, mask=mask, cache=cache)
        if self.dropout is None or not self.training:
            x_BTD = x_BTD + attended_BTD
            return x_BTD + self.transform(x_BTD, routings)
        x_BTD = x_BTD + self.dropout(attended_BTD)
        return x_BTD + self.dropout(self.transform(x_BTD, routings))


def _feed_forward(config: ModelConfig) -> nn.Module:
    """Return one network for all tokens, or a mixture of experts."""
    if not config.num_experts:
        return FeedForward(config, generator=None)
    return MixtureOfExperts(
        width=config.width,
        hidden=config.hidden,
        num_experts=config.num_experts,
        experts_per_token=config.experts_per_token,
        capacity_factor=config.capacity_factor,
        generator=None,
    )


def auxiliary_loss(routings: Sequence[Routing], config: ModelConfig) -> Float[Tensor, ""] | None:
    """Return what a mixture adds to the loss: balance_weight times the mean over its layers.

    Args:
        routings: what one forward pass has noted; of some layers alone, their share is returned.
        config: of the whole model.

    Returns:
        The sum to add, or None without routings and for a balance_weight of 0.

    Raises:
        ValueError: if there are more routings than layers.
    """
    if len(routings) > config.num_layers:
        raise ValueError(
            f"{len(routings)} routings are more than the model's {config.num_layers} layers: "
            "begin a new list for every forward pass"
        )
    if not (routings and config.balance_weight):
        return None
    losses = [
        balance_loss(each.probabilities_NE, count_choices(each.experts_NK, config.num_experts))
        for each in routings
    ]
    return config.balance_weight * (torch.stack(losses).sum() / config.num_layers)


class HoldsRotations(nn.Module):
    """A model with the rotation of every position, which a cast of its weights does not round."""

    config: ModelConfig
    rotations_TJ2: Float[Tensor, "T J 2"]

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Do what `to`, `half`, `cuda`, ... ask for; of the rotations, the device alone changes."""
        exact_TJ2 = self.rotations_TJ2
        super()._apply(function, recurse)
        device = self.rotations_TJ2.device
        if exact_TJ2.is_meta and device.type != "meta":
            with device:
                exact_TJ2 = _rotations(self.config)
        self.rotations_TJ2 = exact_TJ2.to(device)
        return self


def _rotations(config: ModelConfig) -> Float[Tensor, "T J 2"]:
    """Return the rotations of all positions of the context."""
    if torch.get_default_device().type == "meta":  # has no values, and asks the compiler for sizes
        return torch.empty(config.context_length, config.head_size // 2, 2)
    size, length = config.head_size, config.context_length
    return rope_rotations(size, length, theta=config.rope_theta, scaling=config.rope_scaling)


class Transformer(HoldsRotations):
    """The whole decoder.

    Args:
        config: the shape.
        generator: source of the first weights, see `initialise`; None leaves them uninitialised,
            for loading or for the meta device.
    """

    dropout: Dropout | None = None
    """Of the embedding, in training; see `drop_out`."""

    def __init__(self, config: ModelConfig, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.width))
        self.blocks = nn.ModuleList(Block(config, generator=None) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        if not config.tied_head:
            self.head = nn.Parameter(torch.empty(config.vocab_size, config.width))
        self.register_buffer("rotations_TJ2", _rotations(config), persistent=False)
        if generator is not None:
            self.initialise(generator)

    @staticmethod
    def look_up(ids_BT: Int[Tensor, "B T"], w_VD: Float[Tensor, "V D"]) -> Float[Tensor, "B T D"]:
        """Turn ids into rows of the embedding; an instance may put another form in its place."""
        return embedding(ids_BT, w_VD)

    @staticmethod
    def project(
        x_BTD: Float[Tensor, "B T D"], w_VD: Float[Tensor, "V D"]
    ) -> Float[Tensor, "B T V"]:
        """Turn the last activations into logits; an instance may put another form in its place."""
        return linear(x_BTD, w_VD)

    @property
    def head_weight(self) -> Float[Tensor, "V D"]:
        """The output projection: the embedding when tied, its own matrix otherwise."""
        return self.embedding if self.config.tied_head else self.head

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights anew, see `initialise`."""
        initialise(self, generator, num_layers=self.config.num_layers)

    def attend_with(self, form: Callable[..., Tensor]) -> None:
        """Let every block attend by another form: `attention`, `attention_flash`, ...

        All forms in `llmcourse.model.attention` compute the same function of the same weights; they
        differ in their speed and in what they keep for backward.
        """
        for block in cast("Iterable[Block]", self.blocks):
            block.attention.attend = form

    def drop_out(self, dropout: Dropout) -> None:
        """Drop activations in training: of the embedding, and of what every layer's parts add.

        Source:
            Radford et al. 2018 (GPT), section 4.1: residual and embedding dropout of 0.1.
        """
        self.dropout = dropout
        for block in cast("Iterable[Block]", self.blocks):
            block.dropout = dropout

    def new_cache(self, batch_size: int, num_positions: int | None = None) -> list[KVCache]:
        """Return one empty cache per layer, with room for the context or for fewer positions."""
        return [
            KVCache(batch_size, self.config, num_positions, like=self.embedding)
            for _ in self.blocks
        ]

    def forward(
        self,
        ids_BT: Int[Tensor, "B T"],
        *,
        positions_BT: Int[Tensor, "B T"] | None = None,
        mask: Bool[Tensor, "*masked T S"] | None = None,
        cache: list[KVCache] | None = None,
        routings: list[Routing] | None = None,
        last_only: bool = False,
    ) -> Float[Tensor, "B t V"]:
        """Return the logits of the next token at every position.

        Args:
            ids_BT: token ids; with a cache, only those that come after the cached ones.
            positions_BT: where each token stands, from 0 to context_length - 1; None counts on from
                the cached ones.  Packed rows count anew in every document.
            mask: True where a token may look, (T, S) or (B, T, S), see `attention.masks`; None is
                causal.
            cache: from `new_cache`; it is extended in place.
            routings: every mixture appends here where its router sent the tokens.
            last_only: leave out all positions but the last one, which is all that writing needs.

        Raises:
            ValueError: if the sequence, cached part included, is longer than the context, or a
                position is outside it.
        """
        x_BTD = self.look_up(ids_BT, self.embedding)
        if self.dropout is not None and self.training:
            x_BTD = self.dropout(x_BTD)
        rotations_TJ2 = self.rotations_of(ids_BT.shape[1], positions_BT, cache)
        for layer, block in enumerate(self.blocks):
            past = cache[layer] if cache else None
            x_BTD = block(x_BTD, rotations_TJ2, mask=mask, cache=past, routings=routings)
        if last_only:
            x_BTD = x_BTD[:, -1:]
        return self.project(self.norm(x_BTD), self.head_weight)

    def rotations_of(
        self,
        num_tokens: int,
        positions_BT: Int[Tensor, "B T"] | None = None,
        cache: list[KVCache] | None = None,
    ) -> Float[Tensor, "*rows T J 2"]:
        """Return the rotation of every token's position; arguments and errors as in `forward`."""
        start = cache[0].length if cache else 0
        end, context = start + num_tokens, self.config.context_length
        if end > context:
            raise ValueError(f"{end} tokens do not fit into the context of {context}")
        if positions_BT is None:
            return self.rotations_TJ2[start:end]
        if positions_BT.numel() and not 0 <= positions_BT.min() <= positions_BT.max() < context:
            raise ValueError(
                f"positions must be from 0 to {context - 1}, got {int(positions_BT.min())} to "
                f"{int(positions_BT.max())}"
            )
        return self.rotations_TJ2[positions_BT]
