"""What a step of the funnel is: a judgement of one text after the other, with counts and reasons.

    judge(text) -> the text that goes on, perhaps changed, or Dropped with the reason

A judge knows nothing of streams, and `filtered` nothing of texts.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

EXAMPLES = 3
"""Of each reason, how many dropped texts are kept to be shown."""

EXCERPT = 300
"""Characters of a text in an example."""


class Document(NamedTuple):
    """A text, and a name for it that no other text of the corpus has."""

    id: str
    text: str


class Dropped(NamedTuple):
    """Why a text does not go on."""

    reason: str
    """A few words, the same for all texts that fail the same rule."""
    detail: str = ""
    """What was found in this text, such as "mean word length 12.3, at most 10"."""


Filter = Callable[[str], str | Dropped]
"""A step for one text."""


class Example(NamedTuple):
    """A text that was dropped."""

    id: str
    detail: str
    excerpt: str
    """Its beginning."""


@dataclass(kw_only=True)
class StepStats:
    """What a step has done so far."""

    name: str
    """Of the step."""
    taken: int = 0
    """Documents that came."""
    kept: int = 0
    """Documents that went on."""
    changed: int = 0
    """Documents that went on with another text."""
    taken_bytes: int = 0
    """Of the texts that came, in UTF-8."""
    kept_bytes: int = 0
    """Of the texts that went on, in UTF-8."""
    seconds: float = 0.0
    """Inside the step; the sum over processes."""
    reasons: dict[str, int] = field(default_factory=dict)
    """How many documents were dropped for each reason."""
    examples: dict[str, list[Example]] = field(default_factory=dict)
    """The first few of them."""

    def note(self, document: Document, outcome: str | Dropped) -> None:
        """Count one document."""
        self.taken += 1
        self.taken_bytes += num_bytes(document.text)
        if isinstance(outcome, Dropped):
            self.reasons[outcome.reason] = self.reasons.get(outcome.reason, 0) + 1
            shown = self.examples.setdefault(outcome.reason, [])
            if len(shown) < EXAMPLES:
                shown.append(Example(document.id, outcome.detail, document.text[:EXCERPT]))
        else:
            self.kept += 1
            self.kept_bytes += num_bytes(outcome)
            self.changed += outcome != document.text

    def add(self, other: "StepStats") -> None:
        """Take in what the same step did to the documents that came after these.

        Raises:
            ValueError: if it is another step.
        """
        if other.name != self.name:
            raise ValueError(f"tallies of two steps, {self.name!r} and {other.name!r}, do not add")
        for name in ("taken", "kept", "changed", "taken_bytes", "kept_bytes", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
            shown = [*self.examples.get(reason, []), *other.examples.get(reason, [])]
            self.examples[reason] = shown[:EXAMPLES]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; `from_dict` undoes it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "StepStats":
        """Return what `as_dict` was made of, also after JSON made lists of its tuples."""
        examples = {r: [Example(*each) for each in e] for r, e in plain["examples"].items()}
        return cls(**{**plain, "examples": examples})


def num_bytes(text: str) -> int:
    """Return the length of a text in UTF-8; half a surrogate pair counts as three bytes."""
    return len(text.encode("utf8", "surrogatepass"))


def filtered(documents: Iterable[Document], judge: Filter, tally: StepStats) -> Iterator[Document]:
    """Yield the documents that go on, in their order, and count all in a tally."""
    for document in documents:
        began = time.perf_counter()
        outcome = judge(document.text)
        tally.seconds += time.perf_counter() - began
        tally.note(document, outcome)
        if not isinstance(outcome, Dropped):
            yield document._replace(text=outcome)
