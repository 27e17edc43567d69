"""loss.distillation: equal to torch's divergence, its gradient by differences, its two limits."""

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
    targets = torch.tensor([3, 0, loss.IGNORE_INDEX, 2, 2])
    return student, teacher, targets


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


@pytest.mark.parametrize("T", [0.7, 3.0])
def test_the_gradient_by_finite_differences(generator, T):
    student, teacher, _ = logits(generator)
    dlosses = awkward(5, generator=generator, dtype=torch.float64)
    _, saved = soft_losses_forward(student, teacher, COUNTED, T)
    (found,) = soft_losses_backward(dlosses, saved)
    step = 1e-6
    wanted = torch.zeros_like(student)
    for place in range(student.numel()):
        moved = torch.zeros_like(student).flatten()
        moved[place] = step
        ends = [
            soft_losses_forward(student + sign * moved.view_as(student), teacher, COUNTED, T)[0]
            for sign in (1, -1)
        ]
        wanted.view(-1)[place] = (dlosses * (ends[0] - ends[1])).sum() / (2 * step)
    assert checks.relative_error(found, wanted) < 1e-8


def test_at_high_temperature_the_student_copies_logits(generator):
    student, teacher, _ = logits(generator)
    means = student.mean(-1, keepdim=True) - teacher.mean(-1, keepdim=True)
    centred = student - teacher - means
    wanted = (centred / 7).where(COUNTED[:, None], 0.0)
    errors = []
    for T in (1e2, 1e3, 1e4):
        _, saved = soft_losses_forward(student, teacher, COUNTED, T)
        (found,) = soft_losses_backward(torch.ones(5, dtype=torch.float64), saved)
        errors.append(checks.relative_error(found, wanted))
    assert errors[2] < 3e-3
    assert errors[0] > 5 * errors[1] > 25 * errors[2]  # it falls as 1 / T


def test_the_gradient_keeps_its_size_when_the_temperature_changes(generator):
    """Without T squared it would fall to a 64th between T = 1 and T = 8."""
    student, teacher, targets = logits(generator)
    sizes = []
    for T in (1.0, 8.0):
        z = student.clone().requires_grad_()
        distillation(z, teacher, targets, temperature=T).backward()
        sizes.append(z.grad.norm().item())
    assert 1 / 4 < sizes[1] / sizes[0] < 4


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


def test_a_student_that_knows_what_the_teacher_knows_has_nothing_to_learn(generator):
    student, _, targets = logits(generator)
    z = student.clone().requires_grad_()
    value = distillation(z, student + 3.0, targets, temperature=2.0)  # a constant changes nothing
    value.backward()
    assert abs(value.item()) < 1e-12
    assert z.grad.abs().max() < 1e-12


def test_micro_batches_with_one_normaliser_add_to_the_batch(generator):
    student, teacher, targets = logits(generator)
    settings = {"temperature": 2.0, "hard_share": 0.3}
    whole = distillation(student, teacher, targets, **settings)
    parts = [
        distillation(student[rows], teacher[rows], targets[rows], **settings, num_tokens=4)
        for rows in (slice(0, 2), slice(2, 5))
    ]
    assert sum(parts).item() == pytest.approx(whole.item(), rel=1e-12)


def test_no_gradient_flows_into_the_teacher_and_low_precision_is_widened(generator):
    student, teacher, targets = logits(generator)
    student.requires_grad_()
    teacher.requires_grad_()
    distillation(student, teacher, targets, temperature=2.0).backward()
    assert teacher.grad is None
    low = distillation(student.bfloat16(), teacher.bfloat16(), targets, temperature=2.0)
    assert low.dtype == torch.float32
