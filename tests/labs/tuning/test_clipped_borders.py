"""The clipped objective where a ratio is too large for a number."""

import torch

from llmcourse_labs.tuning.policy_gradient import clipped_objective


def test_an_advantage_of_0_teaches_nothing_whatever_the_ratio():
    new = torch.tensor([[90.0, 90.0, -90.0, 1.0]], requires_grad=True)
    advantages = torch.tensor([[0.0, 1.0, 0.0, 2.0]])
    objective = clipped_objective(new, torch.zeros(1, 4), advantages, clip=0.2)
    torch.testing.assert_close(objective, torch.tensor([[0.0, 1.2, 0.0, 2.4]]))
    objective.sum().backward()
    assert new.grad.tolist() == [[0, 0, 0, 0]]  # clipped, or of no weight
