"""curation.language: naive Bayes equals its formula, and tells three languages apart."""

import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse_labs.curation import Dropped
from llmcourse_labs.curation.crawl import Crawl
from llmcourse_labs.curation.language import (
    MOST_CHARACTERS,
    KeepLanguage,
    LanguageModel,
    default_model,
    runs,
)

SAMPLES = {"one": ["abba"], "two": ["baaa b", "bbb"]}
MODEL = LanguageModel.train(SAMPLES)


def exact_probability(text, language):
    """p(text | language) as the formula says it, in fractions."""
    counts = {name: Counter(r for t in texts for r in runs(t)) for name, texts in SAMPLES.items()}
    different = len({run for counted in counts.values() for run in counted})
    product = Fraction(1)
    for run in runs(text):
        product *= Fraction(counts[language][run] + 1, counts[language].total() + different)
    return product


def test_runs_of_one_to_three_letters_with_a_space_between_words():
    assert runs("Ab, 1c") == [" ", "a", "b", " ", "c", " ", " a", "ab", "b ", " c", "c ",
                              " ab", "ab ", "b c", " c "]  # fmt: skip


@given(text=st.text("ab c", max_size=12))
def test_log_probabilities_are_those_of_the_formula(text):
    found = MODEL.log_probabilities(text)
    for language in SAMPLES:
        exact = exact_probability(text, language)
        right = math.log(exact.numerator) - math.log(exact.denominator)
        assert found[language] == pytest.approx(right, abs=1e-10)
    total = sum(exact_probability(text, language) for language in SAMPLES)
    guess = MODEL.identify(text)
    best = max(exact_probability(text, language) for language in SAMPLES)
    assert guess.probability == pytest.approx(float(best / total))


def test_a_long_text_does_not_underflow_and_the_prose_of_the_crawl_is_told_apart():
    guess = MODEL.identify("abba " * 10_000)
    assert guess.language == "one"
    assert 0.99 < guess.probability <= 1
    model, wrong, count = default_model(), 0, 0
    for label in Crawl(400, seed=9).labels():
        if label.kind == "prose":
            count += 1
            wrong += model.identify(label.main_text).language != label.language
    assert count > 150
    assert wrong <= 2


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I do not know where the others are, but they will come back soon.", "en"),
        ("Ich weiß nicht, wo die anderen sind, aber sie kommen bald zurück.", "de"),
        ("No sé dónde están los demás, pero volverán pronto.", "es"),
        ("State of the Union: the budget of the United States.", "en"),
    ],
)
def test_sentences_that_no_sample_has(text, language):
    assert default_model().identify(text).language == language


def test_the_step_drops_other_languages_and_texts_without_letters():
    keep = KeepLanguage(model=default_model())
    assert keep("The dog ran home.") == "The dog ran home."
    assert keep("Der Hund lief schnell nach Hause.").reason == "not in en"
    assert keep("12 + 30 = 42").reason == "no letters"
    assert isinstance(keep(""), Dropped)
    strict = KeepLanguage(model=default_model(), least=1.0)
    assert strict("no").detail.endswith(f"{default_model().identify('no').probability:.2f}")


@pytest.mark.parametrize(
    "text",
    ["Я не знаю, где другие, но они скоро вернутся.", "Δεν ξέρω πού είναι οι άλλοι.", "Żółć."],
)
def test_a_language_that_the_model_has_never_seen_is_not_taken_for_english(text):
    outcome = KeepLanguage(model=default_model(), least=0.0)(text)
    assert isinstance(outcome, Dropped)
    assert outcome.reason in ("in no language that is known", "not in en")


def test_the_limits_are_used_and_a_text_is_judged_by_its_beginning_without_blanks():
    text = "No, he said, it is not."
    share = default_model().identify(text).probability
    assert KeepLanguage(model=default_model(), least=share - 1e-9)(text) == text
    known = KeepLanguage(model=default_model(), least_known=1.0)(text)
    assert known.reason == "in no language that is known"
    unsure = "zx qv"
    found = default_model().identify(unsure)
    strict = KeepLanguage(model=default_model(), language=found.language, least=1.0)
    assert strict(unsure).reason == f"not in {found.language}"
    assert KeepLanguage(model=default_model())(" " * 5_000 + text) == " " * 5_000 + text
    text = "The dog and the cat. " * 200
    assert len(text) > MOST_CHARACTERS
    model = default_model()
    assert model.log_probabilities(text) == model.log_probabilities(text[:MOST_CHARACTERS])
