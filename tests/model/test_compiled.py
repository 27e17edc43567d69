"""`torch.compile(model)` trains on the CPU as the plain model does."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

# In a process of its own: the compiler cannot read through the annotation checks of the tests.
PROGRAM = """
import warnings
import torch
warnings.simplefilter("error")  # that no operator falls back to plain torch
warnings.filterwarnings("ignore", category=DeprecationWarning)
from llmcourse import loss, optim
from llmcourse.base import pairs
from llmcourse.model import ModelConfig, Transformer

torch.set_num_threads(1)
if pairs._ONEDNN_LINEAR is not None:  # whatever this processor prefers
    pairs.PRODUCTS, pairs._ONEDNN_MIN_PRODUCTS = "onednn", 0
config = ModelConfig(
    num_layers=1, width=16, num_heads=4, num_kv_heads=2, head_size=4, hidden=24, vocab_size=19,
    context_length=8,
)
for compiled in (False, True):
    g = torch.Generator().manual_seed(0)
    model = Transformer(config, generator=g)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(5)
    run = torch.compile(model, fullgraph=True) if compiled else model
    optimizer = optim.AdamW(model.parameters(), lr=0.03)
    for _ in range(6):
        ids, targets = (torch.randint(0, 19, (3, 8), generator=g) for _ in range(2))
        value = loss.cross_entropy(run(ids), targets)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(value.item())
"""


def has_compiler():
    compilers = (os.environ.get("CXX"), "g++", "clang++")
    header = Path(sysconfig.get_path("include"), "Python.h")
    return header.exists() and any(name and shutil.which(name) for name in compilers)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler and Python's headers")
def test_a_compiled_model_trains_with_the_same_losses(tmp_path):
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [float(line) for line in done.stdout.split()]
    plain, compiled = losses[:6], losses[6:]
    assert compiled == pytest.approx(plain, abs=1e-4)
    assert max(plain) - min(plain) > 0.1  # the weights did move
