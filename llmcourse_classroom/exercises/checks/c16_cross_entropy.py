"""Checks of exercises 16: cross-entropy and its units."""

import math

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from llmcourse.data import corpus
from llmcourse.data.tokenizer import train_bpe


def check_1(t, cross_entropy):
    """16.1 The loss"""
    # Row 0 has the probabilities 1/2, 1/4, 1/8 and 1/8, row 1 has 1/16, 1/16, 1/8 and 3/4.
    shares = torch.tensor([[4.0, 2.0, 1.0, 1.0], [1.0, 1.0, 2.0, 12.0]])
    came = torch.tensor([2, 1])
    right = (math.log(8) + math.log(16)) / 2
    found = cross_entropy(shares.log(), came)
    t(
        torch.as_tensor(found).shape == (),
        "you return a number for each place: the loss is the mean of them all",
        "the loss is one number",
    )
    found = float(found)
    t(
        abs(found - 2 * right) > 1e-3,
        "you added the losses of the two places: take their mean, or a larger batch would have a "
        "larger loss",
        "the losses are averaged, not added",
    )
    t(
        abs(found + math.log((1 / 8 + 1 / 16) / 2)) > 1e-3,
        "you took the mean of the probabilities and then the logarithm: surprises are averaged, so "
        "the logarithm comes first",
        "the logarithm is taken before the mean",
    )
    t(
        abs(found - math.log(3)) > 1e-3,
        "you summed over the places: each row is a distribution of its own, so the sum of the "
        "exponentials goes over the vocabulary, the last dimension",
        "the sum goes over the vocabulary",
    )
    t(
        abs(found - 2.0794) > 1e-3 and abs(found - 1.7329) > 1e-3,
        "the target of a place is looked up one token off, or in another row: row n is judged by "
        "targets_N[n]",
        "each place is judged by its own target",
    )
    t.close(
        found,
        right,
        "probabilities of 1/8 and 1/16 for what came are a mean loss of (ln 8 + ln 16) / 2 = 2.426",
        "probabilities of 1/8 and 1/16 are a loss of 2.426 nats",
        relative=1e-5,
    )
    large = torch.tensor([[1e4, 1e4 - 1, 0.0], [-1e4, -1e4, -1e4]])
    t.close(
        cross_entropy(large, torch.tensor([1, 2])),
        (1 + math.log(1 + math.exp(-1)) + math.log(3)) / 2,
        "with logits of 10,000 or -10,000 the loss is not finite or not right: subtract the "
        "largest logit of each row before you take exponentials",
        "logits of 10,000 and of -10,000 do no harm",
        relative=1e-3,
    )
    leaf = shares.log().requires_grad_()
    loss = cross_entropy(leaf, came)
    passes = isinstance(loss, torch.Tensor) and loss.requires_grad
    if passes:
        loss.backward()
    t(
        passes,
        "no gradient comes back: return a tensor that is computed from the logits, and use neither "
        ".item() nor .detach()",
        "the loss passes a gradient back",
    )
    wanted = torch.tensor([[1 / 2, 1 / 4, -7 / 8, 1 / 8], [1 / 16, -15 / 16, 1 / 8, 3 / 4]]) / 2
    t.close(
        leaf.grad,
        wanted,
        "the gradient of the logits is not (p - y) / N",
        "the gradient of the logits is (p - y) / N",
        relative=1e-5,
    )


def check_2(t, conclusions, measure, sweep):
    """16.2 Turn the temperature"""
    # At T = 1/2 the probabilities 1/2, 1/4 and 1/4 are squared: 2/3, 1/6 and 1/6.
    halves = torch.tensor([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0]]).log()
    loss, drawn = measure(halves, torch.tensor([0, 0]), 0.5)
    right_loss = (math.log(3 / 2) + math.log(6)) / 2
    t(
        abs(loss - 1.0546) > 1e-3,
        "you multiplied the logits by the temperature: it divides them, so that a small one makes "
        "the differences larger",
        "the temperature divides the logits",
    )
    t(
        abs(loss - 2.0794) > 1e-3,
        "your probabilities do not sum to 1: raise them to 1/T, and scale them again",
        "the probabilities sum to 1 at every temperature",
    )
    t(
        abs(loss - math.log(12 / 5)) > 1e-3,
        "your loss is the logarithm of the mean probability: average the surprises",
        "surprises are averaged",
    )
    t(
        abs(drawn - 0.5) > 1e-3,
        "you counted how often the likeliest token came: a drawn token is right with the "
        "probability that the model gave to what came",
        "a drawn token is right with the probability of what came",
    )
    t.close(
        (loss, drawn),
        (right_loss, 5 / 12),
        "at T = 1/2 the chances 1/2, 1/4, 1/4 become 2/3, 1/6, 1/6",
        "at T = 1/2 the chances 1/2, 1/4, 1/4 become 2/3, 1/6, 1/6",
        relative=1e-5,
    )
    table = sweep()
    yours = conclusions()
    columns = {
        "smallest loss": (0, -1, 0.02),
        "drawn tokens are right most often": (1, 1, 0.005),
        "most sentences that the recogniser accepts": (2, 1, 0.08),
        "fewest sentences that repeat others": (3, 1, 0.02),
        "most sentences that are new and right": (4, 1, 0.035),
    }
    meanings = {
        "smallest loss": "a colder model claims more than it knows, a hotter one less; training "
        "and counting both aim at T = 1",
        "drawn tokens are right most often": "the colder, the more often the likeliest is drawn",
        "most sentences that the recogniser accepts": "each further bit of chance is a chance to "
        "leave the grammar",
        "fewest sentences that repeat others": "more chance, fewer repetitions",
        "most sentences that are new and right": "what is new must also be right: where nearly "
        "nothing is right, nothing new is",
    }
    t(
        isinstance(yours, dict) and set(columns) < set(yours),
        f"conclusions() returns a dict with an answer to each of: {', '.join(columns)}",
        "there is an answer to every question",
    )
    for name, (column, sign, margin) in columns.items():
        values = {T: sign * row[column] for T, row in table.items()}
        best = max(values.values())
        # Within chance of the best is as good as the best.
        t(
            values.get(yours[name], -math.inf) >= best - margin,
            f"{name}: not at {yours[name]}, says the table: {meanings[name]}",
            f"{name}: {meanings[name]}",
        )
    t.equal(
        yours.get("the likeliest token depends on the temperature"),
        False,
        "all logits of a row are divided by the same number: can that exchange two of them?",
        "the order of the tokens is the same at every temperature",
    )


def check_3(t, unigram_scores):
    """16.3 Perplexity across tokenizers"""
    # Counts of 3, 1, 0 and 0 become 4, 2, 1 and 1 of 8: tokens 0, 1 and 2 take 1, 2 and 3 bits.
    training = np.array([0, 0, 1, 0])
    t(
        round(float(unigram_scores(training, np.array([0]), 4, 1)[0]), 3) != 1.5,
        "you took the shares of the two tokens that occurred: the other two of the vocabulary of "
        "4 count once each, so give np.bincount a minlength",
        "tokens that do not occur in the training text have a share, too",
    )
    test = np.array([0, 1, 2])
    found_perplexity, found_bits = map(float, unigram_scores(training, test, 4, 6))
    t(
        math.isfinite(found_perplexity),
        "token 2 is not in the training text, and with probability 0 its loss has no limit: raise "
        "every count by 1",
        "no token is impossible",
    )
    t(
        round(found_perplexity, 3) != 4.667,
        "you averaged 1/p: perplexity is e to the mean of the losses, and 1/p itself is averaged "
        "nowhere",
        "losses are averaged, not 1/p",
    )
    t(
        round(found_perplexity, 3) not in (2.614, 7.389),
        "you mixed the units: e to the mean goes with losses in nats, 2 to the mean with bits",
        "e goes with nats, 2 with bits",
    )
    t(
        not (round(found_perplexity, 3) in (1.386, 2.0) and round(found_bits, 3) == 1.0),
        "you returned the mean loss: the perplexity is e to that, when it is in nats",
        "the perplexity is not the loss itself",
    )
    t(
        round(found_perplexity, 3) != 2.0 or round(found_bits, 3) == 1.0,
        "your probabilities do not sum to 1: every count is raised by 1, so divide by the sum of "
        "the raised counts",
        "the shares are those of the raised counts",
    )
    t(
        round(found_bits, 3) != 2.0,
        "you took bits per token for bits per byte: the bits of the whole text are divided by its "
        "bytes",
        "bits of the whole text are divided by its bytes",
    )
    t.close(
        [found_perplexity, found_bits],
        [4.0, 1.0],
        "losses of 1, 2 and 3 bits are a perplexity of 2² = 4, and 6 bits over 6 bytes",
        "three tokens of 1, 2 and 3 bits have perplexity 4, and take 1 bit per byte",
        relative=1e-12,
    )
    t.close(
        unigram_scores(training, np.array([3]), 16, 1),
        (20.0, math.log2(20)),
        "a token that the training text lacks counts as seen once, and so does each other one of "
        "the vocabulary, also those beyond the greatest id that occurred",
        "every id of the vocabulary has a count of at least 1",
        relative=1e-12,
    )
    past, later = ("\n\n".join(a.text for a in part) for part in corpus.sotu_split())
    past, later = past[-300_000:], later[:100_000]
    real = []
    for size in (256, 512, 1_024):
        bpe = train_bpe(past, size)
        ids = [np.asarray(bpe.encode(text)) for text in (past, later)]
        real.append(unigram_scores(*ids, size, len(later.encode())))
    t.close(
        real,
        [
            (21.29412105193461, 4.4123832765161515),
            (193.17621102343466, 3.491593463740319),
            (377.5756216682735, 3.040568708626098),
        ],
        "with tokenizers of 256, 512 and 1,024 tokens on real addresses the figures are others",
        "from 256 to 1,024 tokens the perplexity rises from 21 to 378, and yet the text is "
        "predicted better: 4.41 bits per byte become 3.04. Perplexity would choose single bytes",
        relative=1e-9,
    )


def check_4(t, chunked_cross_entropy):
    """16.4 A loss in slices, and its gradient"""
    random_numbers = torch.Generator().manual_seed(16)
    x = torch.randn(6, 4, generator=random_numbers, dtype=torch.float64)
    w = torch.randn(10, 4, generator=random_numbers, dtype=torch.float64)
    targets = torch.tensor([0, 9, 3, 3, 5, 8])

    def reference(x_ND, w_VD):
        """Return loss and gradients by torch's own function, with all logits at once."""
        leaves = [x_ND.clone().requires_grad_(), w_VD.clone().requires_grad_()]
        value = torch.nn.functional.cross_entropy(leaves[0] @ leaves[1].T, targets)
        return (value.detach(), *torch.autograd.grad(value, leaves))

    right_loss, right_dx, right_dw = reference(x, w)
    found, dx, dw = chunked_cross_entropy(x, w, targets, 3)
    t(
        abs(float(found) - 6 * float(right_loss)) > 1e-9,
        "you added the losses of the 6 rows: the loss is their mean",
        "the loss is a mean",
    )
    t.close(
        found,
        right_loss,
        "the loss in 3 slices is not torch's: a token's normaliser is the sum over all slices, "
        "and parts with different maxima have to be rescaled before they are added",
        "the loss in 3 slices is torch's",
        relative=1e-12,
    )
    t(
        not torch.allclose(torch.as_tensor(dw), 6 * right_dw),
        "you left the gradient of the sum: the loss is a mean over 6 rows, and so is its gradient",
        "the gradient is that of the mean",
    )
    t.close(
        dw,
        right_dw,
        "the gradient for w is not that of autograd: a slope is the probability among all tokens, "
        "minus 1 only at the target, in the one slice that holds it",
        "the gradient for w is that of autograd",
        relative=1e-12,
    )
    t.close(
        dx,
        right_dx,
        "the gradient for x is not that of autograd: every slice adds its share to it",
        "the gradient for x is that of autograd: the shares of all slices are added",
        relative=1e-12,
    )
    t.close(
        chunked_cross_entropy(300 * x, w, targets, 4),
        reference(300 * x, w),
        "with large logits the answer is not finite or not right: subtract the largest before you "
        "exponentiate",
        "large logits do no harm, nor does a vocabulary of 10 in 4 slices",
        relative=1e-9,
    )

    class Held(TorchDispatchMode):
        """Notes how many numbers the tensors hold that torch returned and somebody still keeps."""

        most = 0

        def __init__(self):
            super().__init__()
            self.kept = {}

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            made = operation(*args, **(kwargs or {}))
            for one in made if isinstance(made, list | tuple) else [made]:
                if isinstance(one, torch.Tensor):
                    memory = StorageWeakRef(one.untyped_storage())
                    self.kept[memory.cdata] = memory, one.untyped_storage().nbytes()
            self.kept = {key: one for key, one in self.kept.items() if not one[0].expired()}
            # Four bytes to a number.
            self.most = max(self.most, sum(size for _, size in self.kept.values()) // 4)
            return made

    wide, many = torch.ones(2_000, 2), torch.ones(40, 2)
    with Held() as meter:
        chunked_cross_entropy(many, wide, torch.arange(40), 40)
    t(
        meter.most < 40 * 2_000 / 2,
        f"at one time your tensors held {meter.most:,} numbers: the logits of one slice are 2,000, "
        "and all logits are 80,000. Keep none from slice to slice, as autograd does",
        f"at no time did your tensors hold more than {meter.most:,} numbers; all logits are 80,000",
    )
