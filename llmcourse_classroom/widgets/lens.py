"""A widget about the logit lens: which next tokens a model would give after each of its layers."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import traitlets
from jaxtyping import Float
from torch import Tensor

from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.state import Named, Whole
from llmcourse_classroom.widget import Widget

MOST_TOKENS = 24
"""Of a beginning."""
CANDIDATES = 5
"""Likeliest tokens of a layer."""
LEAST = 0.01
"""Probability of a candidate that is kept, the first apart."""


@torch.no_grad()
def seen_by_layers(decoder: Transformer, tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """Return what the lens sees in a text, at every token of it; see `reading`.

    p = softmax(head(norm(x))),  x the residual stream before the first layer and after each
    """
    ids = tokenizer.encode(text)
    rotations_TJ2 = decoder.rotations_of(len(ids))
    streams = [decoder.look_up(torch.tensor([ids]), decoder.embedding)]
    for block in decoder.blocks:
        streams.append(block(streams[-1], rotations_TJ2))
    logits_LTV = decoder.project(decoder.norm(torch.cat(streams)), decoder.head_weight)
    return reading(tokenizer, ids, logits_LTV)


def reading(
    tokenizer: Tokenizer, ids: Sequence[int], logits_LTV: Float[Tensor, "L T V"]
) -> dict[str, Any]:
    """Return what the lens sees in some tokens, as short as the picture lets it be.

    Args:
        tokenizer: of the model.
        ids: what it reads.
        logits_LTV: of the next token before the first layer and after each, at every token.

    Returns:
        `tokens`, the texts of the ids; `words`, the texts of all candidates; and `layers`, for
        each token a text "place,word,share,word,share,...|..." with a part for each layer: the
        place, from 1, of the token that is likeliest in the end, then the numbers of the
        candidates among the words and their shares in whole per cent.
    """
    # Places by logits: before the first layer most probabilities are too small for a float32.
    final_1T1 = logits_LTV[-1:].argmax(-1, keepdim=True)
    of_final_LT1 = logits_LTV.gather(-1, final_1T1.expand(len(logits_LTV), -1, 1))
    places_TL = (1 + (logits_LTV > of_final_LT1).sum(-1)).T.tolist()
    best = logits_LTV.softmax(-1).topk(CANDIDATES)
    shares, candidates = (each.transpose(0, 1).tolist() for each in best)
    kept = [
        [
            [(i, p) for i, p in zip(of_layer, shares_of_layer, strict=True) if p >= LEAST]
            or [(of_layer[0], shares_of_layer[0])]
            for of_layer, shares_of_layer in zip(*of_token, strict=True)
        ]
        for of_token in zip(candidates, shares, strict=True)
    ]
    counts = Counter(i for of_token in kept for layer in of_token for i, _ in layer)
    numbers = {i: number for number, (i, _) in enumerate(counts.most_common())}

    def written(place: int, layer: list[tuple[int, float]]) -> str:
        return ",".join([f"{place}", *(f"{numbers[i]},{100 * p:.0f}" for i, p in layer)])

    return {
        "tokens": [tokenizer.decode([i]) for i in ids],
        "words": [tokenizer.decode([i]) for i in numbers],
        "layers": ["|".join(map(written, *each)) for each in zip(places_TL, kept, strict=True)],
    }


class LensBoard(Widget):
    """The logit lens on SmolLM2: what it would say after each of its layers.

    The beginnings are recorded.  With the model at hand, a reader may type others in a notebook.

    Args:
        model: decoder and tokenizer of the recorded model, as `open_model` returns them.
        state: beginning (a recorded one), token (of it, from 1), layer (0 is before the first).

    Raises:
        ValueError: if the model is another one.
    """

    script = "lens_board.js"
    alt = (
        "The layers of SmolLM2, one below the other, each with the token that it would give next "
        "and with the place of the token that the model chooses in the end.  Beside them a lens "
        "on one layer: its five likeliest tokens, which change their order from layer to layer."
    )

    readings = traitlets.List(traitlets.Dict()).tag(sync=True)
    vocab_size = traitlets.Int().tag(sync=True)
    beginning = Named().tag(sync=True)
    token = Whole(1, low=1, high=MOST_TOKENS, step=1, label="token of it")
    layer = Whole(0, low=0, high=256, step=1, label="after layer")
    typed = traitlets.Unicode("").tag(sync=True)
    """A beginning of the reader's own."""
    types = traitlets.Bool(False).tag(sync=True)
    """Whether there is a model that could read one."""

    def __init__(self, model: Sequence[Any] | None = None, **state: Any) -> None:
        found = recorded_runs("lens")
        readings = [{"name": name, **of["0"]} for name, of in found["readings"].items()]
        lengths = {each["name"]: len(each["tokens"]) for each in readings}
        num_layers, vocab_size = found["settings"]["layers"], found["settings"]["vocab_size"]
        self._model = model
        if model is not None:
            shape = (model[0].config.num_layers, model[0].config.vocab_size)
            if shape != (num_layers, vocab_size):
                raise ValueError(
                    f"the recorded model has {num_layers} layers and {vocab_size} tokens, not "
                    f"{shape[0]} and {shape[1]}: give open_model({found['settings']['model']!r})"
                )
        start = {"beginning": next(iter(lengths)), "layer": num_layers} | state
        most = max(lengths.values()) if model is None else MOST_TOKENS
        super().__init__(
            readings=readings,
            vocab_size=vocab_size,
            types=model is not None,
            bounds={"beginning": list(lengths), "layer": num_layers, "token": most},
            **({"token": lengths.get(start["beginning"], 1)} | start),
        )

    def state(self) -> dict[str, Any]:
        """Return the state; in a page nobody is there who could read what is typed."""
        return super().state() | {"types": False}

    @traitlets.observe("typed")
    def _read(self, _: Any) -> None:
        """Look at what was typed, and choose it."""
        if self._model is None or not self.typed:
            return
        decoder, tokenizer, *_ = self._model
        num_tokens = len(tokenizer.encode(self.typed))
        if num_tokens > MOST_TOKENS:
            self.note = f"{num_tokens} tokens are too many: at most {MOST_TOKENS} are looked at."
            return
        self.note = ""
        made = {"name": self.typed, **seen_by_layers(decoder, tokenizer, self.typed)}
        self.readings = [*self.readings, made]
        self.bounds["beginning"] = [each["name"] for each in self.readings]
        self.beginning = self.typed
