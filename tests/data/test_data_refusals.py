"""data: what cannot be is refused by name, with the rule and what was given."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from llmcourse import data
from llmcourse.data.corpus.grammar import Grammar
from llmcourse.data.mixture import per_mille
from llmcourse.data.tokenizer import Tokenizer, train_bpe, train_bpe_naive
from llmcourse_labs.curation import MinHash, NearDuplicates, bands_for
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.decontaminate import Decontaminate
from llmcourse_labs.curation.language import KeepLanguage, LanguageModel, default_model
from llmcourse_labs.curation.minhash import band_keys, shingles
from llmcourse_labs.curation.quality import Quality, threshold_for
from llmcourse_labs.evaluate import needle_rows, needle_tests
from llmcourse_labs.tuning import make_tasks, preference_pairs, wrong_answers

SMALL = {
    "classes": {
        "child": ({"": "Al", "he": "he"}, {"": "Bea", "he": "she"}),
        "thing": ({"": "ax"}, {"": "banana"}),
    },
    "variables": {"hero": "child"},
    "plots": ((("{hero} came.",),),),
}
BYTES = {byte: bytes([byte]) for byte in range(256)}
AB, END = [(b"a", b"b")], "<s>"


def tasks(number=1, seed=0, **settings):
    return make_tasks(number, seed=seed, **settings)


def grammar(**change):
    return Grammar(**{**SMALL, **change})


def told(*plot):
    return grammar(plots=(plot,))


def patterned(pattern):
    return Tokenizer.from_merges([], pattern=pattern)


def written(**settings):
    given = {"tokenizer_fingerprint": "x", "vocab_size": 100} | settings
    return data.write_shards([0], Path("x"), **given)


def g():
    return torch.Generator().manual_seed(0)


REFUSED = [
    # shards, orders, ramps and mixtures
    (lambda: written(shard_tokens=0), "shard_tokens must be 1 or greater, got 0"),
    (lambda: written(vocab_size=0), "vocab_size must be 1 or greater, got 0"),
    (lambda: written(vocab_size=2**32 + 1), "vocab_size"),
    (lambda: written(tokenizer_fingerprint=""), "tokenizer_fingerprint must not be empty"),
    (lambda: data.permuted(np.array([5]), 5, seed=0), "from 0 to 4"),
    (lambda: data.permuted(np.array([-1]), 5, seed=0), "from 0 to 4"),
    (lambda: data.permuted(np.array([0]), 0, seed=0), "count must"),
    (lambda: data.prefetch([], 0), "depth must be 1 or greater, got 0"),
    (lambda: data.ramp_of("0:12,200"), "'200' is no stage"),
    (lambda: data.ramp_of("0:12,-5:24"), "'-5:24' is no stage"),
    (lambda: data.ramp_of(""), "'' is no stage"),
    (lambda: data.ramp_of("10:12"), "begins at step 0, not at 10"),
    (lambda: data.ramp_of("0:12,200:12"), "200:12 may not follow 0:12"),
    (lambda: data.ramp_of("0:12,200:8"), "200:8 may not follow 0:12"),
    (lambda: data.ramp_of("0:12,200:24,100:48"), "100:48 may not follow 200:24"),
    (lambda: data.ramp_of("0:0,3:4"), "the first batch must be 1 or greater"),
    (lambda: per_mille({}), "needs a source"),
    (lambda: per_mille({"a": 0.5, "b": 0.4}), "add to 0.9"),
    (lambda: per_mille({"a": 1 / 3, "b": 2 / 3}), "thousandths"),
    (lambda: per_mille({"a": 0.0, "b": 1.0}), "the share of a is 0.0"),
    (lambda: per_mille({"a": -0.5, "b": 1.5}), "the share of a is -0.5"),
    # packing
    *(
        (lambda way=way, given=given: way(*given), fact)
        for way in (data.pack, data.best_fit, data.concatenate_and_cut, data.one_per_row)
        for given, fact in (
            (([1], 0), "context_length must be 1 or greater, got 0"),
            (([1, -2], 4), "document 1 has -2 tokens"),
        )
    ),
    (
        lambda: data.packed_rows([[1, 2]], data.best_fit([3], 5), padding_id=0),
        "0 has 2 tokens, not the 3",
    ),
    (
        lambda: data.packed_rows([[1, 2, 3]], data.best_fit([3, 2], 5), padding_id=0),
        "has a document 1 of 1",
    ),
    # texts that are made up
    (lambda: data.corpus.stories(0, 0), "num_bytes must be at least 1, got 0"),
    (lambda: data.corpus.stories(10, -1), "seed must be at least 0, got -1"),
    (lambda: grammar(variables={"hero": "nobody"}), "not defined"),
    (lambda: grammar(variables=dict.fromkeys("abc", "thing")), "fewer values"),
    (lambda: told(("{villain} came.",)), "unknown variable"),
    (lambda: told(("{hero.them} came.",)), "unknown form"),
    (lambda: told(("Café.",)), "not ASCII"),
    (lambda: told(("", "Hi.")), "must always be spoken"),
    (lambda: told(("Hi.", "Hi.")), "same template twice"),
    (lambda: tasks(-1), "number must be 0 or greater"),
    (lambda: tasks(seed=-1), "seed must be 0 or greater"),
    (lambda: tasks(kinds=["poem"]), "kinds must be some of ball, count"),
    (lambda: tasks(kinds=[]), "kinds must be some of"),
    (lambda: tasks(difficulties=[4]), "difficulties must be some of 1, 2, 3, got"),
    (lambda: tasks(part="tests"), "part must be one of training, test, or None for all"),
    (lambda: wrong_answers(tasks(3, kinds=["refuse"]), seed=0), "a task to refuse has one answer"),
    *(
        (lambda t=t: preference_pairs(3, seed=0, temperature=t), "temperature must be")
        for t in (-1, math.inf, math.nan)
    ),
    (lambda: needle_rows(1, 8, generator=g()), "length must be 9 or greater, got 8"),
    (lambda: needle_tests(0, 64, 0.5, generator=g()), "num_rows must be 1 or greater"),
    (lambda: needle_tests(1, 64, 1.5, generator=g()), r"depth must be at most 1, got 1\.5"),
    (lambda: needle_rows(1, 64, generator=g(), questions=-0.1), "questions must be 0 or greater"),
    (lambda: data.corpus.sotu_split([]), "no year at all"),
    # curation
    (lambda: shingles("a", 0), "n must be 1 or greater"),
    (lambda: band_keys(np.zeros(8, np.uint32), 3, 3), r"bands \* rows must be at most 8, got 9"),
    (lambda: MinHash(num_hashes=0), "num_hashes must be 1 or greater"),
    (lambda: bands_for(0.0, 128), "similarity must be above 0"),
    (lambda: NearDuplicates(2, 1).add_keys("x", np.zeros(3, np.uint64)), "x has 3 bands, not 2"),
    (lambda: Quality.train(["a b"] * 3, []), "texts of both kinds"),
    (lambda: threshold_for([0.5, 0.6], [True], purity=0.5), "2 scores and 1 labels"),
    (lambda: Decontaminate(["a b", "?!"]), "test item 1 has no word"),
    (lambda: Decontaminate(["a b"], n=0), "n must be 1 or greater"),
    (lambda: LanguageModel.train({"en": ["text"]}), "two languages or more"),
    (lambda: KeepLanguage(model=default_model(), language="fr"), "no language 'fr'"),
    (lambda: Crawl(0, seed=0), "num_pages"),
    (lambda: Crawl(1, seed=-1), "seed"),
    # tokenizers
    (lambda: Tokenizer({0: b"a"}, [], {}), "no token for the bytes"),
    (lambda: Tokenizer(BYTES, [], {}, quirks=["nfc"]), "quirks must be of NFC, missing bytes"),
    (lambda: Tokenizer({**BYTES, -1: b"ab"}, [], {}), "ids must be from 0 to 2,147,483,647"),
    (lambda: Tokenizer({**BYTES, 2**31: b"ab"}, [], {}), "ids must be from 0 to 2,147,483,647"),
    (lambda: Tokenizer(BYTES, [], {END: 255}), "two tokens have the same id"),
    (lambda: Tokenizer(BYTES, [], [END, END]), "'<s>' is named twice"),
    (lambda: Tokenizer({**BYTES, 256: b"ab", 257: b"ab"}, AB, {}), "two ids"),
    (lambda: Tokenizer(BYTES, AB, {}), "needs b'ab' in the vocabulary"),
    (lambda: Tokenizer({**BYTES, 256: b"ab"}, AB * 2, {}), "named twice"),
    (lambda: Tokenizer(BYTES, [], {"": 256}), "special token is empty"),
    (lambda: Tokenizer(BYTES, [], {"\ud800": 256}), "lone surrogate"),
    (lambda: patterned("("), "not a regular expression"),
    (lambda: patterned("(?:" * 5_000 + "a" + ")" * 5_000), "maximum recursion"),
    (lambda: patterned(r"(\s+)|\S+"), "group that captures"),
    (lambda: patterned("a|" * 50_000 + "a"), "too large: its 100,001 characters"),
    (lambda: patterned("(?:(?:a{1000}){,00999}){99,}"), "its 28 characters times the numbers"),
    (lambda: patterned("a{1,99999999999}"), "repeat count too big"),
    (lambda: patterned(r"\S+").encode("a b"), "leaves out a part of the text 'a b'"),
    *((lambda p=p: train_bpe("a b", 300, pattern=p), "pattern") for p in ("(", "(a)|.", r"\S+")),
    *(
        (lambda train=train, given=given: train(*given), fact)
        for train in (train_bpe, train_bpe_naive)
        for given, fact in (
            (("text", 255, []), r"vocab_size must be from 256 \(256 bytes and 0 special tokens\)"),
            (("text", 257, [END, "<e>"]), r"from 258 .* got 257"),
            (("text", 0x110001, []), "got 1114113"),
            (("text", 300, [""]), "special token is empty"),
            (("text", 300, [END, END]), "'<s>' is named twice"),
            (("text", 300, ["\udc00"]), "lone surrogate"),
            (("ab \ud800", 300), "lone surrogate"),
        )
    ),
]


@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_what_cannot_be_is_refused(call, fact, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=fact):
        call()
