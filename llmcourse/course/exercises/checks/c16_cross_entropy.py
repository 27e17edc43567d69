"""Checks of 16_cross_entropy, written by tools.exercises from its solutions."""

import math
from functools import reduce
import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from llmcourse.data import corpus
from llmcourse.data.tokenizer import train_bpe


def check_1(t, absorb):
    """16.1 Log-sum-exp in one pass"""
    share = 0.36787944117144233  # exp(-1)
    after_two = absorb(3.0, 1.0, 2.0)
    t(
        after_two[1] < 8,
        "you added exp(logit) itself, which overflows: each term is taken relative to the largest",
        "terms are taken relative to the largest logit",
    )
    t(
        after_two[0] != 2.0,
        "you took the newest logit as the reference: it is the largest so far that keeps every "
        "exponent at 0 or below",
        "a smaller logit leaves the reference as it is",
    )
    t.close(
        [after_two, absorb(2.0, 1.0, 3.0), absorb(5.0, 2.5, 5.0)],
        [(3.0, 1.0 + share), (3.0, 1.0 + share), (5.0, 3.5)],
        "a new largest changes what the old terms are relative to: multiply the old sum by "
        "exp(old largest - new largest), and add the new term once",
        "logits 2 and 3 give the same pair in either order, and an equal logit adds 1",
        relative=1e-12,
    )
    t.close(
        [absorb(-math.inf, 0.0, x) for x in (-7.0, -math.inf)] + [absorb(1.0, 1.5, -math.inf)],
        [(-7.0, 1.0), (-math.inf, 0.0), (1.0, 1.5)],
        "a forbidden token is to change nothing: where the largest is -inf as well, -inf - (-inf) "
        "is NaN, and NaN spreads",
        "the first logit starts the sum, and forbidden tokens add nothing",
        relative=1e-12,
    )
    row = [999.0, -1000.0, -math.inf, 1000.0, 0.0, 1000.0]
    largest, total = reduce(lambda pair, logit: absorb(*pair, logit), row, (-math.inf, 0.0))
    t.close(
        largest + math.log(total),
        torch.tensor(row, dtype=torch.float64).logsumexp(0).item(),
        "over six logits between -inf and 1,000 log-sum-exp is not torch's",
        "the log-sum-exp of six logits between -inf and 1,000 is torch's",
        relative=1e-14,
    )


def check_2(t, bits_per_byte):
    """16.2 Bits per byte"""
    # Three tokens of 3, 9 and 6 bits; five characters, six bytes.
    answer = float(bits_per_byte([bits * math.log(2) for bits in (3, 9, 6)], "naïve"))
    t(
        round(answer, 3) not in (1.0, 1.2, 6.0),
        "you took the mean over the tokens: how many they are depends on the tokenizer, so add "
        "the losses up",
        "losses are added up",
    )
    t(
        round(answer, 3) != 3.6,
        "you divided by characters: naïve has five of them, and six bytes",
        "the text is measured in bytes",
    )
    t(
        round(answer, 3) not in (2.079, 1.441),
        "you did not turn nats into bits: one bit is ln 2 = 0.693 nats, so divide by that",
        "nats are turned into bits",
    )
    t.close(
        [answer, bits_per_byte([math.log(256)] * 4, "日a")],
        [3.0, 8.0],
        "18 bits over the 6 bytes that naïve has in UTF-8 are 3 bits per byte, and guessing among "
        "256 equally likely bytes takes 8",
        "naïve takes 3 bits per byte, and a model that knows nothing of bytes takes 8",
        relative=1e-5,
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
