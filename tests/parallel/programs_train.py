"""What ranks do in test_train_ranks.py."""

from llmcourse import train
from llmcourse.train.layout import spread
from llmcourse.train.phases import new_run, one_rank


def losses_without_sync(rank, config, folder):
    """A run whose ranks never agree on a gradient."""
    run = new_run(config, folder, train.prepare(config, folder / "data"))
    spread(run, rank.axis("dp"), config.parallel)
    run.all_reduce = one_rank
    return [train.step(run).loss for _ in range(config.steps)]


def state_bytes(rank, config, folder):
    """Bytes of weights and of moments that this rank holds after a step."""
    run = new_run(config, folder, train.prepare(config, folder / "data"))
    spread(run, rank.axis("dp"), config.parallel)
    train.step(run)
    inner = getattr(run.optimizer, "optimizer", run.optimizer)
    moments = [x for state in inner.state.values() for x in state.values() if hasattr(x, "nbytes")]
    return (
        sum(p.nbytes for p in run.model.parameters()),
        sum(x.nbytes for x in moments if x.ndim),
    )
