"""train: seven phases in order, bit-exact resuming, clean interruption, one line for bad input."""

import ast
import inspect
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from llmcourse import checkpoint, loss, optim, train
from llmcourse import model as models
from llmcourse.base import runtime
from llmcourse.base.settings import settings_of
from llmcourse.data import corpus
from llmcourse.train import __main__ as command_line
from llmcourse.train import phases
from tests.train.runs import TINY, TRAIN, command, losses, metrics, started, weights

PHASES = ("load", "forward", "loss", "backward", "sync", "optimizer", "checkpoint")


def moments(run):
    states = run.optimizer.state_dict()["state"]
    tensors = {
        f"{i} {name}": value
        for i, state in states.items()
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }
    return runtime.fingerprint(tensors)


@pytest.fixture(scope="module")
def config():
    return TINY


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    return train.fit(train.start(config, tmp_path_factory.mktemp("runs") / "whole"))


def test_a_step_is_the_seven_phases_in_order():
    source = ast.parse(inspect.getsource(phases.step)).body[0]
    assert [node.func.id for node in ast.walk(source) if isinstance(node, ast.Call)] == list(PHASES)
    assert {type(statement) for statement in source.body[1:]} == {ast.Assign, ast.Expr, ast.Return}


def test_a_step_of_a_mixture_reports_the_loss_and_minimises_its_balance_too(config, tmp_path):
    shape = replace(models.tiny_moe(), vocab_size=config.model.vocab_size, balance_weight=2.0)
    norms = {}
    for weight in (0.0, 2.0):
        model = replace(shape, balance_weight=weight)
        run = train.start(replace(config, model=model), tmp_path / f"{weight}")
        with torch.no_grad():
            inputs, targets = run.batches.batch(0)
            plain = loss.cross_entropy(run.model(inputs), targets).item()
        report = train.step(run)
        assert report.loss == pytest.approx(plain, rel=1e-5)
        norms[weight] = report.gradient_norm
    assert norms[2.0] > 1.005 * norms[0.0]


def test_watchers_see_every_phase_and_what_it_gave(config, tmp_path):
    run = train.start(config, tmp_path / "run")
    seen = []
    with run.watched_by(lambda *phase: seen.append(phase)):
        report = train.step(run)
    train.step(run)
    assert [name for name, _ in seen] == list(PHASES)
    given = dict(seen)
    assert given["optimizer"] == report
    assert given["loss"].nats.item() == report.loss
    assert given["forward"].logits_BTV.shape[:2] == given["load"].targets_BT.shape


def test_a_step_equals_torchs_own_parts(config, tmp_path):
    """The same batch through torch's cross-entropy, clipping and AdamW gives the same weights."""
    run = train.start(config, tmp_path / "run")
    reference = train.new_run(config, tmp_path / "other", run.prepared)
    decoder = reference.model
    decayed = [p for n, p in decoder.named_parameters() if "w_" in n]
    free = [p for n, p in decoder.named_parameters() if "w_" not in n]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": free, "weight_decay": 0.0}],
        betas=(0.9, 0.95),
    )
    for done in range(5):
        inputs, targets = reference.batches.batch(done)
        value = torch.nn.functional.cross_entropy(decoder(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = config.schedule.learning_rate * (done + 1) / config.schedule.warmup_steps
        optimizer.step()
        report = train.step(run)
        assert report.loss == pytest.approx(value.item(), rel=1e-5)
        assert report.gradient_norm == pytest.approx(float(norm), rel=1e-4)
    for mine, theirs in zip(run.model.parameters(), decoder.parameters(), strict=True):
        # AdamW turns rounding of a tiny gradient into a step of up to lr; 5 steps of 6e-3.
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=2e-4)


def test_the_first_loss_is_that_of_guessing_and_it_falls(finished):
    first, *_ = found = losses(finished)
    assert first == pytest.approx(math.log(finished.run.config.model.vocab_size), abs=0.05)
    assert sum(found[-5:]) / 5 < first - 0.5


def test_two_runs_of_one_seed_are_the_same_bits(config, finished, tmp_path):
    again = train.fit(train.start(config, tmp_path / "again"))
    assert weights(again.run) == weights(finished.run)
    assert again.samples == finished.samples
    other = train.fit(train.start(replace(config, seed=1), tmp_path / "other"))
    assert weights(other.run) != weights(finished.run)


def stop_after(steps):
    def callback(run, _report):
        if run.steps_done == steps:
            signal.raise_signal(signal.SIGINT)

    return callback


@pytest.mark.parametrize("steps", [1, 10, 17])
def test_resuming_equals_not_stopping_bit_for_bit(steps, config, finished, tmp_path):
    folder = tmp_path / "cut"
    cut = train.fit(train.start(config, folder), on_step=stop_after(steps))
    assert cut.interrupted
    assert cut.run.steps_done == steps
    assert weights(cut.run) != weights(finished.run)
    resumed = train.fit(train.resume(folder))
    assert not resumed.interrupted
    assert weights(resumed.run) == weights(finished.run)
    assert moments(resumed.run) == moments(finished.run)
    assert resumed.samples[config.steps] == finished.samples[config.steps]
    assert losses(cut) + losses(resumed) == losses(finished)


def left_in(folder):
    """What a run leaves behind, tokens per second apart."""
    saved = checkpoint.load(checkpoint.latest(folder / "checkpoints"))
    rows = metrics(folder)
    for row in rows:
        del row["tokens_per_s"]
    return rows, runtime.fingerprint(saved.model), runtime.fingerprint(saved.generators)


@pytest.mark.parametrize("moment", ["before the save", "after the save", "after the step"])
def test_a_run_that_ends_around_a_save_repeats_nothing(moment, config, tmp_path, monkeypatch):
    """Step 4 is saved, validated and sampled: all of it belongs to the step, or none."""
    busy = config.replace(steps=8, validate_every=4, sample_every=4, checkpoint_every=2)
    train.fit(train.start(busy, tmp_path / "whole"))
    original = phases.save

    def deadly(run):
        path = None if moment == "before the save" else original(run)
        if run.steps_done == 4 and moment != "after the step":
            raise KeyboardInterrupt
        return path or original(run)

    def after_step(run, _report):
        if run.steps_done == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(phases, "save", deadly)
    with pytest.raises(KeyboardInterrupt):
        train.fit(train.start(busy, tmp_path / "cut"), on_step=after_step)
    monkeypatch.undo()
    run = train.resume(tmp_path / "cut")
    assert run.steps_done == (2 if moment == "before the save" else 4)
    train.fit(run)
    assert left_in(tmp_path / "cut") == left_in(tmp_path / "whole")


def test_the_comparison_notices_a_lost_data_position(config, finished, tmp_path):
    folder = tmp_path / "cut"
    train.fit(train.start(config, folder), on_step=stop_after(10))
    run = train.resume(folder)
    run.batches.load_state_dict(run.batches.state_dict() | {"step": 0})
    assert weights(train.fit(run).run) != weights(finished.run)


def test_metrics_have_one_line_per_step_also_after_resuming(config, tmp_path):
    folder = tmp_path / "run"
    train.fit(train.start(config, folder), on_step=stop_after(13))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 14, "loss": 1.0}\n{"step": 15, "lo')  # a crash in the middle of a line
    train.fit(train.resume(folder))
    rows = metrics(folder)
    assert [row["step"] for row in rows] == list(range(1, config.steps + 1))
    assert [row["step"] for row in rows if "validation_loss" in row] == [10, 20, 30]
    assert all(row["tokens_per_s"] > 0 for row in rows)


def test_validation_is_the_mean_over_all_its_tokens(finished):
    run = finished.run
    found = train.validate(run)
    context = run.config.model.context_length
    ids = torch.from_numpy(run.prepared.validation[: found.num_tokens + 1].astype("int64"))
    total, num_bytes = 0.0, 0
    for start in range(0, found.num_tokens, context):
        window = ids[start : min(start + context, found.num_tokens) + 1]
        with torch.no_grad():
            logits = run.model(window[None, :-1])[0].double()
        total += float(torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum"))
        num_bytes += sum(len(run.prepared.tokenizer.token_bytes(int(i))) for i in window[1:])
    assert found.nats_per_token == pytest.approx(total / found.num_tokens, rel=1e-5)
    bits = total / torch.tensor(2.0).log().item() / num_bytes
    assert found.bits_per_byte == pytest.approx(bits, rel=1e-5)
    assert found.num_tokens <= run.config.watching.validation_tokens


def test_validation_text_is_not_training_text(config):
    training, validation = (set("".join(x).split(corpus.END_OF_TEXT)) for x in train.texts(config))
    assert len(validation) > 5
    # Stories are short, so a few may be drawn twice; whole passages must not be shared.
    assert len(validation & training) < 0.2 * len(validation)


def test_a_diverging_run_stops_with_one_clear_line(config, tmp_path):
    run = train.start(config, tmp_path / "run")
    with torch.no_grad():
        run.model.embedding.fill_(float("nan"))
    with pytest.raises(train.TrainingDivergedError, match="the loss is nan"):
        train.step(run)


def test_a_folder_is_not_overwritten(config, finished):
    with pytest.raises(ValueError, match="already holds a run"):
        train.start(config, finished.run.folder)


@pytest.mark.parametrize(
    "changes",
    [{"corpus": "python"}, {"corpus_bytes": 70_000}, {"seed": 5}, {"model.vocab_size": 290}],
)
def test_tokens_of_other_settings_are_not_taken(changes, config, tmp_path):
    """As when a run was ended between its tokens and its config.json."""
    train.prepare(config, tmp_path / "run" / "data")
    model = replace(config.model, vocab_size=changes.pop("model.vocab_size", 300))
    with pytest.raises(ValueError, match=r"holds tokens made from .*choose another folder"):
        train.start(config.replace(model=model, **changes), tmp_path / "run")
    assert train.start(config, tmp_path / "run").steps_done == 0


def test_the_schedules_have_the_warm_up_that_the_docstring_of_optim_names(config):
    """1 / warmup at the first step, the peak at step warmup - 1 and at the one after it."""
    for schedule, decay, flat in (("cosine", 0, 6), ("wsd", 10, 20)):
        made = config.replace(schedule=schedule, decay_steps=decay, learning_rate=1.0)
        rates = [train.learning_rate(made, step) for step in range(31)]
        assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
        assert rates[5:flat] == [1.0] * (flat - 5)
        assert rates[flat + 1 :] == sorted(rates[flat + 1 :], reverse=True)
        assert 0.999 > rates[flat + 1] > rates[30] == pytest.approx(0.05)
    said = " ".join(optim.warmup_cosine.__doc__.split())
    assert "peak / warmup at step 0, the peak at step warmup - 1" in said


def test_the_command_line_trains_and_resumes(tmp_path, capsys):
    assert command("--preset", "tiny", "--steps", "12", "--out", tmp_path / "a") == 0
    out, err = capsys.readouterr()
    facts = ("learning_rate: 0.006", "steps: 12", "nats per token", "bits per byte", "sample")
    assert ([fact for fact in facts if fact not in out], err) == ([], "")
    assert command("--resume", tmp_path / "a", "--steps", "14") == 0
    assert "12 of 14 steps done" in capsys.readouterr().out


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: you tried")])
def test_a_lack_of_memory_is_one_line(error, monkeypatch, capsys):
    def without(*_):
        raise error

    monkeypatch.setattr(command_line, "_train", without)
    assert command_line.main([]) == 2
    assert capsys.readouterr().err.endswith("take a smaller model, batch or context\n")


def test_a_full_disk_gives_one_line_and_loses_nothing(tmp_path):
    """A file-size limit stands in for a full disk: the checkpoint cannot be written."""
    folder = tmp_path / "run"
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from llmcourse.train.__main__ import main\n"
        "from llmcourse.train import phases\n"
        "save = phases.save\n"
        "def limited(run):\n"
        "    if run.steps_done >= 20:\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "    return save(run)\n"
        "phases.save = limited\n"
        f"sys.exit(main(['--preset', 'tiny', '--out', {str(folder)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert "checkpoints" in done.stderr
    assert train.resume(folder).steps_done == 10


def test_ctrl_c_in_a_terminal_saves_and_exits_cleanly(tmp_path):
    folder = tmp_path / "run"
    words = ["--preset", "tiny", "--steps", "100000", "--validate_every", "0", "--out", folder]
    with started([*TRAIN, *map(str, words)], folder, steps=4) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert "interrupted after step" in out
    saved = train.resume(folder).steps_done
    assert f"after step {saved};" in out
    assert saved >= 4


@pytest.mark.parametrize("asks", [True, False])
def test_fit_listens_to_ctrl_c_unless_somebody_else_is_asked(asks, config, tmp_path):
    """On ranks the parent listens: a second Ctrl-C must not be heard by each of them."""
    short = config.replace(steps=2, warmup_steps=1)
    before, seen = signal.getsignal(signal.SIGINT), []
    train.fit(
        train.start(short, tmp_path / "run"),
        on_step=lambda *_: seen.append(signal.getsignal(signal.SIGINT) == before),
        interrupted=(lambda: False) if asks else None,
    )
    assert seen == [asks] * 2
    assert signal.getsignal(signal.SIGINT) == before


def test_every_field_is_documented():
    settings = settings_of(train.TrainConfig)
    assert len(settings) > 40
    assert [name for name, setting in settings.items() if not setting.help] == []


def test_bf16_products_change_little_and_resume_bit_for_bit(config, finished, tmp_path):
    narrow = replace(config, precision="bf16")
    whole = train.fit(train.start(narrow, tmp_path / "whole"))
    narrow_losses, wide = losses(whole), losses(finished)
    assert narrow_losses != wide
    assert narrow_losses == pytest.approx(wide, abs=0.02)
    assert all(p.dtype == torch.float32 for p in whole.run.model.parameters())
    part = train.start(narrow, tmp_path / "part")
    while part.steps_done < 20:
        phases.step(part)
    assert losses(train.fit(train.resume(tmp_path / "part")))[-1] == narrow_losses[-1]


FILES_OF_A_STEP, READS = 12, 2
ENTERED = """
import sys
from llmcourse import train
run = train.start(train.PRESETS["tiny"](), sys.argv[1])
for _ in range(3):
    train.step(run)
files = set()
sys.setprofile(lambda frame, *_: files.add(frame.f_code.co_filename))
train.step(run)
sys.setprofile(None)
print(*sorted(path for path in files if "/llmcourse/" in path), sep="\\n")
"""


def test_a_step_stays_in_a_dozen_files(tmp_path):
    """Of data, model, loss, optimizer and the phases themselves; counted at the fourth step."""
    words = [sys.executable, "-c", ENTERED, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    files = [path.partition("/llmcourse/")[2] for path in done.stdout.split()]
    assert "train/phases.py" in files
    assert "model/decoder.py" in files
    assert len(files) <= FILES_OF_A_STEP, files


def test_a_step_reads_from_the_device_twice(config, tmp_path):
    """The norm, to clip, and the loss, when the weights have changed; each waits for the device."""
    run = train.start(config, tmp_path / "run")
    train.step(run)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        train.step(run)
    assert {e.key: e.count for e in seen.key_averages()}["aten::_local_scalar_dense"] == READS
