"""How a model of others writes a conversation: its own chat template, in Jinja.

template = Template(source, tokens={"eos_token": "<|im_end|>"})
template.render([{"role": "user", "content": "Hello"}], add_generation_prompt=True)
"""

import itertools
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from llmcourse.data.tokenizer import Tokenizer
from llmcourse_labs.real.marked_text import WRITTEN, Marked, hidden, marks_of, runs

MOST_SOURCE = 100_000
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
        self._sandbox = sandbox
        self._lock = threading.Lock()
        self._environment = sandbox.Sandbox()
        try:
            self._compiled = self._environment.from_string(source)
        except sandbox.REFUSALS as error:
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
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[int]:
        """Return a conversation as ids.

        What stands between the template's own special tokens is encoded as plain text, and so is
        a control string that a message or a tool says: who types ``<|im_end|>`` has typed ten
        characters.

        Args:
            messages: as of `render`.
            tokenizer: of the model.
            add_generation_prompt: whether the assistant has to speak next.
            tools: as of `render`.

        Raises:
            ValueError: as `render`; or if what the template does with messages hides which text is
                its own.
        """
        marked = self._marked(
            messages, tokenizer, add_generation_prompt=add_generation_prompt, tools=tools
        )
        return [i for _, _, ids, _ in _parts(marked, tokenizer) for i in ids]

    def learned(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> tuple[list[int], list[bool]]:
        """Return a conversation as ids, and which of them the assistant has to write.

        They are what stands in {% generation %} if the template has it.  Otherwise an answer begins
        where the generation prompt ends, and goes up to the first token that ends answers, which
        belongs to it.  A token with a character of an answer in it is learned.

        Args:
            messages: as of `render`; one or more are the assistant's.
            tokenizer: of the model.
            tools: as of `render`.

        Raises:
            ValueError: as `ids`; or if the assistant says nothing, or the template writes its
                turns otherwise when others follow.
        """
        answers = [i for i, m in enumerate(messages) if m.get("role") == "assistant"]
        if not answers:
            raise ValueError("a conversation to learn from has a message of the role 'assistant'")
        marked = self._marked(messages, tokenizer, tools=tools)
        parts = list(_parts(marked, tokenizer))
        if self._environment.has_generation:
            written = [ord(mark) >= WRITTEN for mark in marks_of(marked)]
        else:
            written = [False] * len(marked)
            stops = self.stop_ids(tokenizer)
            own = [(begin, end, ids[0]) for begin, end, ids, is_own in parts if is_own]
            for i in answers:
                prompt = self.render(messages[:i], add_generation_prompt=True, tools=tools)
                begin, end = _answer(i, marked, own, prompt, stops)
                written[begin:end] = [True] * (end - begin)
        all_ids: list[int] = []
        learned: list[bool] = []
        for begin, end, ids, is_own in parts:
            all_ids += ids
            said = written[begin:end]
            part = str.__str__(marked)[begin:end]
            learned += [any(said)] if is_own else _learned(part, ids, said, tokenizer)
        return all_ids, learned

    def stop_ids(self, tokenizer: Tokenizer) -> frozenset[int]:
        """Return the ids that end an answer: of the template's end of a turn, and of eos_token.

        Raises:
            ValueError: if there is none.
        """
        end = self.tokens.get("eos_token")
        found = {tokenizer.special_tokens[end]} if end in tokenizer.special_tokens else set()
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        with suppress(ValueError):  # a template may want other messages than these
            marked = self._marked(turns, tokenizer)
            said = marks_of(marked).rfind(_mark(1))
            parts = _parts(marked, tokenizer)
            ends = [ids[0] for begin, _, ids, is_own in parts if is_own and begin > said >= 0]
            found |= set(ends[:1])
        if not found:
            raise ValueError("the model's chat template ends answers with no special token")
        return frozenset(found)

    def _marked(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        *,
        add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return a conversation as text that knows what messages and tools said."""
        specials = _specials(tokenizer)
        plain, given = _plain(messages), _json(tools)
        said = [_said(message, _mark(i), specials) for i, message in enumerate(plain)]
        told = _said(given, _TOOLS, specials)
        made = self._rendered(said, add_generation_prompt, told, specials)
        if made != self._rendered(plain, add_generation_prompt, given):
            raise ValueError(
                "the model's chat template does something with messages that hides which text is "
                "its own: ids would be a guess"
            )
        return made

    def _rendered(
        self,
        messages: list[Any],
        add_generation_prompt: bool,
        tools: Any,
        specials: re.Pattern[str] | None = None,
    ) -> str:
        given = {"messages": messages, "tools": tools, "documents": None}
        try:
            with self._lock:
                self._environment.begin(specials)
                return self._compiled.render(
                    **self.tokens, **given, add_generation_prompt=add_generation_prompt
                )
        except self._sandbox.REFUSALS as error:
            raise ValueError(f"the model's chat template fails: {_line(error)}") from error


def _parts(text: str, tokenizer: Tokenizer) -> Iterator[tuple[int, int, list[int], bool]]:
    """Yield where each part of a text begins, ends, its ids, and whether it is a special token.

    What a message said, or has a part in, is no special token.
    """
    plain, last = str.__str__(text), 0
    for match in _specials(tokenizer).finditer(hidden(text)):
        begin, end = match.span()
        if last < begin:
            yield last, begin, tokenizer.encode(plain[last:begin], allow_special=False), False
        yield begin, end, [tokenizer.special_tokens[match[0]]], True
        last = end
    if last < len(text):
        yield last, len(text), tokenizer.encode(plain[last:], allow_special=False), False


def _learned(part: str, ids: list[int], written: list[bool], tokenizer: Tokenizer) -> list[bool]:
    """Return which tokens of a text have a character of an answer in them."""
    # How many characters of an answer begin before each byte, and after the last one.
    starts = np.frombuffer(part.encode(), np.uint8) & 0xC0 != 0x80
    character = np.cumsum(starts) - 1
    ends = np.cumsum(tokenizer.token_lengths[ids])
    first, last = character[np.r_[0, ends[:-1]]], character[ends - 1]
    before = np.cumsum([0, *written])
    return (before[last + 1] > before[first]).tolist()


def _specials(tokenizer: Tokenizer) -> re.Pattern[str]:
    """Return what finds special tokens: of those that begin at one place, the longest."""
    longest_first = sorted(tokenizer.special_tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _answer(
    i: int, text: str, own: list[tuple[int, int, int]], prompt: str, stops: frozenset[int]
) -> tuple[int, int]:
    """Return where the answer of message i begins and ends in a conversation."""
    said = [(mark - 1, *place) for mark, *place in runs(text) if 0 < mark < ord(_TOOLS)]
    first = min((begin for j, begin, _ in said if j == i), default=len(text))
    last = max((end for j, _, end in said if j == i), default=0)
    before = max((end for j, _, end in said if j < i), default=0)
    after = min((begin for j, begin, _ in said if j > i), default=len(text))
    same = itertools.takewhile(
        lambda pair: pair[0] == pair[1], zip(prompt, str.__str__(text), strict=False)
    )
    begin = min(sum(1 for _ in same), first)
    begin = next((start for start, end, _ in own if start < begin < end), begin)
    ends = [(start, end) for start, end, id in own if id in stops and start >= max(begin, last)]
    if not ends or ends[0][1] > after:
        raise ValueError(f"the model's chat template does not end the answer in message {i}")
    if begin < before or begin not in (len(prompt), first, ends[0][0]):
        raise ValueError(
            f"the model's chat template writes what stands before message {i} otherwise than when "
            "the model has to answer: learn from the conversation up to there on its own"
        )
    return begin, ends[0][1]


_TOOLS = chr(WRITTEN - 1)
"""The mark of what tools say, which are no message."""


def _mark(i: int) -> str:
    """Return the mark of what message i says."""
    return chr(i + 1)


def _said(value: Any, mark: str, specials: re.Pattern[str], name: str = "") -> Any:
    """Return a message with marks on its strings; who speaks is named by the template, too."""
    if isinstance(value, dict):
        return {Marked(k, mark * len(k)): _said(v, mark, specials, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_said(item, mark, specials) for item in value)
    if not isinstance(value, str) or (name in ("role", "type") and not specials.search(value)):
        return value
    return Marked(value, mark * len(value))


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
