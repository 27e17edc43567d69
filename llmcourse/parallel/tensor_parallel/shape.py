"""Which shapes can be cut into how many slices, said before any process starts."""

from llmcourse.model import ModelConfig
from llmcourse.parallel.legal import divisors, multiples, nearest


def check_shape(
    config: ModelConfig,
    size: int,
    *,
    sequence_parallel: bool = False,
    replicate_kv: bool = False,
) -> None:
    """Make sure that a model can be cut into `size` slices, as `shard` does with these settings.

    Raises:
        ValueError: naming every rule that is broken, and the nearest values that keep it.
    """
    if size < 1:
        raise ValueError(f"size must be 1 or more ranks, got {size}")
    broken = []
    if config.num_experts:
        broken.append("num_experts must be 0: experts are spread by expert_parallel")
    names = ["num_heads", "hidden", "vocab_size"]
    names += ["context_length"] if sequence_parallel else []
    for name in names:
        given = getattr(config, name)
        if given % size:
            legal = nearest(given, multiples(size, given))
            broken.append(f"{name} must be divisible, got {given} (nearest: {legal})")
    broken += _kv_rule(config.num_kv_heads, size, replicate_kv=replicate_kv)
    if broken:
        raise ValueError(
            f"a model cannot be cut among {size} tensor-parallel ranks: " + "; ".join(broken)
        )


def _kv_rule(num_kv_heads: int, size: int, *, replicate_kv: bool) -> list[str]:
    """Return what is wrong with the key/value heads, if anything."""
    could_copy = size % num_kv_heads == 0
    if num_kv_heads % size == 0 or (replicate_kv and could_copy):
        return []
    multiple = nearest(num_kv_heads, multiples(size, num_kv_heads))
    said = f"num_kv_heads must be divisible, got {num_kv_heads} (nearest: {multiple})"
    if could_copy:
        return [f"{said}, or with replicate_kv=True {size // num_kv_heads} ranks hold each"]
    if replicate_kv:
        dividing = nearest(num_kv_heads, divisors(size))
        return [f"{said}; or, to be copied, divide {size} (nearest: {dividing})"]
    return [said]
