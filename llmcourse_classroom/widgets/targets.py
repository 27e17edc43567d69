"""A widget about what is predicted: tokens, their targets, and which of them count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import traitlets

from llmcourse_classroom.state import Choice, Named, Whole
from llmcourse_classroom.widget import Widget

MOST_TOKENS = 48
"""Positions of a strip: what a page can show with every token legible."""

MOST_STRIPS = 12
LONGEST_TOKEN = 200


@dataclass(frozen=True)
class Strip:
    """A row of tokens as a model reads it.

    Raises:
        ValueError: if there are no tokens or too many, one is empty or too long, or roles and
            documents are not as many as the tokens.
    """

    name: str
    """What the choice calls it."""
    tokens: Sequence[str]
    """The text of every token: 1 to 48."""
    roles: Sequence[str] = ()
    """Who wrote each token: "assistant" is what can be learned alone.  None given: "text"."""
    documents: Sequence[int] = ()
    """The document of each token, below 0 for padding.  None given: all are document 0."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.tokens) <= MOST_TOKENS:
            raise ValueError(
                f"strip {self.name!r}: 1 to {MOST_TOKENS} tokens, not {len(self.tokens)}; cut it"
            )
        for t, token in enumerate(self.tokens):
            if not (isinstance(token, str) and 0 < len(token) <= LONGEST_TOKEN):
                raise ValueError(
                    f"strip {self.name!r}: token {t} must be a string of 1 to {LONGEST_TOKEN} "
                    f"characters, not {token!r:.60}"
                )
        for name in ("roles", "documents"):
            given = getattr(self, name)
            if len(given) not in (0, len(self.tokens)):
                raise ValueError(
                    f"strip {self.name!r}: {len(self.tokens)} tokens but {len(given)} {name}"
                )

    def plain(self) -> dict[str, Any]:
        """Return what travels to the page."""
        count = len(self.tokens)
        return {
            "name": self.name,
            "tokens": list(self.tokens),
            "roles": list(self.roles) or ["text"] * count,
            "documents": [int(document) for document in self.documents] or [0] * count,
        }


class TokenStrip(Widget):
    """Tokens with the target of each position, and whether it counts in the loss.

    Args:
        strips: 1 to 12 rows to choose from, each a `Strip` or a mapping with its fields.
        state: `strip` (a name), `position`, `shift` (0, 1 or 2; 1 is right), `learn`, `separate`.

    Raises:
        ValueError: if there are no strips or too many, two have the same name, or one is not right.
    """

    Strip: ClassVar = Strip

    script = "token_strip.js"
    alt = (
        "A row of tokens.  Below each stands its target, the token that comes next, and whether it "
        "counts in the loss: not at the end of the row, not in padding, not across documents, and "
        "in a conversation only where the assistant wrote the target."
    )

    strips = traitlets.List(traitlets.Dict()).tag(sync=True)
    strip = Named().tag(sync=True)
    position = Whole(0, low=0, high=MOST_TOKENS - 1, step=1, label="position")
    shift = Whole(1, low=0, high=2, step=1, label="shift of the targets")
    learn = Choice(("all tokens", "assistant", "assistant without end"))
    separate = traitlets.Bool(True).tag(sync=True)

    def __init__(self, strips: Sequence[Strip | Mapping[str, Any]], **state: Any) -> None:
        made = [each if isinstance(each, Strip) else Strip(**each) for each in strips]
        if not 1 <= len(made) <= MOST_STRIPS:
            raise ValueError(f"1 to {MOST_STRIPS} strips, not {len(made)}")
        names = [each.name for each in made]
        if len(set(names)) < len(names):
            raise ValueError(f"every strip needs a name of its own, not {names}")
        start = {"strip": names[0], "position": min(4, len(made[0].tokens) - 1)}
        strips = [each.plain() for each in made]
        super().__init__(strips=strips, bounds={"strip": names}, **(start | state))
