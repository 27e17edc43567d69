"""The settings of a training run, and the runs that the course makes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from llmcourse import model as models
from llmcourse.base.arguments import require, require_fields
from llmcourse.base.settings import LARGEST, Kind, Settings, from_flat, held, settings_of
from llmcourse.checkpoint.settings import Saving
from llmcourse.data.ramp import RampStage, ramp_of, windows_before
from llmcourse.data.settings import Corpus, MixedText, OneSource, RawFiles
from llmcourse.model import ModelConfig, Part
from llmcourse.optim.schedules import Cosine, WarmupStableDecay
from llmcourse.optim.settings import AdamWSettings, OptimizerSettings
from llmcourse.parallel.mesh.names import parse
from llmcourse.train.layout_settings import MeshRanks, OneProcess, SeveralRanks, TorchRanks

MOST_THREADS = 512
"""Of one process; the system ends a process that asks for very many."""


@dataclass(frozen=True, kw_only=True)
class Watching(Settings):
    """How one sees what becomes of a run."""

    patience: int = 0
    """Validations in a row without a better loss after which the run ends; the best checkpoint is
    kept apart.  0 trains to the end."""
    validate_every: int = 100
    """Steps between validations; 0 validates at the end only."""
    validation_tokens: int = 20_000
    """Most tokens per validation."""
    sample_every: int = 200
    """Steps between samples; 0 samples at the end only."""
    sample_tokens: int = 120
    """Tokens per sample."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        require_fields(self, "validate_every", "sample_every", "patience", least=0)
        require_fields(self, "validation_tokens", "sample_tokens", least=1)
        if self.patience and not self.validate_every:
            raise ValueError("patience has no effect without validations: raise validate_every")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Settings):
    """Settings of a run; the command line has one flag for each, without the name of its group."""

    model: ModelConfig
    """Shape of the model."""
    without: Literal["nothing", Part] = "nothing"
    """A part that the model is built without, to see what it is for; see `model.without`."""
    stage: Literal["pretrain"] = "pretrain"
    """What the run learns: to go on with text.  Other stages have settings of their own, see
    `train.stage`."""
    text: MixedText | OneSource | RawFiles | Corpus = field(default_factory=Corpus)
    """What it reads."""
    steps: int = 600
    """Optimizer steps."""
    epochs: float = 0.0
    """Passes over the training tokens, in place of steps, which follow from them; 0 keeps steps."""
    batch_size: int = 12
    """Sequences per step."""
    batch_ramp: str = ""
    """Sequences per step that grow, such as 0:12,200:24 for 24 from step 200 on; batch_size is the
    first."""
    optimizer: OptimizerSettings = field(default_factory=AdamWSettings)
    """What makes steps of gradients."""
    schedule: WarmupStableDecay | Cosine = field(default_factory=Cosine)
    """How large the steps are."""
    clip_norm: float = 1.0
    """Largest global gradient norm."""
    dropout: float = 0.0
    """Share of the activations that each layer's parts add which is set to 0, in training only."""
    watching: Watching = field(default_factory=Watching)
    """How one sees what becomes of it."""
    saving: Saving = field(default_factory=Saving)
    """When it is saved, and how."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """In what matrices are multiplied in forward and backward; weights and sums stay in fp32."""
    seed: int = 0
    """Of the weights, the data order, the generated text and the samples."""
    num_threads: int = 1
    """Threads of one process."""
    layout: TorchRanks | MeshRanks | SeveralRanks | OneProcess = field(default_factory=OneProcess)
    """Where it runs."""

    def __post_init__(self) -> None:
        """Reject settings that do not go together; each group has checked its own."""
        super().__post_init__()
        require_fields(self, "steps", "batch_size", "num_threads", least=1)
        require_fields(self, "num_threads", most=MOST_THREADS)
        require_fields(self, "clip_norm", above=0)
        require_fields(self, "seed", "epochs", least=0)
        require_fields(self, "dropout", least=0, below=1)
        if self.dropout and self.without == "residual":
            raise ValueError("dropout has no effect without residual: no part adds anything")
        self._check_ramp()
        self._check_optimizer()
        if isinstance(self.layout, MeshRanks):
            self._check_mesh(self.layout)
        else:
            self._check_shares()
        if isinstance(self.layout, TorchRanks):
            if self.text.order == "packed":
                raise ValueError("order = packed is for engine = own: leave out either")
            if self.saving.save_in_shards:
                raise ValueError("engine = torch saves in shards anyway: leave out save_in_shards")
        if self.epochs:  # what depends on the steps is asked once they are known
            if self.text.stages:
                raise ValueError("a mixture's sources have epochs of their own: give steps")
            return
        if self.schedule.warmup_steps + self.schedule.decay_steps > self.steps:
            raise ValueError(
                f"warmup_steps + decay_steps must be at most steps = {self.steps}, got "
                f"{self.schedule.warmup_steps} + {self.schedule.decay_steps}"
            )
        for stage in self.text.stages[1:]:
            require("the step at which anneal begins", stage.step, below=self.steps)

    def moved(self: Kind, **layout: Any) -> Kind:
        """Return the settings of the same run at another place.

        With a new mesh, or a new number of ranks, settings of the mesh that are not given go back
        to their defaults, and so does `parallel` where only one rank is left along dp.

        Args:
            layout: ranks, mesh, and others of the groups of `layout`; None keeps what there was.
        """
        given = {name: value for name, value in layout.items() if value is not None}
        kept = held(self)
        if given.keys() & {"ranks", "mesh"}:
            kept = {n: v for n, v in kept.items() if n != "ranks" and n not in MESH}
            mesh = given.get("mesh")
            if mesh and parse(mesh).get("dp", 1) == 1:
                kept.pop("parallel", None)
        return from_flat(type(self), kept, given)

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
    def optimizer_arguments(self) -> dict[str, Any]:
        """What all groups of the optimizer share."""
        return {"lr": self.schedule.learning_rate, **self.optimizer.arguments()}

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
        on_mesh = isinstance(self.layout, MeshRanks)
        if self.text.stages or on_mesh or self.text.order == "packed":
            other = "mix" if self.text.stages else "mesh" if on_mesh else "order = packed"
            raise ValueError(f"with {other} every step has batch_size sequences: leave out one")
        require("the last batch of batch_ramp", last.batch_size, most=LARGEST)

    def _check_optimizer(self) -> None:
        """Reject layouts that an optimizer cannot be spread over."""
        layout, name = self.layout, self.optimizer.optimizer
        if isinstance(layout, TorchRanks) and not isinstance(self.optimizer, AdamWSettings):
            raise ValueError(f"engine = torch has adamw alone: leave out optimizer = {name}")
        cuts = isinstance(layout, MeshRanks) or layout.parallel != "ddp"
        if cuts and not self.optimizer.is_elementwise:
            raise ValueError(
                f"optimizer = {name} reads whole matrices, which this layout cuts: take one "
                "process, or several ranks with parallel = ddp"
            )

    def _check_mesh(self, layout: MeshRanks) -> None:
        """Reject splits that the model or the batch does not allow."""
        split = layout.split(self.batch_size)
        if self.dropout:
            raise ValueError(f"dropout = {self.dropout} is for a run without a mesh: leave out one")
        if self.text.order == "packed" and split.cp > 1:
            raise ValueError("cp cuts rows where no document ends: leave out order = packed or cp")
        if self.without != "nothing":
            raise ValueError(f"a mesh splits whole models: leave out without = {self.without}")
        split.check(self.model, self.batch_size)

    def _check_shares(self) -> None:
        """Reject batches that ranks and micro-batches cannot share equally."""
        ranks, parts = self.layout.num_ranks, self.layout.accumulate
        name = "batch_ramp" if self.batch_ramp else "batch_size"
        for _, batch_size in self.ramp:
            if batch_size % ranks:
                raise ValueError(
                    f"{name} = {batch_size} sequences cannot be shared equally by {ranks} "
                    "ranks: choose a multiple"
                )
            if batch_size // ranks % parts:
                raise ValueError(
                    f"{batch_size // ranks} sequences of a rank cannot be cut into "
                    f"{parts} equal micro-batches: choose a divisor for accumulate"
                )


LAYOUT = tuple(
    dict.fromkeys(
        name
        for kind in (SeveralRanks, TorchRanks, MeshRanks)
        for name in settings_of(kind)
        if name != "device"
    )
)
"""Settings that say where a run is, and so may change when it is resumed."""

MESH = tuple(name for name in settings_of(MeshRanks) if name not in settings_of(SeveralRanks))
"""Those of a run that splits its model."""


def stories() -> TrainConfig:
    """Fluent little stories in under a minute on one core."""
    return TrainConfig(model=models.stories())


def tiny() -> TrainConfig:
    """The whole path in a few seconds; the text stays nonsense."""
    return TrainConfig.of(
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
    return TrainConfig.of(
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
    text = Corpus(corpus="sotu", corpus_bytes=20_000_000)
    return lambda: TrainConfig(model=shape(), text=text)


PRESETS: dict[str, Callable[[], TrainConfig]] = {
    "stories": stories,
    "tiny": tiny,
    "sotu": sotu,
    **{name: _with_llama_shape(shape) for name, shape in models.PRESETS.items() if "llama" in name},
}
"""Every run by the name that the command line uses."""
