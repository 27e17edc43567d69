"""Modules, training runs for ranks, the same run in one process, and broken wrappers."""

import contextlib
import copy
import gc
import threading
import time
from concurrent.futures import Future

import torch
from parallel_kit import patched
from torch import nn

from llmcourse import loss as losses
from llmcourse import optim
from llmcourse.model import Transformer, tiny
from llmcourse.parallel import collectives
from llmcourse.parallel.data_parallel import BucketedDDP, NaiveDDP, broadcast_tensors


class Llama(nn.Module):
    """The smallest model of the course; its head is its embedding."""

    def __init__(self, generator):
        super().__init__()
        self.model = Transformer(tiny(), generator=generator)

    @staticmethod
    def batch(generator):
        return torch.randint(0, 300, (2, 9), generator=generator)

    def forward(self, ids, _where):
        return losses.cross_entropy(self.model(ids[:, :-1]), ids[:, 1:])


class Awkward(nn.Module):
    """Tied, frozen, empty, scalar and idle parameters, three dtypes, a branch for some ranks."""

    def __init__(self, generator):
        super().__init__()
        self.never = nn.Parameter(torch.ones(3))
        self.first = nn.Linear(6, 5)
        self.branch = nn.Linear(5, 5)
        self.tied = nn.Linear(5, 5)
        self.again = nn.Linear(5, 5)
        self.again.weight = self.tied.weight
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.narrow = nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
        self.wide = nn.Linear(5, 4, dtype=torch.float64)
        self.scale = nn.Parameter(torch.ones(()))
        self.empty = nn.Parameter(torch.ones(0))
        self.rows = nn.Parameter(torch.ones(4, 3).t())  # not contiguous
        for p in self.parameters():
            with torch.no_grad():
                p.normal_(generator=generator)

    @staticmethod
    def batch(generator):
        return torch.randn(7, 6, generator=generator)

    def forward(self, x, where):
        h = self.first(x).tanh()
        if where["part"] in where["branch"]:
            h = h + self.branch(h)
        h = self.again(self.frozen(self.tied(h)).tanh()) * self.narrow.float() + self.empty.sum()
        wide = (self.wide(h.double()) * self.scale).mean(0)
        return (self.rows.T @ wide[:3].float()).square().sum()


class Normed(nn.Module):
    """BatchNorm: buffers of two dtypes that a forward pass changes."""

    def __init__(self, generator):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
        self.register_buffer("marks", torch.rand(3, generator=generator) > 0.5)
        for p in self.parameters():
            with torch.no_grad():
                p.normal_(generator=generator)

    @staticmethod
    def batch(generator):
        return 3 * torch.randn(7, 6, generator=generator) + 1

    def forward(self, x, _where):
        return self.layers(x).square().mean()


KINDS = {"llama": Llama, "awkward": Awkward, "normed": Normed}


def begin(kind, seed):
    torch.manual_seed(seed)  # for nn.Linear's first values
    return KINDS[kind](torch.Generator().manual_seed(seed))


def batch(kind, step, part, micro):
    return KINDS[kind].batch(torch.Generator().manual_seed(1 + micro + 100 * (part + 100 * step)))


def optimizer_of(module):
    return optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=0.01)


def snapshot(module):
    """Gradients and weights by name; None where there is no gradient."""
    grads = {n: None if p.grad is None else p.grad.clone() for n, p in module.named_parameters()}
    return {"grads": grads, "state": {n: x.clone() for n, x in module.state_dict().items()}}


def in_one_process(kind, num_ranks, *, num_steps=3, num_micro=1, branch=(1,), average=True):
    """Accumulate the gradients of all parts of the batch in one process; return every step."""
    module = begin(kind, 0)
    optimizer = optimizer_of(module)
    steps = []
    for step in range(num_steps):
        total = {}
        for part in range(num_ranks):
            for micro in range(num_micro):
                module(batch(kind, step, part, micro), {"part": part, "branch": branch}).backward()
            if num_micro > 1:  # a rank adds up its own first
                for name, p in module.named_parameters():
                    if p.grad is not None:
                        total[name] = total[name] + p.grad if name in total else p.grad
                module.zero_grad(set_to_none=True)
        for name, p in module.named_parameters():
            if num_micro > 1:
                p.grad = total.get(name)
            if p.grad is not None and average:
                p.grad /= num_ranks
        found = snapshot(module)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        found["after"] = {n: x.clone() for n, x in module.state_dict().items()}
        steps.append(found)
    steps[-1]["moments"] = moments(optimizer)
    return steps


def moments(optimizer):
    state = optimizer.state_dict()["state"]
    return {f"{i} {name}": x for i, held in state.items() for name, x in held.items()}


def wrap(rank, module, wrapper, settings):
    axis = rank.axis("dp")
    if wrapper == "torch":
        return TorchDDP(module, **settings)
    if "all_reduce" in settings:
        settings = settings | {"all_reduce": collectives.ALGORITHMS[settings["all_reduce"]]}
    return {"naive": NaiveDDP, "bucketed": BucketedDDP}[wrapper](module, axis, **settings)


class TorchDDP(nn.parallel.DistributedDataParallel):
    def sync(self):
        """It synchronises in backward."""


def train(rank, kind, wrapper, *, num_steps=3, num_micro=1, branch=(1,), **settings):
    """Train on this rank's part of every batch; return what `in_one_process` returns, and more."""
    module = begin(kind, rank.index)
    before = {n: x.clone() for n, x in module.state_dict().items()}
    replica = wrap(rank, module, wrapper, settings)
    optimizer = optimizer_of(module)
    steps = []
    for step in range(num_steps):
        for micro in range(num_micro):
            last = micro == num_micro - 1
            with contextlib.nullcontext() if last else replica.no_sync():
                where = {"part": rank.index, "branch": branch}
                replica(batch(kind, step, rank.index, micro), where).backward()
        local = snapshot(module)["grads"]
        replica.sync()
        found = snapshot(module)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        found["after"] = {n: x.clone() for n, x in module.state_dict().items()}
        steps.append(found | {"local": local, "before": before})
    steps[-1]["moments"] = moments(optimizer)
    return steps


def bytes_of_a_step(rank, kind, overlap, bucket_bytes):
    ddp = BucketedDDP(begin(kind, 0), rank.axis("dp"), overlap=overlap, bucket_bytes=bucket_bytes)
    value = ddp(batch(kind, 0, rank.index, 0), {"part": rank.index, "branch": (1,)})
    before, rank.messages[:] = ddp.channel.sent_bytes, []
    value.backward()
    ddp.sync()
    return {
        "sent": ddp.channel.sent_bytes - before,
        "logged": [(m.name, m.num_bytes) for m in rank.messages],
        "buckets": [(b.flat.nbytes, b.flat.element_size()) for b in ddp.buckets],
        "gradients": sum(p.grad.nbytes for p in ddp.parameters() if p.grad is not None),
    }


def random_uses(rank, seed):
    """Parameters of random shapes and dtypes, each used by some ranks and in some steps."""
    parameters, uses, bucket_bytes = drawn(seed, rank.size)
    module = nn.ParameterList(parameters)
    settings = {"all_reduce": collectives.all_reduce_ordered, "bucket_bytes": bucket_bytes}
    ddp = BucketedDDP(module, rank.axis("dp"), **settings)
    steps = []
    for step in uses:
        if step[rank.index]:
            sum((module[i] * by).sum().double() for i, by in step[rank.index].items()).backward()
        ddp.sync()
        steps.append([p.grad for p in module])
        module.zero_grad(set_to_none=True)
    return steps


def drawn(seed, num_ranks):
    """Draw parameters, factors by step, rank and parameter, and a bucket size."""
    g = torch.Generator().manual_seed(seed)

    def number(least, most):
        return int(torch.randint(least, most + 1, (), generator=g))

    dtypes = torch.float32, torch.float64, torch.bfloat16
    parameters = [
        torch.zeros([number(0, 3) for _ in range(number(0, 3))], dtype=dtypes[number(0, 2)])
        for _ in range(number(1, 8))
    ]

    def factors():
        return {
            i: torch.randn(p.shape, generator=g).to(p.dtype)
            for i, p in enumerate(parameters)
            if number(0, 2)
        }

    return parameters, [[factors() for _ in range(num_ranks)] for _ in range(3)], number(1, 60)


def by_hand(rank, wrapper):
    """Gradients that no backward pass of torch made."""
    module = nn.Linear(3, 2)
    ddp = wrap(rank, module, wrapper, {})
    if rank.index:
        module.weight.grad = torch.arange(6.0).view(2, 3)
    ddp.sync()
    return module.weight.grad, module.bias.grad


class Stack(nn.Module):
    """Layers, the first of which calls a function in backward: all others are done by then."""

    def __init__(self, num_layers, at_the_end):
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(8) for _ in range(num_layers))
        self.at_the_end = at_the_end

    def forward(self, x):
        for i, w in enumerate(self.weights):
            x = x * w
            if i == 0:
                x.register_hook(self.at_the_end)
        return x.sum()


def overlap(rank, enabled):
    """Let backward wait, before its end, for a bucket to arrive: it does only if they overlap."""
    arrived = threading.Event()
    seen = {}

    def all_reduce(x, axis):
        collectives.all_reduce_ring(x, axis)
        seen.setdefault("threads", []).append(threading.current_thread().name)
        arrived.set()

    def at_the_end(_dy):
        seen["in time"] = arrived.wait(15 if enabled else 0)

    settings = {"bucket_bytes": 64, "overlap": enabled, "all_reduce": all_reduce}
    ddp = BucketedDDP(Stack(6, at_the_end), rank.axis("dp"), **settings)
    ddp(torch.full((8,), 1.0 + rank.index)).backward()
    grads = [[w.grad.clone() for w in ddp.module.weights]]
    ddp.sync()
    grads.append([w.grad for w in ddp.module.weights])
    return seen | {"num_buckets": len(ddp.buckets), "grads": grads}


def ends_with_its_owner(rank):
    module = begin("llama", 0)

    def threads():
        return sorted(t.name for t in threading.enumerate() if t.name == "gradient buckets")

    ddp = BucketedDDP(module, rank.axis("dp"))
    ddp(batch("llama", 0, 0, 0), None).backward()
    ddp.sync()
    alive = threads(), sum(len(p._post_accumulate_grad_hooks) for p in module.parameters())
    daemons = all(t.daemon for t in threading.enumerate() if t.name == "gradient buckets")
    del ddp
    gc.collect()
    limit = time.monotonic() + 5
    while threads() and time.monotonic() < limit:
        time.sleep(0.01)
    hooks = sum(len(p._post_accumulate_grad_hooks or {}) for p in module.parameters())
    return {"alive": alive, "daemons": daemons, "after": (threads(), hooks)}


def different_modules(rank):
    BucketedDDP(nn.Linear(3, 4 + rank.index), rank.axis("dp"))


def one_rank_calls_something_else(rank):
    """While the thread of one rank sends gradients, the other's does not."""
    ddp = BucketedDDP(begin("llama", 0), rank.axis("dp"), broadcast_buffers=False)
    if rank.index:
        with ddp.channel.collective("something else"):
            pass
    ddp(batch("llama", 0, 0, 0), None).backward()
    ddp.sync()


def two_modules(rank):
    """Two wrapped modules at once, as a generator and its critic; each on its channel."""
    pair = [BucketedDDP(begin("llama", rank.index), rank.axis("dp"), channel=1 + i) for i in (0, 1)]
    for step in range(3):
        # Ranks finish their backward passes in different orders.
        for ddp in pair if rank.index == 0 else pair[::-1]:
            ddp(batch("llama", step, rank.index, pair.index(ddp)), None).backward()
        for ddp in pair:
            ddp.sync()
    return [snapshot(ddp.module)["grads"] for ddp in pair]


def two_forwards(rank):
    """Buffers that are equal already are not written: autograd saved them."""
    ddp = BucketedDDP(begin("llama", rank.index), rank.axis("dp"))
    values = [ddp(batch("llama", 0, rank.index, micro), None) for micro in (0, 1)]
    sum(values).backward()
    ddp.sync()
    return snapshot(ddp.module)["grads"]


def buffers(rank, training, local):
    module = begin("normed", rank.index)
    ddp = BucketedDDP(module, rank.axis("dp"))
    ddp(batch("normed", 0, rank.index, 0), None)
    mine = module.layers[1].running_mean.clone()
    seen = []
    module.layers[1].register_forward_pre_hook(lambda m, _: seen.append(m.running_mean.clone()))
    with ddp.no_sync() if local else contextlib.nullcontext():
        ddp.train(training)(batch("normed", 1, rank.index, 0), None)
    return {"mine": mine, "seen": seen[0]}


def broadcasts(rank):
    """Values that are equal and not the same, or the same and not equal; of many dtypes."""
    if rank.index == 0:
        xs = [torch.tensor([-0.0, float("nan")]), torch.tensor(1 + 2j), torch.tensor([True, False])]
    else:
        xs = [torch.tensor([0.0, float("nan")]), torch.tensor(3j), torch.tensor([False, False])]
    xs += [torch.full((3, 2), rank.index, dtype=torch.float16).t(), torch.tensor(rank.index)]
    versions = [[x._version for x in xs]]
    for _ in range(2):
        broadcast_tensors(xs, rank.axis("dp"))
        versions.append([x._version for x in xs])
    return xs, versions


# What a check has to reject.
DDP = BucketedDDP
INIT, SYNC, READY = DDP.__init__, DDP._sync, DDP._ready


def _starts_from_its_own(self, module, axis, **settings):
    before = copy.deepcopy(module.state_dict())
    INIT(self, module, axis, **settings)
    module.load_state_dict(before)


def _drops_a_bucket(self, module, axis, **settings):
    INIT(self, module, axis, **settings)
    self.buckets.pop()


def _always(**fixed):
    return lambda self, module, axis, **given: INIT(self, module, axis, **given | fixed)


def _leaves_idle_ranks_out(self):
    idle = [p for p in self._trained if p.grad is None]
    SYNC(self)
    for p in idle:
        p.grad = None


def _mean_of_those_that_have_it(self):
    used = torch.tensor([float(p.grad is not None) for p in self._trained])
    collectives.all_reduce_ring(used, self.axis)
    SYNC(self)
    for p, ranks in zip(self._trained, used.tolist(), strict=True):
        if ranks:
            p.grad *= self.axis.size / ranks


def _too_early(self, bucket, p):
    if not self._local and bucket.sum is None:
        bucket.reduce(self.all_reduce, self.channel, self._divisor)
        bucket.sum = Future()
        bucket.sum.set_result(None)


def _late(self, module, axis, all_reduce=collectives.all_reduce_ring, **settings):
    self.may_arrive = may_arrive = threading.Event()

    def late(x, axis):
        may_arrive.wait(15)
        return all_reduce(x, axis)

    INIT(self, module, axis, all_reduce=late, **settings)


def _hasty(self):
    sums = [bucket.sum for bucket in self.buckets]
    for bucket in self.buckets:
        bucket.sum = None
        bucket.finish()
    self.may_arrive.set()
    for each in filter(None, sums):
        each.result()
    self.may_arrive.clear()
    self._num_sent = 0


def _in_its_own_order(self, bucket, p):
    if not self._local:
        bucket.missing.discard(id(p))
        if not bucket.missing:  # next in line
            self.buckets.remove(bucket)
            self.buckets.insert(self._num_sent, bucket)
            self._send()


def _forgets_no_sync(self, bucket, p):
    if bucket.sum is None:
        local, self._local = self._local, False
        READY(self, bucket, p)
        self._local = local


MUTANTS = {
    "never sends anything": patched(DDP, __init__=_always(overlap=False), _sync=lambda self: None),
    "starts every rank from its own weights": patched(DDP, __init__=_starts_from_its_own),
    "forgets to divide": patched(DDP, _divisor=1),
    "divides the loss's share once more": patched(
        DDP, _divisor=property(lambda self: self.axis.size**2)
    ),
    "leaves out the bucket of the first layers": patched(DDP, __init__=_drops_a_bucket),
    "gives no gradient to a rank that did not use it": patched(DDP, _sync=_leaves_idle_ranks_out),
    "divides by the ranks that used the parameter": patched(DDP, _sync=_mean_of_those_that_have_it),
    "sends a bucket when its first gradient is there": patched(DDP, _ready=_too_early),
    "takes the result before it is there": patched(DDP, __init__=_late, _sync=_hasty),
    "sends the first micro-batch alone": patched(DDP, _ready=_forgets_no_sync),
    "lets every rank keep its own running means": patched(
        DDP, __init__=_always(broadcast_buffers=False)
    ),
    # The last one: it ends the ranks.
    "sends buckets in the order in which they fill here": patched(DDP, _ready=_in_its_own_order),
}
