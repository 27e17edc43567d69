"""train: what cannot be is said by the command in one line, before a step is taken."""

import pytest

from tests.train.runs import WORDS, refused

TINY = ["--preset", "tiny", "--out", "x"]
LASTING = ["--preset", "tiny", "--warmup_steps", "2", "--sample_tokens", "5", "--out", "x"]
YARN = [*TINY, "--model.rope_scaling.kind", "yarn", "--model.rope_scaling.original_length", "16"]
BATCHED = [*WORDS, "--out", "x"]

REFUSED = [
    # the flags themselves
    (["--preset", "huge", "--out", "x"], "unknown preset 'huge': choose from"),
    (["--preset", "tiny"], "--out is missing"),
    ([*TINY, "--steps", "-3"], "steps must be 1 or"),
    ([*TINY, "--steps", "many"], "steps"),
    ([*TINY, "--corpus", "web"], "corpus"),
    ([*TINY, "--stepz", "3"], "stepz"),
    (["--resume", "nowhere"], "nowhere holds no run to go on with"),
    (["--resume", "x", "--batch_size", "3"], "leave out --batch_size"),
    (["--preset", "llama3_405b", "--out", "x"], "this machine has"),
    ([*TINY, "--steps", "9" * 31], "steps must be at most"),
    ([*TINY, "--num_threads", "100000"], "most 512"),
    ([*TINY, "--model.context_length", "9" * 31], "context_length must be at most"),
    ([*TINY, "--steps", "a" * 5_000], " ... aaa"),
    ([*TINY, "--device", "warp"], "device"),
    ([*TINY, "--without", "head"], "feed_forward"),
    ([*TINY, "--learning_rate", "-1"], "learning_rate must be above 0"),
    ([*TINY, "--beta2", "1"], "beta2 must be below 1, got 1.0"),
    ([*TINY, "--final_share", "2"], "final_share must be at most 1"),
    ([*TINY, "--warmup_steps", "31"], "decay_steps must be at most steps = 30, got 31 "),
    ([*TINY, "--decay_steps", "5"], "decay_steps = 5 has no effect with the cosine schedule"),
    ([*TINY, "--schedule", "wsd", "--decay_steps", "26"], "must be at most steps = 30"),
    ([*TINY, "--seed", "-1"], "seed must be 0 or greater"),
    ([*TINY, "--model.rope_scaling.kind", "longrope"], "Expected a typing.Literal['linear', 'ntk'"),
    ([*TINY, "--model.rope_scaling.kind", "linear"], "factor"),
    ([*YARN, "--model.rope_scaling.factor", "0.5"], "factor must be 1 or greater, got 0.5"),
    # optimizers
    ([*TINY, "--optimizer", "muon", "--ranks", "2", "--parallel", "zero1"], "reads whole matrices"),
    ([*TINY, "--optimizer", "adafactor", "--mesh", "dp=2"], "reads whole matrices"),
    ([*TINY, "--optimizer", "lion", "--engine", "torch"], "has adamw alone"),
    ([*TINY, "--optimizer", "nonsense"], "optimizer"),
    ([*TINY, "--optimizer", "lion", "--momentum", "0.8"], "no effect without optimizer = muon"),
    ([*TINY, "--optimizer", "muon", "--momentum", "1"], "momentum must be below 1"),
    ([*TINY, "--optimizer", "adafactor", "--beta1", "0.8"], "without optimizer = lion or optimi"),
    # epochs, dropout and patience
    ([*LASTING, "--epochs", "2", "--steps", "9"], "--epochs and --steps both say how long"),
    ([*LASTING, "--epochs", "-1"], "epochs must be 0 or greater"),
    ([*LASTING, "--epochs", "nan"], "Got value: nan"),
    ([*LASTING, "--epochs", "0.0001"], "are less than one step of 8"),
    ([*LASTING, "--epochs", "0.5", "--corpus_bytes", "900"], "must be at most steps = 1"),
    ([*LASTING, "--epochs", "1e300"], "steps must be at most"),
    ([*LASTING, "--epochs", "2", "--batch_size", "90000"], "too few for a global batch"),
    ([*LASTING, "--dropout", "1"], "dropout must be below 1"),
    ([*LASTING, "--dropout", "-0.1"], "dropout must be 0 or greater"),
    ([*LASTING, "--dropout", "0.1", "--mesh", "dp=2"], "is for a run without a mesh"),
    ([*LASTING, "--dropout", "0.1", "--without", "residual"], "no effect without residual"),
    ([*LASTING, "--patience", "2", "--validate_every", "0"], "no effect without validations"),
    ([*LASTING, "--patience", "-2"], "patience must be 0 or greater"),
    # micro-batches and ramps
    ([*BATCHED, "--accumulate", "0"], "accumulate must be 1 or greater"),
    ([*BATCHED, "--accumulate", "3"], "8 sequences of a rank cannot be cut into 3 equal"),
    ([*BATCHED, "--accumulate", "8", "--ranks", "2"], "4 sequences of a rank cannot be cut into 8"),
    ([*BATCHED, "--accumulate", "2", "--mesh", "dp=2"], "takes its micro-batches from micro_batch"),
    ([*BATCHED, "--batch_ramp", "0:8,3:4"], "goes up in steps and in sequences"),
    ([*BATCHED, "--batch_ramp", "0:8,6:16"], "changes at step 6, the run ends after 6"),
    ([*BATCHED, "--batch_ramp", "2:8"], "begins at step 0, not at 2"),
    ([*BATCHED, "--batch_ramp", "0:8,x:16"], "'x:16' is no stage"),
    ([*BATCHED, "--batch_ramp", "0:4", "--batch_size", "8"], "with 4 sequences, batch_size is 8"),
    ([*BATCHED, "--batch_ramp", "0:4,2:6", "--ranks", "4"], "batch_ramp = 6 sequences cannot be"),
    ([*BATCHED, "--batch_ramp", "0:4,2:6", "--accumulate", "4"], "6 sequences of a rank cannot"),
    ([*BATCHED, "--batch_ramp", "0:4,2:8", "--mesh", "dp=2"], "with mesh every step has batch_"),
    ([*BATCHED, "--batch_ramp", "0:4,2:90000"], "too few for a global batch of 90000"),
    # packed rows
    ([*TINY, "--order", "packed", "--mesh", "dp=2,cp=2"], "cp cuts rows where no document ends"),
    ([*TINY, "--order", "packed", "--engine", "torch"], "order = packed is for engine = own"),
]


@pytest.mark.parametrize(("words", "fact"), REFUSED)
def test_what_cannot_be_done_is_said_in_a_line(words, fact, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    line = refused(capfd, *words)
    assert fact in line
    assert len(line) < 1_200
    assert list(tmp_path.iterdir()) == []
