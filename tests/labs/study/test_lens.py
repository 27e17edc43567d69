"""lens: attention counted by hand, the lens against the model's own words, heads off and on."""

from dataclasses import replace

import pytest
import torch

from llmcourse.base import runtime
from llmcourse.model import Transformer, tiny
from llmcourse_labs import study


@pytest.fixture
def model():
    made = Transformer(tiny(), generator=runtime.generator(0))
    with torch.no_grad():  # larger than at the start: heads that make up their minds
        for weight in made.parameters():
            weight.mul_(3 if weight.ndim == 2 else 1)
    return made


def texts(model, rows=2, num_tokens=13, seed=1):
    drawn = runtime.generator(seed)
    return torch.randint(model.config.vocab_size, (rows, num_tokens), generator=drawn)


@pytest.mark.parametrize("skip", [0, 8, 12])
def test_attention_to_the_first_is_a_mean_over_texts_and_queries(model, skip):
    ids = texts(model)
    maps = study.attention_maps(model, ids)
    got = study.attention_to_first(model, ids, skip=skip)
    for layer in range(maps.shape[0]):
        for head in range(maps.shape[2]):
            shares = [maps[layer, b, head, t, 0].item() for b in range(2) for t in range(skip, 13)]
            assert got[layer, head].item() == pytest.approx(sum(shares) / len(shares), rel=1e-5)


@pytest.mark.parametrize("period", [2, 6, 12])
def test_induction_is_attention_to_what_came_next(model, period):
    ids = texts(model)
    maps = study.attention_maps(model, ids)
    got = study.induction_scores(model, ids, period=period)
    for layer in range(maps.shape[0]):
        for head in range(maps.shape[2]):
            found = [
                maps[layer, b, head, t, t - period + 1].item()
                for b in range(2)
                for t in range(period, 13)
            ]
            assert got[layer, head].item() == pytest.approx(sum(found) / len(found), rel=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_the_lens_ends_with_what_the_model_says(tied):
    model = Transformer(replace(tiny(), tied_head=tied), generator=runtime.generator(0))
    ids = texts(model)
    seen = study.logit_lens(model, ids)
    with torch.no_grad():
        last = model(ids)[:, -1].softmax(-1)
        x = model.embedding[ids[:, -1]]
        first = (model.norm(x) @ model.head_weight.T).softmax(-1)
    assert seen.shape == (model.config.num_layers + 1, 2, model.config.vocab_size)
    assert torch.allclose(seen[-1], last, rtol=1e-5)
    assert torch.allclose(seen[0], first, rtol=1e-5)
    with torch.no_grad():
        for weight in model.blocks[-1].parameters():
            weight.zero_()
    assert torch.equal(*study.logit_lens(model, ids)[-2:])  # a block that adds nothing
    assert not model.blocks[0]._forward_hooks
    assert not model.blocks[0]._forward_pre_hooks


def test_heads_are_off_while_the_block_runs(model):
    ids, kept = texts(model), {name: w.clone() for name, w in model.state_dict().items()}
    layer, head, size = 1, model.config.num_heads - 1, model.config.head_size
    with torch.no_grad():
        before = model(ids)
        with study.heads_off(model, [(layer, head), (layer, head)]):
            without, w_o = model(ids), model.blocks[layer].attention.w_o.clone()
    changed = (w_o != kept[f"blocks.{layer}.attention.w_o"]).any(0)
    assert changed.nonzero().flatten().tolist() == list(range(head * size, (head + 1) * size))
    assert not torch.equal(before, without)
    with pytest.raises(IndexError), study.heads_off(model, [(0, 0), (99, 0)]):
        pass
    with pytest.raises(KeyError), study.heads_off(model, [(0, 0)]):
        raise KeyError
    assert all(torch.equal(w, kept[name]) for name, w in model.state_dict().items())


@pytest.mark.parametrize(
    ("look", "told"),
    [
        (lambda m, ids: study.attention_to_first(m, ids, skip=13), "skip must leave a query of 13"),
        (lambda m, ids: study.attention_to_first(m, ids, skip=-1), "got -1"),
        (lambda m, ids: study.induction_scores(m, ids, period=1), "period must be from 2 to 12"),
        (lambda m, ids: study.induction_scores(m, ids, period=13), "got 13"),
    ],
)
def test_refusals(model, look, told):
    with pytest.raises(ValueError, match=told):
        look(model, texts(model))
