"""The process of a program that nobody trusts; `sandbox` starts it, and `Program` asks it.

A request and an answer are a line each, of Python's literals::

    (name, arguments)  ->  ("ok", the value as text)  or  ("crash", the error in one line)

The first request has no name: its argument is the source of the program.
"""

import ast
from typing import Any

from llmcourse_labs.sandbox import lockdown

_KINDS = (bool, int, float, str, bytes, list, tuple, set, dict)


def plain(value: Any) -> Any:
    """Return a value with the plain type of each part, such as a dict of a Counter."""
    kind = next((kind for kind in _KINDS if isinstance(value, kind)), None)
    if kind is None:
        return value
    if kind is dict:
        return {plain(key): plain(part) for key, part in value.items()}
    return kind(map(plain, value)) if kind in (list, tuple, set) else kind(value)


def main() -> None:
    """Answer requests until there are no more."""
    requests, answers = lockdown.claim_pipes()
    names: dict[str, Any] = {"__name__": "program"}
    told = ("ok", "None")
    while True:
        answers.write(f"{told!r}\n".encode(errors="backslashreplace"))
        answers.flush()
        if not (line := requests.readline()):
            return
        name, arguments = ast.literal_eval(line.decode())
        try:
            if name:
                told = ("ok", repr(plain(names[name](*arguments))))
            else:
                exec(arguments[0], names)
                told = ("ok", "None")
        except BaseException as error:
            told = ("crash", f"{type(error).__name__}: {error}"[:200])


if __name__ == "__main__":
    main()
