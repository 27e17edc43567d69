"""tune --stage sft: first weights, conversations, the mask, replay, LoRA, resumed exactly."""

import json
from dataclasses import replace

import pytest
import torch

from llmcourse import checkpoint, loss, train
from llmcourse.base import runtime
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.train import phases
from llmcourse.train.sampling import load
from llmcourse_labs.tuning import fine_tuning, sft_config, tune
from llmcourse_labs.tuning.chat_format import CHAT_TOKENS, answer_mask
from llmcourse_labs.tuning.lora import merged
from llmcourse_labs.tuning.tasks import make_tasks
from llmcourse_labs.tuning.tune_config import TuneConfig

TINY = train.PRESETS["tiny"]()
BASE = TINY.replace(model=replace(TINY.model, context_length=192), steps=4, warmup_steps=1)
QUICK = {"examples": 80, "steps": 4, "batch_size": 2, "warmup_steps": 1, "checkpoint_every": 2}
QUICK |= {"sample_tokens": 8, "validation_tokens": 600, "validate_every": 0}
FROM_X = {"model": TINY.model, "start": "x"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "run"
    train.fit(train.start(BASE, folder))
    return folder


@pytest.fixture
def begun(base, tmp_path):

    def start(name="run", **given):
        return train.start(sft_config(base, **QUICK | given), tmp_path / name)

    return start


def test_the_run_begins_with_the_weights_it_starts_from(base, begun):
    run = begun()
    before, old = checkpoint.load(checkpoint.latest(base / "checkpoints")).model, TINY.model
    after = run.model.state_dict()
    for name in before.keys() - {"embedding"}:
        assert torch.equal(before[name], after[name])
    assert torch.equal(after["embedding"][: old.vocab_size], before["embedding"])
    new = after["embedding"][old.vocab_size :]
    assert len(new) == len(CHAT_TOKENS)
    torch.testing.assert_close(new, before["embedding"].mean(0).expand_as(new))


@pytest.mark.parametrize(
    "settings", [{}, {"lora_rank": 2}, {"replay": 0.3}], ids=["full", "lora", "replay"]
)
def test_a_resumed_run_is_the_uninterrupted_one(begun, tmp_path, settings):
    whole = train.fit(begun("whole", **settings)).run
    seen = []
    halves = begun("halves", **settings)
    train.fit(halves, interrupted=lambda: halves.steps_done == 2)
    resumed = train.resume(tmp_path / "halves")
    assert resumed.steps_done == 2
    result = train.fit(resumed, on_step=lambda run, report: seen.append(report.step))
    assert seen == [3, 4]
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, result.run.model.state_dict()[name]), name
    lines = [(tmp_path / n / "metrics.jsonl").read_text().splitlines() for n in ("whole", "halves")]
    rows = [[{**json.loads(x), "tokens_per_s": 0} for x in part] for part in lines]
    assert rows[0] == rows[1]


def test_a_run_with_a_checkpoint_does_without_its_start(base, tmp_path):
    moved = tmp_path / "start"
    train.fit(train.start(BASE, moved))
    train.fit(train.start(sft_config(moved, **QUICK), tmp_path / "run"))
    moved.rename(tmp_path / "elsewhere")
    assert train.resume(tmp_path / "run").steps_done == 4
    load(tmp_path / "run")


def test_the_loss_counts_what_the_assistant_says(begun):
    run = begun()
    batch, tokenizer = phases.load(run), run.prepared.tokenizer
    counted = batch.targets_BT != loss.IGNORE_INDEX
    said = {task.answer for task in make_tasks(80, seed=0)}
    for ids, marks, documents in zip(batch.targets_BT, counted, batch.documents_BT, strict=True):
        for number in set(documents.tolist()) - {-1}:
            text = tokenizer.decode(ids[marks & (documents == number)].tolist())
            assert text.endswith("<|end|>")
            assert text.removesuffix("<|end|>") in said


def test_every_token_counts_on_request(begun):
    batch = phases.load(begun(learn_all=True))
    before, after = batch.documents_BT[:, :-1], batch.documents_BT[:, 1:]
    counted = batch.targets_BT[:, :-1] != loss.IGNORE_INDEX
    assert torch.equal(counted, (before == after) & (after >= 0))


def test_replay_is_text_of_the_first_run_and_all_of_it_counts(base, begun):
    run = begun(replay=0.3)
    tokens, specials = run.prepared.training, run.prepared.tokenizer.special_tokens
    text = run.prepared.tokenizer.decode(tokens[: len(tokens)].tolist())
    documents = text.split(END_OF_TEXT)[:-1]
    talk = [d for d in documents if d.startswith("<|user|>")]
    stories = [d for d in documents if not d.startswith("<|user|>")]
    assert len(talk) == QUICK["examples"]
    original = Tokenizer.load(base / "data" / "tokenizer")
    known = train.prepare(BASE, base / "data").training
    whole = original.decode(known[: len(known)].tolist())
    assert stories
    assert all(story in whole for story in stories)
    num = sum(len(original.encode(story)) + 1 for story in stories)
    assert num / len(tokens) == pytest.approx(0.3, abs=0.03)
    story = torch.tensor([run.prepared.tokenizer.encode(stories[0])])
    assert answer_mask(story, specials).all()


def test_lora_leaves_all_but_thin_matrices_and_chat_rows(begun, tmp_path):
    run = begun(lora_rank=2)
    before = {name: w.clone() for name, w in merged(run.model.state_dict()).items()}
    stays = {name: w.clone() for name, w in run.model.state_dict().items()}
    train.fit(run)
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weight, stays[name]) != name.endswith((".a", ".b", "rows_ND")), name
    after, num_old = merged(run.model.state_dict()), TINY.model.vocab_size
    assert torch.equal(after["embedding"][:num_old], before["embedding"][:num_old])
    assert not torch.equal(after["embedding"][num_old:], before["embedding"][num_old:])
    assert not torch.equal(after["blocks.0.attention.w_q"], before["blocks.0.attention.w_q"])
    ids = torch.arange(20)[None]
    model, _ = load(tmp_path / "run")
    torch.testing.assert_close(model(ids), run.model.eval()(ids), rtol=0, atol=1e-6)
    state = run.optimizer.state_dict()["state"]
    num_learnt = sum(p.numel() for p in run.model.parameters() if p.requires_grad)
    assert sum(s["mean"].numel() for s in state.values()) == num_learnt


def test_validation_has_the_answers_and_what_is_kept(base, begun):
    run = begun()
    found = train.validate(run)
    assert found.by_source.keys() == {fine_tuning.KEPT}
    kept = run.prepared.kept
    first_run = train.resume(base)
    first_run.config = first_run.config.replace(validation_tokens=600, order="packed")
    grown = found.by_source[fine_tuning.KEPT] - train.validate(first_run).nats_per_token
    assert 0 < grown < 0.03  # four tokens more to choose from
    assert len(kept) == len(first_run.prepared.validation)
    run.config = run.config.replace(learn_all=True)
    assert train.validate(run) == found


def test_the_same_start_again_adds_no_tokens(base, tmp_path):
    train.fit(train.start(sft_config(base, **QUICK), tmp_path / "once"))
    config = sft_config(tmp_path / "once", **QUICK)
    assert config.model.vocab_size == TINY.model.vocab_size + len(CHAT_TOKENS)
    again = train.start(config, tmp_path / "twice")
    before = load(tmp_path / "once")[0].state_dict()
    assert all(torch.equal(w, before[name]) for name, w in again.model.state_dict().items())


def test_the_seed_decides_the_tasks(begun):
    one, other = (begun(str(n), seed=n).prepared.training[:200].tolist() for n in (0, 1))
    assert one != other


def too_short(folder):
    short = BASE.replace(model=replace(BASE.model, context_length=24), steps=1, warmup_steps=0)
    train.fit(train.start(short, folder / "base"))
    train.start(sft_config(folder / "base", **QUICK), folder / "run")


REFUSED = {
    "stage = sft needs start": lambda *_: TuneConfig(model=TINY.model, start=""),
    r"choose from tasks, file$": lambda *_: TuneConfig.of(**FROM_X, corpus="stories"),
    r"choose from packed$": lambda *_: TuneConfig.of(**FROM_X, order="shuffled"),
    "examples must be 1 or greater": lambda begun, _: begun(examples=0),
    "replay must be below 1": lambda begun, _: begun(replay=1.0),
    r"replay = 0.9 asks for [\d,]+ tokens of .* which has": lambda begun, _: begun(replay=0.9),
    "lora_rank must be 0 or greater": lambda begun, _: begun(lora_rank=-1),
    "lora_rank for attention.w_k must be at most 16, got 17": lambda begun, _: begun(lora_rank=17),
    "in one process, got 2 ranks": lambda begun, _: begun(ranks=2),
    r"a conversation of \d+ tokens does not fit .* of 24": lambda _, folder: too_short(folder),
}


@pytest.mark.parametrize("fact", REFUSED)
def test_what_cannot_be_is_refused(fact, begun, tmp_path):
    with pytest.raises(ValueError, match=fact):
        REFUSED[fact](begun, tmp_path)


class TestCommand:
    def run(self, *flags):
        return tune.main([*map(str, flags)])

    def test_from_start_to_checkpoint(self, base, tmp_path, capsys):
        flags = [f"--{name}={value}" for name, value in QUICK.items()]
        out = tmp_path / "run"
        whole = ["--stage", "sft", "--start", base, "--data", "tasks", "--out", out, *flags]
        assert self.run(*whole, "--replay", "0.2", "--lora_rank", "2") == 0
        said = capsys.readouterr().out
        assert all(told in said for told in ("stage: sft", "replay: 0.2", "kept"))
        assert train.resume(out).config.text.replay == 0.2

    @pytest.mark.parametrize(
        ("said", "flags"),
        [
            ("give --start, the folder of a run, or --model", ["--data", "tasks"]),
            ("or --model", ["--start", "BASE", "--model.width", "32"]),
            ("--preset", ["--start", "BASE", "--preset", "tiny"]),
            ("--ranks", ["--start", "BASE", "--ranks", "2"]),
            ("--data FILE.jsonl needs --model", ["--start", "BASE", "--data", "stories"]),
            ("give --model, such as smollm2", ["--start", "BASE", "--stage", "dpo"]),
            ("give --model, such as smollm2", ["--start", "BASE", "--stage", "grpo"]),
            ("holds no run", ["--start", "NOTHING"]),
        ],
    )
    def test_bad_input(self, base, tmp_path, capsys, said, flags):
        places = {"BASE": base, "NOTHING": tmp_path / "nothing"}
        flags = [places.get(flag, flag) for flag in flags]
        assert self.run("--stage", "sft", "--out", tmp_path / "run", *flags) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_grown_rows_are_means_of_what_was_learnt():
    w = torch.randn(5, 3, generator=runtime.generator(0))
    rows = fine_tuning.with_new_rows(w, 7, known=[0, 1, 2], new=[4, 5])
    torch.testing.assert_close(rows[[4, 5, 6]], w[:3].mean(0).expand(3, 3))
    assert torch.equal(rows[:4], w[:4])
