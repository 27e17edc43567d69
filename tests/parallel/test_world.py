"""world: ranks in real processes, and what the parent says when one of them fails."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import programs
import psutil
import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from llmcourse.parallel import world

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def pool():
    """Three ranks that wait for each other for two seconds at most."""
    with world.Pool(3, timeout_s=2) as made:
        yield made


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_places_are_those_of_an_array(sizes, data):
    mesh = {f"axis {i}": size for i, size in enumerate(sizes)}
    rank = data.draw(st.integers(0, int(np.prod(sizes)) - 1))
    place = world.place_of(rank, mesh)
    assert tuple(place) == tuple(mesh)
    assert tuple(place.values()) == np.unravel_index(rank, sizes)


def test_results_come_in_the_order_of_the_ranks():
    mesh = {"dp": 2, "tp": 2}
    assert world.run(programs.place, 4, mesh=mesh) == [
        (rank, 4, world.place_of(rank, mesh)) for rank in range(4)
    ]


def test_tensors_come_back_as_arrays_and_the_log_says_what_neighbours_passed_on(pool):
    for rank, found in enumerate(pool.run(programs.results_of_many_kinds)):
        assert found["rank"] == rank
        assert found["bf16"].dtype == np.float32
        assert (found["nested"][0][0].tolist(), found["nested"][0][1:]) == ([0, 1, 2], ("text",))
    results = pool.run(programs.ring, 5)
    assert [found[0] for found in results] == [2, 0, 1]
    assert [m.name for m in results.messages] == ["ring"] * 3
    assert {m.rank for m in results.messages} == {0, 1, 2}
    assert {(m.axis, m.num_bytes) for m in results.messages} == {("world", 20)}
    assert all(0 <= m.start_s <= m.end_s for m in results.messages)
    assert [m.start_s for m in results.messages] == sorted(m.start_s for m in results.messages)


def test_an_axis_of_a_group_that_torch_made(pool):
    first, middle, last = pool.run(programs.over_groups_of_torch)
    assert all((found[0] == 111).all() for found in (first, middle, last))
    assert middle[1] == "rank 1 is not in the group: make no axis of it there"
    for index, (_, summed, seen) in enumerate((first, last)):
        assert (summed == 101).all()
        assert seen == ("dp", (0, 2), index, 2, [0, 2])


def test_an_axis_needs_a_group_that_sends(monkeypatch):
    with pytest.raises(ValueError, match=r"call torch\.distributed\.init_process_group"):
        world.Axis.of()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda _=None: 0)
    monkeypatch.setattr(dist, "get_backend_config", lambda _: "cuda:nccl")
    with pytest.raises(ValueError, match="messages need gloo, and a group's backend is cuda:nccl:"):
        world.Axis.of()


def test_a_pool_keeps_its_processes_and_a_function_may_hold_what_cannot_be_sent(pool):
    assert pool.run(programs.pid) == pool.run(programs.pid)
    assert len(set(pool.run(programs.pid))) == 3
    assert os.getpid() not in pool.run(programs.pid)
    factor = 7
    assert pool.run(lambda rank: factor * rank.index) == [0, 7, 14]
    numbers = (n for n in range(5, 9))  # a generator cannot be pickled: the processes are copies
    assert world.run(lambda rank: next(numbers) + rank.index, 2) == [5, 6]


FAULTS = {
    # program, arguments, the rank at fault, what is said of it
    "it raises": (programs.go_wrong, ("raise", 1), 1, "KeyError: 'no such key'"),
    "it raises before anything": (programs.wrong_axis, (), None, "the mesh has the axes dp"),
    "it raises a TypeError": (programs.go_wrong, ("add", 0), 0, "TypeError: "),
    "it is killed": (programs.go_wrong, ("kill", 2), 2, "killed by SIGKILL (in go_wrong)"),
    "it exits": (programs.go_wrong, ("exit", 0), 0, "ended with exit code 3"),
    "it sleeps": (programs.go_wrong, ("sleep", 1), 1, "waiting for more than 2 s"),
    "it goes on alone": (programs.too_long, (2, 60), 2, "it kept the others waiting"),
    "it calls something else": (programs.go_wrong, ("mismatch",), None, "broadcast float64 3"),
    "it calls less": (programs.go_wrong, ("return", 0), None, "they made fewer calls"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_rank_is_named_with_its_cause(fault, pool):
    program, arguments, rank, cause = FAULTS[fault]
    of_others = {p.pid for p in rank_processes()} - set(pool.run(programs.pid))
    start = time.monotonic()
    with pytest.raises(world.RankError) as caught:
        pool.run(program, *arguments)
    assert time.monotonic() - start < 10  # the deadline of the issue, many times what it takes
    assert cause in str(caught.value)
    assert rank is None or caught.value.rank == rank
    # Nothing is left, and the next run starts anew.
    assert {p.pid for p in rank_processes()} <= of_others
    assert len(pool.run(programs.place)) == 3


def test_the_error_of_a_rank_is_the_cause_with_its_line_and_a_sleeping_one_shows_its_own(pool):
    with pytest.raises(world.RankError) as caught:
        pool.run(programs.go_wrong, "raise")
    assert isinstance(caught.value.__cause__, KeyError)
    assert 'raise KeyError("no such key")' in str(caught.value)
    with pytest.raises(world.RankError, match=r"programs\.py.* in go_wrong"):
        pool.run(programs.go_wrong, "sleep")


def test_two_that_both_send_wait_for_each_other():
    with pytest.raises(world.RankError, match=r"waited for each other[\s\S]*send") as caught:
        world.run(programs.both_send, 2, timeout_s=4)
    assert caught.value.details.count("in both_send") == 2


def test_folders_are_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with world.Pool(2) as pool:
        pool.run(programs.place)
        assert len(list(tmp_path.glob("llmcourse-world-*"))) == 1
        with pytest.raises(world.RankError):
            pool.run(programs.go_wrong, "kill")
        assert not list(tmp_path.glob("llmcourse-world-*"))
        pool.run(programs.place)
    assert not list(tmp_path.glob("llmcourse-world-*"))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_barrier_sends_to_the_logarithm_of_the_others(size):
    assert world.run(programs.many_barriers, size, 3) == [3 * (size - 1).bit_length() * 4] * size


def rank_processes(parent=None):
    """Every living rank below a process, by its name in `ps` or by its open connection."""
    family = psutil.Process(parent).children(recursive=True)
    return [p for p in family if p.status() != psutil.STATUS_ZOMBIE and is_rank(p)]


def is_rank(process):
    """Ranks are the children of the server, or of us; the server and the tracker are not."""
    try:
        if "forkserver" in " ".join(process.cmdline()):
            return "forkserver" in " ".join(process.parent().cmdline())
        return False
    except psutil.NoSuchProcess:
        return False


SLEEPERS = textwrap.dedent(
    """
    import signal, sys
    sys.path.insert(0, sys.argv[1])
    import programs
    from llmcourse.parallel import world
    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job may ignore it
        with world.Pool(2) as pool:
            print(*pool.run(programs.pid), flush=True)
            pool.run(programs.too_long, 0, 60)
    """
)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_no_rank_outlives_the_parent(end, tmp_path):
    script = tmp_path / "sleepers.py"
    script.write_text(SLEEPERS)
    with subprocess.Popen(
        [sys.executable, script, HERE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        pids = list(map(int, parent.stdout.readline().split()))
        assert all(map(psutil.pid_exists, pids))
        time.sleep(0.3)
        parent.send_signal(end)
        errors = parent.communicate(timeout=60)[1]
    if end == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
    limit = time.monotonic() + 30
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < limit:
        time.sleep(0.02)
    assert not any(map(psutil.pid_exists, pids))
