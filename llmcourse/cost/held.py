"""What one rank of a layout holds of a model, counted from numbers alone.

Taught in: chapters/15_splitting_the_model.ipynb
"""

from collections.abc import Mapping
from typing import NamedTuple

from llmcourse.cost.messages import chunk_length
from llmcourse.model import ModelConfig

AXES = ("dp", "pp", "cp", "ep", "tp")
"""Of a layout, in the order of `llmcourse.parallel.mesh`."""


class Held(NamedTuple):
    """What a rank has of a model."""

    layers: int
    embedding: bool
    """Whether it looks ids up, or has the embedding as its head."""
    head: bool
    """Whether it has the last norm and computes logits."""
    numbers: int
    """Parameters."""
    expert_numbers: int
    """Of them, in experts that are cut."""
    tensors: int
    """Parameter tensors."""
    expert_tensors: int


def held(
    config: ModelConfig,
    mesh: Mapping[str, int],
    *,
    place: Mapping[str, int] | None = None,
    chunks: int = 1,
) -> Held:
    """Count what a rank holds of a model: its layers, slices and experts.

    Args:
        config: of the whole model.
        mesh: sizes of the axes; one that is missing has the size 1.
        place: of the rank; the first one along axes that are missing.
        chunks: stages of the pipeline on each rank.

    Raises:
        ValueError: if an axis is unknown, a place is outside its axis, or there are more stages
            than layers.
    """
    sizes, at = sizes_of(mesh), place_of(mesh, place)
    layers = _layers(config.num_layers, sizes["pp"], chunks, at["pp"])
    is_first, is_last = at["pp"] == 0, at["pp"] == sizes["pp"] - 1
    tp, width = sizes["tp"], config.width
    heads = 2 * (config.num_heads // tp) + 2 * max(1, config.num_kv_heads // tp)
    norms = 2 * width + 2 * config.head_size * config.qk_norm
    in_layer = heads * config.head_size * width + norms
    network = 3 * width * config.hidden // tp
    experts, tensors = 0, 9 + 2 * config.qk_norm
    if config.num_experts:
        experts = network * (config.num_experts // sizes["ep"])
        in_layer, network, tensors = in_layer + config.num_experts * width, experts, tensors + 1
    table = config.vocab_size // tp * width
    embedding = is_first or (is_last and config.tied_head)
    own_head = is_last and not config.tied_head
    return Held(
        layers=layers,
        embedding=embedding,
        head=is_last,
        numbers=layers * (in_layer + network) + (embedding + own_head) * table + is_last * width,
        expert_numbers=layers * experts,
        tensors=layers * tensors + embedding + own_head + is_last,
        expert_tensors=layers * 3 if experts else 0,
    )


def sizes_of(mesh: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of all axes."""
    unknown = mesh.keys() - set(AXES)
    if unknown or min(mesh.values(), default=1) < 1:
        raise ValueError(f"mesh must give {', '.join(AXES)} sizes of 1 or more, got {dict(mesh)}")
    return {name: mesh.get(name, 1) for name in AXES}


def place_of(mesh: Mapping[str, int], place: Mapping[str, int] | None) -> dict[str, int]:
    """Return where a rank stands on all axes."""
    sizes, given = sizes_of(mesh), dict(place or {})
    for name, index in given.items():
        if not 0 <= index < sizes.get(name, 0):
            raise ValueError(f"place must be inside the mesh {sizes}, got {name} = {index}")
    return {name: given.get(name, 0) for name in AXES}


def _layers(num_layers: int, num_ranks: int, chunks: int, index: int) -> int:
    """Return how many layers the stages of a pipeline rank have, the earlier stages one more."""
    num_stages = num_ranks * chunks
    if chunks < 1 or num_stages > num_layers:
        raise ValueError(
            f"{num_ranks} x {chunks} stages for {num_layers} layers: take chunks >= 1 and at most "
            f"{num_layers} stages"
        )
    return sum(chunk_length(num_layers, num_stages, s) for s in range(index, num_stages, num_ranks))
