"""tuning.preferences: losses by hand, gradients in closed form, trl, and mutants."""

import math
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from llmcourse.base import runtime
from llmcourse.model import Transformer
from llmcourse_labs import tuning
from tests.strategies import small_config

ROWS = tuning.answer_rows([[3, 4], [3], [5, 6, 7]], [[8, 9, 1], [8, 1], [2]])


def drawn(number=4, pairs=7, seed=0):
    """Return log-probabilities of as many kinds of answers, with gradients for the first two."""
    generator = runtime.generator(seed)
    found = [-12 * torch.rand(pairs, generator=generator).double() for _ in range(number)]
    return [x.requires_grad_(n < 2) for n, x in enumerate(found)]


def test_the_losses_are_those_by_hand():
    ln3 = math.log(3)
    score = torch.tensor([ln3, 0.0, -ln3], dtype=torch.float64)
    found = tuning.bradley_terry_loss(score, torch.zeros(3).double())
    by_hand = [-math.log(3 / 4), math.log(2), -math.log(1 / 4)]
    assert found.tolist() == pytest.approx(by_hand, rel=1e-12)
    # The policy makes the chosen answer 9 times as likely, the other as it was: 0.5 ln 9 = ln 3.
    chosen, rejected = torch.tensor([2 * ln3 - 5]).double(), torch.tensor([-4.0]).double()
    kept = torch.tensor([-5.0]).double(), torch.tensor([-4.0]).double()
    found = tuning.dpo_loss(chosen, rejected, *kept, beta=0.5)
    assert found.losses_B.item() == pytest.approx(-math.log(3 / 4))
    assert found.margins.item() == pytest.approx(ln3)
    ipo = tuning.ipo_loss(chosen, rejected, *kept, beta=0.5)
    assert ipo.losses_B.item() == pytest.approx((2 * ln3 - 1) ** 2)
    simpo = tuning.simpo_loss(chosen, rejected, beta=2, margin=1)
    by_hand = math.log1p(math.exp(-(2 * (2 * ln3 - 5 + 4) - 1)))
    assert simpo.losses_B.item() == pytest.approx(by_hand)


def test_a_margin_of_any_size_has_a_finite_loss():
    far = torch.tensor([-2000.0, 2000.0])
    assert tuning.bradley_terry_loss(far, -far).tolist() == [4000, 0]


def closed_form(beta, chosen, rejected, kept_c, kept_r):
    """Return DPO's loss and gradients as the page writes them, without autograd."""
    margin = beta * ((chosen - kept_c) - (rejected - kept_r))
    weight = 1 / (1 + margin.exp())
    return (1 + (-margin).exp()).log(), -beta * weight, beta * weight


@pytest.mark.parametrize("loss", [tuning.dpo_loss, tuning.ipo_loss])
def test_derivatives(loss):
    given = drawn()
    told = loss(*given, beta=0.4)
    assert torch.autograd.gradcheck(lambda *x: loss(*x, beta=0.4).losses_B, given)
    assert not told.chosen_B.requires_grad
    assert not told.margins.requires_grad


def test_the_optimum_by_hand_turns_the_reference_round():
    reference = torch.tensor([1 / 2, 1 / 3, 1 / 6], dtype=torch.float64)
    found = tuning.optimal_policy(reference, math.log(3) * torch.arange(3.0).double(), beta=1)
    assert found.tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 2], rel=1e-12)


MUTANTS = {
    "no reference": lambda c, r, kc, kr, b: -F.logsigmoid(b * (c - r)),
    "signs swapped": lambda c, r, kc, kr, b: -F.logsigmoid(b * ((r - kr) - (c - kc))),
    "reference added": lambda c, r, kc, kr, b: -F.logsigmoid(b * ((c + kc) - (r + kr))),
    "reference crossed": lambda c, r, kc, kr, b: -F.logsigmoid(b * ((c - kr) - (r - kc))),
    "beta forgotten": lambda c, r, kc, kr, b: -F.logsigmoid((c - kc) - (r - kr)),
    "divided by beta": lambda c, r, kc, kr, b: -F.logsigmoid(((c - kc) - (r - kr)) / b),
    "no logarithm": lambda c, r, kc, kr, b: -torch.sigmoid(b * ((c - kc) - (r - kr))),
    "chosen alone": lambda c, r, kc, kr, b: -F.logsigmoid(b * (c - kc)),
    "rejected is not learnt": lambda c, r, kc, kr, b: -F.logsigmoid(b * (c - kc - r.detach() + kr)),
    "beta outside": lambda c, r, kc, kr, b: -b * F.logsigmoid((c - kc) - (r - kr)),
}


def agrees(loss):
    given = drawn()
    found = loss(*given, 0.3)
    gradients = torch.autograd.grad(found.sum(), given[:2], materialize_grads=True)
    right = closed_form(0.3, *(x.detach() for x in given))
    pairs = zip((found.detach(), *gradients), right, strict=True)
    return all(torch.allclose(f, r, rtol=1e-12, atol=1e-14) for f, r in pairs)


def test_the_package_agrees_with_the_closed_form():
    """Which pushes the chosen up, and the rejected down."""
    assert agrees(lambda *given: tuning.dpo_loss(*given[:4], beta=given[4]).losses_B)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_seen(name):
    assert not agrees(MUTANTS[name])


def reward_model(seed=0):
    model = Transformer(small_config(), generator=runtime.generator(seed))
    judge = tuning.RewardModel(model).double()
    with torch.no_grad():
        judge.w_D.normal_(generator=runtime.generator(1))
    return model, judge


def test_a_reward_model_reads_the_last_token_of_an_answer():
    model, judge = reward_model()
    found = judge(ROWS)
    for row, last in enumerate((4, 2, 3)):
        hidden = judge.body(ROWS.ids_BT[row : row + 1, : last + 1])[0, -1]
        assert found[row].item() == pytest.approx((hidden @ judge.w_D).item(), rel=1e-9)
    with pytest.raises(AssertionError):  # the token before the last gives another reward
        torch.testing.assert_close(found[0], judge.body(ROWS.ids_BT[:1])[0, -2] @ judge.w_D)
    assert model(ROWS.ids_BT).shape[-1] == 17  # the model it was made from has kept its head


def test_what_comes_after_an_answer_does_not_count():
    _, judge = reward_model()
    longer = ROWS._replace(ids_BT=ROWS.ids_BT.where(ROWS.ids_BT != 0, 11))
    torch.testing.assert_close(judge(longer), judge(ROWS), rtol=1e-12, atol=0)


def test_at_the_start_every_reward_is_0_and_the_body_is_a_copy():
    model = Transformer(small_config(), generator=runtime.generator(0))
    judge = tuning.RewardModel(model)
    assert not judge(ROWS).any()
    assert judge.body.embedding is not model.embedding
    assert torch.equal(judge.body.embedding, model.embedding)


def test_log_probabilities_of_an_answer_are_sums_over_its_tokens():
    model = Transformer(small_config(), generator=runtime.generator(0)).double()
    assert torch.equal(tuning.token_log_probs(model, ROWS) != 0, ROWS.is_answer_BT)
    p = model(ROWS.ids_BT).log_softmax(-1)
    first = p[0, 1, 8] + p[0, 2, 9] + p[0, 3, 1]
    torch.testing.assert_close(tuning.answer_log_probs(model, ROWS)[0], first)


def peer(trainer, **settings):
    """Return a trainer of trl without its files, devices and threads: what its loss reads."""
    accelerator = SimpleNamespace(device="cpu", gather_for_metrics=lambda x: x, gather=lambda x: x)
    made = object.__new__(trainer)
    model = torch.nn.Identity()
    model.is_gradient_checkpointing = False
    made.__dict__ |= {"accelerator": accelerator, "model": model} | settings
    return made


class Says(torch.nn.Module):
    def __init__(self, logits_BTV):
        super().__init__()
        self.logits_BTV = logits_BTV

    def forward(self, ids_BT):
        return self.logits_BTV


@pytest.mark.parametrize("name", ["sigmoid", "ipo"])
def test_trl_computes_the_same_from_a_policy_and_its_reference(name):
    """On the same batch: the loss, and the gradient of every logit."""
    trl = pytest.importorskip("trl")
    generator = runtime.generator(3)
    ids = torch.randint(17, (6, 8), generator=generator)
    mask = torch.zeros(6, 8, dtype=torch.int64)
    mask[:, 3:] = 1
    logits, kept = (torch.randn(6, 8, 17, generator=generator).double() for _ in range(2))
    mine, theirs = (logits.clone().requires_grad_() for _ in range(2))

    def fused(given):
        """What a patched model returns: log p of the labels, 0 where nothing is asked."""

        def forward(input_ids, labels, **_):
            p = given[:, :-1].log_softmax(-1)
            asked = labels[:, 1:]
            found = p.gather(-1, asked.clamp_min(0)[..., None])[..., 0].where(asked >= 0, 0.0)
            told = dict.fromkeys(("entropy", "mean_logits", "is_top1"), torch.zeros_like(asked))
            return SimpleNamespace(log_probs=found, **told)

        return forward

    made = peer(
        trl.DPOTrainer,
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=False,
        use_weighting=False,
        f_divergence_type="reverse_kl",
        loss_types=[name],
        loss_weights=[1.0],
        beta=0.3,
        label_smoothing=0.0,
        ref_model=fused(kept),
        _total_train_tokens=0,
        _tp_size=1,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None, logging_entropy=False),
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": mask}
    loss = made._compute_loss(fused(theirs), batch, return_outputs=False)
    loss.backward()
    rows = tuning.AnswerRows(ids, mask.bool())
    tokens = 5 if name == "ipo" else 1  # trl's IPO takes the mean over an answer's tokens
    chosen, rejected = (tuning.answer_log_probs(Says(mine), rows) / tokens).chunk(2)
    kept_c, kept_r = (tuning.answer_log_probs(Says(kept), rows) / tokens).chunk(2)
    ours = {"sigmoid": tuning.dpo_loss, "ipo": tuning.ipo_loss}[name]
    found = ours(chosen, rejected, kept_c, kept_r, beta=0.3).losses_B.mean()
    found.backward()
    torch.testing.assert_close(found, loss)
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_trl_computes_the_same_simpo():
    cpo = pytest.importorskip("trl.experimental.cpo")
    made = peer(cpo.CPOTrainer, loss_type="simpo", beta=2.0, simpo_gamma=0.7, label_smoothing=0.0)
    made.__dict__["alpha"] = 0.0
    chosen, rejected, *_ = drawn()
    theirs, *_ = made.cpo_loss(chosen, rejected)
    ours = tuning.simpo_loss(chosen, rejected, beta=2.0, margin=0.7).losses_B
    torch.testing.assert_close(ours, theirs)


def test_trl_computes_the_same_of_a_reward_model():
    trl = pytest.importorskip("trl")
    made = peer(
        trl.RewardTrainer,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
        args=SimpleNamespace(center_rewards_coefficient=None),
    )
    scores = torch.randn(8, generator=runtime.generator(0)).double()
    mine, theirs = (scores.clone().requires_grad_() for _ in range(2))
    inputs = {"input_ids": torch.ones(8, 2), "attention_mask": torch.ones(8, 2)}
    answer = SimpleNamespace(logits=theirs[:, None])
    loss = made.compute_loss(lambda **_: answer, inputs)
    loss.backward()
    found = tuning.bradley_terry_loss(*mine.chunk(2)).mean()
    found.backward()
    torch.testing.assert_close(found, loss)
    torch.testing.assert_close(mine.grad, theirs.grad)
