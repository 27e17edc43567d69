"""All answers of a model to a prompt, with their probabilities, or many draws, as one tree.

The answers share their first tokens, and each prefix is read once, with the keys and values of what
stands before it.

Shape suffixes:  P prompts, T time (tokens of a prompt), N nodes (prefixes), V vocabulary.
"""

from collections.abc import Callable, Collection, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from llmcourse.model import Transformer
from llmcourse_labs.tuning.likelihood import answer_log_probs, answer_rows

AT_ONCE = 8
"""Prompts whose trees grow side by side."""

Answer = tuple[int, ...]
"""Ids, the one that ends it among them if it has ended."""

Tree = dict[Answer, int | float]
"""What each answer to a prompt has of the whole: its probability, or how often it was drawn."""


@torch.no_grad()
def grow_trees(
    model: Transformer,
    prompts_PT: Int64[Tensor, "P T"],
    split: Callable[[int | float, Float[Tensor, " V"]], dict[int, int | float]],
    *,
    whole: int | float,
    most_tokens: int,
    end_id: int,
) -> list[Tree]:
    """Divide a whole among the answers to each prompt, token by token.

    Args:
        model: whose answers they are.
        prompts_PT: at least one, all of one length.
        split: of what a prefix has, given the probabilities of the next token, says what goes to
            which token; a token that gets nothing is not named.
        whole: what each prompt has.
        most_tokens: of an answer, its end among them; a longer one is cut.
        end_id: the token that ends an answer.
    """
    trees: list[Tree] = [{} for _ in prompts_PT]
    cache = model.new_cache(len(prompts_PT), prompts_PT.shape[1] + most_tokens)
    nodes: list[tuple[int, Answer, int | float]] = [
        (place, (), whole) for place in range(len(trees))
    ]
    ids_NT = prompts_PT
    for length in range(1, most_tokens + 1):
        p_NV = model(ids_NT, cache=cache, last_only=True)[:, -1].double().softmax(-1)
        above, next_nodes = [], []
        for row, (place, said, has) in enumerate(nodes):
            for token, part in split(has, p_NV[row]).items():
                if token == end_id or length == most_tokens:
                    trees[place][*said, token] = part
                else:
                    above.append(row)
                    next_nodes.append((place, (*said, token), part))
        if not above:
            break
        nodes = next_nodes
        for layer in cache:
            layer.keys_BSGK, layer.values_BSGK = layer.keys_BSGK[above], layer.values_BSGK[above]
        ids_NT = torch.tensor([[said[-1]] for _, said, _ in nodes])
    return trees


def draw_trees(
    model: Transformer,
    prompts_PT: Int64[Tensor, "P T"],
    number: int,
    *,
    most_tokens: int,
    end_id: int,
    generator: torch.Generator,
) -> list[list[Answer]]:
    """Draw answers to every prompt at temperature 1; equal ones stand side by side.

    Args:
        model: that answers.
        prompts_PT: all of one length.
        number: of answers to each.
        most_tokens: of an answer, its end among them.
        end_id: the token that ends an answer.
        generator: of the draws.
    """

    def split(times: int | float, p_V: Float[Tensor, " V"]) -> dict[int, int | float]:
        tokens = torch.multinomial(p_V, int(times), replacement=True, generator=generator)
        which, counts = tokens.unique(return_counts=True)
        return dict(zip(which.tolist(), counts.tolist(), strict=True))

    trees = grow_trees(
        model, prompts_PT, split, whole=number, most_tokens=most_tokens, end_id=end_id
    )
    return [[answer for answer, n in tree.items() for _ in range(int(n))] for tree in trees]


def probabilities(
    model: Transformer,
    prompts_PT: Int64[Tensor, "P T"],
    allowed: Collection[int],
    *,
    most_tokens: int,
    end_id: int,
    floor: float = 1e-3,
) -> list[Tree]:
    """Return the probability of every answer that is made of some tokens alone, and ends.

    What is missing from 1 are other answers, and prefixes below the floor.

    Args:
        model: that answers.
        prompts_PT: all of one length.
        allowed: ids of an answer, such as the ten digits.
        most_tokens: of an answer, its end among them.
        end_id: the token that ends an answer.
        floor: what has less is not followed.
    """
    wanted = torch.tensor([*allowed, end_id])

    def split(has: int | float, p_V: Float[Tensor, " V"]) -> dict[int, int | float]:
        parts = (has * p_V[wanted]).tolist()
        return {i: part for i, part in zip(wanted.tolist(), parts, strict=True) if part >= floor}

    trees = [
        tree
        for some_PT in prompts_PT.split(AT_ONCE)
        for tree in grow_trees(
            model, some_PT, split, whole=1.0, most_tokens=most_tokens, end_id=end_id
        )
    ]
    return [{a: p for a, p in tree.items() if a[-1] == end_id and len(a) > 1} for tree in trees]


@torch.no_grad()
def right_probabilities(
    model: Transformer, prompts_PT: Int64[Tensor, "P T"], answers: Sequence[Answer]
) -> Float[Tensor, " P"]:
    """Return the probability of one answer to each prompt, its end among it, by one pass."""
    return answer_log_probs(model, answer_rows(prompts_PT.tolist(), answers)).double().exp()
