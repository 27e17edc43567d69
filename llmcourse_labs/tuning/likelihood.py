"""How likely a model finds an answer: the number that preferences and rewards move.

    log p(answer | prompt) = sum over tokens t of the answer of log p(token t | all before it)

Shape suffixes:  B batch (answers), T time (tokens).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from llmcourse.loss import shifted_targets, token_losses


class AnswerRows(NamedTuple):
    """Prompts with an answer each, as the rows of a batch that ends in padding."""

    ids_BT: Int64[Tensor, "B T"]
    """Prompt, answer, and zeros: nothing that counts can see what comes after it."""
    is_answer_BT: Bool[Tensor, "B T"]
    """True on the tokens of the answer, its end among them."""


def answer_rows(prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> AnswerRows:
    """Return prompts and their answers as a batch.

    Args:
        prompts: ids that end where the assistant has to speak; at least one in each.
        answers: ids, with the token that ends an answer; at least one in each.

    Raises:
        ValueError: if there is nothing, their numbers differ, or one of them is empty.
    """
    if not prompts or len(prompts) != len(answers):
        raise ValueError(
            f"give an answer to each of one or more prompts, got {len(answers)} to {len(prompts)}"
        )
    if not all(map(len, prompts)) or not all(map(len, answers)):
        raise ValueError("a prompt or an answer is empty: each has at least one token, its end")
    pairs = [(list(p), list(a)) for p, a in zip(prompts, answers, strict=True)]
    longest = max(len(p) + len(a) for p, a in pairs)
    ids_BT = torch.zeros(len(pairs), longest, dtype=torch.int64)
    is_answer_BT = torch.zeros(len(pairs), longest, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(pairs):
        end = len(prompt) + len(answer)
        ids_BT[row, :end] = torch.tensor(prompt + answer)
        is_answer_BT[row, len(prompt) : end] = True
    return AnswerRows(ids_BT, is_answer_BT)


def token_log_probs(model: nn.Module, rows: AnswerRows) -> Float[Tensor, "B T"]:
    """Return log p of each token of the answers, at its own place; 0 everywhere else."""
    targets_BT = shifted_targets(rows.ids_BT, learned_BT=rows.is_answer_BT)
    losses_BT = token_losses(model(rows.ids_BT), targets_BT)
    return -losses_BT.roll(1, dims=1)  # asked one place earlier; the last place is never asked


def answer_log_probs(model: nn.Module, rows: AnswerRows) -> Float[Tensor, " B"]:
    """Return log p of each whole answer, given its prompt."""
    return token_log_probs(model, rows).sum(1)
