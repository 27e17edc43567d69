"""What belongs to a score beside model and problems, and how a model writes answers under it.

Each field of a `Setting` moves the score of the same model on the same problems.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from llmcourse.base.arguments import require
from llmcourse_labs.evaluate.lines import SHOWN
from llmcourse_labs.evaluate.problems import STOPS, Problem, cut, fenced
from llmcourse_labs.real.opening import RealModel
from llmcourse_labs.real.serve import Engine, Request
from llmcourse_labs.tuning.likelihood import answer_log_probs, answer_rows

CUTS = {"line": ("\n",), "stops": STOPS, "none": ()}
"""Where a text ends beside the end that the model writes, by name."""
WORDINGS = ("docstring", "comment")
ROWS, PAGE = 16, 16
_DOCSTRING = re.compile(r'(def .*:\n)\s*"""(.*?)\s*"""\n', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a model is asked for programs."""

    wording: str = "docstring"
    """docstring, or comment: what the function does stands above it."""
    shots: int = 0
    """solved problems before the one that is asked, 0 to 3"""
    template: bool = False
    """Whether the model's chat template asks for it; the answer is the first block of code."""
    temperature: float = 0.0
    """0 takes the likeliest token"""
    cut: str = "stops"
    """line, stops (where the paper of HumanEval stops) or none"""
    tokens: int = 128
    """most new tokens of an answer"""
    draws: int = 1
    """answers to each problem"""

    def __post_init__(self) -> None:
        for name, allowed in (("wording", WORDINGS), ("cut", tuple(CUTS))):
            if getattr(self, name) not in allowed:
                told = ", ".join(allowed)
                raise ValueError(f"{name} must be {told}, got {getattr(self, name)!r}")
        require("shots", self.shots, least=0, most=len(SHOWN))
        require("draws", self.draws, least=1)
        if self.draws > 1 and self.temperature == 0:
            raise ValueError(
                f"{self.draws} draws at temperature 0 are the same: give a temperature"
            )
        if self.template and self.cut != "none":
            raise ValueError("with a template the block of code is taken: give cut none")

    def asked(self, problem: Problem) -> str:
        """Return what the model reads, as text."""
        shown = [self._worded(each) + each.canonical_solution for each in SHOWN[: self.shots]]
        return "\n\n\n".join([*shown, self._worded(problem)])

    def solution(self, problem: Problem) -> str:
        """Return a right answer in this form."""
        if self.template:
            return f"```python\n{problem.prompt}{problem.canonical_solution}\n```"
        return problem.canonical_solution

    def program(self, problem: Problem, said: str) -> str:
        """Return the program that an answer makes."""
        if self.template:
            return f"{problem.prompt}\n{fenced(said)}"
        return problem.prompt + cut(said, CUTS[self.cut])

    def ids(self, model: RealModel, problem: Problem) -> list[int]:
        """Return what the model reads."""
        asked = self.asked(problem)
        if not self.template:
            return [*model.begin_ids, *model.tokenizer.encode(asked)]
        told = f"Complete this function. Answer with its code.\n```python\n{asked}\n```"
        return question_ids(model, told)

    def _worded(self, problem: Problem) -> str:
        if self.wording == "docstring":
            return problem.prompt
        return _DOCSTRING.sub(lambda m: f"# {' '.join(m[2].split())}\n{m[1]}", problem.prompt)


def question_ids(model: RealModel, question: str) -> list[int]:
    """Return a question in the model's template, up to where it has to answer.

    Raises:
        ValueError: if the model has no template.
    """
    if model.template is None:
        raise ValueError("the model has no chat template: it was not taught to answer")
    asked = [{"role": "user", "content": question}]
    return model.template.ids(asked, model.tokenizer, add_generation_prompt=True)


def written(
    model: RealModel,
    prompts: Sequence[Sequence[int]],
    setting: Setting,
    *,
    seeds: Sequence[str],
) -> Iterator[tuple[int, list[str]]]:
    """Yield the place of a prompt and its answers, as soon as all of these are there.

    Args:
        model: in evaluation mode.
        prompts: ids; many rows are read side by side.
        setting: temperature, cut, tokens and draws.
        seeds: of each prompt's draws, which nothing else changes.
    """
    longest = max(map(len, prompts)) + setting.tokens
    engine = Engine(
        model.decoder,
        num_pages=ROWS * -(-longest // PAGE),
        page_size=PAGE,
        max_rows=ROWS,
        tokens_per_step=256,
    )
    owners: dict[int, tuple[int, int]] = {}
    ids: dict[int, list[int]] = {}
    answers: list[dict[int, str]] = [{} for _ in prompts]
    for place, prompt in enumerate(prompts):
        for draw in range(setting.draws):
            request = Request(
                prompt,
                setting.tokens,
                stop_ids=model.end_ids,
                temperature=setting.temperature,
                seed=random.Random(f"{seeds[place]} {draw}").getrandbits(62),
            )
            number = engine.submit(request)
            owners[number], ids[number] = (place, draw), []
    while not engine.is_idle:
        for event in engine.step():
            place, draw = owners[event.number]
            ids[event.number] += [i for i in event.ids if i not in model.end_ids]
            text = model.tokenizer.decode(ids[event.number])
            if event.finish is None and cut(text, CUTS[setting.cut]) != text:
                engine.cancel(event.number)
            elif event.finish is not None:
                answers[place][draw] = text
                if len(answers[place]) == setting.draws:
                    yield place, [answers[place][k] for k in range(setting.draws)]


@torch.no_grad()
def solution_log_prob(model: RealModel, problem: Problem, setting: Setting) -> float:
    """Return log p of the reference solution after what is asked, in nats.

    It moves where no answer is right, too.  Of the ways to cut the solution into tokens, the
    tokenizer's own counts alone.
    """
    said = model.tokenizer.encode(setting.solution(problem))
    rows = answer_rows([setting.ids(model, problem)], [said])
    return float(answer_log_probs(model.decoder, rows))


def changed(setting: Setting) -> dict[str, Setting]:
    """Return the settings that differ from one of bare lines in one thing, by its name."""
    return {
        "as it is": setting,
        "wording": replace(setting, wording="comment"),
        "one shot": replace(setting, shots=1),
        "three shots": replace(setting, shots=3),
        "template": replace(setting, template=True, cut="none", tokens=96),
        "cooler": replace(setting, temperature=0.2),
        "warmer": replace(setting, temperature=1.2),
        "no cut": replace(setting, cut="none"),
    }
