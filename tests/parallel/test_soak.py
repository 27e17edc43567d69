"""Random faults, one after another: each is reported, and none hangs.  `make soak` tries 100."""

import random
import time

import programs
import psutil

from llmcourse.parallel import world

MOST_S = 60
"""Of one run; a rank waits for 5 s, and the machine may be busy with other things."""

KINDS = ("raise", "kill", "sleep", "mismatch", "return")


def test_random_faults(pytestconfig):
    world.run(programs.pid, 2)  # whatever is loaded once is loaded now
    draw = random.Random(0)
    for run in range(pytestconfig.getoption("runs")):
        num_ranks = draw.choice([2, 3, 4])
        kind, who, after = draw.choice(KINDS), draw.randrange(num_ranks), draw.randrange(6)
        story = f"run {run}: {kind} of rank {who} of {num_ranks} after {after} barriers"
        start = time.monotonic()
        with world.Pool(num_ranks, timeout_s=5) as pool:
            pids = pool.run(programs.pid)
            try:
                pool.run(programs.go_wrong, kind, who, after)
            except world.RankError as error:
                reported = error
            else:
                raise AssertionError(f"{story}: nothing was reported")
        assert time.monotonic() - start < MOST_S, story
        assert not any(map(psutil.pid_exists, pids)), story
        if kind in {"raise", "kill", "sleep"}:
            assert reported.rank == who, f"{story}: {reported}"
        words = {"raise": "no such key", "kill": "SIGKILL", "sleep": "waiting for more than 5 s"}
        words |= {"mismatch": "broadcast", "return": "fewer calls"}
        assert words[kind] in str(reported), f"{story}: {reported}"
