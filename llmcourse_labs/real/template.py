"""How a model of others writes a conversation: its own chat template, in Jinja.

template = Template(source, tokens={"eos_token": "<|im_end|>"})
template.render([{"role": "user", "content": "Hello"}], add_generation_prompt=True)
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from llmcourse.data.tokenizer import Tokenizer

MOST_SOURCE = 200_000
"""Characters of a template; those of models in use have 300 to 30,000."""

Message = Mapping[str, Any]


class Template:
    """A chat template of a model.

    Args:
        source: in Jinja.
        tokens: strings that the template may name: bos_token, eos_token, ...

    Raises:
        ValueError: if jinja2 is missing, or the template is too long or broken.
    """

    def __init__(self, source: str, *, tokens: Mapping[str, str]) -> None:
        try:
            from llmcourse_labs.real import template_sandbox as sandbox  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ValueError(
                "a model's chat template needs jinja2: pip install 'llmcourse[real]'"
            ) from error
        if len(source) > MOST_SOURCE:
            raise ValueError(
                f"the model's chat template has {len(source):,} characters: at most "
                f"{MOST_SOURCE:,} are read"
            )
        self.source, self.tokens = source, dict(tokens)
        self._refusals = sandbox.REFUSALS
        self._lock = threading.Lock()
        self._environment = sandbox.Sandbox()
        try:
            self._compiled = self._environment.from_string(source)
        except self._refusals as error:
            raise ValueError(f"the model's chat template cannot be read: {_line(error)}") from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return a conversation as text.

        Args:
            messages: each with a role, mostly "system", "user" or "assistant", and a content.
            add_generation_prompt: whether the assistant has to speak next.
            tools: that the model may call, as JSON schemas.

        Raises:
            ValueError: if there is no message, or the template refuses or fails.
        """
        return self._rendered(_plain(messages), add_generation_prompt, _json(tools))

    def ids(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        *,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        """Return a conversation as ids."""
        return tokenizer.encode(self.render(messages, add_generation_prompt=add_generation_prompt))

    def stop_ids(self, tokenizer: Tokenizer) -> frozenset[int]:
        """Return the ids that end an answer."""
        end = self.tokens.get("eos_token")
        return frozenset({tokenizer.special_tokens[end]} if end else ())

    def _rendered(self, messages: list[Any], add_generation_prompt: bool, tools: Any) -> str:
        given = {"messages": messages, "tools": tools, "documents": None}
        try:
            with self._lock:
                self._environment.begin()
                return self._compiled.render(
                    **self.tokens, **given, add_generation_prompt=add_generation_prompt
                )
        except self._refusals as error:
            raise ValueError(f"the model's chat template fails: {_line(error)}") from error


def _line(error: BaseException) -> str:
    """Return what an error says in one short line."""
    return " ".join(f"{error or type(error).__name__}".split())[:300]


_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names under which messages hold what a model thought, the first of them the usual one."""


def _plain(messages: Sequence[Message]) -> list[Any]:
    """Return messages as JSON holds them, without what is None."""
    if isinstance(messages, str) or not messages:
        raise ValueError(f"a conversation has one message or more, got {messages!r}")
    made = []
    for message in messages:
        if not isinstance(message, Mapping):
            raise ValueError(f"a message has a role and a content, got {message!r}")
        kept = {name: _json(value) for name, value in message.items() if value is not None}
        thought = [kept[name] for name in _REASONING if name in kept]
        if thought:
            kept = {"thinking": thought[0], **kept, "reasoning_content": thought[0]}
        made.append(kept)
    return made


def _json(value: Any) -> Any:
    """Return a value if JSON has it, as a copy of plain types."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {_json(name): _json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_json, value))
    raise ValueError(f"a message holds what JSON has: got a {type(value).__name__}")
