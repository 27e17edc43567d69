"""What ranks do in test_train_ranks.py."""

from llmcourse import train
from llmcourse.model import Block
from llmcourse.train import phases
from tests.train.runs import learn


def made(rank, config, folder):
    prepared = train.prepare(config, folder / "data")
    return train.new_run(config, folder, prepared, layout=train.layout_on(rank, config))


def losses_without_sync(rank, config, folder):
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
    layout = made(rank, config, folder).layout
    value = learn(layout, batch.micro_batches(layout.num_shares)[layout.share])
    layout.sync()
    return layout.mean(value.nats.item()), layout.clip()


def words(rank, config, folder):
    """What a step did under each word that it told, in order: (word, what ran, who covers it)."""
    run = made(rank, config, folder)
    train.step(run)
    ran, told = [], []
    blocks = [part for part in run.model.modules() if isinstance(part, Block)]
    blocks[0].register_forward_hook(lambda *_: ran.append("forward"))
    blocks[0].feed_forward.register_full_backward_hook(lambda *_: ran.append("backward"))
    inner = getattr(run.optimizer, "optimizer", run.optimizer)
    inner.register_step_post_hook(lambda *_: ran.append("update"))
    sync, clip, save = run.layout.sync, run.layout.clip, phases.save
    run.layout.sync = lambda: (ran.append("sync"), sync())
    run.layout.clip = lambda: (ran.append("clip"), clip())[1]
    phases.save = lambda _: ran.append("save")

    def watch(word, given):
        covered = given.by if isinstance(given, phases.Covered) else None
        told.append((word, list(dict.fromkeys(ran)), covered))
        ran.clear()

    with run.watched_by(watch):
        train.step(run)
    phases.save = save
    return told
