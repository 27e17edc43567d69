"""A batch script for Slurm: one torchrun on each machine, and back into the queue in time.

What a user gave reaches the script in two ways only: as an #SBATCH option, whose value was checked
to be one word, and as an argument that `shlex.quote` has closed.
"""

import re
import shlex
from collections.abc import Iterable, Iterator

from llmcourse.base.command_line import GO_ON
from llmcourse_labs.scale.launch.job import (
    ENVIRONMENT,
    LaunchConfig,
    torchrun_arguments,
    torchrun_program,
)

_STOP_BEFORE_LIMIT_S = 300
"""Seconds before the time limit at which Slurm tells the script; it may be a minute more.

A step and a checkpoint have to fit in.
"""

# Words that the shell has to fill in, so they stand in double quotes and not in shlex's.
_ENDPOINT, _RUN_ID = "@ENDPOINT@", "@RUN_ID@"
_BARE_FLAG = re.compile(r"--?[a-z_]+")

_HEAD = """\
set -euo pipefail

if (( ${{SLURM_RESTART_COUNT:-0}} > {job_restarts} )); then
  echo "gave up after {job_restarts} restarts of the job" >&2
  exit 1
fi

# The first machine of the job is where all meet.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${{hosts%%$'\\n'*}}
"""

_TAIL = """
# Near the time limit the ranks save and end; the job then waits in the queue for another turn.
# They are asked by a file.  A signal would have to pass srun, which answers SIGTERM by SIGKILL to
# all tasks, and torchrun, which gives the ranks 30 seconds.
stop=STOP_FILE
rm -f -- "$stop"
near_limit=false
ask() {
  near_limit=true
  mkdir -p -- "${stop%/*}" && touch -- "$stop" || true
}
trap ask USR1

srun "${srun_options[@]}" "${command[@]}" &
step=$!

status=0
wait "$step" || status=$?
while kill -0 "$step" 2>/dev/null; do
  # It was the signal that ended the wait, and not the step.
  status=0
  wait "$step" || status=$?
done
if [[ $near_limit == true ]]; then
  status=GO_ON
  if (( ${SLURM_RESTART_COUNT:-0} < JOB_RESTARTS )); then
    scontrol requeue "$SLURM_JOB_ID"
  fi
fi
exit "$status"
"""


def batch_script(config: LaunchConfig) -> str:
    """Return the text of a script for `sbatch`.

    Raises:
        ValueError: if a setting is missing, or has no effect on slurm.

    Source: https://slurm.schedmd.com/sbatch.html
    """
    config.check_for("slurm")
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH --{name}{'=' if value else ''}{value}" for name, value in _options(config)),
        "",
        _HEAD.format(job_restarts=config.job_restarts),
        "# Each restart gets a new store of addresses: pytorch/pytorch issue 135712.",
        *(f"export {name}={value}" for name, value in ENVIRONMENT.items()),
        "",
        _array("srun_options", map(_quoted, _srun_options(config))),
        _array("command", _command(config)),
        _tail(config),
    ]
    return "\n".join(lines)


def _tail(config: LaunchConfig) -> str:
    """Return how the step is started, asked to end, and started again by the queue."""
    text = _TAIL.replace("JOB_RESTARTS", str(config.job_restarts)).replace("GO_ON", str(GO_ON))
    return text.replace("STOP_FILE", _quoted(config.stop_file))


def _options(config: LaunchConfig) -> Iterator[tuple[str, str]]:
    """Yield what the job asks for, by the name of the option."""
    yield "job-name", config.name
    yield "nodes", str(config.nodes)
    yield "ntasks-per-node", "1"
    if config.gpus_per_node:
        yield "gpus-per-node", str(config.gpus_per_node)
    if config.cpus_per_node:
        yield "cpus-per-task", str(config.cpus_per_node)
    if config.memory_gb_per_node:
        yield "mem", f"{config.memory_gb_per_node}G"
    yield "time", _duration(config.seconds)
    yield "signal", f"B:USR1@{_STOP_BEFORE_LIMIT_S}"
    yield ("requeue" if config.job_restarts else "no-requeue"), ""
    yield "open-mode", "append"
    yield "output", "%x-%j.log"
    if config.partition:
        yield "partition", config.partition


def _duration(seconds: int) -> str:
    """Return a time limit as days-hours:minutes:seconds."""
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    d, h = divmod(hours, 24)
    return f"{d}-{h:02}:{m:02}:{s:02}"


def _srun_options(config: LaunchConfig) -> Iterator[str]:
    """Yield how srun starts the command: one task a machine, and all end when one fails."""
    yield f"--nodes={config.nodes}"
    yield f"--ntasks={config.nodes}"
    yield "--ntasks-per-node=1"
    yield "--kill-on-bad-exit=1"
    if config.cpus_per_node:
        # Since Slurm 22.05 a step does not take this from the job.
        yield f"--cpus-per-task={config.cpus_per_node}"
    if config.image:
        yield f"--container-image={config.image}"
        yield f"--container-mounts={config.mount}:{config.mount}"


def _command(config: LaunchConfig) -> Iterator[str]:
    """Yield the words of the command, each closed for the shell."""
    filled_in = {_ENDPOINT: f'"$head:{config.port}"', _RUN_ID: '"$SLURM_JOB_ID"'}
    words = torchrun_arguments(config, endpoint=_ENDPOINT, run_id=_RUN_ID)
    yield _quoted(torchrun_program(config))
    for word in words:
        yield filled_in.get(word) or _quoted(word)


def _quoted(word: str) -> str:
    """Close a word for the shell; of --name=value only the value, which reads better."""
    if flag := re.match(r"--[a-z][a-z0-9_.-]*=", word):
        return flag[0] + shlex.quote(word[flag.end() :])
    return shlex.quote(word)


def _array(name: str, words: Iterable[str]) -> str:
    """Return a bash array, a flag with its value on each line."""
    lines: list[str] = []
    for word in words:
        if lines and _BARE_FLAG.fullmatch(lines[-1]) and not word.startswith("-"):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join([f"{name}=(", *(f"  {line}" for line in lines), ")"])
