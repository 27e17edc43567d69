"""Hidden tests of the exercises of chapter 10."""

import functools

import torch

from llmcourse import nutshell
from llmcourse.data import corpus
from llmcourse.model import ModelConfig
from llmcourse_labs.scale import cost

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


def check_3(t, call, rng):
    """Blocks of several widths and lengths, in batches and alone."""
    for shape in ((1, 2), (5, 8), (3, 4, 6)):
        drawn = torch.Generator().manual_seed(rng.randrange(10**6))
        x = 2 * torch.randn(*shape, generator=drawn, dtype=torch.float64)
        D = shape[-1]
        gains = [torch.rand(D, generator=drawn, dtype=torch.float64) + 0.5 for _ in range(2)]
        w_a, w_f = (torch.randn(D, D, generator=drawn, dtype=torch.float64) for _ in range(2))
        read = x / x.square().mean(-1, keepdim=True).sqrt() * gains[0]
        half = x + read.cumsum(-2) @ w_a.T
        read = half / half.square().mean(-1, keepdim=True).sqrt() * gains[1]
        right = half + (read @ w_f.T).clamp(min=0)
        after, kept = call("computed", x, gains[0], w_a, gains[1], w_f)
        t.close(after, right, f"a stream of {shape}", relative=1e-9, absolute=1e-9)
        t.equal(kept, x, "the tensor that came in")


def drawn_with(logits, temperature, top_k, top_p):
    """Return the probabilities, token by token in Python."""
    if temperature == 0:
        first = max(range(len(logits)), key=lambda i: logits[i])
        return [float(i == first) for i in range(len(logits))]
    top = max(logits)
    weights = torch.tensor([(z - top) / temperature for z in logits], dtype=torch.float64).exp()
    p = (weights / weights.sum()).tolist()
    order = sorted(range(len(p)), key=lambda i: -p[i])
    if top_k is not None:
        for i in order[top_k:]:
            p[i] = 0.0
        p = [each / sum(p) for each in p]
    if top_p is not None:
        reached = 0.0
        for i in order:
            reached, p[i] = reached + p[i], p[i] if reached < top_p else 0.0
        p = [each / sum(p) for each in p]
    return p


def check_4(t, call, rng):
    """Vocabularies of several sizes, with each knob alone and all together."""
    ways = [(0, None, None), (0.3, None, None), (2.5, None, None), (1.0, 3, None), (1.0, 1, None)]
    ways += [(1.0, None, 0.3), (1.0, None, 0.9), (1.0, None, 1.0), (0.7, 4, 0.6), (1.3, 5, 0.8)]
    for vocab_size in (5, 12, 40):
        logits = [rng.gauss(0, 2) for _ in range(vocab_size)]
        for temperature, top_k, top_p in ways:
            right = torch.tensor(drawn_with(logits, temperature, top_k, top_p), dtype=torch.float64)
            case = f"V = {vocab_size}, temperature {temperature}, top_k {top_k}, top_p {top_p}"
            given = torch.tensor(logits, dtype=torch.float64)
            found = call("next_token_probabilities", given, temperature, top_k, top_p)
            t.close(found, right, case, relative=1e-9, absolute=1e-12)
    equal = torch.tensor([1.0, 5.0, 5.0])
    found = call("next_token_probabilities", equal, 0, None, None)
    t.equal(found, torch.tensor([0.0, 1.0, 0.0]), "the first of equal logits, at temperature 0")


@functools.cache
def trained_again(num_layers, width, hidden, seed):
    """Return the mean loss of the last ten of fifty steps."""
    text = corpus.stories(60_000, seed=0)
    tokenizer = nutshell.Tokenizer(nutshell.learn_merges(text, 300))
    ids = torch.tensor(tokenizer.encode(text))
    shape = nutshell.Config(num_layers, width, head_size=width // 4, hidden=hidden, vocab_size=300)
    torch.manual_seed(seed)
    llama = nutshell.Llama(shape)
    torch.manual_seed(seed)
    drawn = nutshell.batches(ids, 4, 32)
    losses = list(nutshell.train(llama, nutshell.AdamW(llama), drawn, 50, peak=6e-3))
    return sum(losses[-10:]) / 10


def check_5(t, call, rng):
    """Every conclusion, recomputed; one of the six runs is trained again."""
    found = call("experiment")
    shapes, losses = found["shapes"], found["losses"]
    t.equal([shape[0] for shape in shapes], [1, 2, 4], "the layers of the three shapes")
    for L, D, F in shapes:
        size = cost.num_parameters(config_of((300, D, L, 4, 2, D // 4, F, True)))
        t(58_800 <= size <= 61_200, f"{L} layers of {D} with {F} have {size:,} parameters")
    t(all(abs(one - two) > 1e-6 for one, two in losses), "two seeds for each shape")
    place, seed = rng.randrange(3), rng.randrange(2)
    again = trained_again(*shapes[place], seed)
    case = f"{shapes[place]}, seed {seed}: {losses[place][seed]:.3f}, trained again {again:.3f}"
    t(abs(losses[place][seed] - again) < 0.02, case)
    means = [sum(pair) / 2 for pair in losses]
    best = means.index(min(means))
    t.equal(found["best"], shapes[best][0], "the shape with the lowest mean")
    rest = [loss for place, pair in enumerate(losses) if place != best for loss in pair]
    t.equal(found["clear"], max(losses[best]) < min(rest), "whether all its losses are lower")
