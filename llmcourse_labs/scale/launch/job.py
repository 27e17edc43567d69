"""The settings of a job on several machines, and the command that each machine runs.

torchrun runs once on every machine.  It starts the machine's processes, finds the other machines at
one address (the rendezvous), and starts all processes anew when one of them has failed.
"""

import re
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Literal

from llmcourse.base.arguments import require_fields
from llmcourse.base.command_line import STOP

Scheduler = Literal["slurm", "kubernetes"]

_WORDS = {
    "name": (
        "a lower-case letter, then letters, digits and dashes, at most 40",
        r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?",
    ),
    "preset": ("lower-case letters and digits", r"[a-z0-9][a-z0-9_.-]*"),
    "partition": ("letters, digits and _ . , -", r"[A-Za-z0-9_][A-Za-z0-9_.,-]*"),
    "claim": (
        "lower-case letters, digits and dashes, at most 63",
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
    ),
    "image": ("letters, digits and . _ / : @ + # -", r"[/A-Za-z0-9][A-Za-z0-9._/:@+#-]*"),
    "mount": ("a path from /, of letters, digits and . _ / -", r"/[A-Za-z0-9._/-]*"),
    "device": ("cuda or cpu", "cuda|cpu"),
    "parallel": ("ddp or fsdp", "ddp|fsdp"),
}
"""What a word may be, in a sentence and as a pattern; it then stays one word in every script."""
_FLAG = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_OURS = ("preset", "engine", "parallel", "device", "out", "resume", "ranks", "config")
_ONLY_FOR = {"partition": "slurm", "claim": "kubernetes"}


ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""What torchrun needs in its environment.

Otherwise torch 2.13 keeps one store of addresses through all restarts.  A process that was started
anew may then find the address of one that is gone there, which costs another restart.

Source: https://github.com/pytorch/pytorch/issues/135712, and what happened in our own test
"""


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """Settings of a job; the command line has one flag for each field."""

    name: str = "llmcourse"
    """Name of the job: lower-case letters, digits and dashes, at most 40."""
    run_folder: str
    """Folder of the run, the same path on every machine: checkpoints and metrics go there."""
    nodes: int = 2
    """Machines."""
    processes_per_node: int = 8
    """Processes on each machine; on cuda, each has one GPU."""
    device: Literal["cuda", "cpu"] = "cuda"
    """What the processes compute on; cpu asks for no GPU."""
    parallel: Literal["ddp", "fsdp"] = "fsdp"
    """A copy of the model in each process (ddp), or a shard of it (fsdp)."""
    preset: str = "stories"
    """A preset of llmcourse train."""
    train: dict[str, str | int | float | bool] = field(default_factory=dict)
    """More flags of llmcourse train by name, without dashes, such as steps: 1000."""
    hours: float = 24.0
    """Longest time that the job may take; on slurm, between two visits to the queue."""
    max_restarts: int = 3
    """Times that torchrun starts the processes anew after one of them has failed."""
    job_restarts: int = 10
    """Times that the scheduler starts the whole job anew; 0 for never."""
    port: int = 29400
    """Port of the rendezvous, on the first machine."""
    start_timeout_s: int = 900
    """How long machines wait for each other before they give up."""
    cpus_per_node: int | None = None
    """Processor cores to ask for on each machine."""
    memory_gb_per_node: int | None = None
    """Memory to ask for on each machine."""
    venv: str | None = None
    """Virtual environment whose torchrun is run, the same path on every machine."""
    image: str | None = None
    """Container image that has this package; required on kubernetes."""
    mount: str | None = None
    """Where the shared folder appears in the container; the run's folder lies below it."""
    partition: str | None = None
    """For slurm: the partition, or several with commas."""
    claim: str | None = None
    """For kubernetes: the PersistentVolumeClaim of the shared folder; required."""

    def __post_init__(self) -> None:
        """Reject settings that no job can have."""
        for setting in fields(self):
            _refuse_control(setting.name, getattr(self, setting.name))
        for name, (allowed, pattern) in _WORDS.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(pattern, value):
                raise ValueError(f"{name} must be {allowed}; got {value!r}")
        of_node = ("processes_per_node", "cpus_per_node", "memory_gb_per_node")
        require_fields(self, "nodes", "start_timeout_s", *of_node, least=1, most=10**6)
        require_fields(self, "max_restarts", "job_restarts", least=0, most=10**6)
        require_fields(self, "port", least=1024, most=65535)
        if not 0.1 <= self.hours <= 8_760:  # nan is refused, too
            raise ValueError(f"hours must be from 0.1 to 8760, which is a year; got {self.hours}")
        for name in ("run_folder", "venv"):
            _check_folder(name, getattr(self, name))
        if self.mount == "/":
            raise ValueError("mount must be a folder below /, got '/'")
        for key, value in self.train.items():
            _check_flag(key, value)
        ranks, batch = self.nodes * self.processes_per_node, self.train.get("batch_size")
        if isinstance(batch, int) and batch % ranks:
            raise ValueError(
                f"train.batch_size = {batch} sequences cannot be shared equally by {self.nodes} x "
                f"{self.processes_per_node} = {ranks} processes: choose a multiple"
            )

    @property
    def seconds(self) -> int:
        """The time limit in whole seconds."""
        return round(self.hours * 3600)

    @property
    def stop_file(self) -> str:
        """The file whose appearance asks the run to save and end."""
        return f"{self.run_folder.rstrip('/')}/{STOP}"

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each machine: one for each process, or none."""
        return self.processes_per_node if self.device == "cuda" else 0

    def check_for(self, scheduler: Scheduler) -> None:
        """Refuse settings that are missing for a scheduler, or would have no effect there.

        Raises:
            ValueError: naming the setting, and what to do.
        """
        for name, owner in _ONLY_FOR.items():
            if owner != scheduler and getattr(self, name) is not None:
                raise ValueError(f"{name} has no effect on {scheduler}: leave it out")
        if scheduler == "kubernetes":
            for name in ("image", "claim", "mount"):
                if getattr(self, name) is None:
                    raise ValueError(f"{name} is missing: kubernetes needs it")
            if self.image and (self.image.startswith("/") or "#" in self.image):
                raise ValueError(
                    f"image must be a name that kubernetes can pull, got {self.image!r}"
                )
        elif (self.mount is None) != (self.image is None):
            raise ValueError("image and mount go together on slurm: give both or neither")
        if self.mount and PurePosixPath(self.mount) not in PurePosixPath(self.run_folder).parents:
            raise ValueError(
                f"run_folder must lie below mount = {self.mount}, got {self.run_folder!r}"
            )


def _refuse_control(name: str, value: object) -> None:
    """Refuse line ends and other control characters wherever text can be given."""
    if isinstance(value, dict):
        for key, entry in value.items():
            _refuse_control(f"{name}.{key!r}", entry)
    elif isinstance(value, str) and not (value.isprintable() or value == ""):
        raise ValueError(f"{name} must be printable text on one line, got {value!r}")


def _check_folder(name: str, folder: str | None) -> None:
    """Refuse paths that would mean something else on another machine."""
    if folder is None:
        return
    path = PurePosixPath(folder)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise ValueError(f"{name} must be a path from / without .., got {folder!r}")


def _check_flag(key: str, value: object) -> None:
    """Refuse names that are no flags of llmcourse.train, and flags that the job sets itself."""
    if not _FLAG.fullmatch(key):
        raise ValueError(
            f"train takes names of flags without dashes, such as steps or model.width; got {key!r}"
        )
    if key in _OURS:
        raise ValueError(f"train.{key} is set by the job: leave it out of train")
    if not isinstance(value, str | int | float | bool):
        raise ValueError(f"train.{key} must be a number, a word or true or false, got {value!r}")


def train_arguments(config: LaunchConfig) -> list[str]:
    """Return the arguments of `llmcourse train`, the same in every process."""
    flags = {
        "preset": config.preset,
        "engine": "torch",
        "parallel": config.parallel,
        "device": config.device,
        "out": config.run_folder,
    }
    return [*_words(flags), *(f"--{name}={_text(value)}" for name, value in config.train.items())]


def _words(flags: dict[str, str]) -> list[str]:
    return [word for name, value in flags.items() for word in (f"--{name}", value)]


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def torchrun_arguments(config: LaunchConfig, *, endpoint: str, run_id: str) -> list[str]:
    """Return the arguments of torchrun, the same on every machine.

    The first two are --rdzv_conf and its value, to which a writer may add.

    Args:
        config: the job.
        endpoint: "host:port" of the first machine, at which all meet.
        run_id: a name that only this run uses.

    Source: https://docs.pytorch.org/docs/stable/elastic/run.html
    """
    waits = f"join_timeout={config.start_timeout_s},read_timeout={config.start_timeout_s}"
    flags = {
        "rdzv_conf": waits,
        "nnodes": str(config.nodes),
        "nproc_per_node": str(config.processes_per_node),
        "rdzv_backend": "c10d",
        "rdzv_endpoint": endpoint,
        "rdzv_id": run_id,
        "max_restarts": str(config.max_restarts),
    }
    return [*_words(flags), "-m", "llmcourse.train", *train_arguments(config)]


def torchrun_program(config: LaunchConfig) -> str:
    """Return the name or the path of torchrun on every machine."""
    return f"{config.venv.rstrip('/')}/bin/torchrun" if config.venv else "torchrun"
