"""What each chapter costs: lines of package, JavaScript and tests, and CPU seconds.

    python -m tools.check.budget

A module belongs to the first chapter that needs it: those built before the budgets came first, then
the others by number.  A chapter needs what its notebook, its solutions and its hidden tests lead to
(tools/build/closure.py).  A script belongs to the module that names it, a test file to the chapter
that has more than half of the modules that it imports.  Seconds are those of kernel and ranks, of
the chapter and of both exercise notebooks (the cache of executions), and of its test files as they
last passed under `make test`.
"""

import ast
import sys
from collections.abc import Container, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tools.build import build_book, closure, unchanged
from tools.build.uses import PACKAGES

BUILT_BEFORE = (
    *("00_how_to_use", "01_whole_run", "02_step_by_hand", "03_downhill"),
    *("05_tokens", "09_data_loading", "10_blueprint", "11_attention", "12_feed_forward"),
    *("13_norm_rope_silu", "14_mixture_of_experts", "15_splitting_the_model", "16_cross_entropy"),
    *("17_targets_and_masks", "18_backpropagation", "19_llama_backward", "20_activation_memory"),
    *("21_pipelines", "22_collectives", "23_data_parallel", "24_zero", "25_optimizers"),
    *("26_learning_rate", "27_mixed_precision", "28_stability", "29_weights", "30_checkpoints"),
    *("31_failures", "38_orchestration"),
)
"""They may cost more than the budget; what comes from now on may not."""


class Cost(NamedTuple):
    """What one chapter costs, or may cost."""

    package: int
    script: int
    tests: int
    seconds: float


LIMIT = Cost(package=500, script=250, tests=500, seconds=35)
OF_ITS_OWN = {
    # The whole of curation: ten steps of a funnel, a crawl, a command and blocks for a cluster; and
    # the tests of what is recorded, of this chapter and of all that came after it.
    "06_crawl_to_corpus": Cost(package=2_500, script=250, tests=2_700, seconds=160),
    # The whole of scale.laws, which 34 teaches: 07 needs its law of mixtures, and comes first.
    "07_mixture": Cost(package=1_600, script=250, tests=900, seconds=40),
    # Every operation of a step and of decoding, with what it moves, fused and line by line.
    "37_hardware": Cost(package=700, script=250, tests=500, seconds=35),
    # The simulator, 22 rows of four papers that it is held against, and the rule that chooses a
    # layout, of which a page of its own tells.
    "39_why_16384": Cost(package=1_600, script=330, tests=600, seconds=35),
    # Fine-tuning as a stage of every run, tasks with a checker, LoRA, export and a conversation.
    "40_sft": Cost(package=1_300, script=250, tests=1_300, seconds=60),
    # Pairs, a reward model and DPO, and the whole of reinforcement learning, which 42 needs, too.
    "41_preferences": Cost(package=1_600, script=250, tests=1_400, seconds=60),
    # Proxy and gold in a world that is summed exactly, and a lab of small models.
    "42_reward_hacking": Cost(package=600, script=250, tests=500, seconds=60),
    # A room of its own: intervals, battles, items, what the loss does not show, and a command.
    "43_benchmarks": Cost(package=1_700, script=250, tests=1_400, seconds=60),
    # Four detectors with a text that leaks, and one run of 64 copies with all of them on the page.
    "44_contamination": Cost(package=650, script=250, tests=500, seconds=60),
    # A room of nine stages, the report, and the commands of chapters 06 and 09, which it calls.
    "45_capstone": Cost(package=4_200, script=250, tests=700, seconds=60),
    # The ground of the third lap: files, names, tokenizers and templates of other people's models.
    "46_real_model": Cost(package=2_000, script=250, tests=1_500, seconds=40),
    # Grids of few bits, GPTQ, a packed product, a cache in few bits, and a command of its own.
    "47_few_bits": Cost(package=1_600, script=250, tests=900, seconds=40),
    # An engine for many users with a draft, the arithmetic of its board, and a server.
    "48_serving": Cost(package=1_200, script=250, tests=1_000, seconds=40),
    # The plane, refusals and DPO of a model of others: nearly all of it comes with commands, in 00.
    "49_tuning": Cost(package=600, script=250, tests=500, seconds=40),
    # Sums with a checker, trees of answers, votes: what GRPO's command needs of it counts in 00.
    "50_reasoning": Cost(package=600, script=250, tests=500, seconds=60),
}
"""What chapters may cost that carry a whole part of the package."""


def number_of(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text(encoding="utf8").splitlines())


def in_order(topics: Iterable[str]) -> list[str]:
    """Return the chapters in the order in which modules are given to them."""
    return sorted(topics, key=lambda topic: (topic not in BUILT_BEFORE, topic))


def sources(topic: str) -> list[Path]:
    """Return the files of a chapter that import from the package."""
    exercises = closure.ROOT / "exercises"
    named = [closure.ROOT / "chapters" / f"{topic}.ipynb", exercises / "hidden" / f"{topic}.py"]
    return [*(path for path in named if path.exists()), *exercises.glob(f"solutions/{topic}.ipynb")]


def modules_of(topics: Iterable[str]) -> dict[str, set[Path]]:
    """Return the modules that belong to each chapter."""
    found, taken = {}, set()
    for topic in in_order(topics):
        needed = closure.closure(sources(topic), paths=False)
        modules = {path for path in needed if path.suffix == ".py" and closure.in_package(path)}
        found[topic] = modules - taken
        taken |= modules
    return found


@cache
def texts_of(path: Path) -> frozenset[str]:
    """Return the texts in a module."""
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return frozenset(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def scripts_of(modules: set[Path]) -> list[Path]:
    """Return the scripts that some modules name; the engine of the live run belongs to no chapter.

    Its files are called as everybody calls such things: run, loss, model.
    """
    texts = {text for module in modules for text in texts_of(module)}
    scripts = sorted(p for name in PACKAGES for p in (closure.ROOT / name).rglob("*.js"))
    named = [path for path in scripts if {path.stem, path.name} & texts]
    return [path for path in named if path.parent.name != "live"]


def tests_of(modules: set[Path]) -> list[Path]:
    """Return the test files that are about some modules: more than half of what they import."""
    found = []
    for path in sorted((closure.ROOT / "tests").rglob("*.py")):
        imported = {
            each
            for each in closure.direct(path, paths=False)
            if closure.in_package(each) and each.suffix == ".py" and each.stem[:2] != "__"
        }
        if len(imported & modules) * 2 > len(imported):
            found.append(path)
    return found


def cpu_seconds(notebook: Path) -> float:
    """Return the CPU seconds of a notebook's kept execution; NaN where there is none."""
    record = build_book.execution(notebook)
    return float("nan") if record is None else record.data["cpu_seconds"]


def costs(topics: Iterable[str]) -> dict[str, Cost]:
    """Return what chapters cost."""
    passed = unchanged.read_notes()["files"]
    found = {}
    for topic, modules in modules_of(topics).items():
        tests = tests_of(modules)
        names = [path.relative_to(closure.ROOT).as_posix() for path in tests]
        notebooks = [closure.ROOT / "chapters" / f"{topic}.ipynb"]
        notebooks += (closure.ROOT / "exercises").glob(f"**/{topic}.ipynb")
        found[topic] = Cost(
            package=sum(map(number_of, modules)),
            script=sum(map(number_of, scripts_of(modules))),
            tests=sum(map(number_of, tests)),
            seconds=sum(map(cpu_seconds, notebooks))
            + sum(passed.get(name, {}).get("seconds", 0.0) for name in names),
        )
    return found


def too_much(found: dict[str, Cost], without: Container[str] = ()) -> list[str]:
    """Return what is over the budget, a line each, of chapters that came with it.

    A test asks without seconds: one notebook takes twice its CPU seconds on a busy machine.
    """
    said = []
    for topic in sorted(set(found) - set(BUILT_BEFORE)):
        limit = OF_ITS_OWN.get(topic, LIMIT)
        for what in Cost._fields:
            cost, most = getattr(found[topic], what), getattr(limit, what)
            if what not in without and not cost <= most:  # NaN where there is no execution
                said.append(f"{topic}: {what} {cost:,.0f}, at most {most:,.0f}")
    return said


def table(found: dict[str, Cost]) -> str:
    """Return the costs in lines for a person."""
    rows = [f"{'chapter':24}{'package':>9}{'script':>9}{'tests':>9}{'seconds':>9}"]
    for topic, cost in sorted(found.items()):
        old = "" if topic not in BUILT_BEFORE else "  before the budget"
        lines = f"{cost.package:9,}{cost.script:9,}{cost.tests:9,}"
        rows.append(f"{topic:24}{lines}{cost.seconds:9.0f}{old}")
    return "\n".join(rows)


def main() -> int:
    """Print what chapters cost; return an exit code."""
    found = costs(path.stem for path in build_book.chapters())
    problems = too_much(found)
    print(table(found), *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
