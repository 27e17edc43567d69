"""Checks of exercises 14: Mixture of experts."""

import math

import torch

from llmcourse.model import moe


def check_1(t, choose_experts, *, same):
    """14.1 A router"""
    # Powers of e that add up to 16, 10 and 10: the probabilities are round.
    powers = torch.tensor([[2, 8, 4, 2], [1, 1, 6, 2], [3, 1, 1, 5]], dtype=torch.float64)
    answer = choose_experts(powers.log(), 2)
    t(
        isinstance(answer, tuple | list)
        and len(answer) == 2
        and all(isinstance(part, torch.Tensor) and part.shape == (3, 2) for part in answer),
        "return two tensors with a row for each token and a column for each chosen expert: "
        "(weights_NK, experts_NK)",
        "two tensors of N rows and K columns",
    )
    weights, experts = answer
    t(
        weights.is_floating_point() or not experts.is_floating_point(),
        "you returned the experts first: the order is (weights_NK, experts_NK)",
        "weights come first",
    )
    right = torch.tensor([[1, 2], [2, 3], [3, 0]])
    p = powers / powers.sum(-1, keepdim=True)
    chosen = p.gather(-1, right)
    t(
        sorted(experts[0].tolist()) != [0, 3],
        "you chose the least probable experts: a sort puts the smallest first unless it is told "
        "otherwise",
        "the most probable are chosen",
    )
    t(
        experts[2].tolist() != [0, 3],
        "your experts stand in the order of their numbers: the most probable comes first, and each "
        "weight must stand at the place of its own expert",
        "the most probable comes first",
    )
    t.equal(
        experts,
        right,
        "of 8, 4, 2, 2 in sixteenths the two largest are chosen, and so in each row by itself",
        "the right experts are chosen",
    )
    t(
        not same(weights, chosen),
        "your weights are the probabilities as they are: those of the experts that were not chosen "
        "are missing in the sum, so the weights of a token do not add up to 1",
        "weights add up to 1",
    )
    t(
        not same(weights, torch.softmax(chosen, -1)),
        "you took a softmax of probabilities, a second one: that makes the weights nearly equal. "
        "Divide by the sum",
        "one softmax is enough",
    )
    single = torch.sigmoid(powers.log()).gather(-1, right)
    t(
        not same(weights, single / single.sum(-1, keepdim=True)),
        "you scored each expert by a sigmoid of its own, as DeepSeek-V3 does: a softmax compares "
        "all experts of the token",
        "probabilities are a softmax",
    )
    over_tokens = torch.softmax(powers.log(), 0).gather(-1, right)
    t(
        not same(weights, over_tokens / over_tokens.sum(-1, keepdim=True)),
        "your softmax runs over the tokens: every token has probabilities of its own, over the "
        "experts",
        "the softmax runs over experts",
    )
    raw = powers.log().gather(-1, right)
    t(
        not same(weights, raw / raw.sum(-1, keepdim=True)),
        "you divided the scores themselves by their sum: scores may be negative, and probabilities "
        "are made of their exponentials",
        "probabilities are divided, not scores",
    )
    t(
        (weights.double().sum(-1) - 1).abs().max() < 1e-5,
        "the weights of a token do not add up to 1: divide by the sum of its own chosen "
        "probabilities, and neither by k nor by a sum over tokens",
        "each token divides by its own sum",
    )
    t.close(
        weights,
        torch.tensor([[2 / 3, 1 / 3], [3 / 4, 1 / 4], [5 / 8, 3 / 8]], dtype=torch.float64),
        "8 and 4 sixteenths become 2/3 and 1/3; 6 and 2 tenths 3/4 and 1/4; 5 and 3 tenths 5/8 and "
        "3/8",
        "weights are the chosen probabilities over their sum",
        relative=1e-9,
    )
    level = torch.zeros(2, 9, dtype=torch.float64)
    level[1, [3, 7]] = 2.0
    t.equal(
        choose_experts(level, 4)[1],
        torch.tensor([[0, 1, 2, 3], [3, 7, 0, 1]]),
        "of equally probable experts the lower number comes first: flipping an ascending sort "
        "turns ties round as well, and topk promises nothing",
        "ties go to the lower number",
    )
    steep = choose_experts(torch.tensor([[1000.0, 999.0, -1000.0]], dtype=torch.float64), 2)
    t.close(
        steep[0],
        torch.softmax(torch.tensor([[1.0, 0.0]], dtype=torch.float64), -1),
        "scores of 1,000 give no number: exp(1000) is infinite. torch.softmax subtracts the "
        "largest score first",
        "scores of 1,000 are fine",
        relative=1e-9,
    )
    t.close(
        choose_experts(powers.log(), 4)[0],
        p.sort(-1, descending=True).values,
        "where all experts are chosen, the weights are the probabilities, sorted",
        "all experts chosen",
        relative=1e-9,
    )


def check_2(t, balance):
    """14.2 The balance loss"""
    # Two choices of each of four experts; but nobody has expert 2 or 3 as the first choice.
    p = torch.tensor(
        [[0.4, 0.1, 0.3, 0.2], [0.5, 0.1, 0.1, 0.3], [0.2, 0.4, 0.3, 0.1], [0.1, 0.5, 0.1, 0.3]],
        dtype=torch.float64,
    )
    experts = torch.tensor([[0, 2], [0, 3], [1, 2], [1, 3]])
    answer = balance(p, experts)
    t(
        isinstance(answer, torch.Tensor) and answer.shape == (),
        "return a tensor with one number and no dimension: the sum over the experts, after a mean "
        "over the tokens",
        "one number",
    )
    even = answer.item()
    t(
        not math.isclose(even, 0.25),
        "the factor E is missing: with it an even use gives 1, however many experts there are",
        "the sum is multiplied by E",
    )
    t(
        not math.isclose(even, 2),
        "you divided by the number of tokens, and each made two choices: a share is of all "
        "choices, N times k",
        "shares add up to 1",
    )
    t(
        not math.isclose(even, 0, abs_tol=1e-9),
        "yours is 0 when the choices are even, as a variance of the counts would be: this loss is "
        "then 1. Counts alone have no gradient from which a router could learn",
        "an even use is not 0",
    )
    t(
        not math.isclose(even, 1.15),
        "you counted the first choices alone: with k = 2 the second one sends a row to an expert, "
        "too",
        "all choices are counted",
    )
    t(
        not math.isclose(even, 1.025),
        "you squared the mean probabilities: one of the two factors is the share of the choices, "
        "which is what has to become even",
        "one factor is counted",
    )
    t(
        not math.isclose(even, 4),
        "you added the probabilities up over the tokens: P is their mean, so that the loss does "
        "not grow with the number of tokens",
        "P is a mean",
    )
    t(
        not math.isclose(even, 0.75),
        "you left out the probabilities of experts that a token did not choose: P is the mean of "
        "what the router gave, chosen or not",
        "P has all probabilities",
    )
    # Shares in float32 are right as well: the tolerance is 1e-6.
    t.close(
        even, 1.0, "every expert has 2 of 8 choices: the loss is 1, whatever P is", "1 when even"
    )
    r = torch.tensor([[0.55, 0.45]] * 3 + [[0.05, 0.95]] * 2, dtype=torch.float64)
    answer = balance(r, torch.tensor([[0], [0], [0], [1], [1]]))
    below = answer.item()
    t(
        not math.isclose(below, 1.04, rel_tol=1e-6),
        "you squared the shares: choices are counted and have no gradient. One factor has to be "
        "the mean probability, which the router can change",
        "the other factor is a mean probability",
    )
    t(
        not math.isclose(below, 2.35, rel_tol=1e-6),
        "you multiplied by the number of tokens, here 5: E is the number of experts, here 2",
        "E is the number of experts",
    )
    t(
        not math.isclose(below, 1, rel_tol=1e-6),
        "yours is 1 whatever is chosen: P is a mean over the tokens, with a number for each expert",
        "P has a number for each expert",
    )
    t.close(
        answer,
        0.94,
        "three of five tokens choose expert 0 by a hair, two choose expert 1 firmly: 0.94. Even "
        "use gives 1, but that is no least value",
        "0.94 is possible, too",
    )
    sure = torch.tensor([[0.7, 0.1, 0.2]] * 5, dtype=torch.float64)
    t.close(
        balance(sure, torch.zeros(5, 1, dtype=torch.int64)),
        2.1,
        "all tokens choose expert 0 of three: its share is 1, and those of the others 0. Without "
        "`minlength` bincount does not know that there are others",
        "experts that nobody chose",
    )
    powers = torch.tensor([[8, 4, 2, 2], [1, 6, 2, 1], [5, 3, 1, 1]], dtype=torch.float64)
    q = (powers / powers.sum(-1, keepdim=True)).requires_grad_()
    chosen = torch.tensor([[0, 1], [1, 2], [0, 1]])
    uneven = balance(q, chosen)
    t.close(
        uneven.item(),
        1.35,
        "three tokens on four experts: shares 2/6, 3/6, 1/6 and 0, times the mean probabilities, "
        "times 4",
        "tokens a, b and c of the chapter: 1.35",
    )
    t(
        uneven.requires_grad,
        "no gradient comes back to the probabilities: neither detach their means nor make a new "
        "tensor of them",
        "the probabilities have a gradient",
    )
    slope = torch.tensor([2, 3, 1, 0], dtype=torch.float64) / 6 * 4 / 3
    t.close(
        torch.autograd.grad(uneven, q)[0],
        slope.expand(3, 4),
        "the gradient for p is E f / N, the same for all tokens: only P depends on p",
        "the gradient is E f / N",
    )
    t.close(
        balance(q, torch.tensor([[3, 2], [3, 0], [2, 3]])),
        0.65,
        "here tokens do not choose what is most probable, as with a bias: count what stands in "
        "experts_NK",
        "the choices are taken as they are given",
    )


def check_3(t, after_drops, *, same):
    """14.3 A full expert"""
    # Room for 1 * 4 * 2 / 4 = 2 rows.  Expert 0 is chosen four times, expert 1 three times.
    weights = torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.8, 0.2], [0.9, 0.1]], dtype=torch.float64)
    before = weights.clone()
    experts = torch.tensor([[0, 1], [0, 1], [1, 0], [0, 3]])
    answer = after_drops(weights, experts, 4, 1)
    t(
        isinstance(answer, torch.Tensor) and answer.shape == (4, 2),
        "return a tensor of the shape of the weights, with a 0 at every dropped choice",
        "a weight for every choice",
    )
    t(torch.equal(weights, before), "you changed the weights themselves: work on a copy", "a copy")
    t(
        not same(answer, torch.tensor([[0.6, 0.4], [0, 0], [0, 0], [0, 0.1]])),
        "your capacity is that of one choice for a token: four tokens with two choices are eight "
        "rows, and k belongs into the capacity",
        "k choices make k rows",
    )
    tight = after_drops(torch.ones(2, 1, dtype=torch.float64), torch.tensor([[0], [0]]), 2, 1)
    t(
        not same(tight, torch.ones(2, 1)),
        "an expert takes more rows than its capacity: two rows for two experts and a factor of 1 "
        "leave room for one at each",
        "no expert takes more than its capacity",
    )
    t(
        not same(answer, torch.tensor([[1, 1], [1, 1], [0, 0], [0, 1]])),
        "you return a 1 for every choice that is kept: its weight is asked for",
        "kept choices have their weights",
    )
    t(
        not same(answer, torch.tensor([[0, 0], [0, 0.3], [0.8, 0.2], [0.9, 0.1]])),
        "you kept the last rows of each expert: the first ones are kept, in the order of the "
        "tokens",
        "the first are kept, not the last",
    )
    t(
        not same(answer, torch.tensor([[0, 0.4], [0.7, 0], [0.8, 0], [0.9, 0.1]])),
        "you kept the greatest weights of each expert: here who comes first is kept, in the order "
        "of the tokens. Weights play no part",
        "weights do not decide who is kept",
    )
    t(
        not same(answer, torch.tensor([[0.6, 0.4], [0.7, 0], [0.8, 0], [0, 0.1]])),
        "you let all first choices in before the second ones: some systems do, but here a token's "
        "second choice comes before the first choice of a later token",
        "first choices have no precedence",
    )
    t(
        not same(answer, torch.tensor([[0.6, 0.4], [0.7, 0.3], [0.8, 0.2], [0, 0.1]])),
        "you counted first choices and second choices apart: an expert has one block of rows for "
        "both",
        "one count for each expert",
    )
    t(
        not same(answer[:2], before[:2]) or abs(float(answer[3, 1]) - 1) > 1e-9,
        "you brought the weights that are left to sum 1: what is dropped adds nothing, and the "
        "other weights stay as they are",
        "weights that are left stay as they are",
    )
    t(
        not same(answer, torch.tensor([[0.6, 0.4], [0.7, 0.3], [0, 0], [0, 0]])),
        "you dropped the last token with both its choices: expert 0 was full, but expert 3 has "
        "room for it",
        "a token may lose one choice and keep the other",
    )
    t.equal(
        answer,
        torch.tensor([[0.6, 0.4], [0.7, 0.3], [0, 0], [0, 0.1]], dtype=torch.float64),
        "experts 0 and 1 are full after two tokens: token 2 loses both choices, and token 3 the "
        "first. A dropped weight is 0",
        "two rows for an expert",
    )
    three = torch.tensor([[1.0], [1.0], [1.0]], dtype=torch.float64)
    t.equal(
        after_drops(three, torch.tensor([[0], [0], [0]]), 2, 1),
        torch.tensor([[1.0], [1.0], [0.0]], dtype=torch.float64),
        "three rows for two experts: 1.5 is rounded up to 2, not down. Otherwise there would be "
        "room for fewer rows than there are",
        "capacity is rounded up",
    )
    small = after_drops(three, torch.tensor([[0], [0], [1]]), 2, 0.25)
    t(
        not same(small, three),
        "a factor of 1/4 drops nothing: is the factor in your capacity?",
        "the factor counts",
    )
    t.equal(
        small,
        torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64),
        "a factor of 1/4: 0.375 is rounded up to 1. Each of the two experts takes one row",
        "a small factor leaves room for one",
    )
    t.equal(
        after_drops(weights, experts, 4, 2),
        before,
        "with a factor of 2 an expert takes four rows, and nothing is dropped",
        "a large factor drops nothing",
    )


def check_4(t, deepseek_layer, *, same, swiglu):
    """14.4 A layer of DeepSeek-V3, whole"""
    # The router is the unit matrix, so x decides the scores.
    s = torch.tensor(
        [[0.6, 0.2, 0.4, 0.2], [0.2, 0.1, 0.3, 0.4], [0.9, 0.1, 0.1, 0.3]], dtype=torch.float64
    )
    x, unit = torch.logit(s), torch.eye(4, dtype=torch.float64)
    bias = torch.tensor([0, 0.5, 0, 0], dtype=torch.float64)
    draw = torch.Generator().manual_seed(14)

    def matrices(*shape):
        """Return random matrices."""
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    experts = matrices(4, 5, 4), matrices(4, 5, 4), matrices(4, 4, 5)
    shared = matrices(5, 4), matrices(5, 4), matrices(4, 5)
    kept = x.clone()
    answer = deepseek_layer(x, unit, bias, experts, shared, 2)
    t(
        isinstance(answer, torch.Tensor) and answer.shape == x.shape,
        "return a tensor of the shape of x_ND: every token comes back as a row",
        "every token comes back",
    )
    t(
        torch.equal(x, kept),
        "you changed the tokens themselves: add up in a tensor of its own",
        "the tokens stay as they are",
    )
    results = torch.stack([swiglu(x, *own) for own in zip(*experts, strict=True)], 1)
    common = swiglu(x, *shared)

    def layer(scores, by, normalised=True, times=1):
        """Return the layer for some scores, chosen by others."""
        chosen = by.topk(2).indices
        w = scores.gather(1, chosen)
        w = w / w.sum(1, keepdim=True) if normalised else w
        own = results.gather(1, chosen[..., None].expand(-1, -1, 4))
        return times * common + (w[..., None] * own).sum(1)

    p = torch.softmax(x, -1)
    t(
        not same(answer, layer(s, s)),
        "you chose without the bias: the k largest of the sums s + b are chosen",
        "the bias takes part in the choice",
    )
    t(
        not same(answer, layer(s + bias, s + bias)),
        "your weights contain the bias: it takes part in the choice alone, and the weights are "
        "made of s",
        "the bias is not in the weights",
    )
    t(
        not same(answer, layer(p, p + bias)),
        "your scores are a softmax over the experts: here each expert has a sigmoid of its own",
        "each score is a sigmoid",
    )
    t(
        not same(answer, layer(s, s + bias, normalised=False)),
        "the weights of a token do not add up to 1: divide its chosen scores by their sum",
        "weights add up to 1",
    )
    t(
        not same(answer, layer(s, s + bias, times=0)),
        "the shared expert is missing: every token gets its result, too",
        "every token has the shared expert",
    )
    t(
        not same(answer, layer(s, s + bias, times=2)),
        "you added the shared expert once for each choice: a token gets its result once",
        "the shared expert is added once",
    )
    t.close(
        answer,
        layer(s, s + bias),
        "token 0 has the sums 0.6, 0.7, 0.4 and 0.2: it goes to experts 1 and 0 with the weights "
        "0.2/0.8 and 0.6/0.8. Does every row of a result go back to its own token?",
        "three tokens by hand",
        relative=1e-9,
    )
    package = moe.MixtureOfExperts(
        width=6,
        hidden=5,
        num_experts=8,
        experts_per_token=3,
        num_shared=1,
        scoring="sigmoid",
        generator=None,
    ).double()
    with torch.no_grad():
        for w in [*package.parameters(), package.router.bias_E]:
            w.normal_(0, 0.5, generator=draw)
    tokens = matrices(40, 6).requires_grad_()
    router, own, common = package.router, package.experts, package.shared
    answer = deepseek_layer(
        tokens,
        router.w_router,
        router.bias_E,
        (own.w_gate, own.w_up, own.w_down),
        (common.w_gate, common.w_up, common.w_down),
        3,
    )
    expected = package(tokens)
    t.close(
        answer,
        expected,
        "40 tokens, eight experts, three for each token: the package's layer gives other results",
        "equal to the package's layer",
        relative=1e-9,
        absolute=1e-12,
    )
    leaves = [tokens, router.w_router]
    right = torch.autograd.grad(expected.square().sum(), leaves)
    t(
        answer.requires_grad,
        "no gradient reaches the tokens: leave .detach(), .item() and torch.no_grad() out",
        "gradients flow",
    )
    found = torch.autograd.grad(answer.square().sum(), leaves, allow_unused=True)
    t(
        found[1] is not None,
        "no gradient reaches the router: it learns through the weights, so they must not be "
        "detached from its scores",
        "the router gets a gradient",
    )
    t.close(
        list(found),
        list(right),
        "the gradients are not those of the package's layer",
        "gradients equal those of the package's layer",
        relative=1e-9,
        absolute=1e-12,
    )


def check_5(t, router_gradient, *, same):
    """14.5 What the router learns from"""
    draw = torch.Generator().manual_seed(14)

    def by_autograd(dy, results, scores, experts, divisor=lambda chosen: chosen.sum(-1, True)):
        """Return the gradient of the scores as autograd finds it, for some way of dividing."""
        leaf = scores.detach().clone().requires_grad_()
        chosen = torch.softmax(leaf, -1).gather(-1, experts)
        y = ((chosen / divisor(chosen))[..., None] * results).sum(1)
        return torch.autograd.grad(y, leaf, dy)[0]

    def example(num_tokens, num_experts, k, width):
        """Return dy, results, scores and the most probable experts."""
        dy = torch.randn(num_tokens, width, generator=draw, dtype=torch.float64)
        results = torch.randn(num_tokens, k, width, generator=draw, dtype=torch.float64) + 1
        scores = torch.randn(num_tokens, num_experts, generator=draw, dtype=torch.float64)
        return dy, results, scores, scores.argsort(-1, descending=True)[:, :k]

    dy, results, scores, experts = example(5, 7, 3, 4)
    kept = scores.clone()
    right = by_autograd(dy, results, scores, experts)
    answer = router_gradient(dy, results, scores, experts)
    t(
        isinstance(answer, torch.Tensor) and answer.shape == scores.shape,
        "return a tensor of the shape of the scores: a gradient for every expert, 0 for those that "
        "were not chosen",
        "a gradient for every score",
    )
    t(torch.equal(scores, kept), "you changed the scores themselves: work on a copy", "a copy")
    w = torch.softmax(scores.gather(-1, experts), -1)
    dw = (dy[:, None] * results).sum(-1)
    dchosen = right.gather(-1, experts)

    def placed(values):
        """Put values at the chosen experts."""
        return torch.zeros_like(scores).scatter(-1, experts, values)

    t(
        not same(answer, -right),
        "the sign is turned: this is the gradient, and the step against it is the optimizer's",
        "the sign is that of the gradient",
    )
    t(
        not same(answer, by_autograd(dy, results, scores, experts, torch.ones_like)),
        "you used the probabilities as weights, without dividing by the sum of the chosen ones: "
        "then experts that were not chosen would get a gradient, too",
        "weights are divided by the chosen sum",
    )
    t(
        not same(
            answer,
            by_autograd(dy, results, scores, experts, lambda c: c.sum(-1, True).detach()),
        ),
        "you held the divisor still: the sum of the chosen probabilities moves with every one of "
        "them",
        "the divisor moves, too",
    )
    t(
        not same(answer, placed(dw)),
        "that is the gradient for the weights: from there a softmax is still to be passed, back to "
        "the scores",
        "the softmax is passed",
    )
    t(
        not same(answer, placed(w * (1 - w) * dw)) and not same(answer, placed(w * dw)),
        "each score moves its own weight alone in your formula: the weights add up to 1, so what "
        "one gains the other chosen ones lose",
        "a weight grows at the cost of the others",
    )
    t(
        not same(answer, placed(w * (w * dw - (w * w * dw).sum(-1, True)))),
        "a weight is in it twice: the loss moves with a weight by dy times the expert's result as "
        "it was before its weight",
        "results count before their weights",
    )
    p = torch.softmax(scores, -1).gather(-1, experts)
    t(
        not same(answer, placed((dw - (w * dw).sum(-1, True)) / p.sum(-1, True))),
        "that is the gradient for the probabilities: one softmax, over all experts, is still to be "
        "passed on the way back to the scores",
        "probabilities are not scores",
    )
    t(
        not same(answer, right / dy.shape[1]),
        "yours is the right one divided by the width: y has a number for each column, and what "
        "they do to the loss is added up, not averaged",
        "columns are added up",
    )
    t(
        not same(answer, placed(w * (dw - (w * dw).sum()))),
        "you added up over all tokens: each token has weights of its own, and what its other "
        "choices lose is summed over its own choices",
        "each token sums over its own choices",
    )
    t(
        not same(answer, placed(p * (dw - (p * dw).sum(-1, True)))),
        "you put probabilities where weights belong: a weight is p divided by the sum of the "
        "chosen p",
        "the formula has the weights",
    )
    t(
        not same(answer[:, :3], dchosen),
        "your gradients stand in the first k columns, in the order of the choices: each belongs in "
        "the column of its expert",
        "each gradient has the column of its expert",
    )
    unchosen = torch.ones_like(scores).scatter(-1, experts, 0.0) == 1
    t(
        (answer[unchosen].abs() <= 1e-9 * right.abs().max()).all(),
        "a score that was not chosen has a gradient: the weights are ratios of chosen "
        "probabilities, and all other scores cancel",
        "scores that were not chosen get 0",
    )
    t.close(
        answer,
        right,
        "at a chosen expert: w (dw - the sum of w dw over the chosen), with dw = dy times its "
        "result, added up over the width",
        "it is what autograd finds",
        relative=1e-9,
    )
    single = example(4, 5, 1, 3)
    t.close(
        router_gradient(*single),
        torch.zeros(4, 5, dtype=torch.float64),
        "with one expert for a token the weight is 1 whatever the score: the gradient is 0",
        "with k = 1 nothing is learned",
        absolute=1e-12,
    )
    dy, results, scores, _ = example(3, 6, 2, 5)
    experts = torch.tensor([[5, 0], [2, 4], [1, 3]])
    t.close(
        router_gradient(dy, results, scores, experts),
        by_autograd(dy, results, scores, experts),
        "here the chosen experts are not the most probable, as with a bias: use experts_NK, and "
        "choose nothing anew",
        "the choices are taken as they are given",
        relative=1e-9,
    )
