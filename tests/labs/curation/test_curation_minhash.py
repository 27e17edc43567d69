"""curation.minhash: unbiased, of the stated variance, equal to datasketch, the S-curve."""

import itertools

import datasketch
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcourse_labs.curation import minhash
from llmcourse_labs.curation.minhash import (
    MinHash,
    band_keys,
    bands_for,
    candidate_probability,
    estimate,
    jaccard,
    shingle_hashes,
    shingles,
)

NUM_PAIRS = 10_000
TEXTS = st.text(alphabet="ab cd. ,É\n\ud800", max_size=60)


def pairs(count, seed):
    """Yield pairs of sets, as 32 random bits of each element, and their similarity."""
    g = np.random.default_rng(seed)
    for _ in range(count):
        size = int(g.integers(5, 150))
        shared = int(g.integers(0, size + 1))
        bits = g.integers(0, 2**32, 2 * size - shared, dtype=np.uint32)
        yield bits[:size], bits[size - shared :], shared / (2 * size - shared)


def errors_of(signature, num_hashes, seed=0):
    """Return the errors of the estimates of 10,000 pairs, and the variances that they should have.

    Takes any function from the bits of a set to a signature.
    """
    found = np.array(
        [(estimate(signature(a), signature(b)) - j, j) for a, b, j in pairs(NUM_PAIRS, seed)]
    )
    return found[:, 0], found[:, 1] * (1 - found[:, 1]) / num_hashes


def assert_unbiased_and_within_variance(errors, variances):
    """Compare with what sums of independent errors do: 4 standard deviations of each."""
    assert abs(errors.sum()) < 4 * np.sqrt(variances.sum())
    ratio = (errors**2).sum() / variances.sum()
    assert abs(ratio - 1) < 4 * np.sqrt(2 / NUM_PAIRS)


@pytest.mark.parametrize(("num_hashes", "seed"), [(128, 0), (128, 1), (32, 2), (16, 3)])
def test_estimates_are_unbiased_and_have_the_stated_variance(num_hashes, seed):
    signature = MinHash(num_hashes=num_hashes, seed=seed).of_hashes
    assert_unbiased_and_within_variance(*errors_of(signature, num_hashes, seed))


def test_signatures_that_are_wrong_are_found():
    """Half of the functions twice; minima of another set; 8 bits of each; one factor for all."""
    proper = MinHash(num_hashes=128).of_hashes

    def twice(bits):
        return np.concatenate([proper(bits)[:64]] * 2)

    def of_other_sets(bits):
        return np.where(np.arange(128) % 2, proper(bits), proper(bits[: len(bits) // 2]))

    def few_bits(bits):
        return proper(bits) >> np.uint32(24)

    def one_factor(bits):
        summands = np.arange(128, dtype=np.uint32)
        return (bits[:, None] + summands).min(axis=0)

    for broken in (twice, of_other_sets, few_bits, one_factor):
        with pytest.raises(AssertionError):
            assert_unbiased_and_within_variance(*errors_of(broken, 128))


def test_a_signature_is_the_minima_of_its_formula():
    bits = shingle_hashes(" ".join(f"w{i}" for i in range(600)), 3)
    assert len(set(bits.tolist())) == 598 > 2 * minhash._BLOCK
    for seed in (0, 5):
        factors, summands = minhash._functions(7, seed)
        expected = [
            min((int(a) * int(h) + int(b)) % 2**32 for h in bits)
            for a, b in zip(factors, summands, strict=True)
        ]
        assert MinHash(num_hashes=7, seed=seed).of_hashes(bits).tolist() == expected
        assert (factors % 2 == 1).all()


def test_signatures_are_the_same_on_every_machine():
    text = "Tim and Ana went to the park. They saw a big red dog, and it was kind."
    assert shingle_hashes("ein Wort mehr", 5).tolist() == [
        521258546
    ]  # by the formula, in Python's integers
    assert MinHash(num_hashes=4)(text).tolist() == [8739575, 16214702, 99626530, 38403845]


def test_estimates_equal_those_of_datasketch_within_the_errors_of_both():
    """The difference of two independent unbiased estimates has the sum of their variances."""
    ours = MinHash(num_hashes=128)
    template = datasketch.MinHash(num_perm=128, seed=7, hashfunc=int)

    def theirs(bits):
        sketch = template.copy()
        sketch.update_batch(bits.tolist())
        return sketch

    differences, variances = [], []
    for a, b, j in pairs(3_000, 11):
        own = estimate(ours.of_hashes(a), ours.of_hashes(b))
        differences.append(own - theirs(a).jaccard(theirs(b)))
        variances.append(2 * j * (1 - j) / 128)
    differences, variances = np.array(differences), np.array(variances)
    assert abs(differences.sum()) < 4 * np.sqrt(variances.sum())
    assert abs((differences**2).sum() / variances.sum() - 1) < 4 * np.sqrt(2 / 3_000)
    assert differences.any()


@given(text=TEXTS, n=st.integers(1, 6))
def test_runs_have_equal_bits_where_they_are_equal(text, n):
    bits, runs = shingle_hashes(text, n), shingles(text, n)
    assert len(set(bits.tolist())) == len(runs)
    words = shingles(text, 1)
    assert len(bits) == 0 if not words else len(bits) >= len(runs)


@given(a=TEXTS, b=TEXTS)
def test_bits_of_different_texts_meet_where_their_runs_do(a, b):
    ours = len(set(shingle_hashes(a, 2).tolist()) & set(shingle_hashes(b, 2).tolist()))
    assert ours == len(shingles(a, 2) & shingles(b, 2))


def test_shingles_are_runs_of_words_without_case_and_punctuation():
    assert shingles("One, two THREE. four", 3) == {
        ("one", "two", "three"),
        ("two", "three", "four"),
    }
    assert shingles("One two", 3) == {("one", "two")}
    assert shingles(" ?! ", 3) == set()
    assert jaccard("a b c", "B C d", 2) == 1 / 3
    assert jaccard("?", "!", 2) == 1


def test_a_run_does_not_forget_the_order_of_its_words():
    orders = {int(shingle_hashes(" ".join(p), 4)[0]) for p in itertools.permutations("abcd")}
    assert len(orders) == 24


@pytest.mark.parametrize("similarity", [0.5, 0.65, 0.75, 0.9])
def test_candidates_follow_the_s_curve(similarity):
    bands, rows = 12, 10
    assert_follows_the_curve(similarity, bands, rows, band_keys)


def assert_follows_the_curve(similarity, bands, rows, keys_of):
    """Count the candidates among 2,000 pairs; 4 standard deviations of a binomial count."""
    g, found, num_pairs, size = np.random.default_rng(5), 0, 2_000, 200
    signature = MinHash(num_hashes=128).of_hashes
    shared = round(2 * size * similarity / (1 + similarity))
    for _ in range(num_pairs):
        bits = g.integers(0, 2**32, 2 * size - shared, dtype=np.uint32)
        a, b = signature(bits[:size]), signature(bits[size - shared :])
        found += (keys_of(a, bands, rows) == keys_of(b, bands, rows)).any()
    p = candidate_probability(shared / (2 * size - shared), bands, rows)
    assert abs(found - num_pairs * p) <= 4 * np.sqrt(num_pairs * p * (1 - p))


def test_bands_that_are_wrong_are_found():
    """Bands that overlap, bands of one row less, a key that forgets its first row."""

    def overlapping(signature, bands, rows):
        return np.array([band_keys(signature[i:], 1, rows)[0] for i in range(bands)])

    def shorter(signature, bands, rows):
        return band_keys(signature.reshape(-1, 128)[0, : bands * rows], bands, rows - 1)

    def forgetful(signature, bands, rows):
        kept = signature.copy()
        kept[: bands * rows : rows] = 0
        return band_keys(kept, bands, rows)

    for broken in (overlapping, shorter, forgetful):
        with pytest.raises(AssertionError):
            assert_follows_the_curve(0.75, 12, 10, broken)


@given(
    st.lists(st.integers(0, 2), min_size=12, max_size=12),
    st.lists(st.integers(0, 2), min_size=12, max_size=12),
)
def test_bands_have_equal_keys_where_all_their_rows_are_equal(a, b):
    ours = band_keys(np.array(a, np.uint32), 4, 3) == band_keys(np.array(b, np.uint32), 4, 3)
    assert ours.tolist() == [a[i : i + 3] == b[i : i + 3] for i in range(0, 12, 3)]


@settings(max_examples=50)
@given(st.floats(0.05, 0.95), st.integers(1, 300))
def test_bands_fit_and_no_others_are_nearer(similarity, num_hashes):
    bands, rows = bands_for(similarity, num_hashes)
    assert bands * rows <= num_hashes

    def half(bands, rows):
        """Find by bisection where the curve is at 1/2."""
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            below = candidate_probability(middle, bands, rows) < 0.5
            low, high = (middle, high) if below else (low, middle)
        return low

    best = abs(half(bands, rows) - similarity)
    every = [(num_hashes // rows, rows) for rows in range(1, min(num_hashes, 20) + 1)]
    assert all(best <= abs(half(*fit) - similarity) + 1e-9 for fit in every)


def test_a_signature_has_its_bytes():
    assert MinHash(num_hashes=64).bytes_per_document == MinHash(num_hashes=64)("a b").nbytes


@pytest.mark.parametrize(
    "text", ["", " \n" * 100, "a" * 5_000_000, "\ud800 x " * 9, "ab " * 300_000, "\0"]
)
def test_every_text_has_a_signature(text):
    assert MinHash(num_hashes=16)(text).shape == (16,)
