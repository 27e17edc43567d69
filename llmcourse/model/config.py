"""The numbers that fix the shape of a Llama, and the shapes that the course uses."""

from dataclasses import dataclass, replace

from llmcourse.base.arguments import require_fields
from llmcourse.model.attention.rope_scaling import RopeScaling


def check_chosen(experts_per_token: int, num_experts: int) -> None:
    """Raise ValueError unless a token can choose so many experts."""
    if not 1 <= experts_per_token <= num_experts:
        raise ValueError(
            f"experts_per_token must be from 1 to num_experts = {num_experts}, got "
            f"{experts_per_token}"
        )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Every number that fixes the shape of a Llama."""

    num_layers: int
    """Blocks."""
    width: int
    """Channels of a token between blocks (D, d_model)."""
    num_heads: int
    """Query heads (H)."""
    num_kv_heads: int
    """Key/value heads (G); divides num_heads."""
    head_size: int
    """Channels of one head (K), even; often, not always, width / num_heads."""
    hidden: int
    """Channels inside the feed-forward network (F); of a mixture, inside one expert."""
    vocab_size: int
    """Rows of the embedding (V)."""
    context_length: int
    """Longest sequence in tokens (T)."""
    rope_theta: float = 10_000.0
    """Base of the rotary positions."""
    rope_scaling: RopeScaling | None = None
    """Slower rotary positions, for a context_length beyond the length that was trained at."""
    tied_head: bool = True
    """Whether the output head is the embedding itself."""
    norm_eps: float = 1e-5
    """Added to the mean square in every RMSNorm."""
    qk_norm: bool = False
    """Whether queries and keys are normalised before they are rotated (Qwen3, OLMo 2)."""
    num_experts: int = 0
    """Experts of every block (E); 0 is a dense model, with one feed-forward network in a block."""
    experts_per_token: int = 0
    """Experts that each token uses (k), from 1 to num_experts; 0 in a dense model."""
    balance_weight: float = 0.0
    """Weight of the balance loss beside the cross-entropy; 0 leaves it out.  It is that of each
    micro-batch on each rank, so the losses of a run depend a little on its layout."""
    capacity_factor: float = 0.0
    """In training an expert takes at most ceil(capacity_factor N k / E) of the rows of N tokens, a
    micro-batch on one rank; 0 is no limit.  With a limit the losses depend on the layout."""

    def __post_init__(self) -> None:
        """Reject shapes that cannot be built."""
        sizes = ("num_layers", "width", "num_heads", "num_kv_heads", "head_size", "hidden")
        require_fields(self, *sizes, "vocab_size", "context_length", least=1)
        require_fields(self, "rope_theta", "norm_eps", above=0)
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads = {self.num_heads}, got {self.num_kv_heads}"
            )
        if self.head_size % 2:
            raise ValueError(f"head_size must be even for RoPE, got {self.head_size}")
        if self.rope_scaling is not None:  # whether it can be had with this head and theta
            self.rope_scaling.frequencies(self.head_size, theta=self.rope_theta)
        self._check_experts()

    def _check_experts(self) -> None:
        """Reject a mixture that cannot be built, and settings of one that has no experts."""
        amounts = ("num_experts", "balance_weight", "capacity_factor")
        require_fields(self, *amounts, least=0, below=float("inf"))
        if self.num_experts == 0:
            for name in ("experts_per_token", "balance_weight", "capacity_factor"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name} has no effect without experts: set num_experts, or leave {name} "
                        f"at 0, got {getattr(self, name)}"
                    )
        else:
            check_chosen(self.experts_per_token, self.num_experts)


def tiny() -> ModelConfig:
    """The smallest model that is still a Llama in every part: for tests and first looks."""
    return ModelConfig(
        num_layers=2,
        width=32,
        num_heads=4,
        num_kv_heads=2,
        head_size=8,
        hidden=64,
        vocab_size=300,
        context_length=32,
    )


def stories() -> ModelConfig:
    """0.35 M parameters: writes fluent little sentences after half a minute on one CPU core."""
    return ModelConfig(
        num_layers=4,
        width=80,
        num_heads=4,
        num_kv_heads=2,
        head_size=20,
        hidden=224,
        vocab_size=768,
        context_length=96,
    )


def _llama3(num_layers: int, width: int, num_heads: int, hidden: int) -> ModelConfig:
    """The shape common to the Llama 3 family: Table 3 of https://arxiv.org/abs/2407.21783."""
    return ModelConfig(
        num_layers=num_layers,
        width=width,
        num_heads=num_heads,
        num_kv_heads=8,
        head_size=128,
        hidden=hidden,
        vocab_size=128_256,
        context_length=8_192,
        rope_theta=500_000.0,
        tied_head=False,
    )


def llama3_8b() -> ModelConfig:
    """Llama 3 8B: 8,030,261,248 parameters."""
    return _llama3(num_layers=32, width=4_096, num_heads=32, hidden=14_336)


def llama3_70b() -> ModelConfig:
    """Llama 3 70B: 70,553,706,496 parameters."""
    return _llama3(num_layers=80, width=8_192, num_heads=64, hidden=28_672)


def llama3_405b() -> ModelConfig:
    """Llama 3.1 405B: 405,853,388,800 parameters."""
    return _llama3(num_layers=126, width=16_384, num_heads=128, hidden=53_248)


def tiny_moe() -> ModelConfig:
    """`tiny` with 4 experts in each block, 2 for each token."""
    return replace(tiny(), hidden=24, num_experts=4, experts_per_token=2, balance_weight=0.01)


def mixtral_8x7b() -> ModelConfig:
    """Mixtral 8x7B: 46,702,792,704 parameters, of which a token uses 12,879,925,248.

    Source:
        Jiang et al. 2024, table 1, https://arxiv.org/abs/2401.04088; base of the rotary positions
        and weight of the balance loss from the config.json published with the weights; it gives
        0.02 for a loss that is k times ours.
    """
    return ModelConfig(
        num_layers=32,
        width=4_096,
        num_heads=32,
        num_kv_heads=8,
        head_size=128,
        hidden=14_336,
        vocab_size=32_000,
        context_length=32_768,
        rope_theta=1_000_000.0,
        tied_head=False,
        num_experts=8,
        experts_per_token=2,
        balance_weight=0.04,
    )


PRESETS = {
    "tiny": tiny,
    "tiny_moe": tiny_moe,
    "stories": stories,
    "llama3_8b": llama3_8b,
    "llama3_70b": llama3_70b,
    "llama3_405b": llama3_405b,
    "mixtral_8x7b": mixtral_8x7b,
}
"""Every preset by the name that the command line uses."""
