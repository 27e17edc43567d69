"""A tokenizer.json gives the ids of `tokenizers`, or a setting is refused by its name.

What a GGUF file says of it is the same tokenizer, and so is what `llmcourse export` writes.
"""

import contextlib
import json
import random

import pytest
import tokenizers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import GPT2, LLAMA3, Tokenizer
from llmcourse.data.tokenizer.encoding import QUIRKS
from llmcourse.data.tokenizer.files import spell
from llmcourse_labs.export.huggingface import tokenizer_json
from llmcourse_labs.real import huggingface_tokenizer
from llmcourse_labs.real.gguf_tokenizer import tokenizer_from_gguf
from llmcourse_labs.real.tokenizer_parts import QWEN2, SMOLLM, TextEnds, require_alike
from tests.labs.real.hostile_text import CUTS, SPECIAL, SPELLED, metadata, peer, split_by, texts

PATTERNS = {"gpt-2": GPT2, "llama-bpe": LLAMA3, "qwen2": QWEN2, "smollm": SMOLLM}
WORDS = "e\u0301\x04 zebra 12'LL  7"


def written(content, folder):
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def read(content, folder):
    return huggingface_tokenizer.read_tokenizer_json(written(content, folder))


def theirs(content):
    made = tokenizers.Tokenizer.from_str(json.dumps(content))
    return lambda text: made.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", CUTS)
def test_both_files_and_the_exported_one_give_the_ids_of_tokenizers(kind, tmp_path, soaking):
    face = peer(kind)
    ours = read(json.loads(face.to_str()), tmp_path)
    assert ours.fingerprint == tokenizer_from_gguf(metadata(kind)).fingerprint
    with_end = {SPECIAL[0]: END_OF_TEXT, **{text: text for text in SPECIAL[1:]}}
    specials = {with_end[text]: i for text, i in ours.special_tokens.items()}
    plain = {i: token for i, token in ours.vocab.items() if i >= len(SPECIAL)}
    renamed = Tokenizer(plain, ours.merges, specials, ours.pattern, ours.quirks)
    one_more = [*ours.quirks, next(quirk for quirk in QUIRKS if quirk not in ours.quirks)]
    other = Tokenizer(plain, ours.merges, specials, ours.pattern, one_more)
    assert other.fingerprint != renamed.fingerprint
    exported = theirs(tokenizer_json(renamed))
    assert read(tokenizer_json(renamed), tmp_path).fingerprint == renamed.fingerprint
    renamed.save(tmp_path)
    saved = Tokenizer.load(tmp_path)
    for text in texts(8_000 if soaking else 400, seed=1):
        assert ours.encode(text) == face.encode(text).ids
        assert saved.encode(text) == exported(text)
    face.encode_special_tokens = True  # they are text, but for those that are not special
    for text in texts(200, seed=2):
        plain_text = text.replace(SPECIAL[-1], "")
        assert ours.encode(plain_text, allow_special=False) == face.encode(plain_text).ids


def test_chunks_make_no_difference_with_nfc(tmp_path):
    ours = read(json.loads(peer("qwen2").to_str()), tmp_path)
    for text in texts(60, seed=3):
        chunks = list(ours.encode_iterable_to_arrays(text))  # a character each
        assert [i for chunk in chunks for i in chunk.tolist()] == ours.encode(text)


@pytest.mark.parametrize(("kind", "pattern"), PATTERNS.items())
def test_words_are_those_of_tokenizers(kind, pattern):
    """Also if its engine has our pattern: for `SMOLLM` it cuts digits out first elsewhere."""
    require_alike(pattern)
    cut = Split(tokenizers.Regex(pattern), "isolated")
    ours = Tokenizer.from_merges([], pattern=pattern)._cutters[0]
    for text in texts(300, seed=4):
        words = ours.words(text)
        assert words == [word for word, _ in cut.pre_tokenize_str(text)]
        spelled = [spell(word.encode()) for word in words]
        assert spelled == [word for word, _ in CUTS[kind].pre_tokenize_str(text)]


def changed(path, value):
    """A change of what the file holds; a path such as model.dropout, ... takes the key out."""

    def change(content):
        *parents, last = path.split(".")
        for name in parents:
            content = content[int(name) if name.isdigit() else name]
        if value is ...:
            del content[last]
        else:
            content[int(last) if last.isdigit() else last] = value

    return change


def cut(part):
    return changed("pre_tokenizer", json.loads(part.__getstate__()))


def added(text, i=None, **flags):
    """Add a token; behind the size of the vocabulary if no id is given."""
    token = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)

    def change(content):
        tokens = content["added_tokens"]
        behind = len(content["model"]["vocab"]) + len(tokens) - len(SPECIAL)
        tokens.append(token | {"content": text, "id": behind if i is None else i} | flags)

    return change


def with_normalizer(kind, change):
    def both(content):
        content["normalizer"] = kind
        change(content)

    return both


def without_gap(change):
    def both(content):
        vocab = content["model"]["vocab"]
        content["model"]["vocab"] = {t: i - 10 * (i > 500) for t, i in vocab.items()}
        change(content)

    return both


def strings(content):
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]


TEXT = {"Sequence": {"id": "A", "type_id": 0}}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "b", "type_id": 0}}, TEXT],
    "pair": [TEXT, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"b": {"id": "b", "ids": [2, 0], "tokens": SPECIAL[2:3] + SPECIAL[:1]}},
}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
NFC = {"type": "NFC"}
PAD = {"strategy": "BatchLongest", "direction": "Right", "pad_id": 0, "pad_type_id": 0}
PAD |= {"pad_token": "!", "pad_to_multiple_of": None}
CUT = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}

READ = {
    "padding of batches": changed("padding", PAD),
    "no dropout": changed("model.dropout", 0.0),
    "merges as strings": strings,
    "no merges of whole words": changed("model.ignore_merges", False),
    "a template": changed("post_processor", TEMPLATE),
    "a template among others": changed(
        "post_processor", {"type": "Sequence", "processors": [BYTES, TEMPLATE]}
    ),
    "normalizers, all NFC": changed("normalizer", {"type": "Sequence", "normalizers": [NFC, NFC]}),
    "normalizers, none": changed("normalizer", {"type": "Sequence", "normalizers": []}),
    "matches alone": cut(split_by(r"\p{N}{1,3}", "removed", invert=True)),
    "GPT-2's, in a sequence": cut(Sequence([ByteLevel(add_prefix_space=False)])),
    "new tokens behind the last": without_gap(lambda c: [added("<new>")(c), added("<b>")(c)]),
    "normalized, without overlap": without_gap(added("abc", normalized=True)),
}


@pytest.mark.parametrize("name", READ)
def test_what_changes_no_ids_is_read(name, tmp_path):
    content = json.loads(peer("llama-bpe").to_str())
    READ[name](content)
    ours, face = read(content, tmp_path), theirs(content)
    for text in texts(100, seed=5):
        assert ours.encode(f"{text}<new>b<b>abc{text}") == face(f"{text}<new>b<b>abc{text}")


REFUSED = {
    "truncation": (changed("truncation", CUT), "truncation after 3"),
    "fixed padding": (changed("padding", PAD | {"strategy": {"Fixed": 9}}), "padding"),
    "padding to multiples": (changed("padding", PAD | {"pad_to_multiple_of": 8}), "padding"),
    "NFKC": (changed("normalizer", {"type": "NFKC"}), "normalizer is a NFKC"),
    "lower case, too": (
        changed("normalizer", {"type": "Sequence", "normalizers": [NFC, {"type": "Lowercase"}]}),
        "normalizer is a Lowercase",
    ),
    "WordPiece": (changed("model.type", "WordPiece"), "model is a WordPiece"),
    "no model": (changed("model", ...), "'model' is missing"),
    "dropout": (changed("model.dropout", 0.1), "dropout = 0.1"),
    "byte_fallback": (changed("model.byte_fallback", True), "byte_fallback"),
    "prefix": (changed("model.continuing_subword_prefix", "##"), "continuing_subword_prefix"),
    "unk_token": (changed("model.unk_token", SPECIAL[0]), "unk_token"),
    "three sides": (changed("model.merges.0", ["a", "b", "c"]), "is not of two tokens"),
    "not an id": (changed("model.vocab.~~~~", True), "'~~~~' has the id True"),
    "an id twice": (changed("model.vocab.~~~~", 99), "two tokens have the same id"),
    "lstrip": (changed("added_tokens.0.lstrip", True), "lstrip"),
    "rstrip": (changed("added_tokens.0.rstrip", True), "rstrip"),
    "single_word": (changed("added_tokens.0.single_word", True), "single_word"),
    "another id": (changed("added_tokens.0.id", 7), "has the id 7, and tokenizers gives 0"),
    "an id far behind": (added("<new>", 2_000), "has the id 2000, and tokenizers gives"),
    "an id of another": (added("<new>"), "which another token has"),
    "twice": (added(SPECIAL[0], 0), "has the id 0, and tokenizers gives 0"),
    "a byte": (lambda c: added("a", c["model"]["vocab"]["a"])(c), "spelled like a byte"),
    "normalized, overlapping": (without_gap(added("x<|im", normalized=True)), "it can overlap"),
    "normalized, and NFC": (
        with_normalizer(NFC, added("abc", normalized=True)),
        "looked for after NFC",
    ),
    "BERT's words": (changed("pre_tokenizer", {"type": "BertPreTokenizer"}), "pre_tokenizer"),
    "digits together": (
        cut(Sequence([Digits(individual_digits=False), ByteLevel(add_prefix_space=False)])),
        "by \\['Digits'\\]",
    ),
    "two cuts": (cut(Sequence([Digits(individual_digits=True), *split_by("x")])), "one cut"),
    "a space in front": (cut(ByteLevel(add_prefix_space=True)), "add_prefix_space"),
    "matches gone": (cut(split_by("x", "removed")), "\\['Split'\\]"),
    "no cut": (cut(SPELLED), "without GPT-2's pattern"),
    "another syntax": (
        cut(Sequence([Split(tokenizers.Regex(r"\h+|."), "isolated"), SPELLED])),
        "tokenizers` may read in another way",
    ),
    "another decoder": (changed("decoder", {"type": "Fuse"}), "decoder is a Fuse"),
    "RoBERTa's ends": (changed("post_processor", {"type": "RobertaProcessing"}), "RobertaProc"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_gives_other_ids_is_refused_by_name(name, tmp_path):
    content = json.loads(peer("llama-bpe").to_str())
    change, why = REFUSED[name]
    change(content)
    with pytest.raises(ValueError, match=f"tokenizer.json cannot be read: .*{why}"):
        read(content, tmp_path)


def test_what_is_set_around_a_text_is_told_apart(tmp_path):
    """Ids of a text are those without; with them they are what `tokenizers` gives."""
    content = json.loads(peer("llama-bpe").to_str())
    for processor, expected in (
        (None, TextEnds()),
        (BYTES, TextEnds()),
        (TEMPLATE, TextEnds((2, 0), ())),
        (TEMPLATE | {"single": [TEXT, TEMPLATE["single"][0]]}, TextEnds((), (2, 0))),
    ):
        content["post_processor"] = processor
        before, after = ends = huggingface_tokenizer.read_text_ends(written(content, tmp_path))
        assert ends == expected
        ids = read(content, tmp_path).encode(WORDS)
        face = tokenizers.Tokenizer.from_str(json.dumps(content))
        assert [*before, *ids, *after] == face.encode(WORDS).ids


def broken(value, g):
    """Change one place of what a file holds, wherever it is."""
    odd = [None, True, 0, -1, 2**40, 1.5, "", "x", "NFC", [], {}, [[]], "Isolated"]
    keys = [*value] if isinstance(value, dict) else [*range(len(value))]
    key = g.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and g.random() < 0.8:
        broken(value[key], g)
    elif g.random() < 0.3:
        del value[key]
    else:
        value[key] = g.choice(odd)


def test_a_broken_file_gives_one_line_or_the_ids_of_tokenizers(tmp_path, soaking):
    g, said, same = random.Random(0), [], []
    lines = [*texts(8, seed=6), *(f" a{text}b " for text in SPECIAL)]
    for case in range(3_000 if soaking else 120):
        content = json.loads(peer([*CUTS][case % 4]).to_str())
        broken(content, g)
        try:
            ours = read(content, tmp_path)
        except ValueError as error:
            said.append(str(error))
            continue
        face = None
        with contextlib.suppress(Exception):  # tokenizers raises no other class
            face = theirs(content)
        if face is not None:
            same.append([face(line) for line in lines] == [ours.encode(line) for line in lines])
    assert min(len(said), len(same)) > 20
    assert all(same)
    assert all("tokenizer.json cannot be read" in line for line in said)
