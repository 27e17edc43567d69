"""The tokenizer of a GGUF file gives the ids of `tokenizers`; others are refused by name."""

import pytest

from llmcourse.data.tokenizer import Tokenizer
from llmcourse_labs.real import gguf_tokenizer
from tests.labs.real.hostile_text import CUTS, metadata, peer, texts


def count(soaking):
    return 8_000 if soaking else 500


@pytest.mark.parametrize("kind", CUTS)
def test_ids_equal_those_of_tokenizers(kind, soaking):
    ours, theirs = gguf_tokenizer.tokenizer_from_gguf(metadata(kind)), peer(kind)
    for text in texts(count(soaking), seed=1):
        assert ours.encode(text) == theirs.encode(text).ids


@pytest.mark.parametrize("kind", CUTS)
def test_it_is_saved_with_its_quirks(kind, tmp_path):
    ours = gguf_tokenizer.tokenizer_from_gguf(metadata(kind))
    ours.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.fingerprint == ours.fingerprint
    assert loaded.quirks == ours.quirks
    text = "e\u0301\x04 zebra 12"
    assert loaded.encode(text) == ours.encode(text)
