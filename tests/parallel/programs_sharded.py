"""Uses of a sharded model that come up once in a while, each compared with the plain module."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from programs_zero import whole_parameters, zero
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from llmcourse.loss import cross_entropy
from llmcourse.model import Transformer, tiny
from llmcourse.model.decoder import Block
from llmcourse.parallel import collectives
from llmcourse.recompute import recompute


@dataclass
class Pair:
    """A result with names."""

    used: Tensor
    other: Tensor


class Leaf(nn.Module):
    """A unit with a matrix, a frozen one, and two results."""

    as_view = False

    def __init__(self, width: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, width) / 2)
        self.frozen = nn.Parameter(torch.randn(width, width) / 2, requires_grad=False)

    def forward(self, x: Tensor) -> Pair:
        y = (x @ self.w).tanh() @ self.frozen
        if self.as_view:
            return Pair((y @ self.w).view(-1).view(y.shape), y)
        return Pair(y, y @ self.w.detach())


class Tree(nn.Module):
    """Units in a row, with a way to run them."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves = nn.ModuleList(Leaf(3) for _ in range(3))
        self.last = nn.Parameter(torch.randn(3))
        self.call: Callable[[nn.Module, Tensor], Pair] = lambda leaf, x: leaf(x)

    def forward(self, x: Tensor) -> Tensor:
        for leaf in self.leaves:
            x = self.call(leaf, x).used
        return x * self.last


def plain_tree() -> Tree:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Tree()


def batch(number: int) -> Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(number))


def gradients(run: nn.Module) -> dict[str, Tensor | None]:
    """Return whole gradients by name, after all ranks saw the same batch."""
    if not isinstance(run, zero.FullyShardedModel):
        return {name: p.grad for name, p in run.named_parameters()}
    names = {p: name for name, p in run.module.named_parameters()}
    found = dict.fromkeys(names.values())
    for row in run._rows:
        if row.params[0].grad is not None:
            mine = torch.cat([p.grad.flatten() for p in row.params])
            whole = collectives.all_gather(mine, run.axis, length=row.layout.length)
            found.update(zip([names[p] for p in row.params], row.layout.cut(whole), strict=True))
    return found


def two_forwards_first(run):
    a, b = run(batch(0)).sum(), run(batch(1)).square().sum()
    a.backward()
    b.backward()


def two_forwards_last_in_first_out(run):
    a, b = run(batch(0)).sum(), run(batch(1)).square().sum()
    b.backward()
    a.backward()


def one_backward_of_two_forwards(run):
    (run(batch(0)).sum() * run(batch(1)).square().sum()).backward()


def backward_twice(run):
    out = run(batch(0)).square().sum()
    out.backward(retain_graph=True)
    out.backward()


def gradient_of_the_input(run):
    x = batch(0).requires_grad_()
    dx = torch.autograd.grad(run(x).square().sum(), x)[0]
    (run(batch(1) * dx.mean())).sum().backward()
    return dx


def input_that_wants_a_gradient(run):
    x = batch(0).requires_grad_()
    run(x).square().sum().backward()
    return x.grad


def evaluation_between(run):
    out = run(batch(0)).square().sum()
    with torch.no_grad():
        first = run(batch(1))
    with torch.inference_mode():
        second = run(batch(1))
    out.backward()
    return torch.stack([first, second.clone()])


def error_in_forward(run):
    def fail(leaf, x):
        leaf(x)
        raise ArithmeticError

    module = tree_of(run)
    module.call = fail
    try:
        run(batch(0))
    except ArithmeticError:
        del module.call
        module.call = lambda leaf, x: leaf(x)
    change(run)
    run(batch(0)).square().sum().backward()


def error_in_backward(run):
    def fail(_):
        raise ArithmeticError

    module = tree_of(run)

    def failing(leaf, x):
        pair = leaf(x)
        if leaf is module.leaves[0]:
            pair.used.register_hook(fail)
        return pair

    module.call = failing
    try:
        run(batch(0)).square().sum().backward()
    except ArithmeticError:
        module.call = lambda leaf, x: leaf(x)
    for p in run.parameters():
        p.grad = None
    change(run)
    run(batch(0)).square().sum().backward()


def result_that_is_not_used(run):
    """Only the second results have a way to the loss; nothing trains, but the gradient passes."""
    x = batch(0).requires_grad_()
    tree = tree_of(run)
    tree.call = lambda leaf, x: Pair(leaf(x).other, x)
    run(x).sum().backward()
    return x.grad


def results_changed_in_place(run):
    def views(leaf, x):
        pair = leaf(x)
        pair.used += x
        pair.used.mul_(2)
        return pair

    tree = tree_of(run)
    tree.call = views
    for leaf in tree.leaves:
        leaf.as_view = True
    run(batch(0)).square().sum().backward()


def recomputed_from_outside(run):
    tree = tree_of(run)
    tree.call = lambda leaf, x: Pair(recompute(lambda y: leaf(y).used, x), x)
    run(batch(0).requires_grad_()).square().sum().backward()


def several_recomputed_together(run):
    tree = tree_of(run)
    x = recompute(lambda y: tree.leaves[1](tree.leaves[0](y).used).used, batch(0).requires_grad_())
    tree.leaves[2](x).used.square().sum().backward()


def torchs_checkpoint(run):
    tree = tree_of(run)
    tree.call = lambda leaf, x: Pair(checkpoint(lambda y: leaf(y).used, x, use_reentrant=False), x)
    run(batch(0).requires_grad_()).square().sum().backward()


def torchs_reentrant_checkpoint(run):
    tree = tree_of(run)
    tree.call = lambda leaf, x: Pair(checkpoint(lambda y: leaf(y).used, x, use_reentrant=True), x)
    run(batch(0).requires_grad_()).square().sum().backward()


def frozen_units(run):
    """See `unusual`, which freezes all leaves."""
    x = batch(0).requires_grad_()
    run(x).square().sum().backward()
    return x.grad


def whole_for_a_while(run):
    whole = run.gathered if isinstance(run, zero.FullyShardedModel) else None
    if whole is None:
        return torch.stack([*(leaf.w.detach() @ leaf.w.detach() for leaf in run.leaves)])
    with whole() as module:
        found = torch.stack([leaf.w.detach() @ leaf.w.detach() for leaf in module.leaves])
        run(batch(0))
        return found + 0 * module.leaves[0].w.detach()


def added_up_then_reduced(run):
    if isinstance(run, zero.FullyShardedModel):
        with run.no_sync():
            run(batch(0)).square().sum().backward()
        tree_of(run).leaves[2](batch(1)).used.sum().backward()  # the others' gradients, too
    else:
        run(batch(0)).square().sum().backward()
        run.leaves[2](batch(1)).used.sum().backward()


CASES = {
    f.__name__: f
    for f in (
        two_forwards_first,
        two_forwards_last_in_first_out,
        one_backward_of_two_forwards,
        backward_twice,
        gradient_of_the_input,
        input_that_wants_a_gradient,
        evaluation_between,
        error_in_forward,
        error_in_backward,
        result_that_is_not_used,
        results_changed_in_place,
        recomputed_from_outside,
        several_recomputed_together,
        torchs_checkpoint,
        torchs_reentrant_checkpoint,
        frozen_units,
        whole_for_a_while,
        added_up_then_reduced,
    )
}


def tree_of(run: nn.Module) -> Tree:
    return run.module if isinstance(run, zero.FullyShardedModel) else run


@torch.no_grad()
def change(run: nn.Module) -> None:
    """Change every parameter, as an optimizer does."""
    for p in run.parameters():
        p.mul_(1.5)


def unusual(rank, name: str) -> dict:
    """Do something with the plain module and the sharded one; return what differs."""
    plain = plain_tree()
    if name == "frozen_units":
        plain.leaves.requires_grad_(False)
    module = copy.deepcopy(plain)
    sharded = zero.FullyShardedModel(module, rank.axis("dp"), units=Leaf, ordered=True)
    expected, found = CASES[name](plain), CASES[name](sharded)
    ours, theirs = gradients(sharded), gradients(plain)
    parameters = whole_parameters(sharded)
    return {
        "results": (expected, found),
        "gradients": {n: (theirs[n], ours[n]) for n in theirs},
        "parameters": {n: (p, parameters[n]) for n, p in plain.named_parameters()},
        "gathered": [row.here for row in sharded._rows],
        "bytes": [row.row.untyped_storage().nbytes() for row in sharded._rows],
    }


def all_unusual(rank) -> dict:
    """Do all of them, one after the other."""
    return {name: unusual(rank, name) for name in CASES}


def narrow_tree() -> tuple[Tree, type, Callable]:
    """Return a tree, its units, and its loss of a numbered batch."""

    def loss_of(run: nn.Module, number: int) -> Tensor:
        x = batch(number)
        return run(x if isinstance(run, zero.FullyShardedModel) else x.bfloat16()).float()

    return plain_tree(), Leaf, lambda run, number: loss_of(run, number).square().mean()


def narrow_decoder() -> tuple[Transformer, type, Callable]:
    """Return a small Llama, its units, and its loss of a numbered batch."""

    def loss_of(run: nn.Module, number: int) -> Tensor:
        g = torch.Generator().manual_seed(number)
        ids = torch.randint(0, 300, (2, 9), generator=g)
        return cross_entropy(run(ids[:, :-1]), ids[:, 1:])

    return Transformer(tiny(), generator=torch.Generator().manual_seed(0)), Block, loss_of


def in_bf16(rank, make: Callable[[], tuple]) -> tuple[list, list]:
    """Train two steps in bf16 with float32 pieces; return the parameters, and those by hand."""
    plain, units, loss_of = make()
    sharded = zero.FullyShardedModel(
        copy.deepcopy(plain),
        rank.axis("dp"),
        units=units,
        compute_dtype=torch.bfloat16,
        reduce_dtype=torch.float32,
        ordered=True,
    )
    ours, theirs = [], []
    chosen = torch.optim.SGD(sharded.parameters(), lr=0.1)
    for step in range(2):
        loss_of(sharded, 10 * step + rank.index).backward()
        chosen.step()
        chosen.zero_grad()
        ours.append(whole_parameters(sharded))
        low = copy.deepcopy(plain).bfloat16()
        sums: dict[str, Tensor] = {}
        for other in range(rank.size):
            low.zero_grad()
            loss_of(low, 10 * step + other).backward()
            for name, p in low.named_parameters():
                if p.requires_grad:
                    sums[name] = sums.get(name, 0) + p.grad.float()
        with torch.no_grad():
            for name, total in sums.items():
                plain.get_parameter(name).sub_(total / rank.size, alpha=0.1)
        theirs.append({name: p.detach().clone() for name, p in plain.named_parameters()})
    return ours, theirs


def dtypes(rank) -> dict[str, str]:
    """Return the dtypes of everything in a low-precision run."""
    seen = {}

    class Probe(nn.Linear):
        def forward(self, x, ids):
            y = super().forward(x)
            seen.update(inside=self.weight.dtype, given=x.dtype, ids=ids.dtype, result=y.dtype)
            return y

    sharded = zero.FullyShardedModel(Probe(3, 2), rank.axis("dp"), compute_dtype=torch.bfloat16)
    sharded(batch(0), ids=torch.arange(4)).float().sum().backward()
    p = next(sharded.parameters())
    return {k: str(v) for k, v in {"parameter": p.dtype, "gradient": p.grad.dtype, **seen}.items()}


def states(rank) -> tuple[dict, dict, list]:
    """Return the state of a sharded module after loading it from another, and the other's."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first, second = (
            nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), Tree()) for _ in range(2)
        )
    second(torch.randn(4, 5, generator=torch.Generator().manual_seed(rank.index)))
    theirs = {name: x.clone() for name, x in second.state_dict().items()}
    sharded = zero.FullyShardedModel(first, rank.axis("dp"), units=(Leaf, nn.Linear))
    sharded.load_full_state_dict(theirs)
    found = sharded.full_state_dict()
    # Buffers are rank 0's, and every rank's running mean is its own.
    broadcast = {
        name: collectives.broadcast(x.clone(), rank.axis("dp")) for name, x in theirs.items()
    }
    return found, broadcast, list(sharded.state_dict())


def read_at_rest(rank) -> str:
    """Use a sharded parameter outside of a forward pass; return the error."""
    sharded = zero.FullyShardedModel(nn.Linear(4, 4), rank.axis("dp"))
    try:
        nn.functional.linear(torch.zeros(2, 4), sharded.module.weight)
    except RuntimeError as error:
        return str(error)
    return "no error"
