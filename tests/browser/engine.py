"""What the tests of the live run's engine share: JavaScript called beside it, in Chromium."""

import base64

import numpy as np
import torch
from playwright.sync_api import Page

from llmcourse.model import ModelConfig, Transformer
from llmcourse_classroom.widget import bundle
from llmcourse_classroom.widgets.live import SHAPE

ENGINE, ARITHMETICS = "live/worker.js", ["relaxed SIMD", "SIMD", "JavaScript"]

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


class Engine:
    """Calls `engine(body, **given)`: JavaScript that stands in a function beside the engine.

    Args:
        page: of Chromium.
    """

    def __init__(self, page: Page) -> None:
        self.page = page

    def __call__(self, body, *, mutant=None, **given):
        return self.page.evaluate(CALL, [mutant or bundle(ENGINE), HELPERS, body, given])


def as_text(array, kind=np.float32):
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode()


def as_array(text, kind=np.float32):
    return np.frombuffer(base64.b64decode(text), dtype=kind)


# --- a model and a thread

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
    return {name: getattr(config, name) for name in SHAPE} | {"batch_size": batch_size}


def generic_model(config, generator, scale=0.3):
    model = Transformer(config, generator=generator)
    for weight in model.parameters():
        weight.data += scale * torch.randn(weight.shape, generator=generator)
    return model


def flat_weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


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
    return {"config": widget.config, "text": widget.text, "seed": 3, **more}
