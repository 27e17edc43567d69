"""What ranks do in test_train_ranks.py."""

from llmcourse import train


def made(rank, config, folder):
    """This rank's part of a new run."""
    prepared = train.prepare(config, folder / "data")
    return train.new_run(config, folder, prepared, layout=train.layout_on(rank, config))


def losses_without_sync(rank, config, folder):
    """A run whose ranks never agree on a gradient."""
    run = made(rank, config, folder)
    run.layout.sync = lambda: None
    with run.layout.replica.no_sync():
        return [train.step(run).loss for _ in range(config.steps)]


def state_bytes(rank, config, folder):
    """Bytes of weights and of moments that this rank holds after a step."""
    run = made(rank, config, folder)
    train.step(run)
    inner = getattr(run.optimizer, "optimizer", run.optimizer)
    moments = [x for state in inner.state.values() for x in state.values() if hasattr(x, "nbytes")]
    return (
        sum(p.nbytes for p in run.model.parameters()),
        sum(x.nbytes for x in moments if x.ndim),
    )


def step_with_uneven_masks(rank, config, folder, batch):
    """The loss of one step on this rank's rows of a batch, and the norm of the whole gradient."""
    run = made(rank, config, folder)
    layout = run.layout
    rows = batch.micro_batches(layout.num_shares)[layout.share]
    value = layout.loss(layout.forward(rows), rows)
    layout.backward(value)
    layout.sync()
    return layout.mean(value.nats.item()), layout.clip()
