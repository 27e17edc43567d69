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
    return {key: value for key, value in row.items() if key != name}


ATTENDED = ["<|end|>", "\n", "The", " cat", " sat", " on", " the", " mat", "."]


def queries_and_keys(*, layers=2, length=9, heads=4, kv_heads=2, size=6, scale=1.5):
    generator = torch.Generator().manual_seed(heads * 31 + kv_heads)
    queries = torch.randn(layers, length, heads, size, generator=generator) * scale
    keys = torch.randn(layers, length, kv_heads, size, generator=generator) * scale
    return queries, keys


SHAPE = ("layers", "heads", "kv_heads", "size")


def attention_map(tokens=ATTENDED, **given):
    shape = {name: given.pop(name) for name in SHAPE if name in given}
    return widgets.AttentionMap(tokens, *queries_and_keys(length=len(tokens), **shape), **given)


def by_hand(**state):
    words = ["a", "mat", "floor", "on", "the"]
    given = {"probabilities": [0.15, 0.10, 0.05, 0.20, 0.50], "words": words, "target": "on"}
    return widgets.StepByHand(**given | state)


def funnel_board(**state):
    draws = random.Random(6)
    rows = [
        [draws.randrange(300), *(draws.random() for _ in range(3)), draws.randrange(2)]
        for _ in range(1_000)
    ]
    return widgets.FunnelBoard(rows, **state)


BATCH_RUNS = {2: [1066.3, 1102.4, 1110.0], 32: [112.3, 120.5], 128: [63.5]}
MIXING_LAW = [(1.0, 0.5, (0.0, 1.2, 1.6)), (1.5, 0.9, (1.1, 0.0, 0.7)), (2.0, 1.2, (0.4, 0.5, 0.0))]
"""A law of three sources: c, k and t of each."""


def measured_mixtures():
    return [
        [[1, 0, 0], [1.52, 4.2, 3.8]],
        [[0.5, 0.2, 0.3], [2.51, 3.41, 3.75]],
        [[0.2, 0.2, 0.6], [4.5, 3.1, 3.4]],
    ]


def mixture_triangle(**state):
    names = ["stories", "code", "prose"]
    return widgets.MixtureTriangle(names, MIXING_LAW, measured_mixtures(), **state)


def steep_triangle():
    """A law with large losses, and with a source that no mixture changes; long names, no runs."""
    law = [(0.0, 1e-4, (0, 12, 14)), (50.0, 1e-4, (9, 0, 12)), (3.0, 1.0, (0, 0, 0))]
    names = ["W" * 14, "conversations", "encyclopaedias"]
    return widgets.MixtureTriangle(names, law, first=0, second=1, target=names[2])


SMALL_LAW = ParametricLaw(E=0.4, A=60.0, B=900.0, alpha=0.6, beta=0.6)


def isoflop_valley(**state):
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


def leak_rows(*, seeds=3, half=50):
    rows = []
    for name, leaked, fresh in (("0", 5, 6), ("16", 20, 4), ("64", 41, 5), ("64 retold", 17, 5)):
        copies = int(name.split()[0])
        found = bool(copies) and name.isdecimal()
        rows.append(
            {
                "name": name,
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
BOARD_TOKENS, CONTEXTS = [f"·w{n}" for n in range(300)], ["The state of the", "We must"]


def board_scores():
    drawn = np.random.default_rng(0).normal(size=(2, len(BOARD_TOKENS))) * 3
    drawn[0, 5] = drawn[0, 9] = drawn[0].max()
    return drawn


def sampling_board(**state):
    return widgets.SamplingBoard(CONTEXTS, board_scores(), BOARD_TOKENS, **state)


CURVES = {
    "too low": (1e-4, lambda t: 5.5 - 0.9 * t),
    "good": (3e-3, lambda t: 2.6 + 2.9 * math.exp(-5 * t)),
    "too high but going": (0.03, lambda t: 3.6 + 1.9 * math.exp(-8 * t) + 0.2 * math.sin(60 * t)),
    "diverging": (1.0, lambda t: 5.5 + 20 * t if t < 0.6 else math.nan),
}


def rate_runs(num_points=60, every=5):
    draw, runs = random.Random(0), []
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
    choices = itertools.product([False, True], repeat=len(precautions))
    return [spiky_run(list(itertools.compress(precautions, chosen)), **given) for chosen in choices]


def spike_lab(**state):
    return widgets.SpikeLab(PRECAUTIONS, all_spiky_runs(), **state)


def loop_phases():
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
    losses = [6.0 / (1 + 0.1 * n) for n in range(50)]
    samples = {1: "zz <b>qq", 20: "the the", 50: "the tea"}
    given = {"losses": losses, "samples": samples, "name": "embedding"} | state
    weights = run_matrices() if weights is None else weights
    return widgets.RunScrubber(list(steps), weights=weights, groups=groups, **given)


def largest_run():
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(40, 48, generator=generator) for _ in range(17)]
    samples = dict.fromkeys(range(17), "word " * 120)
    return widgets.RunScrubber(list(range(17)), [1.234] * 600, samples, weights)


WEIGHT_STEPS, WEIGHT_LOSSES = [0, 10, 50, 200], [6.2, 4.5, 2.5, 1.75]
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
    held = weight_checkpoints(m, n)
    return widgets.WeightScrubber("layer 1, up", WEIGHT_STEPS, held, WEIGHT_LOSSES, **state)


def largest_weights():
    steps = list(range(0, 1_200_000, 100_000))
    held = weight_checkpoints(256, 400, steps=steps)
    return widgets.WeightScrubber("a rather long name of a weight matrix", steps, held, [9] * 12)


def hardly_moved():
    start = torch.eye(30, 40)
    return widgets.WeightScrubber("w", [0, 1], [start, start * (1 + 1e-6)], [1e-7, 2e-7])


def conversations():
    tokens = ["<|user|>", "two?", "<|end|>", "<|assistant|>", "Two", ".", "<|end|>"]
    roles = ["template", "user", "user", "template", "assistant", "assistant", "assistant"]
    before, after = [5, 4, 7, 8, 3, 7], [5.5, 6, 4, 0.7, 0.1, 0.1]
    losses = {"before": before, "after": after}
    first = {"name": "long", "tokens": tokens, "roles": roles, "losses": losses}
    second = {"name": "short", "tokens": ["<|assistant|>", " a b", "<|end|>"]}
    second |= {"roles": ["template", "assistant", "assistant"]}
    return [first, second | {"losses": {"before": [2.0, 9.5], "after": [1.0, 0.0]}}]


def answer_loss(**state):
    return widgets.AnswerLoss(conversations(), **state)


def hacking_scores(*, seeds=2):
    kls, turning = [0.0, 0.5, 1.0, 2.0, 4.0], [0.0, 0.6, 0.8, 0.5, -0.1]
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
    rng, names = random.Random(0), [f"after {n} steps" for n in range(6)]
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
    names = [f"a name of sorts {n}"[-16:] for n in range(6)]
    world = {"names": names, "reference": [1e-6, 0.2, 0.2, 0.2, 0.2, 0.2 - 1e-6]}
    world["utilities"] = [20.0, -20.0, 0.0, 1.0, 2.0, 3.0]
    return widgets.PreferenceBoard(world, beta=0.03)


def token_strips():
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
    words = ["x" * 200, " 東京" * 9, "🙂" * 30, "<|start_of_a_long_special|>"] * 12
    return widgets.TokenStrip([Strip("wide", words)])


def largest_strips():
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
    return widgets.MergeBoard(train_bpe("the tea then the teas", 256 + 8), text, **state)


def large_merge_board():
    pairs = itertools.product(range(32, 127), repeat=2)
    merges = [(bytes([a]), bytes([b])) for a, b in pairs][:1_744]
    return widgets.MergeBoard(Tokenizer.from_merges(merges), PROSE[:200])


def prose_board():
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
    return widgets.LossAxis(axis_models(), BEGINNINGS, floor=0.383, **state)


def largest_axis():
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


@functools.cache
def story_merges(count):
    return nutshell.learn_merges(stories(60_000, seed=0), 257 + count)


def tiny_live(widget, *, steps=60, floor=0.6, **given):
    config = TrainConfig.of(model=TINY_LLAMA, batch_size=4, steps=steps, warmup_steps=5)
    return widget(config, story_merges(43), floor=floor, **given)


def tiny_live_run(**given):
    return tiny_live(widgets.LiveRun, **given)


def tiny_config(**given):
    settings = {"batch_size": 4, "steps": 60, "warmup_steps": 5} | given
    return TrainConfig.of(model=TINY_LLAMA, **settings)


def live_run(**given):
    losses = [0.9 + 5.7 * math.exp(-step / 70) for step in range(400)]
    samples = {0: "x\x00y" * 20, 200: "It was a sunny day.", 400: "word " * 110}
    recorded = {"losses": losses, "samples": samples}
    return widgets.LiveRun(small_run(), story_merges(511), floor=0.383, **recorded | given)


def packing_board(lengths=(2, 3, 4, 5, 3, 1), context=6, **state):
    return widgets.PackingBoard(list(lengths), context, **state)


def sums(passed, of, points=None):
    points = passed if points is None else points
    return {"passed": passed, "of": of, "points": points, "of_points": 2 * of}


def exercise_sums(**chapters):
    """A summary of exercises: c05=(2, 4) means that two of four of chapter 05 are passed."""
    inside = {number.removeprefix("c"): sums(*given) for number, given in chapters.items()}
    return {"format": 1, "chapters": inside}


def chapter_map(**state):
    return widgets.ProgressMap(**state)


LONG = "a very long name of a precaution that is on"
HUGE_LOSSES = {"losses": [1e-9, 1e5, 1e12, 3, 4, 5], "norms": [0, 1e9, 1e-7, 3, 2, 2]}
AFTER = widgets.CrashLab.crash_when.options[-1]


# --- the table


class Entry(NamedTuple):
    """A widget, how it is made, what makes it in each state, and the kilobytes of its page."""

    widget: type[Widget]
    make: Callable[..., Widget]
    states: list[Callable[[], Widget]]
    kilobytes: int


def state(**given):
    return given


def entry(widget, *states, make=None, first=None, kilobytes=20):
    """Return the entry of a widget.

    Args:
        states: what it is made with in each state but the first, or what makes it.
        make: makes it, if not its class.
        first: what it is made with in its first state.
    """
    make = make or widget
    made = [s if callable(s) else functools.partial(make, **s) for s in (first or {}, *states)]
    return Entry(widget, make, made, kilobytes)


ENTRIES = [
    entry(
        widgets.AnswerLoss,
        state(model="after", learn="all tokens", conversation="short", token=2),
        lambda: widgets.AnswerLoss(
            [{**conversations()[0], "tokens": ["x" * 40, "東京" * 20, *"abcde"]}], token=2
        ),
        largest_answers,
        make=answer_loss,
        kilobytes=60,
    ),
    entry(
        widgets.AttentionMap,
        state(tokens=["a", " b"], layers=1),
        state(
            tokens=["<|end|>", " extraordinarily", *[" mouse"] * 18], heads=8, kv_heads=1, size=4
        ),
        state(tokens=[" w"] * 18, layers=4, size=20),
        make=attention_map,
        kilobytes=40,
    ),
    entry(
        widgets.BatchSlider,
        state(batch=1, noise=1),
        state(batch=1_024, noise=1_000),
        state(batch=1, noise=999.5),
        lambda: widgets.BatchSlider(1_000, noise=1_000),
        lambda: widgets.BatchSlider(1_000, batch=1_024, noise=1),
        make=functools.partial(widgets.BatchSlider, 45.2, BATCH_RUNS),
    ),
    entry(
        widgets.BitPattern,
        state(format="fp32"),
        state(format="fp8 e4m3", number="nan"),
        kilobytes=25,
    ),
    entry(
        widgets.BlockTapper,
        state(going="backward", box="attention"),
        lambda: widgets.BlockTapper(
            llama3_405b(), tokens=1_048_576, batch=4_096, keeps="all weights"
        ),
        make=functools.partial(widgets.BlockTapper, llama3_8b()),
        kilobytes=25,
    ),
    entry(
        widgets.Bowl,
        state(steps=300, learning_rate=3, lambda_y=20, noise=5, momentum=True, adam=True),
    ),
    entry(
        widgets.BucketTimeline,
        state(preset="llama3_8b"),
        state(preset="llama3_8b", num_ranks=16_384, latency_us=10_000, bucket_mb=1),
        state(gigabytes_per_s=1_000, latency_us=0.1, backward_ms=10_000),
        state(overlap=False, bucket_mb=2),
    ),
    entry(
        widgets.ClusterBoard,
        state(answer="shrink", replicas=8, replica_nodes=4, hour=9.25),
        state(answer="shrink", replicas=1, replica_nodes=1, hour=24),
        state(answer="spare", replicas=8, replica_nodes=4, spares=4, repair=24, hour=0),
        state(answer="wait", checkpoint=12, fails=23.75, restart=4, repair=0),
    ),
    entry(
        widgets.CollapseLab,
        state(temperature=0.6, samples=50),
        state(temperature=1.4, samples=2_000, seed=9_999),
        state(fresh=0.95, temperature=0.85),
    ),
    entry(widgets.ConfigExplorer, state(preset="llama3_8b", context_length=131_072)),
    entry(
        widgets.CostCalculator,
        state(preset="GPT-3", shown="GPU-hours"),
        state(
            parameters_b=1e-4,
            tokens_b=1e-4,
            gpus=1_000_000,
            gpu="B200",
            mfu=1,
            price=0.01,
            watts=1,
            shown="days",
        ),
        state(
            parameters_b=98_765.4,
            tokens_b=1e6,
            gpus=1,
            gpu="V100",
            mfu=0.0123,
            price=99.99,
            watts=2_000,
            host_share=1,
            pue=3,
            shown="kWh",
        ),
    ),
    entry(
        widgets.CrashLab,
        state(every=1, crash_step=24, files=widgets.CrashLab.files.options[-1], weights=False),
        state(crash_step=1, shown=0),
        state(crash_step=24, every=12, crash_when=AFTER, moments=False),
    ),
    entry(
        widgets.FewBitsBoard,
        state(bits=8, block="16", levels="scale alone", part=9, reads="The cat sat"),
        state(bits=2, block="whole row", weights="shuffled, off their grid"),
        kilobytes=40,
    ),
    entry(
        widgets.HackingBoard,
        state(score="five judges", budget=4.0, seed=1, all=True),
        state(budget=3.35, all=True),
        largest_hacking,
        make=hacking_board,
        kilobytes=40,
    ),
    entry(
        widgets.FunnelBoard,
        state(english=0, words=0, similarity=1.05, quality=0),
        state(english=1, words=300, similarity=0.1, quality=1),
        make=funnel_board,
        kilobytes=25,
    ),
    entry(
        widgets.GoodputPlanner,
        state(gpus=1, gpu_mtbf_h=1_000_000, save_s=3_600, interval_s=604_800),
        state(gpus=1_000_000, gpu_mtbf_h=1_000, restart_s=7_200, interval_s=10),
        state(kept={"gpus": 1_024, "gpu_mtbf_h": 50_677, "save_s": 59.9, "restart_s": 3_599}),
    ),
    entry(
        widgets.GraphStepper,
        *(state(example=name, step=400) for name in [*PROGRAMS][1:]),
        make=functools.partial(widgets.GraphStepper, PROGRAMS),
        first=state(step=400),
        kilobytes=25,
    ),
    entry(
        widgets.KeyRing,
        state(num_ranks=2, step=1),
        state(num_ranks=8, step=7),
        state(num_ranks=8, cut="zigzag", step=8),
        state(num_ranks=5, cut="zigzag", step=3),
    ),
    entry(
        widgets.LeakBoard,
        state(copies="64", level=0.5, words="3"),
        state(copies="64 retold", level=0.001),
        lambda: leak_board(
            [
                {**row, "name": f"{900 + place} copies"[:9]}
                for place, row in enumerate(leak_rows(seeds=5) * 2)
            ],
            copies="905 copie",
        ),
        lambda: leak_board(leak_rows(seeds=1)[:2], half=1_000, options=1_000),
        make=leak_board,
    ),
    entry(
        widgets.LiveGradient,
        state(weight="embedding", row=298, column=15, nudge=1e-4),
        lambda: widgets.LiveGradient(small_run(), story_merges(511), floor=0.383),
        make=functools.partial(tiny_live, widgets.LiveGradient),
        kilobytes=60,
    ),
    entry(
        widgets.LivePrompt,
        state(prompt="W" * 200, temperature=3),
        state(prompt="", temperature=0.1, step=30),
        lambda: widgets.LivePrompt(small_run(), story_merges(511), floor=0.383),
        make=functools.partial(tiny_live, widgets.LivePrompt),
        kilobytes=60,
    ),
    entry(
        widgets.LensBoard,
        state(beginning="a question in a chat", layer=19, token=3),
        state(beginning="The capital of Italy is, after two like it", layer=0, token=19),
        state(beginning="7 + 5 =␣", layer=1, token=1),
        kilobytes=40,
    ),
    entry(
        widgets.LiveCrash,
        state(restore="all but the place in the data", pace="1 step a second"),
        state(config=tiny_config()),
        kilobytes=60,
    ),
    entry(
        widgets.LiveRanks,
        state(ranks="4", sync=False, pace="1 step a second"),
        state(config=tiny_config(), ranks="1"),
        kilobytes=60,
    ),
    entry(
        widgets.LiveRun,
        state(pace="1 step a second", learning_rate=0.3, step=200),
        state(losses=[], samples={}, show=("words", "loss")),
        state(rows={"W" * 14: ["a"], "one row": ["b"]}, losses=[900.0] * 3, samples={}),
        tiny_live_run,
        make=live_run,
        kilobytes=60,
    ),
    entry(
        widgets.LiveEpochs,
        state(size="new stories at each step", patience=20, pace="1 step a second"),
        state(config=tiny_config(), patience=1),
        kilobytes=60,
    ),
    entry(
        widgets.LiveSpike,
        state(clipping=False, bad=10, pace="5 steps a second"),
        state(config=tiny_config(), saved=20),
        kilobytes=60,
    ),
    entry(
        widgets.LossAxis,
        state(model="a model of the axis 0", beginning=BEGINNINGS[1], sample=2),
        lambda: widgets.LossAxis(axis_models(2), BEGINNINGS, floor=0.0, vocab_size=10),
        largest_axis,
        make=loss_axis,
        kilobytes=30,
    ),
    entry(
        widgets.MachineBoard,
        state(event=1, of="dpo"),
        state(event=12),
        lambda: machine_board(machine_events(steps=700, kill=400, back=250), of="sft"),
        make=machine_board,
        kilobytes=40,
    ),
    entry(
        widgets.MatrixSplitter,
        state(cut_a="rows", cut_b="columns", ends="rows", ranks=4, tokens=131_072),
        state(network="single", cut_a="whole", ranks=3),
        state(network="linear", cut_a="rows", cut_b="whole", ends="rows"),
    ),
    entry(
        widgets.MemoryTimeline,
        state(preset="llama3_405b", choices=["block"] * 12, context_length=131_072, moment=20),
        state(preset="gpt3", choices=["attention", "nothing"], context_length=256, target=5),
    ),
    entry(
        widgets.MergeBoard,
        state(applied=500),
        prose_board,
        large_merge_board,
        make=merge_board,
        kilobytes=60,
    ),
    entry(
        widgets.MeshGrid,
        state(preset="llama3_long", rank=9_000, axis="cp"),
        state(preset="small", rank=15, axis="pp"),
        state(preset="racks"),
        state(preset="popular", pp=128, cp=64, dp=2, tp=1, batch_tokens=2**28),
        state(preset="small", gpus=1, dp=1, pp=1, cp=1, tp=1),
        first=state(rank=16_383, axis="dp"),
        kilobytes=25,
    ),
    entry(
        widgets.IntervalLab,
        state(items=5_000, first=50, second=50, alike=100),
        state(items=10, first=100, second=0),
        state(items=37, first=0, second=0, seed=999),
    ),
    entry(
        widgets.IsoflopValley,
        state(budget=9, off=0.05, law="Chinchilla, as printed"),
        state(budget=27, off=20, law="W" * 24),
        state(budget=13.2, off=3),
        make=isoflop_valley,
    ),
    entry(
        widgets.MixtureTriangle,
        state(first=1, second=0, target="stories"),
        state(first=0.2, second=0.2, target="prose"),
        steep_triangle,
        make=mixture_triangle,
    ),
    entry(
        widgets.NormAndGate,
        state(first=-3.9, second=3.8, norm="LayerNorm", gate=-6, curve="ReLU"),
        state(first=4, second=4, gate=6),
        state(first=0, second=0),
    ),
    entry(
        widgets.OptimizerRace,
        state(surface="rotated bowl", steps=300),
        state(surface="valley", steps=300, sgd_rate=3, stretch=200),
        state(stretch=1, steps=7, start_x=0, start_y=0),
    ),
    entry(
        widgets.OrderBoard,
        state(before="6", after="6", stop=3, saved="nothing", window=47),
        state(stop=0, after="1"),
        state(stop=4, saved="nothing"),
    ),
    entry(
        widgets.PackingBoard,
        state(lengths=[200, 90, 14, 61] * 4, context=128),
        state(lengths=[128] * 64, context=2, row=4096),
        state(lengths=range(96, 160), context=128),
        make=packing_board,
        first=state(method="pack"),
    ),
    entry(widgets.PassAtK, state(k=1_024), state(policy="before", k=1)),
    entry(
        widgets.PreferenceBoard,
        state(beta=0.03, training=40, chosen="long", rejected="short"),
        state(chosen="kind", rejected="kind"),
        largest_world,
        make=answer_world,
    ),
    entry(
        widgets.ProgressMap,
        state(exercises=exercise_sums(c00=(4, 4), c05=(2, 4)), progress={"01": "reading"}),
        make=chapter_map,
    ),
    entry(
        widgets.RateRegimes,
        state(quiz=True, curve="B"),
        state(tall=True),
        state(train=False, validation=False),
        lambda: widgets.RateRegimes(rate_runs(500)),
        make=functools.partial(widgets.RateRegimes, rate_runs()),
        kilobytes=40,
    ),
    entry(
        widgets.RingStepper,
        state(num_ranks=2, step=1),
        state(num_ranks=8, step=7, megabytes=100_000, latency_us=10_000, gigabytes_per_s=0.1),
        state(num_ranks=8, algorithm="tree", step=3, megabytes=0.001, latency_us=0.1),
        state(num_ranks=7, algorithm="naive", step=12),
        kilobytes=25,
    ),
    entry(
        widgets.RooflineBoard,
        state(work="a training step", batch=1, length=8_192),
        state(gpu="TPUv5p", shape="Llama 3 70B", batch=4_096, length=131_072),
        state(gpu="V100", shape="stories", work="a training step", batch=1, length=1),
        state(gpu="GB200", shape="stories", batch=1, length=1),
    ),
    entry(
        widgets.RotaryClocks,
        state(head_size=2),
        state(
            head_size=128,
            theta=10_000_000,
            length=131_072,
            query=131_071,
            key=131_000,
            first_pair=48,
        ),
    ),
    entry(
        widgets.RouterBoard,
        state(experts=4, experts_per_token=4, capacity_factor=0.3, token=24),
        state(skew=1, capacity_factor=1, sent=24, experts_per_token=4),
        state(scoring="sigmoid", biases=[-1.5] * 8, capacity_factor=0.05, skew=0.4),
        state(scoring="sigmoid", capacity_factor=0.3, skew=0.4, token=24),
        state(capacity_factor=0.3, skew=0.4, token=24),
        state(experts=2, capacity_factor=8, sent=5),
    ),
    entry(widgets.RunScrubber, state(step=40), largest_run, make=run_scrubber, kilobytes=60),
    entry(widgets.SamplingBoard, state(draws=9, top_k=3, top_p=0.5), make=sampling_board),
    entry(
        widgets.ScheduleDesigner,
        state(shape="wsd", log_rate=True, ramp=True),
        state(shape="llama3_405b", step=1_200_001, view="end"),
        state(shape="llama3_405b", view="start", step=0),
        state(shape="cosine_anneal", num_steps=1, anneal_steps=0, peak=1, final=1),
        state(shape="cosine_anneal", num_steps=2_000_000, anneal_steps=2_000_000),
    ),
    entry(
        widgets.SchedulePlayer,
        state(schedule="gpipe", num_ranks=8, micro_batches=16, moment=69),
        state(schedule="interleaved", num_ranks=8, micro_batches=16, chunks=4),
        state(schedule="interleaved", num_ranks=3, micro_batches=16),
        state(schedule="zero_bubble", num_ranks=1, micro_batches=1, moment=0),
        state(schedule="zero_bubble", num_ranks=8, micro_batches=9),
        kilobytes=25,
    ),
    entry(
        widgets.ServingBoard,
        state(batching="continuous", memory="paged", pool=64, page_size="2", step=12),
        state(pool=64, step=84),
        state(memory="paged", shared=True, pool=160, page_size="2", step=0),
    ),
    entry(
        widgets.ShareBar,
        state(preset="stories"),
        state(preset="llama3_405b", hidden=1, width=128, num_layers=256),
        state(preset="llama3_8b", width=32_768, num_kv_heads=256),
    ),
    entry(
        widgets.SpikeLab,
        state(on=PRECAUTIONS, watch="gradient norm", window=3),
        lambda: widgets.SpikeLab([LONG], [{"on": [], **HUGE_LOSSES}], factor=1, window=3),
        lambda: widgets.SpikeLab(["a"], [{"on": [], "losses": [2.0] * 5, "norms": [0.0] * 5}]),
        lambda: widgets.SpikeLab(PRECAUTIONS, all_spiky_runs(steps=MOST_STEPS)),
        make=spike_lab,
        first=state(step=119),
        kilobytes=60,
    ),
    entry(
        widgets.StepByHand,
        state(
            probabilities=[0.001, 0.001, 0.001, 0.001, 0.996],
            words=["elephant", "Straße", "c", "d", "we"],
            target="elephant",
        ),
        make=by_hand,
    ),
    entry(
        widgets.StepSimulator,
        state(preset="Llama 3 405B, 16,384 GPUs, 131,072 tokens", tried=60),
        state(dp=65_536, pp=256, cp=1_024, tp=128, batch=1_048_576),
        state(
            preset="your own",
            shape="PaLM 540B",
            gpu="V100",
            length=1_048_576,
            batch=1_048_576,
            scores="kept",
            zero="0",
        ),
        state(preset="your own", gpu="TPUv5p", length=2, batch=1),
        kilobytes=25,
    ),
    entry(
        widgets.TokenStrip,
        state(strip="chat", learn="assistant"),
        wide_strip,
        largest_strips,
        make=token_strip,
        kilobytes=60,
    ),
    entry(
        widgets.TrainingLoop,
        state(phase=6),
        make=lambda **state: widgets.TrainingLoop(loop_phases(), **state),
    ),
    entry(
        widgets.WeightScrubber,
        state(m=3, n=200, view=FEW),
        lambda: widgets.WeightScrubber("w", [3, 7], [np.ones((1, 9)), np.full((1, 9), 2)], [0, 0]),
        hardly_moved,
        largest_weights,
        make=weight_scrubber,
        kilobytes=60,
    ),
    entry(
        widgets.TuningPlane,
        state(every=True, part=4),
        state(every=True, first="rank 4, rate 0.002", second="rank 4, rate 0.002"),
    ),
    entry(
        widgets.WavelengthChart,
        state(
            scaling="llama3",
            factor=64,
            trained=1_048_576,
            wanted=1_048_576,
            theta=10_000_000,
            pairs=64,
        ),
        state(scaling="linear", factor=1, trained=8, wanted=1_048_576, pairs=2),
        state(scaling="yarn", factor=5.5, trained=8_192, wanted=8_000, theta=10),
    ),
    entry(
        widgets.ZeroBars,
        state(preset="llama3_405b", stage=3, ranks=16_384, zoom=True),
        state(preset="llama3_8b", stage=2, ranks=1, model_parallel=1_024, memory_gb=1_000),
    ),
]
REGISTRY = {one.widget: one for one in ENTRIES}
