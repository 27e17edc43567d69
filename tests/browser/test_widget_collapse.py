"""The lab of chapter 08: the page simulates as plain Python does, and every control obeys."""

import math
import random

from llmcourse_classroom.widgets.collapse import CollapseLab
from llmcourse_labs.study.toy_run import uniform
from tests.browser.hands import enter, press
from tests.browser.kit import holds, pictured, said, table
from tests.browser.twins import compared, twin

WORDS, GENERATIONS = 50, 10
SETTINGS = ("temperature", "fresh", "samples", "seed")


def zipf(count):
    whole = math.fsum(1 / rank for rank in range(1, count + 1))
    return [1 / rank / whole for rank in range(1, count + 1)]


def entropy_bits(p):
    return math.fsum(-x * math.log2(x) for x in p if x > 0)


def sharpened(p, temperature):
    powers = [math.exp(math.log(x) / temperature) if x > 0 else 0.0 for x in p]
    return [x / math.fsum(powers) for x in powers]


def drawn(p, u):
    ends = [math.fsum(p[: i + 1]) for i in range(len(p))]
    return next(i for i, end in enumerate(ends) if u < end or end == ends[-1])


def simulated(source, temperature, fresh, samples, seed):
    found, num_fresh = [source], math.floor(fresh * samples + 0.5)
    for generation in range(GENERATIONS):
        writer = sharpened(found[-1], temperature)
        words = [
            drawn(source if i < num_fresh else writer, uniform(seed, generation * samples + i))
            for i in range(samples)
        ]
        found.append([words.count(word) / samples for word in range(len(source))])
    return found


def distributions(count=50):
    draws = random.Random(8)
    for size in range(2, count):
        weights = [draws.random() ** 3 if draws.random() < 0.7 else 0.0 for _ in range(size)]
        weights[draws.randrange(size)] = 1.0
        yield [x / sum(weights) for x in weights]


GIVEN = [[p] for p in [*distributions(), [1.0, 0.0], [0.25] * 4]]
STRETCHES = {0: 1, 0.2: 1, 0.25: 3, 0.74: 3, 0.75: 4, 0.999: 4, 1.0: 4}
RUNS = [
    [zipf(WORDS), dict(zip(SETTINGS, case, strict=True)), GENERATIONS]
    for case in (
        (1, 0, 200, 1),
        (0.8, 0, 50, 7),
        (1.4, 0.5, 75, 9_999),
        (0.6, 0.07, 333, 0),
        (1, 1, 50, 2),
    )
]
test_the_page_reckons_as_python = compared(
    CollapseLab,
    twin("zipf", [WORDS, 1, 3], zipf, rel=1e-13),
    twin("entropyBits", GIVEN, entropy_bits, rel=1e-12, abs=1e-12),
    twin("alive", GIVEN, lambda p: sum(x > 0 for x in p)),
    twin("sharpened", [[*p, t] for p in GIVEN for t in (0.6, 0.95, 1, 1.4)], sharpened, rel=1e-12),
    twin("drawn", [([[0, 0.25, 0, 0.5, 0.25, 0], u], word) for u, word in STRETCHES.items()]),
    twin("generations", RUNS, lambda p, run, _: simulated(p, **run)),
)


def says_the_end_of(page, **state):
    start = {"temperature": 1, "fresh": 0, "samples": 200, "seed": 1}
    last = simulated(zipf(WORDS), **start | state)[-1]
    words = sum(x > 0 for x in last)
    holds(said(page), f": {words} of 50 words", f"entropy is {entropy_bits(last):.2f} bits")
    return words


def test_the_run_in_words_pictures_and_table(show):
    page = show(CollapseLab())
    words, truth = says_the_end_of(page), f"{entropy_bits(zipf(WORDS)):.2f}"
    holds(said(page), "10 generations of 200 samples at temperature 1", "none of them fresh")
    holds(said(page), f"with {truth} in the source", "commonest word, word ")
    run = simulated(zipf(WORDS), 1, 0, 200, 1)
    rows = [
        [str(g) if g else "source", f"{entropy_bits(p):.2f}", str(sum(x > 0 for x in p))]
        for g, p in enumerate(run)
    ]
    for name, entropy, _ in rows:
        holds(pictured(page, 0), f"{name} {entropy}")
    holds(pictured(page, 1), "source 50, generation 1 ")
    holds(pictured(page, 2), f"{50 - words} of 50 words")
    assert ([row[:3] for row in table(page)], table(page)[0][3]) == (rows, "22.2 %")
    bars = page.locator(".lc-stage > svg").nth(2)  # dead words have a cross
    assert bars.locator("rect").count() == words
    assert bars.locator("path").count() == WORDS - words


def test_every_control_changes_the_run(show):
    page = show(CollapseLab(seed=9_999))
    press(page, "Again, with other chances")  # after the last seed comes the first
    says_the_end_of(page, seed=0)
    state = {"seed": 0}
    for name, label, given in (
        ("temperature", "temperature", 0.75),
        ("fresh", "share of fresh samples", 0.25),
        ("samples", "samples per generation", 150),
    ):
        enter(page, label, str(given))
        state[name] = given
        says_the_end_of(page, **state)
    holds(said(page), "150 samples at temperature 0.75", "25 % of them fresh")
    press(page, "Again, with other chances")
    says_the_end_of(page, **state | {"seed": 1})
