"""What ranks do in test_torch_engine.py."""

import contextlib
import io
import os
from unittest import mock

import torch
import torch.distributed as dist

from llmcourse.train import __main__ as command_line
from llmcourse.train.phases import step
from llmcourse_labs.torch_engine import dcp
from llmcourse_labs.torch_engine import engine as torch_engine


def fit(rank, config, folder):
    reports = torch_engine.fit_under_torchrun(config, folder).reports
    return [report.loss for report in reports], [report.gradient_norm for report in reports]


def command(rank, *arguments):
    """What `llmcourse train` does in a process of torchrun's: its status, and its errors."""
    errors, inside = io.StringIO(), mock.patch.dict(os.environ, TORCHELASTIC_RUN_ID="a test")
    with inside, contextlib.redirect_stderr(errors):
        return command_line.main(list(arguments)), errors.getvalue()


def save_and_change(rank, folder):
    """Write in the background, and change every tensor as soon as that has begun."""
    group = dist.new_group(backend="gloo")
    x = torch.arange(2_000_000.0) + rank.index
    finish = dcp.begin_write(folder, {f"w{rank.index}": x}, rank=rank.index, background_group=group)
    x.zero_()
    finish()


def without_averaging(rank, config, folder):
    """A run whose DDP is told not to average: its ranks drift apart."""
    with torch_engine._process_group(config):
        torch_engine._first_alone(
            lambda: torch_engine._prepared(config, folder), dist.get_rank() == 0
        )
        run = torch_engine._at_newest(config, folder)
        with run.model.no_sync():
            return [step(run).loss for _ in range(config.steps)]
