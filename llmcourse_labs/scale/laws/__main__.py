"""The commands:  python -m llmcourse_labs.scale.laws run, and then  fit.

run   makes the table of runs, or goes on with one that was begun: about a quarter of an hour of
      one processor.
fit   fits the laws to a table, and predicts the larger runs that no fit has seen.
"""

import argparse
import sys
from collections.abc import Sequence

from llmcourse.base import runtime
from llmcourse.base.command_line import ended
from llmcourse_labs.scale.laws import grid as runs
from llmcourse_labs.scale.laws.isoflop import valley
from llmcourse_labs.scale.laws.kaplan import KaplanLaw
from llmcourse_labs.scale.laws.parametric import ParametricLaw, interval, intervals

PROGRAM = "python -m llmcourse_labs.scale.laws"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    options = _parser().parse_args(arguments)
    return ended(PROGRAM, lambda: _show(options))


def _show(options: argparse.Namespace) -> None:
    """Measure the grid, or fit the laws to one that was measured."""
    if options.command == "run":
        runtime.set_up()
        grid = runs.run_all(options.out)
        print(f"{len(grid.runs)} runs in {options.out}")
        return
    grid = runs.read_grid(options.table) if options.table else runs.recorded_grid()
    runs.check_settings(grid, options.table or "the recorded table")
    print(report(grid))


def report(grid: runs.Grid) -> str:
    """Return what the laws say about a table, in lines."""
    table = runs.columns(grid.fitted)
    # Fitted to the grid alone: the held-out runs stay for the test at the end.
    law, old = ParametricLaw.fit(*table), KaplanLaw.fit(*table)
    resampled = ParametricLaw.bootstrap(*table)
    found = intervals(resampled)
    lines = [f"{len(grid.fitted)} runs, {grid.date}, {grid.machine}"]
    lines += [f"L = {law.E:.3f} + {law.A:.4g} / N^{law.alpha:.3f} + {law.B:.4g} / D^{law.beta:.3f}"]
    # How far each number scatters over the resampled runs.
    numbers = {"E": law.E, "alpha": law.alpha, "beta": law.beta, "a": law.size_exponent}
    for name, value in numbers.items():
        low, high = found[name]
        lines.append(f"  {name:5} {value:.3f}, from {low:.3f} to {high:.3f} (90 % of 200 fits)")
    lines.append(f"  the true entropy of the stories: {grid.entropy:.4f}")
    # Two ways to the best size: the law of all runs, and a parabola through one level's runs.
    for flop in sorted({run.flop for run in grid.fitted}):
        level = [run for run in grid.fitted if run.flop == flop]
        sizes, _, losses = runs.columns(level)
        best = law.optimum(flop)
        line = f"{flop:.1e} FLOPs: law {best.num_parameters:8,.0f} with {best.loss:.3f}"
        try:
            bottom = valley(sizes, losses)
            line += f", valley {bottom.num_parameters:8,.0f} with {bottom.loss:.3f}"
        except ValueError as error:
            line += f", no valley: {error}"
        lines.append(line)
    # The test: five times as much compute as any run of the fit has had.
    for run in grid.held_out:
        place = (run.num_multiplying, run.num_tokens)
        low, high = interval([each.loss(*place) for each in resampled])
        lines.append(
            f"held out, {run.counted_flop:.2g} FLOPs, seed {run.seed}: loss {run.loss:.4f}; law "
            f"{law.loss(*place):.4f}, from {low:.4f} to {high:.4f}; Kaplan {old.loss(*place):.4f}"
        )
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of both commands."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Scaling laws on small runs.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="make a table of runs, or go on with one")
    run.add_argument("--out", default="scaling.json", help="the table (%(default)s)")
    fit = commands.add_parser("fit", help="fit the laws to a table")
    fit.add_argument("--table", help="the table; the recorded one if not given")
    return parser


if __name__ == "__main__":
    sys.exit(main())
