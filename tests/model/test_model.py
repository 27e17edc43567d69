"""model: equal to Hugging Face's Llama, with and without a cache; sampling follows its formula."""

import functools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import model
from llmcourse.base import checks
from llmcourse.model import (
    ModelConfig,
    Transformer,
    attention,
    generate,
    next_token_probabilities,
    ops,
    sampling,
)
from llmcourse_labs.real import from_huggingface, split_experts, to_huggingface


def small(**changes):
    """Sizes that all differ; head_size is not width / num_heads."""
    sizes = {"num_layers": 2, "width": 20, "num_heads": 4, "num_kv_heads": 2, "head_size": 6}
    return ModelConfig(**sizes | {"hidden": 28, "vocab_size": 50, "context_length": 16} | changes)


def built(config, seed=0, scale=10.0):
    """A model whose weights are large enough that every part matters."""
    decoder = Transformer(config, generator=torch.Generator().manual_seed(seed))
    g = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, p in decoder.named_parameters():
            if name.endswith("gain"):
                p.add_(0.3 * torch.randn(p.shape, generator=g))
            else:
                p.mul_(scale)
    return decoder


def hugging_face(config):
    import transformers  # noqa: PLC0415 - slow import

    family = "Qwen3" if config.qk_norm else "Llama"  # Qwen3 is a Llama with norms of its heads
    of_a_mixture = {}
    if config.num_experts:
        family = "Mixtral"
        of_a_mixture = {
            "num_local_experts": config.num_experts,
            "num_experts_per_tok": config.experts_per_token,
            "sliding_window": None,
            "experts_implementation": "eager",
        }
    return getattr(transformers, f"{family}ForCausalLM")(
        getattr(transformers, f"{family}Config")(
            vocab_size=config.vocab_size,
            hidden_size=config.width,
            intermediate_size=config.hidden,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_size,
            max_position_embeddings=config.context_length,
            rms_norm_eps=config.norm_eps,
            tie_word_embeddings=config.tied_head,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            **of_a_mixture,
        )
    ).eval()


def ids_of(config, B=3, T=11, seed=2):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.vocab_size, (B, T), generator=g)


def pair(config, **settings):
    ours, theirs = built(config, **settings), hugging_face(config)
    theirs.load_state_dict(to_huggingface(ours.state_dict(), config))
    return ours, theirs, ids_of(config)


@pytest.mark.parametrize("tied_head", [True, False])
@pytest.mark.parametrize("changes", [*({"num_kv_heads": n} for n in (1, 2, 4)), {"qk_norm": True}])
def test_logits_equal_hugging_face(tied_head, changes):
    config = small(tied_head=tied_head, rope_theta=5_000.0, **changes)
    ours, theirs, ids = pair(config)
    with torch.no_grad():
        expected, cache = theirs(ids).logits, ours.new_cache(3)
        pieces = [ours(ids[:, a:b], cache=cache) for a, b in ((0, 4), (4, 5), (5, 11))]
        assert checks.relative_error(ours(ids), expected) < 1e-5
        assert checks.relative_error(torch.cat(pieces, 1), expected) < 1e-5
    back = from_huggingface(theirs.state_dict(), config)
    assert back.keys() == ours.state_dict().keys()
    assert all(torch.equal(back[name], p) for name, p in ours.named_parameters())


def test_the_comparison_notices_norms_left_out_or_after_the_rotation():
    ours, theirs, ids = pair(small(qk_norm=True))

    def late(self, x, rotations):
        heads = (-1, self.head_size)
        q, k = (ops.linear(x, w).unflatten(-1, heads) for w in (self.w_q, self.w_k))
        q, k = (attention.rope_adjacent(y, rotations) for y in (q, k))
        return self.q_norm(q), self.k_norm(k)

    with torch.no_grad():
        expected = theirs(ids).logits
        for block in ours.blocks:
            block.attention.queries_and_keys = functools.partial(late, block.attention)
        assert checks.relative_error(ours(ids), expected) > 1e-3
        for block in ours.blocks:
            del block.attention.queries_and_keys
            block.attention.q_norm = None
        assert checks.relative_error(ours(ids), expected) > 1e-3


MIXTURES = [(1, 1), (4, 1), (6, 2), (5, 5)]
"""Experts, and experts of a token."""


@pytest.mark.parametrize("tied_head", [True, False])
@pytest.mark.parametrize(("num_experts", "experts_per_token"), MIXTURES)
def test_a_mixture_equals_mixtral(num_experts, experts_per_token, tied_head):
    """In float64 transformers still casts to float32, in its norms and its router."""
    experts = {"num_experts": num_experts, "experts_per_token": experts_per_token}
    ours, theirs, ids = pair(small(tied_head=tied_head, **experts))
    with torch.no_grad():
        assert checks.relative_error(ours(ids), theirs(ids).logits) < 1e-5
        ours.double()
        assert checks.relative_error(ours(ids), theirs.double()(ids).logits) < 1e-6
        for block in ours.blocks:
            block.feed_forward.router.w_router.neg_()
        if experts_per_token < num_experts:
            assert checks.relative_error(ours(ids), theirs(ids).logits) > 1e-2


@pytest.mark.parametrize(
    "changes",
    [
        {"tied_head": True},
        {"tied_head": False},
        {"tied_head": False, "num_experts": 5, "experts_per_token": 2},
    ],
)
def test_gradients_equal_hugging_face(changes):
    config = small(**changes)
    ours, theirs, ids = pair(config, scale=5.0)
    dy = torch.randn(3, 11, config.vocab_size, generator=torch.Generator().manual_seed(3))
    (ours(ids) * dy).sum().backward()
    (theirs(ids).logits * dy).sum().backward()
    wanted = {n: p.grad for n, p in theirs.named_parameters()}
    mine = to_huggingface({n: p.grad for n, p in ours.named_parameters()}, config)
    assert mine.keys() - {"lm_head.weight"} == wanted.keys() - {"lm_head.weight"}
    for name, gradient in wanted.items():
        assert checks.relative_error(mine[name], gradient) < 2e-5, name


def unpermuted(w):
    return w.unflatten(0, (-1, 6))[:, attention.halves_from_adjacent(6).argsort()].flatten(0, 1)


EXPERTS = {"num_experts": 4, "experts_per_token": 2}
WRONG = {
    "heads are not permuted": ({}, "self_attn.q_proj.weight", unpermuted),
    "gate and up exchanged": (EXPERTS, "mlp.experts.gate_up_proj", lambda w: w.roll(28, 1)),
    "matrices of another expert": (EXPERTS, "mlp.experts.down_proj", lambda w: w.roll(1, 0)),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_comparison_notices_wrong_matrices(name):
    changes, matrix, wrong = WRONG[name]
    ours, theirs, ids = pair(small(**changes))
    with torch.no_grad():
        for layer in theirs.model.layers:
            layer.get_parameter(matrix).copy_(wrong(layer.get_parameter(matrix)))
        assert checks.relative_error(ours(ids), theirs(ids).logits) > 1e-2


def test_a_mixture_round_trips_under_both_sets_of_names():
    config = small(num_experts=3, experts_per_token=2)
    state = built(config).state_dict()
    joined = to_huggingface(state, config)
    published = split_experts(joined)
    assert "model.layers.1.mlp.experts.gate_up_proj" in joined
    wanted = {f"experts.{e}.w{i}.weight" for e in range(3) for i in (1, 2, 3)} | {"gate.weight"}
    place = "model.layers.1.block_sparse_moe."
    assert {n.removeprefix(place) for n in published if n.startswith(place)} == wanted
    third = state["blocks.1.feed_forward.experts.w_up"][2]
    assert torch.equal(published[f"{place}experts.2.w3.weight"], third)
    for names in (joined, published):
        back = from_huggingface(names, config)
        assert back.keys() == state.keys()
        assert all(torch.equal(back[name], state[name]) for name in state)
    dense = to_huggingface(built(small()).state_dict(), small())
    assert split_experts(dense) == dense


def test_the_initialisation_is_the_stated_one():
    config = replace(model.stories(), tied_head=False)
    decoder = Transformer(config, generator=torch.Generator().manual_seed(0))
    for name, parameter in decoder.named_parameters():
        if name.endswith("gain"):
            assert torch.equal(parameter, torch.ones_like(parameter))
            continue
        std = 0.02 / (2 * config.num_layers) ** 0.5 if name.endswith(("w_o", "w_down")) else 0.02
        # The standard error of a sample deviation is std / sqrt(2 n); five of them.
        margin = 5 * std / (2 * parameter.numel()) ** 0.5
        assert float(parameter.detach().std()) == pytest.approx(std, abs=margin), name


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_the_cache_equals_recomputation_token_for_token(num_kv_heads):
    """Every token alone through the cache, against the whole prefix, and against Hugging Face."""
    decoder = built(small(num_kv_heads=num_kv_heads)).double()
    theirs = hugging_face(decoder.config).double()
    theirs.load_state_dict(to_huggingface(decoder.state_dict(), decoder.config))
    ids, cache, past = ids_of(decoder.config), decoder.new_cache(3), None
    with torch.no_grad():
        for t in range(ids.shape[1]):
            step = decoder(ids[:, t : t + 1], cache=cache)[:, 0]
            assert checks.relative_error(step, decoder(ids[:, : t + 1])[:, -1]) < 1e-12
            reference = theirs(ids[:, t : t + 1], past_key_values=past, use_cache=True)
            past = reference.past_key_values
            assert checks.relative_error(step, reference.logits[:, 0]) < 1e-6
    assert cache[0].length == 11


def test_the_comparison_notices_a_cache_that_forgets_its_place():
    decoder = built(small())
    ids, cache = ids_of(decoder.config), decoder.new_cache(3)
    with torch.no_grad():
        decoder(ids[:, :6], cache=cache)
        again = torch.zeros(3, 1, dtype=torch.int64)  # every new token at position 0
        wrong = decoder(ids[:, 6:7], positions_BT=again, cache=cache)[:, 0]
        assert checks.relative_error(wrong, decoder(ids[:, :7])[:, -1]) > 1e-2


def test_packed_logits_equal_the_documents_alone_and_a_window_reaches_layers_times_window():
    decoder = built(small()).double()
    theirs = hugging_face(decoder.config).double()
    theirs.load_state_dict(to_huggingface(decoder.state_dict(), decoder.config))
    ids = ids_of(decoder.config, B=1)
    positions = torch.tensor([[*range(5), *range(4), *range(2)]])
    mask = attention.document_mask(torch.tensor([[0] * 5 + [1] * 4 + [2] * 2]))
    with torch.no_grad():
        ours = decoder(ids, positions_BT=positions, mask=mask)
        reference = theirs(ids, attention_mask=mask.unsqueeze(1), position_ids=positions).logits
        alone = torch.cat([decoder(part) for part in ids.split([5, 4, 2], dim=1)], dim=1)
        leaking = decoder(ids, positions_BT=positions)
    assert checks.relative_error(ours, reference) < 1e-6
    assert checks.relative_error(ours, alone) < 1e-12
    assert checks.relative_error(leaking, alone) > 1e-2
    # Gradient of the last logits by the embeddings: two layers of window 3 see 5 tokens.
    decoder = built(small()).double()
    seen = []
    decoder.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    logits = decoder(ids_of(decoder.config, B=1), mask=attention.sliding_window_mask(11, 11, 3))
    (dx,) = torch.autograd.grad(logits[:, -1].square().sum(), seen[0])
    assert (dx[0] != 0).any(-1).nonzero().flatten().tolist() == [6, 7, 8, 9, 10]


UNEQUAL = (1, 3, 9, 16, 23)
"""Lengths of prompts: one token, several, the whole context, and more than the context."""


def one_by_one(decoder, prompts, **settings):
    return [generate(decoder, row.unsqueeze(0), temperature=0, **settings)[0] for row in prompts]


def unequal_prompts(config):
    return [ids_of(config, B=1, T=length, seed=length)[0] for length in UNEQUAL]


@pytest.mark.parametrize(
    ("changes", "use_cache"),
    [
        ({}, True),
        ({}, False),
        ({"qk_norm": True, "tied_head": False}, True),
        ({"num_experts": 3, "experts_per_token": 2}, True),
    ],
)
def test_prompts_of_unequal_lengths_are_continued_as_each_alone(changes, use_cache):
    """Past the context, too, where each falls out of view at a time of its own."""
    decoder = built(small(**changes)).double()
    prompts = unequal_prompts(decoder.config)
    alone = one_by_one(decoder, prompts, max_new_tokens=20)
    for batch in (prompts, [row.tolist() for row in prompts], tuple(reversed(prompts))):
        written = generate(decoder, batch, max_new_tokens=20, temperature=0, use_cache=use_cache)
        expected = alone[::-1] if isinstance(batch, tuple) else alone
        assert all(torch.equal(*pair) for pair in zip(written, expected, strict=True))
    assert len({tuple(row[-12:].tolist()) for row in alone}) > 1


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_prompt_among_others_ends_where_it_ends_alone(use_cache):
    decoder = built(small()).double()
    prompts = unequal_prompts(decoder.config)
    free = generate(decoder, prompts, max_new_tokens=20, temperature=0, use_cache=use_cache)
    # The id that most rows draw, and draw at different times.
    stop_id = int(torch.cat([row[-20:] for row in free]).mode().values)
    another = next(i for i in free[0][-20:].tolist() if i != stop_id)
    settings = {"max_new_tokens": 20, "stop_id": stop_id}
    prompts.append(torch.tensor([stop_id, stop_id]))  # in a prompt it ends nothing
    alone = one_by_one(decoder, prompts, **settings)
    written = generate(decoder, prompts, temperature=0, use_cache=use_cache, **settings)
    assert all(torch.equal(*pair) for pair in zip(written, alone, strict=True))
    assert len({len(row) - len(before) for row, before in zip(written, prompts, strict=True)}) > 2
    # Of several ids, the first that comes.
    settings["stop_id"] = {stop_id, another}
    either = generate(decoder, prompts, temperature=0, use_cache=use_cache, **settings)
    assert {int(row[-1]) for row in either} >= {stop_id, another}
    for before, row, free_row in zip(prompts, either, free, strict=False):
        drawn = free_row[len(before) :].tolist()
        end = next((n for n, i in enumerate(drawn) if i in (stop_id, another)), 20)
        assert row[len(before) :].tolist() == drawn[: end + 1]


def test_the_comparison_notices_padding_that_is_seen(monkeypatch):
    decoder = built(small()).double()
    prompts = unequal_prompts(decoder.config)
    alone = one_by_one(decoder, prompts, max_new_tokens=6)
    monkeypatch.setattr(sampling, "_own_mask", lambda *_: None)
    written = generate(decoder, prompts, max_new_tokens=6, temperature=0)
    assert [torch.equal(*pair) for pair in zip(written, alone, strict=True)].count(True) < 3


def test_the_mask_of_unequal_rows_is_where_their_tokens_are():
    assert sampling._own_mask([0, 2], 0, 4, torch.device("meta")).device.type == "meta"


def test_the_cache_is_as_long_as_what_is_written(monkeypatch):
    """Published models have contexts whose whole cache takes gigabytes."""
    decoder, made = built(small()), []
    monkeypatch.setattr(decoder, "new_cache", lambda *each: made.append(each) or new_cache(*each))
    new_cache = Transformer.new_cache.__get__(decoder)
    for prompt, tokens in (([1, 2, 3], 5), ([1, 2, 3], 90)):
        generate(decoder, [prompt], max_new_tokens=tokens, temperature=0)
    assert made[0] == (1, 8)
    assert set(made[1:]) == {(1, 16)}
    assert new_cache(2, 8)[0].keys_BSGK.shape == (2, 8, 2, 6)
    assert new_cache(2)[0].values_BSGK.shape == (2, 16, 2, 6)


def test_generation_takes_unequal_prompts_is_argmax_when_greedy_and_repeats_its_stop():
    decoder, g = built(small()), torch.Generator().manual_seed(0)
    rows = generate(decoder, [[1, 2], [3]], max_new_tokens=4, generator=g)
    assert [len(row) for row in rows] == [6, 5]
    written = generate(decoder, ids_of(decoder.config, B=1, T=3), max_new_tokens=5, temperature=0)
    with torch.no_grad():
        for t in range(3, 8):
            assert int(decoder(written[:, :t])[0, -1].argmax()) == int(written[0, t])
    ids = ids_of(decoder.config, B=4, T=2)
    written = generate(decoder, ids, max_new_tokens=14, generator=g, stop_id=7, temperature=3.0)
    assert (written[:, 2:] == 7).any()
    for row in written[:, 2:].tolist():
        if 7 in row:
            assert set(row[row.index(7) :]) == {7}
    written = generate(
        decoder, ids, max_new_tokens=14, generator=g, stop_id=(3, 7), temperature=3.0
    )
    ends = [next((i for i in row if i in (3, 7)), None) for row in written[:, 2:].tolist()]
    assert {3, 7} <= set(ends)
    for end, row in zip(ends, written[:, 2:].tolist(), strict=True):
        assert end is None or set(row[row.index(end) :]) == {end}


def by_hand(logits, temperature, top_k, top_p):
    """The definition, one token at a time, in plain Python."""
    p = (logits.double() / temperature).softmax(-1).tolist()
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))[: top_k or len(p)]
    total = sum(p[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        if top_p is not None and mass >= top_p:
            break
        kept.append(i)
        mass += p[i] / total
    scale = sum(p[i] for i in kept)
    return [p[i] / scale if i in kept else 0.0 for i in range(len(p))]


@given(
    seed=st.integers(0, 10_000),
    temperature=st.floats(0.2, 3),
    top_k=st.none() | st.integers(1, 12),
    top_p=st.none() | st.floats(0.05, 0.97),
)
def test_probabilities_follow_the_definition(seed, temperature, top_k, top_p):
    logits = 2 * torch.randn(9, generator=torch.Generator().manual_seed(seed)).double()
    ours = next_token_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert ours.tolist() == pytest.approx(by_hand(logits, temperature, top_k, top_p), abs=1e-9)
    assert float(ours.sum()) == pytest.approx(1)


def test_extreme_temperatures_stay_finite():
    logits = torch.tensor([3.0, 1.0, 3.0, -2.0])
    assert next_token_probabilities(logits, temperature=0).tolist() == [1, 0, 0, 0]
    cold = next_token_probabilities(logits, temperature=1e-30)
    assert cold.tolist() == pytest.approx([0.5, 0, 0.5, 0])
    assert next_token_probabilities(logits, temperature=1e30).tolist() == pytest.approx([0.25] * 4)
