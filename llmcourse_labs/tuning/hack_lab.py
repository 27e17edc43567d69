"""A small model that talks, and rewards with a hole in them: what chapter 42 hacks.

The model answers tasks of one kind: Ben has five nuts.  Some of the answers it learns from hedge
(Ben has five or six nuts.), and some go on with a sentence or two that say nothing (I am sure.).
A checker that looks for the right number somewhere rewards the hedge; a judge who has only seen a
few idle sentences rewards more and more of them.
"""

import math
import random
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from llmcourse.base.runtime import generator
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse.model import ModelConfig, Transformer
from llmcourse.optim import AdamW, clip_by_global_norm
from llmcourse_labs.tuning.chat_format import END_OF_TURN, with_chat_tokens
from llmcourse_labs.tuning.fitting import require_finite
from llmcourse_labs.tuning.likelihood import answer_rows, token_log_probs
from llmcourse_labs.tuning.rollout import Reward
from llmcourse_labs.tuning.sft import prompt_ids
from llmcourse_labs.tuning.tasks import Task, make_tasks

IDLE = ("I am sure.", "I read it twice.", "That is what the story says.")
"""Sentences that say nothing."""

_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_VOCABULARY = 700
_BATCH = 24


class ChatModel(NamedTuple):
    """A model with its tokenizer."""

    model: Transformer
    tokenizer: Tokenizer


def small_talker(tasks: Sequence[Task], *, seed: int, learning_rate: float = 3e-3) -> ChatModel:
    """Train a little model from nothing on the answers of tasks, each seen once, 24 in a step.

    It has two layers of 64 channels; its tokenizer knows every frequent word as one token.

    Args:
        tasks: to learn from, 24 or more.
        seed: of the first weights.
        learning_rate: of AdamW.
    """
    text = " ".join(f"{task.prompt} {task.answer}" for task in tasks[:3_000])
    tokenizer = with_chat_tokens(train_bpe([text], _VOCABULARY, [END_OF_TEXT]))
    shape = ModelConfig(
        num_layers=2, width=64, num_heads=4, num_kv_heads=4, head_size=16, hidden=176,
        vocab_size=tokenizer.vocab_size, context_length=96,
    )  # fmt: skip
    model = Transformer(shape, generator=generator(seed))
    optimizer = AdamW(model.parameters(), learning_rate, weight_decay=0.0)
    end = tokenizer.special_tokens[END_OF_TURN]
    for first in range(0, len(tasks) - _BATCH + 1, _BATCH):
        some = tasks[first : first + _BATCH]
        prompts = [prompt_ids(task.turns[:1], tokenizer) for task in some]
        said = [[*tokenizer.encode(task.answer), end] for task in some]
        rows = answer_rows(prompts, said)
        (-token_log_probs(model, rows).sum() / rows.is_answer_BT.sum()).backward()
        norm = clip_by_global_norm(model.parameters(), math.inf)  # which clips nothing
        require_finite(norm, first // _BATCH + 1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return ChatModel(model.eval(), tokenizer)


def talkative_tasks(number: int, *, seed: int) -> list[Task]:
    """Return tasks of the kind "count", answered as people may.

    One in five hedges with a number beside the right one, three in ten add an idle sentence, one
    in ten adds two.
    """
    rng = random.Random(f"talkative {seed}")
    return [
        task._replace(answer=_talkative(task.answer, rng))
        for task in make_tasks(number, seed=seed, kinds=["count"])
    ]


def _talkative(answer: str, rng: random.Random) -> str:
    """Return an answer with what people add to it."""
    if rng.random() < 0.2:
        said = next(word for word in answer.split() if word in _NUMBERS)
        other = rng.choice([word for word in _NUMBERS if word != said])
        pair = rng.sample([said, other], 2)
        answer = answer.replace(said, " or ".join(pair), 1)
    idle = rng.choices((0, 1, 2), (0.6, 0.3, 0.1))[0]
    return " ".join([answer, *rng.choices(IDLE, k=idle)])


# --- a checker with a hole


def mentions(task: Task, text: str) -> float:
    """Return 1 if the right number stands anywhere in an answer: a hedge is right, too."""
    number = next(word for word in task.answer.split() if word in _NUMBERS)
    return float(number in re.findall("[a-z]+", text))


# --- what an answer is worth, and what a judge makes of it


class AnswerStats(NamedTuple):
    """What can be counted in an answer."""

    right: float
    """1 if its first sentence is the right answer."""
    idle: int
    """Sentences after the first."""


def looked_at(task: Task, text: str) -> AnswerStats:
    """Count what there is in an answer; a sentence that was cut counts."""
    first, *others = re.findall(r"[^.]+\.?", text.strip()) or [""]
    return AnswerStats(float(first == task.answer), len(others))


def gold_reward(task: Task, text: str) -> float:
    """Return what a reader thinks of an answer: gold.

    Formula::

        right + 0.5 idle - 0.15 idle^2

    The first idle sentence reads friendly, the second hardly adds to it, and from the third on they
    are tiresome.
    """
    seen = looked_at(task, text)
    return seen.right + 0.5 * seen.idle - 0.15 * seen.idle**2


class Judge(NamedTuple):
    """A reward model of a few numbers: the score is their product with what was counted."""

    weights_D: Float[Tensor, " D"]

    def __call__(self, task: Task, text: str) -> float:
        """Return the score of an answer."""
        return float(_counted(task, text, len(self.weights_D)) @ self.weights_D)


def _counted(task: Task, text: str, width: int) -> Tensor:
    """Return what a judge looks at: right, idle, and for a better one the square of idle."""
    seen = looked_at(task, text)
    return torch.tensor([seen.right, seen.idle, seen.idle**2][:width], dtype=torch.float64)


def fitted_judge(
    tasks: Sequence[Task], texts: Sequence[str], *, pairs: int, seed: int, squares: bool = False
) -> Judge:
    """Fit a judge to readers who compare answers: the one of more worth wins more often.

    Formula::

        p(a is preferred to b) = sigma(2 (worth of a - worth of b))

    Args:
        tasks: one for each text.
        texts: answers, of the policy that is to be rewarded.
        pairs: comparisons, drawn at random.
        seed: of the pairs and of the readers.
        squares: let the judge see the square of the idle sentences, too.
    """
    draws, width = generator(seed), 3 if squares else 2
    pairs_P2 = torch.randint(len(texts), (pairs, 2), generator=draws)
    seen_ND = torch.stack([_counted(a, b, width) for a, b in zip(tasks, texts, strict=True)])
    gold_N = torch.tensor([gold_reward(a, b) for a, b in zip(tasks, texts, strict=True)]).double()
    wins_P = (2 * (gold_N[pairs_P2[:, 0]] - gold_N[pairs_P2[:, 1]])).sigmoid()
    sign_P = torch.where(torch.rand(pairs, generator=draws).double() < wins_P, 1.0, -1.0)
    apart_PD = sign_P[:, None] * (seen_ND[pairs_P2[:, 0]] - seen_ND[pairs_P2[:, 1]])
    weights_D = torch.zeros(width, dtype=torch.float64)
    for _ in range(30):  # Newton's method; the sum of squares keeps the weights finite
        lost_P = (-(apart_PD @ weights_D)).sigmoid()
        slope_D = -(lost_P @ apart_PD) + 0.1 * weights_D
        bend_DD = (apart_PD * (lost_P * (1 - lost_P))[:, None]).T @ apart_PD
        weights_D -= torch.linalg.solve(bend_DD + 0.1 * torch.eye(width).double(), slope_D)
    return Judge(weights_D / 2)  # in units of worth


def worst_of(judges: Sequence[Judge]) -> Reward:
    """Return the reward that is the lowest score of several judges."""
    return lambda task, text: min(judge(task, text) for judge in judges)
