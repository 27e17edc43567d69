"""A GGUF file of ours is read back to the bit, and is what the package `gguf` makes of the weights.

Costs about 3 s.
"""

import os
import signal
from dataclasses import replace

import gguf
import pytest
import torch

from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.model.attention import RopeScaling
from llmcourse.model.config import tiny, tiny_moe
from llmcourse_labs.real import gguf_writer
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.gguf_names import decoder_from_gguf, gguf_names
from llmcourse_labs.real.gguf_shape import metadata_of
from llmcourse_labs.real.gguf_writer import write_gguf

TOKENIZER = Tokenizer.from_merges(
    [(b"a", b"b"), (b" ", b"t"), (b" t", b"\xc3")], special_tokens=["<|end|>", "<|user|>"]
)
QWEN3 = replace(
    tiny(), qk_norm=True, head_size=10, tied_head=False, rope_theta=300.0, norm_eps=1e-6
)
SCALINGS = {
    "linear": RopeScaling(kind="linear", factor=2.0),
    "yarn": RopeScaling(kind="yarn", factor=4.0, original_length=8, beta_fast=3.0),
    "llama3": RopeScaling(kind="llama3", factor=8.0, original_length=16),
}
SHAPES = {
    "llama": tiny(),
    "qwen3": QWEN3,
    "mixture": replace(tiny_moe(), balance_weight=0.0),
    "qwen3moe": replace(tiny_moe(), balance_weight=0.0, qk_norm=True, hidden=20),
    **{name: replace(tiny(), rope_scaling=scaling) for name, scaling in SCALINGS.items()},
}


def made(config):
    decoder = Transformer(config, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    for p in decoder.parameters():
        p.data += 0.1 * torch.randn(p.shape, generator=g)
    return decoder


def written(path, decoder, tokenizer=TOKENIZER, **settings):
    write_gguf(path, decoder.state_dict(), decoder.config, tokenizer, **settings)
    return GgufFile(path)


def logits(decoder):
    ids = torch.randint(0, 258, (2, 32), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return decoder(ids)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_is_read_back_to_the_bit(shape, tmp_path):
    decoder = made(SHAPES[shape])
    again = decoder_from_gguf(written(tmp_path / "a.gguf", decoder))
    assert again.config == decoder.config
    state = again.state_dict()
    assert all(torch.equal(state[name], w) for name, w in decoder.state_dict().items())
    assert torch.equal(logits(again), logits(decoder))


def test_ntk_is_written_as_another_base(tmp_path):
    decoder = made(replace(tiny(), rope_scaling=RopeScaling(kind="ntk", factor=4.0)))
    again = decoder_from_gguf(written(tmp_path / "a.gguf", decoder))
    assert again.config.rope_scaling is None
    assert torch.allclose(logits(again), logits(decoder), rtol=0, atol=1e-5)
    assert not torch.allclose(logits(made(tiny())), logits(decoder), rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", ["F32", "F16", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("shape", ["llama", "qwen3", "mixture"])
def test_gguf_reads_the_same_and_would_write_the_same_bytes(shape, kind, tmp_path):
    decoder, path = made(SHAPES[shape]), tmp_path / "a.gguf"
    file = written(path, decoder, template="{{ x }}", token_ids={"eos": 259}, kind=kind)
    whole = written(tmp_path / "whole.gguf", decoder)
    reader = gguf.GGUFReader(path)
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert fields == file.metadata
    assert {t.name for t in reader.tensors} == set(gguf_names(decoder.config).values())
    kinds = set()
    for t in reader.tensors:
        kinds.add(t.tensor_type.name)
        exact = whole.read(t.name).numpy()
        bytes_ = gguf.quants.quantize(exact, t.tensor_type)
        assert t.data.tobytes() == bytes_.tobytes()
        theirs = torch.from_numpy(gguf.dequantize(bytes_, t.tensor_type))
        assert torch.equal(file.read(t.name), theirs.view(exact.shape))
    # Rows of 24 and 40 weights cannot be cut into blocks of 32.
    odd = kind in ("Q4_1", "Q8_0") and shape != "llama"
    ends = {"Q8_0"} if kind == "Q4_1" else set()  # of embedding and head
    assert kinds == {"F32", kind} | ({"F16"} if odd else set()) | ends


def test_the_tokenizer_and_the_template_are_in_the_file(tmp_path):
    ids = {"bos": 259, "eos": 260, "padding": 259}
    file = written(
        tmp_path / "a.gguf", made(tiny()), template="{% if x %}é{% endif %}", token_ids=ids
    )
    told = {key.split(".")[-1]: v for key, v in file.metadata.items() if "tokenizer." in key}
    assert told["chat_template"] == "{% if x %}é{% endif %}"
    assert (told["model"], told["pre"], told["add_bos_token"]) == ("gpt2", "gpt-2", False)
    assert told["merges"] == ["a b", "Ġ t", "Ġt Ã"]
    assert told["tokens"][97 - 33] == "a"
    assert told["tokens"][256:262] == ["ab", "Ġt", "ĠtÃ", "<|end|>", "<|user|>", "[PAD261]"]
    assert told["token_type"] == [1] * 259 + [3] * 2 + [5] * 39
    assert {name: told[f"{name}_token_id"] for name in ids} == ids


def test_divisors_of_rotations_are_written_for_a_llama_alone():
    """llama.cpp opens no qwen3 with such a tensor."""
    config = replace(tiny(), qk_norm=True, rope_scaling=SCALINGS["llama3"])
    with pytest.raises(ValueError, match="of a llama alone, not of a qwen3"):
        metadata_of(config)


def test_what_cannot_be_written_is_refused(tmp_path):
    decoder, path = made(tiny()), tmp_path / "a.gguf"
    large = {name: 1e7 * w for name, w in decoder.state_dict().items()}
    llama3 = RopeScaling(kind="llama3", factor=8.0, original_length=16, high_freq_factor=8.0)
    spelled = Tokenizer.from_merges([], special_tokens=["Ġ"])
    cut = Tokenizer.from_merges([], special_tokens=[], pattern=r"\S+|\s+")
    good = {"state": decoder.state_dict(), "config": tiny(), "tokenizer": TOKENIZER}
    for changes, message in (
        ({"kind": "Q4_0"}, "kind must be one of F32, F16, Q4_1, Q8_0, got 'Q4_0'"),
        ({"state": {}}, "the parameters are not those of the shape: 'blocks.0.attention.w_k'"),
        (
            {"state": large, "kind": "F16"},
            "token_embd.weight has weights that are too large for F16",
        ),
        ({"state": {k: 100 * w for k, w in large.items()}, "kind": "Q8_0"}, "too large for Q8_0"),
        (
            {"state": {k: w / 0 for k, w in large.items()}},
            "embd.weight has weights that are not finite",
        ),
        (
            {"config": replace(tiny(), rope_scaling=llama3)},
            "high_freq_factor 4 only, got 1.0 and 8.0",
        ),
        ({"config": replace(tiny(), vocab_size=260)}, "tokenizer has 261 ids, the embedding 260"),
        ({"tokenizer": spelled}, "a special token is spelled like another"),
        ({"tokenizer": cut}, "no name for the pattern"),
        ({"token_ids": {"eos": 300}}, "the id of eos must be from 0 to 299"),
    ):
        with pytest.raises(ValueError, match=message):
            write_gguf(path, **(good | changes))
        assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_killed_while_writing_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path, packed, calls = tmp_path / "a.gguf", gguf_writer._packed, []
    written(path, made(tiny()))
    before = path.read_bytes()

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return packed(*arguments)

    if (child := os.fork()) == 0:
        monkeypatch.setattr(gguf_writer, "_packed", killed)
        for target in (tmp_path / "new.gguf", path):
            calls.clear()
            if os.fork() == 0:
                written(target, made(QWEN3))
                os._exit(1)
            os.wait()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert path.read_bytes() == before
    left = [each.name for each in tmp_path.iterdir() if each != path]
    assert len(left) == 2
    assert all(name.startswith(".") for name in left)
