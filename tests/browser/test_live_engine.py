"""The engine of the live run against the package, in Chromium."""

import base64
import random
import re
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from llmcourse import nutshell, train
from llmcourse.course.widget import bundle
from llmcourse.course.widgets import LiveRun
from llmcourse.course.widgets.live import SHAPE, small_run
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.model import ModelConfig, Transformer
from llmcourse.optim import AdamW, clip_by_global_norm, decay_groups, warmup_cosine
from llmcourse.train import phases
from tests.browser.registry import tiny_live_run

ENGINE = "live/worker.js"
ARITHMETICS = ["relaxed SIMD", "SIMD", "JavaScript"]
every_arithmetic = pytest.mark.parametrize("arithmetic", ARITHMETICS)

# What runs in the page beside the engine: 32-bit numbers travel as base64.
CALL = """async ([engine, helpers, body, given]) => {
  const text = `${engine}\\n${helpers}\\nexport const called = async (given) => { ${body} };`;
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const { called } = await import(address);
  URL.revokeObjectURL(address);
  return called(given);
}"""
HELPERS = """
const numbersOf = (text, Kind = Float32Array) => new Kind(fromBase64(text).buffer);
const textOf = (numbers) => {
  const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192)
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
};
const madeModel = ({ config, arithmetic, weights }) => {
  const model = makeModel(config, arithmetic);
  model.flat.weights.set(numbersOf(weights));
  return model;
};
"""


@pytest.fixture
def engine(page):
    """Calls `engine(body, **given)`: JavaScript that stands in a function beside the engine."""

    def call(body, *, mutant=None, **given):
        return page.evaluate(CALL, [mutant or bundle(ENGINE), HELPERS, body, given])

    return call


def as_text(array, kind=np.float32):
    """Return the numbers of an array in base64."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode()


def as_array(text, kind=np.float32):
    """Return the numbers of base64."""
    return np.frombuffer(base64.b64decode(text), dtype=kind)


# --- the package's runs

AWKWARD = ModelConfig(
    num_layers=2,
    width=28,
    num_heads=6,
    num_kv_heads=2,
    head_size=8,
    hidden=36,
    vocab_size=300,
    context_length=20,
    rope_theta=500.0,
    norm_eps=1e-3,
)
"""Sizes that all differ: three query heads share keys, and the heads are wider than the model."""


def shape_of(config, batch_size):
    """Return what the engine is told of a model."""
    return {name: getattr(config, name) for name in SHAPE} | {"batch_size": batch_size}


def flat_weights(model):
    """Return all weights in one array, in the order of the package."""
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


@cache
def package_run(name):
    """Return first weights, batches, learning rates, losses and norms of 12 steps of train."""
    small = replace(small_run(), corpus_bytes=200_000, validation_tokens=1_000)
    config = {
        "small": small,
        "awkward": replace(small, model=AWKWARD, batch_size=3, warmup_steps=4),
    }[name]
    with tempfile.TemporaryDirectory() as folder:
        run = train.start(config, Path(folder) / "run")
        first, batches, reports = flat_weights(run.model).copy(), [], []

        def note(phase, result):
            if phase == "load":
                batches.append([result.inputs_BT.flatten(), result.targets_BT.flatten()])

        with run.watched_by(note):
            for _ in range(12):
                reports.append(phases.step(run))
    given = {
        "config": shape_of(config.model, config.batch_size),
        "weights": as_text(first),
        "batches": [[as_text(part, np.uint16) for part in batch] for batch in batches],
        "rates": [report.learning_rate for report in reports],
    }
    expected = np.array([[report.loss, report.gradient_norm] for report in reports])
    return given, expected


TWELVE_STEPS = """
  const model = madeModel(given);
  return given.batches.map((batch, step) => {
    const [ids, targets] = batch.map((text) => numbersOf(text, Uint16Array));
    forward(model, ids);
    const nats = loss(model, targets);
    backward(model, ids);
    const norm = clip(model.flat.gradients, 1);
    adamw(model, given.rates[step], { beta1: 0.9, beta2: 0.95, eps: 1e-8, decay: 0.1 });
    return [nats, norm];
  });"""


def far_from_the_package(found, expected):
    """Return whether twelve steps are farther from the package's than rounding explains."""
    off = np.abs(np.array(found) - expected)
    return bool(off[0].max() > 1e-6 or off[:, 0].max() > 5e-4)


@every_arithmetic
@pytest.mark.parametrize("name", ["small", "awkward"])
def test_twelve_steps_are_those_of_the_package(engine, name, arithmetic):
    given, expected = package_run(name)
    found = engine(TWELVE_STEPS, arithmetic=arithmetic, **given)
    assert not far_from_the_package(found, expected), np.abs(np.array(found) - expected).max(0)
    assert expected[0, 0] > expected[-1, 0] + 0.03  # and they are steps that learn


MUTANTS = {
    "rope turns back the wrong way": ("{ direction: -1 }", "{ direction: 1 }"),
    "the gate's slope forgets a term": ("(1 + G[i] * (1 - S[i]))", "(1 - S[i])"),
    "query heads overwrite their keys": (
        "space.multiply(back.heads.dk[b][g], transposed(dp), heads.q[b][h], { add: true })",
        "space.multiply(back.heads.dk[b][g], transposed(dp), heads.q[b][h])",
    ),
    "values add nothing to the residual stream": (
        'backOf("attention.w_v", dnormed, dv, normed, { add: true })',
        'backOf("attention.w_v", dnormed, dv, normed)',
    ),
    "the norm's mean is left out": ("- X[at + d] * scale * mean)", ")"),
    "softmax backward without its mean": ("(dP[at + s] - mean)", "dP[at + s]"),
    "the first rows of the embedding get no gradient": (
        "embedBackward(dw.embedding, ids, back.dx);",
        "",
    ),
    "tokens see the future": ("P.fill(0, at + t + 1, at + T)", ""),
    "heads share the wrong keys": ("Math.floor(h * G / H), b * H + h", "h % G, b * H + h"),
    "means are not corrected": ("m[i] / correction1", "m[i]"),
    "no clipping": ("gradients[i] *= most / norm", "gradients[i] *= 1"),
    "the kernel's second part of a sum is lost": ("k += 256", "k += 1024"),
}
"""What a name says is wrong in the engine, and how it is made so."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_in_the_engine_is_seen(engine, name):
    right, wrong = MUTANTS[name]
    text = bundle(ENGINE)
    assert text.count(right) >= 1
    given, expected = package_run("awkward")
    assert far_from_the_package(
        engine(TWELVE_STEPS, mutant=text.replace(right, wrong), arithmetic="SIMD", **given),
        expected,
    )


@every_arithmetic
def test_every_gradient_is_that_of_autograd(engine, arithmetic):
    generator = torch.Generator().manual_seed(3)
    model = Transformer(AWKWARD, generator=generator)
    for weight in model.parameters():  # generic weights: nothing near 0 or 1
        weight.data += 0.3 * torch.randn(weight.shape, generator=generator)
    ids, targets = torch.randint(0, 300, (2, 3, 20), generator=generator)
    logits = model(ids)
    nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    found = engine(
        """const model = madeModel(given);
        const [ids, targets] = [given.ids, given.targets].map((t) => numbersOf(t, Uint16Array));
        forward(model, ids);
        const logits = textOf(model.last.logits.numbers);
        loss(model, targets);
        backward(model, ids);
        const gradients = {};
        for (const name in model.dw) gradients[name] = textOf(model.dw[name].numbers);
        return { logits, gradients };""",
        arithmetic=arithmetic,
        config=shape_of(AWKWARD, 3),
        weights=as_text(flat_weights(model)),
        ids=as_text(ids, np.uint16),
        targets=as_text(targets, np.uint16),
    )
    expected = {name: p.grad.numpy().ravel() for name, p in model.named_parameters()}
    expected["logits"] = logits.detach().numpy().ravel()
    gradients = {**found["gradients"], "logits": found["logits"]}
    assert list(found["gradients"]) == [name for name, _ in model.named_parameters()]
    for name, there in expected.items():
        off = np.abs(as_array(gradients[name]) - there).max() / np.abs(there).max()
        assert off < 5e-6, name


# --- the kernels


@every_arithmetic
def test_matrices_are_multiplied_as_numpy_does(engine, arithmetic):
    draws = np.random.default_rng(5)
    sizes = [(4, 4, 1), (8, 12, 7), (12, 20, 300), (20, 8, 513), (16, 24, 256)]
    matrices = [
        [draws.normal(size=(m, k)), draws.normal(size=(k, n)), draws.normal(size=(m, n))]
        for m, n, k in sizes
    ]
    found = engine(
        """return given.sizes.map(([M, N, K], at) => [0, 1, 2, 3, 4].map((how) => {
          const space = new Space(given.arithmetic);
          const [a, aT] = [space.matrix(M, K), space.matrix(K, M)];
          const [b, bT, wide] = [space.matrix(K, N), space.matrix(N, K), space.matrix(M, N + 8)];
          space.open();
          const [A, B, C] = given.matrices[at];
          for (let i = 0; i < M; i++) for (let k = 0; k < K; k++)
            a.numbers[i * K + k] = aT.numbers[k * M + i] = A[i][k];
          for (let k = 0; k < K; k++) for (let j = 0; j < N; j++)
            b.numbers[k * N + j] = bT.numbers[j * K + k] = B[k][j];
          wide.numbers.fill(9);
          const out = part(wide, { column: 4, columns: N });
          for (let i = 0; i < M; i++) for (let j = 0; j < N; j++)
            out.numbers[i * out.down + j] = C[i][j];
          space.multiply(out, how & 1 ? transposed(aT) : a, how & 2 ? transposed(bT) : b,
            { add: how === 4 });
          return [...wide.numbers];
        }));""",
        arithmetic=arithmetic,
        sizes=sizes,
        matrices=[[each.tolist() for each in group] for group in matrices],
    )
    for (m, n, _), (a, b, c), results in zip(sizes, matrices, found, strict=True):
        for how, result in enumerate(results):
            expected = np.full((m, n + 8), 9.0)
            expected[:, 4 : 4 + n] = a @ b + (c if how == 4 else 0)
            off = np.abs(np.reshape(result, (m, n + 8)) - expected)
            added = np.abs(a) @ np.abs(b) + np.abs(c)  # what a sum's rounding is measured against
            assert (off[:, 4 : 4 + n] < 2e-6 * added).all()
            assert (off[:, :4] == 0).all()
            assert (off[:, 4 + n :] == 0).all()


@every_arithmetic
def test_exponentials_are_exact_to_two_units_of_the_last_place(engine, arithmetic):
    x = np.concatenate([np.linspace(-87, 87, 4_001), [0.0, -1e-8, 0.3466]]).astype(np.float32)
    (found,) = engine(
        """const space = new Space(given.arithmetic);
        const x = space.matrix(1, given.count);
        space.open();
        x.numbers.set(numbersOf(given.x));
        space.exp(x);
        return [textOf(x.numbers)];""",
        arithmetic=arithmetic,
        count=len(x),
        x=as_text(x),
    )
    expected = np.exp(x.astype(np.float64))
    assert np.abs(as_array(found) / expected - 1).max() < 2.4e-7


def test_far_from_zero_exponentials_stop_at_the_range_of_their_numbers(engine):
    found = engine(
        """return ["SIMD", "relaxed SIMD"].map((arithmetic) => {
          const space = new Space(arithmetic);
          const x = space.matrix(1, 4);
          space.open();
          x.numbers.set([-1e30, -200, 88, 1e30]);
          space.exp(x);
          return [...x.numbers];
        });"""
    )
    for low, lower, high, higher in found:
        assert 0 < low == lower < 1e-37
        assert 1e37 < high == higher < 1e38


def test_the_fastest_arithmetic_that_there_is(engine):
    assert engine("return [fastest(), ARITHMETICS.filter(has)];") == [ARITHMETICS[0], ARITHMETICS]
    without = "const kept = globalThis.WebAssembly; delete globalThis.WebAssembly;"
    back = "globalThis.WebAssembly = kept;"
    assert engine(f"{without} const found = fastest(); {back} return found;") == "JavaScript"


# --- the optimizer


def test_adamw_is_the_packages(engine):
    generator = torch.Generator().manual_seed(1)
    model = Transformer(AWKWARD, generator=generator)
    first = as_text(flat_weights(model))
    optimizer = AdamW(decay_groups(model, weight_decay=0.1), lr=1.0, betas=(0.9, 0.95))
    gradients, norms, rates = [], [], [0.01, 0.003, 0.02, 0.001]
    for rate in rates:
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator) * 10 ** -len(norms)
        gradients.append(as_text(torch.cat([p.grad.flatten() for p in model.parameters()])))
        norms.append(clip_by_global_norm(model.parameters(), 3.0))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    assert norms[0] > 3 > norms[-1]
    found = engine(
        """const model = madeModel(given);
        const norms = given.gradients.map((text, step) => {
          model.flat.gradients.set(numbersOf(text));
          const norm = clip(model.flat.gradients, 3);
          adamw(model, given.rates[step], { beta1: 0.9, beta2: 0.95, eps: 1e-8, decay: 0.1 });
          return norm;
        });
        return [norms, textOf(model.flat.weights)];""",
        arithmetic="JavaScript",
        config=shape_of(AWKWARD, 3),
        weights=first,
        gradients=gradients,
        rates=rates,
    )
    np.testing.assert_allclose(found[0], norms, rtol=1e-6)
    np.testing.assert_allclose(as_array(found[1]), flat_weights(model), atol=2e-7, rtol=2e-6)


def test_the_schedule_is_the_packages(engine):
    shapes = [(0.006, 600, 40, 0.0003), (1.0, 7, 0, 0.0), (0.1, 5, 5, 0.1)]
    given = [
        [step, {"peak": peak, "num_steps": steps, "warmup_steps": warmup, "final": final}]
        for peak, steps, warmup, final in shapes
        for step in range(steps + 2)
    ]
    found = engine("return given.all.map((each) => warmupCosine(...each));", all=given)
    assert found == pytest.approx([warmup_cosine(step, **how) for step, how in given], rel=1e-14)


# --- the text


def test_random_numbers_are_those_of_python(engine):
    seeds = [0, 1, 5, 624, 2**31 + 3, 2**32 - 1]
    found = engine(
        """return given.seeds.map((seed) => {
          const chance = new Random(seed);
          return Array.from({ length: 1300 }, () => chance.random());
        });""",
        seeds=seeds,
    )
    for seed, numbers in zip(seeds, found, strict=True):
        expected = random.Random(seed)
        assert numbers == [expected.random() for _ in range(1300)]


@cache
def merges():
    """Return the merges of a vocabulary of 768 of the stories."""
    return nutshell.learn_merges(stories(200_000, seed=0), 768)


def test_stories_and_tokens_are_the_packages(engine):
    text = LiveRun(small_run(), merges(), floor=0.4).text
    seeds = [0, 1, 77]
    found = engine(
        """const tokenizer = new Tokenizer(given.text);
        return given.seeds.map((seed) => {
          const chance = new Random(seed);
          let text = "";
          while (text.length < 60000) text += story(given.text.grammar, chance) + END_OF_TEXT;
          return [text, tokenizer.encode(text), tokenizer.decode(tokenizer.encode(text))];
        });""",
        text=text,
        seeds=seeds,
    )
    tokenizer = nutshell.Tokenizer(merges())
    for seed, (written, ids, decoded) in zip(seeds, found, strict=True):
        expected = stories(60_000, seed=seed)
        assert written == decoded == expected
        assert ids == tokenizer.encode(expected)


def test_words_that_no_story_has_are_encoded_too(engine):
    text = "It's  2026:\n\n  we'll meet\tat 10!! <|endoftext|>end <|endoftext|><|endoftext|>"
    given = LiveRun(small_run(), merges(), floor=0.4).text
    found = engine("return new Tokenizer(given.all).encode(given.said);", all=given, said=text)
    assert found == nutshell.Tokenizer(merges()).encode(text)


def test_batches_are_cut_from_the_text_without_a_gap(engine):
    given = LiveRun(small_run(), merges(), floor=0.4).text
    found = engine(
        """const source = new Stories(given.text.grammar, new Tokenizer(given.text), 4);
        return [0, 1, 2].map(() => {
          const { ids, targets } = source.batch({ batch_size: 3, context_length: 20 });
          return [[...ids], [...targets]];
        });""",
        text=given,
    )
    expected = iter(nutshell.Tokenizer(merges()).encode(stories(4_000, seed=4)))
    for ids, targets in found:
        for b in range(3):
            row = [next(expected) for _ in range(21)]
            assert ids[20 * b : 20 * b + 20] == row[:-1]
            assert targets[20 * b : 20 * b + 20] == row[1:]


# --- writing


def test_the_cache_gives_the_logits_of_the_package(engine):
    generator = torch.Generator().manual_seed(8)
    model = Transformer(AWKWARD, generator=generator)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn(weight.shape, generator=generator)
    ids = torch.randint(0, 300, (1, 20), generator=generator)
    found = engine(
        """const sampler = new Sampler(madeModel(given));
        const read = () => given.ids.map((id, at) => textOf(sampler.next(id, at)));
        read(); // a second text is not mixed with the first
        return read();""",
        arithmetic="SIMD",
        config=shape_of(AWKWARD, 4),
        weights=as_text(flat_weights(model)),
        ids=ids[0].tolist(),
    )
    expected = model(ids)[0].detach().numpy()
    off = np.abs(np.stack([as_array(row) for row in found]) - expected).max()
    assert off < 2e-6 * np.abs(expected).max()


def test_tokens_are_drawn_by_their_probabilities(engine):
    cases = [[[0.5, 0.0, 0.5], u] for u in (0.0, 0.49, 0.5, 0.99)] + [[[0.5, 0.499], 0.9999]]
    assert engine("return given.all.map((each) => draw(...each));", all=cases) == [0, 0, 2, 2, 1]
    (found,) = engine("return [softmax([1000, 1000 + Math.log(3), 0])];")
    assert found == pytest.approx([0.25, 0.75, 0.0])


# --- a run in its thread

THREAD = """
  const source = URL.createObjectURL(new Blob([given.engine.replace(/^export /gm, "")]));
  const open = (message) => {
    const worker = new Worker(source);
    const waiting = [];
    const news = [];
    worker.onmessage = ({ data }) => {
      if (waiting.length) waiting.shift()(data);
      else news.push(data);
    };
    worker.onerror = (event) => { throw new Error(event.message); };
    const heard = () => (news.length ? Promise.resolve(news.shift())
      : new Promise((resolve) => waiting.push(resolve)));
    worker.postMessage(message);
    return { worker, heard, async ask(what) { worker.postMessage(what); return heard(); } };
  };
  const steps = async (thread, count) => {
    const losses = [];
    for (let i = 0; i < count; i++) losses.push((await thread.ask({ step: true })).report.loss);
    return losses;
  };
"""


def start_of(widget, **more):
    """Return what a thread is sent first."""
    return {"config": widget.config, "text": widget.text, "seed": 3, **more}


def test_a_run_that_was_ended_goes_on_bit_for_bit(engine):
    start = start_of(tiny_live_run(), arithmetic="SIMD")
    found = engine(
        THREAD
        + """
        const whole = open({ start: given.start });
        await whole.heard();
        const expected = await steps(whole, 12);
        const last = (await whole.ask({ save: true })).saved;
        whole.worker.terminate();
        const first = open({ start: given.start });
        await first.heard();
        const losses = await steps(first, 5);
        const { saved } = await first.ask({ save: true });
        first.worker.terminate();
        const second = open({ start: { ...given.start, saved } });
        await second.heard();
        losses.push(...await steps(second, 7));
        const end = (await second.ask({ save: true })).saved;
        second.worker.terminate();
        const bits = (state) => ["weights", "means", "squares"].map((name) => textOf(state[name]));
        return [expected, losses, bits(last), bits(end)];""",
        engine=bundle(ENGINE),
        start=start,
    )
    assert found[0] == found[1]
    assert found[2] == found[3]


def test_going_back_and_on_gives_the_same_steps(engine):
    found = engine(
        THREAD
        + """
        const thread = open({ start: given.start });
        await thread.heard();
        const once = await steps(thread, 25);
        const { rewound } = await thread.ask({ rewind: 17 });
        return [once.slice(rewound.step), await steps(thread, 25 - rewound.step), rewound.step];""",
        engine=bundle(ENGINE),
        start=start_of(tiny_live_run(), arithmetic="SIMD"),
    )
    assert found[0] == found[1]
    assert found[2] == 10  # the last checkpoint before


def test_of_too_many_checkpoints_every_second_is_kept(engine):
    found = engine(
        """const run = new Run(given.start);
        const seen = [];
        while (!run.done) {
          run.step();
          seen.push(run.checkpoints.length);
        }
        const kept = run.checkpoints.map(({ stepsDone }) => stepsDone);
        run.rewind(3);
        return [Math.max(...seen), kept, run.stepsDone];""",
        start=start_of(tiny_live_run(steps=400), arithmetic="SIMD"),
    )
    assert found[0] <= 16
    assert found[1][0] == 0
    assert len({b - a for a, b in zip(found[1], found[1][1:], strict=False)}) == 1
    assert found[2] == 0


def test_a_run_learns_and_measures_seven_phases(engine):
    found = engine(
        """const run = new Run(given.start);
        const reports = [];
        while (!run.done) reports.push(run.step());
        return [reports, run.write(), [...run.rows([5, 260])].length];""",
        start=start_of(tiny_live_run(steps=40), arithmetic="relaxed SIMD"),
    )
    reports, written, size = found
    assert [report["step"] for report in reports] == list(range(1, 41))
    assert reports[0]["loss"] == pytest.approx(np.log(300), abs=0.05)
    assert reports[-1]["loss"] < reports[0]["loss"] - 1
    assert all(len(report["ms"]) == 7 and min(report["ms"]) >= 0 for report in reports)
    assert len(written) > 0
    assert END_OF_TEXT not in written
    assert size == 2 * 16


def test_a_thread_says_what_failed(engine):
    start = start_of(tiny_live_run(), arithmetic="SIMD")
    start["config"] = {**start["config"], "hidden": 33}
    found = engine(
        THREAD + "return (await open({ start: given.start }).heard()).failed;",
        engine=bundle(ENGINE),
        start=start,
    )
    assert "hidden must be a multiple of 4, got 33" in found


def test_no_two_modules_declare_the_same_name():
    declared = re.findall(r"^(?:export )?(?:const|let|class|function) (\w+)", bundle(ENGINE), re.M)
    assert len(declared) == len(set(declared)) > 40
