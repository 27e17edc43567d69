"""From logits to text: temperature, top-k, top-p, and the loop that appends one token at a time.

Shape suffixes:  B batch, T time, V vocabulary.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from llmcourse.base.arguments import require, require_each
from llmcourse.model.decoder import Transformer


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
    _check_sampling(temperature, top_k, top_p)
    if temperature == 0:
        best_BV = torch.zeros_like(logits_BV)
        return best_BV.scatter(-1, logits_BV.argmax(-1, keepdim=True), 1.0)
    # The maximum is subtracted before dividing: a tiny temperature would otherwise overflow.
    shifted_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)) / temperature
    sorted_BV, order_BV = shifted_BV.sort(dim=-1, descending=True, stable=True)
    p_BV = sorted_BV.softmax(-1)
    if top_k is not None:
        p_BV[..., top_k:] = 0.0
        p_BV = p_BV / p_BV.sum(-1, keepdim=True)
    if top_p is not None:
        before_BV = p_BV.cumsum(-1) - p_BV  # what is already kept when this token's turn comes
        p_BV = p_BV.where(before_BV < top_p, 0.0)
        p_BV = p_BV / p_BV.sum(-1, keepdim=True)
    return torch.zeros_like(p_BV).scatter(-1, order_BV, p_BV)


def _check_sampling(temperature: int | float, top_k: int | None, top_p: int | float | None) -> None:
    """Raise ValueError for settings that no distribution can follow."""
    require("temperature", temperature, least=0)
    require_each({"top_k": top_k}, least=1)
    require_each({"top_p": top_p}, above=0, most=1)


@torch.no_grad()
def generate(
    model: Transformer,
    prompt_BT: Int[Tensor, "B T"],
    *,
    max_new_tokens: int,
    generator: torch.Generator,
    temperature: int | float = 1.0,
    top_k: int | None = None,
    top_p: int | float | None = None,
    stop_id: int | None = None,
    use_cache: bool = True,
) -> Int[Tensor, "B new"]:
    """Continue every prompt by up to `max_new_tokens` tokens; return the prompts with them.

    Past the context length the oldest tokens fall out of view, and the cache is filled anew with
    the later half of the context.

    Args:
        model: the decoder.
        prompt_BT: token ids, at least one.
        max_new_tokens: upper bound on the tokens added; 0 returns the prompt.
        generator: source of the draws.
        temperature: see `next_token_probabilities`.
        top_k: see `next_token_probabilities`.
        top_p: see `next_token_probabilities`.
        stop_id: a sequence that drew this id is done and repeats it; all done ends the loop.
        use_cache: keep keys and values instead of computing the whole sequence for every token;
            the result is the same.

    Raises:
        ValueError: if the prompt is empty, max_new_tokens is negative, or a sampling argument is
            outside its range.
    """
    _check_sampling(temperature, top_k, top_p)
    if prompt_BT.shape[1] == 0:
        raise ValueError("the prompt is empty: give at least one token, such as the separator")
    require("max_new_tokens", max_new_tokens, least=0)
    ids_BT, done_B = prompt_BT, torch.zeros(len(prompt_BT), dtype=torch.bool)
    window = _Window(model, use_cache=use_cache)
    for _ in range(max_new_tokens):
        p_BV = next_token_probabilities(
            window.last_logits(ids_BT), temperature=temperature, top_k=top_k, top_p=top_p
        )
        drawn_B1 = torch.multinomial(p_BV, 1, generator=generator)
        if stop_id is not None:
            drawn_B1 = drawn_B1.where(~done_B.unsqueeze(-1), stop_id)
            done_B = done_B | (drawn_B1.squeeze(-1) == stop_id)
        ids_BT = torch.cat((ids_BT, drawn_B1), dim=1)
        if bool(done_B.all()):
            break
    return ids_BT


class _Window:
    """The part of a growing sequence that the model sees, with or without a cache."""

    def __init__(self, model: Transformer, *, use_cache: bool) -> None:
        self.model = model
        self.use_cache = use_cache
        self.start = 0
        self.cache = None

    def last_logits(self, ids_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """Return the logits after the last token."""
        length, context = ids_BT.shape[1], self.model.config.context_length
        if length - self.start > context:
            # Drop half a context at once: dropping one token would refill the cache at every step.
            self.start = length - max(1, context // 2)
            self.cache = None
        if not self.use_cache:
            return self.model(ids_BT[:, self.start :])[:, -1]
        if self.cache is None:
            self.cache = self.model.new_cache(len(ids_BT))
        seen = self.start + self.cache[0].length
        return self.model(ids_BT[:, seen:], cache=self.cache)[:, -1]
