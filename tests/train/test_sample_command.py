"""llmcourse sample: what is streamed is what `generate` writes, and bad input is one line.

A run is one of the preset tiny, of a few steps: about a second each; a process takes 3 seconds.
"""

import json
import shutil
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from llmcourse import train
from llmcourse.base import runtime
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import generate
from llmcourse.train import sampling
from tests import warm
from tests.train.runs import SHORT

TINY = SHORT.replace(steps=4, checkpoint_every=2, sample_tokens=30)
EXPERTS = replace(TINY.model, num_experts=3, experts_per_token=1, capacity_factor=0.4)
"""A model that drops tokens while it is trained, and only then."""


def trained(folder, **settings):
    train.fit(train.start(TINY.replace(**settings), folder))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "a")


@pytest.fixture(scope="module")
def loaded(folder):
    return sampling.load(folder)


def said(capfd, *words):
    assert sampling.main([str(word) for word in words]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("llmcourse sample: ")
    return line.removeprefix("llmcourse sample: ")


def written(capfd, *words):
    assert sampling.main([str(word) for word in words]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    return printed.out


@pytest.mark.parametrize(
    ("flags", "how"),
    [
        ([], {"temperature": 0.8}),
        (["--temperature", "0"], {"temperature": 0}),
        (["--seed", "7", "--top-k", "9"], {"temperature": 0.8, "top_k": 9}),
        (["--seed", "7", "--top_p", "0.6"], {"temperature": 0.8, "top_p": 0.6}),
        (["--seed", "7", "--temperature", "1.5"], {"temperature": 1.5}),
    ],
)
def test_the_text_is_that_of_generate(folder, loaded, capfd, flags, how):
    model, tokenizer = loaded
    end = tokenizer.special_tokens[END_OF_TEXT]
    rows = generate(
        model,
        torch.tensor([tokenizer.encode(f"{END_OF_TEXT}One day")]),
        max_new_tokens=80,
        generator=runtime.generator(7 if "--seed" in flags else 0),
        stop_id=end,
        **how,
    )
    expected = tokenizer.decode(rows[0, 1:].tolist()).removesuffix(END_OF_TEXT)
    words = ["--run", folder, "--prompt", "One day", "--tokens", 80, *flags]
    assert written(capfd, *words) == f"{expected}\n"


@pytest.mark.parametrize(
    "settings",
    [{"seed": 3}, {"without": "norm"}, {"model": EXPERTS, "learning_rate": 0.1}],
    ids=lambda settings: next(iter(settings)),
)
def test_the_run_writes_as_it_does_while_it_is_trained(settings, tmp_path, capfd):
    run = train.resume(trained(tmp_path / "run", **settings))
    run.generators["sample"] = runtime.generator(5)
    prompt = "One day the cat sat on the mat."
    expected = train.sample(run, prompt)
    capfd.readouterr()
    words = ["--run", run.folder, "--tokens", TINY.watching.sample_tokens, "--seed", 5]
    assert written(capfd, *words, "--prompt", prompt).strip() == expected


def test_a_text_ends_where_the_model_ends_it(loaded):
    model, tokenizer = loaded
    end = tokenizer.special_tokens[END_OF_TEXT]
    prompt = torch.tensor([[end, *tokenizer.encode("A")]])

    def how(seed):
        return {"max_new_tokens": 40, "temperature": 1.0, "generator": runtime.generator(seed)}

    for seed in range(200):
        row = generate(model, prompt, stop_id=end, **how(seed))[0].tolist()
        if row[-1] == end:
            break
    assert len(row) < 40, "no text ended, nothing was tested"
    pieces = []
    sampling.stream(model, tokenizer, "A", pieces.append, **how(seed))
    assert "".join(pieces) == tokenizer.decode(row[2:-1])


def test_several_prompts_are_texts_of_their_own_from_one_seed(folder, capfd):
    words = ["--run", folder, "--tokens", 20, "--seed", 2]
    first, second = "The cat", "Ünd 🙂"
    both = written(capfd, *words, "--prompt", first, second)
    alone = written(capfd, *words, "--prompt", first)
    assert both.startswith(alone + f"\n{second}")
    twice = written(capfd, *words, "--prompt", first, first)
    assert twice.startswith(alone + f"\n{first}")
    assert twice != f"{alone}\n{alone}"  # the draws go on


def test_every_token_is_written_before_the_next_is_computed(loaded):
    model, tokenizer = loaded
    events = []
    handle = model.register_forward_hook(lambda *_: events.append("computed"))
    how = {"generator": runtime.generator(1), "temperature": 0}
    sampling.stream(model, tokenizer, "A", lambda _: events.append("text"), max_new_tokens=9, **how)
    handle.remove()
    assert events == ["computed", "text"] * 9 + ["text"]  # at last what is left of a token


@pytest.fixture
def streamed(monkeypatch, loaded):
    """A function that returns the pieces that are written when the model draws some ids."""
    tokenizer = Tokenizer.from_merges([], special_tokens=[END_OF_TEXT])

    def stream(ids):
        def scripted(_model, _prompts, *, on_token, stop_id):
            for i in [*ids, *stop_id]:
                on_token(torch.tensor([[i]]))

        monkeypatch.setattr(sampling, "generate", scripted)
        pieces = []
        sampling.stream(loaded[0], tokenizer, "x", pieces.append)
        return pieces

    stream.tokenizer = tokenizer
    return stream


def test_a_character_appears_when_its_last_byte_is_there_or_as_it_decodes(streamed):
    assert streamed(streamed.tokenizer.encode("né🙂!")) == ["n", "", "é", "", "", "", "🙂", "!", ""]
    assert streamed(streamed.tokenizer.encode("é")[:1]) == ["", "\ufffd"]  # cut short
    draw = np.random.default_rng(0)
    for _ in range(300):
        ids = draw.integers(0, 256, size=12).tolist()
        assert "".join(streamed(ids)) == streamed.tokenizer.decode(ids)
    padded = [5, 900, 6]  # 900 is no token, and writes nothing
    assert "".join(streamed(padded)) == streamed.tokenizer.decode([5, 6])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--temperature", "-1", "--prompt", "a"], "temperature must be 0 or greater, got -1.0"),
        (["--temperature", "nan"], "nan"),
        (["--top_k", "0"], "top_k must be 1 or greater, got 0"),
        (["--top_k", "many"], "many"),
        (["--top_p", "0"], "top_p must be above 0, got 0.0"),
        (["--top-p", "1.5"], "top_p must be at most 1, got 1.5"),
        (["--tokens", "0"], "tokens must be 1 or greater, got 0"),
        (["--seed", "-1"], "seed must be 0 or greater, got -1"),
        (["--seed", "1" + "0" * 30], "seed must be below"),
        (["--prompt", ""], "the prompt is empty: leave out --prompt"),
        (["--prompt", "a", ""], "the prompt is empty: leave out --prompt"),
        (["--prompt"], "expected at least one argument"),
        (["--prompt", "a\udcff"], "a prompt holds bytes that are no UTF-8"),
        (["--device", "cuda"], "--device"),
    ],
)
def test_bad_input_is_one_line(folder, capfd, flags, says):
    assert says in said(capfd, "--run", folder, *flags)


def test_a_run_must_be_named_and_be_there(tmp_path, capfd):
    assert "run" in said(capfd)
    assert "nix holds no run to go on with: start one" in said(capfd, "--run", tmp_path / "nix")
    (tmp_path / "letter").write_text("Dear run,")
    assert "letter holds no run" in said(capfd, "--run", tmp_path / "letter")
    train.start(TINY, tmp_path / "new")
    assert "new holds no checkpoint yet" in said(capfd, "--run", tmp_path / "new")


def test_tokens_without_a_tokenizer_are_no_text(tmp_path, capfd):
    (tmp_path / "bin").mkdir()
    for name in ("train.bin", "val.bin"):
        (np.arange(2_000) % TINY.model.vocab_size).astype(np.uint16).tofile(tmp_path / "bin" / name)
    trained(tmp_path / "run", corpus="bin", bin_folder=str(tmp_path / "bin"))
    capfd.readouterr()
    line = said(capfd, "--run", tmp_path / "run")
    assert "came without a tokenizer: it cannot write text" in line


def test_what_is_damaged_or_of_another_run_is_refused(folder, tmp_path, capfd, caplog):
    run = shutil.copytree(folder, tmp_path / "run")
    merges = [(bytes([a]), bytes([b])) for a in range(97, 120) for b in range(97, 120)]
    Tokenizer.from_merges(merges, special_tokens=[END_OF_TEXT]).save(run / "data" / "tokenizer")
    assert "it is the tokenizer of another run" in said(capfd, "--run", run)
    (run / "data" / "tokenizer" / "merges.txt").write_text("#version: 0.2\n")
    assert "is broken" in said(capfd, "--run", run)
    settings = json.loads((run / "config.json").read_text())
    settings["model"]["width"] += 4
    (run / "config.json").write_text(json.dumps(settings))
    assert "it is another run" in said(capfd, "--run", run)
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(b"damaged")
    assert "holds no intact checkpoint" in said(capfd, "--run", run)


@pytest.fixture
def endless(folder):
    """A process that writes until it is stopped; at temperature 0 this model never ends."""
    words = ["sample", "--run", str(folder), "--temperature", "0", "--tokens", str(10**7)]
    with warm.Process([sys.executable, "-m", "llmcourse", *words]) as process:
        try:
            assert process.stdout.read(20)
            yield process
        finally:
            process.kill()


def test_a_closed_pipe_ends_it_quietly(endless):
    endless.stdout.close()
    assert (endless.stderr.read(), endless.wait(timeout=60)) == ("", 0)


def test_ctrl_c_ends_it_in_one_line(endless):
    endless.send_signal(signal.SIGINT)
    assert endless.communicate(timeout=60)[1] == "llmcourse sample: interrupted\n"
    assert endless.returncode == 130
