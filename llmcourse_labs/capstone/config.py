"""The settings of the whole machine, and how they are read from a file in TOML.

Each section of the file is one of the dataclasses here; [model], [train] and [sft] take the fields
of `ModelConfig`, `TrainConfig` and `TuneConfig`.
"""

import difflib
import tomllib
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from llmcourse.base.arguments import require_fields
from llmcourse.base.settings import Settings, settings_of
from llmcourse.data.mixture import per_mille, shares_of
from llmcourse.model import ModelConfig
from llmcourse.train.config import TrainConfig
from llmcourse_labs.tuning import FitSettings
from llmcourse_labs.tuning.tune_config import TuneConfig

SIZES = ("small", "overnight")
"""Settings that come with the package."""

SOURCES = ("web", "stories")
"""What can be mixed: what the funnel left of the crawl, and stories of the grammar."""

OWNED = {
    "train": ("model", "stage", "corpus", "data", "mix", "anneal", "seed", "engine", "device"),
    "sft": ("model", "stage", "start", "corpus", "order", "data", "seed", "engine", "device"),
}
"""Fields of `TrainConfig` that follow from other sections, or that the machine decides."""


@dataclass(frozen=True, kw_only=True)
class Crawl:
    """The generated web."""

    pages: int = 1_500
    """Pages that are crawled."""

    def __post_init__(self) -> None:
        """Check the number."""
        require_fields(self, "pages", least=10)


@dataclass(frozen=True, kw_only=True)
class Funnel:
    """What is kept of the web."""

    run_of_words: int = 13
    """A page that shares so many words in a row with an item of the exam is dropped; 0 drops
    none."""
    similarity: float = 0.6
    """Of near copies, of which half are found."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_fields(self, "run_of_words", least=0)
        require_fields(self, "similarity", above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """What is trained on."""

    shares: str = "web=0.4,stories=0.6"
    """Of the bytes, by source."""
    num_bytes: int = 1_200_000
    """Of all sources together; a source that has less is read again."""

    def __post_init__(self) -> None:
        """Check shares and number."""
        require_fields(self, "num_bytes", least=10_000)
        named = shares_of(self.shares)
        per_mille(named)
        if len(named) < 2 or not set(named) <= set(SOURCES):
            raise ValueError(
                f"shares must name two sources of {', '.join(SOURCES)}, got {self.shares!r}"
            )


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokenizer, and what is held out."""

    vocab_size: int = 768
    """Tokens of the tokenizer."""
    validation: float = 0.05
    """Share of the documents that no step sees."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_fields(self, "vocab_size", least=257)
        require_fields(self, "validation", above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class Kill:
    """The crash."""

    step: int = 0
    """After this step of the pre-training all its processes are ended by SIGKILL; 0 is never."""
    delay_s: float = 0.0
    """How long after the step was logged, so that any moment may be hit."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_fields(self, "step", "delay_s", least=0)


@dataclass(frozen=True, kw_only=True)
class Preferences:
    """Direct preference optimization, from the fine-tuned model on."""

    pairs: int = 800
    """Pairs of answers, of which a judge prefers one."""
    temperature: float = 0.5
    """Of the judge, who errs more often where it is high."""
    beta: float = 0.1
    """What a nat away from the fine-tuned model costs."""
    steps: int = 60
    """Updates."""
    batch_size: int = 16
    """Pairs of an update."""
    learning_rate: float = 2e-4
    """Of AdamW."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_fields(self, "pairs", least=1)
        require_fields(self, "temperature", least=0)
        require_fields(self, "beta", above=0)
        _ = self.fit

    @property
    def fit(self) -> FitSettings:
        """How the policy is fitted."""
        return FitSettings(
            steps=self.steps, batch_size=self.batch_size, learning_rate=self.learning_rate
        )


@dataclass(frozen=True, kw_only=True)
class Exam:
    """What the models are asked in the end."""

    items: int = 50
    """Of each skill and kind."""
    seed: int = 1
    """Of the items."""
    run_of_words: int = 13
    """An item that shares so many words in a row with the training text counts as flagged."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_fields(self, "items", least=2)
        require_fields(self, "seed", least=0)
        require_fields(self, "run_of_words", least=1)


@dataclass(frozen=True, kw_only=True)
class CapstoneConfig:
    """Settings of the whole machine."""

    model: ModelConfig
    """Shape of the model; its vocabulary is that of [tokens]."""
    train: TrainConfig
    """Of the pre-training, with a folder of tokens that is not there yet."""
    sft: TuneConfig
    """Of the fine-tuning, with a run to start from that is not there yet."""
    seed: int = 0
    """Of everything but the exam."""
    crawl: Crawl = field(default_factory=Crawl)
    """The generated web."""
    funnel: Funnel = field(default_factory=Funnel)
    """What is kept of it."""
    mixture: Mixture = field(default_factory=Mixture)
    """What is trained on."""
    tokens: Tokens = field(default_factory=Tokens)
    """The tokenizer."""
    kill: Kill = field(default_factory=Kill)
    """The crash."""
    dpo: Preferences = field(default_factory=Preferences)
    """The last training."""
    evaluate: Exam = field(default_factory=Exam)
    """What is asked in the end."""

    def __post_init__(self) -> None:
        """Refuse a crash that does not come."""
        if self.kill.step >= self.train.steps:
            raise ValueError(
                f"[kill] step = {self.kill.step} must be below the {self.train.steps} steps of "
                "[train]: nothing is left to crash"
            )

    @classmethod
    def read(cls, path: str | Path) -> "CapstoneConfig":
        """Return the settings in a file, or those that come with the package under a name.

        Raises:
            ValueError: if it is not there or no TOML, or a setting is unknown or cannot be.
            OSError: if it cannot be read.
        """
        path = Path(path)
        named = str(path) in SIZES and not path.exists()
        if not named and not path.exists():
            raise ValueError(f"{path} is not there: give a file, {' or '.join(SIZES)}")
        try:
            text = shipped(str(path)) if named else path.read_text(encoding="utf8")
            return cls.of(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path} is no TOML: {error}") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def of(cls, content: dict[str, Any]) -> "CapstoneConfig":
        """Return the settings that a file's sections say.

        Raises:
            ValueError: if a section or setting is unknown, or has a value that cannot be.
        """
        hints = get_type_hints(cls)
        _refuse_unknown("the file", content, hints)
        seed = content.get("seed", 0)
        _refuse_misfit("seed", seed, int)
        made = {
            name: _made(hints[name], name, section)
            for name, section in content.items()
            if name not in ("seed", "model", "train", "sft")
        }
        vocab_size = made.get("tokens", Tokens()).vocab_size
        given = {"vocab_size": vocab_size, **content.get("model", {})}
        if given["vocab_size"] != vocab_size:
            raise ValueError("[model] vocab_size is that of [tokens]: leave it out")
        model = _made(ModelConfig, "model", given)
        train = {"corpus": "prepared", "data": "tokens", "sample_every": 0}
        runs = {
            name: _made(hints[name], name, content.get(name, {}), model=model, seed=seed, **more)
            for name, more in (("train", train), ("sft", {"start": "train"}))
        }
        return cls(model=model, seed=seed, **runs, **made)

    def with_kill(self, step: int, *, delay_s: float = 0.0) -> "CapstoneConfig":
        """Return the same settings with another crash."""
        return replace(self, kill=Kill(step=step, delay_s=delay_s))


def shipped(size: str) -> str:
    """Return the text of settings that come with the package.

    Raises:
        ValueError: if there are none of that name.
    """
    if size not in SIZES:
        raise ValueError(f"there are no settings {size!r}: choose from {', '.join(SIZES)}")
    file = resources.files("llmcourse_labs.capstone").joinpath(f"{size}.toml")
    return file.read_text(encoding="utf8")


def _made(kind: type, name: str, given: Any, **owned: Any) -> Any:
    """Make a section's dataclass of what a file says."""
    if not isinstance(given, dict):
        raise ValueError(f"{name} = {given!r} must be a section: write [{name}] above its settings")
    run = kind if issubclass(kind, Settings) else None  # flat, as flags are
    hints = {n: s.hint for n, s in settings_of(run).items()} if run else get_type_hints(kind)
    allowed = [key for key in hints if key not in OWNED.get(name, ())]
    _refuse_unknown(f"[{name}]", given, allowed)
    for key, value in given.items():
        _refuse_misfit(f"[{name}] {key}", value, hints[key])
    needed = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]
    if missing := [key for key in needed if key not in {**owned, **given}]:
        raise ValueError(f"[{name}] needs {', '.join(missing)}")
    try:
        return (run.of if run else kind)(**{**owned, **given})
    except ValueError as error:
        raise ValueError(f"[{name}] {error}") from error


def _refuse_unknown(where: str, given: dict[str, Any], allowed: Any) -> None:
    for key in given:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1)
            instead = f"did you mean {near[0]}?" if near else f"it may have {', '.join(allowed)}"
            raise ValueError(f"{where} has no setting {key!r}: {instead}")


def _refuse_misfit(name: str, value: Any, hint: Any) -> None:
    """Refuse a value of another type; true stands for no number."""
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    elif hint in (int, float, str, bool):
        if type(value) not in ((int, float) if hint is float else (hint,)):
            raise ValueError(f"{name} must be of type {hint.__name__}, got {value!r}")
    else:
        raise ValueError(f"{name} cannot be set here: leave it out")
