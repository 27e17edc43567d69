"""loss.distillation: equal to torch's divergence and its gradient; other losses are seen."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from strategies import awkward

from llmcourse import loss
from llmcourse.base import checks
from llmcourse_labs.tuning import distillation
from llmcourse_labs.tuning.distillation import soft_losses_backward, soft_losses_forward

COUNTED = torch.tensor([True, True, False, True, True])


def logits(generator, *, dtype=torch.float64):
    student = awkward(5, 7, generator=generator, dtype=dtype)
    teacher = 1.5 * awkward(5, 7, generator=generator, dtype=dtype)
    return student, teacher, torch.tensor([3, 0, loss.IGNORE_INDEX, 2, 2])


def by_torch(student, teacher, T):
    """T^2 KL(teacher || student) of every row, by torch."""
    inputs = (student / T).log_softmax(-1), (teacher / T).log_softmax(-1)
    return T**2 * F.kl_div(*inputs, reduction="none", log_target=True).sum(-1)


@pytest.mark.parametrize("T", [0.5, 1.0, 2.0, 4.0])
def test_equals_torch_with_its_gradient(generator, T):
    student, teacher, targets = logits(generator)
    student.requires_grad_()
    wanted = by_torch(student, teacher, T)[COUNTED].sum() / 4
    found = distillation(student, teacher, targets, temperature=T)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-12)
    (theirs,) = torch.autograd.grad(wanted, student)
    (ours,) = torch.autograd.grad(found, student)
    assert checks.relative_error(ours, theirs) < 1e-12
    assert torch.equal(ours[2], torch.zeros(7, dtype=torch.float64))
    dlosses = awkward(5, generator=generator, dtype=torch.float64)
    each = by_torch(student, teacher, T).where(COUNTED, 0.0)
    (theirs,) = torch.autograd.grad(each, student, dlosses)
    losses, saved = soft_losses_forward(student.detach(), teacher, COUNTED, T)
    assert checks.relative_error(losses, each.detach()) < 1e-12
    assert checks.relative_error(*soft_losses_backward(dlosses, saved), theirs) < 1e-12


MUTANTS = {
    "no T squared": lambda s, t, T: by_torch(s, t, T) / T**2,
    "T once": lambda s, t, T: by_torch(s, t, T) / T,
    "the divergence turned round": lambda s, t, T: by_torch(t, s, T),
    "temperature on the student alone": lambda s, t, T: by_torch(s, t * T, T),
    "the teacher's entropy left in": lambda s, t, T: (
        -(T**2 * (t / T).softmax(-1) * (s / T).log_softmax(-1)).sum(-1)
    ),
    "a mean over the vocabulary": lambda s, t, T: by_torch(s, t, T) / s.shape[-1],
}


@pytest.mark.parametrize("name", MUTANTS)
def test_other_losses_are_not_taken_for_it(generator, name):
    student, teacher, targets = logits(generator)
    found = distillation(student, teacher, targets, temperature=2.0).item()
    wrong = MUTANTS[name](student, teacher, 2.0)[COUNTED].sum().item() / 4
    assert abs(wrong - found) > 0.05 * found


def test_a_teacher_that_is_certain_is_a_hard_target(generator):
    student, _, targets = logits(generator)
    certain = torch.full((5, 7), -torch.inf, dtype=torch.float64)
    certain[torch.arange(5), targets.clamp(min=0)] = 0.0
    found = distillation(student, certain, targets)
    assert found.item() == pytest.approx(loss.cross_entropy(student, targets).item(), rel=1e-12)


@given(a=st.floats(0, 1), T=st.floats(0.2, 10))
def test_soft_and_hard_are_mixed_by_their_share(a, T):
    student, teacher, targets = logits(torch.Generator().manual_seed(1))
    soft = distillation(student, teacher, targets, temperature=T)
    hard = loss.cross_entropy(student, targets)
    both = distillation(student, teacher, targets, temperature=T, hard_share=a)
    assert both.item() == pytest.approx((1 - a) * soft.item() + a * hard.item(), rel=1e-10)


def test_micro_batches_with_one_normaliser_add_to_the_batch(generator):
    student, teacher, targets = logits(generator)
    settings = {"temperature": 2.0, "hard_share": 0.3}
    whole = distillation(student, teacher, targets, **settings)
    micro_batches = zip(*(x.split((2, 3)) for x in (student, teacher, targets)), strict=True)
    parts = [distillation(*each, **settings, num_tokens=4) for each in micro_batches]
    assert sum(parts).item() == pytest.approx(whole.item(), rel=1e-12)


def test_no_gradient_flows_into_the_teacher_and_low_precision_is_widened(generator):
    student, teacher, targets = logits(generator)
    student.requires_grad_()
    teacher.requires_grad_()
    distillation(student, teacher, targets, temperature=2.0).backward()
    assert teacher.grad is None
    low = distillation(student.bfloat16(), teacher.bfloat16(), targets, temperature=2.0)
    assert low.dtype == torch.float32
