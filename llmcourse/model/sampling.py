"""From logits to text: temperature, top-k, top-p, and the loop that appends one token at a time.

Shape suffixes:  B batch, T time, S time of cached keys, V vocabulary.
"""

from collections.abc import Callable, Collection, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmcourse.base.arguments import require, require_each
from llmcourse.base.pairs import at_least_float32
from llmcourse.model.decoder import KVCache, Transformer

Prompt = Int[Tensor, "..."] | Sequence[int]
"""A row of token ids."""


def next_token_probabilities(
    logits_BV: Float[Tensor, "*B V"],
    *,
    temperature: int | float = 1.0,
    top_k: int | None = None,
    top_p: int | float | None = None,
) -> Float[Tensor, "*B V"]:
    """Return the distribution that the next token is drawn from.

    p = softmax(logits / temperature), restricted first to the top_k likeliest tokens, then to the
    smallest set of likeliest tokens whose probability reaches top_p, and rescaled to sum to 1.

    Args:
        logits_BV: unnormalised log-probabilities.
        temperature: 0 or greater; 0 puts everything on the likeliest token (the first of equals).
        top_k: how many tokens to keep, at least 1; None keeps all.
        top_p: probability to keep, in (0, 1]; None keeps all.

    Raises:
        ValueError: if an argument is outside its range.

    Source:
        Holtzman et al. 2020 for top-p, https://arxiv.org/abs/1904.09751
    """
    check_sampling(temperature, top_k, top_p)
    if torch.tensor(temperature, dtype=at_least_float32(logits_BV.dtype)) == 0:  # 1e-46, too
        best_BV = torch.zeros_like(logits_BV)
        return best_BV.scatter(-1, logits_BV.argmax(-1, keepdim=True), 1.0)
    # The maximum is subtracted before dividing: a tiny temperature would otherwise overflow.
    shifted_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)) / temperature
    if top_k is None and top_p is None:
        return shifted_BV.softmax(-1)
    sorted_BV, order_BV = shifted_BV.sort(dim=-1, descending=True, stable=True)
    p_BV = sorted_BV.softmax(-1)
    if top_k is not None:
        p_BV[..., top_k:] = 0.0
        p_BV = p_BV / p_BV.sum(-1, keepdim=True)
    if top_p is not None:
        # What is kept already when a token's turn comes.  Probabilities are rounded: 0.5 and 0.3
        # reach 0.8 also where their sum is a few roundings below, and 1 is reached by all alone.
        before_BV = p_BV.double().cumsum(-1) - p_BV
        reached = top_p * (1 - 4 * torch.finfo(p_BV.dtype).eps) if top_p < 1 else float("inf")
        p_BV = p_BV.where(before_BV < reached, 0.0)
        p_BV = p_BV / p_BV.sum(-1, keepdim=True)
    return torch.zeros_like(p_BV).scatter(-1, order_BV, p_BV)


def check_sampling(temperature: int | float, top_k: int | None, top_p: int | float | None) -> None:
    """Raise ValueError for settings that no distribution can follow."""
    require("temperature", temperature, least=0)
    require_each({"top_k": top_k}, least=1)
    require_each({"top_p": top_p}, above=0, most=1)


@torch.no_grad()
def generate(
    model: Transformer,
    prompts: Int[Tensor, "B T"] | Sequence[Prompt],
    *,
    max_new_tokens: int,
    generator: torch.Generator | None = None,
    temperature: int | float = 1.0,
    top_k: int | None = None,
    top_p: int | float | None = None,
    stop_id: int | Collection[int] | None = None,
    use_cache: bool = True,
    on_token: Callable[[Int[Tensor, "B 1"]], None] | None = None,
) -> Int[Tensor, "B new"] | list[Int[Tensor, "..."]]:
    """Continue every prompt by up to `max_new_tokens` tokens; return the prompts with them.

    Past the context length the oldest tokens fall out of view, and the cache is filled anew with
    the later half of the context.  A prompt among others of any length sees itself alone.

    Args:
        model: the decoder.
        prompts: token ids, at least one in each: a tensor, or a list of rows of unequal lengths.
        max_new_tokens: upper bound on the tokens added; 0 returns the prompts.
        generator: source of the draws; at temperature 0 there are none.
        temperature: see `next_token_probabilities`.
        top_k: see `next_token_probabilities`.
        top_p: see `next_token_probabilities`.
        stop_id: a sequence that drew this id, or one of these, is done; all done ends the loop.
        use_cache: keep keys and values instead of computing the whole sequence for every token;
            the result is the same.
        on_token: called with every sequence's new token as soon as it is drawn.

    Returns:
        A tensor for a tensor, in which a sequence that is done repeats the id at which it stopped;
        a list for a list, in which it ends there.

    Raises:
        ValueError: if a prompt is empty, there are draws and no generator, max_new_tokens is
            negative, or a sampling argument is outside its range.
    """
    check_sampling(temperature, top_k, top_p)
    require("max_new_tokens", max_new_tokens, least=0)
    if generator is None and temperature != 0:
        raise ValueError(
            f"temperature = {temperature} draws: give a generator, such as "
            "torch.Generator().manual_seed(0), or set temperature to 0"
        )
    ids_BT, starts = _ending_together(prompts, model)
    num_given = ids_BT.shape[1]
    stops = [] if stop_id is None else [stop_id] if isinstance(stop_id, int) else sorted(stop_id)
    stops_S = torch.tensor(stops, device=ids_BT.device)
    done_B1 = torch.zeros_like(ids_BT[:, :1], dtype=torch.bool)
    window = _Window(model, starts, num_given + max_new_tokens, use_cache=use_cache)
    for _ in range(max_new_tokens):
        logits_BV = window.last_logits(ids_BT)
        if temperature == 0:
            drawn_B1 = logits_BV.argmax(-1, keepdim=True)
        else:
            p_BV = next_token_probabilities(
                logits_BV, temperature=temperature, top_k=top_k, top_p=top_p
            )
            drawn_B1 = torch.multinomial(p_BV, 1, generator=generator)
        if stops:
            drawn_B1 = drawn_B1.where(~done_B1, ids_BT[:, -1:])
            done_B1 = done_B1 | torch.isin(drawn_B1, stops_S)
        ids_BT = torch.cat((ids_BT, drawn_B1), dim=1)
        if on_token is not None:
            on_token(drawn_B1)
        if stops and bool(done_B1.all()):
            break
    if isinstance(prompts, Tensor):
        return ids_BT
    rows = [row[start:] for row, start in zip(ids_BT, starts, strict=True)]
    if not stops:
        return rows
    # The first of them that a row drew is its end; all after it are repetitions.
    num_repeated = (torch.isin(ids_BT[:, num_given:], stops_S).cumsum(1) > 1).sum(1).tolist()
    return [row[: len(row) - n] for row, n in zip(rows, num_repeated, strict=True)]


def _ending_together(
    prompts: Int[Tensor, "B T"] | Sequence[Prompt], model: Transformer
) -> tuple[Int[Tensor, "B T"], list[int]]:
    """Return prompts as rows that end in the same column, and the column where each begins."""
    lengths = [len(row) for row in prompts]
    if 0 in lengths or not lengths:
        raise ValueError("the prompt is empty: give at least one token, such as the separator")
    if isinstance(prompts, Tensor):
        return prompts, [0] * len(lengths)
    starts = [max(lengths) - length for length in lengths]
    padded = [
        F.pad(torch.as_tensor(row, device=model.embedding.device), (start, 0))
        for row, start in zip(prompts, starts, strict=True)
    ]
    return torch.stack(padded), starts


class _Window:
    """The part of growing sequences that the model sees, with or without a cache.

    They end in the same column; what a sequence sees begins in a column of its own.
    """

    def __init__(
        self, model: Transformer, starts: list[int], most_tokens: int, *, use_cache: bool
    ) -> None:
        self.model = model
        self.starts = starts
        self.room = min(most_tokens, model.config.context_length)
        self.use_cache = use_cache
        self.cache: list[KVCache] | None = None

    def last_logits(self, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """Return the logits after the last token."""
        end, context = ids_BT.shape[1], self.model.config.context_length
        if end - min(self.starts) > context:
            # Drop half a context at once: dropping one token would refill the cache at every step.
            later = end - max(1, context // 2)
            self.starts = [later if end - s > context else s for s in self.starts]
            self.cache = None
        first = seen = min(self.starts)
        if self.use_cache:
            self.cache = self.cache or self.model.new_cache(len(ids_BT), self.room)
            seen += self.cache[0].length
        mask_BTS = (
            _own_mask(self.starts, seen, end, ids_BT.device) if max(self.starts) > first else None
        )
        ids_BT = ids_BT[:, seen:]
        return self.model(ids_BT, mask=mask_BTS, cache=self.cache, last_only=True)[:, -1]


def _own_mask(
    starts: list[int], seen: int, end: int, device: torch.device
) -> Bool[Tensor, "B T S"]:
    """Return the causal mask for rows that begin in columns of their own.

    Positions need no such care: rotations tell how far apart two tokens are, and no more.

    Args:
        starts: where each row begins; the earliest is the first column of all.
        seen: first column of the queries.
        end: after the last column.
        device: of the tokens.
    """
    columns_S = torch.arange(min(starts), end, device=device)
    columns_T1 = torch.arange(seen, end, device=device).unsqueeze(1)
    own_B1S = columns_S >= torch.tensor(starts, device=device).view(-1, 1, 1)
    # Padding sees itself: attention over nothing may be NaN, which would spread.
    return (own_B1S & (columns_S <= columns_T1)) | (columns_S == columns_T1)
