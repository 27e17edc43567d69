"""The settings of reinforcement learning, see `tuning.rl`."""

from dataclasses import dataclass

from llmcourse.base.arguments import require_fields

METHODS = ("grpo", "ppo")


@dataclass(frozen=True, kw_only=True)
class RLConfig:
    """Settings of a run."""

    steps: int
    """Rollouts, each with `updates` updates of the weights."""
    method: str = "grpo"
    """grpo: advantages from the other answers to a prompt; ppo: from a value head and GAE."""
    prompts: int = 8
    """Of a rollout (P)."""
    group_size: int = 8
    """Answers to each prompt (G); GRPO needs at least 2."""
    answer_tokens: int = 16
    """Most tokens of an answer; one that is longer is cut."""
    learning_rate: int | float = 1e-3
    """Of AdamW, constant, without weight decay."""
    updates: int = 1
    """Of the weights after each rollout; from the second on, the clip matters."""
    clip: int | float = 0.2
    """How far the probability of a token may move after a rollout and still be pushed on."""
    max_norm: int | float = 1.0
    """Of the gradient."""
    kl: int | float = 0.0
    """Price of a nat of KL from the reference (beta), in units of the reward; with GRPO and
    `divide_by_spread` in units of its advantage, the reward divided by a group's spread."""
    divide_by_spread: bool = True
    """GRPO: divide by the standard deviation of a group's rewards."""
    divide_by_length: bool = True
    """Divide by each answer's own length, as Shao et al. (2024) do; False divides all by
    `answer_tokens`, which is nearer to PPO as Schulman et al. (2017) have it."""
    gamma: int | float = 1.0
    """PPO: discount of what comes a token later."""
    decay: int | float = 0.95
    """PPO: the lambda of GAE."""
    value_rate: int | float = 0.05
    """PPO: learning rate of the value head."""
    seed: int = 0
    """Of the prompts that are chosen and the tokens that are drawn."""
    checkpoint_every: int = 0
    """Rollouts between two checkpoints, if the run has a folder; 0 is at the end alone."""

    def __post_init__(self) -> None:
        """Reject what no run can have."""
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        require_fields(self, "steps", "prompts", "answer_tokens", "updates", least=1)
        require_fields(self, "group_size", least=2 if self.method == "grpo" else 1)
        require_fields(self, "learning_rate", "clip", "max_norm", "value_rate", above=0)
        require_fields(self, "kl", "seed", "checkpoint_every", least=0)
        require_fields(self, "gamma", "decay", least=0, most=1)
