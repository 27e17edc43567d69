"""The session's ranks: what one test does to them, the next one does not see."""

import parallel_kit as kit
import programs
import pytest

from llmcourse.parallel import world


@pytest.fixture(scope="module")
def new():
    """What a program finds in a process that has run no other."""
    return world.run(programs.state, 2)


def test_dirt_of_one_program_does_not_reach_the_next(pools):
    before = pools(2).run(programs.state)
    pids = pools(2).run(programs.pid)
    pools(2).run(programs.leave_dirt)
    after = pools(2).run(programs.state)
    assert pools(2).run(programs.pid) == pids  # the very same processes
    assert after == before


def test_the_dirt_is_real():
    """Without cleaning, every single thing would be seen."""
    with world.Pool(2) as pool:
        before = pool.run(programs.state)[0]
        pool.run(programs.leave_dirt)
        after = pool.run(programs.state)[0]
    assert {name for name in before if before[name] == after[name]} == set()


def test_a_clean_process_is_as_a_new_one(pools, new):
    for found, expected in zip(pools(2).run(programs.state), new, strict=True):
        drawn = {"draws"}  # a new process draws from no seed
        assert {k: v for k, v in found.items() if k not in drawn} == {
            k: v for k, v in expected.items() if k not in drawn
        }


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_program_that_fails_leaves_ranks_for_the_next(pools, how):
    before = pools(3).run(programs.pid)
    pools(3).run(programs.leave_dirt)
    with pytest.raises(world.RankError, match="rank 1"):
        pools(3).run(programs.go_wrong, how)
    places = pools(3, {"pp": 3}).run(programs.place)
    assert places == [(index, 3, {"pp": index}) for index in range(3)]
    assert not set(before) & set(pools(3).run(programs.pid))
    assert pools(3).run(programs.state)[0]["environment"] is None


def test_the_groups_of_a_mesh_end_with_it(pools):
    """Each has threads that wake a hundred times a second: after many tests nothing else runs."""
    first, again = (pools(4, {"dp": 2, "tp": 2}).run(programs.num_threads) for _ in range(2))
    assert first == again


def test_one_pool_stands_on_any_mesh():
    pools = kit.Pools()
    pids = pools(2).run(programs.pid)
    assert pools(2, {"dp": 1, "tp": 2}).run(programs.place)[1] == (1, 2, {"dp": 0, "tp": 1})
    assert [found[0] for found in pools(2, {"ep": 2}).run(programs.ring, 1)] == [1, 0]
    assert pools(2).run(programs.pid) == pids
    pools.close()
    assert pools(2).run(programs.pid) != pids  # a closed one begins anew
    pools.close()
