"""Stories: the grammar's probabilities, entropy and recogniser agree with brute force."""

import hashlib
import math
import random
import re
from collections import Counter

import pytest
from edits import edited
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.data import corpus
from llmcourse.data.corpus.grammar import Grammar
from llmcourse.data.corpus.story_grammar import STORY_GRAMMAR
from llmcourse.data.corpus.story_lexicon import CLASSES
from llmcourse_labs import study

SAMPLE = corpus.stories(25_000, seed=1)

# Everything the engine can do, small enough to list: two plots of different length, a silent
# template, two variables of one class, a variable first met in one branch only, hidden values.
SMALL = {
    "classes": {
        "child": ({"": "Al", "he": "he"}, {"": "Bea", "he": "she"}, {"": "Cornelia", "he": "she"}),
        "thing": ({"": "ax", "a": "an ax"}, {"": "banana", "a": "a banana"}),
        "sum": (
            {"start": "two", "result": "one"},
            {"start": "two", "result": "zero"},
            {"start": "three", "result": "two"},
        ),
    },
    "variables": {"hero": "child", "friend": "child", "thing": "thing", "sum": "sum"},
    "plots": (
        (
            ("{hero} met {friend}.", "{hero} was here."),
            ("", "{hero.he} had {thing.a}.", "{friend} had {thing.a}."),
            ("The {thing} fell.", "{friend} slept."),
        ),
        (("{hero} had {sum.start}.",), ("", "{hero.he} lost some."), ("{sum.result} left.",)),
    ),
}


def list_texts(grammar):
    """Every (text, probability), by recursion over strings: shares no code with the engine."""

    def fill(sentence, values):
        slot = re.search(r"\{(\w+)\.?(\w*)\}", sentence)
        if not slot:
            yield sentence[0].upper() + sentence[1:], values, 1.0
            return
        variable, form = slot.groups()
        kind = grammar["variables"][variable]
        taken = [v for name, v in values.items() if grammar["variables"][name] == kind]
        options = (
            [values[variable]]
            if variable in values
            else [v for v in grammar["classes"][kind] if v not in taken]
        )
        for value in options:
            filled = sentence[: slot.start()] + value[form] + sentence[slot.end() :]
            for text, after, p in fill(filled, {**values, variable: value}):
                yield text, after, p / len(options)

    def tell(beats, values):
        if not beats:
            yield [], 1.0
            return
        for template in beats[0]:
            told = fill(template, values) if template else [(None, values, 1.0)]
            for text, after, p in told:
                for rest, q in tell(beats[1:], after):
                    yield ([text] if text else []) + rest, p * q / len(beats[0])

    for plot in grammar["plots"]:
        for sentences, p in tell(plot, {}):
            yield " ".join(sentences), p / len(grammar["plots"])


LISTED = list(list_texts(SMALL))
TRUE_BITS = -sum(p * math.log2(p) for _, p in LISTED)
TRUE_BYTES = sum(p * len(text) for text, p in LISTED)


def measured(grammar):
    bits, length = grammar.expected_bits_and_bytes()
    close = {"rel_tol": 1e-12, "abs_tol": 0.0}
    return math.isclose(bits, TRUE_BITS, **close) and math.isclose(length, TRUE_BYTES, **close)


def test_entropy_and_length_equal_those_of_the_list_of_all_texts():
    assert math.isclose(sum(p for _, p in LISTED), 1, rel_tol=1e-12)
    assert len({text for text, _ in LISTED}) == len(LISTED) > 50
    assert measured(Grammar(**SMALL))


WRONG = {
    "values come again": (" - taken[kind]", ""),
    "variables are drawn again": (" if v not in drawn]", "]"),
    "forgets spaces": ("length = 1.0 if template else 0.0", "length = 0.0"),
    "takes the first value": (
        "sum(len(value[piece.form]) for value in values) / len(values)",
        "len(values[0][piece.form])",
    ),
    "speaks the silent template": ("length = 1.0 if template else 0.0", "length = 1.0"),
}


@pytest.mark.parametrize("mutant", WRONG)
def test_list_of_all_texts_rejects_a_wrong_entropy(mutant):
    assert not measured(edited(Grammar, WRONG[mutant])(**SMALL))


def test_parser_finds_the_one_derivation_and_probability_that_samples_have():
    grammar = Grammar(**SMALL)
    for text, p in LISTED:
        (only,) = grammar.derivations(text)
        assert math.isclose(2**only.log2_probability, p, rel_tol=1e-12)
    grammar, rng, count = Grammar(**SMALL), random.Random(3), 20_000
    seen = Counter(grammar.sample(rng)[0] for _ in range(count))
    assert set(seen) <= {text for text, _ in LISTED}
    chi2 = sum((seen[text] - count * p) ** 2 / (count * p) for text, p in LISTED)
    freedom = len(LISTED) - 1
    assert abs(chi2 - freedom) < 4 * math.sqrt(2 * freedom)  # mean and deviation of chi-square
    rng = random.Random(4)
    for _ in range(200):
        text, drawn = STORY_GRAMMAR.sample(rng)
        (only,) = STORY_GRAMMAR.derivations(text)
        assert only.templates == drawn.templates
        assert only.values == drawn.values
        assert math.isclose(only.log2_probability, drawn.log2_probability, rel_tol=1e-12)


@pytest.fixture(scope="module")
def bits_and_bytes():
    rng = random.Random(5)
    drawn = [STORY_GRAMMAR.sample(rng) for _ in range(12_000)]
    return [(-d.log2_probability, len(t) + len(corpus.END_OF_TEXT)) for t, d in drawn]


def standard_errors_away(claim, pairs):
    """Distance of a claimed ratio from sum(bits) / sum(bytes), by the delta method."""
    count = len(pairs)
    mean_length = sum(n for _, n in pairs) / count
    residuals = [bits - claim * n for bits, n in pairs]
    mean = sum(residuals) / count
    variance = sum((r - mean) ** 2 for r in residuals) / (count - 1)
    return abs(mean / mean_length) / (math.sqrt(variance / count) / mean_length)


def test_entropy_agrees_with_monte_carlo(bits_and_bytes):
    assert standard_errors_away(corpus.stories_entropy(), bits_and_bytes) < 3


@pytest.mark.parametrize("mutant", ["variables are drawn again", "forgets spaces"])
def test_monte_carlo_rejects_a_wrong_entropy(mutant, bits_and_bytes):
    g = STORY_GRAMMAR
    wrong = edited(Grammar, WRONG[mutant])(classes=g.classes, variables=g.variables, plots=g.plots)
    bits, length = wrong.expected_bits_and_bytes()
    assert standard_errors_away(bits / (length + len(corpus.END_OF_TEXT)), bits_and_bytes) > 3


def test_entropy_counts_the_separator(bits_and_bytes):
    bits, length = STORY_GRAMMAR.expected_bits_and_bytes()
    assert corpus.stories_entropy() < bits / length
    assert standard_errors_away(bits / length, bits_and_bytes) > 3


def test_text_is_the_same_for_ever():
    digest = hashlib.sha256(corpus.stories(10_000, seed=0).encode()).hexdigest()
    assert digest == "36bf211b8445cdc1e0708bb870d2e0f07810799b8ceb101e378e1021033bb2be"
    assert corpus.stories(2_000, seed=0) != corpus.stories(2_000, seed=1)


@given(st.integers(1, 3000), st.integers(0, 2**64))
def test_whole_stories_reach_the_length_and_no_more(num_bytes, seed):
    text = corpus.stories(num_bytes, seed)
    assert text.isascii()
    *told, end = text.split(corpus.END_OF_TEXT)
    assert end == ""
    assert len(text) >= num_bytes
    last = len(told[-1]) + len(corpus.END_OF_TEXT)
    assert len(text) - last < num_bytes
    assert last < 500
    assert corpus.stories(num_bytes + 1000, seed).startswith(text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corpus.stories(1e6, 0), "num_bytes"),
        (lambda: corpus.stories(10, True), "seed must be an integer"),
        (lambda: corpus.stories(10, "7"), "seed"),
        (lambda: study.story_report([1, 2]), "text"),
    ],
)
def test_arguments_of_other_types_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_stories_are_friendly_to_a_small_model_and_their_words_are_listed():
    told = SAMPLE.split(corpus.END_OF_TEXT)[:-1]
    sentences = [re.findall(r"[^.]+\.", story) for story in told]
    assert {len(story) for story in sentences} <= set(range(5, 11))
    lengths = [len(one.split()) for story in sentences for one in story]
    assert min(lengths) >= 3
    assert max(lengths) <= 12
    assert 250 <= len(corpus.story_words()) <= 320
    assert len(set(told)) == len(told)
    long = corpus.stories(400_000, seed=8).replace(corpus.END_OF_TEXT, " ")
    assert set(re.findall("[a-z]+", long.lower())) == corpus.story_words()


@pytest.mark.parametrize(
    "text", ["", "Tom had a car.", "Once there was a boy named Tom. He had two apples.", "x" * 99]
)
def test_what_is_no_story_has_no_derivation(text):
    assert not list(STORY_GRAMMAR.derivations(text))


def is_story_sentence(sentence):
    return any(True for _ in STORY_GRAMMAR.readings(sentence))


RIGHT_AND_WRONG = {
    "article before a vowel": ("He played with an old drum.", "He played with a old drum."),
    "article before a consonant": ("He played with a big hat.", "He played with an big hat."),
    "tense": ("One day Tom went to the park.", "One day Tom goes to the park."),
    "number": ("On Monday Mia was by the lake.", "On Monday Mia were by the lake."),
    "swapped words": ("One day Tom went to the park.", "One day went Tom to the park."),
    "unknown name": ("Emma came to help.", "Gwen came to help."),
    "unknown word": ("Soon the owl was happy.", "Soon the owl was furious."),
    "pronoun of another child": ("She had six eggs in her bag.", "She had six eggs in his bag."),
    "boy and girl": ("Once there was a girl named Mia.", "Once there was a boy named Mia."),
    "one child twice": ("So Tom gave the kite to Mia.", "So Tom gave the kite to Tom."),
    "preposition": ("On Monday Tom was at the beach.", "On Monday Tom was in the beach."),
    "class of word": ("Tom found the ball under the bed.", "Tom found the happy under the bed."),
    "impossible number": ("He had two eggs.", "He had nine eggs."),
    "capital": ("He had two eggs.", "he had two eggs."),
    "final mark": ("He had two eggs.", "He had two eggs"),
    "space": ("He had two eggs.", " He had two eggs."),
    "double space": ("He had two eggs.", "He had  two eggs."),
    "quotation mark": ('"Good friends share," said Mom.', "Good friends share, said Mom."),
    "speaker": ('"I can fix it," said Mom.', '"I can fix it," said Tom.'),
    "a word too many": ("He had two eggs.", "He had two big eggs."),
    "two sentences": ("He had two eggs.", "He had two eggs. He had two eggs."),
    "nothing": ("He had two eggs.", ""),
}


@pytest.mark.parametrize("mutant", RIGHT_AND_WRONG)
def test_recogniser_rejects_a_broken_sentence(mutant):
    right, wrong = RIGHT_AND_WRONG[mutant]
    assert is_story_sentence(right)
    assert not is_story_sentence(wrong)


def test_recogniser_accepts_exactly_the_listed_sentences():
    grammar = Grammar(**SMALL)
    possible = {s for text, _ in LISTED for s in re.findall(r"[^ .][^.]*\.", text)}
    words = sorted({word for s in possible for word in s[:-1].split()})
    for one in possible:
        assert any(True for _ in grammar.readings(one)), one
    candidates = {f"{a} {b} {c}." for a in words for b in words for c in words}
    accepted = {one for one in candidates if any(True for _ in grammar.readings(one))}
    assert accepted == {one for one in possible if len(one.split()) == 3}


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_recogniser_rejects_any_sentence_with_two_words_swapped(pick, where):
    # Sentences with two words of one class, or the same word twice, may stay right: left out.
    sentences = [s for s in re.findall(r"[A-Z][^.<]*\.", SAMPLE) if '"' not in s]
    words = sentences[pick % len(sentences)][:-1].split()
    at = where % (len(words) - 1)
    swapped = words.copy()
    swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
    if words[at] != words[at + 1]:
        assert not is_story_sentence(" ".join(swapped) + ".")


def test_report_finds_nothing_wrong_with_the_stories():
    report = study.story_report(SAMPLE)
    for name in ("words", "sentences", "agreement", "articles", "persistence", "counting"):
        tally = getattr(report, name)
        assert tally.right == tally.total > 10, name
        assert tally.share == 1.0


LESS = (
    "Once there was a boy named Tom. He had five apples. Mia had no apples and was sad. "
    'Tom gave two of them to Mia. "You are so kind," said Mia. Now Tom had three apples left.'
)
MORE = (
    "One day Mia went to the park. She had two eggs. "
    "Then Mia saw one more in the box. There were three eggs in all."
)
TOY = (
    "One day Tom went to the park. He had an orange kite and loved it. But then the kite was lost."
)


@pytest.mark.parametrize(
    ("text", "right", "wrong", "tally"),
    [
        (LESS, "had three apples left", "had four apples left", "counting"),
        (MORE, "were three eggs", "were five eggs", "counting"),
        (LESS, "He had", "She had", "agreement"),
        (MORE, "She had", "He had", "agreement"),
        (TOY, "an orange", "a orange", "articles"),
        (TOY, "the kite was", "the robot was", "persistence"),
        (TOY, "loved", "lovd", "words"),
        (TOY, "loved", "lovd", "sentences"),
        (TOY, "the kite was lost.", "the kite<|endoftext|>", "sentences"),
    ],
)
def test_report_counts_a_planted_mistake(text, right, wrong, tally):
    before = getattr(study.story_report(text), tally)
    after = getattr(study.story_report(text.replace(right, wrong)), tally)
    assert before.right == before.total
    assert (after.right, after.total) == (before.right - 1, before.total)


def test_report_does_not_judge_across_stories():
    report = study.story_report(TOY + "<|endoftext|>Now she had the kite.")
    assert (report.agreement.right, report.agreement.total) == (1, 1)
    assert (report.persistence.right, report.persistence.total) == (1, 2)


@pytest.mark.parametrize(
    ("text", "sentences", "words"),
    [
        ("ad two eggs. Tom came to help. One day To", (1, 1), (8, 8)),
        ("<|endoftext|>Tom came to help. Tom", (1, 1), (4, 4)),
        ("Tom came to help. Tom<|endoftext|>", (1, 2), (5, 5)),
        ("zq zq zq", (0, 0), (0, 1)),
        ("", (0, 0), (0, 0)),
    ],
)
def test_report_on_cut_and_broken_text(text, sentences, words):
    report = study.story_report(text)
    assert (report.sentences.right, report.sentences.total) == sentences
    assert (report.words.right, report.words.total) == words
    assert math.isnan(report.sentences.share) == (sentences == (0, 0))  # which passes no threshold
    assert math.isnan(report.words.share) == (words == (0, 0))


@given(st.text(max_size=200) | st.text('aTom an. !?"<|endoftext|>', max_size=200))
def test_report_survives_any_text(text):
    report = study.story_report(text)
    assert 0 <= report.words.right <= report.words.total
    assert 0 <= report.sentences.right <= report.sentences.total


@given(st.integers(0, len(SAMPLE) - 500), st.integers(0, 500))
def test_report_forgives_a_cut_inside_a_sentence(start, length):
    report = study.story_report(SAMPLE[start : start + length])
    # At most the first sentence and word can look whole and be cut; the separator may be cut too.
    assert report.sentences.total - report.sentences.right <= 2
    assert report.words.total - report.words.right <= 2


NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def test_sums_in_the_lexicon_are_right():
    value = {word: i for i, word in enumerate(NUMBERS)}
    for kind, sign in (("less", -1), ("more", 1)):
        for one in CLASSES[kind]:
            assert value[one["start"]] + sign * value[one["change"]] == value[one["result"]] >= 2
