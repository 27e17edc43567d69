"""A conversation with a model: what was said so far, as much of it as the context holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llmcourse.base.arguments import require
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer, generate
from llmcourse.train.sampling import load_run
from llmcourse_labs.real import load_huggingface
from llmcourse_labs.real.huggingface_tokenizer import read_tokenizer_json
from llmcourse_labs.real.serve import TextStream
from llmcourse_labs.real.template import Template
from llmcourse_labs.tuning.chat_format import Turn, require_chat_tokens
from llmcourse_labs.tuning.conversations import template_of
from llmcourse_labs.tuning.sft import answer_ends, prompt_ids


def load_for_chat(folder: str | Path) -> tuple[Transformer, Tokenizer, Template | None]:
    """Return model, tokenizer and template of a fine-tuned run, or of the folder of its export.

    The template is None where conversations have the form of our own runs.

    Raises:
        ValueError: if the folder holds neither, or a model that has not learnt to talk.
    """
    folder = Path(folder)
    if (folder / "tokenizer.json").is_file():
        model, tokenizer = load_huggingface(folder).eval(), read_tokenizer_json(folder)
    else:
        config, model, tokenizer = load_run(folder)
        if (template := template_of(config)) is not None:
            return model, tokenizer, template
    require_chat_tokens(tokenizer.special_tokens)
    return model, tokenizer, None


class Conversation:
    """A user and a model in turns.

    The model reads as many of the last turns as fit into its context beside the answer, beginning
    with one of the user's.

    Args:
        model: that has learnt to answer.
        tokenizer: with the chat tokens, or those of the template.
        template: of a model of others; None is the form of our own runs.
        most_tokens: of an answer, 1 or more.
        temperature: of the draws; 0 takes the likeliest token.
        seed: of the draws.

    Raises:
        ValueError: if the tokenizer lacks a chat token, or a number is outside its range.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        template: Template | None = None,
        *,
        most_tokens: int = 40,
        temperature: int | float = 0.0,
        seed: int = 0,
    ) -> None:
        self.end_ids = answer_ends(tokenizer, template)
        require("tokens", most_tokens, least=1, below=model.config.context_length)
        require("seed", seed, least=0, below=2**63)
        self.model, self.tokenizer, self.template = model, tokenizer, template
        self.most_tokens = most_tokens
        self.generator = torch.Generator().manual_seed(seed)
        self.turns: list[Turn] = []
        self.set_temperature(temperature)

    def set_temperature(self, temperature: int | float) -> None:
        """Draw the next answers at another temperature.

        Raises:
            ValueError: if it is negative, or not a finite number.
        """
        require("temperature", temperature, least=0, below=float("inf"))
        self.temperature = temperature

    def reset(self) -> None:
        """Forget what was said."""
        self.turns = []

    @property
    def remembered(self) -> list[Turn]:
        """The last turns that the model can read and still answer."""
        room = self.model.config.context_length - self.most_tokens
        turns = list(self.turns)
        while len(turns) > 1 and len(self._ids(turns)) > room:
            turns = turns[1:]
            while turns[0].role == "assistant" and len(turns) > 1:
                turns = turns[1:]
        return turns

    def _ids(self, turns: list[Turn]) -> list[int]:
        """Return turns as the model reads them that has to speak now."""
        return prompt_ids(turns, self.tokenizer, self.template)

    def answer(self, said: str, write: Callable[[str], Any] = lambda _: None) -> str:
        """Return what the model answers; both turns belong to the conversation then.

        Args:
            said: by the user.
            write: is given the answer piece by piece, each character when its last byte is drawn.

        Raises:
            ValueError: if nothing was said, or more than the context holds beside an answer; the
                conversation is then as before.
        """
        if not said.strip():
            raise ValueError("nothing was said: write something")
        self.turns.append(Turn("user", said.strip()))
        try:
            ids = self._ids(self.remembered)
            room = self.model.config.context_length - self.most_tokens
            if len(ids) > room:
                raise ValueError(
                    f"that makes {len(ids)} tokens, and the context has room for {room} beside an "
                    "answer: say it in fewer words"
                )
            text = self._answered(ids, write)
        except BaseException:
            self.turns.pop()
            raise
        self.turns.append(Turn("assistant", text))
        return text

    def _answered(self, ids: list[int], write: Callable[[str], Any]) -> str:
        """Draw an answer, and write it."""
        stream = TextStream(self.tokenizer)
        pieces: list[str] = []

        def on_text(text: str) -> None:
            pieces.append(text)
            write(text)

        generate(
            self.model,
            torch.tensor([ids]),
            max_new_tokens=self.most_tokens,
            generator=self.generator,
            temperature=self.temperature,
            stop_id=self.end_ids,
            on_token=lambda drawn_11: on_text(stream.feed([int(drawn_11)])),
        )
        on_text(stream.end())
        return "".join(pieces).strip()
