"""Questions with one right number, that a few lines make and a few lines check.

    12 + 34 =      46

A prompt ends with its space, so that an answer is digits and the token that ends it.  One in five
pairs of numbers is held out: neither order of it is in any training part.
"""

import random
import re
import zlib
from collections.abc import Callable
from typing import NamedTuple

from llmcourse.base.arguments import require


class Question(NamedTuple):
    """What is asked, and the one right answer."""

    prompt: str
    answer: str


Checker = Callable[[Question, str], float]
"""What a text is worth as an answer; "…" at its end: it was cut before it ended."""


def is_held_out(first: int, second: int) -> bool:
    """Say of a pair of numbers, in any order, whether it is kept for tests."""
    low, high = sorted((first, second))
    return zlib.crc32(f"{low} {high}".encode()) % 5 == 0


def make_sums(
    number: int, *, seed: int, digits: int = 2, held_out: bool = False, style: str = "plain"
) -> list[Question]:
    """Return sums of two numbers, all different, in random order.

    Args:
        number: of questions.
        seed: of the draws.
        digits: of both numbers, the first of them not 0.
        held_out: whether they are of the pairs that are kept for tests.
        style: one of `STYLES`.

    Raises:
        ValueError: if there are not as many pairs, or no such style.
    """
    low, high = 10 ** (digits - 1), 10**digits
    require("number of sums", number, least=1, most=(high - low) ** 2 // (10 if held_out else 2))
    if style not in STYLES:
        raise ValueError(f"style must be one of {', '.join(STYLES)}, got {style!r}")
    draws, found = random.Random(seed), dict[tuple[int, int], Question]()
    while len(found) < number:
        pair = draws.randrange(low, high), draws.randrange(low, high)
        if is_held_out(*pair) == held_out:
            found[pair] = Question(f"{pair[0]} + {pair[1]} = ", STYLES[style](*pair))
    return list(found.values())


def make_products(before: int = 4) -> list[Question]:
    """Return the products of two numbers from 2 to 9, some other products written before each.

    Args:
        before: lines, of pairs with a 1, which is asked nowhere.
    """
    lines = "".join(f"{n} * 1 = {n}\n" for n in range(3, 3 + before))
    return [
        Question(f"{lines}{a} * {b} = ", f"{a * b}") for a in range(2, 10) for b in range(2, 10)
    ]


# --- how a sum is written


def _with_carries(first: int, second: int) -> str:
    """Write a sum digit by digit from the right, each with what is carried, and then the result."""
    written, carry = [], 0
    for a, b in zip(f"{first}"[::-1], f"{second}"[::-1], strict=True):
        one = int(a) + int(b) + carry
        written.append(f"{a}+{b}+{carry}={one};")
        carry = one // 10
    return f"{''.join(written)}{first + second}"


STYLES: dict[str, Callable[[int, int], str]] = {
    "plain": lambda first, second: f"{first + second}",
    "reversed": lambda first, second: f"{first + second}"[::-1],
    "carries": _with_carries,
}
"""By name: how the answer to a sum is written; each ends with its result."""


def result(text: str) -> str:
    """Return the last number of a text, as it is written; none is the empty text."""
    return (re.findall(r"\d+", text) or [""])[-1]


# --- who checks


def gives_number(question: Question, text: str) -> float:
    """Return 1 for the right answer, to the letter and ended."""
    return float(text == question.answer)


def is_number(question: Question, text: str) -> float:
    """Return 1 for any number, ended, right or wrong: a checker of the form alone."""
    return float(re.fullmatch(r"\d+", text) is not None)


def stands_anywhere(question: Question, text: str) -> float:
    """Return 1 if the right number stands anywhere in a text: a checker that can be fooled."""
    return float(question.answer in text)


CHECKERS: dict[str, Checker] = {
    "right": gives_number,
    "form": is_number,
    "anywhere": stands_anywhere,
}
"""By name."""
