"""The widget of chapter 40: the page counts and averages as plain Python does, and obeys."""

import math
import random

import pytest

from llmcourse.data.tokenizer import train_bpe
from llmcourse_classroom.widgets import AnswerLoss
from llmcourse_labs.tuning.chat_format import CHAT_TOKENS, Turn, answer_mask, chat_tokens
from tests.browser.hands import choose, enter, keys
from tests.browser.kit import holds, noted, said, table, value
from tests.browser.registry import answer_loss


def drawn(count=40):
    rng = random.Random(0)
    for number in range(count):
        size = rng.randint(2, 60)
        roles = rng.choices(["template", "user", "assistant"], k=size)
        roles[rng.randrange(1, size)] = "assistant"
        losses = {name: [rng.expovariate(0.5) for _ in range(size - 1)] for name in ("a", "b")}
        yield {"name": str(number), "tokens": ["x"] * size, "roles": roles, "losses": losses}


def test_what_counts_and_its_mean(arithmetic):
    grid = [(chat, model, learn) for chat in drawn() for model in "ab" for learn in LEARN]
    marks = arithmetic(AnswerLoss, "counted", [[chat, learn] for chat, _, learn in grid])
    means = arithmetic(AnswerLoss, "meanLoss", [list(each) for each in grid])
    for (chat, model, learn), mark, mean in zip(grid, marks, means, strict=True):
        right = [False] + [learn == "all tokens" or r == "assistant" for r in chat["roles"][1:]]
        assert mark == right
        kept = [x for x, m in zip(chat["losses"][model], right[1:], strict=True) if m]
        assert mean == pytest.approx(math.fsum(kept) / len(kept), rel=1e-12)


LEARN = ("assistant", "all tokens")


def test_what_counts_is_what_the_package_learns_and_a_chance_that_of_a_loss(arithmetic):
    tokenizer = train_bpe("who has it? mia has it. " * 9, 290, list(CHAT_TOKENS))
    turns = [Turn("user", "who?"), Turn("assistant", "mia."), Turn("user", "it?")]
    chat = chat_tokens(turns, tokenizer)
    ((mark),) = arithmetic(AnswerLoss, "counted", [[{"roles": chat.roles}, "assistant"]])
    assert mark == answer_mask(chat.ids_T, tokenizer.special_tokens).tolist()
    losses = [0.0, math.log(2), 3.5, 60.0]
    found = arithmetic(AnswerLoss, "chance", [[x] for x in losses])
    assert found == pytest.approx([math.exp(-x) for x in losses])


def test_the_sentence_follows_every_control(show):
    page = show(answer_loss())
    bars = page.locator(".lc-stage rect.lc-3")
    dashed = page.locator(".lc-stage rect.lc-3[stroke-dasharray]")
    assert (bars.count(), dashed.count()) == (6, 3)  # what does not count is dashed
    assert table(page)[0][:4] == ["0", "<|user|>", "template", "no"]
    holds(said(page), "Model “before”: 3 of 6 tokens", "loss is 6.00 nats")
    holds(said(page), "Token 1, “two?” (user), costs 5.00 nats", "0.674 %")
    choose(page, "model", "after", "loss is 0.30 nats")
    choose(page, "what counts", "all tokens", "6 of 6 tokens")
    keys(page, "token", "ArrowRight", "Token 2, “<|end|>” (user)")
    holds(page.get_by_role("img").get_attribute("aria-label"), "Token 2")
    enter(page, "token", "6", "Token 6, “<|end|>” (assistant), costs 0.10 nats", "90.5 %")
    choose(page, "conversation", "short")  # the cursor moves
    assert value(page, "token") == "2"
    holds(noted(page), "6 is not possible", "from 1 to 2", "2 is used")
    choose(page, "conversation", "long")
    page.locator(".lc-stage text", has_text="<|assistant|>").first.click(position={"x": 3, "y": 3})
    assert value(page, "token") == "3"
