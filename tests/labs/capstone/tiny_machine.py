"""The machine at a size for tests, and what a test needs to look at it."""

import json
import tomllib

from llmcourse_labs.capstone import CapstoneConfig

TINY = """
crawl = {pages = 150}
mixture = {shares = "web=0.5,stories=0.5", num_bytes = 60_000}
tokens = {vocab_size = 400}
dpo = {pairs = 16, steps = 3, batch_size = 4}
evaluate = {items = 4}
[model]
num_layers = 2
width = 32
num_heads = 4
num_kv_heads = 2
head_size = 8
hidden = 64
context_length = 128
[train]
mesh = "dp=2,pp=2"
micro_batches = 2
parallel = "zero1"
precision = "bf16"
order = "packed"
steps = 12
batch_size = 8
warmup_steps = 2
validate_every = 6
validation_tokens = 1_000
checkpoint_every = 3
[sft]
steps = 6
examples = 60
warmup_steps = 1
validate_every = 0
validation_tokens = 1_000
checkpoint_every = 3
"""


def tiny(**sections):
    content = tomllib.loads(TINY)
    for name, section in sections.items():
        content[name] = content.get(name, {}) | section if isinstance(section, dict) else section
    return CapstoneConfig.of(content)


def facts(folder, stage):
    (path,) = folder.glob(f"*_{stage}/done.json")
    return json.loads(path.read_text())["facts"]
