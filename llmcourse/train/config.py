"""The settings of a training run, and the runs that the course makes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from llmcourse import model as models
from llmcourse.base.arguments import require, require_fields
from llmcourse.data.mixture import MixtureStage, per_mille, shares_of
from llmcourse.data.ramp import RampStage, ramp_of, windows_before
from llmcourse.model import ModelConfig, Part
from llmcourse.parallel import mesh as meshes
from llmcourse.parallel.mesh.names import Pipeline, parse

Parallel = Literal["ddp", "zero1", "zero2", "zero3", "fsdp"]
"""What the ranks of a run share: a copy each, or shards of moments, of gradients, of weights."""

LAYOUTS: dict[str, tuple[Parallel, ...]] = {
    "own": ("ddp", "zero1", "zero2", "zero3"),
    "torch": ("ddp", "fsdp"),
}
"""By engine; torch's fsdp shards what our zero3 shards."""

LARGEST = 10**12
"""Of every integer in the settings: a thousand times what anybody trains with, and far below what
the integers of arrays and files hold."""

MOST_THREADS = 512
"""Of one process; the system ends a process that asks for very many."""

NO_MESH: dict[str, Any] = {
    "mesh": "",
    "micro_batches": 0,
    "pipeline": "1f1b",
    "chunks": 1,
    "sequence_parallel": False,
    "replicate_kv": False,
}
"""The settings of a run that splits no model."""

ONE_RANK: dict[str, Any] = {"ranks": 1, "parallel": "ddp", "engine": "own", **NO_MESH}
"""The settings of a run in a single process."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a run; the command line has one flag for each field."""

    model: ModelConfig
    """Shape of the model."""
    without: Literal["nothing", Part] = "nothing"
    """A part that the model is built without, to see what it is for; see `model.without`."""
    stage: Literal["pretrain"] = "pretrain"
    """What the run learns: to go on with text.  Other stages have settings of their own, see
    `train.stage`."""
    corpus: Literal["stories", "sotu", "python", "bin", "prepared"] = "stories"
    """Text: generated stories, presidents' addresses, Python's own sources, tokens of nanoGPT's
    programs, or text of your own (see data)."""
    data: str = ""
    """For corpus = prepared: the folder that llmcourse prepare made; stays where it is."""
    mix: str = ""
    """For corpus = prepared: shares of several sources, such as general=0.5,code=0.3,stories=0.2;
    each is a folder in data that llmcourse prepare made, all with one tokenizer."""
    anneal: str = ""
    """With mix: the step from which on other shares hold, such as 800:code=0.2,stories=0.8."""
    bin_folder: str = ""
    """For corpus = bin: a folder with train.bin and val.bin, and perhaps a tokenizer/ of ours;
    their ids are below model.vocab_size."""
    bin_dtype: Literal["uint16", "uint32"] = "uint16"
    """For corpus = bin: the type of an id, which the files do not tell."""
    corpus_bytes: int = 3_000_000
    """How much of it: bytes to generate, or the most to take."""
    order: Literal["shuffled", "random", "packed"] = "shuffled"
    """Windows of the text: each once in an epoch, shuffled, or at random starts with repetition, as
    nanoGPT and CS336 draw them; or whole documents, packed into rows, none of which sees another's
    tokens."""
    steps: int = 600
    """Optimizer steps."""
    epochs: float = 0.0
    """Passes over the training tokens, in place of steps, which follow from them; 0 keeps steps."""
    patience: int = 0
    """Validations in a row without a better loss after which the run ends; the best checkpoint is
    kept apart.  0 trains to the end."""
    batch_size: int = 12
    """Sequences per step."""
    accumulate: int = 1
    """Micro-batches, one after the other, whose gradients add up to that of a rank's sequences: the
    same step in less memory."""
    batch_ramp: str = ""
    """Sequences per step that grow, such as 0:12,200:24 for 24 from step 200 on; batch_size is the
    first."""
    learning_rate: float = 6e-3
    """Largest learning rate of the schedule."""
    schedule: Literal["cosine", "wsd"] = "cosine"
    """Warm-up then half a cosine, or warm-up, flat, then linear decay."""
    warmup_steps: int = 40
    """Steps of linear warm-up."""
    final_share: float = 0.05
    """Final learning rate as a share of the largest."""
    decay_steps: int = 0
    """Steps of the final decay; for the wsd schedule only."""
    weight_decay: float = 0.1
    """AdamW's decay, on matrices only."""
    dropout: float = 0.0
    """Share of the activations that each layer's parts add which is set to 0, in training only."""
    beta1: float = 0.9
    """AdamW's memory of the gradient."""
    beta2: float = 0.95
    """AdamW's memory of its square."""
    clip_norm: float = 1.0
    """Largest global gradient norm."""
    validate_every: int = 100
    """Steps between validations; 0 validates at the end only."""
    validation_tokens: int = 20_000
    """Most tokens per validation."""
    sample_every: int = 200
    """Steps between samples; 0 samples at the end only."""
    sample_tokens: int = 120
    """Tokens per sample."""
    checkpoint_every: int = 200
    """Steps between checkpoints; 0 saves at the end only."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints stay on disk."""
    save_in_shards: bool = False
    """A checkpoint in parts that all ranks write at the same time, instead of one file."""
    save_in_background: bool = False
    """Copy the state and go on training while the copy is written."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """In what matrices are multiplied in forward and backward; weights and sums stay in fp32."""
    seed: int = 0
    """Of the weights, the data order, the generated text and the samples."""
    num_threads: int = 1
    """Threads of one process."""
    device: str = "cpu"
    """cpu, cuda, mps, or auto for the first accelerator."""
    ranks: int = 1
    """Processes that share every batch; they run on the CPU."""
    parallel: Parallel = "ddp"
    """A copy on each rank (ddp), or shards of moments, gradients, weights (zero1 to 3, fsdp); on a
    mesh, ddp or zero1 along dp."""
    mesh: str = ""
    """Ranks by axis, such as dp=2,tp=2,pp=2, that split the model too; axes dp, pp, cp, ep, tp."""
    micro_batches: int = 0
    """Parts of a rank's share of the batch, one after the other; 0 takes the fewest that give every
    stage of a mesh work."""
    pipeline: Pipeline = "1f1b"
    """Order of the micro-batches in the stages of a mesh with pp."""
    chunks: int = 1
    """Stages on each rank of a mesh, for pipeline = interleaved."""
    sequence_parallel: bool = False
    """Whether the tp ranks of a mesh share the tokens between the matrices, too."""
    replicate_kv: bool = False
    """Whether the tp ranks of a mesh may hold copies of the same key/value head."""
    engine: Literal["own", "torch"] = "own"
    """Who spreads the run over ranks: the course, or torch, under torchrun and on any machines."""

    def __post_init__(self) -> None:
        """Reject settings that cannot run, or that would have no effect."""
        counts = ("corpus_bytes", "steps", "batch_size", "validation_tokens", "sample_tokens")
        counts += ("accumulate", "keep_checkpoints", "num_threads", "ranks")
        require_fields(self, *counts, least=1)
        require_fields(self, "learning_rate", "clip_norm", above=0)
        every = ("validate_every", "sample_every", "checkpoint_every")
        require_fields(self, *every, "weight_decay", "seed", "micro_batches", least=0)
        require_fields(self, "epochs", "patience", least=0)
        require_fields(self, "dropout", least=0, below=1)
        require_fields(self, "warmup_steps", "decay_steps", least=0)
        require_fields(self, "beta1", "beta2", least=0, below=1)
        require_fields(self, "final_share", least=0, most=1)
        require_fields(self, "num_threads", most=MOST_THREADS)
        for owner in (self, self.model):  # before any of them meets the 64 bits of an array
            for name, value in vars(owner).items():
                if isinstance(value, int):
                    require(name, value, most=LARGEST)
                elif isinstance(value, float):
                    require(name, value, below=math.inf)
        for corpus, folder in (("bin", "bin_folder"), ("prepared", "data")):
            if (self.corpus == corpus) != bool(getattr(self, folder)):
                raise ValueError(
                    f"corpus = {corpus} and {folder} go together: give both or neither"
                )
        self._check_mixture()
        self._check_ramp()
        if self.order == "packed" and self.engine == "torch":
            raise ValueError("order = packed is for engine = own: leave out either")
        self._check_mesh()
        if not self.mesh:
            self._check_ranks()
        self._check_length()

    def _check_length(self) -> None:
        """Reject schedules that do not fit into the run, and ends that never come."""
        if self.schedule == "cosine" and self.decay_steps:
            raise ValueError("decay_steps has no effect with the cosine schedule: leave it at 0")
        if self.patience and not self.validate_every:
            raise ValueError("patience has no effect without validations: raise validate_every")
        if self.epochs:  # what depends on the steps is asked once they are known
            if self.mix:
                raise ValueError("a mixture's sources have epochs of their own: give steps")
            return
        if self.warmup_steps + self.decay_steps > self.steps:
            raise ValueError(
                f"warmup_steps + decay_steps must be at most steps = {self.steps}, got "
                f"{self.warmup_steps} + {self.decay_steps}"
            )

    @property
    def split(self) -> "meshes.Split | None":
        """How the mesh splits the model; None without a mesh."""
        if not self.mesh:
            return None
        settings = {name: getattr(self, name) for name in NO_MESH if name != "mesh"}
        number = settings.pop("micro_batches")
        split = meshes.Split(**parse(self.mesh), **settings)
        legal = split.legal_micro_batches(self.batch_size)
        return replace(split, micro_batches=number or min(legal, default=1))

    @property
    def stages(self) -> list[MixtureStage]:
        """The mixtures of the run and when they begin; none with a single source."""
        if not self.mix:
            return []
        step, _, shares = self.anneal.partition(":")
        later = [MixtureStage(int(step), shares_of(shares))] if self.anneal else []
        return [MixtureStage(0, shares_of(self.mix)), *later]

    @property
    def ramp(self) -> list[RampStage]:
        """The batch sizes of the run and when they begin."""
        return ramp_of(self.batch_ramp) if self.batch_ramp else [RampStage(0, self.batch_size)]

    @property
    def num_tokens(self) -> int:
        """Tokens that the whole run learns from, repeated ones as often as they come."""
        return self.tokens_before(self.steps)

    def tokens_before(self, step: int) -> int:
        """Return the tokens of all steps before one that is counted from 0."""
        return windows_before(self.ramp, step) * self.model.context_length

    @property
    def source_names(self) -> list[str]:
        """The folders of a mixture's sources, in the order in which they are named."""
        return list(dict.fromkeys(name for stage in self.stages for name in stage.shares))

    @property
    def adamw(self) -> dict[str, Any]:
        """The optimizer's settings that all groups share."""
        return {"lr": self.learning_rate, "betas": (self.beta1, self.beta2)}

    @property
    def num_ranks(self) -> int:
        """Processes that the run takes."""
        return self.split.num_ranks if self.mesh else self.ranks

    def _check_mixture(self) -> None:
        """Reject shares that cannot be kept, and settings that have no effect."""
        if not self.mix:
            if self.anneal:
                raise ValueError(f"anneal = {self.anneal} has no effect without mix: give both")
            return
        if self.corpus != "prepared":
            raise ValueError(f"mix is for corpus = prepared, got {self.corpus}: give data, too")
        if self.order != "shuffled":
            raise ValueError(f"a mixture is read in shuffled order: leave out order = {self.order}")
        step = self.anneal.partition(":")[0]
        if self.anneal and not (step.isascii() and step.isdigit() and 0 < int(step) < self.steps):
            raise ValueError(
                f"anneal = {self.anneal} must begin with a step from 1 to {self.steps - 1} and a "
                "colon, such as 800:code=0.2,stories=0.8"
            )
        for stage in self.stages:
            per_mille(stage.shares)
        for name in self.source_names:
            if name in ("", ".", "..") or Path(name).name != name:
                raise ValueError(f"a source is the name of a folder in data, got {name!r}")

    def _check_ramp(self) -> None:
        """Reject ramps that the run does not follow, or that nothing can share."""
        if not self.batch_ramp:
            return
        first, last = self.ramp[0], self.ramp[-1]
        if first.batch_size != self.batch_size:
            raise ValueError(
                f"batch_ramp begins with {first.batch_size} sequences, batch_size is "
                f"{self.batch_size}: give the same, or the ramp alone"
            )
        if last.step >= self.steps and not self.epochs:
            raise ValueError(
                f"batch_ramp changes at step {last.step}, the run ends after {self.steps}: give "
                "more steps, or leave out that stage"
            )
        if self.mix or self.mesh or self.order == "packed":
            other = "mix" if self.mix else "mesh" if self.mesh else "order = packed"
            raise ValueError(f"with {other} every step has batch_size sequences: leave out one")
        require("the last batch of batch_ramp", last.batch_size, most=LARGEST)

    def _check_mesh(self) -> None:
        """Reject splits that the model or the batch does not allow, and settings without effect."""
        if not self.mesh:
            # Without a mesh nobody reads what only splits a model.
            for name, default in NO_MESH.items():
                if getattr(self, name) != default:
                    raise ValueError(
                        f"{name} = {getattr(self, name)} has no effect without a mesh: give one, "
                        "such as mesh = dp=2,pp=2"
                    )
            return
        # Settings that the mesh has in words of its own, or that its ranks do not know.
        split = self.split
        if self.engine == "torch":
            raise ValueError("a mesh is for engine = own: leave out mesh or engine")
        if self.ranks != 1:
            raise ValueError(
                f"ranks = {self.ranks} beside a mesh of {split.num_ranks}: leave out ranks"
            )
        if self.dropout:
            raise ValueError(f"dropout = {self.dropout} is for a run without a mesh: leave out one")
        if self.accumulate != 1:
            raise ValueError(
                f"accumulate = {self.accumulate}: a mesh takes its micro-batches from micro_batches"
            )
        if self.order == "packed" and split.cp > 1:
            raise ValueError("cp cuts rows where no document ends: leave out order = packed or cp")
        if self.device != "cpu":
            raise ValueError(f"the ranks of a mesh run on the cpu, not on {self.device}")
        if self.without != "nothing":
            raise ValueError(f"a mesh splits whole models: leave out without = {self.without}")
        # What its data-parallel ranks may share out, if there are several.
        if self.parallel not in ("ddp", "zero1"):
            raise ValueError(f"on a mesh parallel is ddp or zero1, got {self.parallel}")
        if self.parallel == "zero1" and split.dp == 1:
            raise ValueError("parallel = zero1 has no effect with dp = 1: raise dp")
        # Now the numbers: layers, heads, length and batch have to divide.
        split.check(self.model, self.batch_size)

    def _check_ranks(self) -> None:
        """Reject numbers of ranks that cannot share a batch, and settings that need several."""
        name = "batch_ramp" if self.batch_ramp else "batch_size"
        for _, batch_size in self.ramp:
            if batch_size % self.ranks:
                raise ValueError(
                    f"{name} = {batch_size} sequences cannot be shared equally by {self.ranks} "
                    "ranks: choose a multiple"
                )
            if batch_size // self.ranks % self.accumulate:
                raise ValueError(
                    f"{batch_size // self.ranks} sequences of a rank cannot be cut into "
                    f"{self.accumulate} equal micro-batches: choose a divisor for accumulate"
                )
        if self.parallel not in LAYOUTS[self.engine]:
            raise ValueError(
                f"parallel = {self.parallel} is not for engine = {self.engine}: choose from "
                f"{', '.join(LAYOUTS[self.engine])}"
            )
        if self.engine == "torch":
            if self.save_in_shards:
                raise ValueError("engine = torch saves in shards anyway: leave out save_in_shards")
            return
        if self.ranks == 1 and self.parallel != "ddp":
            raise ValueError(f"parallel = {self.parallel} has no effect on one rank: raise ranks")
        if self.ranks > 1 and self.device != "cpu":
            raise ValueError(f"several ranks run on the cpu, not on {self.device}")


def layout_overrides(**layout: Any) -> dict[str, Any]:
    """Return every setting that changes when a run moves to another layout.

    With a new mesh, or a new number of ranks, every setting of the mesh that is not given goes back
    to its default, and so does `parallel` where only one rank is left along dp.  An empty mesh
    stands for none, on one rank unless `ranks` is given.
    """
    given = {name: value for name, value in layout.items() if value is not None}
    if given.get("mesh"):
        shared = parse(given["mesh"]).get("dp", 1) > 1
        whole = {"ranks": 1, "accumulate": 1, **({} if shared else {"parallel": "ddp"})}
        return {**NO_MESH, **whole, **given}
    if "mesh" in given:
        given.setdefault("ranks", 1)
    if given.get("ranks") == 1:
        return {**NO_MESH, "parallel": "ddp", **given}
    return {**NO_MESH, **given} if "ranks" in given else given


def stories() -> TrainConfig:
    """Fluent little stories in under a minute on one core."""
    return TrainConfig(model=models.stories())


def tiny() -> TrainConfig:
    """The whole path in a few seconds; the text stays nonsense."""
    return TrainConfig(
        model=models.tiny(),
        corpus_bytes=60_000,
        steps=30,
        batch_size=8,
        warmup_steps=5,
        validate_every=10,
        validation_tokens=2_000,
        sample_every=0,
        sample_tokens=40,
        checkpoint_every=10,
    )


def sotu() -> TrainConfig:
    """Real prose, 12 MB of presidents' addresses: a few minutes on one core, and not yet fluent."""
    return TrainConfig(
        model=replace(
            models.stories(),
            width=128,
            head_size=32,
            hidden=336,
            vocab_size=2_048,
            context_length=64,
        ),
        corpus="sotu",
        corpus_bytes=20_000_000,
        steps=1_500,
        batch_size=32,
        learning_rate=4e-3,
        warmup_steps=100,
    )


def _with_llama_shape(shape: Callable[[], ModelConfig]) -> Callable[[], TrainConfig]:
    """Return a preset that would train a Llama 3 on the addresses, if the machine could hold it."""
    return lambda: TrainConfig(model=shape(), corpus="sotu", corpus_bytes=20_000_000)


PRESETS: dict[str, Callable[[], TrainConfig]] = {
    "stories": stories,
    "tiny": tiny,
    "sotu": sotu,
    **{name: _with_llama_shape(shape) for name, shape in models.PRESETS.items() if "llama" in name},
}
"""Every run by the name that the command line uses."""
