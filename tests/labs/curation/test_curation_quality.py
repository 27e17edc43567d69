"""curation.quality: its gradient, what it learns, its threshold from the definition."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from llmcourse_labs.curation import Dropped
from llmcourse_labs.curation import quality as module
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.quality import KeepQuality, Quality, features, threshold_for


@cache
def labels():
    return list(Crawl(1_200, seed=21).labels())


@cache
def good_texts():
    return [x.main_text for x in labels() if x.wanted]


@cache
def bad_texts():
    return [x.main_text for x in labels() if x.kind in ("machine", "spam")]


@cache
def trained():
    return Quality.train(good_texts()[:80], bad_texts()[:80])


def objective(x_NJ, label_N, weight_N, decay):
    x, label, weight = (torch.tensor(a, dtype=torch.float64) for a in (x_NJ, label_N, weight_N))

    def value(flat):
        p = torch.tensor(flat, requires_grad=True)
        z = x @ p[:-1] + p[-1]
        losses = torch.nn.functional.binary_cross_entropy_with_logits(z, label, reduction="none")
        loss = (weight * losses).sum() + decay / 2 * p[:-1].square().sum()
        loss.backward()
        return loss.item(), p.grad.numpy()

    return value


def test_training_comes_near_the_minimum_that_scipy_finds(monkeypatch):
    monkeypatch.setattr(module, "NUM_BUCKETS", 64)
    monkeypatch.setattr(module, "_NUM_STEPS", 20_000)
    good, bad = ["the dog ran", "a cat sat", "we saw a dog"], ["buy now", "buy it now cheap"]
    monkeypatch.setattr(module, "features", lambda text, **_: features(text, num_buckets=64))
    found = Quality.train(good, bad, decay=1e-2)
    x_NJ = np.zeros((5, 64))
    for row, text in enumerate([*good, *bad]):
        for bucket, share in features(text, num_buckets=64).items():
            x_NJ[row, bucket] = share
    label_N, weight_N = np.array([1, 1, 1, 0, 0.0]), np.array([1 / 6] * 3 + [1 / 4] * 2)
    value = objective(x_NJ, label_N, weight_N, 1e-2)
    best = minimize(value, np.zeros(65), jac=True, method="L-BFGS-B", tol=1e-12)
    flat = np.append(found.weights, found.bias)
    assert best.fun < 0.9 * value(np.zeros(65))[0]
    assert value(flat)[0] == pytest.approx(best.fun, rel=1e-6)
    np.testing.assert_allclose(flat, best.x, atol=1e-3)


def test_features_are_shares_of_words_and_pairs_and_tell_new_pages_apart():
    found = features("The dog, the dog.")
    assert sum(found.values()) == pytest.approx(11 / 11**0.5)  # 6 words and marks, 5 pairs
    assert max(found.values()) == pytest.approx(2 / 11**0.5)
    assert features("") == {}
    assert features("the dog") != features("dog the")
    good, bad = good_texts()[80:], bad_texts()[80:]
    assert len(good) > 100
    assert len(bad) > 60
    assert np.mean([trained().score(text) > 0.5 for text in good]) > 0.97
    assert np.mean([trained().score(text) < 0.5 for text in bad]) > 0.97
    shuffled = np.random.default_rng(0).permutation([True] * 80 + [False] * 80)
    texts = [*good_texts()[:80], *bad_texts()[:80]]
    other = Quality.train(
        [t for t, g in zip(texts, shuffled, strict=True) if g],
        [t for t, g in zip(texts, shuffled, strict=True) if not g],
    )
    right = [other.score(t) > 0.5 for t in good] + [other.score(t) < 0.5 for t in bad]
    assert np.mean(right) < 0.8  # labels by chance teach nothing


@given(
    scored=st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=12),
    purity=st.sampled_from([0.3, 0.5, 0.75, 1.0]),
)
def test_the_threshold_is_the_lowest_that_reaches_the_purity(scored, purity):
    scores, labels = [s / 8 for s, _ in scored], [label for _, label in scored]
    kept = {t: [lab for s, lab in zip(scores, labels, strict=True) if s >= t] for t in scores}
    reaching = [t for t in kept if np.mean(kept[t]) >= purity]
    if reaching:
        assert threshold_for(scores, labels, purity=purity) == min(reaching)
    else:
        with pytest.raises(ValueError, match="no threshold"):
            threshold_for(scores, labels, purity=purity)


def test_the_step_keeps_what_scores_enough():
    keep = KeepQuality(classifier=trained(), least=0.5)
    assert keep(good_texts()[100]) == good_texts()[100]
    outcome = keep(bad_texts()[-1])
    assert isinstance(outcome, Dropped)
    assert outcome.detail == f"score {trained().score(bad_texts()[-1]):.2f}, at least 0.50"


def test_a_classifier_is_saved_and_loaded_to_the_bit(tmp_path):
    trained().save(tmp_path / "quality.npz")
    loaded = Quality.load(tmp_path / "quality.npz")
    assert np.array_equal(loaded.weights, trained().weights)
    assert loaded.bias == trained().bias
    (tmp_path / "other").write_bytes(b"no classifier")
    whole = (tmp_path / "quality.npz").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    for name in ("other", "cut"):
        with pytest.raises(ValueError, match="is no saved classifier"):
            Quality.load(tmp_path / name)
