"""RoPE scaling: slower turns, so that a model can read rows longer than those it was trained on.

A pair of channels turns by its frequency w from one token to the next.  Beyond the trained length
the slow pairs stand at angles that no training step has shown.  Every kind divides the frequencies
by something between 1 and the factor s by which the context grows; they differ in which pairs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from llmcourse.base.arguments import require_fields

Kind = Literal["linear", "ntk", "yarn", "llama3"]
"""Position interpolation, NTK-aware, YaRN, and that of Llama 3.1."""

_OF_KIND = {
    "yarn": ("beta_fast", "beta_slow"),
    "llama3": ("low_freq_factor", "high_freq_factor"),
}
"""By kind: the fields that it alone reads; both also read original_length."""


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How the rotary frequencies of a model are slowed down for a longer context.

    With K channels a head, pair j = 0 .. K/2 - 1, plain frequency w_j, wavelength 2 pi / w_j and
    n_j = original_length / wavelength, the turns of a pair in the trained length::

        linear:  w_j / s
        ntk:     w_j s^(-2j / (K - 2)): nothing at the fastest pair, 1/s at the slowest
        llama3:  w_j (g + (1 - g) / s),  g = clamp((n_j - low) / (high - low), 0, 1)
        yarn:    the same, with g falling from 1 to 0 in the number of the pair, between the pairs
                 with n = beta_fast and n = beta_slow; and rotations longer by 0.1 ln s + 1

    This yarn is that of its authors' code and of transformers.  Their paper has the frequencies of
    llama3 with low = 1 and high = 32, which differ, most of all where no pair makes 32 turns.

    Source:
        linear: Chen et al. 2023, equation 4, https://arxiv.org/abs/2306.15595; ntk and yarn: Peng
        et al. 2023, sections 3.1 to 3.4, https://arxiv.org/abs/2309.00071, yarn with the ramp of
        https://github.com/jquesnelle/yarn, which transformers has too; llama3: the config.json of
        Llama 3.1, and Grattafiori et al. 2024, https://arxiv.org/abs/2407.21783.
    """

    kind: Kind
    """Which pairs turn slower: all (linear), or the slow ones (ntk, yarn, llama3)."""
    factor: float
    """How much longer the context becomes (s), 1 or more; 1 changes nothing."""
    original_length: int = 0
    """Tokens of the rows that the model was trained on; of yarn and llama3 only, which need it."""
    low_freq_factor: float = 1.0
    """Of llama3: pairs with fewer turns in the original length are slowed by the whole factor."""
    high_freq_factor: float = 4.0
    """Of llama3: pairs with more turns keep their frequency."""
    beta_fast: float = 32.0
    """Of yarn: the pair with so many turns, and all faster ones, keep their frequency."""
    beta_slow: float = 1.0
    """Of yarn: the pair with so many turns, and all slower ones, are slowed by the whole factor."""

    def __post_init__(self) -> None:
        """Reject what cannot be computed, and settings that would have no effect."""
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        require_fields(self, "factor", least=1, below=math.inf)
        length_matters = self.kind in _OF_KIND
        require_fields(self, "original_length", least=int(length_matters), most=10**12)
        if self.original_length and not length_matters:
            raise ValueError(
                f"original_length has no effect on {self.kind}: leave it at 0, got "
                f"{self.original_length}"
            )
        for kind, names in _OF_KIND.items():
            require_fields(self, *names, above=0, below=math.inf)
            for name in names:
                value, usual = getattr(self, name), type(self).__dataclass_fields__[name].default
                if kind != self.kind and value != usual:
                    raise ValueError(f"{name} is of {kind} and has no effect on {self.kind}")
        for low, high in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
            if getattr(self, low) >= getattr(self, high):
                raise ValueError(
                    f"{low} must be below {high} = {getattr(self, high)}, got {getattr(self, low)}"
                )

    @property
    def attention_factor(self) -> float:
        """The length of the rotations; its square multiplies every logit of attention."""
        return 0.1 * math.log(self.factor) + 1.0 if self.kind == "yarn" else 1.0

    def frequencies(self, head_size: int, *, theta: float) -> list[float]:
        """Return the frequency of every pair, in radians per token, fastest first.

        Args:
            head_size: channels per head (K), even.
            theta: base of the frequencies without scaling, theta^(-2j / K).

        Raises:
            ValueError: if ntk is to scale a head of two channels, whose one pair is the fastest, or
                yarn frequencies that do not fall.
        """
        plain = [theta ** (-j / head_size) for j in range(0, head_size, 2)]
        if self.kind == "linear":
            return [w / self.factor for w in plain]
        if self.kind == "ntk":
            if len(plain) < 2:
                raise ValueError("ntk scaling needs a head_size of 4 or more, got 2")
            # K/2 - 1 steps from the fastest pair, which stays, to the slowest, divided by s.
            return [w * self.factor ** (-j / (len(plain) - 1)) for j, w in enumerate(plain)]
        # g: 1 keeps a frequency, 0 divides it by s; the two kinds differ in where g falls.
        kept = self._llama3_share(plain) if self.kind == "llama3" else self._ramp(plain, theta)
        return [w * (g + (1 - g) / self.factor) for w, g in zip(plain, kept, strict=True)]

    def _llama3_share(self, plain: Sequence[float]) -> list[float]:
        """Return how much of each frequency stays, by the turns of its pair."""
        low, high = self.low_freq_factor, self.high_freq_factor
        turns = [w * self.original_length / (2 * math.pi) for w in plain]
        return [min(1.0, max(0.0, (n - low) / (high - low))) for n in turns]

    def _ramp(self, plain: Sequence[float], theta: float) -> list[float]:
        """Return how much of each frequency stays, by the number of its pair."""
        if theta <= 1:
            raise ValueError(f"yarn scaling needs a theta above 1, got {theta}")
        head_size = 2 * len(plain)
        first, last = (
            head_size * math.log(self.original_length / (2 * math.pi * turns)) / 2 / math.log(theta)
            for turns in (self.beta_fast, self.beta_slow)
        )
        first, last = max(math.floor(first), 0), min(math.ceil(last), head_size - 1)
        width = last - first or 0.001
        return [1 - min(1.0, max(0.0, (j - first) / width)) for j in range(len(plain))]


LLAMA_3_1 = RopeScaling(kind="llama3", factor=8.0, original_length=8_192)
"""What the config.json of every Llama 3.1 says, for a context of 131,072 tokens."""
