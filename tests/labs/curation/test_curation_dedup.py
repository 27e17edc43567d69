"""curation.dedup: the same clusters in any order, dropped once and for all, plain restated."""

import itertools
import operator
import pickle
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.curation import Dropped, MinHash, NearDuplicates, UnionFind, bands_for, dedup
from llmcourse_labs.curation.dedup import LineCounts, exact_key, line_hashes

BANDS, ROWS = bands_for(0.75, 128)
SIGNATURE = MinHash(num_hashes=128)
WORDS = [f"w{i}" for i in range(400)]
LINES = st.lists(st.sampled_from(["", " ", "a", " A", "b ", "c d", "\t"]), max_size=6)


def near_copies(seed, num_texts=40):
    """Return texts of 60 words by name, of which most have some words changed in another one."""
    g = random.Random(seed)
    texts = [g.choices(WORDS, k=60) for _ in range(num_texts // 4)]
    while len(texts) < num_texts:
        copy = list(g.choice(texts))
        for place in g.sample(range(60), g.randrange(4)):
            copy[place] = g.choice(WORDS)
        texts.append(copy)
    g.shuffle(texts)
    return {f"d{i}": " ".join(words) for i, words in enumerate(texts)}


def dropped_of(texts):
    index = NearDuplicates(BANDS, ROWS)
    for name, text in texts.items():
        index.add(name, SIGNATURE(text))
    return index.dropped()


def clusters_of(texts, dropped):
    found = {name: {name} for name in texts if name not in dropped}
    for name, first in dropped.items():
        found[first].add(name)
    return {frozenset(names) for names in found.values()}


def components(texts):
    """All pairs compared, walking from text to text that shares a band with it."""
    signatures = [SIGNATURE(text)[: BANDS * ROWS].reshape(BANDS, ROWS) for text in texts.values()]
    rows = dict(zip(texts, (each.tolist() for each in signatures), strict=True))
    left, found = set(texts), set()
    while left:
        reached, new = set(), {next(iter(left))}
        while new:
            reached |= new
            pairs = itertools.product(new, left - reached)
            new = {b for a, b in pairs if any(map(operator.eq, rows[a], rows[b]))}
        left -= reached
        found.add(frozenset(reached))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_those_of_all_pairs_and_the_first_stays(seed):
    texts = near_copies(seed)
    dropped = dropped_of(texts)
    assert clusters_of(texts, dropped) == components(texts)
    assert len(dropped) > 5
    places = {name: place for place, name in enumerate(texts)}
    assert all(places[name] > places[first] for name, first in dropped.items())
    assert list(dropped) == sorted(dropped, key=places.get)


def test_a_copy_of_a_copy_belongs_to_the_first_and_memory_is_as_stated():
    index = NearDuplicates(2, 1)
    assert index.dropped() == {}
    minima = {"other bands": [2, 1], "a": [1, 2], "b": [3, 4], "c": [5, 6], "d": [3, 6]}
    for name, row in (minima | {"e": [1, 4]}).items():
        index.add(name, np.array(row, np.uint32))
    assert index.dropped() == {"b": "a", "c": "a", "d": "a", "e": "a"}
    for name, row in {"f": [9, 9], "g": [0, 9]}.items():
        index.add(name, np.array(row, np.uint32))
    assert index.dropped()["g"] == "f"
    index = NearDuplicates(BANDS, ROWS)
    signature = SIGNATURE("a b c")
    for name in range(1_000):
        index.add(str(name), signature)
    assert len(index._keys) == 1_000 * index.bytes_per_document
    assert (index.bytes_per_document, len(index.dropped())) == (96, 999)


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=20))
def test_union_find_equals_sets_that_are_joined(joined):
    clusters, sets = UnionFind(12), {i: {i} for i in range(12)}
    for a, b in joined:
        clusters.union(a, b)
        both = sets[a] | sets[b]
        sets |= dict.fromkeys(both, both)
        assert [clusters.find(i) for i in range(12)] == [min(sets[i]) for i in range(12)]


def test_a_long_chain_takes_no_long_walks():
    """In the worst order each union makes a path longer; every find halves it."""
    count = 100_000
    clusters = UnionFind(count)
    for number in range(count - 1, 0, -1):
        clusters.union(number - 1, number)
    for _ in range(17):
        assert clusters.find(count - 1) == 0
    assert clusters._parents[count - 1] == 0


@given(a=st.text(alphabet="ab \n\t\u3000", max_size=8), b=st.text(alphabet="ab \n", max_size=8))
def test_keys_are_equal_where_texts_differ_in_white_space_alone(a, b):
    assert (exact_key(a) == exact_key(b)) == (a.split() == b.split())
    assert len(exact_key(a)) == 16
    assert exact_key("a b") != exact_key("ab")


@given(st.lists(LINES, max_size=8), st.integers(1, 3))
def test_repeated_lines_equal_a_plain_restatement(documents, most):
    texts = ["\n".join(lines) for lines in documents]
    counts = LineCounts()
    for text in texts:
        counts.add(text)
    judge = counts.repeated(most)
    in_documents = Counter()
    for lines in documents:
        in_documents.update({line.strip().lower() for line in lines} - {""})
    for lines, text in zip(documents, texts, strict=True):
        kept = [line for line in lines if not in_documents[line.strip().lower()] > most]
        if any(line.strip() for line in kept) or not any(line.strip() for line in lines):
            assert judge(text) == "\n".join(kept)
        else:
            assert isinstance(judge(text), Dropped)
            assert judge(text).reason == "repeated lines only"


def test_lines_are_counted_the_same_in_small_and_large_portions(monkeypatch):
    texts = [f"a\nb{i % 7}\nc{i % 3}\nd{i}" for i in range(100)]
    found = []
    for pending in (1, 100, 1 << 23):
        monkeypatch.setattr(dedup, "_PENDING", pending)
        counts = LineCounts()
        for text in texts:
            counts.add(text)
        found.append(counts.repeated(14).lines.tolist())
    assert found == [np.sort(np.concatenate([line_hashes("a\nb0\nb1\nc0\nc1\nc2")])).tolist()] * 3


def test_a_judge_of_lines_goes_to_other_processes():
    counts = LineCounts()
    for text in ("menu\none", "Menu \ntwo", "menu\nthree"):
        counts.add(text)
    judge = pickle.loads(pickle.dumps(counts.repeated(2)))
    assert judge("MENU\nfour\n\nfive") == "four\n\nfive"
    assert judge("no menu here") == "no menu here"
