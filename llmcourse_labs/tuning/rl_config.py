"""The settings of reinforcement learning, see `tuning.rl`."""

from dataclasses import dataclass

from llmcourse.base.arguments import require_fields

METHODS = ("grpo", "ppo")
AVERAGES = ("answer", "token", "constant")
RATIOS = ("token", "answer")


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
    clip_high: int | float | None = None
    """The same upwards (DAPO's clip-higher has 0.28); None is `clip`."""
    ratio: str = "token"
    """Of new and old probability, for each token, or one for each answer (GSPO)."""
    max_norm: int | float = 1.0
    """Of the gradient."""
    kl: int | float = 0.0
    """Price of a nat of KL from the reference (beta), in units of the reward; with GRPO and
    `divide_by_spread` in units of its advantage, the reward divided by a group's spread."""
    divide_by_spread: bool = True
    """GRPO: divide by the standard deviation of a group's rewards."""
    spread_correction: int = 0
    """0: the deviation over G; 1: over G - 1, as `trl` and `verl` have it."""
    average: str = "answer"
    """answer: of the tokens of each answer, then of answers, as Shao et al. (2024) do; token: of
    all tokens (DAPO); constant: sums of answers, divided by `answer_tokens` (Dr. GRPO)."""
    refill: int = 0
    """More rollouts at most, for groups that take the places of those whose rewards are all equal
    (DAPO's dynamic sampling, which has no such end)."""
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
        for name, known in (("method", METHODS), ("average", AVERAGES), ("ratio", RATIOS)):
            if (given := getattr(self, name)) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {given!r}")
        if self.method == "ppo" and (self.ratio == "answer" or self.refill):
            raise ValueError(
                "ppo has an advantage for each token and no groups: leave ratio and refill as they "
                "are, or take method='grpo'"
            )
        require_fields(self, "steps", "prompts", "answer_tokens", "updates", least=1)
        require_fields(self, "group_size", least=2 if self.method == "grpo" else 1)
        require_fields(self, "learning_rate", "clip", "max_norm", "value_rate", above=0)
        require_fields(self, "clip_high", above=0)
        require_fields(self, "kl", "refill", "seed", "checkpoint_every", least=0)
        require_fields(self, "spread_correction", least=0, most=1)
        require_fields(self, "gamma", "decay", least=0, most=1)
