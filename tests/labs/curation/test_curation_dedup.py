"""curation.dedup: the same clusters in any order, dropped once and for all, plain restated."""

import itertools
import pickle
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.curation import Dropped, MinHash, NearDuplicates, UnionFind, bands_for, dedup
from llmcourse_labs.curation.dedup import LineCounts, exact_key, line_hashes
from llmcourse_labs.curation.minhash import jaccard

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
    """Add texts to a new index, and ask it."""
    index = NearDuplicates(BANDS, ROWS)
    for name, text in texts.items():
        index.add(name, SIGNATURE(text))
    return index.dropped()


def clusters_of(texts, dropped):
    """Return the clusters as sets of names."""
    found = {name: {name} for name in texts if name not in dropped}
    for name, first in dropped.items():
        found[first].add(name)
    return {frozenset(names) for names in found.values()}


def components(texts):
    """Restate: walk from text to text that shares a band with it, all pairs compared."""
    rows = {
        name: SIGNATURE(text)[: BANDS * ROWS].reshape(BANDS, ROWS).tolist()
        for name, text in texts.items()
    }
    left, found = set(texts), set()
    while left:
        reached, new = set(), {next(iter(left))}
        while new:
            reached |= new
            new = {
                b
                for a, b in itertools.product(new, left - reached)
                if any(x == y for x, y in zip(rows[a], rows[b], strict=True))
            }
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


@given(st.randoms(use_true_random=False))
def test_clusters_do_not_depend_on_the_order(g):
    texts = near_copies(1)
    shuffled = dict(g.sample(list(texts.items()), len(texts)))
    there, here = dropped_of(texts), dropped_of(shuffled)
    assert clusters_of(texts, there) == clusters_of(shuffled, here)
    assert len(there) == len(here)


@pytest.mark.parametrize("seed", range(5))
def test_what_stays_has_no_copies_left(seed):
    texts = near_copies(seed)
    dropped = dropped_of(texts)
    assert dropped_of({n: t for n, t in texts.items() if n not in dropped}) == {}


def test_exact_copies_are_always_found():
    texts = {f"d{i}": " ".join(random.Random(i).choices(WORDS, k=30)) for i in range(200)}
    copies = {f"copy of {name}": text for name, text in texts.items()}
    dropped = dropped_of(texts | copies)
    assert dropped == {f"copy of {name}": name for name in texts}


def test_texts_of_low_similarity_stay_and_of_high_go():
    g, found = random.Random(3), Counter()
    for trial in range(200):
        words = g.choices(WORDS, k=200)
        few, many = list(words), list(words)
        few[100] = "once"
        for place in range(0, 200, 10):
            many[place] = f"x{trial}"
        texts = {"a": " ".join(words), "few": " ".join(few), "many": " ".join(many)}
        assert jaccard(texts["a"], texts["few"]) > 0.94
        assert jaccard(texts["a"], texts["many"]) < 0.4
        found.update(list(dropped_of(texts)))
    assert found["few"] >= 199
    assert found["many"] == 0


def test_a_copy_of_a_copy_belongs_to_the_first():
    index = NearDuplicates(2, 1)
    for name, minima in {"a": [1, 2], "b": [3, 4], "c": [5, 6], "d": [3, 6], "e": [1, 4]}.items():
        index.add(name, np.array(minima, np.uint32))
    assert index.dropped() == {"b": "a", "c": "a", "d": "a", "e": "a"}
    index.add("f", np.array([9, 9], np.uint32))
    index.add("g", np.array([0, 9], np.uint32))
    assert index.dropped()["g"] == "f"


def test_a_value_in_another_band_is_no_copy():
    index = NearDuplicates(2, 1)
    index.add("a", np.array([1, 2], np.uint32))
    index.add("b", np.array([2, 1], np.uint32))
    assert index.dropped() == {}


def test_memory_is_as_stated():
    index = NearDuplicates(BANDS, ROWS)
    signature = SIGNATURE("a b c")
    for name in range(1_000):
        index.add(str(name), signature)
    assert len(index._keys) == 1_000 * index.bytes_per_document
    assert index.bytes_per_document == 96
    assert len(index.dropped()) == 999


def test_an_empty_index_drops_nothing():
    assert NearDuplicates(2, 1).dropped() == {}


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
    expected = np.sort(np.concatenate([line_hashes("a\nb0\nb1\nc0\nc1\nc2")]))
    assert found == [expected.tolist()] * 3


def test_a_judge_of_lines_goes_to_other_processes():
    counts = LineCounts()
    for text in ("menu\none", "Menu \ntwo", "menu\nthree"):
        counts.add(text)
    judge = pickle.loads(pickle.dumps(counts.repeated(2)))
    assert judge("MENU\nfour\n\nfive") == "four\n\nfive"
    assert judge("no menu here") == "no menu here"


@pytest.mark.parametrize(
    "text", ["", "\n" * 1_000_000, "a" * 5_000_000, "\ud800\n\ud800", "ab\n" * 100_000, "\0"]
)
def test_every_text_is_taken(text):
    counts = LineCounts()
    counts.add(text)
    counts.add(text)
    outcome = counts.repeated(1)(text)
    assert outcome == text if not text.strip() else isinstance(outcome, Dropped)
    assert len(exact_key(text)) == 16
