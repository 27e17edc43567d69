"""mup: the scales by hand, the coordinate check, and models that it refuses."""

import torch

from llmcourse import loss, optim
from llmcourse.base import runtime
from llmcourse.model import Transformer
from llmcourse_labs.study import mup_groups, mup_start
from tests.strategies import small_config


def model_of(width, *, seed=0):
    heads = {"num_heads": width // 8, "num_kv_heads": width // 8, "head_size": 8}
    sizes = {"width": width, "hidden": 2 * width, "vocab_size": 20, "context_length": 16}
    config = small_config(num_layers=1, tied_head=False, **heads, **sizes)
    return Transformer(config, generator=runtime.generator(seed))


def test_start_and_rates_of_a_model_four_times_as_wide():
    """Mutants: the head by sqrt(m); the embedding scaled as well; w_down left out."""
    plain, scaled = model_of(16), model_of(16)
    mup_start(scaled, m=4)
    wanted = {"embedding": 1, "norm.gain": 1, "head": 4}
    for (name, w), before in zip(scaled.named_parameters(), plain.parameters(), strict=True):
        factor = wanted.get(name, 1 if name.endswith("gain") else 2)
        torch.testing.assert_close(w * factor, before, msg=name)
    names = {id(w): name for name, w in scaled.named_parameters()}
    wide, others = mup_groups(scaled, lr=0.01, m=4)
    assert (wide["lr"], others["lr"]) == (0.0025, 0.01)
    kept = {names[id(w)] for w in others["params"]}
    assert kept == {name for name in names.values() if name == "embedding" or "gain" in name}
    assert {names[id(w)] for w in wide["params"]} == set(names.values()) - kept


def change_of_logits(width, m, steps=3):
    """Return how much some steps of Adam change the logits: root mean square, mean of 2 seeds."""
    found = []
    for seed in (0, 1):
        model = model_of(width, seed=seed)
        mup_start(model, m=m)
        adam = optim.AdamW(mup_groups(model, lr=1e-3, m=m), lr=1e-3, weight_decay=0.0)
        ids = torch.randint(20, (8, 17), generator=runtime.generator(seed))
        before = model(ids[:, :-1]).detach()
        for _ in range(steps):
            loss.cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
            adam.step()
            adam.zero_grad()
        found.append((model(ids[:, :-1]).detach() - before).square().mean().sqrt().item())
    return sum(found) / len(found)


def test_the_coordinate_check():
    """Mutant: the rate of hidden matrices and head as it is."""
    narrow = change_of_logits(32, 1)
    assert change_of_logits(256, 1) / narrow > 4
    assert 0.6 < change_of_logits(256, 8) / narrow < 1.7


def test_a_ratio_of_one_changes_nothing():
    plain, scaled = model_of(16), model_of(16)
    mup_start(scaled, m=1)
    assert all(map(torch.equal, plain.parameters(), scaled.parameters()))
