"""The steps of the live run's engine against the package, in Chromium."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from llmcourse import train
from llmcourse.model import Transformer
from llmcourse.optim import AdamW, clip_by_global_norm, decay_groups, warmup_cosine
from llmcourse.train import phases
from llmcourse_classroom.widget import bundle
from llmcourse_classroom.widgets.live import small_run
from tests.browser.engine import (
    ARITHMETICS,
    AWKWARD,
    ENGINE,
    as_array,
    as_text,
    flat_weights,
    generic_model,
    shape_of,
)

every_arithmetic = pytest.mark.parametrize("arithmetic", ARITHMETICS)


# --- twelve steps


@cache
def package_run(name):
    small = small_run().replace(corpus_bytes=200_000, validation_tokens=1_000)
    config = {
        "small": small,
        "awkward": small.replace(model=AWKWARD, batch_size=3, warmup_steps=4),
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
    given = {"config": shape_of(config.model, config.batch_size), "weights": as_text(first)}
    given |= {"batches": [[as_text(part, np.uint16) for part in batch] for batch in batches]}
    given |= {"rates": [report.learning_rate for report in reports]}
    return given, np.array([[report.loss, report.gradient_norm] for report in reports])


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
    "the gate's slope forgets a term": ("(1 + g * (1 - s))", "(1 - s)"),
    "query heads overwrite keys": ("dp), heads.q[b][h], { add: true })", "dp), heads.q[b][h])"),
    "values add nothing to the residual stream": ("dv, normed, { add: true })", "dv, normed)"),
    "the norm's mean is left out": ("- X[at + d] * scale * mean)", ")"),
    "softmax backward without its mean": ("(dP[at + s] - mean)", "dP[at + s]"),
    "rows of the embedding get no gradient": ("embedBackward(dw.embedding, ids, back.dx);", ""),
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
    model = generic_model(AWKWARD, generator)
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
