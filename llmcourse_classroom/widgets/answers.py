"""A widget about fine-tuning: a conversation, what of it is learnt, and what each token costs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from llmcourse_classroom.state import Choice, Named, Whole
from llmcourse_classroom.widget import Widget

MOST_TOKENS, LONGEST_TOKEN = 60, 40
MOST_CONVERSATIONS, MOST_MODELS = 8, 6
HIGHEST = 99.0
"""Losses above, in nats, are cut off."""


class AnswerLoss(Widget):
    """The loss of every token of a conversation, by model, and the mean of those that count.

    Args:
        conversations: 1 to 8, each a dict of name, tokens (their texts, 2 to 60), roles (of every
            token: "assistant" is what is learnt) and losses (for each model, by its name, the loss
            in nats of every token after the first).
        state: conversation, model (names), learn ("assistant" or "all tokens"), token (the place of
            the one that is told of).

    Raises:
        ValueError: if a conversation lacks something, or its parts do not belong together.
    """

    script = "answer_loss.js"
    alt = (
        "A conversation, token by token, with a bar for the loss of each.  Filled bars count: "
        "those of the assistant's tokens.  Before fine-tuning they are high; afterwards they are "
        "low where the form decides, and stay high where the answer has to be known."
    )

    conversations = traitlets.List(traitlets.Dict()).tag(sync=True)
    models = traitlets.List(traitlets.Unicode()).tag(sync=True)
    conversation = Named().tag(sync=True)
    model = Named().tag(sync=True)
    learn = Choice(("assistant", "all tokens"))
    token = Whole(1, low=1, high=MOST_TOKENS - 1, step=1, label="token")

    def __init__(self, conversations: Sequence[Mapping[str, Any]], **state: Any) -> None:
        if not 1 <= len(conversations) <= MOST_CONVERSATIONS:
            raise ValueError(f"1 to {MOST_CONVERSATIONS} conversations, not {len(conversations)}")
        models = [str(name) for name in conversations[0].get("losses", {})]
        if not 1 <= len(models) <= MOST_MODELS:
            raise ValueError(f"losses of 1 to {MOST_MODELS} models, not {len(models)}")
        kept = [_checked(each, models) for each in conversations]
        names = [each["name"] for each in kept]
        if len(set(names)) < len(names):
            raise ValueError(f"each conversation needs a name of its own, got {names}")
        bounds = {"conversation": names, "model": models}
        start = {"conversation": names[0], "model": models[0]}
        super().__init__(conversations=kept, models=models, bounds=bounds, **(start | state))


def _checked(given: Mapping[str, Any], models: Sequence[str]) -> dict[str, Any]:
    """Return a conversation as the page takes it."""
    keys = ("name", "tokens", "roles", "losses")
    if missing := [key for key in keys if key not in given]:
        raise ValueError(f"a conversation has no {missing}; it needs {list(keys)}")
    name, tokens, roles = str(given["name"]), list(given["tokens"]), list(given["roles"])
    if not 2 <= len(tokens) <= MOST_TOKENS:
        raise ValueError(f"{name}: 2 to {MOST_TOKENS} tokens, not {len(tokens)}; cut it")
    if not all(isinstance(t, str) and 0 < len(t) <= LONGEST_TOKEN for t in tokens):
        raise ValueError(f"{name}: a token is a text of 1 to {LONGEST_TOKEN} characters")
    if len(roles) != len(tokens) or "assistant" not in roles[1:]:
        raise ValueError(f"{name}: a role for each token, the assistant among them, not {roles}")
    if sorted(given["losses"]) != sorted(models):
        raise ValueError(f"{name}: losses of {list(models)}, not of {list(given['losses'])}")
    losses = {}
    for model in models:
        values = [float(x) for x in given["losses"][model]]
        if len(values) != len(tokens) - 1 or not all(math.isfinite(x) and x >= 0 for x in values):
            raise ValueError(
                f"{name}, {model}: a finite loss of 0 or more for each of the {len(tokens) - 1} "
                "tokens after the first"
            )
        losses[model] = [min(HIGHEST, round(x, 3)) for x in values]
    return {"name": name, "tokens": tokens, "roles": roles, "losses": losses}
