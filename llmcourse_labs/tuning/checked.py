"""GRPO from a checker, on any decoder: drawn, checked, and learnt from, by token ids.

    for report in learn_checked(model, tokenizer, asked, gives_number, settings, end_id=2): ...

A step draws some answers to each of some questions, and learns from them once, so the ratio of
new and old policy is 1 where its gradient is taken, and no clip is at work.  Equal answers to a
question are read once, and groups whose rewards are all equal not at all: they have no gradient.

Shape suffixes:  B batch (answers), T time (tokens), P prompts, G answers of one prompt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from llmcourse.base import runtime
from llmcourse.base.arguments import require_fields
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.loss import IGNORE_INDEX, token_losses
from llmcourse.model import Transformer
from llmcourse.optim import AdamW, clip_by_global_norm
from llmcourse_labs.tuning.answer_tree import Answer, draw_trees
from llmcourse_labs.tuning.arithmetic import Checker, Question
from llmcourse_labs.tuning.fitting import require_finite
from llmcourse_labs.tuning.policy_gradient import (
    clipped_objective,
    group_advantages,
    is_equal,
    mean_over_answers,
)


@dataclass(frozen=True, kw_only=True)
class CheckedSettings:
    """How a policy learns from a checker."""

    steps: int = 100
    """Rollouts, with one update each."""
    prompts: int = 8
    """Of a rollout (P)."""
    group_size: int = 8
    """Answers to each (G)."""
    answer_tokens: int = 4
    """Most tokens of an answer, its end among them."""
    learning_rate: float = 1e-5
    """Of AdamW without decay, constant."""
    seed: int = 0
    """Of the questions and the draws."""

    def __post_init__(self) -> None:
        require_fields(self, "steps", "prompts", "answer_tokens", least=1)
        require_fields(self, "group_size", least=2)
        require_fields(self, "learning_rate", above=0)
        require_fields(self, "seed", least=0)


class Checked(NamedTuple):
    """What a step has to say."""

    step: int
    reward: float
    """The mean of all draws."""
    num_equal: int
    """Groups whose answers all had the same reward."""
    texts: list[str]
    """All draws, group by group."""


class Asked(NamedTuple):
    """Questions as a model reads them."""

    questions: Sequence[Question]
    prompts_PT: Int64[Tensor, "P T"]


def as_asked(questions: Sequence[Question], prompts: Sequence[Sequence[int]]) -> Asked:
    """Return questions with their prompts as ids.

    Raises:
        ValueError: if the prompts are not of one length.
    """
    if len(lengths := {len(prompt) for prompt in prompts}) != 1:
        raise ValueError(
            f"prompts must be of one length, got {sorted(lengths)} tokens: take numbers of as many "
            "digits in all questions"
        )
    return Asked(questions, torch.tensor([list(prompt) for prompt in prompts]))


def as_text(answer: Answer, tokenizer: Tokenizer, end_id: int) -> str:
    """Return an answer without its end, or with "…" if it has none."""
    ended = answer[-1] == end_id
    return tokenizer.decode_known(answer[: len(answer) - ended]) + ("" if ended else "…")


def learn_checked(
    model: Transformer,
    tokenizer: Tokenizer,
    asked: Asked,
    checker: Checker,
    settings: CheckedSettings,
    *,
    end_id: int,
) -> Iterator[Checked]:
    """Take all steps; tell of each when it is done.

    Args:
        model: the policy; what has `requires_grad` learns.
        tokenizer: of the model.
        asked: questions to draw from.
        checker: says what an answer is worth.
        settings: see `CheckedSettings`.
        end_id: the token that ends an answer.

    Raises:
        TrainingDivergedError: if the gradient is not finite.
    """
    learnt = [w for w in model.parameters() if w.requires_grad]
    optimizer = AdamW(learnt, settings.learning_rate, weight_decay=0.0)
    generators = [runtime.generator(settings.seed + n) for n in range(2)]
    for step in range(1, settings.steps + 1):
        picked = torch.randint(len(asked.questions), (settings.prompts,), generator=generators[0])
        groups = draw_trees(
            model,
            asked.prompts_PT[picked],
            settings.group_size,
            most_tokens=settings.answer_tokens,
            end_id=end_id,
            generator=generators[1],
        )
        texts = [[as_text(answer, tokenizer, end_id) for answer in group] for group in groups]
        rewards_PG = torch.tensor(
            [
                [checker(asked.questions[i], text) for text in group]
                for i, group in zip(picked.tolist(), texts, strict=True)
            ]
        )
        told = ~is_equal(rewards_PG).flatten()
        if told.any():
            kept = [group for group, tells in zip(groups, told.tolist(), strict=True) if tells]
            loss = checked_loss(model, asked.prompts_PT[picked][told], kept, rewards_PG[told])
            (loss * told.double().mean()).backward()
            require_finite(clip_by_global_norm(learnt, 1.0), step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        said = [text for group in texts for text in group]
        yield Checked(step, rewards_PG.mean().item(), int((~told).sum()), said)


def checked_loss(
    model: Transformer,
    prompts_PT: Int64[Tensor, "P T"],
    groups: Sequence[Sequence[Answer]],
    rewards_PG: Float[Tensor, "P G"],
) -> Float[Tensor, ""]:
    """Return the objective of GRPO with a minus sign, for draws of the policy as it is.

    Args:
        model: the policy.
        prompts_PT: one for each group.
        groups: the answers to each prompt.
        rewards_PG: of each answer.
    """
    each = [(place, answer) for place, group in enumerate(groups) for answer in group]
    unique = list(dict.fromkeys(each))
    which_B = [unique.index(one) for one in each]
    log_probs_BT, is_answer_BT = (x[which_B] for x in side_by_side(model, prompts_PT, unique))
    advantages_BT = group_advantages(rewards_PG).values_PG.view(-1, 1) * is_answer_BT
    objective_BT = clipped_objective(log_probs_BT, log_probs_BT.detach(), advantages_BT, clip=0.2)
    return -mean_over_answers(objective_BT, is_answer_BT)


def side_by_side(
    model: Transformer, prompts_PT: Int64[Tensor, "P T"], answers: Sequence[tuple[int, Answer]]
) -> tuple[Float[Tensor, "B t"], Bool[Tensor, "B t"]]:
    """Return log p of each token of answers, and where there are tokens; a prompt is read once.

    The answers to a prompt stand behind it in one row, and none sees another.

    Args:
        model: that answers.
        prompts_PT: all of one length.
        answers: the place of its prompt and the ids of each, side by side for each prompt.
    """
    num_prompts, start = prompts_PT.shape
    ends = [start] * num_prompts
    longest = max(len(answer) for _, answer in answers)
    asked_at_BT = torch.full((len(answers), longest), start - 1)
    targets_BT = torch.full_like(asked_at_BT, IGNORE_INDEX)
    for row, (place, answer) in enumerate(answers):
        first, last = ends[place], ends[place] + len(answer) - 1
        asked_at_BT[row, 1 : len(answer)] = torch.arange(first, last)
        targets_BT[row, : len(answer)] = torch.tensor(answer)
        ends[place] = last  # nothing is asked after the last token, so it is not read
    ids_PW = F.pad(prompts_PT, (0, max(ends) - start))
    positions_PW = torch.arange(max(ends)).repeat(num_prompts, 1)
    sees_PWW = torch.ones(num_prompts, max(ends), max(ends), dtype=torch.bool).tril()
    for (place, answer), columns_T in zip(answers, asked_at_BT, strict=True):
        if len(answer) > 1:
            first, end = int(columns_T[1]), int(columns_T[len(answer) - 1]) + 1
            ids_PW[place, first:end] = torch.tensor(answer[:-1])
            positions_PW[place, first:end] = torch.arange(start, start + end - first)
            sees_PWW[place, first:end, start:first] = False
    logits_PWV = model(ids_PW, positions_BT=positions_PW, mask=sees_PWW)
    places_B1 = torch.tensor([[place] for place, _ in answers])
    losses_BT = token_losses(logits_PWV[places_B1, asked_at_BT], targets_BT)
    return -losses_BT, targets_BT != IGNORE_INDEX
