"""Answers that a policy draws, as what it can learn from: tokens, log-probabilities, rewards.

Answers are drawn at temperature 1: only then is the policy that draws the one whose probabilities
are learnt.

Shape suffixes:  B batch (answers), T time (tokens), P prompts, G answers of one prompt.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.model.sampling import generate
from llmcourse_labs.tuning.chat_format import END_OF_TURN
from llmcourse_labs.tuning.likelihood import AnswerRows, answer_rows, token_log_probs
from llmcourse_labs.tuning.policy_gradient import is_equal
from llmcourse_labs.tuning.sft import prompt_ids
from llmcourse_labs.tuning.tasks import Task

Reward = Callable[[Task, str], float]
"""Says how good a text is as the answer of a task; "…" at its end: it was cut before it ended."""


class Drawn(NamedTuple):
    """Answers that a model has written."""

    rows: AnswerRows
    """One for each task, its prompt before it."""
    texts: list[str]
    """The answers alone, without what ends them, and with "…" where nothing does."""


class Rollout(NamedTuple):
    """Answers that the policy has written, and what became of them."""

    rows: AnswerRows
    """All answers to the first prompt, then all to the second, and so on."""
    old_BT: Float[Tensor, "B T"]
    """Log-probability of each token of the answers under the policy that drew them."""
    reference_BT: Float[Tensor, "B T"]
    """The same under the reference."""
    rewards_PG: Float[Tensor, "P G"]
    tasks: list[Task]
    """One for each answer."""
    texts: list[str]


@torch.no_grad()
def draw_answers(
    model: Transformer,
    tokenizer: Tokenizer,
    tasks: Sequence[Task],
    *,
    answer_tokens: int,
    generator: torch.Generator,
) -> Drawn:
    """Draw an answer to every task, all side by side, with the cache.

    Args:
        model: that answers.
        tokenizer: with the chat tokens.
        tasks: at least one; a task may stand there several times.
        answer_tokens: most tokens of an answer, 1 or more.
        generator: of the draws.

    Raises:
        ValueError: if there is no task, or an answer may not fit into the context.
    """
    require("answer_tokens", answer_tokens, least=1)
    if not tasks:
        raise ValueError("there is no task to answer: give at least one")
    prompts = [prompt_ids(task.turns[:1], tokenizer) for task in tasks]
    longest, context = max(map(len, prompts)), model.config.context_length
    if longest + answer_tokens > context:
        raise ValueError(
            f"a prompt of {longest} tokens and an answer of up to {answer_tokens} do not fit into "
            f"the context of {context}: lower answer_tokens, or take shorter tasks"
        )
    end = tokenizer.special_tokens[END_OF_TURN]
    drawn = generate(model, prompts, max_new_tokens=answer_tokens, stop_id=end, generator=generator)
    answers = [row[len(prompt) :].tolist() for prompt, row in zip(prompts, drawn, strict=True)]
    texts = [_text(ids, tokenizer, end) for ids in answers]
    return Drawn(answer_rows(prompts, answers), texts)


def _text(ids: Sequence[int], tokenizer: Tokenizer, end: int) -> str:
    """Return an answer as text, with "…" at its end if it has no end."""
    ended = ids[-1] == end
    return tokenizer.decode_known(ids[: len(ids) - ended]) + ("" if ended else "…")


@torch.no_grad()
def rolled_out(
    policy: Transformer,
    reference: Transformer,
    tokenizer: Tokenizer,
    tasks: Sequence[Task],
    reward: Reward,
    *,
    group_size: int,
    answer_tokens: int,
    generator: torch.Generator,
) -> Rollout:
    """Draw several answers to every task, and reward them.

    Args:
        policy: draws.
        reference: says how likely it finds what was drawn.
        tokenizer: with the chat tokens.
        tasks: at least one.
        reward: of a task and an answer.
        group_size: answers to each task, 1 or more.
        answer_tokens: most tokens of an answer.
        generator: of the draws.

    Raises:
        ValueError: as `draw_answers` does, and if a reward is not finite.
    """
    each = [task for task in tasks for _ in range(group_size)]
    rows, texts = draw_answers(
        policy, tokenizer, each, answer_tokens=answer_tokens, generator=generator
    )
    rewards = [_rewarded(reward, task, text) for task, text in zip(each, texts, strict=True)]
    return Rollout(
        rows,
        token_log_probs(policy, rows),
        token_log_probs(reference, rows),
        torch.tensor(rewards).view(len(tasks), group_size),
        each,
        texts,
    )


def refilled(rolled: Rollout, others: Rollout) -> Rollout:
    """Put groups whose rewards differ in the places of groups whose rewards are equal.

    The first group of `others` that teaches something takes the first such place, and so on, until
    there are no more of either.

    Args:
        rolled: with groups that teach nothing; it is not changed.
        others: as many answers to a prompt.

    Source:
        Yu et al. 2025 (DAPO, "dynamic sampling"), https://arxiv.org/abs/2503.14476
    """
    each = rolled.rewards_PG.shape[1]
    places = is_equal(rolled.rewards_PG).flatten().nonzero().flatten().tolist()
    better = (~is_equal(others.rewards_PG)).flatten().nonzero().flatten().tolist()
    longest = max(rolled.old_BT.shape[1], others.old_BT.shape[1])
    taken = list(range(rolled.rewards_PG.shape[0]))
    for place, group in zip(places, better, strict=False):
        taken[place] = len(taken) + group
    rows = [each * group + n for group in taken for n in range(each)]

    def of_rows(first_BT: Tensor, second_BT: Tensor) -> Tensor:
        wide = [F.pad(x, (0, longest - x.shape[1])) for x in (first_BT, second_BT)]
        return torch.cat(wide)[rows]

    return Rollout(
        AnswerRows(*map(of_rows, rolled.rows, others.rows)),
        of_rows(rolled.old_BT, others.old_BT),
        of_rows(rolled.reference_BT, others.reference_BT),
        torch.cat([rolled.rewards_PG, others.rewards_PG])[taken],
        [(rolled.tasks + others.tasks)[row] for row in rows],
        [(rolled.texts + others.texts)[row] for row in rows],
    )


def _rewarded(reward: Reward, task: Task, text: str) -> float:
    """Return a reward, if it is a number that one can learn from."""
    value = float(reward(task, text))
    if not math.isfinite(value):
        raise ValueError(
            f"the reward of {text!r} as the answer to {task.prompt!r} is {value}: it must be finite"
        )
    return value
