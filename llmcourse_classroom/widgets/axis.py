"""A widget about the axis of losses: where models end, what they write, and what they expect."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import traitlets

from llmcourse_classroom.state import Named, Whole
from llmcourse_classroom.widget import Widget

MOST_MODELS = 12
MOST_SAMPLES = 5
LONGEST_NAME = 40
MOST_TOKENS = 8
"""Tokens that a model expects, for one beginning."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model of the axis.

    Raises:
        ValueError: if the name is too long, there are no samples or too many, or a number is none.
    """

    name: str
    """What the choice calls it."""
    loss: float
    """The mean over seeds, in nats per token."""
    spread: float
    """Half the distance between the extreme seeds; 0 where there is no chance."""
    knows: str
    """What it can know, after the words "It can know"."""
    misses: str
    """What it cannot know, after the words "It cannot know"."""
    samples: Sequence[str]
    """What it wrote: 1 to 5 texts, as many for every model."""
    expects: Sequence[Sequence[tuple[str, float]]]
    """For each beginning its likeliest next tokens with their probabilities: 1 to 8."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= LONGEST_NAME:
            raise ValueError(f"a name has 1 to {LONGEST_NAME} characters, not {self.name!r:.80}")
        for name in ("loss", "spread"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(
                    f"{self.name}: {name} must be finite and at least 0, not {getattr(self, name)}"
                )
        if not 1 <= len(self.samples) <= MOST_SAMPLES:
            raise ValueError(
                f"{self.name}: give 1 to {MOST_SAMPLES} samples, not {len(self.samples)}"
            )
        for expected in self.expects:
            if not 1 <= len(expected) <= MOST_TOKENS:
                raise ValueError(
                    f"{self.name}: give 1 to {MOST_TOKENS} tokens for each beginning, "
                    f"not {len(expected)}"
                )
            if not all(0 <= p <= 1 for _, p in expected):
                raise ValueError(f"{self.name}: probabilities are from 0 to 1: {expected}")

    def plain(self) -> dict[str, Any]:
        """Return what travels to the page, rounded."""
        return {
            "name": self.name,
            "loss": round(float(self.loss), 6),
            "spread": round(float(self.spread), 6),
            "knows": self.knows,
            "misses": self.misses,
            "samples": list(self.samples),
            "expects": [[[token, round(float(p), 4)] for token, p in row] for row in self.expects],
        }


class LossAxis(Widget):
    """The axis of losses with its models: pick one, read it, see what it expects next.

    Args:
        models: 2 to 12, each a `Model` or a mapping with its fields.
        beginnings: texts, all different, for which each model says what it expects next.
        floor: the entropy of the text, in nats per token.
        vocab_size: V; a model that knows nothing is at ln V.
        state: `model` (a name), `beginning`, `sample` (from 1).

    Raises:
        ValueError: if there are too few or too many models, two have the same name, or they
            differ in how many samples or beginnings they have.
    """

    Model: ClassVar = Model

    script = "loss_axis.js"
    alt = (
        "The models of the page on an axis of losses, from knowing nothing down to the floor.  "
        "For the chosen one: a text that it wrote, what it expects after a beginning, and what it "
        "can and cannot know."
    )

    models = traitlets.List(traitlets.Dict()).tag(sync=True)
    beginnings = traitlets.List(traitlets.Unicode()).tag(sync=True)
    floor = traitlets.Float().tag(sync=True)
    vocab_size = traitlets.Int().tag(sync=True)
    model = Named().tag(sync=True)
    beginning = Named().tag(sync=True)
    sample = Whole(1, low=1, high=MOST_SAMPLES, step=1, label="sample")

    def __init__(
        self,
        models: Sequence[Model | Mapping[str, Any]],
        beginnings: Sequence[str],
        *,
        floor: float,
        vocab_size: int = 768,
        **state: Any,
    ) -> None:
        # Each is checked when it is made; what follows is about them together.
        made = [each if isinstance(each, Model) else Model(**each) for each in models]
        if not 2 <= len(made) <= MOST_MODELS:
            raise ValueError(f"give 2 to {MOST_MODELS} models, not {len(made)}")
        names = [each.name for each in made]
        if len(set(names)) < len(names):
            raise ValueError(f"every model needs a name of its own, not {names}")
        if not beginnings or len(set(beginnings)) < len(beginnings):
            raise ValueError(f"give one beginning or more, all different, not {list(beginnings)}")
        # A beginning or a sample is chosen for all models, so each has as many.
        for each in made:
            if len(each.expects) != len(beginnings):
                raise ValueError(
                    f"{each.name} has what it expects after {len(each.expects)} beginnings, "
                    f"and there are {len(beginnings)}"
                )
        num_samples = {len(each.samples) for each in made}
        if len(num_samples) > 1:
            raise ValueError(f"every model needs as many samples, not {sorted(num_samples)}")
        # The page opens with the last model, unless `state` names another.
        start = {"model": names[-1], "beginning": beginnings[0]}
        bounds = {"model": names, "beginning": beginnings, "sample": num_samples.pop()}
        super().__init__(
            models=[each.plain() for each in made],
            beginnings=list(beginnings),
            floor=floor,
            vocab_size=vocab_size,
            bounds=bounds,
            **(start | state),
        )
