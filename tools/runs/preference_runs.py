"""Measure what chapter 41 tells of preferences: the runs that a page has no time for.

    python -m tools.runs.preference_runs [rl] [dpo] [noise] [pairs] [controls]

trains the little policy of the page and what learns from it, and writes what it finds into
llmcourse_classroom/preferences.json; a call that was cut short goes on with the runs that are
missing.

rl        what GRPO and PPO on a checker make of the policy.
dpo       what becomes of a policy, by beta: styles, KL, likelihoods on the way.
noise     how much of the planted utility a reward model finds, by the temperature of the judge,
          between answers that differ in taste alone.
pairs     the same, by the number of pairs, which differ in truth, too.
controls  "none": the policy as it is; "answers": fine-tuned on as many answers more as
          reinforcement learning draws; "pairs": a reward model with few pairs and many steps.

Everything is trained on tasks of one part and judged on the distinct prompts of the other, so that
no prompt of a test, in whatever wording, was seen in training.
"""

import copy
import sys
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llmcourse.base import runtime
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse.model import ModelConfig, Transformer
from llmcourse_labs.tuning import (
    CHAT_TOKENS,
    RIGHT_STYLES,
    STYLES,
    AnswerRows,
    FitSettings,
    PairRows,
    PreferenceLoss,
    RewardModel,
    RLConfig,
    Task,
    answer_ids,
    answer_log_probs,
    answer_rows,
    answers,
    check,
    draw_answers,
    fit_answers,
    fit_preferences,
    fit_reward_model,
    make_tasks,
    mixed_answers,
    pair_rows,
    preference_pairs,
    prompt_ids,
    rl,
    styled,
    utility,
    wrong_answers,
)
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "preferences.json"
SEEDS = (0, 1, 2)
TASKS = {"kinds": ["next"], "difficulties": (1, 2), "part": "training"}
TESTS = TASKS | {"part": "test"}
NUM_TASKS, ENOUGH, NUM_KNOWN = 4_000, 3_000, 100
"""Tasks to learn from; so many that every test is among them; tasks learnt that are asked, too."""

START = {"steps": 300, "batch_size": 32, "learning_rate": 5e-3}
PAIRS = (100, 1_600, 25_600)
FEW, MOST_STEPS = 100, 800
NOISE = (0.25, 0.5, 1.0, 2.0, 4.0)
BETAS = (0.03, 0.1, 0.3, 1.0)
REWARD = {"batch_size": 32, "learning_rate": 3e-3}
DPO = {"steps": 200, "batch_size": 16, "learning_rate": 5e-4}
DPO_PAIRS, NOISE_PAIRS = 3_200, 1_600
RL = {"steps": 500, "prompts": 16, "group_size": 8, "learning_rate": 5e-4}
AGAIN = START | {"steps": 2_000}
"""As many answers as reinforcement learning draws."""
EVERY = 10
"""Steps whose mean is one point of a curve."""


class Start(NamedTuple):
    """The policy that all runs begin with, and the tests."""

    model: Transformer
    tokenizer: Tokenizer
    tests: list[Task]
    eight: AnswerRows
    """The answers of every style to every test."""
    utilities_NS: Tensor
    """What each is worth."""
    known: list[Task]
    """Some tasks that were learnt from."""
    known_eight: AnswerRows


def start() -> Start:
    """Train the policy: that of the page."""
    tasks = make_tasks(NUM_TASKS, seed=0, **TASKS)
    said = mixed_answers(tasks, seed=0)
    text = " ".join(f"{task.prompt} {answer}" for task, answer in zip(tasks, said, strict=True))
    tokenizer = train_bpe(text, 320, list(CHAT_TOKENS))
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        width=48,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_size=12,
        hidden=96,
        context_length=64,
    )
    model = Transformer(config, generator=runtime.generator(0))
    prompts = [prompt_ids(task.turns[:1], tokenizer) for task in tasks]
    answered = [answer_ids(text, tokenizer) for text in said]
    fit_answers(model, prompts, answered, FitSettings(**START))
    return with_tests(model, tokenizer)


def with_tests(model: Transformer, tokenizer: Tokenizer) -> Start:
    """Return the policy with all tests, whose words no training task has in this order."""
    tests = list(dict.fromkeys(make_tasks(ENOUGH, seed=999, **TESTS)))
    known = list(dict.fromkeys(make_tasks(NUM_TASKS, seed=0, **TASKS)))[:NUM_KNOWN]
    rows, worth = eight_answers(tests, tokenizer)
    return Start(model, tokenizer, tests, rows, worth, known, eight_answers(known, tokenizer)[0])


def eight_answers(tasks: list[Task], tokenizer: Tokenizer) -> tuple[AnswerRows, Tensor]:
    """Return the answers of every style to every task, and what each is worth."""
    wrong = wrong_answers(tasks, seed=999)
    said = [[styled(t, w, style) for style in STYLES] for t, w in zip(tasks, wrong, strict=True)]
    prompts = [prompt_ids(t.turns[:1], tokenizer) for t in tasks for _ in STYLES]
    rows = answer_rows(prompts, [answer_ids(text, tokenizer) for eight in said for text in eight])
    worth = [[utility(t, text) for text in eight] for t, eight in zip(tasks, said, strict=True)]
    return rows, torch.tensor(worth)


def steps_for(number: int) -> int:
    """Return the updates of a reward model: two passes over its pairs, within limits."""
    return min(MOST_STEPS, max(FEW, 2 * number // REWARD["batch_size"]))


@torch.no_grad()
def judged(model: RewardModel, begun: Start, styles: int = 8) -> dict[str, float]:
    """Compare rewards with utilities on all answers to the tests; "known": as "right", of known."""
    rewards_NS = model(begun.eight).view(-1, 8)
    found = {}
    for name, axis in (("right", 1), ("kind", 2), ("wordy", 3)):
        cube = rewards_NS.view(-1, 2, 2, 2)
        cube = cube if styles == 8 else cube[:, :1]
        if name != "right" or styles == 8:
            effect = (cube.select(axis, 0) - cube.select(axis, 1)).mean()
            found[name] = round(effect.item(), 4)
    known = model(begun.known_eight).view(-1, 2, 4)
    found["known"] = round((known[:, 0] - known[:, 1]).mean().item(), 4)
    r, u = rewards_NS[:, :styles], begun.utilities_NS[:, :styles]
    better = (u[:, :, None] - u[:, None, :]) > 1e-3
    agreed = (r[:, :, None] > r[:, None, :])[better]
    return found | {"agrees": round(agreed.double().mean().item(), 4)}


def reward_run(begun: Start, seed: int, number: int, steps: int | None = None) -> dict[str, Any]:
    """Fit a reward model to pairs of all styles, in `steps_for` them or a number of steps."""
    pairs = preference_pairs(number, seed=seed, **TASKS)
    model = RewardModel(begun.model)
    settings = FitSettings(steps=steps or steps_for(number), seed=seed, **REWARD)
    rows = pair_rows(pairs, begun.tokenizer)
    fit_reward_model(model, rows, settings)
    erred = sum(pair.margin < 0 for pair in pairs) / number
    return judged(model, begun) | {"repeats": repeated(model, rows), "erred": round(erred, 4)}


@torch.no_grad()
def repeated(model: RewardModel, pairs: PairRows) -> float:
    """Return the share of its first pairs that a reward model ranks as the judge did."""
    prompts, *sides = (each[:NUM_KNOWN] for each in pairs)
    chosen, rejected = (model(answer_rows(prompts, side)) for side in sides)
    return round((chosen > rejected).double().mean().item(), 4)


def noise_run(begun: Start, seed: int, temperature: float) -> dict[str, Any]:
    """Fit a reward model to pairs that differ in taste, of a judge who errs more or less."""
    about = {"temperature": temperature, "styles": RIGHT_STYLES}
    pairs = preference_pairs(NOISE_PAIRS, seed=seed, **about, **TASKS)
    model = RewardModel(begun.model)
    settings = FitSettings(steps=steps_for(NOISE_PAIRS), seed=seed, **REWARD)
    fit_reward_model(model, pair_rows(pairs, begun.tokenizer), settings)
    erred = sum(pair.margin < 0 for pair in pairs) / NOISE_PAIRS
    return judged(model, begun, styles=4) | {"erred": round(erred, 4)}


@torch.no_grad()
def log_probs(model: Transformer, begun: Start) -> Tensor:
    """Return log p of the eight answers to each test."""
    return answer_log_probs(model, begun.eight).view(-1, 8)


def compared(policy: Tensor, begun: Start, beta: float) -> dict[str, Any]:
    """Compare a policy with the optimum in closed form, among the four right answers.

    Args:
        policy: log p of the eight answers to each test.
        begun: has the reference.
        beta: of the optimum.
    """
    reference, u = log_probs(begun.model, begun)[:, :4], begun.utilities_NS[:, :4]
    told = {
        "reference": reference.softmax(1),
        "policy": policy[:, :4].softmax(1),
        "optimum": (reference + u / beta).softmax(1),
    }
    found: dict[str, Any] = {}
    for name, p in told.items():
        kl = torch.special.xlogy(p, p / told["reference"]).sum(1).mean()
        found[name] = {
            "styles": [round(x, 4) for x in p.mean(0).tolist()],
            "kl": round(kl.item(), 4),
            "utility": round((p * u).sum(1).mean().item(), 4),
        }
    return found


@torch.no_grad()
def examined(model: Transformer, begun: Start) -> dict[str, float]:
    """Ask all tests, and some tasks that were learnt from.

    right: share of the likeliest answers to the tests that are right to the letter.
    word: share of them that hold the right word.
    known: as `word`, of tasks that were learnt from.
    named: probability of the four right answers.
    utility: mean of answers that are drawn, cut after 16 tokens.
    """
    model = copy.deepcopy(model).eval()
    said = answers(model, begun.tokenizer, begun.tests)
    again = answers(model, begun.tokenizer, begun.known)
    each = [task for task in begun.tests for _ in range(8)]
    drawn = draw_answers(
        model, begun.tokenizer, each, answer_tokens=16, generator=runtime.generator(0)
    )
    found = {
        "right": mean(check(t, text) for t, text in zip(begun.tests, said, strict=True)),
        "word": mean(t.answer in text for t, text in zip(begun.tests, said, strict=True)),
        "known": mean(t.answer in text for t, text in zip(begun.known, again, strict=True)),
        "named": log_probs(model, begun)[:, :4].exp().sum(1).mean().item(),
        "utility": mean(utility(t, text) for t, text in zip(each, drawn.texts, strict=True)),
    }
    return {name: round(float(value), 4) for name, value in found.items()}


def dpo_run(begun: Start, seed: int, beta: float) -> dict[str, Any]:
    """Fit a policy to pairs that differ in taste."""
    pairs = preference_pairs(DPO_PAIRS, seed=100 + seed, styles=RIGHT_STYLES, **TASKS)
    policy, seen = copy.deepcopy(begun.model), []

    def on_step(_step: int, found: PreferenceLoss) -> None:
        moved = (found.chosen_B.mean() / beta, found.rejected_B.mean() / beta)
        right = (found.margins > 0).double().mean()
        seen.append([found.losses_B.mean().item(), *(x.item() for x in moved), right.item()])

    fit_preferences(
        policy,
        begun.model,
        pair_rows(pairs, begun.tokenizer),
        FitSettings(seed=seed, **DPO),
        beta=beta,
        on_step=on_step,
    )
    names = ("loss", "chosen", "rejected", "ahead")
    curve = dict(zip(names, zip(*averaged(seen), strict=True), strict=True))
    found = {"first": seen[0][0], "curve": curve, "examined": examined(policy, begun)}
    return found | compared(log_probs(policy, begun), begun, beta)


def averaged(rows: list[list[float]]) -> list[list[float]]:
    """Return the means of every few steps."""
    parts = [rows[n : n + EVERY] for n in range(0, len(rows), EVERY)]
    return [[round(sum(x) / len(part), 4) for x in zip(*part, strict=True)] for part in parts]


def rl_run(begun: Start, seed: int, method: str) -> dict[str, Any]:
    """Learn from a checker, which pays for the right answer to the letter and for nothing else."""
    policy = copy.deepcopy(begun.model)
    run = rl.start(
        RLConfig(method=method, seed=seed, **RL),
        policy,
        begun.tokenizer,
        make_tasks(NUM_TASKS, seed=7, **TASKS),
        lambda task, text: float(check(task, text)),
    )
    reports = rl.fit(run)
    rows = averaged([[r.reward, r.kl, r.length, float(r.num_equal)] for r in reports])
    names = ("reward", "kl", "length", "equal")
    curve = dict(zip(names, zip(*rows, strict=True), strict=True))
    found = {"curve": curve, "first": round(reports[0].reward, 4)}
    return found | {"examined": examined(policy, begun)}


def more_answers_run(begun: Start, seed: int) -> dict[str, Any]:
    """Fine-tune the policy on, on the answers that it has learnt from."""
    policy = copy.deepcopy(begun.model)
    tasks = make_tasks(NUM_TASKS, seed=0, **TASKS)
    prompts = [prompt_ids(task.turns[:1], begun.tokenizer) for task in tasks]
    answered = [answer_ids(text, begun.tokenizer) for text in mixed_answers(tasks, seed=0)]
    fit_answers(policy, prompts, answered, FitSettings(seed=seed, **AGAIN))
    return examined(policy, begun)


def parts(begun: Start) -> Runs:
    """Return every run by part and name, all of one policy."""
    return {
        "rl": {m: lambda seed, m=m: rl_run(begun, seed, m) for m in ("grpo", "ppo")},
        "dpo": {str(x): lambda seed, x=x: dpo_run(begun, seed, x) for x in BETAS},
        "noise": {str(t): lambda seed, t=t: noise_run(begun, seed, t) for t in NOISE},
        "pairs": {str(n): lambda seed, n=n: reward_run(begun, seed, n) for n in PAIRS},
        "controls": {
            "none": lambda _seed: examined(begun.model, begun),
            "answers": lambda seed: more_answers_run(begun, seed),
            "pairs": lambda seed: reward_run(begun, seed, NOISE_PAIRS, MOST_STEPS),
        },
    }


# --- the command

ABOUT = {
    "command": "python -m tools.runs.preference_runs",
    "settings": {"start": START, "reward": REWARD, "dpo": DPO, "rl": RL, "again": AGAIN},
}
"""What all numbers of the file belong to."""


def main(wanted: list[str]) -> int:
    """Make the runs that are missing, of the wanted parts or of all."""
    torch.set_num_threads(1)
    record(FOUND, parts(start()), seeds=SEEDS, wanted=wanted, about=ABOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
