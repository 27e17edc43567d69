"""Training on what a model wrote: writing it, checking it, and generation after generation of it.

A model that learns from its own text learns no more than it knew.  Its mistakes pile up; where text
is drawn cooler or picked by a judge, what is rare goes.  Only what comes from outside changes that:
true text in between, or a check that knows more than the model.

    generation 0       trains on true text
    generation g + 1   trains on what generation g wrote, checked or mixed with true text

Source: Shumailov et al. 2024, "AI models collapse when trained on recursively generated data",
Nature 631; Zelikman et al. 2022, "STaR: bootstrapping reasoning with reasoning" (check and keep).

Shape suffixes:  N targets, V vocabulary.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.arguments import require
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.model.sampling import generate
from llmcourse_labs.study import story_report

STREAMS = 64
"""Texts that a model writes side by side."""


def write_documents(
    model: Transformer,
    tokenizer: Tokenizer,
    num_tokens: int,
    *,
    seed: int,
    temperature: int | float = 1.0,
    top_p: int | float | None = None,
) -> list[str]:
    """Let a model write documents, each begun after an end of text.

    Args:
        model: trained on documents with an end of text behind each.
        tokenizer: the model's, which knows the end of text.
        num_tokens: that are drawn; the documents have a little fewer, since those that are not
            finished are left out.
        seed: of the draws.
        temperature: see `next_token_probabilities`.
        top_p: see `next_token_probabilities`.

    Raises:
        ValueError: if a setting is outside its range.
    """
    require("num_tokens", num_tokens, least=STREAMS)
    (end,) = tokenizer.encode(END_OF_TEXT)
    written = generate(
        model,
        torch.full((STREAMS, 1), end),
        max_new_tokens=num_tokens // STREAMS,
        generator=torch.Generator().manual_seed(seed),
        temperature=temperature,
        top_p=top_p,
    )
    assert isinstance(written, Tensor)  # as the prompts are
    documents = []
    for row in written[:, 1:].tolist():
        *finished, _cut = tokenizer.decode_known(row).split(END_OF_TEXT)
        documents += [text for text in finished if text.strip()]
    return documents


def is_grammatical(text: str) -> bool:
    """Say whether the grammar of the stories has a sentence of the form of each of a text's.

    It does not ask whether the sentences fit together.
    """
    tally = story_report(text + END_OF_TEXT).sentences
    return 0 < tally.total == tally.right


class Verified(NamedTuple):
    """What a check has kept."""

    documents: list[str]
    """In the order in which they were written."""
    num_written: int
    """Documents that were checked."""


def verify_and_keep(
    write: Callable[[int], list[str]],
    check: Callable[[str], bool],
    num_characters: int,
    *,
    most_rounds: int = 100,
) -> Verified:
    """Write until the documents that pass a check have a number of characters together.

    Args:
        write: returns documents of a round, which is numbered from 0.
        check: says whether a document is good.
        num_characters: of the documents that are kept, at least; 1 or more.
        most_rounds: after which it is given up.

    Raises:
        ValueError: if so many rounds do not suffice.
    """
    require("num_characters", num_characters, least=1)
    kept: list[str] = []
    num_written = length = 0
    for number in range(most_rounds):
        documents = write(number)
        good = [text for text in documents if check(text)]
        kept += good
        num_written += len(documents)
        length += sum(map(len, good))
        if length >= num_characters:
            return Verified(kept, num_written)
    raise ValueError(
        f"of {num_written} documents in {most_rounds} rounds, {len(kept)} passed the check, with "
        f"{length} of {num_characters} characters: take a better model or ask for less"
    )


class Generation(NamedTuple):
    """A model, and what it was trained on."""

    number: int
    model: Any
    documents: Sequence[str]


def generations(
    first: Sequence[str],
    train: Callable[[Sequence[str], int], Any],
    write: Callable[[Any, int], Sequence[str]],
    *,
    num_generations: int,
    fresh: Callable[[int], Sequence[str]] | None = None,
    fresh_share: int | float = 0.0,
    seed: int = 0,
) -> Iterator[Generation]:
    """Train a model, let it write, train the next one from scratch on that; yield every one.

    Args:
        first: true documents, for generation 0.
        train: returns a model that was trained on documents, for a generation's number.
        write: returns documents of a model, for the number of the generation that they are for; a
            check belongs here.
        num_generations: after generation 0.
        fresh: returns true documents that nobody has seen, for a generation's number.
        fresh_share: share of a generation's documents that is fresh, from 0 to 1.
        seed: of which written documents give way to fresh ones.

    Raises:
        ValueError: if a share is outside its range, or has no effect, or there is too little text.
    """
    require("num_generations", num_generations, least=0)
    require("fresh_share", fresh_share, least=0, most=1)
    if (fresh is None) != (fresh_share == 0):
        raise ValueError("fresh documents and a fresh_share above 0 go together: give both or none")
    model = train(first, 0)
    yield Generation(0, model, first)
    # From here on only `fresh` brings in true text.
    for number in range(1, num_generations + 1):
        documents = list(write(model, number))
        if fresh is not None:
            documents = _partly_fresh(documents, list(fresh(number)), fresh_share, seed + number)
        model = train(documents, number)
        yield Generation(number, model, documents)


def _partly_fresh(written: list[str], fresh: list[str], share: int | float, seed: int) -> list[str]:
    """Return as many documents as were written, of which a share is fresh, in random order."""
    num_fresh = round(share * len(written))
    if len(fresh) < num_fresh:
        raise ValueError(f"{num_fresh} fresh documents are needed, there are {len(fresh)}")
    rng = random.Random(seed)
    documents = rng.sample(written, len(written) - num_fresh) + fresh[:num_fresh]
    rng.shuffle(documents)
    return documents


def rare_tokens(counts_V: Int[Tensor, " V"], share: int | float = 0.1) -> Int[Tensor, " rare"]:
    """Return the rarest tokens that make up at most a share of a text together.

    Args:
        counts_V: how often each token stands in true text.
        share: of the text, above 0 and up to 1.

    Raises:
        ValueError: if the share is outside its range, or not even the rarest token fits.
    """
    require("share", share, above=0, most=1)
    order_V = counts_V.argsort(stable=True)
    fits_V = counts_V[order_V].cumsum(0) <= share * counts_V.sum()
    rare = order_V[fits_V & (counts_V[order_V] > 0)]
    if len(rare) == 0:
        raise ValueError(f"no token makes up less than {share} of the text: take a larger share")
    return rare


def tail_loss(
    losses_N: Float[Tensor, " N"], targets_N: Int[Tensor, " N"], rare: Int[Tensor, " rare"]
) -> float:
    """Return the mean loss over the targets that are rare tokens.

    tail loss = mean of losses_n over all n with targets_n in rare

    Args:
        losses_N: of every target, in nats.
        targets_N: the tokens that came.
        rare: from `rare_tokens`.

    Raises:
        ValueError: if no target is rare.
    """
    is_rare_N = torch.isin(targets_N, rare)
    if not is_rare_N.any():
        raise ValueError("no target is a rare token: take more text")
    return losses_N[is_rare_N].mean().item()
