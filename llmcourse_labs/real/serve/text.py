"""Text from tokens as they come: whole characters only, and nothing of a stop string."""

import codecs
from collections.abc import Iterable, Sequence

from llmcourse.data.tokenizer import Tokenizer
from llmcourse_labs.real.tokenizer_parts import shown_ids


class TextStream:
    """Turns the growing ids of one answer into text that may be shown at once.

    Pieces may end anywhere: put together, they are the text of all ids, up to the stop string that
    is complete first.  Special tokens are silent, but for those that belong to what a model says.

    Args:
        tokenizer: of the model.
        stop: strings that end the text; they, and what may be their beginning, are not shown.

    Raises:
        ValueError: if a stop string is empty.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        if "" in stop:
            raise ValueError("a stop string is empty: leave it out, or give a character")
        self.stop = stop
        self.stopped = False
        """Whether a stop string came; nothing is shown from then on."""
        self._bytes_of = tokenizer.vocab
        self._silent = set(tokenizer.special_tokens.values()) - shown_ids(tokenizer)
        self._decoder = codecs.getincrementaldecoder("utf8")(errors="replace")
        self._held = ""

    def feed(self, ids: Iterable[int]) -> str:
        """Return what may be shown after these tokens, each character with its last byte."""
        # The rows of a padded vocabulary have no bytes.
        new = b"".join(self._bytes_of.get(i, b"") for i in ids if i not in self._silent)
        return self._shown(self._decoder.decode(new), is_end=False)

    def end(self) -> str:
        """Return what was held back; an unfinished character becomes a replacement character."""
        return self._shown(self._decoder.decode(b"", final=True), is_end=True)

    def _shown(self, new: str, *, is_end: bool) -> str:
        """Return what of the text held so far, and the new one, can no longer be a stop string."""
        if self.stopped:
            return ""
        text = self._held + new
        # The first to be complete, however the text comes in pieces; then the longest.
        ends = [(at + len(s), at) for s in self.stop if (at := text.find(s)) >= 0]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)[1]]
        shown = len(text)
        if not is_end:
            starts = range(max(0, len(text) - max(map(len, self.stop), default=0)), len(text))
            shown = next((at for at in starts if self._may_begin(text[at:])), len(text))
        self._held = text[shown:]
        return text[:shown]

    def _may_begin(self, text: str) -> bool:
        """Return whether a stop string begins so."""
        return any(s.startswith(text) for s in self.stop)
