"""Functions for ranks to run: a module of its own, so that they import nothing else."""

import os
import signal
import time

import torch


def place(rank):
    """Who am I."""
    return rank.index, rank.size, rank.place


def ring(rank, length):
    """Pass a tensor round the ring once."""
    axis = rank.world
    mine = torch.full((length,), float(rank.index))
    with axis.collective("ring"):
        return axis.exchange(
            mine, (axis.index + 1) % axis.size, torch.empty(length), (axis.index - 1) % axis.size
        )


def boom(rank, who):
    """One rank raises, the others wait for it."""
    if rank.index == who:
        raise KeyError("no such key")
    rank.world.barrier()


def wrong_type(rank, who):
    """An error whose name ends like a word about connections: TypeError, peer."""
    if rank.index == who:
        torch.zeros(2) + "text"
    rank.world.barrier()


def die(rank, who):
    if rank.index == who:
        os.kill(os.getpid(), signal.SIGKILL)
    rank.world.barrier()


def sleep(rank, who, seconds):
    if rank.index == who:
        time.sleep(seconds)
    rank.world.barrier()


def mismatch(rank):
    if rank.index == 1:
        with rank.world.collective("broadcast", "float64 3"):
            pass
    else:
        rank.world.barrier()


def both_send(rank):
    """Two ranks that both send before they receive."""
    x = torch.zeros(4)
    rank.world.send(x, 1 - rank.index)
    rank.world.receive(x, 1 - rank.index)


def one_call_too_few(rank):
    if rank.index:
        rank.world.barrier()


def pid(rank):
    return os.getpid()


def exit_without_a_word(rank, who):
    if rank.index == who:
        os._exit(3)
    rank.world.barrier()


def wrong_axis(rank):
    return rank.axis("tp").size


def too_long(rank, who, seconds):
    """One rank goes on alone after the others are done."""
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


def random_fault(rank, kind, who, after):
    """Some barriers, and then something goes wrong on one rank."""
    for _ in range(after):
        rank.world.barrier()
    if rank.index == who:
        if kind == "raise":
            raise ValueError("on purpose")
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "sleep":
            time.sleep(60)
        if kind == "mismatch":
            with rank.world.collective("something else"):
                pass
        if kind == "return":
            return
    rank.world.barrier()
    rank.world.barrier()
