"""A cluster on paper: accelerators, the links between them, and what of both a program reaches."""

from dataclasses import dataclass

from llmcourse.base.arguments import require_fields
from llmcourse_labs.scale.cost.hardware import HARDWARE, Hardware


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What programs reach of the data sheet; the first field is fitted, all others are measured."""

    fitted: int | float = 0.79
    """Rate of a model's products, as a share of the best product: the one number that is fitted.

    Fit: `python -m llmcourse_labs.scale.simulator fit`, on the first five rows of Narayanan et al.
    2021.
    """
    products: int | float = 0.859
    """Rate of the best product, as a share of the peak."""
    attention: int | float = 0.60
    """Rate of a fused attention, as a share of the peak."""
    memory: int | float = 0.86
    """Bandwidth of memory, as a share of the data sheet's."""
    link: int | float = 0.77
    """Bandwidth of a ring inside a domain, as a share of the data sheet's."""
    network: int | float = 0.92
    """Bandwidth of a ring between domains, as a share of the data sheet's."""
    launch_s: int | float = 5e-6
    """Until an operation has begun."""
    message_s: int | float = 1e-5
    """Until a message's first byte has arrived."""

    def __post_init__(self) -> None:
        """Reject shares that nothing reaches."""
        shares = ("fitted", "products", "attention", "memory", "link", "network")
        require_fields(self, *shares, above=0, most=1)
        require_fields(self, "launch_s", "message_s", least=0)


REACHED = {
    "A100": Efficiency(),
    "H100": Efficiency(products=0.803, attention=0.35, link=0.82),
    "B200": Efficiency(products=0.776, attention=0.35, link=0.82),
}
REACHED |= {"H800": REACHED["H100"], "H200": REACHED["H100"], "GB200": REACHED["B200"]}
"""By accelerator; H200, H800 and GB200 have the chips of an H100 and of a B200.  An accelerator
that is not here is taken to reach what an A100 reaches.

Source:
    products: S. Bekman, Machine Learning Engineering, table of maximum achievable matmul FLOPS,
    https://github.com/stas00/ml-engineering, read 2026-11: 267.9 of 312, 794.5 of 989, 1,745 of
    2,250 TFLOP/s.  attention: Dao 2023, abstract (50 to 73 % on the A100, here their middle),
    https://arxiv.org/abs/2307.08691; Shah et al. 2024, abstract (35 % on the H100, and taken for
    the B200), https://arxiv.org/abs/2407.08608.  link: 230 of 300 GB/s on the A100,
    https://github.com/NVIDIA/nccl-tests/issues/149; 370 of 450 on the H100,
    https://github.com/NVIDIA/nccl-tests/issues/212 (and taken for the B200).  network: 46 to 48 of
    50 GB/s, https://github.com/NVIDIA/nccl-tests/issues/290.  memory, launch_s and message_s are
    the usual orders of size, without a source; chapter 39 shows how little hangs on them.
"""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Accelerators of one kind in domains (servers or racks), which a network joins."""

    accelerator: str = "H100"
    """A name in `scale.cost.HARDWARE`."""
    num_gpus: int = 16_384
    """In all, every domain full but the last one."""
    pod: int | None = None
    """GPUs that the network joins at full bandwidth; None is all of them."""
    oversubscription: int | float = 1.0
    """Between pods, how many times more bandwidth goes in than comes out; 7 at Meta."""
    reached: Efficiency | None = None
    """None takes `REACHED`."""

    def __post_init__(self) -> None:
        """Reject what is no cluster, and settings that would have no effect."""
        if self.accelerator not in HARDWARE:
            raise ValueError(
                f"accelerator must be one of {', '.join(HARDWARE)}, got {self.accelerator!r}"
            )
        require_fields(self, "num_gpus", "oversubscription", least=1)
        if self.pod is None and self.oversubscription != 1:
            raise ValueError("oversubscription has no effect without a pod: give pod")
        if self.pod is not None and self.pod < self.hardware.domain:
            raise ValueError(
                f"pod must be at least a domain of {self.hardware.domain} GPUs, got {self.pod}"
            )

    @property
    def hardware(self) -> Hardware:
        """The data sheet."""
        return HARDWARE[self.accelerator]

    @property
    def shares(self) -> Efficiency:
        """What of the data sheet is reached."""
        return self.reached or REACHED.get(self.accelerator, REACHED["A100"])

    @property
    def product_flop_per_s(self) -> float:
        """Rate of a model's large products."""
        shares = self.shares
        return self.hardware.dense_bf16_flop_per_s * shares.products * shares.fitted

    @property
    def attention_flop_per_s(self) -> float:
        """Rate of a fused attention."""
        return self.hardware.dense_bf16_flop_per_s * self.shares.attention

    @property
    def memory_rate(self) -> float:
        """Bytes per second to and from memory."""
        return self.hardware.memory_bytes_per_s * self.shares.memory

    def hop_rate(self, span: int) -> float:
        """Return the bytes per second between two ranks whose group spans so many GPUs."""
        hardware, shares = self.hardware, self.shares
        if span <= hardware.domain:
            return hardware.link_bytes_per_s * shares.link
        return hardware.network_bytes_per_s * shares.network

    def bandwidth(self, size: int, inner: int) -> float:
        """Return the bytes per second at which a rank of a ring of `size` sends; see `ring`.

        Args:
            size: ranks of the ring.
            inner: how far they stand apart: 1, or the product of the axes inside of this one.
        """
        inside = max(1, min(size, self.hardware.domain // inner))
        return self.ring(inside=inside, span=size * inner, rings=inner)

    def ring(self, *, inside: int, span: int, rings: int) -> float:
        """Return the bytes per second at which a rank of a ring sends.

        Inside a domain it has the domain's links.  Of a larger ring g ranks stand in a domain; g
        rings side by side leave it through the network cards of all of them, so that each has::

            min(link, g x network)

        Between pods a ring has one link, and all rings share what leaves a pod::

            pod x network / (oversubscription x rings)

        Args:
            inside: g.
            span: GPUs from its first rank to its last.
            rings: rings side by side.
        """
        hardware, shares = self.hardware, self.shares
        link = hardware.link_bytes_per_s * shares.link
        if span <= hardware.domain:
            return link
        # Out of the domain: g cards work for the ring, which is no faster than its links inside.
        card = hardware.network_bytes_per_s * shares.network
        rate = min(link, inside * card)
        # Out of the pod: its uplinks carry a part of what its cards send, for all rings together.
        if self.pod is not None and span > self.pod:
            rate = min(rate, self.pod * card / (self.oversubscription * rings))
        return rate
