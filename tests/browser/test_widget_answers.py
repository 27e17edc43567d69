"""The widget of chapter 40: the page counts and averages as plain Python does, and obeys."""

import math
import random

import pytest

from llmcourse.course.widgets import AnswerLoss
from llmcourse.data.chat import CHAT_TOKENS, Turn, answer_mask, chat_tokens
from llmcourse.data.tokenizer import train_bpe
from tests.browser.kit import enter, noted, said, table, value
from tests.browser.registry import answer_loss, conversations


def drawn(count=40):
    """Random conversations with random losses."""
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


def test_what_counts_is_what_the_package_learns(arithmetic):
    tokenizer = train_bpe("who has it? mia has it. " * 9, 290, list(CHAT_TOKENS))
    turns = [Turn("user", "who?"), Turn("assistant", "mia."), Turn("user", "it?")]
    chat = chat_tokens(turns, tokenizer)
    ((mark),) = arithmetic(AnswerLoss, "counted", [[{"roles": chat.roles}, "assistant"]])
    assert mark == answer_mask(chat.ids_T, tokenizer.special_tokens).tolist()


def test_a_chance_is_that_of_a_loss(arithmetic):
    losses = [0.0, math.log(2), 3.5, 60.0]
    found = arithmetic(AnswerLoss, "chance", [[x] for x in losses])
    assert found == pytest.approx([math.exp(-x) for x in losses])


def test_the_sentence_follows_every_control(show):
    page = show(answer_loss())
    assert said(page) == (
        "Model “before”: 3 of 6 tokens count, and their mean loss is 6.00 nats. "
        "Token 1, “two?” (user), costs 5.00 nats: the model gave it 0.674 %."
    )
    page.get_by_label("model", exact=True).select_option("after")
    assert "mean loss is 0.30 nats" in said(page)
    page.get_by_label("what counts").select_option("all tokens")
    assert "6 of 6 tokens count" in said(page)
    page.get_by_role("slider", name="token").press("ArrowRight")
    assert "Token 2, “<|end|>” (user)" in said(page)
    assert "Token 2" in page.get_by_role("img").get_attribute("aria-label")
    enter(page, "token", "6")
    assert "Token 6, “<|end|>” (assistant), costs 0.10 nats: the model gave it 90.5 %" in said(page)


def test_a_press_on_a_token_chooses_it(show):
    page = show(answer_loss())
    page.locator(".lc-stage text", has_text="<|assistant|>").first.click(position={"x": 3, "y": 3})
    assert value(page, "token") == "3"


def test_a_shorter_conversation_moves_the_cursor_and_says_so(show):
    page = show(answer_loss(token=6))
    page.get_by_label("conversation", exact=True).select_option("short")
    assert value(page, "token") == "2"
    assert "6 is not possible (from 1 to 2, whole); 2 is used" in noted(page)


def test_what_counts_is_filled_and_what_does_not_is_dashed(show):
    page = show(answer_loss())
    bars = page.locator(".lc-stage rect.lc-3")
    dashed = page.locator(".lc-stage rect.lc-3[stroke-dasharray]")
    assert (bars.count(), dashed.count()) == (6, 3)
    page.locator(".lc-table > summary").click()
    assert table(page)[0][:4] == ["0", "<|user|>", "template", "no"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": ["a"]}, "2 to 60 tokens, not 1"),
        ({"tokens": ["a"] * 61}, "2 to 60 tokens, not 61"),
        ({"tokens": [""] * 7}, "a token is a text of 1 to 40 characters"),
        ({"roles": ["user"] * 7}, "the assistant among them"),
        ({"roles": ["assistant"] * 6}, "a role for each token"),
        ({"losses": {"before": [1.0] * 6}}, r"losses of \['before', 'after'\], not of"),
        ({"losses": {"before": [1.0] * 6, "after": [math.nan] * 6}}, "a finite loss of 0 or more"),
        ({"losses": {"before": [1.0] * 6, "after": [1.0] * 7}}, "each of the 6 tokens after"),
    ],
)
def test_what_a_conversation_refuses(change, message):
    first, second = conversations()
    with pytest.raises(ValueError, match=message):
        AnswerLoss([second | {"name": "x"}, first | change])


def test_what_the_widget_refuses():
    first, second = conversations()
    with pytest.raises(ValueError, match="1 to 8 conversations, not 0"):
        AnswerLoss([])
    with pytest.raises(ValueError, match="losses of 1 to 6 models, not 0"):
        AnswerLoss([first | {"losses": {}}])
    with pytest.raises(ValueError, match="a name of its own"):
        AnswerLoss([first, second | {"name": first["name"]}])
    with pytest.raises(ValueError, match=r"has no \['roles'\]"):
        AnswerLoss([{k: v for k, v in first.items() if k != "roles"}])
