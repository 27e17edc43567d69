"""train --mix: several prepared sources in exact shares, annealed, resumed, on one rank or two."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from llmcourse import train
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.data.mixture import MixedBatches
from llmcourse.data.settings import OneSource
from llmcourse_labs.curation import prepare_text
from llmcourse_labs.export import folder as exporting
from tests.train.runs import TINY, command, metrics, refused, weights
from tests.train.runs import WORDS as SHORT_WORDS

MIX, ANNEAL = "stories=0.5,sums=0.3,letters=0.2", "4:sums=0.25,letters=0.75"
WORDS = [*SHORT_WORDS, "--batch_size", "10"]


def sums(count):
    return END_OF_TEXT.join(f"{n} and {n + 1} are {2 * n + 1}. " * 4 for n in range(count))


def letters(count):
    texts = (" ".join("abcdefgh"[n % 8] * 3 for n in range(k, k + 30)) for k in range(count))
    return END_OF_TEXT.join(texts)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    texts = {"stories": stories(40_000, seed=1), "sums": sums(200), "letters": letters(90)}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
        how = {"vocab_size": 290}
        if name != "stories":
            how = {"tokenizer": folder / "stories" / "tokenizer"}
        prepare_text([folder / f"{name}.txt"], folder / name, **how)
    return folder


@pytest.fixture(scope="module")
def config(data):
    return TINY.replace(
        corpus="prepared",
        data=str(data),
        mix=MIX,
        anneal=ANNEAL,
        model=replace(TINY.model, vocab_size=290),
        steps=8,
        batch_size=10,
        warmup_steps=2,
        validate_every=4,
        validation_tokens=600,
        checkpoint_every=3,
        sample_tokens=5,
    )


def sources_of(run, steps):
    """Tell from the tokens themselves which source each window of each step is from."""
    known = {}
    for name, source in run.prepared.sources.items():
        tokens, length = source.training[:], run.config.model.context_length
        for start in range(0, len(tokens) - length, length):
            known.setdefault(tokens[start : start + length].tobytes(), name)
    dtype = run.prepared.sources["stories"].training[:1].dtype
    return [
        Counter(known[row.numpy().astype(dtype).tobytes()] for row in run.batches.batch(step)[0])
        for step in range(steps)
    ]


def test_every_step_has_its_shares_and_the_annealed_ones_later(config, tmp_path):
    found = sources_of(train.start(config, tmp_path / "run"), 8)
    assert all(found[step] == {"stories": 5, "sums": 3, "letters": 2} for step in range(4))
    assert sum(found[4:], Counter()) == {"sums": 10, "letters": 30}


def test_validation_is_of_each_source_and_their_mean_by_the_first_shares(config, tmp_path):
    run = train.start(config, tmp_path / "run")
    last = train.fit(run).validations[8]
    assert set(last.by_source) == {"stories", "sums", "letters"}
    shares = {"stories": 0.5, "sums": 0.3, "letters": 0.2}
    mean = sum(share * last.by_source[name] for name, share in shares.items())
    assert last.nats_per_token == pytest.approx(mean, rel=1e-12)

    # Restated for one source: the mean over its first 200 held-out tokens.
    held_out = run.prepared.sources["sums"].validation[:201].astype("int64")
    bytes_of, length = run.prepared.bytes_per_id, run.config.model.context_length
    lengths = nats = 0.0
    for start in range(0, 200, length):
        row = torch.from_numpy(held_out[start : min(start + length, 200) + 1])[None]
        with torch.no_grad():
            logits = run.model(row[:, :-1]).double()
        nats += torch.nn.functional.cross_entropy(logits[0], row[0, 1:], reduction="sum").item()
    assert last.by_source["sums"] == pytest.approx(nats / 200, rel=1e-5)
    for name, share in shares.items():
        targets = run.prepared.sources[name].validation[1:201]
        lengths += share * bytes_of[targets].mean()
    assert last.bits_per_byte == pytest.approx(mean / lengths / math.log(2), rel=1e-9)
    assert metrics(tmp_path / "run")[-1]["validation_loss_letters"] == last.by_source["letters"]


def test_a_run_that_stopped_goes_on_to_the_same_bits_across_the_change(config, tmp_path):
    whole = train.start(config, tmp_path / "whole")
    train.fit(whole)
    run = train.start(config, tmp_path / "run")
    assert train.fit(run, interrupted=lambda: run.steps_done == 3).interrupted
    resumed = train.resume(tmp_path / "run")
    assert resumed.steps_done == 3
    train.fit(resumed)
    assert weights(whole) == weights(resumed)


def test_two_ranks_read_what_one_reads(config, tmp_path):
    run = train.start(config, tmp_path / "run")
    settings = {"batch_size": 5, "context_length": config.model.context_length, "world_size": 2}
    training = {name: source.training for name, source in run.prepared.sources.items()}
    shares = [MixedBatches(training, config.text.stages, rank=r, **settings) for r in range(2)]
    for step in (0, 3, 4, 7):
        inputs, targets = run.batches.batch(step)
        halves = [share.batch(step) for share in shares]
        assert torch.equal(inputs, torch.cat([half[0] for half in halves]))
        assert torch.equal(targets, torch.cat([half[1] for half in halves]))


@pytest.mark.parametrize("extra", [[], ["--ranks", "2"], ["--mesh", "dp=2"]])
def test_the_command_mixes_on_ranks_and_on_a_mesh(data, tmp_path, capfd, extra):
    words = [*WORDS, "--data", data, "--mix", MIX, "--anneal", "3:letters=1"]
    assert command(*words, *extra, "--out", tmp_path / "run") == 0
    assert "epochs: stories" in capfd.readouterr().out or extra
    rows = metrics(tmp_path / "run")
    assert len(rows) == 6
    assert {"validation_loss_stories", "validation_loss_sums"} <= rows[-1].keys()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mix", "stories=0.5,sums=0.6"], "the shares add to 1.1, not to 1"),
        (["--mix", "stories=0.5"], "the shares add to 0.5, not to 1"),
        (["--mix", "stories=0.9999,sums=0.0001"], "give thousandths"),
        (["--mix", "stories=nan,sums=0.5"], "the share of stories is nan"),
        (["--mix", "stories"], "'stories' is no share"),
        (["--mix", "stories=0.5,stories=0.5"], "stories stands twice"),
        (["--mix", "stories=0.5,../sums=0.5"], "a source is the name of a folder"),
        (["--mix", "stories=0.5,poems=0.5"], "has no source 'poems': there is letters, stories"),
        (["--mix", "stories=1", "--anneal", "6:sums=1"], "anneal begins must be below 6, got 6"),
        (["--mix", "stories=1", "--anneal", "sums=1"], "must begin with a step and a colon"),
        (["--mix", "stories=1", "--anneal", "2:sums=0.7"], "the shares add to 0.7"),
        (["--mix", "stories=1", "--order", "random"], "order = random is not for a mixture"),
    ],
)
def test_what_cannot_be_mixed_is_said_in_a_line(data, tmp_path, capfd, words, said):
    assert said in refused(capfd, *WORDS, "--data", data, *words, "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_mixture_needs_prepared_text_one_tokenizer_and_tokens(config, data, tmp_path, capfd):
    with pytest.raises(ValueError, match="no effect without corpus = prepared"):
        config.replace(corpus="stories", mix=MIX)
    with pytest.raises(ValueError, match="has no effect without mix"):
        config.replace(mix="", anneal=ANNEAL)
    assert config.replace(mix="").text == OneSource(data=str(data))
    (tmp_path / "other.txt").write_text(sums(100))
    other = tmp_path / "sources"
    prepare_text([tmp_path / "other.txt"], other / "sums", vocab_size=270)
    (tmp_path / "few.txt").write_text(END_OF_TEXT.join(["one two", "three four", "five"] * 2))
    (other / "stories").symlink_to(data / "stories")
    words = [*WORDS, "--data", other, "--mix", "stories=0.5,sums=0.5", "--out", tmp_path / "run"]
    line = refused(capfd, *words)
    assert "has another tokenizer than" in line
    assert "prepare it again with --tokenizer" in line
    prepare_text([tmp_path / "few.txt"], other / "few", tokenizer=data / "stories" / "tokenizer")
    words = [*WORDS, "--data", other, "--mix", "stories=0.5,few=0.5", "--out", tmp_path / "run2"]
    assert "few has" in refused(capfd, *words)


def test_a_run_goes_on_with_its_own_sources_alone(config, data, tmp_path):
    train.fit(train.start(config, tmp_path / "run"))
    (tmp_path / "moved").symlink_to(data)
    assert train.resume(tmp_path / "run", steps=9, data=str(tmp_path / "moved")).steps_done == 8
    changed = tmp_path / "changed"
    for name in ("stories", "letters"):
        (changed / name).parent.mkdir(exist_ok=True)
        (changed / name).symlink_to(data / name)
    (tmp_path / "sums.txt").write_text(sums(210))
    how = {"tokenizer": data / "stories" / "tokenizer"}
    prepare_text([tmp_path / "sums.txt"], changed / "sums", **how)
    with pytest.raises(ValueError, match="holds other tokens than the run"):
        train.resume(tmp_path / "run", steps=9, data=str(changed))


def test_the_card_counts_all_sources(config, tmp_path):
    run = train.start(config, tmp_path / "run")
    train.fit(run)
    exporting.export(tmp_path / "run", tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    total = sum(len(source.training) for source in run.prepared.sources.values())
    assert f"{total:,}" in card
