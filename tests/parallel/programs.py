"""Functions for ranks to run: a module of its own, so that they import nothing else."""

import os
import random
import signal
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import psutil
import torch
import torch.distributed as dist

from llmcourse.model import Transformer
from llmcourse.parallel import collectives, world


def place(rank):
    return rank.index, rank.size, rank.place


def num_threads(rank):
    return psutil.Process().num_threads()


def over_groups_of_torch(rank):
    """Sum over all ranks, and over the first and the last, on axes of torch's own groups."""
    everyone = world.Axis.of(name="all")
    ends = dist.new_group([0, rank.size - 1])
    found = [collectives.all_reduce_ring(torch.full((5,), 10.0**rank.index), everyone)]
    try:
        axis = world.Axis.of(ends)
    except ValueError as error:
        return [*found, str(error)]
    found.append(collectives.all_reduce_ring(torch.full((5,), 10.0**rank.index), axis))
    return [
        *found,
        (axis.name, axis.ranks, axis.index, axis.size, axis.all_gather_object(rank.index)),
    ]


def ring(rank, length):
    axis = rank.world
    mine = torch.full((length,), float(rank.index))
    with axis.collective("ring"):
        return axis.exchange(
            mine, (axis.index + 1) % axis.size, torch.empty(length), (axis.index - 1) % axis.size
        )


def go_wrong(rank, how, who=1, after=0):
    """Let something go wrong on one rank after some barriers, in which the others wait for it."""
    for _ in range(after):
        rank.world.barrier()
    if rank.index == who:
        if how == "raise":
            raise KeyError("no such key")
        if how == "add":  # its error's name ends like a word about connections: TypeError, peer
            torch.zeros(2) + "text"
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            os._exit(3)
        if how == "sleep":
            time.sleep(60)
        if how == "mismatch":
            with rank.world.collective("broadcast", "float64 3"):
                pass
        if how == "return":
            return
    rank.world.barrier()
    rank.world.barrier()


def both_send(rank):
    x = torch.zeros(4)
    rank.world.send(x, 1 - rank.index)
    rank.world.receive(x, 1 - rank.index)


def pid(rank):
    return os.getpid()


def wrong_axis(rank):
    return rank.axis("tp").size


def too_long(rank, who, seconds):
    if rank.index == who:
        time.sleep(seconds)


def many_barriers(rank, count):
    for _ in range(count):
        rank.world.barrier()
    return rank.world.sent_bytes


def results_of_many_kinds(rank):
    return {
        "bf16": torch.ones(2, dtype=torch.bfloat16),
        "nested": [(torch.arange(3), "text"), None],
        "rank": rank.index,
    }


def leave_dirt(rank):
    """Change whatever a careless program might, and leave it so."""
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(3)
    torch.set_grad_enabled(False)
    torch.set_autocast_enabled("cpu", True)
    torch.set_deterministic_debug_mode("error")
    os.environ["LLMCOURSE_DIRT"] = "here"
    os.chdir("/")
    collectives.all_reduce = collectives.sums.all_reduce_ring = print
    collectives.dirt = "here"
    Transformer.forward = lambda model, ids: ids
    rank.world.barrier()
    rank.world.check_calls = False
    held = threading.Event()
    held.itself = held  # only a collector of cycles finds it
    weakref.finalize(held, NOT_COLLECTED.discard, "held")
    NOT_COLLECTED.add("held")


NOT_COLLECTED = set()


def state(rank):
    return {
        "draws": [random.random(), np.random.random(), torch.rand(1).item()],
        "dtype": str(torch.get_default_dtype()),
        "threads": torch.get_num_threads(),
        "learns": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "environment": os.environ.get("LLMCOURSE_DIRT"),
        "folder": str(Path.cwd()),
        "functions": [
            collectives.all_reduce.__name__,
            collectives.sums.all_reduce_ring.__name__,
            Transformer.forward.__name__,
            hasattr(collectives, "dirt"),
        ],
        "axis": (rank.world.check_calls, rank.world.sent_bytes, rank.axis("dp").sent_bytes),
        "not collected": sorted(NOT_COLLECTED),
    }
