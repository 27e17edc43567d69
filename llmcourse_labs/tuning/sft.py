"""Supervised fine-tuning judged: what a model answers, and whether it is right.

The run itself is made by  llmcourse tune --stage sft --start runs/a --data tasks.  Its settings are
made by `sft_config`, its data and first weights by `fine_tuning`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.model.sampling import generate
from llmcourse_labs.real.template import Template
from llmcourse_labs.tuning.chat_format import END_OF_TURN, Turn, chat_tokens, require_chat_tokens
from llmcourse_labs.tuning.fine_tuning import settings_of_start
from llmcourse_labs.tuning.tasks import Task, check, in_format
from llmcourse_labs.tuning.tune_config import TuneConfig

MOST_ANSWER_TOKENS = 24
"""That an answer to a task is given; the longest right one has about half of them."""

BATCH = 64
"""Prompts that are answered side by side."""


def sft_config(start: str | Path, **settings: Any) -> TuneConfig:
    """Return the settings of a run that fine-tunes another one on tasks.

    Args:
        start: folder of the run.
        settings: of `TuneConfig` that are not its defaults.

    Raises:
        ValueError: if the folder holds no run that can be fine-tuned, or a setting is refused.
    """
    return TuneConfig.of(**settings_of_start(start) | settings)


def prompt_ids(
    turns: Sequence[Turn], tokenizer: Tokenizer, template: Template | None = None
) -> list[int]:
    """Return a conversation as a model reads it that has to speak now.

    Args:
        turns: who said what, in order.
        tokenizer: with the chat tokens, or those of the template.
        template: of a model of others; None is the form of our own runs.
    """
    if template is not None:
        messages = [{"role": role, "content": text} for role, text in turns]
        return template.ids(messages, tokenizer, add_generation_prompt=True)
    opened = tokenizer.special_tokens["<|assistant|>"]
    return [*chat_tokens(turns, tokenizer).ids_T.tolist(), opened]


def answer_ends(tokenizer: Tokenizer, template: Template | None = None) -> frozenset[int]:
    """Return the ids each of which ends an answer.

    Raises:
        ValueError: if there is no template, and the tokenizer lacks a chat token.
    """
    if template is not None:
        return template.stop_ids(tokenizer)
    require_chat_tokens(tokenizer.special_tokens)
    return frozenset({tokenizer.special_tokens[END_OF_TURN]})


def answers(
    model: Transformer,
    tokenizer: Tokenizer,
    tasks: Sequence[Task],
    template: Template | None = None,
) -> list[str]:
    """Return the likeliest answer of a model to every task, token by token.

    An answer that does not end is cut after `MOST_ANSWER_TOKENS`, and has no end: it is returned
    with a character at its end, "…", that stands in no right answer.

    Args:
        model: in evaluation mode.
        tokenizer: with the chat tokens, or those of the template.
        tasks: what to do.
        template: of a model of others.

    Raises:
        ValueError: if the tokenizer lacks a chat token.
    """
    ends = answer_ends(tokenizer, template)
    said = []
    for first in range(0, len(tasks), BATCH):
        batch = tasks[first : first + BATCH]
        prompts = [prompt_ids(task.turns[:1], tokenizer, template) for task in batch]
        rows = generate(
            model, prompts, max_new_tokens=MOST_ANSWER_TOKENS, temperature=0, stop_id=ends
        )
        for prompt, row in zip(prompts, rows, strict=True):
            ids = row[len(prompt) :].tolist()
            ended = ids[-1] in ends
            said.append(tokenizer.decode_known(ids[: len(ids) - ended]) + ("" if ended else "…"))
    return said


class Score(NamedTuple):
    """How a model has answered tasks."""

    in_format: float
    """Share of the answers that have the form of an answer and end."""
    right: float
    """Share of the answers that are right."""
    by_kind: dict[str, float]
    """Share of the answers of each kind that are right."""


def score(tasks: Sequence[Task], said: Sequence[str]) -> Score:
    """Judge answers.

    Args:
        tasks: at least one.
        said: the answer to each.

    Raises:
        ValueError: if there is no task, or their numbers differ.
    """
    if not tasks or len(tasks) != len(said):
        raise ValueError(
            f"give an answer to each of one or more tasks, got {len(said)} to {len(tasks)}"
        )
    right: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for task, text in zip(tasks, said, strict=True):
        number[task.kind] += 1
        right[task.kind] += check(task, text)
    formed = sum(in_format(task, text) for task, text in zip(tasks, said, strict=True))
    by_kind = {kind: right[kind] / number[kind] for kind in sorted(number)}
    return Score(formed / len(tasks), right.total() / len(tasks), by_kind)


@torch.no_grad()
def judge(model: Transformer, tokenizer: Tokenizer, tasks: Sequence[Task]) -> Score:
    """Let a model answer tasks, and judge the answers."""
    return score(tasks, answers(model, tokenizer, tasks))
