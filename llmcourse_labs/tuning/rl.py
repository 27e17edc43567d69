"""Reinforcement learning from a reward: a rollout, then the seven phases of every other step.

    0 rollout     the policy writes answers to some prompts, and a function rewards them
    1 load        rewards become an advantage of every token
    2 forward     log-probabilities of the same tokens under the weights that learn
    3 loss        the clipped objective, with a minus sign
    4 backward    5 sync    6 optimizer    7 checkpoint      as ever

    run = start(RLConfig(steps=50), model, tokenizer, tasks, reward)
    reports = fit(run)

The reference, from which the KL is measured, is a copy of the first model.  With LoRA one could
switch the thin matrices off and save the copy; here all weights learn, and a small copy is cheap.

The KL penalty is part of the reward, not a term of the loss: `k1`, so that what is followed is
KL(pi || ref).  With GRPO it is that of whole answers; with `average="constant"` the mean of its
gradient is that of the KL times (G - 1) / G, see `group_advantages`, over `answer_tokens`.  Divided
by its own length, like the reward, the penalty of a short answer has more weight.  With PPO every
token pays for itself, and decay and gamma have to be 1, too.  Shao et al. 2024 put k3 of each token
into the loss instead, whose mean gradient is that of KL(ref || pi).

Shape suffixes:  B batch (answers), T time (tokens), P prompts, G answers of one prompt, D width.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from llmcourse import checkpoint as checkpoints
from llmcourse.base import runtime
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.optim import AdamW, clip_by_global_norm
from llmcourse_labs.tuning.chat_format import require_chat_tokens
from llmcourse_labs.tuning.fitting import require_finite
from llmcourse_labs.tuning.likelihood import AnswerRows, token_log_probs
from llmcourse_labs.tuning.off_policy import answer_log_ratios
from llmcourse_labs.tuning.policy_gradient import (
    ValueHead,
    clipped_objective,
    gae,
    group_advantages,
    k1,
    mean_over_answers,
    mean_over_tokens,
    num_equal_groups,
)
from llmcourse_labs.tuning.rl_config import RLConfig
from llmcourse_labs.tuning.rollout import Reward, Rollout, refilled, rolled_out
from llmcourse_labs.tuning.tasks import Task


class LearningBatch(NamedTuple):
    """What the phases after the first need."""

    rollout: Rollout
    advantages_BT: Float[Tensor, "B T"]
    returns_BT: Float[Tensor, "B T"] | None
    """PPO: what the value head should have said."""


class Report(NamedTuple):
    """What a step has to say; means are over the answers that it learns from."""

    step: int
    reward: float
    kl: float
    """Nats per answer from the reference, by `k1`: may be negative by chance."""
    length: float
    """Tokens per answer, its end among them."""
    entropy: float
    """Nats per token: the mean of -log pi of what was drawn, which estimates the policy's."""
    num_equal: int
    """Groups whose answers all had the same reward."""
    gradient_norm: float
    """Before clipping, of the last update."""


class Actors(nn.Module):
    """The policy, what it is compared with, and with PPO the value head: all that is saved."""

    def __init__(self, policy: Transformer, reference: Transformer, method: str) -> None:
        super().__init__()
        self.policy = policy
        self.reference = reference.requires_grad_(False)
        self.value = ValueHead(policy.config.width) if method == "ppo" else None

    def log_probs_and_values(
        self, rows: AnswerRows
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"] | None]:
        """Return log pi of every token, and with PPO the value of the state it is chosen in.

        The value head reads the hidden state and does not change it.
        """
        if self.value is None:
            return token_log_probs(self.policy, rows), None
        seen: list[Tensor] = []
        hook = self.policy.norm.register_forward_hook(lambda _layer, _in, out: seen.append(out))
        with hook:
            log_probs_BT = token_log_probs(self.policy, rows)
        # The state before a token is one place earlier.
        return log_probs_BT, self.value(seen[0].detach()).roll(1, dims=1)


@dataclass(kw_only=True)
class RLRun:
    """A run: what `start` has put together."""

    config: RLConfig
    actors: Actors
    tokenizer: Tokenizer
    tasks: Sequence[Task]
    reward: Reward
    optimizer: AdamW
    generators: dict[str, torch.Generator]
    folder: Path | None
    steps_done: int = 0
    reports: list[Report] = field(default_factory=list)

    @property
    def policy(self) -> Transformer:
        """The model that learns."""
        return self.actors.policy


def start(
    config: RLConfig,
    model: Transformer,
    tokenizer: Tokenizer,
    tasks: Sequence[Task],
    reward: Reward,
    *,
    reference: Transformer | None = None,
    folder: str | Path | None = None,
) -> RLRun:
    """Put a run together.

    Args:
        config: the settings.
        model: the policy; it is changed by the run.
        tokenizer: with the chat tokens.
        tasks: to draw prompts from, at least one.
        reward: of a task and a text; finite.
        reference: from which the KL is measured; a copy of it is taken, and None is the model as it
            is now.
        folder: for checkpoints; None saves none.

    Raises:
        ValueError: if there is no task, the tokenizer lacks a chat token, or the reference is the
            model or has another shape.
    """
    require_chat_tokens(tokenizer.special_tokens)
    if not tasks:
        raise ValueError("there is no task to answer: give at least one")
    if reference is model:
        raise ValueError(
            "model and reference are one, and would move together: give a copy, or None to have "
            "one taken"
        )
    # A copy in any case: the KL is measured from weights that no step moves.
    reference = copy.deepcopy(model if reference is None else reference)
    if reference.config != model.config:
        raise ValueError(
            f"the reference has the shape {reference.config}, the model {model.config}: take a "
            "copy of the model that the run begins with"
        )
    actors = Actors(model, reference, config.method)
    learnt = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": learnt, "lr": config.learning_rate}]
    # PPO's value head begins without knowing anything, and has a rate of its own.
    if actors.value is not None:
        groups.append({"params": list(actors.value.parameters()), "lr": config.value_rate})
    # No decay: it would pull the policy away from the reference, whatever the reward says.
    optimizer = AdamW(groups, config.learning_rate, weight_decay=0.0)
    # Two streams: how many tokens answers take does not change which prompts come next.
    generators = {
        "prompts": runtime.generator(config.seed),
        "tokens": runtime.generator(config.seed + 1),
    }
    return RLRun(
        config=config,
        actors=actors,
        tokenizer=tokenizer,
        tasks=tasks,
        reward=reward,
        optimizer=optimizer,
        generators=generators,
        folder=None if folder is None else Path(folder),
    )


def fit(run: RLRun, *, on_step: Callable[[RLRun, Report], object] | None = None) -> list[Report]:
    """Take all steps that are left; return the reports of the run, since `start` or `restore`.

    Args:
        run: from `start` or `restore`.
        on_step: called after every step; what it returns, if true, ends the run.
    """
    while run.steps_done < run.config.steps:
        report = step(run)
        if on_step is not None and on_step(run, report):
            break
    return run.reports


def step(run: RLRun) -> Report:
    """Do one step: a rollout, and the seven phases for each update."""
    rolled = rollout(run)
    batch = load(run, rolled)
    for _ in range(run.config.updates):
        predicted = forward(run, batch)
        value = loss(run, batch, *predicted)
        backward(run, value)
        sync(run)
        norm = optimizer(run)
    run.steps_done += 1
    report = Report(
        step=run.steps_done,
        reward=rolled.rewards_PG.mean().item(),
        kl=k1(rolled.old_BT, rolled.reference_BT).sum(1).mean().item(),
        length=rolled.rows.is_answer_BT.sum(1).double().mean().item(),
        entropy=-mean_over_tokens(rolled.old_BT, rolled.rows.is_answer_BT).item(),
        num_equal=num_equal_groups(rolled.rewards_PG),
        gradient_norm=norm,
    )
    run.reports.append(report)
    checkpoint(run)
    return report


def rollout(run: RLRun) -> Rollout:
    """Phase 0: let the policy answer some prompts, several times each, and reward the answers.

    Up to `refill` times more it answers others, for the places of groups that teach nothing.

    Raises:
        ValueError: if an answer may not fit into the context, or a reward is not finite.
    """
    rolled = _rolled(run)
    for _ in range(run.config.refill):
        if not num_equal_groups(rolled.rewards_PG):
            break
        rolled = refilled(rolled, _rolled(run))
    return rolled


def _rolled(run: RLRun) -> Rollout:
    """Draw prompts, and answers to them."""
    config = run.config
    places = torch.randint(len(run.tasks), (config.prompts,), generator=run.generators["prompts"])
    return rolled_out(
        run.policy,
        run.actors.reference,
        run.tokenizer,
        [run.tasks[n] for n in places.tolist()],
        run.reward,
        group_size=config.group_size,
        answer_tokens=config.answer_tokens,
        generator=run.generators["tokens"],
    )


@torch.no_grad()
def load(run: RLRun, rolled: Rollout) -> LearningBatch:
    """Phase 1: find the advantage of every token."""
    config, rows = run.config, rolled.rows
    kl_BT = k1(rolled.old_BT, rolled.reference_BT)
    if config.method == "grpo":
        compared = group_advantages(
            rolled.rewards_PG, divide=config.divide_by_spread, correction=config.spread_correction
        )
        # The penalty is not divided by the spread: in a group of equal rewards it would be alone.
        kl_PG = kl_BT.sum(1).view_as(rolled.rewards_PG)
        values_PG = compared.values_PG - config.kl * group_advantages(kl_PG, divide=False).values_PG
        advantages_BT = values_PG.view(-1, 1) * rows.is_answer_BT
        return LearningBatch(rolled, advantages_BT, None)
    rewards_BT = -config.kl * kl_BT
    last_B = rows.is_answer_BT.shape[1] - 1 - rows.is_answer_BT.flip(1).int().argmax(1)
    rewards_BT[torch.arange(len(last_B)), last_B] += rolled.rewards_PG.flatten()
    _, values_BT = run.actors.log_probs_and_values(rows)
    assert values_BT is not None
    advantages_BT = gae(
        rewards_BT, values_BT, rows.is_answer_BT, gamma=config.gamma, decay=config.decay
    )
    return LearningBatch(rolled, advantages_BT, advantages_BT + values_BT)


def forward(
    run: RLRun, batch: LearningBatch
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"] | None]:
    """Phase 2: find the log-probability of every token that was drawn, and with PPO its value."""
    return run.actors.log_probs_and_values(batch.rollout.rows)


def loss(
    run: RLRun,
    batch: LearningBatch,
    log_probs_BT: Float[Tensor, "B T"],
    values_BT: Float[Tensor, "B T"] | None,
) -> Float[Tensor, ""]:
    """Phase 3: the clipped objective with a minus sign, and with PPO the error of the values."""
    config, rolled = run.config, batch.rollout
    is_answer_BT, old_BT = rolled.rows.is_answer_BT, rolled.old_BT
    if config.ratio == "answer":
        log_probs_BT = answer_log_ratios(log_probs_BT, old_BT, is_answer_BT)
        old_BT = torch.zeros_like(old_BT)
    objective_BT = clipped_objective(
        log_probs_BT, old_BT, batch.advantages_BT, clip=config.clip, clip_high=config.clip_high
    )
    if config.average == "token":
        value = -mean_over_tokens(objective_BT, is_answer_BT)
    else:
        tokens = None if config.average == "answer" else config.answer_tokens
        value = -mean_over_answers(objective_BT, is_answer_BT, tokens=tokens)
    if values_BT is None:
        return value
    assert batch.returns_BT is not None
    errors_BT = (values_BT - batch.returns_BT).square() / 2
    return value + mean_over_answers(errors_BT, is_answer_BT)


def backward(run: RLRun, value: Float[Tensor, ""]) -> None:
    """Phase 4: find the gradient of the loss for every weight."""
    value.backward()


def sync(run: RLRun) -> None:
    """Phase 5: agree with other ranks; here there is one."""


def optimizer(run: RLRun) -> float:
    """Phase 6: clip the gradient, change the weights; return the norm before.

    Raises:
        TrainingDivergedError: if the norm is not finite; no weight is changed then.
    """
    learnt = [p for group in run.optimizer.param_groups for p in group["params"]]
    norm = require_finite(clip_by_global_norm(learnt, run.config.max_norm), run.steps_done + 1)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    return norm


def checkpoint(run: RLRun) -> None:
    """Phase 7: save everything that the next step depends on, if it is time to."""
    every, done = run.config.checkpoint_every, run.steps_done
    if run.folder is not None and (done == run.config.steps or (every and done % every == 0)):
        save(run, run.folder)


def save(run: RLRun, folder: str | Path) -> Path:
    """Save a run between two steps; return the file."""
    return checkpoints.save(
        folder,
        step=run.steps_done,
        model=run.actors,
        optimizer=run.optimizer,
        generators=run.generators,
        config=_identity(run),
    )


def restore(run: RLRun, path: str | Path) -> None:
    """Put a run that `start` has put together where a saved one was; it goes on bit for bit.

    Reports are not saved: `run.reports` has those of the steps from here on.

    Args:
        run: with the same settings, tasks and shapes; the reward has to be the same, too, and is
            not checked.
        path: of a checkpoint, or of a folder of them, for its newest.

    Raises:
        ValueError: if the checkpoint is damaged, or of another run.
    """
    saved = checkpoints.load(path)
    checkpoints.restore(
        saved,
        model=run.actors,
        optimizer=run.optimizer,
        generators=run.generators,
        config=_identity(run),
    )
    run.steps_done = saved.step


def _identity(run: RLRun) -> dict:
    """Return what makes a run the one it is, but for the reward, a function that has no digest.

    The number of its steps may change.
    """
    digest = hashlib.sha256(repr(list(run.tasks)).encode()).hexdigest()
    config = asdict(run.config)
    del config["steps"], config["checkpoint_every"]
    return config | {"tasks": digest}
