"""Texts on which tokenizers differ, and tokenizers of `tokenizers` in the forms that models use."""

import json
import random
import unicodedata
from functools import cache

import tokenizers
from tokenizers import AddedToken
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

from llmcourse.data.tokenizer.files import spell

ASSIGNED = [
    chr(c) for c in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")
]
"""Of later characters `regex` and `tokenizers` disagree: each has a Unicode of its own."""

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|im_start|><|im_end|>", "\u00e9\u0301\n", "  <tool>"]
"""One begins another, one is not composed, one begins with what cuts would part."""

PIECES = [
    *(" ", "  ", "\n", "\r\n", "\r", "\t", "\x0b", "\x1c", "\x85", "\xa0", "\u2028", "\u3000"),
    *("\u200b", "\ufeff", "\u180e", "\u202f", "\x00", "\x04", "\x7f", "\ufffd", "\ue000"),
    *("'s", "'S", "'LL", "'ll", "'Re", "'\u017f", "'VE", "'d", "''", "n't", "I'M", "\u2019s"),
    *("0", " 7", "12", "1234567", "\u0663\u0664", "\u0967", "\u2167", "\u00bd", "\u00b2", "\u4e09"),
    *("\U0001d7d8", "\uff11", "\u3007", "e\u0301", "\u0301", "=\u0338", "c\u0327\u0301", "\u212b"),
    *("\u1100\u1161\u11a8", "\uac00\u11a8", "\u2126", "\ufb01", "\u0344", "\u0f73", "\u0958"),
    *("\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u200f", "\u202e", "\ufe0f"),
    *("\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\U000e0061"),
    *(
        "the",
        " the",
        "Hello",
        " world",
        "print(",
        "x=",
        "==",
        "!?",
        "...",
        "\u4e2d\u6587",
        "\u0e44",
    ),
    *("Gr\u00f6\u00dfe", "\U00040000", "\U00080000", "\U00100000", "<|im_", "|>", " zebra"),
]


WHOLE = (" zebra", "123", "==", "\u05e9\u05dc\u05d5\u05dd")
"""Words of the vocabulary that no merge makes."""

ANY = [*ASSIGNED, *SPECIAL * (len(ASSIGNED) // 100)]
MIXED = [*PIECES * 12, *SPECIAL * (len(PIECES) // 4), *random.Random(0).choices(ASSIGNED, k=250)]


def texts(count, seed):
    """Yield texts: pieces, any characters, long runs, and special tokens in all of them."""
    g = random.Random(seed)
    for k in range(count):
        if k % 8 == 7:
            yield g.choice(PIECES) * g.randint(1, 300)
        elif k % 8 > 4:
            yield (" " * (k % 2)).join(g.choices(ANY, k=g.randint(0, 30)))
        else:
            yield "".join(g.choices(MIXED, k=g.randint(0, 40)))


CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
BEHIND = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPELLED = ByteLevel(add_prefix_space=False, use_regex=False)


def split_by(digits, behavior="isolated", *, invert=False):
    cut = Split(tokenizers.Regex(CONTRACTED + digits + BEHIND), behavior, invert=invert)
    return Sequence([cut, SPELLED])


CUTS = {
    "gpt-2": ByteLevel(add_prefix_space=False),
    "smollm": Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
    "llama-bpe": split_by(r"\p{N}{1,3}"),
    "qwen2": split_by(r"\p{N}"),
}
"""By what llama.cpp calls them."""


@cache
def parts():
    """Return a vocabulary, with special tokens, and merges, with what is odd in those of models.

    Merges cross every cut; some tokens are made in two ways, the second before the first; no merge
    makes `WHOLE`; two bytes have no token, and ids no token from 500 to 509.
    """
    made = tokenizers.Tokenizer(BPE())
    made.pre_tokenizer = SPELLED
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1_100,
        initial_alphabet=ByteLevel.alphabet(),
        max_token_length=12,
        show_progress=False,
    )
    made.train_from_iterator(list(texts(600, seed=99)), trainer)
    words = [spell(word.encode()) for word in WHOLE]
    never = [*words, *SPECIAL, *(lost := spell(b"\x04\xf1"))]
    merges = [tuple(merge) for merge in json.loads(made.to_str())["model"]["merges"]]
    merges = [(a, b) for a, b in merges if not any(x in a + b for x in never)]
    tokens = {a + b for a, b in merges}
    others = {(t[:1], t[1:]) for t in tokens if t[1:] in tokens} - set(merges)
    alphabet = sorted(set(ByteLevel.alphabet()) - set(lost))
    ids = {token: i for i, token in enumerate(SPECIAL)}
    for token in [*alphabet, *sorted(tokens), *words]:
        ids[token] = len(ids) + 10 * (len(ids) >= 500)
    return ids, [*sorted(others)[::3], *merges]


def peer(kind):
    """Return the tokenizer of `tokenizers` that a model of some kind has."""
    ids, merges = parts()
    made = tokenizers.Tokenizer(BPE(ids, merges, ignore_merges=kind == "llama-bpe"))
    made.pre_tokenizer, made.decoder = CUTS[kind], tokenizers.decoders.ByteLevel()
    if kind == "qwen2":
        made.normalizer = tokenizers.normalizers.NFC()
    made.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIAL[:-1]])
    made.add_tokens([AddedToken(SPECIAL[-1], normalized=False)])
    return made


def metadata(kind):
    """Return what a GGUF file says of the same tokenizer."""
    ids, merges = parts()
    tokens, types = [[value] * (max(ids.values()) + 1) for value in ("[PAD]", 5)]
    for token, i in ids.items():
        tokens[i], types[i] = token, 1 if i >= len(SPECIAL) else 3 + (token == SPECIAL[-1])
    about = {"model": "gpt2", "pre": kind, "tokens": tokens, "token_type": types}
    about |= {"merges": [" ".join(merge) for merge in merges]}
    about |= {"bos_token_id": 0, "eos_token_id": 1}
    return {f"tokenizer.ggml.{name}": value for name, value in about.items()}
