"""Every operation of a step: its FLOPs, and the bytes that it moves.

A product of an (m, k) by a (k, n) matrix of b-byte numbers::

    FLOPs  2 m k n                 a multiply and an add for each of m n sums of k terms
    bytes  b (m k + k n + m n)     both factors read, the result written, each once

Everything else is a few FLOPs for each number that it reads or writes.

Bytes are counted twice.  `bytes` is the least: one kernel reads its inputs once and writes its
outputs once.  `eager_bytes` is what torch moves when every line is a call of its own, so that each
intermediate result goes to memory and back; the lines are those of `model.ops`, `loss` and
autograd's sums.  Compiling takes the second towards the first.

FLOPs of products and of attention are those of `scale.cost`, causal pairs counted once.  Of the
others each add, product, root, quotient and exponential counts one.  A fused attention computes its
scores once more in backward; this is not counted.

Shape letters: B sequences, T tokens of each, N = B T, D width, L layers, H heads, G key/value
heads, K head size, F hidden, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from llmcourse.base.arguments import require_each
from llmcourse.model import ModelConfig
from llmcourse_labs.scale.cost import MIXED_TRAINING, TrainingBytes, num_parameters

PHASES = ("forward", "backward", "optimizer", "decode")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One kind of operation in a phase, of all layers together."""

    name: str
    phase: str
    """One of `PHASES`."""
    flop: int | float
    bytes: int | float
    """The least: each tensor read or written once."""
    eager_bytes: int | float
    """What is moved when each line is a call of its own."""
    calls: int
    """Of torch, when each line is one, views included."""
    count: int = 1
    """How often it occurs, once in each layer for instance."""
    part: str = ""
    """Its name in `cost.forward_flop_by_part`, which leaves out all but products."""
    shape: tuple[int, int, int] | None = None
    """m, k and n, if it is a product."""
    num_tokens: int = 0
    """Tokens of a row, if it is fused attention."""

    @property
    def intensity(self) -> float:
        """FLOPs for each byte that has to be moved."""
        return self.flop / self.bytes


def product(m: int, k: int, n: int, *, number_bytes: int) -> tuple[int, int]:
    """Return the FLOPs and the least bytes of an (m, k) by (k, n) product.

    Args:
        m: rows of the first factor.
        k: terms of each sum.
        n: columns of the second factor.
        number_bytes: of a number.

    Raises:
        ValueError: if a size is below 1.
    """
    require_each({"m": m, "k": k, "n": n, "number_bytes": number_bytes}, least=1)
    return 2 * m * k * n, number_bytes * (m * k + k * n + m * n)


def training_operations(
    config: ModelConfig,
    *,
    batch_size: int,
    length: int | None = None,
    held: TrainingBytes = MIXED_TRAINING,
) -> list[Operation]:
    """List the operations of one training step: forward, backward, optimizer.

    Args:
        config: the shape, dense.
        batch_size: B, sequences.
        length: T, tokens of each; None takes the configuration's.
        held: bytes of weights, which are those of activations, of gradients and of AdamW's state.

    Raises:
        ValueError: if a number is below 1 or the model is a mixture.
    """
    length = config.context_length if length is None else length
    _check(config, batch_size=batch_size, length=length)
    size, tokens = held.weights, batch_size * length
    products = list(_products(config, tokens, size))
    forward = [*products, *_elementwise("forward", config, tokens, size)]
    forward.append(_attention("forward", config, batch_size, length, size))
    backward = [_backward(operation) for operation in products]
    backward += _elementwise("backward", config, tokens, size)
    backward.append(_attention("backward", config, batch_size, length, size))
    return [*forward, *backward, _adamw(config, held)]


def decode_operations(
    config: ModelConfig, *, batch_size: int, length: int, number_bytes: int = 2
) -> list[Operation]:
    """List the operations of one decoding step: one new token for each of B sequences.

    Args:
        config: the shape, dense.
        batch_size: B, sequences, each with a cache of its own.
        length: T, tokens that each query sees, itself included.
        number_bytes: of a weight, an activation and a number in the cache.

    Raises:
        ValueError: if a number is below 1 or the model is a mixture.
    """
    _check(config, batch_size=batch_size, length=length)
    layers, heads = config.num_layers, config.num_heads * config.head_size
    cached = config.num_kv_heads * config.head_size
    moved = layers * batch_size * number_bytes * 2 * (cached * length + heads)
    attention = Operation(
        name="attention",
        phase="decode",
        flop=layers * batch_size * 4 * heads * length,
        bytes=moved,
        eager_bytes=moved,
        calls=8 * layers,
        count=layers,
        part="attention pairs",
        num_tokens=length,
    )
    products = _products(config, batch_size, number_bytes, phase="decode")
    others = _elementwise("forward", config, batch_size, number_bytes, phase="decode")
    return [*products, *(o for o in others if o.name != "loss"), attention]


def _check(config: ModelConfig, **sizes: int) -> None:
    """Reject what is not counted here."""
    require_each(sizes, least=1)
    if config.num_experts:
        raise ValueError(
            f"num_experts must be 0: the roofline counts dense models, got {config.num_experts}"
        )


def _products(
    config: ModelConfig, rows: int, size: int, *, phase: str = "forward"
) -> Iterator[Operation]:
    """Every matrix of the model, applied to `rows` tokens."""
    width, layers = config.width, config.num_layers
    heads, cached = (n * config.head_size for n in (config.num_heads, config.num_kv_heads))
    matrices = [
        ("queries", "projections", width, heads, layers),
        ("keys, values", "projections", width, cached, 2 * layers),
        ("attention's output", "projections", heads, width, layers),
        ("gate, up", "feed_forward", width, config.hidden, 2 * layers),
        ("down", "feed_forward", config.hidden, width, layers),
        ("head", "head", width, config.vocab_size, 1),
    ]
    for name, part, k, n, count in matrices:
        flop, moved = product(rows, k, n, number_bytes=size)
        yield Operation(
            name=name,
            phase=phase,
            flop=count * flop,
            bytes=count * moved,
            eager_bytes=count * moved,
            calls=4 * count,  # rows out of the batch, the transposed weight, the product, and back
            count=count,
            part=part,
            shape=(rows, k, n),
        )


def _backward(forward: Operation) -> Operation:
    """Both products of backward, dx = dy W and dW = dy^T x: they touch the same three matrices."""
    return Operation(
        name=forward.name,
        phase="backward",
        flop=2 * forward.flop,
        bytes=2 * forward.bytes,
        eager_bytes=2 * forward.bytes,
        calls=11 * forward.count,  # two products; views; the gradient handed to its weight
        count=2 * forward.count,
        part=forward.part,
        shape=forward.shape,
    )


def _attention(
    phase: str, config: ModelConfig, batch_size: int, length: int, size: int
) -> Operation:
    """Fused attention: queries, keys, values in and the output out; in backward these and more."""
    heads, cached = (n * config.head_size for n in (config.num_heads, config.num_kv_heads))
    tokens, layers = batch_size * length, config.num_layers
    flop = layers * tokens * 4 * heads * (length + 1) / 2
    # backward reads queries, keys, values, output and its gradient, and writes three gradients
    moved = 2 * heads + 2 * cached if phase == "forward" else 4 * heads + 4 * cached
    return Operation(
        name="attention",
        phase=phase,
        flop=flop if phase == "forward" else 2 * flop,
        bytes=layers * tokens * size * moved,
        eager_bytes=layers * tokens * size * moved,
        calls=8 * layers,
        count=layers,
        part="attention pairs",
        num_tokens=length,
    )


# Of each number that passes: FLOPs; numbers moved at least; numbers moved, and calls, line by line.
PER_NUMBER = {
    "forward": {
        "embedding": (0, 2, 2, 2),
        "norms": (4, 2, 7, 7),
        "rotations": (3, 2, 2, 9),
        "gated": (5, 3, 5, 2),
        "residual sums": (1, 3, 3, 1),
        "loss": (5, 1, 8, 28),
    },
    "backward": {
        "embedding": (1, 2, 2, 2),
        "norms": (9, 3, 17, 11),
        "rotations": (3, 2, 2, 8),
        "gated": (10, 5, 24, 9),
        "residual sums": (5, 4, 15, 5),
        "loss": (2, 2, 2, 12),
    },
}


def _elementwise(
    of: str, config: ModelConfig, tokens: int, size: int, *, phase: str = ""
) -> Iterator[Operation]:
    """All that takes numbers one by one: (numbers that pass at once, times in a step)."""
    layers = config.num_layers
    turned = (config.num_heads + config.num_kv_heads) * config.head_size
    passing = {
        "embedding": (tokens * config.width, 1),
        "norms": (tokens * config.width, 2 * layers + 1),
        "rotations": (tokens * turned // 2, 2 * layers),  # queries, keys
        "gated": (tokens * config.hidden, layers),
        "residual sums": (tokens * config.width, 2 * layers if of == "forward" else layers),
        "loss": (tokens * config.vocab_size, 1),
    }
    for name, (numbers, count) in passing.items():
        flop, least, eager, calls = PER_NUMBER[of][name]
        yield Operation(
            name=name,
            phase=phase or of,
            flop=count * numbers * flop,
            bytes=count * numbers * least * size,
            eager_bytes=count * numbers * eager * size,
            calls=count * calls,
            count=count,
        )


def _adamw(config: ModelConfig, held: TrainingBytes) -> Operation:
    """AdamW in one pass: gradient, weight and moments read, weight and moments written.

    Where there is a master copy, it is read and written, and the narrow weight written beside it.
    """
    numbers = num_parameters(config)
    weight = 2 * held.master + held.weights if held.master else 2 * held.weights
    moved = numbers * (held.gradients + weight + 2 * held.moments)
    return Operation(
        name="AdamW",
        phase="optimizer",
        flop=16 * numbers,
        bytes=moved,
        eager_bytes=moved,
        calls=9 * config.num_layers + 2 + 2 * config.num_layers * config.qk_norm,  # weights
    )
