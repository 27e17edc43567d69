"""Widgets about text that becomes tokens, and documents that become rows."""

from collections.abc import Sequence
from typing import Any

import traitlets

from llmcourse import data
from llmcourse.data.tokenizer import GPT2, LLAMA3, Tokenizer
from llmcourse.data.tokenizer.patterns import utf8
from llmcourse_classroom.state import Choice, Whole
from llmcourse_classroom.widget import Widget

MOST_TOKENS = 2_000
"""Ids of a tokenizer whose merges still travel in a page of 60 kB."""

MOST_CHARACTERS = 200
"""Characters of the text that the page shows as tiles."""

MOST_DOCUMENTS = 64
MOST_DOCUMENT_TOKENS = 8_192
"""Tokens of all documents of a board together."""

_PATTERNS = {GPT2: "GPT2", LLAMA3: "LLAMA3"}
_METHODS = {
    "one_per_row": data.one_per_row,
    "concatenate_and_cut": data.concatenate_and_cut,
    "pack": data.pack,
}


class MergeBoard(Widget):
    """Text in tiles, one per byte, that join merge by merge as the encoder joins them.

    The state holds the tokenizer, the text and the number of merges applied; the picture follows
    from them.

    Args:
        tokenizer: at most 2,000 ids, with the pattern `GPT2` or `LLAMA3`.  A larger one is cut with
            `Tokenizer.from_merges(tokenizer.merges[:512])`.
        text: what stands in the field at first, at most 200 characters.

    Raises:
        ValueError: if the tokenizer is too large or has another pattern, or the text holds half of
            a surrogate pair.
    """

    script = "merge_board.js"
    alt = (
        "A text cut into words, each a row of tiles, one for each byte.  Merge by merge, in the "
        "order in which they were learnt, two neighbouring tiles become one, until no pair of "
        "neighbours has a merge: those tiles are the tokens."
    )

    text = traitlets.Unicode().tag(sync=True)
    applied = Whole(0, low=0, high=4 * MOST_CHARACTERS, step=1, label="merges applied")
    pattern = Choice(("GPT2", "LLAMA3"))
    tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The bytes of every id, in hexadecimal digits."""
    merges = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)
    """The ids of every merge, in order: left, right, made."""
    special_tokens = traitlets.Dict().tag(sync=True)
    """String to id."""

    def __init__(
        self, tokenizer: Tokenizer, text: str = "the tea then the teas", **state: Any
    ) -> None:
        if not isinstance(tokenizer, Tokenizer):
            raise TypeError(f"tokenizer must be a Tokenizer, not a {type(tokenizer).__name__}")
        if tokenizer.vocab_size > MOST_TOKENS:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size:,} ids, and a page holds at most "
                f"{MOST_TOKENS:,}: give Tokenizer.from_merges(tokenizer.merges[:512])"
            )
        if tokenizer.pattern not in _PATTERNS:
            raise ValueError("the page cuts words by the pattern GPT2 or LLAMA3, by no other")
        super().__init__(
            text=text, pattern=_PATTERNS[tokenizer.pattern], **_rules(tokenizer), **state
        )

    @traitlets.validate("text")
    def _shortened(self, proposal: dict[str, Any]) -> str:
        text = proposal["value"]
        utf8(text)  # raises for half of a surrogate pair
        if len(text) > MOST_CHARACTERS:
            self.note = (
                f"The text has {len(text):,} characters; the first {MOST_CHARACTERS} are used."
            )
        return text[:MOST_CHARACTERS]


def _rules(tokenizer: Tokenizer) -> dict[str, Any]:
    specials = set(tokenizer.special_tokens.values())
    of_id = [tokenizer.vocab.get(i, b"") for i in range(tokenizer.vocab_size)]
    id_of = {token: i for i, token in tokenizer.vocab.items() if i not in specials}
    return {
        "tokens": [token.hex() for token in of_id],
        "merges": [[id_of[a], id_of[b], id_of[a + b]] for a, b in tokenizer.merges],
        "special_tokens": tokenizer.special_tokens,
    }


class PackingBoard(Widget):
    """Documents of different lengths go into rows of one length, by one of three methods.

    The state holds the lengths, the method and how many pieces are placed; the picture follows
    from them.

    Args:
        lengths: tokens of every document: at most 64 documents and 8,192 tokens together.
        context_length: tokens that a row has room for, 1 to 512.

    Raises:
        ValueError: if there are no tokens, too many, or a negative length.
    """

    script = "packing_board.js"
    alt = (
        "Documents as bars in rows of one length.  One document to a row leaves much padding; "
        "joined and cut leaves none but cuts documents; packed, the longest first, leaves little "
        "and cuts none that fits.  A triangle shows which tokens of a row may look at which."
    )

    lengths = traitlets.List(traitlets.Int()).tag(sync=True)
    method = Choice(tuple(_METHODS))
    context_length = Whole(64, low=1, high=512, step=1, label="context length")
    placed = Whole(0, low=0, high=MOST_DOCUMENT_TOKENS, step=1, label="pieces placed")
    row = Whole(1, low=1, high=MOST_DOCUMENT_TOKENS, step=1, label="row")

    def __init__(self, lengths: Sequence[int], context_length: int, **state: Any) -> None:
        super().__init__(lengths=list(lengths), context_length=context_length, **state)
        if "placed" not in state:
            packing = _METHODS[self.method](self.lengths, self.context_length)
            self.placed = sum(map(len, packing.rows))

    @traitlets.validate("lengths")
    def _possible(self, proposal: dict[str, Any]) -> list[int]:
        lengths = proposal["value"]
        if len(lengths) > MOST_DOCUMENTS:
            raise ValueError(f"at most {MOST_DOCUMENTS} documents, not {len(lengths)}: give fewer")
        for document, length in enumerate(lengths):
            if length < 0:
                raise ValueError(f"document {document} has {length} tokens; give 0 or more")
        if not 0 < sum(lengths) <= MOST_DOCUMENT_TOKENS:
            raise ValueError(
                f"the documents have {sum(lengths):,} tokens together; give 1 to "
                f"{MOST_DOCUMENT_TOKENS:,}"
            )
        return lengths
