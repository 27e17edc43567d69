"""Checks of exercises 05: from text to token IDs."""

import gc
import random
import time
from itertools import pairwise

from llmcourse.data import corpus
from llmcourse.data.tokenizer import Tokenizer, train_bpe


def check_1(t, merge_step):
    """05.1 One merge"""
    words = [[b"l", b"o", b"w"], [b"l", b"o", b"t"], [b"t", b"o"]]
    pair, new_words = merge_step(words)
    t.equal(
        pair,
        (b"l", b"o"),
        "you chose another pair than the most frequent: l o stands twice, o w once",
        "the most frequent pair is chosen",
    )
    t.equal(
        new_words,
        [[b"lo", b"w"], [b"lo", b"t"], [b"t", b"o"]],
        "the pair is to be joined in every word, and everything else is to stay",
        "the pair is joined in every word",
    )
    t.equal(
        merge_step([[b"a", b"b"], [b"b", b"a"]])[0],
        (b"b", b"a"),
        "you broke a tie the other way: among pairs that occur equally often the greater one wins",
        "the greater of two tied pairs wins",
    )
    t.equal(
        merge_step([[b"x", b"y"], [b"c", b"d", b"c", b"d"]])[0],
        (b"c", b"d"),
        "you counted words, not occurrences: a pair that stands twice in a word counts twice",
        "a pair that stands twice in one word counts twice",
    )
    t.equal(
        merge_step([[b"a", b"a", b"a", b"b"]])[1],
        [[b"aa", b"a", b"b"]],
        "you joined overlapping pairs: after a a is joined, go on behind it",
        "overlapping pairs are joined from the left",
    )


def check_2(t, encode_word):
    """05.2 An encoder for long words"""
    t(
        encode_word(b"abc", [(b"b", b"c"), (b"a", b"b")])[0] != b"ab",
        "you went by the place in the word: the merge that was learnt first is applied first",
        "merges apply in the order in which they were learnt",
    )
    t.equal(
        encode_word(b"aaa", [(b"a", b"a")]),
        [b"aa", b"a"],
        "of places with the same pair you joined another than the leftmost first",
        "of equal pairs the leftmost goes first",
    )
    t.equal(
        encode_word(b"abc", [(b"b", b"c"), (b"a", b"b")]),
        [b"a", b"bc"],
        "you joined by an outdated entry: after b c is joined, the pair a b is no longer there",
        "a pair whose piece has gone is not joined",
    )
    address = corpus.sotu_split()[0][-1].text
    learnt = train_bpe(address, 512)
    letters = bytes(random.Random(5).choices(range(97, 123), k=2000))
    right_pieces = [learnt.token_bytes(i) for i in learnt.encode(letters.decode())]
    t.equal(
        [encode_word(b"", []), encode_word(b"xab", [(b"a", b"b"), (b"x", b"ab")])],
        [[], [b"xab"]],
        "you forgot a new pair: a joined piece makes one with its left and one with its right",
        "new pairs on both sides are seen, and an empty word has no pieces",
    )
    t.equal(
        encode_word(letters, learnt.merges),
        right_pieces,
        "on 2,000 random letters and 256 merges of an address the pieces are others",
        "2,000 random letters are cut as by the package",
    )

    def seconds(length, pairs, times):
        """Return a call's processor time: the least of three means, as others are busy, too."""
        word = bytes(random.Random(length).choices(range(97, 123), k=length))
        gc.disable()  # its pauses would be counted
        try:
            means = []
            for _ in range(3):
                start = time.process_time()
                for _ in range(times):
                    encode_word(word, pairs)
                means.append((time.process_time() - start) / times)
            return min(means)
        finally:
            gc.enable()

    growth = seconds(8000, learnt.merges, 1) / seconds(250, learnt.merges, 70)
    t(
        growth < 180,
        "your time grows with the square of the length: 32 times the letters take several "
        "hundred times as long",
        f"32 times the letters take {growth:.0f} times as long",
    )
    few = learnt.merges[:64]
    many = few + [(bytes([a]), bytes([b])) for a in range(128, 144) for b in range(128, 256)]
    growth = seconds(4000, many, 1) / seconds(4000, few, 4)
    t(
        growth < 8,
        "your time grows with the number of merges: do not walk through the word, or through "
        "the list, for each of them",
        f"33 times the merges take {growth:.1f} times as long",
    )


def check_3(t, conclusions, size_that_pays, *, LATER, TEXT):
    """05.3 Which vocabulary is worth its rows?"""
    short = "the cat sat on the mat, and the cat ran after the rat. " * 3
    found = size_that_pays(short, short, [256, 257, 258, 259, 260], 0)
    t.equal(
        found,
        260,
        "if every step gains at least the bound, the answer is the last size of the list",
        "with a bound of 0 every size pays",
    )
    merges = train_bpe(short, 278).merges
    sizes = [256, 258, 262, 270, 278]
    needed = [len(Tokenizer.from_merges(merges[: size - 256]).encode(short)) for size in sizes]
    gains = [
        (first - second) / (larger - size)
        for (first, second), (size, larger) in zip(pairwise(needed), pairwise(sizes), strict=True)
    ]
    found = size_that_pays(short, short, sizes, (gains[1] + gains[2]) / 2)
    t(
        found != 278,
        "you did not divide by the entries that were added: a step that adds many entries saves "
        "many tokens, and each entry may still gain little",
        "the gain is for each entry",
    )
    t.equal(
        found,
        262,
        "the answer is the size that the step starts from, the last one that was worth its rows",
        "the first size from which the next one gains too little",
    )
    whole = [256, 512, 1024, 2048, 4096, 8192]
    t(
        size_that_pays(TEXT, LATER[0][:5000], whole, 1) < 8192,
        "you counted the tokens of the text that the merges were learnt from: count those of "
        "`held_out`",
        "the tokens of the held-out text are counted",
    )
    t.equal(
        conclusions(),
        [512, 2048, 4096],
        "the sizes for the three texts are others: learn the merges from `text`, and compare the "
        "numbers of tokens, not of bytes per token",
        "the more text will be read, the larger the vocabulary that pays",
    )


def check_4(t, half_vocabulary):
    """05.4 Half of the model is a table"""
    llama_rows = half_vocabulary(8_030_261_248, 128_256, 4_096, tied=False)
    t(
        not 490_000 < llama_rows < 490_300,
        "you took half of the present parameters: the whole grows too when the tables grow",
        "the whole model grows with its tables",
    )
    t(
        not 980_000 < llama_rows < 980_600,
        "you divided all parameters: the present embedding and head do not belong to the rest",
        "the present tables are not counted with the rest",
    )
    t(
        llama_rows < 1_600_000,
        "you counted one table: without tying, a token has a row in the embedding and one in "
        "the head",
        "a token has two rows when the head is not tied",
    )
    t.equal(
        half_vocabulary(124_439_808, 50_257, 768, tied=True),
        111_774,
        "GPT-2 small ties its head: its one table counts once, and a token adds 768 parameters",
        "the tied table of GPT-2 small counts once",
    )
    t.equal(
        llama_rows,
        852_001,
        "at 852,000 rows the tables of Llama 3 8B are still a little smaller than the rest: "
        "round up",
        "Llama 3 8B is half table from 852,001 rows on",
    )
