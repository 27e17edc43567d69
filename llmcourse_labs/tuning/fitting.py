"""Short training loops on answers, and on pairs of answers of which one was preferred.

Each fits one model, with AdamW, on batches in random order: `fit_answers` to answers (supervised
fine-tuning), `fit_reward_model` and `fit_preferences` to pairs.

Shape suffixes:  B batch (pairs, or answers), N all pairs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from llmcourse.base.arguments import require_fields
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.optim import AdamW, clip_by_global_norm
from llmcourse.train import TrainingDivergedError
from llmcourse_labs.tuning.chat_format import END_OF_TURN
from llmcourse_labs.tuning.likelihood import AnswerRows, answer_log_probs, answer_rows
from llmcourse_labs.tuning.preference_data import Pair
from llmcourse_labs.tuning.preferences import (
    PreferenceLoss,
    RewardModel,
    bradley_terry_loss,
    dpo_loss,
)
from llmcourse_labs.tuning.sft import prompt_ids

AT_ONCE = 64
"""Pairs that are read in one pass without gradients."""

Ids = Sequence[Sequence[int]]
"""Rows of token ids, each as long as it is."""


class PairRows(NamedTuple):
    """Prompts with two answers each, in token ids; each answer ends with the token that ends it."""

    prompts: Ids
    chosen: Ids
    """The answers that were preferred."""
    rejected: Ids


def answer_ids(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return an answer as a model writes it, with its end."""
    return [*tokenizer.encode(text), tokenizer.special_tokens[END_OF_TURN]]


def pair_rows(pairs: Sequence[Pair], tokenizer: Tokenizer) -> PairRows:
    """Return pairs of answers as token ids."""
    return PairRows(
        [prompt_ids(pair.task.turns[:1], tokenizer) for pair in pairs],
        [answer_ids(pair.chosen, tokenizer) for pair in pairs],
        [answer_ids(pair.rejected, tokenizer) for pair in pairs],
    )


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How a model is fitted to answers or to pairs of them."""

    steps: int = 100
    """Updates."""
    batch_size: int = 16
    """Answers, or pairs, of an update."""
    learning_rate: float = 3e-4
    """Of AdamW without decay; it rises over 10 steps and falls to 0."""
    seed: int = 0
    """Of the draws."""

    def __post_init__(self) -> None:
        require_fields(self, "steps", "batch_size", least=1)
        require_fields(self, "learning_rate", above=0)
        require_fields(self, "seed", least=0)


OnStep = Callable[[int, Any], object]
"""Is told the number of a step, from 1, and the losses of its batch; if true, no other follows."""


def fit_answers(
    model: nn.Module,
    prompts: Ids,
    answers: Ids,
    settings: FitSettings,
    on_step: OnStep | None = None,
) -> None:
    """Fit a model to answers: supervised fine-tuning, mean loss of an answer's token."""

    def losses(picked: list[int]) -> tuple[Tensor, Any]:
        rows = answer_rows([prompts[i] for i in picked], [answers[i] for i in picked])
        loss = -answer_log_probs(model, rows).sum() / rows.is_answer_BT.sum()
        return loss, loss.detach()

    _fit(model, len(prompts), losses, settings, on_step)


def fit_reward_model(
    model: RewardModel, pairs: PairRows, settings: FitSettings, on_step: OnStep | None = None
) -> None:
    """Fit a reward model to pairs, by the loss of Bradley and Terry."""

    def losses(picked: list[int]) -> tuple[Tensor, Any]:
        chosen_B, rejected_B = model(_both(pairs, picked)).chunk(2)
        losses_B = bradley_terry_loss(chosen_B, rejected_B)
        return losses_B.mean(), PreferenceLoss(losses_B, chosen_B.detach(), rejected_B.detach())

    _fit(model, len(pairs.prompts), losses, settings, on_step)


def fit_preferences(
    policy: nn.Module,
    reference: nn.Module | None,
    pairs: PairRows,
    settings: FitSettings,
    *,
    beta: int | float,
    loss: Callable[..., PreferenceLoss] = dpo_loss,
    on_step: OnStep | None = None,
) -> None:
    """Fit a policy to pairs, beside a reference.

    What the reference says of the pairs is computed once, before the first step.

    Args:
        policy: is trained.
        reference: stays as it is; usually a copy of the policy at its start.  None is the policy as
            it is now, without a copy: with LoRA, the model that the thin matrices stand beside.
        pairs: at least one.
        settings: see `FitSettings`.
        beta: what a nat away from the reference costs.
        loss: `dpo_loss` or `ipo_loss`.
        on_step: see `OnStep`.

    Raises:
        ValueError: if the reference has another shape than the policy, or is the policy.
    """
    if policy is reference:
        raise ValueError("policy and reference are one model, and would move together: copy it")
    first, at_once = (policy, settings.batch_size) if reference is None else (reference, AT_ONCE)
    shape, other = ([tuple(w.shape) for w in m.parameters()] for m in (policy, first))
    if shape != other:
        raise ValueError(
            f"the reference has another shape than the policy: weights of {other}, not {shape}; "
            "take a copy of the policy at its start"
        )
    kept_N2 = pair_log_probs(first, pairs, at_once=at_once)

    def losses(picked: list[int]) -> tuple[Tensor, Any]:
        chosen_B, rejected_B = answer_log_probs(policy, _both(pairs, picked)).chunk(2)
        found = loss(chosen_B, rejected_B, *kept_N2[picked].unbind(1), beta=beta)
        return found.losses_B.mean(), found

    _fit(policy, len(pairs.prompts), losses, settings, on_step)


@torch.no_grad()
def pair_log_probs(
    model: nn.Module, pairs: PairRows, *, at_once: int = AT_ONCE
) -> Float[Tensor, "N 2"]:
    """Return log p of the chosen and of the rejected answer of every pair, some at a time."""
    found = []
    for first in range(0, len(pairs.prompts), at_once):
        picked = list(range(first, min(first + at_once, len(pairs.prompts))))
        found.append(torch.stack(answer_log_probs(model, _both(pairs, picked)).chunk(2), 1))
    return torch.cat(found)


def _both(pairs: PairRows, picked: Sequence[int]) -> AnswerRows:
    """Return the chosen answers of some pairs, and then the rejected ones."""
    prompts = [pairs.prompts[i] for i in picked]
    said = [side[i] for side in (pairs.chosen, pairs.rejected) for i in picked]
    return answer_rows([*prompts, *prompts], said)


def _fit(
    model: nn.Module,
    number: int,
    losses: Callable[[list[int]], tuple[Tensor, Any]],
    settings: FitSettings,
    on_step: OnStep | None,
) -> None:
    """Take steps on batches that are drawn without putting back, until none is left, and anew."""
    learnt = [w for w in model.parameters() if w.requires_grad]
    optimizer = AdamW(learnt, settings.learning_rate, weight_decay=0)
    generator = torch.Generator().manual_seed(settings.seed)
    order: list[int] = []
    for step in range(1, settings.steps + 1):
        while len(order) < settings.batch_size:
            order += torch.randperm(number, generator=generator).tolist()
        picked, order = order[: settings.batch_size], order[settings.batch_size :]
        rate = settings.learning_rate * min(1, step / 10) * (1 - (step - 1) / settings.steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, report = losses(picked)
        optimizer.zero_grad()
        loss.backward()
        require_finite(clip_by_global_norm(learnt, 1.0), step)
        optimizer.step()
        if on_step is not None and on_step(step, report):
            return


def require_finite(norm: float, step: int) -> float:
    """Return the norm of a gradient; raise before a weight is changed by one that is no number.

    A loss that is not finite has such a gradient.

    Args:
        norm: over all weights.
        step: counted from 1.

    Raises:
        TrainingDivergedError: if the norm is not finite.
    """
    if not math.isfinite(norm):
        raise TrainingDivergedError(
            f"the gradient norm is {norm} at step {step}: lower the learning rate"
        )
    return norm
