"""Hidden tests of the exercises of chapter 10."""

import math
from itertools import chain, combinations

from llmcourse.model import ModelConfig
from llmcourse.scale import cost

# name: vocabulary, width, layers, query heads, key/value heads, head size, hidden, tied
PUBLISHED = {
    "Llama 3 70B": (128_256, 8_192, 80, 64, 8, 128, 28_672, False),
    "Llama 3 405B": (128_256, 16_384, 126, 128, 8, 128, 53_248, False),
    "LLaMA 7B": (32_000, 4_096, 32, 32, 32, 128, 11_008, False),
    "Llama 3.2 1B": (128_256, 2_048, 16, 32, 8, 64, 8_192, True),
}
SETTINGS = (
    "vocab_size",
    "width",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_size",
    "hidden",
    "tied",
)


def invented(rng, *, tied):
    """Return a shape whose heads together are not as wide as the stream."""
    num_kv_heads, head_size = rng.randrange(1, 9), 2 * rng.randrange(4, 99)
    num_heads = num_kv_heads * rng.randrange(2, 9)
    # One more than a multiple of the heads, so that width / heads is not even whole.
    width = num_heads * rng.randrange(9, 99) + 1
    if width == num_heads * head_size:
        width += num_heads
    vocab_size, num_layers = rng.randrange(256, 200_000), rng.randrange(2, 99)
    hidden = rng.randrange(64, 20_000)
    return vocab_size, width, num_layers, num_heads, num_kv_heads, head_size, hidden, tied


def config_of(shape):
    """Return the package's configuration of a shape."""
    settings = dict(zip(SETTINGS, shape, strict=True))
    tied = settings.pop("tied")
    return ModelConfig(**settings, tied_head=tied, context_length=64)


def check_1(t, call, rng):
    """Four published shapes and two invented ones."""
    models = PUBLISHED | {
        f"an invented shape, tied: {x}": invented(rng, tied=x) for x in (False, True)
    }
    for name, shape in models.items():
        settings = dict(zip(SETTINGS, shape, strict=True))
        answer = call("num_parameters", **settings)
        t.equal(answer, cost.num_parameters(config_of(shape)), f"{name}: {settings}")


def check_2(t, call, rng):
    """Published and invented models, short texts and long ones."""
    models = PUBLISHED | {
        f"an invented shape, tied: {x}": invented(rng, tied=x) for x in (False, True)
    }
    for name, shape in models.items():
        config = config_of(shape)
        parts = cost.parameters_by_part(config)
        for length in (1, rng.randrange(2, 50), rng.randrange(3_000, 200_000)):
            answer = call(
                "training_flop",
                parts,
                config.num_layers,
                config.num_heads,
                config.head_size,
                length,
            )
            right = cost.training_flop_per_token(config, context_length=length)
            t.close(answer, right, f"{name}, {length:,} tokens", relative=1e-12)


def is_halfway(number):
    """Say whether a number is too near to the middle of two whole ones to be rounded safely."""
    return abs(number % 1 - 0.5) < 0.02


def check_3(t, call, rng):
    """Budgets from thousands to trillions; among them shapes that come out exactly."""
    for layers, width, multiple in ((12, 768, 64), (1, 96, 32), (126, 16_384, 128)):
        answer = call("shape", 12 * layers * width**2, width / layers, multiple)
        t.equal(answer, (layers, width), f"{layers} layers of {width}")
    done = 0
    while done < 20:
        budget = round(10 ** rng.uniform(5, 13))
        ratio, multiple = rng.uniform(5, 400), rng.choice([1, 8, 64])
        exact = math.cbrt(budget / 12 / ratio**2)
        layers = max(1, round(exact))
        steps = math.sqrt(budget / 12 / layers) / multiple
        if is_halfway(exact) or is_halfway(steps) or steps < 1:
            continue
        answer = call("shape", budget, ratio, multiple)
        case = f"{budget:,} parameters, ratio {ratio:.2f}, multiples of {multiple}"
        t.equal(answer, (layers, round(steps) * multiple), case)
        done += 1
    t.equal(call("shape", 12 * 40 * 40, 10_000, 8), (1, 40), "there is at least one layer")
    t.equal(call("shape", 12 * 3 * 3, 3, 8), (1, 8), "the width is at least one multiple")


def fitting(parts, billions, decimals):
    """Return the smallest sets of parts without which the count rounds to a figure."""
    names = sorted(parts)
    sets = chain.from_iterable(combinations(names, n) for n in range(len(names) + 1))
    kept = {left: sum(parts[name] for name in names if name not in left) for left in sets}
    fits = [left for left, count in kept.items() if round(count / 1e9, decimals) == billions]
    fewest = min(map(len, fits), default=0)
    return sorted(list(left) for left in fits if len(left) == fewest)


def check_4(t, call, rng):
    """Figures of published models, right ones and others, and invented parts."""
    for name in ("Llama 3 405B", "Llama 3.2 1B"):
        parts = cost.parameters_by_part(config_of(PUBLISHED[name]))
        total = sum(parts.values())
        for decimals in (1, 3):
            for missing in ((), ("head",), ("attention",), ("embedding", "feed_forward")):
                figure = round((total - sum(parts[part] for part in missing)) / 1e9, decimals)
                expected = fitting(parts, figure, decimals)
                answer = call("left_out", parts, figure, decimals)
                t.equal(answer, expected, f"{name} as {figure} billion")
    cases = [
        # Without "b" it is 4.04; so it is without "c" and "d" together.
        ({"a": 10**9, "d": 2 * 10**9, "b": 3 * 10**9, "c": 10**9, "e": 4 * 10**7}, 4.0, 1),
        # 2.96 is printed as 3.0.
        ({"x": 2_960_000_000, "w": 5 * 10**9, "v": 5 * 10**9}, 3.0, 1),
        ({"x": 2_960_000_000, "w": 5 * 10**9, "v": 5 * 10**9}, 8.0, 1),
        ({"x": 2_960_000_000, "w": 5 * 10**9, "v": 5 * 10**9}, 13.0, 1),
        ({"x": 2_960_000_000, "w": 5 * 10**9, "v": 5 * 10**9}, 7.9, 1),
    ]
    for _ in range(6):
        letters = rng.sample("abcdefgh", 5)
        parts = {letter: rng.randrange(10, 60) * 10**8 + rng.randrange(10**6) for letter in letters}
        parts[letters[0]] = parts[letters[1]]
        gone = rng.sample(letters, rng.randrange(1, 4))
        figure = round(sum(parts[x] for x in letters if x not in gone) / 1e9, 1)
        cases.append((parts, figure, 1))
    for parts, figure, decimals in cases:
        t.equal(
            call("left_out", parts, figure, decimals),
            fitting(parts, figure, decimals),
            f"{figure} billion of {parts}",
        )
