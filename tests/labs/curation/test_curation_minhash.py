"""curation.minhash: unbiased, of the stated variance, equal to datasketch, the S-curve."""

import itertools

import datasketch
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcourse_labs.curation import minhash

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
    """The errors of the estimates of 10,000 pairs, and the variances that they should have."""
    drawn = pairs(NUM_PAIRS, seed)
    found = np.array([(minhash.estimate(signature(a), signature(b)) - j, j) for a, b, j in drawn])
    return found[:, 0], found[:, 1] * (1 - found[:, 1]) / num_hashes


def assert_unbiased_and_within_variance(errors, variances):
    """Compare with what sums of independent errors do: 4 standard deviations of each."""
    assert abs(errors.sum()) < 4 * np.sqrt(variances.sum())
    ratio = (errors**2).sum() / variances.sum()
    assert abs(ratio - 1) < 4 * np.sqrt(2 / NUM_PAIRS)


@pytest.mark.parametrize(("num_hashes", "seed"), [(128, 0), (128, 1), (32, 2), (16, 3)])
def test_estimates_are_unbiased_and_have_the_stated_variance(num_hashes, seed):
    signature = minhash.MinHash(num_hashes=num_hashes, seed=seed).of_hashes
    assert_unbiased_and_within_variance(*errors_of(signature, num_hashes, seed))


def test_signatures_that_are_wrong_are_found():
    """Half of the functions twice; minima of another set; 8 bits of each; one factor for all."""
    proper = minhash.MinHash(num_hashes=128).of_hashes

    def twice(bits):
        return np.concatenate([proper(bits)[:64]] * 2)

    def of_other_sets(bits):
        return np.where(np.arange(128) % 2, proper(bits), proper(bits[: len(bits) // 2]))

    def few_bits(bits):
        return proper(bits) >> np.uint32(24)

    def one_factor(bits):
        return (bits[:, None] + np.arange(128, dtype=np.uint32)).min(axis=0)

    for broken in (twice, of_other_sets, few_bits, one_factor):
        with pytest.raises(AssertionError):
            assert_unbiased_and_within_variance(*errors_of(broken, 128))


def test_a_signature_is_the_minima_of_its_formula_on_every_machine():
    bits = minhash.shingle_hashes(" ".join(f"w{i}" for i in range(600)), 3)
    assert len(set(bits.tolist())) == 598 > 2 * minhash._BLOCK
    for seed in (0, 5):
        factors, summands = minhash._functions(7, seed)
        functions = zip(factors.tolist(), summands.tolist(), strict=True)
        expected = [min((a * h + b) % 2**32 for h in bits.tolist()) for a, b in functions]
        assert minhash.MinHash(num_hashes=7, seed=seed).of_hashes(bits).tolist() == expected
        assert (factors % 2 == 1).all()
    text = "Tim and Ana went to the park. They saw a big red dog, and it was kind."
    by_formula = 521258546  # in Python's integers
    assert minhash.shingle_hashes("ein Wort mehr", 5).tolist() == [by_formula]
    of_64 = minhash.MinHash(num_hashes=64)
    assert of_64.bytes_per_document == of_64("a b").nbytes
    assert minhash.MinHash(num_hashes=4)(text).tolist() == [8739575, 16214702, 99626530, 38403845]


def test_estimates_equal_those_of_datasketch_within_the_errors_of_both():
    """The difference of two independent unbiased estimates has the sum of their variances."""
    ours = minhash.MinHash(num_hashes=128)
    template = datasketch.MinHash(num_perm=128, seed=7, hashfunc=int)

    def theirs(bits):
        sketch = template.copy()
        sketch.update_batch(bits.tolist())
        return sketch

    differences, variances = [], []
    for a, b, j in pairs(3_000, 11):
        own = minhash.estimate(ours.of_hashes(a), ours.of_hashes(b))
        differences.append(own - theirs(a).jaccard(theirs(b)))
        variances.append(2 * j * (1 - j) / 128)
    differences, variances = np.array(differences), np.array(variances)
    assert abs(differences.sum()) < 4 * np.sqrt(variances.sum())
    assert abs((differences**2).sum() / variances.sum() - 1) < 4 * np.sqrt(2 / 3_000)
    assert differences.any()


@given(a=TEXTS, b=TEXTS, n=st.integers(1, 6))
def test_bits_are_equal_where_runs_are(a, b, n):
    bits, runs = minhash.shingle_hashes(a, n), minhash.shingles(a, n)
    assert len(set(bits.tolist())) == len(runs)
    assert len(bits) >= len(runs) if minhash.shingles(a, 1) else len(bits) == 0
    shared = set(bits.tolist()) & set(minhash.shingle_hashes(b, n).tolist())
    assert len(shared) == len(runs & minhash.shingles(b, n))


def test_shingles_are_runs_of_words_without_case_and_punctuation():
    runs = {("one", "two", "three"), ("two", "three", "four")}
    assert minhash.shingles("One, two THREE. four", 3) == runs
    assert minhash.shingles("One two", 3) == {("one", "two")}
    assert minhash.shingles(" ?! ", 3) == set()
    assert (minhash.jaccard("a b c", "B C d", 2), minhash.jaccard("?", "!", 2)) == (1 / 3, 1)


@pytest.mark.parametrize(("bands", "rows"), [(1, 3), (3, 1), (2, 3), (3, 2)])
def test_the_s_curve_is_a_sum_over_all_outcomes(bands, rows):
    """Two texts are candidates where all rows of some band are equal."""
    every = itertools.product((0, 1), repeat=bands * rows)
    outcomes = [np.reshape(outcome, (bands, rows)) for outcome in every]
    for s in (0.0, 0.3, 0.8, 1.0):
        chances = [np.where(x, s, 1 - s).prod() for x in outcomes if x.all(1).any()]
        assert minhash.candidate_probability(s, bands, rows) == pytest.approx(sum(chances))


@given(
    st.lists(st.integers(0, 2), min_size=12, max_size=12),
    st.lists(st.integers(0, 2), min_size=12, max_size=12),
)
def test_bands_have_equal_keys_where_all_their_rows_are_equal(a, b):
    """Mutants: bands that overlap, bands of a row less, a key that forgets its first row."""
    ours, theirs = (minhash.band_keys(np.array(x, np.uint32), 4, 3) for x in (a, b))
    assert (ours == theirs).tolist() == [a[i : i + 3] == b[i : i + 3] for i in range(0, 12, 3)]


@settings(max_examples=50)
@given(st.floats(0.05, 0.95), st.integers(1, 300))
def test_bands_fit_and_no_others_are_nearer(similarity, num_hashes):
    bands, rows = minhash.bands_for(similarity, num_hashes)
    assert bands * rows <= num_hashes

    def half(bands, rows):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            below = minhash.candidate_probability(middle, bands, rows) < 0.5
            low, high = (middle, high) if below else (low, middle)
        return low

    best = abs(half(bands, rows) - similarity)
    every = [(num_hashes // rows, rows) for rows in range(1, min(num_hashes, 20) + 1)]
    assert all(best <= abs(half(*fit) - similarity) + 1e-9 for fit in every)
