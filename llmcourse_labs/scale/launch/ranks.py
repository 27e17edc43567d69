"""Which rank sits on which node: the map that keeps tensor parallelism inside a node.

torchrun numbers ranks node by node.  So it is the order of a mesh's axes, and nothing that the
scheduler knows of, that decides which groups lie inside a node.
"""

import math
from collections.abc import Mapping

from llmcourse.base.arguments import require_each
from llmcourse.parallel.world import place_of


def rank_map(mesh: Mapping[str, int], ranks_per_node: int) -> list[list[dict[str, int]]]:
    """Return for each node the places of its ranks on the mesh.

    Args:
        mesh: sizes of the axes by name, the last one fastest.
        ranks_per_node: processes of a node, one for each GPU.

    Raises:
        ValueError: if the ranks do not fill whole nodes, or a tp group crosses nodes.
    """
    spread = nodes_of_groups(mesh, ranks_per_node)
    if spread.get("tp", 1) > 1:
        raise ValueError(
            f"tp = {mesh['tp']} crosses nodes of {ranks_per_node} ranks, a group lies on "
            f"{spread['tp']} of them, and talks over the network in every layer: make tp the last "
            f"axis, with a size that divides {ranks_per_node}"
        )
    places = [place_of(rank, mesh) for rank in range(math.prod(mesh.values()))]
    return [places[at : at + ranks_per_node] for at in range(0, len(places), ranks_per_node)]


def nodes_of_groups(mesh: Mapping[str, int], ranks_per_node: int) -> dict[str, int]:
    """Return for each axis on how many nodes a group along it lies, at most.

    Raises:
        ValueError: if a size is below 1, or the ranks do not fill whole nodes.
    """
    require_each({**mesh, "ranks_per_node": ranks_per_node}, least=1)
    num_ranks = math.prod(mesh.values())
    if num_ranks % ranks_per_node:
        sizes = " x ".join(f"{name} {size}" for name, size in mesh.items())
        raise ValueError(
            f"{sizes} = {num_ranks} ranks do not fill nodes of {ranks_per_node}: the product must "
            "be a multiple"
        )
    found, apart = {}, num_ranks
    for name, size in mesh.items():
        apart //= size  # how far the numbers of two neighbours along the axis are apart
        firsts = [r for r in range(num_ranks) if r // apart % size == 0]
        found[name] = max(
            len({(first + k * apart) // ranks_per_node for k in range(size)}) for first in firsts
        )
    return found


def rank_table(mesh: Mapping[str, int], ranks_per_node: int, *, most: int = 4) -> str:
    """Return the map as text, a line for each node; of many nodes the first ones and the last.

    Raises:
        ValueError: as `rank_map` does.
    """
    nodes = rank_map(mesh, ranks_per_node)
    lines = []
    for node, places in enumerate(nodes):
        if most <= node < len(nodes) - 1:
            lines += ["..."] if node == most else []
            continue
        first = node * ranks_per_node
        spans = [f"{name} {_span([place[name] for place in places])}" for name in mesh]
        lines.append(f"node {node:<4} ranks {first}-{first + len(places) - 1}: {', '.join(spans)}")
    return "\n".join(lines)


def _span(values: list[int]) -> str:
    """Return 3, or 0-7."""
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low}-{high}"
