"""The table of all widgets in their extreme states, which test_every_widget.py goes through.

A new widget needs a line here: how it is made, the states in which its pictures and sentences are
longest, and how many kilobytes its page form may have, compressed.
"""

import functools
import itertools
import math
import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from llmcourse import nutshell
from llmcourse.data.corpus import stories
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse.model import ModelConfig, llama3_8b, llama3_405b
from llmcourse.train import TrainConfig
from llmcourse_classroom import widgets
from llmcourse_classroom.measured import PHASES
from llmcourse_classroom.widget import Widget
from llmcourse_classroom.widgets.live import small_run
from llmcourse_classroom.widgets.spikes import MOST_STEPS
from llmcourse_classroom.widgets.targets import Strip
from llmcourse_labs.scale.laws import CHINCHILLA_PRINTED, ParametricLaw

# --- what widgets are made of


def without(row, name):
    """Return a row without one of its names."""
    return {key: value for key, value in row.items() if key != name}


ATTENDED = ["<|end|>", "\n", "The", " cat", " sat", " on", " the", " mat", "."]


def queries_and_keys(*, layers=2, length=9, heads=4, kv_heads=2, size=6, scale=1.5):
    """Random queries and keys of an attention map."""
    generator = torch.Generator().manual_seed(heads * 31 + kv_heads)
    queries = torch.randn(layers, length, heads, size, generator=generator) * scale
    keys = torch.randn(layers, length, kv_heads, size, generator=generator) * scale
    return queries, keys


SHAPE = ("layers", "heads", "kv_heads", "size")


def attention_map(tokens=ATTENDED, **given):
    """An attention map of random numbers."""
    shape = {name: given.pop(name) for name in SHAPE if name in given}
    return widgets.AttentionMap(tokens, *queries_and_keys(length=len(tokens), **shape), **given)


def by_hand(**state):
    """The five probabilities of chapter 02."""
    words = ["a", "mat", "floor", "on", "the"]
    given = {"probabilities": [0.15, 0.10, 0.05, 0.20, 0.50], "words": words, "target": "on"}
    return widgets.StepByHand(**given | state)


def funnel_board(**state):
    """A thousand random pages."""
    draws = random.Random(6)
    rows = [
        [draws.randrange(300), *(draws.random() for _ in range(3)), draws.randrange(2)]
        for _ in range(1_000)
    ]
    return widgets.FunnelBoard(rows, **state)


BATCH_RUNS = {2: [1066.3, 1102.4, 1110.0], 32: [112.3, 120.5], 128: [63.5]}
"""Steps of some batches."""

MIXING_LAW = [
    (1.0, 0.5, (0.0, 1.2, 1.6)),
    (1.5, 0.9, (1.1, 0.0, 0.7)),
    (2.0, 1.2, (0.4, 0.5, 0.0)),
]
"""A law of three sources: c, k and t of each."""


def measured_mixtures():
    """Three runs, not far from that law."""
    return [
        [[1, 0, 0], [1.52, 4.2, 3.8]],
        [[0.5, 0.2, 0.3], [2.51, 3.41, 3.75]],
        [[0.2, 0.2, 0.6], [4.5, 3.1, 3.4]],
    ]


def mixture_triangle(**state):
    """That law with these runs."""
    names = ["stories", "code", "prose"]
    return widgets.MixtureTriangle(names, MIXING_LAW, measured_mixtures(), **state)


def steep_triangle():
    """A law with large losses, and with a source that no mixture changes; long names, no runs."""
    law = [(0.0, 1e-4, (0, 12, 14)), (50.0, 1e-4, (9, 0, 12)), (3.0, 1.0, (0, 0, 0))]
    names = ["W" * 14, "conversations", "encyclopaedias"]
    return widgets.MixtureTriangle(names, law, first=0, second=1, target=names[2])


SMALL_LAW = ParametricLaw(E=0.4, A=60.0, B=900.0, alpha=0.6, beta=0.6)
"""A law of small runs."""


def isoflop_valley(**state):
    """That law with some runs, one of Chinchilla's, and one that is steep."""
    runs = [
        (n, flop / 6 / n, 1.01 * SMALL_LAW.loss(n, flop / 6 / n), flop > 1e13)
        for flop in (1e12, 1e13, 1e14)
        for n in (2e4, 6e4, 2e5, 6e5)
    ]
    steep = ParametricLaw(E=0.0, A=1e9, B=1e-3, alpha=2.0, beta=0.05)
    laws = [
        ("stories", SMALL_LAW, 1e12, 1e14, runs),
        ("Chinchilla, as printed", CHINCHILLA_PRINTED, 6e18, 5.76e23, []),
        ("W" * 24, steep, 1e20, 1e20, []),
    ]
    return widgets.IsoflopValley(laws, **state)


def epoch_runs(*, seeds=3, points=15):
    """Runs on three texts: one that overfits, one that just turns, one that does not."""
    steps = [20 * (i + 1) for i in range(points)]
    away = [0.02 * seed for seed in range(seeds)]
    falling = [5.5 * math.exp(-step / 60) for step in steps]
    rising = [max(0, step - 100) / 90 for step in steps]
    texts = [("20 kB", 4_800, 96.0, 0.004, 1.0), ("80 kB", 19_200, 24.0, 0.3, 0.1)]
    return [
        {
            "name": name,
            "tokens": tokens,
            "epochs": epochs,
            "steps": steps,
            "training": [[loss + least + d for loss in falling] for d in away],
            "held_out": [
                [loss + 0.7 + d + worse * more for loss, more in zip(falling, rising, strict=True)]
                for d in away
            ],
        }
        for name, tokens, epochs, least, worse in [*texts, ("W" * 7, 10**9, 0.001, 0.65, 0.0)]
    ]


def epoch_board(**state):
    """Those runs, with the entropy of the stories."""
    return widgets.EpochBoard(epoch_runs(), floor=0.38, **state)


def leak_rows(*, seeds=3, half=50):
    """Rows of three numbers of copies and of a leak in other words."""
    rows = []
    for copies, leaked, fresh, retold in (
        (0, 5, 6, False),
        (16, 20, 4, False),
        (64, 41, 5, False),
        (64, 17, 5, True),
    ):
        found = bool(copies) and not retold
        rows.append(
            {
                "copies": copies,
                "retold": retold,
                "losses": [0.86 + copies / 2_000 + seed / 100 for seed in range(seeds)],
                "leaked": [min(half, leaked + seed) for seed in range(seeds)],
                "fresh": [fresh] * seeds,
                "canary_p": [0.001 if found else 0.3 + seed / 10 for seed in range(seeds)],
                "order_p": [0.02 if found else 0.4] * seeds,
                "min_k_hits": [copies / 80 if found else 0.06] * seeds,
                "min_k_false": [0.04] * seeds,
                "overlap_leaked": [[1.0, float(found)]] * seeds,
                "overlap_fresh": [[1.0, 0.0]] * seeds,
                "clean_right": [[0, fresh + (0 if found else leaked)]] * seeds,
                "clean_items": [[0, half if found else 2 * half]] * seeds,
            }
        )
    return rows


def leak_board(rows=None, **state):
    """A test of which half leaks, and the search by runs of 3 and of 13 words."""
    given = {"half": 50, "options": 10, "lengths": [3, 13]}
    return widgets.LeakBoard(rows or leak_rows(), **given | state)


def machine_events(*, every=1, steps=12, kill=7, back=6):
    """The log of a little machine: a crawl, a training with a crash, and two short trainings."""
    at, events = 0.0, []

    def note(event, stage, wait=0.5, **about):
        nonlocal at
        at += wait
        events.append({"at": round(at, 2), "event": event, "stage": stage, **about})

    note("begin", "crawl", 0.0)
    note("end", "crawl")
    note("begin", "train", 0.1)
    note("ranks", "train", state="starting", number=4)
    note("ranks", "train", 2.0, state="training", number=4)
    for first, last in ((1, kill), (back + 1, steps)):
        for step in range(first, last + 1, every):
            note("step", "train", step=step, loss=round(6 - step / 3 + step % 2 / 5, 4))
            if step % 3 == 0:
                note("saved", "train", 0.1, step=step)
        if first == 1:
            note("kill", "train", step=kill)
            note("ranks", "train", 0.1, state="killed", number=4)
            note("ranks", "train", 0.0, state="starting", number=4)
            note("resume", "train", 0.0, step=back)
            note("ranks", "train", 1.0, state="training", number=4)
    note("validation", "train", 0.2, step=steps, loss=2.5)
    note("ranks", "train", 0.1, state="ended", number=4)
    note("end", "train")
    note("begin", "sft", 0.1)
    note("ranks", "sft", 0.1, state="training", number=1)
    for step in (1, 2, 3):
        note("step", "sft", step=step, loss=4.0 - step)
    note("end", "sft")
    return events


def machine_board(events=None, **state):
    stages = {"crawl": "crawl", "train": "pre-training", "sft": "answers", "dpo": "preferences"}
    given = {"stages": stages, "mesh": {"dp": 2, "pp": 2}}
    return widgets.MachineBoard(events or machine_events(), **given | state)


TWO_LINES = "a = 3; b = a + a; c = b + b"
PROGRAMS = {
    "two lines": TWO_LINES,
    "with a skip": f"{TWO_LINES}; d = b + c",
    "a neuron": "w = 0.5; x = 3; bias = 1; product = w * x; error = product + bias - 2; "
    "loss = error ** 2",
    "sums": "x = 0.7; y = -1.5e0\nz = 2 - x / 4 + -y * 3 - (x - y) ** 2 / (1 + exp(y)); end = -z",
    "curves": "x = .7; y = 2e-1\n"
    "end = tanh(x) * relu(x) + relu(y) + log(x * 2) ** 3 - 1 / y + x ** -1.5 + 2 ** 3 * 0.5",
}

BOARD_TOKENS = [f"·w{n}" for n in range(300)]
CONTEXTS = ["The state of the", "We must"]


def board_scores():
    """Scores of two contexts over 300 tokens, with a tie at the top."""
    drawn = np.random.default_rng(0).normal(size=(2, len(BOARD_TOKENS))) * 3
    drawn[0, 5] = drawn[0, 9] = drawn[0].max()
    return drawn


def sampling_board(**state):
    """A board of those scores."""
    return widgets.SamplingBoard(CONTEXTS, board_scores(), BOARD_TOKENS, **state)


CURVES = {
    "too low": (1e-4, lambda t: 5.5 - 0.9 * t),
    "good": (3e-3, lambda t: 2.6 + 2.9 * math.exp(-5 * t)),
    "too high but going": (0.03, lambda t: 3.6 + 1.9 * math.exp(-8 * t) + 0.2 * math.sin(60 * t)),
    "diverging": (1.0, lambda t: 5.5 + 20 * t if t < 0.6 else math.nan),
}


def rate_runs(num_points=60, every=5):
    """Four made runs at four rates, the last of which is lost."""
    draw = random.Random(0)
    runs = []
    for name, (rate, curve) in CURVES.items():
        shares = [i / num_points for i in range(num_points)]
        train = [curve(t) + draw.gauss(0, 0.02) for t in shares]
        validation = [curve(t) + 0.1 if i % 6 == 0 else None for i, t in enumerate(shares)]
        steps = [every * i for i in range(num_points)]
        run = {"name": name, "rate": rate, "steps": steps, "train": train}
        runs.append(run | {"validation": validation})
    return runs


PRECAUTIONS = ["clipping", "warm-up", "QK-norm", "low beta2"]


def spiky_run(on, *, steps=120, seed=0):
    """A made run: a falling loss, a jump at 40 unless clipped, one at 80 unless warmed up."""
    draws = random.Random(seed)
    jumps = {40: 0.0 if "clipping" in on else 4.0, 80: 0.0 if "warm-up" in on else 6.0}
    above, losses, norms = 0.0, [], []
    for step in range(steps):
        above = 0.5 * above + jumps.get(step, 0.0)
        calm = 1.5 + 0.5 * math.exp(-step / 15)
        losses.append(calm + above + draws.uniform(-0.05, 0.05))
        norms.append((1 + 3 * above) * draws.uniform(0.9, 1.1))
    if not on:
        losses[100:], norms[100:] = [math.nan] * 20, [math.inf] * 20
    return {"on": list(on), "losses": losses, "norms": norms}


def all_spiky_runs(precautions=PRECAUTIONS, **given):
    """A run for every choice of precautions."""
    choices = itertools.product([False, True], repeat=len(precautions))
    return [spiky_run(list(itertools.compress(precautions, chosen)), **given) for chosen in choices]


def spike_lab(**state):
    return widgets.SpikeLab(PRECAUTIONS, all_spiky_runs(), **state)


def loop_phases():
    """Seven phases with facts as long as those of a real step."""
    facts = [["inputs and targets", "16 × 1,024 token ids each"], ["size", "1,234.5 kB"]]
    return [{"share": 1 / 7, "facts": facts, **phase} for phase in PHASES]


RUN_GROUPS = {"names": ["Max", "Mia", "Tom"], "food": ["pie", "soup"], "one": ["the"]}


def run_matrices(rows=6, columns=8, seed=0):
    """Matrices that change slowly at first and end up with like rows."""
    generator = torch.Generator().manual_seed(seed)
    first, stripes = torch.randn(2, rows, columns, generator=generator, dtype=torch.float64) * 0.1
    stripes = stripes[:1].expand(rows, columns)
    return [first + stripes * moved for moved in (0, 1e-4, 0.02, 1.0, 8.0)]


def run_scrubber(weights=None, steps=(0, 1, 5, 20, 40), groups=RUN_GROUPS, **state):
    """A recorded run of 50 steps."""
    losses = [6.0 / (1 + 0.1 * n) for n in range(50)]
    samples = {1: "zz <b>qq", 20: "the the", 50: "the tea"}
    given = {"losses": losses, "samples": samples, "name": "embedding"} | state
    weights = run_matrices() if weights is None else weights
    return widgets.RunScrubber(list(steps), weights=weights, groups=groups, **given)


def largest_run():
    """A recorded run with as much as a chapter shows."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(40, 48, generator=generator) for _ in range(17)]
    samples = dict.fromkeys(range(17), "word " * 120)
    return widgets.RunScrubber(list(range(17)), [1.234] * 600, samples, weights)


WEIGHT_STEPS = [0, 10, 50, 200]
WEIGHT_LOSSES = [6.2, 4.5, 2.5, 1.75]
FEW = "its largest directions alone"


def weight_checkpoints(m=40, n=60, *, steps=WEIGHT_STEPS, seed=0):
    """A noisy matrix that takes on three directions, one after the other, and some noise."""
    g = torch.Generator().manual_seed(seed)
    start = torch.randn(m, n, generator=g) * 0.05
    left = torch.randn(m, 3, generator=g) * torch.tensor([0.2, 0.1, 0.05])
    right = torch.randn(3, n, generator=g) * 0.2
    return [
        start
        + (1 - math.exp(-step / 80)) * left @ right
        + 0.0002 * math.sqrt(step) * torch.randn(m, n, generator=g)
        for step in steps
    ]


def weight_scrubber(m=40, n=60, **state):
    """Four checkpoints of that matrix."""
    held = weight_checkpoints(m, n)
    return widgets.WeightScrubber("layer 1, up", WEIGHT_STEPS, held, WEIGHT_LOSSES, **state)


def largest_weights():
    """Twelve checkpoints of a matrix that is as large as it may be."""
    steps = list(range(0, 1_200_000, 100_000))
    held = weight_checkpoints(256, 400, steps=steps)
    return widgets.WeightScrubber("a rather long name of a weight matrix", steps, held, [9] * 12)


def hardly_moved():
    """Two checkpoints that differ by rounding."""
    start = torch.eye(30, 40)
    return widgets.WeightScrubber("w", [0, 1], [start, start * (1 + 1e-6)], [1e-7, 2e-7])


def conversations():
    """A conversation of seven tokens and one of three, each with the losses of two models."""
    tokens = ["<|user|>", "two?", "<|end|>", "<|assistant|>", "Two", ".", "<|end|>"]
    roles = ["template", "user", "user", "template", "assistant", "assistant", "assistant"]
    before, after = [5, 4, 7, 8, 3, 7], [5.5, 6, 4, 0.7, 0.1, 0.1]
    first = {"name": "long", "tokens": tokens, "roles": roles}
    first["losses"] = {"before": before, "after": after}
    second = {"name": "short", "tokens": ["<|assistant|>", " a b", "<|end|>"]}
    second |= {"roles": ["template", "assistant", "assistant"]}
    return [first, second | {"losses": {"before": [2.0, 9.5], "after": [1.0, 0.0]}}]


def answer_loss(**state):
    return widgets.AnswerLoss(conversations(), **state)


def hacking_scores(*, seeds=2):
    """A score whose gold turns, and one whose gold does not."""
    kls = [0.0, 0.5, 1.0, 2.0, 4.0]
    turning = [0.0, 0.6, 0.8, 0.5, -0.1]
    return [
        {
            "name": name,
            "runs": [
                [[kl, kl + shift, gold - shift] for kl, gold in zip(kls, golds, strict=True)]
                for shift in (0.1 * seed for seed in range(seeds))
            ],
        }
        for name, golds in (("one judge", turning), ("five judges", kls))
    ]


def hacking_board(**state):
    return widgets.HackingBoard(hacking_scores(), **state)


def largest_hacking():
    """As many scores of as many seeds and points as there may be."""
    rng = random.Random(0)
    scores = [
        {
            "name": f"{n} {'W' * 28}",
            "runs": [[[2.5 * i, rng.gauss(0, 50), rng.gauss(0, 50)] for i in range(40)]] * 8,
        }
        for n in range(6)
    ]
    return widgets.HackingBoard(scores, seed=7, all=True, budget=97.5)


def largest_answers():
    """As many conversations of as many tokens and models as there may be."""
    rng = random.Random(0)
    names = [f"after {n} steps" for n in range(6)]
    chats = [
        {
            "name": f"conversation {n}",
            "tokens": ["".join(rng.choices("abcdefgh", k=8)) for _ in range(60)],
            "roles": ["user"] * 30 + ["assistant"] * 30,
            "losses": {name: [rng.random() * 9 for _ in range(59)] for name in names},
        }
        for n in range(8)
    ]
    return widgets.AnswerLoss(chats, token=59)


def answer_world(**state):
    """Three answers to one prompt, of the page: the best policy turns the reference round."""
    ln3 = 1.0986
    world = {"names": ["short", "kind", "long"], "reference": [1 / 2, 1 / 3, 1 / 6]}
    return widgets.PreferenceBoard(world | {"utilities": [0.0, ln3, 2 * ln3]}, **state)


def largest_world():
    """As many answers as there may be, with long names, and utilities far apart."""
    names = [f"a name of sorts {n}"[-16:] for n in range(6)]
    world = {"names": names, "reference": [1e-6, 0.2, 0.2, 0.2, 0.2, 0.2 - 1e-6]}
    world["utilities"] = [20.0, -20.0, 0.0, 1.0, 2.0, 3.0]
    return widgets.PreferenceBoard(world, beta=0.03)


def token_strips():
    """A story, a packed row, a conversation."""
    story = ["Once", " a", " cat", " sat", ".", "\n", "Then", " it", " left", "."]
    packed = ["A", " cat", ".", "Two", " dogs", "<pad>"]
    chat = ["<|user|>", "two?", "<|end|>", "<|assistant|>", "Two", ".", "<|end|>"]
    roles = ["template", "user", "user", "template", "assistant", "assistant", "assistant"]
    return [
        Strip("story", story),
        Strip("packed", packed, (), [0, 0, 0, 1, 1, -1]),
        Strip("chat", chat, roles),
    ]


def token_strip(**state):
    return widgets.TokenStrip(token_strips(), **state)


def wide_strip():
    """Tokens that no column has room for."""
    words = ["x" * 200, " 東京" * 9, "🙂" * 30, "<|start_of_a_long_special|>"] * 12
    return widgets.TokenStrip([Strip("wide", words)])


def largest_strips():
    """As many strips of as many tokens as there may be."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(48)]
    many = [Strip(str(i), rng.sample(words, 48), ["assistant"] * 48) for i in range(12)]
    return widgets.TokenStrip(many)


PROSE = (
    "The Union's 50 states didn't all vote in 1864; they'll vote again, we've heard, I'm told. "
    "Größe, café, naïve: Straße.  Привет, мир! 東京は日本の首都です。 \n\n"
    "hello world\t\tthe end 🙂🙂 "
) * 3


def merge_board(text="the tea then the teas", **state):
    """A board of eight merges."""
    return widgets.MergeBoard(train_bpe("the tea then the teas", 256 + 8), text, **state)


def large_merge_board():
    """A board of as many merges as a page takes."""
    pairs = itertools.product(range(32, 127), repeat=2)
    merges = [(bytes([a]), bytes([b])) for a, b in pairs][:1_744]
    return widgets.MergeBoard(Tokenizer.from_merges(merges), PROSE[:200])


def prose_board():
    """Long words, and characters of several bytes."""
    return widgets.MergeBoard(train_bpe(PROSE, 420), "x" * 60 + PROSE[:120], applied=20)


BEGINNINGS = ("Tom was very", "Then Tom took the")


def axis_models(count=3, *, samples=2, tokens=5, beginnings=2, name="a model of the axis"):
    """Models whose losses fall from ln 768, the last with a token that is nearly sure."""
    step = math.log(768) / count
    return [
        {
            "name": f"{name} {i}",
            "loss": math.log(768) - step * i,
            "spread": 0.02 * i,
            "knows": f"what model {i} knows",
            "misses": "anything else",
            "samples": [
                f"Sample {n} of <b>model {i}</b>.\nIt ends." for n in range(1, samples + 1)
            ],
            "expects": [
                [(f" word{k}", (1 + i) / count / 2**k) for k in range(tokens)]
                for _ in range(beginnings)
            ],
        }
        for i in range(count)
    ]


def loss_axis(**state):
    """The axis of three models."""
    return widgets.LossAxis(axis_models(), BEGINNINGS, floor=0.383, **state)


def largest_axis():
    """As many models, samples and tokens as a page takes, with long names and odd signs."""
    long = "a rather long name, of forty letters,"
    models = axis_models(12, samples=5, tokens=8, beginnings=3, name=long)
    for each in models:
        each["samples"] = ["word " * 90 + "x" * 200] * 5
        each["expects"][0] = [("\x00", 0.0), ("\n", 1e-9), ("<|endoftext|>", 1.0), (" 東京", 0.5)]
    return widgets.LossAxis(models, ["a", "b " * 40, "c"], floor=0.383, model=models[0]["name"])


TINY_LLAMA = ModelConfig(
    num_layers=1,
    width=16,
    num_heads=2,
    num_kv_heads=1,
    head_size=8,
    hidden=24,
    vocab_size=300,
    context_length=16,
)
"""It trains in no time."""


@functools.cache
def story_merges(count):
    """The merges of some stories."""
    return nutshell.learn_merges(stories(60_000, seed=0), 257 + count)


def tiny_live(widget, *, steps=60, floor=0.6, **given):
    """A run of very few weights, without a recorded one."""
    config = TrainConfig.of(model=TINY_LLAMA, batch_size=4, steps=steps, warmup_steps=5)
    return widget(config, story_merges(43), floor=floor, **given)


def tiny_live_run(**given):
    return tiny_live(widgets.LiveRun, **given)


def tiny_config(**given):
    """A run of very few weights."""
    settings = {"batch_size": 4, "steps": 60, "warmup_steps": 5} | given
    return TrainConfig.of(model=TINY_LLAMA, **settings)


def live_run(**given):
    """The run of the home page, with a recorded one behind it."""
    losses = [0.9 + 5.7 * math.exp(-step / 70) for step in range(400)]
    samples = {0: "x\x00y" * 20, 200: "It was a sunny day.", 400: "word " * 110}
    recorded = {"losses": losses, "samples": samples}
    return widgets.LiveRun(small_run(), story_merges(511), floor=0.383, **recorded | given)


def packing_board(lengths=(2, 3, 4, 5, 3, 1), context=6, **state):
    """A few documents."""
    return widgets.PackingBoard(list(lengths), context, **state)


def sums(passed, of, points=None):
    """Sums of a chapter's exercises, each of two points."""
    points = passed if points is None else points
    return {"passed": passed, "of": of, "points": points, "of_points": 2 * of}


def exercise_sums(**chapters):
    """A summary of exercises: c05=(2, 4) means that two of four of chapter 05 are passed."""
    inside = {number.removeprefix("c"): sums(*given) for number, given in chapters.items()}
    return {"format": 1, "chapters": inside}


def chapter_map(**state):
    """The map of the course."""
    return widgets.ProgressMap(**state)


LONG = "a very long name of a precaution that is on"
HUGE_LOSSES = {"losses": [1e-9, 1e5, 1e12, 3, 4, 5], "norms": [0, 1e9, 1e-7, 3, 2, 2]}


OVER = widgets.CrashLab.files.options[-1]
AFTER = widgets.CrashLab.crash_when.options[-1]


# --- the table


class Entry(NamedTuple):
    """How a widget is made, what makes it in each of its states, and the kilobytes of its page."""

    make: Callable[..., Widget]
    states: list[Callable[[], Widget]]
    kilobytes: int


def entry(make, *states, kilobytes=20):
    """Return the entry of a widget, whose states are what it is made with, or what makes them."""
    made = [s if callable(s) else functools.partial(make, **s) for s in states]
    return Entry(make, made, kilobytes)


REGISTRY = {
    widgets.AnswerLoss: entry(
        answer_loss,
        {},
        {"model": "after", "learn": "all tokens", "conversation": "short", "token": 2},
        lambda: widgets.AnswerLoss(
            [{**conversations()[0], "tokens": ["x" * 40, "東京" * 20, *"abcde"]}], token=2
        ),
        largest_answers,
        kilobytes=60,
    ),
    widgets.AttentionMap: entry(
        attention_map,
        {},
        {"tokens": ["a", " b"], "layers": 1},
        {
            "tokens": ["<|end|>", " extraordinarily", *[" mouse"] * 18],
            "heads": 8,
            "kv_heads": 1,
            "size": 4,
        },
        {"tokens": [" w"] * 18, "layers": 4, "size": 20},
        kilobytes=40,
    ),
    widgets.BatchSlider: entry(
        functools.partial(widgets.BatchSlider, 45.2, BATCH_RUNS),
        {},
        {"batch": 1, "noise": 1},
        {"batch": 1_024, "noise": 1_000},
        {"batch": 1, "noise": 999.5},
        lambda: widgets.BatchSlider(1_000, noise=1_000),
        lambda: widgets.BatchSlider(1_000, batch=1_024, noise=1),
    ),
    widgets.BitPattern: entry(
        widgets.BitPattern, {}, {"format": "fp32"}, {"format": "fp8 e4m3", "number": "nan"}
    ),
    widgets.BlockTapper: entry(
        functools.partial(widgets.BlockTapper, llama3_8b()),
        {},
        {"going": "backward", "box": "attention"},
        lambda: widgets.BlockTapper(
            llama3_405b(), tokens=1_048_576, batch=4_096, keeps="all weights"
        ),
    ),
    widgets.Bowl: entry(
        widgets.Bowl,
        {},
        {
            "steps": 300,
            "learning_rate": 3,
            "lambda_y": 20,
            "noise": 5,
            "momentum": True,
            "adam": True,
        },
    ),
    widgets.BucketTimeline: entry(
        widgets.BucketTimeline,
        {},
        {"preset": "llama3_8b"},
        {"preset": "llama3_8b", "num_ranks": 16_384, "latency_us": 10_000, "bucket_mb": 1},
        {"gigabytes_per_s": 1_000, "latency_us": 0.1, "backward_ms": 10_000},
        {"overlap": False, "bucket_mb": 2},
    ),
    widgets.ClusterBoard: entry(
        widgets.ClusterBoard,
        {},
        {"answer": "shrink", "replicas": 8, "replica_nodes": 4, "hour": 9.25},
        {"answer": "shrink", "replicas": 1, "replica_nodes": 1, "hour": 24},
        {
            "answer": "spare",
            "replicas": 8,
            "replica_nodes": 4,
            "spares": 4,
            "repair": 24,
            "hour": 0,
        },
        {"answer": "wait", "checkpoint": 12, "fails": 23.75, "restart": 4, "repair": 0},
    ),
    widgets.CollapseLab: entry(
        widgets.CollapseLab,
        {},
        {"temperature": 0.6, "samples": 50},
        {"temperature": 1.4, "samples": 2_000, "seed": 9_999},
        {"fresh": 0.95, "temperature": 0.85},
    ),
    widgets.ConfigExplorer: entry(
        widgets.ConfigExplorer, {}, {"preset": "llama3_8b", "context_length": 131_072}
    ),
    widgets.CostCalculator: entry(
        widgets.CostCalculator,
        {},
        {"preset": "GPT-3", "shown": "GPU-hours"},
        {
            "parameters_b": 1e-4,
            "tokens_b": 1e-4,
            "gpus": 1_000_000,
            "gpu": "B200",
            "mfu": 1,
            "price": 0.01,
            "watts": 1,
            "shown": "days",
        },
        {
            "parameters_b": 98_765.4,
            "tokens_b": 1e6,
            "gpus": 1,
            "gpu": "V100",
            "mfu": 0.0123,
            "price": 99.99,
            "watts": 2_000,
            "host_share": 1,
            "pue": 3,
            "shown": "kWh",
        },
    ),
    widgets.CrashLab: entry(
        widgets.CrashLab,
        {},
        {"every": 1, "crash_step": 24, "files": OVER, "weights": False},
        {"crash_step": 1, "shown": 0},
        {"crash_step": 24, "every": 12, "crash_when": AFTER, "moments": False},
    ),
    widgets.EpochBoard: entry(
        epoch_board,
        {},
        {"step": 0, "patience": 1, "seeds": True},
        {"text": "W" * 7, "step": 150, "patience": 15},
        lambda: widgets.EpochBoard(epoch_runs(seeds=5, points=60), floor=6.5, seeds=True),
    ),
    widgets.HackingBoard: entry(
        hacking_board,
        {},
        {"score": "five judges", "budget": 4.0, "seed": 1, "all": True},
        {"budget": 3.35, "all": True},
        largest_hacking,
        kilobytes=40,
    ),
    widgets.FunnelBoard: entry(
        funnel_board,
        {},
        {"english": 0, "words": 0, "similarity": 1.05, "quality": 0},
        {"english": 1, "words": 300, "similarity": 0.1, "quality": 1},
        kilobytes=25,
    ),
    widgets.GoodputPlanner: entry(
        widgets.GoodputPlanner,
        {},
        {"gpus": 1, "gpu_mtbf_h": 1_000_000, "save_s": 3_600, "interval_s": 604_800},
        {"gpus": 1_000_000, "gpu_mtbf_h": 1_000, "restart_s": 7_200, "interval_s": 10},
        {"kept": {"gpus": 1_024, "gpu_mtbf_h": 50_677, "save_s": 59.9, "restart_s": 3_599}},
    ),
    widgets.GraphStepper: entry(
        functools.partial(widgets.GraphStepper, PROGRAMS),
        *({"example": name, "step": 400} for name in PROGRAMS),
    ),
    widgets.KeyRing: entry(
        widgets.KeyRing,
        {},
        {"num_ranks": 2, "step": 1},
        {"num_ranks": 8, "step": 7},
        {"num_ranks": 8, "cut": "zigzag", "step": 8},
        {"num_ranks": 5, "cut": "zigzag", "step": 3},
    ),
    widgets.LeakBoard: entry(
        leak_board,
        {},
        {"copies": 64, "level": 0.5, "words": "3"},
        {"retold": True, "level": 0.001},
        lambda: leak_board(
            [
                {**row, "copies": 900 + place, "retold": False}
                for place, row in enumerate(leak_rows(seeds=5) * 2)
            ],
            copies=905,
        ),
        lambda: leak_board(leak_rows(seeds=1)[:2], half=1_000, options=1_000),
    ),
    widgets.LiveGradient: entry(
        functools.partial(tiny_live, widgets.LiveGradient),
        {},
        {"weight": "embedding", "row": 298, "column": 15, "nudge": 1e-4},
        lambda: widgets.LiveGradient(small_run(), story_merges(511), floor=0.383),
        kilobytes=60,
    ),
    widgets.LivePrompt: entry(
        functools.partial(tiny_live, widgets.LivePrompt),
        {},
        {"prompt": "W" * 200, "temperature": 3},
        {"prompt": "", "temperature": 0.1, "step": 30},
        lambda: widgets.LivePrompt(small_run(), story_merges(511), floor=0.383),
        kilobytes=60,
    ),
    widgets.LiveCrash: entry(
        widgets.LiveCrash,
        {},
        {"restore": "all but the place in the data", "pace": "1 step a second"},
        {"config": tiny_config()},
        kilobytes=60,
    ),
    widgets.LiveRanks: entry(
        widgets.LiveRanks,
        {},
        {"ranks": "4", "sync": False, "pace": "1 step a second"},
        {"config": tiny_config(), "ranks": "1"},
        kilobytes=60,
    ),
    widgets.LiveRun: entry(
        live_run,
        {},
        {"pace": "1 step a second", "learning_rate": 0.3, "step": 200},
        {"losses": [], "samples": {}, "show": ("words", "loss")},
        {"rows": {"W" * 14: ["a"], "one row": ["b"]}, "losses": [900.0] * 3, "samples": {}},
        tiny_live_run,
        kilobytes=60,
    ),
    widgets.LiveSpike: entry(
        widgets.LiveSpike,
        {},
        {"clipping": False, "bad": 10, "pace": "5 steps a second"},
        {"config": tiny_config(), "saved": 20},
        kilobytes=60,
    ),
    widgets.LossAxis: entry(
        loss_axis,
        {},
        {"model": "a model of the axis 0", "beginning": BEGINNINGS[1], "sample": 2},
        lambda: widgets.LossAxis(axis_models(2), BEGINNINGS, floor=0.0, vocab_size=10),
        largest_axis,
        kilobytes=30,
    ),
    widgets.MachineBoard: entry(
        machine_board,
        {},
        {"event": 1, "of": "dpo"},
        {"event": 12},
        lambda: machine_board(machine_events(steps=700, kill=400, back=250), of="sft"),
        kilobytes=40,
    ),
    widgets.MatrixSplitter: entry(
        widgets.MatrixSplitter,
        {},
        {"cut_a": "rows", "cut_b": "columns", "ends": "rows", "ranks": 4, "tokens": 131_072},
        {"network": "single", "cut_a": "whole", "ranks": 3},
        {"network": "linear", "cut_a": "rows", "cut_b": "whole", "ends": "rows"},
    ),
    widgets.MemoryTimeline: entry(
        widgets.MemoryTimeline,
        {},
        {
            "preset": "llama3_405b",
            "choices": ["block"] * 12,
            "context_length": 131_072,
            "moment": 20,
        },
        {"preset": "gpt3", "choices": ["attention", "nothing"], "context_length": 256, "target": 5},
    ),
    widgets.MergeBoard: entry(
        merge_board, {}, {"applied": 500}, prose_board, large_merge_board, kilobytes=60
    ),
    widgets.MeshGrid: entry(
        widgets.MeshGrid,
        {"rank": 16_383},
        {"preset": "llama3_long", "rank": 9_000, "colour": "groups"},
        {"preset": "small", "rank": 15, "colour": "groups"},
        {"preset": "racks"},
        {"preset": "popular", "pp": 128, "cp": 64, "dp": 2, "tp": 1, "batch_tokens": 2**28},
        {"preset": "small", "gpus": 1, "dp": 1, "pp": 1, "cp": 1, "tp": 1},
    ),
    widgets.IntervalLab: entry(
        widgets.IntervalLab,
        {},
        {"items": 5_000, "first": 50, "second": 50, "alike": 100},
        {"items": 10, "first": 100, "second": 0},
        {"items": 37, "first": 0, "second": 0, "seed": 999},
    ),
    widgets.IsoflopValley: entry(
        isoflop_valley,
        {},
        {"budget": 9, "off": 0.05, "law": "Chinchilla, as printed"},
        {"budget": 27, "off": 20, "law": "W" * 24},
        {"budget": 13.2, "off": 3},
    ),
    widgets.MixtureTriangle: entry(
        mixture_triangle,
        {},
        {"first": 1, "second": 0, "target": "stories"},
        {"first": 0.2, "second": 0.2, "target": "prose"},
        steep_triangle,
    ),
    widgets.NormAndGate: entry(
        widgets.NormAndGate,
        {},
        {"first": -3.9, "second": 3.8, "norm": "LayerNorm", "gate": -6, "curve": "ReLU"},
        {"first": 4, "second": 4, "gate": 6},
        {"first": 0, "second": 0},
    ),
    widgets.OptimizerRace: entry(
        widgets.OptimizerRace,
        {},
        {"surface": "rotated bowl", "steps": 300},
        {"surface": "valley", "steps": 300, "sgd_rate": 3, "stretch": 200},
        {"stretch": 1, "steps": 7, "start_x": 0, "start_y": 0},
    ),
    widgets.OrderBoard: entry(
        widgets.OrderBoard,
        {},
        {"before": "6", "after": "6", "stop": 3, "saved": "nothing", "window": 47},
        {"stop": 0, "after": "1"},
        {"stop": 4, "saved": "nothing"},
    ),
    widgets.PackingBoard: entry(
        packing_board,
        {"method": "pack"},
        {"lengths": [200, 90, 14, 61] * 4, "context": 128},
        {"lengths": [128] * 64, "context": 2, "row": 4096},
        {"lengths": range(96, 160), "context": 128},
    ),
    widgets.PreferenceBoard: entry(
        answer_world,
        {},
        {"beta": 0.03, "training": 40, "chosen": "long", "rejected": "short"},
        {"chosen": "kind", "rejected": "kind"},
        largest_world,
    ),
    widgets.ProgressMap: entry(
        chapter_map,
        {},
        {"exercises": exercise_sums(c00=(4, 4), c05=(2, 4)), "progress": {"01": "reading"}},
    ),
    widgets.RateRegimes: entry(
        functools.partial(widgets.RateRegimes, rate_runs()),
        {},
        {"quiz": True, "curve": "B"},
        {"tall": True},
        {"train": False, "validation": False},
        lambda: widgets.RateRegimes(rate_runs(500)),
        kilobytes=40,
    ),
    widgets.RingStepper: entry(
        widgets.RingStepper,
        {},
        {"num_ranks": 2, "step": 1},
        {
            "num_ranks": 8,
            "step": 7,
            "megabytes": 100_000,
            "latency_us": 10_000,
            "gigabytes_per_s": 0.1,
        },
        {"num_ranks": 8, "algorithm": "tree", "step": 3, "megabytes": 0.001, "latency_us": 0.1},
        {"num_ranks": 7, "algorithm": "naive", "step": 12},
    ),
    widgets.RooflineBoard: entry(
        widgets.RooflineBoard,
        {},
        {"work": "a training step", "batch": 1, "length": 8_192},
        {"gpu": "TPUv5p", "shape": "Llama 3 70B", "batch": 4_096, "length": 131_072},
        {"gpu": "V100", "shape": "stories", "work": "a training step", "batch": 1, "length": 1},
        {"gpu": "GB200", "shape": "stories", "batch": 1, "length": 1},
    ),
    widgets.RotaryClocks: entry(
        widgets.RotaryClocks,
        {},
        {"head_size": 2},
        {
            "head_size": 128,
            "theta": 10_000_000,
            "length": 131_072,
            "query": 131_071,
            "key": 131_000,
            "first_pair": 48,
        },
    ),
    widgets.RouterBoard: entry(
        widgets.RouterBoard,
        {},
        {"experts": 4, "experts_per_token": 4, "capacity_factor": 0.3, "token": 24},
        {"skew": 1, "capacity_factor": 1, "sent": 24, "experts_per_token": 4},
        {"scoring": "sigmoid", "biases": [-1.5] * 8, "capacity_factor": 0.05, "skew": 0.4},
        {"scoring": "sigmoid", "capacity_factor": 0.3, "skew": 0.4, "token": 24},
        {"capacity_factor": 0.3, "skew": 0.4, "token": 24},
        {"experts": 2, "capacity_factor": 8, "sent": 5},
    ),
    widgets.RunScrubber: entry(run_scrubber, {}, {"step": 40}, largest_run, kilobytes=60),
    widgets.SamplingBoard: entry(sampling_board, {}, {"draws": 9, "top_k": 3, "top_p": 0.5}),
    widgets.ScheduleDesigner: entry(
        widgets.ScheduleDesigner,
        {},
        {"shape": "wsd", "log_rate": True, "ramp": True},
        {"shape": "llama3_405b", "step": 1_200_001, "view": "end"},
        {"shape": "llama3_405b", "view": "start", "step": 0},
        {"shape": "cosine_anneal", "num_steps": 1, "anneal_steps": 0, "peak": 1, "final": 1},
        {"shape": "cosine_anneal", "num_steps": 2_000_000, "anneal_steps": 2_000_000},
    ),
    widgets.SchedulePlayer: entry(
        widgets.SchedulePlayer,
        {},
        {"schedule": "gpipe", "num_ranks": 8, "micro_batches": 16, "moment": 69},
        {"schedule": "interleaved", "num_ranks": 8, "micro_batches": 16, "chunks": 4},
        {"schedule": "interleaved", "num_ranks": 3, "micro_batches": 16},
        {"schedule": "zero_bubble", "num_ranks": 1, "micro_batches": 1, "moment": 0},
        {"schedule": "zero_bubble", "num_ranks": 8, "micro_batches": 9},
    ),
    widgets.ShareBar: entry(
        widgets.ShareBar,
        {},
        {"preset": "stories"},
        {"preset": "llama3_405b", "hidden": 1, "width": 128, "num_layers": 256},
        {"preset": "llama3_8b", "width": 32_768, "num_kv_heads": 256},
    ),
    widgets.SpikeLab: entry(
        spike_lab,
        {"step": 119},
        {"on": PRECAUTIONS, "watch": "gradient norm", "window": 3},
        lambda: widgets.SpikeLab([LONG], [{"on": [], **HUGE_LOSSES}], factor=1, window=3),
        lambda: widgets.SpikeLab(["a"], [{"on": [], "losses": [2.0] * 5, "norms": [0.0] * 5}]),
        lambda: widgets.SpikeLab(PRECAUTIONS, all_spiky_runs(steps=MOST_STEPS)),
        kilobytes=60,
    ),
    widgets.StepByHand: entry(
        by_hand,
        {},
        {
            "probabilities": [0.001, 0.001, 0.001, 0.001, 0.996],
            "words": ["elephant", "Straße", "c", "d", "we"],
            "target": "elephant",
        },
    ),
    widgets.StepSimulator: entry(
        widgets.StepSimulator,
        {},
        {"preset": "Llama 3 405B, 16,384 GPUs, 131,072 tokens"},
        {"dp": 65_536, "pp": 256, "cp": 1_024, "tp": 128, "batch": 1_048_576},
        {
            "preset": "your own",
            "shape": "PaLM 540B",
            "gpu": "V100",
            "length": 1_048_576,
            "batch": 1_048_576,
            "scores": "kept",
            "zero": "0",
        },
        {"preset": "your own", "gpu": "TPUv5p", "length": 2, "batch": 1},
    ),
    widgets.TokenStrip: entry(
        token_strip,
        {},
        {"strip": "chat", "learn": "assistant"},
        wide_strip,
        largest_strips,
        kilobytes=60,
    ),
    widgets.TrainingLoop: entry(
        lambda **state: widgets.TrainingLoop(loop_phases(), **state), {}, {"phase": 6}
    ),
    widgets.WeightScrubber: entry(
        weight_scrubber,
        {},
        {"m": 3, "n": 200, "view": FEW},
        lambda: widgets.WeightScrubber("w", [3, 7], [np.ones((1, 9)), np.full((1, 9), 2)], [0, 0]),
        hardly_moved,
        largest_weights,
        kilobytes=60,
    ),
    widgets.WavelengthChart: entry(
        widgets.WavelengthChart,
        {},
        {
            "scaling": "llama3",
            "factor": 64,
            "trained": 1_048_576,
            "wanted": 1_048_576,
            "theta": 10_000_000,
            "pairs": 64,
        },
        {"scaling": "linear", "factor": 1, "trained": 8, "wanted": 1_048_576, "pairs": 2},
        {"scaling": "yarn", "factor": 5.5, "trained": 8_192, "wanted": 8_000, "theta": 10},
    ),
    widgets.ZeroBars: entry(
        widgets.ZeroBars,
        {},
        {"preset": "llama3_405b", "stage": 3, "ranks": 16_384, "zoom": True},
        {
            "preset": "llama3_8b",
            "stage": 2,
            "ranks": 1,
            "model_parallel": 1_024,
            "memory_gb": 1_000,
        },
    ),
}
