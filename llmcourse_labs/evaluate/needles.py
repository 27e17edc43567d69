"""Rows that ask for something said long before: the test of a needle in a haystack, made small.

A row is filler, in which some tokens are facts, such as "box 3 holds the pear", each written as one
token so that a single layer can learn to look it up.  Every box has one fact in a row.  A question
about a box, one token again, asks for the thing in it, however far back that was said.

Shape suffixes:  B rows, T time (tokens), F facts of a row, which is one for each box.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from llmcourse.base.arguments import require, require_each

NUM_FILLER, NUM_BOXES, NUM_THINGS = 16, 8, 8
FACTS = NUM_FILLER
"""Token of "box 0 holds thing 0"; "box b holds thing t" is 8 b + t later."""
QUESTIONS = FACTS + NUM_BOXES * NUM_THINGS
"""Token of "what is in box 0?"."""
ANSWERS = QUESTIONS + NUM_BOXES
"""Token of thing 0."""
NEEDLE_VOCAB = ANSWERS + NUM_THINGS
"""Tokens in all."""
NOT_ASKED = -100
"""Target where nothing is asked: `loss.IGNORE_INDEX`."""


class NeedleRows(NamedTuple):
    """Rows with facts and questions."""

    ids_BT: Int64[Tensor, "B T"]
    targets_BT: Int64[Tensor, "B T"]
    """The answer at a question, NOT_ASKED elsewhere."""


def needle_rows(
    num_rows: int, length: int, *, generator: torch.Generator, questions: int | float = 0.3
) -> NeedleRows:
    """Return rows with a fact about each box at random places, and questions about those told.

    Args:
        num_rows: rows.
        length: tokens of a row, 9 or more.
        generator: source of all choices.
        questions: chance that a token after some fact is a question, from 0 to 1.

    Raises:
        ValueError: if a row is too short for its facts, or a number is out of its range.
    """
    _check(num_rows, length)
    require("questions", questions, least=0, most=1)
    ids_BT, things_BF = _haystack(num_rows, length, generator)
    places_BF = _places(torch.rand(num_rows, length, generator=generator))
    ids_BT.scatter_(1, places_BF, _facts(torch.arange(NUM_BOXES).expand_as(things_BF), things_BF))
    boxes_BT = torch.randint(NUM_BOXES, (num_rows, length), generator=generator)
    told_BT = places_BF.gather(1, boxes_BT) < torch.arange(length)
    chance_BT = torch.rand(num_rows, length, generator=generator) < questions
    asked_BT = chance_BT & told_BT & (ids_BT < FACTS)
    answers_BT = ANSWERS + things_BF.gather(1, boxes_BT)
    return NeedleRows(
        torch.where(asked_BT, QUESTIONS + boxes_BT, ids_BT),
        torch.where(asked_BT, answers_BT, torch.full_like(ids_BT, NOT_ASKED)),
    )


def needle_tests(
    num_rows: int, length: int, depth: int | float, *, generator: torch.Generator
) -> NeedleRows:
    """Return rows with one question, at the end, and the fact that answers it at a chosen depth.

    The facts about the other boxes are at random places, so that a fact alone is no answer.

    Args:
        num_rows: rows.
        length: tokens of a row, 9 or more.
        depth: where the fact stands, from 0, the first token, to 1, the last before the question.
        generator: source of all choices.

    Raises:
        ValueError: if a row is too short for its facts, or a number is out of its range.
    """
    _check(num_rows, length)
    require("depth", depth, least=0, most=1)
    ids_BT, things_BF = _haystack(num_rows, length, generator)
    order_BT = torch.rand(num_rows, length - 1, generator=generator)
    order_BT[:, int(depth * (length - 2))] = -1  # before all others
    asked_B1 = torch.randint(NUM_BOXES, (num_rows, 1), generator=generator)
    boxes_BF = (asked_B1 + torch.arange(NUM_BOXES)) % NUM_BOXES
    ids_BT.scatter_(1, _places(order_BT), _facts(boxes_BF, things_BF))
    ids_BT[:, -1] = QUESTIONS + asked_B1[:, 0]
    targets_BT = torch.full_like(ids_BT, NOT_ASKED)
    targets_BT[:, -1] = ANSWERS + things_BF[:, 0]
    return NeedleRows(ids_BT, targets_BT)


def _check(num_rows: int, length: int) -> None:
    require_each({"num_rows": num_rows}, least=1)
    require_each({"length": length}, least=NUM_BOXES + 1)


def _haystack(
    num_rows: int, length: int, generator: torch.Generator
) -> tuple[Int64[Tensor, "B T"], Int64[Tensor, "B F"]]:
    """Return rows of filler, and a thing for each fact."""
    return (
        torch.randint(NUM_FILLER, (num_rows, length), generator=generator),
        torch.randint(NUM_THINGS, (num_rows, NUM_BOXES), generator=generator),
    )


def _places(order_BT: Tensor) -> Int64[Tensor, "B F"]:
    """Return the places of the smallest numbers of each row, smallest first."""
    return order_BT.argsort(1)[:, :NUM_BOXES]


def _facts(boxes_BF: Int64[Tensor, "B F"], things_BF: Int64[Tensor, "B F"]) -> Tensor:
    """Return the tokens of facts."""
    return FACTS + NUM_THINGS * boxes_BF + things_BF
