"""Questions that stand on some pages of the crawl, as items with choices.

    Leo keeps 57 red marbles and 31 blue marbles in a box, and 4 of the red ones go to Ida, who has
    none. How many marbles are left in the box?   84     (or 88, 53, 92)

The crawl leaks them, so a funnel has to find them; and the little model cannot do the sum, so
that a good score would be a sign of a leak.
"""

import random
import re

from llmcourse_labs.curation.crawl_texts import questions
from llmcourse_labs.evaluate import ChoiceItem

_NUMBER = re.compile(r"\d+")


def marbles(*, seed: int) -> list[ChoiceItem]:
    """Return the questions of a crawl's test, each with four numbers to choose from.

    The wrong ones are what half of the sum gives: nothing taken away, the blue ones left out, or
    what goes away added.

    Args:
        seed: of the crawl, 0 or greater.
    """
    items = []
    for number, question in enumerate(questions(seed=seed)):
        red, blue, given = map(int, _NUMBER.findall(question))
        right = red + blue - given
        choices = [right, red + blue, red - given, red + blue + given]
        random.Random(f"marbles {seed} {number}").shuffle(choices)
        items.append(
            ChoiceItem(
                skill="marbles",
                prompt=question,
                choices=tuple(f" {choice}" for choice in choices),
                right=choices.index(right),
                cluster=str(number),
            )
        )
    return items
