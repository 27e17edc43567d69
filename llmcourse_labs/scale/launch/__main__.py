"""The command line:  llmcourse launch slurm --config job.yaml --out job.sbatch.

Every field of `LaunchConfig` is a flag and an entry of the file that --config names.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ActionConfigFile, ArgumentParser, set_parsing_settings

from llmcourse.base.command_line import ended, run_command, shorten_help
from llmcourse.base.files import write_atomically
from llmcourse_labs.scale.launch.job import LaunchConfig
from llmcourse_labs.scale.launch.kubernetes import manifest_text
from llmcourse_labs.scale.launch.slurm import batch_script

PROGRAM = "llmcourse launch"

USUAL = {
    *("help", "scheduler", "config", "out", "kind", "run_folder", "nodes", "processes_per_node"),
    *("preset", "train", "hours", "venv", "image", "partition"),
}
"""What --help explains; --help all explains every setting."""

# The text under each field of the dataclass is the help of its flag.
set_parsing_settings(docstring_parse_attribute_docstrings=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    return ended(PROGRAM, lambda: _launch(words))


def _launch(arguments: list[str]) -> int:
    """Write a job, or print it when no file is named."""
    parser = _parser()
    shorten_help(parser, arguments, USUAL)
    options = parser.parse_args(arguments)
    config = LaunchConfig(**{name: options[name] for name in LaunchConfig.__dataclass_fields__})
    if options.scheduler == "slurm":
        if options.kind:
            raise ValueError("--kind has no effect on slurm: leave it out")
        text, start = batch_script(config), "sbatch"
    else:
        text, start = manifest_text(config, options.kind or "jobset"), "kubectl apply -f"
    if options.out is None:
        if options.force:
            raise ValueError("--force has no effect without --out: leave it out")
        print(text, end="")
        return 0
    if Path(options.out).exists() and not options.force:
        raise ValueError(
            f"{options.out} exists: choose another name, or give --force to replace it"
        )
    with write_atomically(Path(options.out)) as file:
        file.write(text.encode())
    print(f"wrote {options.out}; start it with: {start} {options.out}")
    return 0


def _parser() -> ArgumentParser:
    """Return the parser, with a flag for each field of the job."""
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        usage="%(prog)s {slurm,kubernetes} --run_folder FOLDER [option value ...]",
        description="Write a job for a cluster; nothing is started.",
    )
    parser.add_argument("scheduler", choices=("slurm", "kubernetes"), help="who runs the job")
    parser.add_argument("--config", action=ActionConfigFile, help="settings of the job, as YAML")
    parser.add_argument("--out", help="file to write; printed if not given")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument(
        "--kind", choices=("jobset", "pytorchjob"), help="for kubernetes: jobset if not given"
    )
    parser.add_class_arguments(LaunchConfig)
    return parser


if __name__ == "__main__":
    sys.exit(run_command(main))
