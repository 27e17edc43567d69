"""train_bpe: the same merges as the textbook loop and as Hugging Face; ties, cuts and bad input."""

import itertools
from collections import Counter
from pathlib import Path

import pytest
import regex
import tokenizers
from edits import edited
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmcourse.data import corpus
from llmcourse.data.tokenizer import (
    GPT2,
    LLAMA3,
    byte_characters,
    count_words,
    patterns,
    train_bpe,
    train_bpe_naive,
    training,
)

CHARACTER_OF = byte_characters()
BYTE_OF = {character: byte for byte, character in CHARACTER_OF.items()}
SPECIALS = ["<s>", "<s><s>", "b<"]

# Few letters and short texts: ties at nearly every merge, runs of one letter, touching pairs.
TEXT = st.text(st.sampled_from("aaabbc <s>é\n"), max_size=60)
LARGE = 10_000  # a vocabulary that no short text fills


@settings(max_examples=400)
@given(text=TEXT, specials=st.sampled_from([[], SPECIALS]), pattern=st.sampled_from([GPT2, LLAMA3]))
@example(text="aaaaa aaa aaaa", specials=[], pattern=GPT2)
@example(text="abababab ababab", specials=[], pattern=GPT2)
@example(text="<s><s><s>b<s>ab<", specials=SPECIALS, pattern=GPT2)
def test_equals_the_textbook_loop(text, specials, pattern):
    fast = train_bpe(text, LARGE, specials, pattern)
    naive = train_bpe_naive(text, LARGE, specials, pattern)
    assert fast.merges == naive.merges
    assert fast.fingerprint == naive.fingerprint


def test_equals_the_textbook_loop_on_prose():
    text = corpus.sotu()[0].text
    fast, naive = (train(text, 600, ["<s>"]) for train in (train_bpe, train_bpe_naive))
    assert len(fast.merges) == 600 - 256 - 1
    assert fast.merges == naive.merges


def test_worked_by_hand():
    """The words of Sennrich et al., figure 1, with their counts; ties as the rule says.

    e s and s t occur 9 times: (s, t) is the greater pair.  Then e st 9 times; o w, as l o, and l ow
    7 times; w est, as n e and e w, then n e, as e west, and ne west 6 times.
    """
    text = "low\n" * 5 + "lower\n" * 2 + "newest\n" * 6 + "widest\n" * 3
    tokenizer = train_bpe(text, 256 + 7, pattern=r"[a-z]+|\s")
    merges = [b"s t", b"e st", b"o w", b"l ow", b"w est", b"n e", b"ne west"]
    assert [a + b" " + b for a, b in tokenizer.merges] == merges


def train_with_rule(text, num_merges, prefer):
    """A loop of the test's own, in which the greatest `prefer(pair, first place, ids)` wins."""
    words = [[bytes([b]) for b in word.encode()] for word in regex.findall(GPT2, text)]
    ids = {bytes([b]): b for b in range(256)}
    merges = []
    while len(merges) < num_merges:
        pairs = [pair for word in words for pair in itertools.pairwise(word)]
        if not pairs:
            break
        counts, first = Counter(pairs), {}
        for place, pair in enumerate(pairs):
            first.setdefault(pair, place)
        best = max(counts, key=lambda p: (counts[p], *prefer(p, first[p], ids)))
        merges.append(best)
        ids[best[0] + best[1]] = len(ids)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [word[i] + word[i + 1]]
                i += 1
    return merges


def negated(data):
    """Bytes as numbers that sort the other way round, a beginning after the whole."""
    return [-byte for byte in data] + [1]


TIES = ["ab cd ef", "abc abd b bc", "cab abb ba bb", "aé éa zé", "ab a b ba aab abb", "ab aba b"]


def all_tie_merges(prefer):
    return [train_with_rule(text, 50, prefer) for text in TIES]


def test_the_greater_pair_of_byte_strings_wins_a_tie():
    assert [train_bpe(t, LARGE).merges for t in TIES] == all_tie_merges(lambda p, f, i: p)


TIE_MUTANTS = {
    "takes the pair seen first": lambda p, first, ids: [-first],
    "takes the pair seen last": lambda p, first, ids: [first],
    "takes the smaller pair": lambda p, first, ids: [negated(p[0]), negated(p[1])],
    "takes the smaller ids, as Hugging Face": lambda p, first, ids: [-ids[p[0]], -ids[p[1]]],
    "takes the greater ids": lambda p, first, ids: [ids[p[0]], ids[p[1]]],
    "compares the joined bytes": lambda p, first, ids: [p[0] + p[1], first],
    "compares the second first": lambda p, first, ids: [p[1], p[0]],
    "takes the shorter of one beginning": lambda p, first, ids: [p[0] + b"\xff", p[1] + b"\xff"],
}


@pytest.mark.parametrize("mutant", TIE_MUTANTS)
def test_texts_notice_another_tie_rule(mutant):
    broken = all_tie_merges(TIE_MUTANTS[mutant])
    assert [train_bpe(t, LARGE).merges for t in TIES] != broken, f"accepted one that {mutant}"


SLIPS = {
    "touching pairs, as in aaaa and abab": "replaced.append((pair[1] + pair[0], new + new))",
    "the counts of broken pairs": "self.pair_counts[old] -= count",
    "new pairs": "fresh.add(successor)",
}


@pytest.mark.parametrize("slip", SLIPS)
def test_texts_notice_a_wrong_index(slip, monkeypatch):
    texts = ["aaaaaaa aaaa bab", "abababab cd cd", "abc abd abc bcd cab"]
    right = [train_bpe_naive(text, LARGE).merges for text in texts]
    assert [train_bpe(text, LARGE).merges for text in texts] == right
    monkeypatch.setattr(training, "_Words", edited(training._Words, (SLIPS[slip], "pass")))
    assert [train_bpe(text, LARGE).merges for text in texts] != right


def hugging_face_merges(text, num_merges, folder):
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=256 + num_merges,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    peer.train_from_iterator([text], trainer)
    peer.model.save(str(folder))
    lines = (folder / "merges.txt").read_text(encoding="utf8").splitlines()[1:]
    return [tuple(line.split(" ")) for line in lines]


def pair_counts(text, merges):
    vocab = {token: i for i, token in enumerate(CHARACTER_OF.values())}
    for a, b in merges:
        vocab[a + b] = len(vocab)
    peer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges))
    counts = Counter()
    for word, count in Counter(regex.findall(GPT2, text)).items():
        for pair in itertools.pairwise(peer.encode(as_characters(word.encode())).tokens):
            counts[pair] += count
    return counts


def as_characters(data):
    return "".join(CHARACTER_OF[byte] for byte in data)


@pytest.mark.parametrize("which", ["prose", "stories"])
def test_differs_from_hugging_face_at_ties_only(which, tmp_path):
    """Equal up to the first difference, and there both take a pair of the highest count."""
    if which == "prose":
        text = "".join(address.text for address in corpus.sotu()[::4])
    else:
        text = corpus.stories(200_000, 3).replace(corpus.END_OF_TEXT, "\n\n")
    theirs = hugging_face_merges(text, 2_000, tmp_path)
    tokenizer = train_bpe(text, 256 + 2_000)
    ours = [(as_characters(a), as_characters(b)) for a, b in tokenizer.merges]
    same = next(i for i, pairs in enumerate(zip(ours, theirs, strict=False)) if len({*pairs}) == 2)
    counts = pair_counts(text, ours[:same])
    assert counts[ours[same]] == counts[theirs[same]] == max(counts.values())
    assert tokenizer.merges[same] > tuple(bytes(BYTE_OF[c] for c in t) for t in theirs[same])
    assert same >= {"prose": 150, "stories": 50}[which]


@given(text=TEXT)
@example("<s><s><s>b<s>ab<")
def test_no_token_crosses_or_holds_a_special_token(text):
    tokenizer = train_bpe(text, LARGE, SPECIALS)
    learnt = [(a + b).decode("utf8", errors="replace") for a, b in tokenizer.merges]
    assert not [token for token in learnt if any(special in token for special in SPECIALS)]
    parts = regex.split("|".join(map(regex.escape, ["<s><s>", "<s>", "b<"])), text)
    assert all(any(token in part for part in parts) for token in learnt if "\ufffd" not in token)


@given(text=TEXT)
def test_encoding_repeats_the_merges_of_training(text):
    """The text it was trained on is cut into the tokens that training left."""
    tokenizer = train_bpe(text, 256 + 6)
    words = [[bytes([b]) for b in word.encode()] for word in regex.findall(GPT2, text)]
    for pair in tokenizer.merges:
        words = [training._joined(word, pair) for word in words]
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode(text)] == [
        token for word in words for token in word
    ]


def test_runs_out_of_pairs_and_stops_and_ids_of_special_tokens_come_last():
    assert train_bpe("abc", LARGE).vocab_size == 256 + 2
    for text in ("", "a", " ", "a.b"):
        tokenizer = train_bpe(text, LARGE, ["<s>"])
        assert (tokenizer.merges, tokenizer.vocab_size) == ([], 257)
        assert train_bpe_naive(text, LARGE, ["<s>"]).merges == []
    assert (train_bpe("<s><s>", LARGE, ["<s>"]).merges, train_bpe("abc", 256).merges) == ([], [])
    assert train_bpe("hello hello", 260, ["<s>", "<e>"]).special_tokens == {"<s>": 258, "<e>": 259}


@given(text=TEXT, places=st.lists(st.integers(0, 60), max_size=6), block=st.sampled_from([1, 3]))
def test_parts_give_the_same_counts(monkeypatch, **drawn):
    text, borders = drawn["text"], sorted({0, *drawn["places"], len(drawn["text"])})
    parts = [text[a:b] for a, b in itertools.pairwise(borders)] or [text]
    parts = parts if "".join(parts) == text else [text]
    expected = count_words(text, SPECIALS)
    with monkeypatch.context() as patch:
        patch.setattr(patterns, "_BLOCK_CHARACTERS", drawn["block"])
        assert count_words(parts, SPECIALS) == expected
        assert count_words(text, SPECIALS) == expected


@pytest.mark.parametrize("specials", [[], ["<|endoftext|>"]])
def test_a_file_gives_the_same_tokenizer(specials, tmp_path):
    documents = [a.text.replace("\n", "\r\n") + "<|endoftext|>" for a in corpus.sotu()[:9]]
    text = "".join(documents) + "中文 é"
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    assert len(text) > 2 * patterns._BLOCK_CHARACTERS
    from_file = train_bpe(path, 500, specials)
    assert from_file.fingerprint == train_bpe(text, 500, specials).fingerprint
    assert from_file.fingerprint == train_bpe([*documents, "中文 é"], 500, specials).fingerprint
    assert any(b"\r\n" in token for token in map(b"".join, from_file.merges))


def test_counts_words():
    assert count_words("a a<s>b a", ["<s>"]) == {"a": 1, " a": 2, "b": 1}


@pytest.mark.parametrize("specials", ["<s>", [1]])
def test_rejects_special_tokens_that_are_no_list_of_strings(specials):
    with pytest.raises(TypeError, match=r"special_tokens"):
        train_bpe("text", 300, specials)


@pytest.mark.parametrize("learn", [lambda t: train_bpe(t, 300), count_words])
@pytest.mark.parametrize("name", ["corpus.txt", "data/Corpus.TXT", "x.jsonl", "notes", "my text"])
def test_rejects_the_name_of_a_file_in_place_of_a_text(learn, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for here in ("notes", "my text"):
        Path(here).write_text("hello hello")
    message = rf"looks like the name of a file: give Path\('{name}'\), .*, or \['{name}'\] to"
    with pytest.raises(ValueError, match=message):
        learn(name)
    with pytest.raises(ValueError, match="looks like the name of a file"):
        train_bpe_naive(name, 300)
    assert learn([name]) is not None
    assert train_bpe_naive([name], 300).merges == train_bpe([name], 300).merges
    assert train_bpe(Path("my text"), 257).merges == [(b"l", b"o")]


@pytest.mark.parametrize("text", ["a.txt b.txt", "see notes.txt", ".", "..", "\0", "a" * 5_000])
def test_a_text_is_no_name_of_a_file(text):
    assert count_words(text).total() >= 1


def test_rejects_a_file_that_is_missing_or_not_text(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        train_bpe(tmp_path / "none.txt", 300)
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"data\.bin is not UTF-8"):
        train_bpe(Path(tmp_path / "data.bin"), 300)
    with pytest.raises(TypeError):
        train_bpe([b"bytes"], 300)
