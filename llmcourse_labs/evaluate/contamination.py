"""Has a test leaked into the training text?  Four ways to ask, and the score without what leaked.

Two need the text or its owner's help: runs of words that both have, and a canary, a random string
that the test's file carries.  Two need the model alone: tokens that surprise it too little, and an
order of the items that it prefers to all others.

Shape suffixes:  T tokens of a text, I items.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from llmcourse.base.arguments import require
from llmcourse_labs.curation.decontaminate import Decontaminate, normalised
from llmcourse_labs.tuning import answer_log_probs, answer_rows

# --- the text is at hand


def overlapping_items(items: Sequence[str], texts: Iterable[str], *, n: int = 13) -> list[bool]:
    """Say of each item whether a text shares a run of n words with it.

    Case and punctuation do not count.  An item of fewer than n words must stand there whole.

    Args:
        items: of the test, one or more, each with at least one word.
        texts: documents of the training text; runs do not go over their ends.
        n: words in a run, 1 or more.

    Raises:
        ValueError: if there is no item, an item has no word, or every text is shorter than a run.

    Source: Brown et al. 2020, appendix C, https://arxiv.org/abs/2005.14165
    """
    if not items:
        raise ValueError("there are no items to look for: give one or more")
    search = Decontaminate(items, n)
    shortest = min(n, *(len(normalised(item)) for item in items))
    found: set[int] = set()
    longest = 0
    for text in texts:
        longest = max(longest, len(normalised(text)) if longest < shortest else longest)
        found |= search.items_in(text)
    if longest < shortest:
        raise ValueError(
            f"no text has a run of {shortest} words (the longest has {longest}), so none can "
            "overlap: give longer texts, or a smaller n"
        )
    return [number in found for number in range(len(items))]


# --- the test carries a mark


@dataclass(frozen=True, kw_only=True)
class CanaryTest:
    """How a canary fares among strings of its kind that nobody has published."""

    rank: int
    """1 if the model finds it likelier than all others."""
    candidates: int
    """Strings that were compared, the canary among them."""

    @property
    def p_value(self) -> float:
        """Chance that a canary which was never read ranks so high: rank / candidates."""
        return self.rank / self.candidates

    @property
    def exposure(self) -> float:
        """Bits of the canary's randomness that the model has given away.

        The formula is ::

            exposure = log2(candidates) - log2(rank)

        Source: Carlini et al. 2019, section 4.2, https://arxiv.org/abs/1802.08232
        """
        return math.log2(self.candidates / self.rank)


def canary_test(log_prob: float, of_others: Sequence[float]) -> CanaryTest:
    """Rank a canary by its log-probability; one that equals it counts as likelier.

    Args:
        log_prob: of the canary, in nats.
        of_others: of strings drawn in the same way and kept to oneself, one or more.

    Raises:
        ValueError: if there are no others, or a number is NaN.
    """
    if not len(of_others):
        raise ValueError("there is nothing to rank the canary among: draw other strings like it")
    if any(math.isnan(x) for x in (log_prob, *of_others)):
        raise ValueError("a log-probability is NaN: look at the model before you rank")
    rank = 1 + sum(other >= log_prob for other in of_others)
    return CanaryTest(rank=rank, candidates=1 + len(of_others))


# --- the model alone: one item


def min_k_log_prob(log_prob_T: Float[Tensor, " T"], *, k: int | float = 20) -> float:
    """Return the mean log-probability of the k % of a text's tokens that surprise most.

    Of T tokens these are ceil(k T / 100), so at least one.  High values speak for a text that was
    read: whoever has read it is surprised by none of its words.

    Args:
        log_prob_T: of each token given those before it, in nats.
        k: share of the tokens in percent, above 0 and at most 100; 100 is the mean over all.

    Raises:
        ValueError: if there is no token or k is outside of (0, 100].

    Source: Shi et al. 2024, equation 1, https://arxiv.org/abs/2310.16789
    """
    require("k", k, above=0, most=100)
    if not len(log_prob_T):
        raise ValueError("the text has no token with a probability: give two tokens or more")
    # 7 of 100 tokens are 7 %: without the rounding, 0.07 x 100 would need 8.
    number = math.ceil(round(len(log_prob_T) * k / 100, 9))
    return log_prob_T.double().sort().values[: max(1, number)].mean().item()


def threshold_at(clean_scores: Sequence[float], rate: int | float) -> float:
    """Return the lowest of some clean scores which at most a share `rate` of them exceed.

    Whoever flags what is above it flags so many clean items, if these are like the clean ones
    that gave the threshold.

    Args:
        clean_scores: of items that the model cannot have read, one or more.
        rate: wanted share of false positives, at least 0 and below 1.

    Raises:
        ValueError: if there is no score, or the rate is outside of [0, 1).
    """
    require("rate", rate, least=0, below=1)
    if not len(clean_scores):
        raise ValueError("a threshold needs scores of clean items, one or more")
    ordered = sorted(clean_scores)
    return ordered[len(ordered) - 1 - math.floor(round(rate * len(ordered), 9))]


# --- the model alone: the order of the items


@torch.no_grad()
def pair_log_probs(
    model: nn.Module, items: Sequence[Sequence[int]], *, batch_size: int = 250
) -> Float[Tensor, "I I"]:
    """Return log p(item j | item i before it) for all pairs; the diagonal is not used, and 0.

    Args:
        model: ids in, logits out.
        items: token ids of each, two items or more.
        batch_size: pairs that the model reads at once.

    Raises:
        ValueError: if there are fewer than two items, or one has no token.
    """
    require("the number of items", len(items), least=2)
    pairs = [(i, j) for i in range(len(items)) for j in range(len(items)) if i != j]
    scores_II = torch.zeros(len(items), len(items))
    for start in range(0, len(pairs), batch_size):
        first, second = zip(*pairs[start : start + batch_size], strict=True)
        rows = answer_rows([items[i] for i in first], [items[j] for j in second])
        scores_II[list(first), list(second)] = answer_log_probs(model, rows).float()
    return scores_II


def order_log_prob(scores_II: Float[Tensor, "I I"], order: Sequence[int]) -> float:
    """Return the log-probability of items in an order, each given the one before it alone.

    The first item of the order, which has none before it, is left out.
    """
    places = torch.as_tensor(order)
    return scores_II[places[:-1], places[1:]].double().sum().item()


def exchangeability_p_value(
    log_prob_of: Callable[[list[int]], float],
    num_items: int,
    *,
    num_shuffles: int = 999,
    generator: torch.Generator,
) -> float:
    """Return how rarely a random order of a test is as likely as the one it was published in.

    The order of the items means nothing, so to a model that has not read the file all orders are
    alike, and the p-value is uniform ::

        p = (1 + number of shuffles with log p(shuffled) >= log p(published)) / (1 + shuffles)

    This holds for any `log_prob_of`, and for any model.

    Args:
        log_prob_of: takes an order of 0 to num_items - 1, which is the published one.
        num_items: two or more.
        num_shuffles: one or more; no p-value is below 1 / (1 + num_shuffles).
        generator: of the shuffles.

    Raises:
        ValueError: if a number is too small, or a log-probability is NaN.

    Source: Oren et al. 2024, section 3.1, https://arxiv.org/abs/2310.17623
    """
    require("num_items", num_items, least=2)
    require("num_shuffles", num_shuffles, least=1)
    published = log_prob_of(list(range(num_items)))
    orders = (torch.randperm(num_items, generator=generator) for _ in range(num_shuffles))
    shuffled = [log_prob_of(order.tolist()) for order in orders]
    return canary_test(published, shuffled).p_value


# --- what to report


@dataclass(frozen=True, kw_only=True)
class SplitScore:
    """A test's score on what seems clean, and on what was flagged."""

    clean_right: int
    """Right answers to items that no detector flagged."""
    clean_items: int
    """Those items, one or more."""
    flagged_right: int
    """Right answers to items that were flagged."""
    flagged_items: int
    """Those items; may be 0."""

    @property
    def whole(self) -> float:
        """Share of right answers to all items: what is usually reported."""
        return (self.clean_right + self.flagged_right) / (self.clean_items + self.flagged_items)

    @property
    def clean(self) -> float:
        """Share of right answers to the items that were not flagged."""
        return self.clean_right / self.clean_items

    @property
    def flagged(self) -> float:
        """Share of right answers to the flagged items; NaN if there are none."""
        return self.flagged_right / self.flagged_items if self.flagged_items else math.nan


def split_score(right: Sequence[bool], flagged: Sequence[bool]) -> SplitScore:
    """Divide a test's answers by whether their items were flagged.

    Args:
        right: of each item, whether it was answered rightly.
        flagged: of each item, whether a detector takes it for one that was read.

    Raises:
        ValueError: if the lengths differ, there is no item, or all are flagged.
    """
    if not right or len(right) != len(flagged):
        raise ValueError(
            f"give one mark for each of one or more items, got {len(right)} answers and "
            f"{len(flagged)} flags"
        )
    if all(flagged):
        raise ValueError(
            f"all {len(right)} items are flagged, so there is no clean subset: report that, and "
            "test with new items"
        )
    clean = [bool(r) for r, f in zip(right, flagged, strict=True) if not f]
    dirty = [bool(r) for r, f in zip(right, flagged, strict=True) if f]
    return SplitScore(
        clean_right=sum(clean),
        clean_items=len(clean),
        flagged_right=sum(dirty),
        flagged_items=len(dirty),
    )
