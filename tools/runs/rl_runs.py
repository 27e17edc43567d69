"""Measure what chapter 42 tells of reinforcement learning: the runs that a page has no time for.

    python -m tools.runs.rl_runs [task] [length] [checker]

lets little models learn from rewards, and writes what it finds into llmcourse_classroom/rl.json; a
call that was cut short goes on with the runs that are missing.

task     GRPO, with and without its two divisions, and PPO, on tasks whose answers are checked.
length   a judge who likes idle sentences: what becomes of the answers, four prices, and cures.
checker  a check with a hole, and the one without.
"""

import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from llmcourse.base.runtime import generator
from llmcourse_labs.tuning import Reward, RLConfig, Task, check, draw_answers, judge, make_tasks, rl
from llmcourse_labs.tuning.hack_lab import (
    ChatModel,
    fitted_judge,
    gold_reward,
    looked_at,
    mentions,
    small_talker,
    talkative_tasks,
    worst_of,
)
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "rl.json"
SEEDS = (0, 1, 2)

NEXT: dict[str, Any] = {"kinds": ["next"], "difficulties": [1]}
NEXT_SFT = 36
"""Steps of fine-tuning before a run on tasks."""
TASK = {"steps": 200, "prompts": 24, "updates": 2, "answer_tokens": 8, "learning_rate": 5e-4}
TASK_WAYS: dict[str, dict[str, Any]] = {
    "GRPO": {},
    "GRPO, spread not divided": {"divide_by_spread": False},
    "GRPO, length not divided": {"average": "constant"},
    "PPO": {"method": "ppo"},
}
TASK_EVERY = 10

TALK_SFT = 150
HACK = {"steps": 60, "prompts": 8, "group_size": 8, "answer_tokens": 32, "learning_rate": 2e-4}
CHECKER = {"learning_rate": 3e-4}
HACK_EVERY = 5
PAIRS = 300
NUM_TESTS = 100
PRICES = {
    "KL penalty": 1.0,
    "KL penalty, 0.3": 0.3,
    "KL penalty, 0.1": 0.1,
    "KL penalty, 0.03": 0.03,
}
"""Of a nat, in standard deviations of the rewards of a group."""
LENGTH_WAYS = (
    "one judge",
    *PRICES,
    "five judges, the worst",
    "a judge who saw more",
    "the square alone",
    "new answers alone",
    "the square, twice the pairs",
)
"""The last three take apart what a judge who saw more changes at once: a square, answers, pairs."""
CHECKER_WAYS = ("mentions", "mentions, KL penalty", "exact")


# --- a task that can be checked


def task_run(seed: int, way: dict[str, Any]) -> dict[str, Any]:
    """Learn from a checker of answers; measure before, along the way and after.

    All 33 easy questions are trained on: what is measured is how well a reward is reached.
    """
    begun = make_tasks(24 * NEXT_SFT, seed=100 + seed, **NEXT)
    talker = small_talker(begun, seed=seed)
    tests = make_tasks(300, seed=1_000, **NEXT)
    before = accuracy(talker, tests)
    tasks = make_tasks(2_000, seed=seed, **NEXT)
    config = RLConfig(seed=seed, **TASK | way)
    started = time.process_time()
    run = rl.start(config, *talker, tasks, lambda task, text: float(check(task, text)))
    reports = rl.fit(run)
    seconds = time.process_time() - started
    curve = [
        {
            "step": some[-1].step,
            **{
                name: round(mean(getattr(report, name) for report in some), 4)
                for name in ("reward", "kl", "length", "num_equal")
            },
        }
        for some in (reports[n : n + TASK_EVERY] for n in range(0, len(reports), TASK_EVERY))
    ]
    found = {"before": before, "after": accuracy(talker, tests), "seconds": round(seconds)}
    return found | {"curve": curve}


def accuracy(talker: ChatModel, tests: list[Task]) -> dict[str, float]:
    """Return the share of right answers, drawn at temperature 1, and of the likeliest ones."""
    drawn = draw_answers(*talker, tests, answer_tokens=8, generator=generator(0))
    right = [check(task, text) for task, text in zip(tests, drawn.texts, strict=True)]
    return {
        "drawn": round(mean(right), 4),
        "likeliest": round(judge(talker.model, talker.tokenizer, tests).right, 4),
    }


# --- rewards with a hole


def hack_run(
    seed: int, reward_of: Callable[[ChatModel], Reward], gold: Reward, **settings: Any
) -> dict[str, Any]:
    """Learn from a reward, and hold it against gold on other tasks along the way."""
    talker = talker_of(seed)
    reward = reward_of(talker)
    tests = make_tasks(NUM_TESTS, seed=1_000, kinds=["count"])
    curve, texts = [], {}

    def look(run: rl.RLRun, _report: rl.Report | None = None) -> None:
        if run.steps_done % HACK_EVERY:
            return
        rolled = rl.rolled_out(
            run.policy, run.actors.reference, talker.tokenizer, tests, reward,
            group_size=1, answer_tokens=HACK["answer_tokens"], generator=generator(0),
        )  # fmt: skip
        texts[run.steps_done] = rolled.texts[:3]
        pairs = list(zip(tests, rolled.texts, strict=True))
        curve.append(
            {
                "step": run.steps_done,
                "proxy": round(rolled.rewards_PG.mean().item(), 4),
                "gold": round(mean(gold(*pair) for pair in pairs), 4),
                "kl": round((rolled.old_BT - rolled.reference_BT).sum(1).mean().item(), 4),
                "right": round(mean(looked_at(*pair).right for pair in pairs), 4),
                "tokens": round(rolled.rows.is_answer_BT.sum(1).double().mean().item(), 2),
                "idle": round(mean(looked_at(*pair).idle for pair in pairs), 4),
            }
        )

    config = RLConfig(seed=seed, **(HACK | settings))
    run = rl.start(config, *talker, make_tasks(2_000, seed=seed, kinds=["count"]), reward)
    look(run)
    rl.fit(run, on_step=look)
    return {"curve": curve, "texts": {str(step): said for step, said in texts.items()}}


def talker_of(seed: int) -> ChatModel:
    """Return the model that the runs with a hole begin with: that of the page for seed 0."""
    return small_talker(talkative_tasks(24 * TALK_SFT, seed=seed), seed=seed)


def judged_texts(talker: ChatModel, seed: int) -> tuple[list[Task], list[str]]:
    """Return tasks with the answers that readers compare."""
    tasks = make_tasks(600, seed=500 + seed, kinds=["count"])
    drawn = draw_answers(
        *talker, tasks, answer_tokens=HACK["answer_tokens"], generator=generator(seed)
    )
    return tasks, drawn.texts


@cache
def hacked_texts(seed: int) -> tuple[list[Task], list[str]]:
    """Return tasks with the answers of a model that has learnt from one judge."""
    hacked = talker_of(seed)
    first = fitted_judge(*judged_texts(hacked, seed), pairs=PAIRS, seed=5 * seed)
    config = RLConfig(seed=seed, **HACK)
    rl.fit(rl.start(config, *hacked, make_tasks(2_000, seed=seed, kinds=["count"]), first))
    return judged_texts(hacked, seed)


def length_run(seed: int, way: str) -> dict[str, Any]:
    """Learn from a judge of answers, in one of the ways."""
    squares = way == "a judge who saw more" or way.startswith("the square")

    def reward_of(talker: ChatModel) -> Reward:
        tasks, texts = judged_texts(talker, seed)
        if way == "five judges, the worst":
            return worst_of(
                [fitted_judge(tasks, texts, pairs=PAIRS, seed=5 * seed + n) for n in range(5)]
            )
        pairs = 2 * PAIRS if way == "the square, twice the pairs" else PAIRS
        if way in ("a judge who saw more", "new answers alone"):
            more, others = hacked_texts(seed)
            tasks, texts, pairs = tasks + more, texts + others, 2 * PAIRS
        return fitted_judge(tasks, texts, pairs=pairs, seed=5 * seed, squares=squares)

    return hack_run(seed, reward_of, gold_reward, kl=PRICES.get(way, 0.0))


def checker_run(seed: int, way: str) -> dict[str, Any]:
    """Learn from a checker, with a hole or without."""

    def exact(task: Task, text: str) -> float:
        return float(check(task, text))

    settings = CHECKER | ({"kl": PRICES["KL penalty"]} if "KL" in way else {})
    return hack_run(seed, lambda _: exact if way == "exact" else mentions, exact, **settings)


def parts() -> Runs:
    """Return every run by part and name; each is made for a seed."""
    return {
        "task": {
            name: lambda seed, way=way: task_run(seed, way) for name, way in TASK_WAYS.items()
        },
        "length": {way: lambda seed, way=way: length_run(seed, way) for way in LENGTH_WAYS},
        "checker": {way: lambda seed, way=way: checker_run(seed, way) for way in CHECKER_WAYS},
    }


# --- the command

ABOUT = {
    "command": "python -m tools.runs.rl_runs",
    "settings": {
        "task": TASK | {"sft": NEXT_SFT},
        "checker": CHECKER,
        "hack": HACK | {"sft": TALK_SFT, "pairs": PAIRS, "prices": PRICES},
    },
}
"""What all numbers of the file belong to."""


def main(wanted: list[str]) -> int:
    """Make the runs that are missing, of the wanted parts or of all."""
    record(FOUND, parts(), seeds=SEEDS, wanted=wanted, about=ABOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
