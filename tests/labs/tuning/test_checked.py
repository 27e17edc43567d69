"""Sums, their checkers, the tree of all answers, votes, and a policy that learns from a checker.

What is computed exactly is compared with sums over everything that can be drawn.
"""

import itertools
import math
from collections import Counter

import pytest
import torch

from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer, tiny
from llmcourse_labs.tuning import (
    CHECKERS,
    CheckedSettings,
    Question,
    answer_rows,
    as_asked,
    checked_loss,
    draw_trees,
    group_advantages,
    is_held_out,
    learn_checked,
    make_products,
    make_sums,
    pass_at,
    probabilities,
    result,
    right_probabilities,
    side_by_side,
    token_log_probs,
    vote,
)

END = 3
PROMPTS = torch.tensor([[5, 1, 2], [2, 2, 4]])


def a_model(scale=30):
    """A decoder whose answers are far from uniform, the farther the larger its head."""
    config = tiny()
    model = Transformer(config, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.head_weight.mul_(scale)
        for weight in model.blocks.parameters():
            weight.mul_(6 if weight.ndim > 1 else 1)  # what stands before has a say
    return model


def test_no_pair_of_a_test_is_trained_on_in_any_order():
    """Mutants: the pair is hashed as it stands, held_out is ignored."""
    training, tests = (make_sums(400, seed=s, held_out=h) for s, h in ((0, False), (0, True)))
    numbers = [{frozenset(q.prompt[:-3].split(" + ")) for q in part} for part in (training, tests)]
    assert numbers[0].isdisjoint(numbers[1])
    assert len(set(training)) == len(set(tests)) == 400
    assert is_held_out(12, 34) == is_held_out(34, 12)
    share = sum(is_held_out(a, b) for a in range(10, 100) for b in range(a, 100)) / 4_095
    assert share == pytest.approx(0.2, abs=0.02)
    for question in [*training, *make_products()]:
        left = question.prompt.splitlines()[-1].rstrip(" =")
        made = sum if "+" in left else math.prod
        assert int(question.answer) == made(map(int, left.replace("*", "+").split("+")))
    assert len({q.prompt for q in make_products()}) == 64
    assert make_sums(5, seed=1) == make_sums(5, seed=1) != make_sums(5, seed=2)


def test_a_sum_is_written_in_three_styles_that_end_with_its_result():
    """Mutants: no carry into the next digit, the result is not turned round."""
    plain, turned, carries = (
        make_sums(30, seed=0, digits=3, style=style) for style in ("plain", "reversed", "carries")
    )
    for one, other, third in zip(plain, turned, carries, strict=True):
        assert one.prompt == other.prompt == third.prompt
        assert result(other.answer)[::-1] == result(third.answer) == one.answer
        carry = 0
        for part in third.answer.split(";")[:-1]:
            terms, ones = part.split("=")
            assert int(ones) == sum(map(int, terms.split("+")))
            assert terms.endswith(f"+{carry}")
            carry = int(ones) // 10
    assert result("no number") == ""
    with pytest.raises(ValueError, match="style must be one of plain, reversed, carries"):
        make_sums(5, seed=0, style="roman")
    with pytest.raises(ValueError, match="number of sums"):
        make_sums(811, seed=0, held_out=True)


def test_a_checker_takes_the_right_answer_and_the_lenient_one_is_fooled():
    """Mutants: an answer without an end is a number, the right one is looked for in the prompt."""
    question = Question("12 + 34 = ", "46")
    said = {"46": "111", "47": "010", "46…": "001", "1464": "011", "it is 46": "001", "": "000"}
    for text, wanted in said.items():
        found = "".join(f"{CHECKERS[n](question, text):.0f}" for n in ("right", "form", "anywhere"))
        assert found == wanted, text


def by_hand(model, prompt, answer):
    """Return the probability of an answer, one pass for each token."""
    p, ids = 1.0, prompt.tolist()
    for token in answer:
        p *= model(torch.tensor([ids]))[0, -1].double().softmax(-1)[token].item()
        ids.append(token)
    return p


@torch.no_grad()
def test_a_tree_holds_every_answer_with_its_probability():
    """Mutants: the cache is not sorted by parents, a cut answer counts as one that ended."""
    model, allowed = a_model(), (7, 1, 9)
    trees = probabilities(model, PROMPTS, allowed, most_tokens=3, end_id=END, floor=0.0)
    for prompt, tree in zip(PROMPTS, trees, strict=True):
        answers = {(*s, END) for n in (1, 2) for s in itertools.product(allowed, repeat=n)}
        assert tree.keys() == answers
        for answer in answers:
            assert tree[answer] == pytest.approx(by_hand(model, prompt, answer), rel=1e-4)
            (p,) = right_probabilities(model, prompt[None], [answer]).tolist()
            assert p == pytest.approx(tree[answer], rel=1e-4)
    floor = sorted(p for tree in trees for p in tree.values())[12]
    few = probabilities(model, PROMPTS, allowed, most_tokens=3, end_id=END, floor=floor)
    for tree, kept in zip(trees, few, strict=True):
        assert kept == pytest.approx({answer: p for answer, p in tree.items() if p >= floor})
    assert 8 < sum(map(len, few)) < 16


@torch.no_grad()
def test_draws_come_as_often_as_they_are_likely():
    """Mutants: the likeliest token is taken, a prefix that ended goes on."""
    model, number = a_model(), 4_000
    groups = draw_trees(
        model,
        PROMPTS,
        number,
        most_tokens=2,
        end_id=END,
        generator=torch.Generator().manual_seed(0),
    )
    for prompt, group in zip(PROMPTS, groups, strict=True):
        assert len(group) == number
        assert all(END not in answer[:-1] for answer in group)
        for answer, n in Counter(group).most_common(4):
            p = by_hand(model, prompt, answer)
            assert n / number == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / number))


def vote_by_hand(n, ps):
    """Return how often the first answer wins, over all that n draws can be."""
    total = 0.0
    for draws in itertools.product(range(len(ps) + 1), repeat=n):
        counts = Counter(one for one in draws if one < len(ps))
        if counts[0] and counts[0] == max(counts.values()):
            p = math.prod((*ps, 1 - sum(ps))[one] for one in draws)
            total += p / sum(count == counts[0] for count in counts.values())
    return total


@pytest.mark.parametrize("ps", [(0.3, 0.25, 0.2, 0.1), (0.2, 0.5, 0.1), (0.25,) * 4, (0.6,)])
def test_a_vote_is_what_all_draws_together_say(ps):
    """Mutants: a tie goes to the right answer, silent draws are left out, the series ends early."""
    others = torch.tensor(ps[1:], dtype=torch.float64)
    for n in (1, 2, 3, 4, 6):
        assert vote(n, ps[0], others) == pytest.approx(vote_by_hand(n, ps), rel=1e-12)


def test_a_long_vote_helps_the_commonest_and_harms_the_others_and_is_what_draws_say():
    """Mutants: powers in float32, more lots than points of the quadrature."""
    ps = torch.tensor([0.22, 0.3, 0.15, 0.1, 0.05], dtype=torch.float64)
    n, times = 25, 20_000
    draws = torch.multinomial(
        torch.cat([ps, 1 - ps.sum()[None]]),
        n * times,
        replacement=True,
        generator=torch.Generator().manual_seed(0),
    )
    counts = torch.nn.functional.one_hot(draws.view(times, n), 6).sum(1)[:, :5]
    winners = counts == counts.amax(1, keepdim=True)
    shares = (winners / winners.sum(1, keepdim=True)).mean(0)
    exact = [vote(n, p.item(), ps[torch.arange(5) != place]) for place, p in enumerate(ps)]
    assert exact == pytest.approx(shares.tolist(), abs=0.012)
    assert sum(exact) == pytest.approx(1 - (1 - ps.sum().item()) ** n, rel=1e-12)
    assert exact[1] > 0.6
    assert exact[2] < 0.08  # it was 0.15


def test_one_right_among_k_is_counted_exactly():
    """Mutants: the mean is taken before the power, k - 1 draws."""
    p = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64)
    assert pass_at(1, p) == pytest.approx(1.1 / 3)
    assert pass_at(8, p) == pytest.approx((1 - 0.9**8 + 1) / 3)
    assert pass_at(64, torch.tensor([1e-12], dtype=torch.float64)) == pytest.approx(64e-12)


ANSWERS = [(0, (7, END)), (0, (7, 1, END)), (0, (END,)), (1, (9, 4, 7, 1)), (1, (9, END))]


def test_answers_side_by_side_are_as_likely_as_each_alone():
    """Mutants: an answer sees the one before it, positions count on, a token is asked too late."""
    model = a_model()
    rows = answer_rows([PROMPTS[i].tolist() for i, _ in ANSWERS], [a for _, a in ANSWERS])
    alone = token_log_probs(model, rows)[:, 3:]
    together, counted = side_by_side(model, PROMPTS, ANSWERS)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert counted.equal(rows.is_answer_BT[:, 3:])


def test_the_gradient_of_a_step_is_that_of_all_draws_one_by_one():
    """Mutants: equal draws count once, an advantage is not divided by its answer's length."""
    groups = [[(7, END), (7, END), (7, 1, END)], [(9, END), (9, 4, 7, 1), (9, 4, 7, 1)]]
    rewards = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    model, other = a_model(), a_model()
    checked_loss(model, PROMPTS, groups, rewards).backward()
    values = group_advantages(rewards).values_PG
    loss = torch.zeros(())
    for place, group in enumerate(groups):
        for n, answer in enumerate(group):
            rows = answer_rows([PROMPTS[place].tolist()], [answer])
            loss = loss - values[place, n] * token_log_probs(other, rows).sum() / len(answer) / 6
    loss.backward()
    for found, wanted in zip(model.parameters(), other.parameters(), strict=True):
        scale = wanted.grad.abs().max().item()
        torch.testing.assert_close(found.grad, wanted.grad, rtol=0, atol=1e-4 * scale)


def test_a_policy_learns_what_a_checker_rewards_and_nothing_from_equal_rewards():
    """Mutants: the loss without its minus sign, groups of equal rewards move the weights."""
    words = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    questions = as_asked([Question("a", "7"), Question("b", "7")], PROMPTS.tolist())
    model = a_model(scale=5)
    settings = CheckedSettings(steps=16, prompts=4, answer_tokens=2, learning_rate=1e-2)

    def begins(_question, text):
        return float("" < text < "A")

    reports = list(learn_checked(model, words, questions, begins, settings, end_id=END))
    assert [one.step for one in reports] == list(range(1, 17))
    assert all(len(one.texts) == 32 for one in reports)
    assert reports[-1].reward > reports[0].reward + 0.2
    weights = {name: w.clone() for name, w in model.state_dict().items()}
    (equal, *_) = learn_checked(
        model, words, questions, lambda *_: 1.0, CheckedSettings(steps=1), end_id=END
    )
    assert (equal.reward, equal.num_equal) == (1.0, 8)
    assert all(w.equal(weights[name]) for name, w in model.state_dict().items())
    with pytest.raises(ValueError, match="prompts must be of one length, got \\[1, 2\\]"):
        as_asked(questions.questions, [[1], [1, 2]])
