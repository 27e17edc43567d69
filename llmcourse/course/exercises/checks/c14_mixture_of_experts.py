"""Checks of 14_mixture_of_experts, written by tools.exercises from its solutions."""

import math
import torch


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


def check_4(t, total_and_active, *, DEEPSEEK_V3, MIXTRAL_8X7B):
    """14.4 Total and active"""
    # Embedding and head 1,000, norms 70, attention 900, routers 240, one expert 120.
    small = {
        "num_layers": 3,
        "num_dense": 0,
        "width": 10,
        "vocab_size": 50,
        "attention": 300,
        "dense_hidden": 40,
        "expert_hidden": 4,
        "num_experts": 8,
        "experts_per_token": 2,
        "num_shared": 0,
    }
    answer = total_and_active(**small)
    t(
        isinstance(answer, tuple | list) and len(answer) == 2,
        "return two whole numbers: (total, active)",
        "two numbers",
    )
    total, active = answer
    t(total >= active, "your total is less than what is active: (total, active)", "total is first")
    t(
        total < 5_090 + 7 * 900,
        "you multiplied attention, and perhaps all the rest, by the number of experts: 8 x 7 = 56 "
        "is a name, not a count. Only the feed-forward network is there eight times",
        "attention exists once",
    )
    t(
        total != 4_850,
        "the router is missing: in each mixture it has a row of `width` numbers for every expert",
        "the router counts",
    )
    t(
        total != 5_090 - 960,
        "your experts have two matrices: a SwiGLU network has three, gate, up and down",
        "an expert has three matrices",
    )
    t(
        total not in (5_020, 5_050, 5_060, 5_080),
        "norms are missing: two in each layer, and one after the last",
        "all norms are counted",
    )
    t(
        total not in (4_590, 4_090),
        "embedding and head are not tied: each has 50 rows of 10 numbers",
        "embedding and head are counted",
    )
    t.equal(
        total,
        5_090,
        "1,000 in embedding and head, 70 in norms, 900 in attention, 240 in routers, and three "
        "times eight experts of 120",
        "5,090 in all",
    )
    t(
        active != total,
        "you count all experts as active: a token uses two of the eight in each layer, and the "
        "others do no arithmetic for it",
        "only chosen experts are active",
    )
    t(
        active != 2_930 - 180,
        "you count the router's rows of the chosen experts alone: to choose, the router computes "
        "the scores of all experts",
        "the whole router is active",
    )
    t(
        active != 2_930 - 240,
        "the router is missing among the active: every token multiplies with it",
        "the router is active",
    )
    t(
        active != 2_930 - 490,
        "you count one row of the embedding as active: a token does look up one, but here the "
        "embedding is counted whole",
        "the embedding is counted whole",
    )
    t(
        active != 2_930 - 480,
        "you count the chosen experts of one layer: a token chooses anew in every layer",
        "experts are chosen in every layer",
    )
    t(
        active not in (1_930, 2_430),
        "the embedding or the head is missing among the active: here both are counted whole",
        "embedding and head are active",
    )
    t.equal(
        active,
        2_930,
        "active is all but the six experts of each layer that are not chosen: 5,090 less 3 x 720",
        "2,930 active",
    )
    mixed = total_and_active(**small | {"num_dense": 1, "num_shared": 1})
    t(
        mixed[0] != 5_250,
        "the shared expert is missing: in each of the two mixtures it stands beside the routed "
        "ones, and every token uses it",
        "shared experts count",
    )
    t(
        list(mixed) not in ([5_450, 3_290], [6_650, 4_490]),
        "you gave every layer a mixture: the first `num_dense` have one feed-forward network in "
        "its place, and no router",
        "the first layers are dense",
    )
    t(
        mixed[0] != 5_490 - 1_200,
        "the feed-forward network of the dense layer is missing: three matrices between `width` "
        "and `dense_hidden`",
        "dense layers have a feed-forward network",
    )
    t(
        mixed[0] != 5_490 - 400,
        "your dense layer has two matrices: its feed-forward network is a SwiGLU, too, with three",
        "a dense layer has three matrices",
    )
    t(
        mixed[0] != 5_490 + 20,
        "you gave the router a row for the shared expert: every token uses it, so there is nothing "
        "to score",
        "the router does not score shared experts",
    )
    t(
        mixed[1] != 4_050 - 240,
        "you count the shared expert among the two of a token: it comes besides, so that a token "
        "uses three",
        "the shared expert comes besides",
    )
    t.equal(
        mixed,
        [5_490, 4_050],
        "one dense layer of 1,200 and two mixtures: 160 in routers, 16 routed experts of 120 and "
        "two shared ones; active are four and two",
        "a dense layer and shared experts",
    )
    t.equal(
        total_and_active(**MIXTRAL_8X7B),
        [46_702_792_704, 12_879_925_248],
        "Mixtral 8x7B has 46.7 billion parameters, and 12.9 are active",
        "Mixtral 8x7B: 46.7 billion, 12.9 active",
    )
    t.equal(
        total_and_active(**DEEPSEEK_V3),
        [671_026_404_352, 37_552_282_624],
        "DeepSeek-V3 has 671.0 billion parameters, and 37.6 are active",
        "DeepSeek-V3: 671.0 billion, 37.6 active",
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
