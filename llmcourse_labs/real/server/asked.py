"""What a client asks for in the form of OpenAI's chat completions, checked before any work."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Who can speak, and who that is for the model's template."""

MOST_STOPS = 4
MOST_SEED = 2**63

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (False, True),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Settings that this server lacks, and the values of them that change nothing."""

UNUSED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
"""Settings for whoever keeps an account."""


class RefusedError(Exception):
    """A request that is refused, in one line.

    Args:
        message: what was given, what is allowed, what to do.
        status: of HTTP.
        param: the setting that is wrong.
        code: a word for programs.
    """

    def __init__(
        self, message: str, status: int = 400, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(_in_utf8(" ".join(message.split())))
        self.status, self.code = status, code
        self.param = None if param is None else _in_utf8(param[:100])


def _in_utf8(text: str) -> str:
    """Return a text that can be sent: what holds half of a surrogate pair is spelled out."""
    return text.encode(errors="backslashreplace").decode()


class Asked(NamedTuple):
    """A request that can be answered."""

    messages: list[dict[str, str]]
    most_tokens: int | None
    temperature: float
    top_k: int | None
    top_p: float | None
    stop: tuple[str, ...]
    seed: int | None
    is_streamed: bool
    counts_usage: bool


def parse_request(body: bytes, model: str) -> Asked:
    """Return what a body asks for.

    Args:
        body: of a request, JSON.
        model: the one that is served.

    Raises:
        RefusedError: if it is no JSON, names another model, lacks messages, or has a setting that
            is unknown, outside its range, or without effect here.
    """
    given = _object(body)
    known = {"model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_k"}
    known |= {"top_p", "stop", "seed", "stream", "stream_options"}
    for name, value in given.items():
        if name in NEUTRAL:
            if not any(_is_same(value, each) for each in NEUTRAL[name]):
                allowed = " or ".join(json.dumps(each) for each in NEUTRAL[name])
                raise _wrong(name, value, f"{allowed}, since this server has nothing else")
        elif name not in known | UNUSED:
            raise RefusedError(f"there is no setting {name[:100]!r} here: leave it out", param=name)
    if not isinstance(named := given.get("model"), str):
        raise _wrong("model", named, f"the name {model!r}")
    if named != model:
        told = f"there is no model {named[:100]!r} here: ask for {model!r}"
        raise RefusedError(told, 404, param="model", code="model_not_found")
    temperature = _number(given, "temperature", 1.0, 0, 100)
    top_k, top_p = _whole(given, "top_k", 1, 2**31), _number(given, "top_p", 1.0, 0, 1)
    if top_p == 0:
        raise _wrong("top_p", top_p, "a number above 0")
    most = "max_completion_tokens"
    if most not in given:
        most = "max_tokens"
    is_drawn = temperature > 0
    options = given.get("stream_options") or {}
    if not isinstance(options, Mapping):
        raise _wrong("stream_options", options, "an object")
    return Asked(
        messages=_messages(given.get("messages")),
        most_tokens=_whole(given, most, 1, 2**31),
        temperature=temperature,
        top_k=top_k if is_drawn else None,
        top_p=top_p if is_drawn and top_p < 1 else None,
        stop=_stops(given.get("stop")),
        seed=_whole(given, "seed", -MOST_SEED, MOST_SEED - 1),
        is_streamed=_flag(given, "stream"),
        counts_usage=_flag(options, "include_usage"),
    )


def _is_same(value: Any, other: Any) -> bool:
    """Whether two values are equal in JSON, where true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _object(body: bytes) -> dict[str, Any]:
    """Return an object of JSON, without what is null."""

    def refuse(word: str) -> float:
        raise ValueError(f"{word} is no number of JSON")

    try:
        given = json.loads(body.decode(), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is no JSON in UTF-8: {error}"[:300]) from None
    if not isinstance(given, dict):
        raise RefusedError(f"the body is an object of JSON, got a {type(given).__name__}")
    return {name: value for name, value in given.items() if value is not None}


def _messages(given: Any) -> list[dict[str, str]]:
    """Return messages as roles and texts."""
    if not isinstance(given, list) or not given:
        raise _wrong("messages", given, "a list of one message or more")
    made = []
    for place, message in enumerate(given):
        where = f"messages[{place}]"
        if not isinstance(message, dict) or message.get("role") not in [*ROLES]:
            raise _wrong(where, message, f"an object whose role is one of {', '.join(ROLES)}")
        content = message.get("content")
        if isinstance(content, list):
            parts = [p for p in content if isinstance(p, dict) and p.get("type") == "text"]
            texts = [p["text"] for p in parts if isinstance(p.get("text"), str)]
            content = "".join(texts) if len(texts) == len(content) else None
        if not isinstance(content, str):
            raise _wrong(f"{where}.content", message.get("content"), "a text, or parts of text")
        for name, value in message.items():
            if name not in ("role", "content", "name") and value:
                raise _wrong(f"{where}.{name[:100]}", value, "nothing: texts alone are read here")
        made.append({"role": ROLES[message["role"]], "content": _text(content, where)})
    return made


def _stops(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else [] if given is None else given
    is_list = isinstance(stops, list) and all(isinstance(s, str) and s for s in stops)
    if not is_list or len(stops) > MOST_STOPS:
        raise _wrong(
            "stop", given, f"a text, or a list of at most {MOST_STOPS}, none of them empty"
        )
    return tuple(_text(stop, "stop") for stop in stops)


def _text(text: str, where: str) -> str:
    """Return a text if it is one: JSON can spell half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(f"{where} holds half of a surrogate pair", param=where) from None
    return text


def _number(given: Mapping[str, Any], name: str, default: float, least: int, most: int) -> float:
    value = given.get(name, default)
    if type(value) not in (int, float) or not least <= value <= most:
        raise _wrong(name, value, f"a number from {least} to {most}")
    return float(value)


def _whole(given: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = given.get(name)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise _wrong(name, value, f"a whole number from {least} to {most}")
    return value


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false")
    return value


def _wrong(name: str, value: Any, allowed: str) -> RefusedError:
    """Return what refuses a setting; of what was given, the beginning is said."""
    got = json.dumps(value)
    got = got if len(got) <= 80 else f"{got[:80]}..."
    return RefusedError(f"{name} must be {allowed}; got {got}", param=name)
