"""tuning.lora: merged and unmerged are one function, only thin matrices learn, mutants are seen."""

import functools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from llmcourse import model as models
from llmcourse.base import runtime
from llmcourse.model import ops
from llmcourse_labs.tuning import lora
from llmcourse_labs.tuning.lora import ALPHA, LowRank, add_low_rank, low_rank_merged, merged

SHAPE = models.tiny()
IDS = torch.tensor([[5, 7, 200, 7, 299], [1, 2, 3, 4, 5]])


def adapted(shape=SHAPE, rank=3, new_ids=(7, 299), seed=0):
    """A plain model, and a copy of it with LoRA whose B is no longer zero."""
    plain = models.Transformer(shape, generator=runtime.generator(seed))
    copy = models.Transformer(shape)
    copy.load_state_dict(plain.state_dict())
    generator = runtime.generator(seed + 1)
    add_low_rank(copy, rank, generator=generator, new_ids=new_ids)
    with torch.no_grad():
        for name, weight in copy.named_parameters():
            if name.endswith((".b", "rows_ND")):
                weight.add_(torch.randn(weight.shape, generator=generator) / 10)
    return plain, copy


def two_products(x, w, a, b):
    """The paper's form: x W^T + (alpha / r) (x A^T) B^T."""
    return F.linear(x, w) + ALPHA / len(a) * F.linear(F.linear(x, a), b)


def drawn(*shapes, seed=0):
    generator = runtime.generator(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


def test_at_the_start_nothing_is_added():
    plain = models.Transformer(SHAPE, generator=runtime.generator(0))
    before = plain(IDS)
    add_low_rank(plain, 2, generator=runtime.generator(1), new_ids=[7])
    assert torch.equal(plain(IDS), before)


def test_merged_and_unmerged_are_one_function():
    plain, copy = adapted()
    again = models.Transformer(SHAPE)
    again.load_state_dict(merged(copy.state_dict()))
    torch.testing.assert_close(again(IDS), copy(IDS), rtol=0, atol=1e-6)
    assert (copy(IDS) - plain(IDS)).abs().max() > 1e-3
    known = plain.state_dict()
    assert all(torch.equal(w, known[name]) for name, w in merged(known).items())


def test_a_cached_step_is_that_of_the_whole_row():
    _, copy = adapted()
    cache = copy.new_cache(2)
    parts = [copy(IDS[:, :2], cache=cache), copy(IDS[:, 2:], cache=cache)]
    torch.testing.assert_close(torch.cat(parts, 1), copy(IDS), rtol=0, atol=1e-5)


MERGES = {
    "no scale": lambda w, a, b: w + b @ a,
    "scaled by alpha alone": lambda w, a, b: w + ALPHA * b @ a,
    "scaled by the outputs": lambda w, a, b: w + ALPHA / len(b) * b @ a,
    "subtracted": lambda w, a, b: w - ALPHA / len(a) * b @ a,
    "w left out": lambda w, a, b: ALPHA / len(a) * b @ a,
}


def agrees(merge):
    x, w, a, b, dy = drawn((4, 7), (5, 7), (3, 7), (5, 3), (4, 5))
    thin = a.requires_grad_(), b.requires_grad_()
    both = F.linear(x, merge(w, *thin)), two_products(x, w, *thin)
    found, right = ((y, *torch.autograd.grad(y, thin, dy)) for y in both)
    pairs = zip(found, right, strict=True)
    return all(torch.allclose(f, r, rtol=1e-12, atol=1e-12) for f, r in pairs)


def test_the_merged_matrix_is_the_papers_two_products_forward_and_backward():
    assert agrees(low_rank_merged)
    layer = LowRank(5, 7, 3, generator=runtime.generator(0))
    assert (layer.a.shape, layer.b.shape) == ((3, 7), (5, 3))
    assert not layer.b.any()
    assert layer.a.std().item() == pytest.approx(7**-0.5, rel=0.4)


@pytest.mark.parametrize("name", MERGES)
def test_mutants_are_seen(name):
    assert not agrees(MERGES[name])


def test_the_gradient_is_that_of_autograd_on_plain_weights():
    _, copy = adapted()
    copy(IDS).square().mean().backward()
    again = models.Transformer(SHAPE)
    again.load_state_dict(merged(copy.state_dict()))
    again(IDS).square().mean().backward()
    close = functools.partial(torch.testing.assert_close, rtol=1e-3, atol=1e-7)
    for layer, block in enumerate(copy.blocks):
        for part, names in lora.MATRICES.items():
            for name in names:
                thin = getattr(block, part).parametrizations[name][0]
                whole = getattr(getattr(again.blocks[layer], part), name).grad
                scale = ALPHA / len(thin.a)
                close(thin.b.grad, scale * whole @ thin.a.T)
                close(thin.a.grad, scale * thin.b.T @ whole)
    close(copy.parametrizations.embedding[0].rows_ND.grad, again.embedding.grad[[7, 299]])


def test_no_gradient_of_a_whole_matrix_is_made(monkeypatch):
    _, copy = adapted(new_ids=())
    monkeypatch.setattr(ops, "linear_backward", None)
    copy(IDS).square().mean().backward()
    assert all(w.grad.any() for w in copy.parameters() if w.requires_grad)


@pytest.mark.parametrize("w_learns", [False, True])
def test_a_matrix_in_several_uses_has_the_sum_of_their_gradients(w_learns):
    x, w, a, b = drawn((2, 4, 7), (5, 7), (3, 7), (5, 3))
    learnt = [each.requires_grad_() for each in ((w, x, a, b) if w_learns else (x, a, b))]

    def used(matrix, product):
        return product(x, matrix).sum() + product(2 * x, matrix).sin().sum() + matrix.square().sum()

    value = used(low_rank_merged(w, a, b), ops.linear)
    torch.autograd.grad(value, x, retain_graph=True)  # leaves nothing for the next one
    found = torch.autograd.grad(value, learnt)
    right = torch.autograd.grad(used(w + ALPHA / 3 * b @ a, F.linear), learnt)
    torch.testing.assert_close(found, right)


def test_only_thin_matrices_and_new_rows_learn():
    _, copy = adapted(rank=2)
    sizes = {name: w.numel() for name, w in copy.named_parameters() if w.requires_grad}
    assert len(sizes) == 2 * 7 * SHAPE.num_layers + 1
    assert all(name.endswith((".a", ".b", "rows_ND")) for name in sizes)
    shapes = [w.shape for name, w in merged(copy.state_dict()).items() if ".w_" in name]
    assert sum(sizes.values()) == sum(2 * sum(s) for s in shapes) + 2 * SHAPE.width
    _, copy = adapted(new_ids=())
    assert not any("rows_ND" in name for name, _ in copy.named_parameters())


def test_a_head_of_its_own_learns_the_new_rows_too():
    shape = replace(SHAPE, tied_head=False)
    plain, copy = adapted(shape)
    found = merged(copy.state_dict())
    assert found.keys() == plain.state_dict().keys()
    for name in ("embedding", "head"):
        changed = (found[name] != plain.state_dict()[name]).any(1).nonzero().flatten()
        assert changed.tolist() == [7, 299]
    again = models.Transformer(shape)
    again.load_state_dict(found)
    torch.testing.assert_close(again(IDS), copy(IDS), rtol=0, atol=1e-6)


def test_peft_computes_the_same():
    peft = pytest.importorskip("peft")
    x, w, a, b, _ = drawn((4, 7), (5, 7), (3, 7), (5, 3), (4, 5), seed=2)
    layer = torch.nn.Sequential()
    layer.add_module("w", torch.nn.Linear(7, 5, bias=False, dtype=torch.float64))
    layer.w.weight.data = w
    config = peft.LoraConfig(r=3, lora_alpha=ALPHA, target_modules=["w"])
    wrapped = peft.get_peft_model(layer, config).double()
    found = wrapped.base_model.model.w
    found.lora_A["default"].weight.data, found.lora_B["default"].weight.data = a, b
    torch.testing.assert_close(wrapped(x), F.linear(x, low_rank_merged(w, a, b)))
    torch.testing.assert_close(found.get_delta_weight("default") + w, low_rank_merged(w, a, b))
