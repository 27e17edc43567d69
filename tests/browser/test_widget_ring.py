"""The widget of chapter 22: it sends what the package sends, and every control obeys."""

import itertools
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from llmcourse.parallel import collectives
from llmcourse.parallel.world import Axis
from llmcourse_classroom.widgets.ring import RingStepper
from llmcourse_labs.scale.arithmetic import seconds, sent_bytes
from tests.browser.hands import by_key, choose, enter, keys, later, place, press, stop_time
from tests.browser.kit import holds, pictured, said, table, value
from tests.browser.twins import agrees, each

ALGORITHMS = ("ring", "tree", "naive")
CASES = list(itertools.product(ALGORITHMS, range(2, 9)))
ENDED = [[algorithm, n, 2 * n] for algorithm, n in CASES]


class Threads:
    """Point-to-point messages between threads, which stand for ranks; every message is noted."""

    def __init__(self, num_ranks):
        self.log = [[] for _ in range(num_ranks)]
        self.post = {}
        self.lock = threading.Lock()
        self.here = threading.local()

    def box(self, *address):
        with self.lock:
            return self.post.setdefault(address, queue.Queue())

    def isend(self, x, to, tag=0):
        self.log[self.here.rank].append((to, x.clone()))
        self.box(self.here.rank, to, tag).put(x.clone())
        return SimpleNamespace(wait=lambda: True)

    def irecv(self, x, source, tag=0):
        box = self.box(source, self.here.rank, tag)
        return SimpleNamespace(wait=lambda: x.copy_(box.get(timeout=20)))

    def send(self, x, to, tag=0):
        self.isend(x, to, tag)

    def recv(self, x, source, tag=0):
        self.irecv(x, source, tag).wait()


def ran(algorithm, tensors):
    n = len(tensors)
    threads, results = Threads(n), [x.clone() for x in tensors]

    def work(rank):
        threads.here.rank = rank
        axis = Axis("dp", tuple(range(n)), rank, group=None, messages=[])
        axis.check_calls = False
        collectives.ALGORITHMS[algorithm](results[rank], axis)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("send", "recv", "isend", "irecv"):
            patch.setattr(torch.distributed, name, getattr(threads, name))
        with ThreadPoolExecutor(n) as pool:
            list(pool.map(work, range(n)))
    return results, threads.log


def added(parts, values):
    """A nested sum of ranks, with their numbers: pairs are added as they stand."""
    if isinstance(parts, int):
        return values[parts]
    return added(parts[0], values) + added(parts[1], values)


def members(parts):
    return {parts} if isinstance(parts, int) else members(parts[0]) | members(parts[1])


def test_every_message_and_every_sum_in_it_is_the_packages(arithmetic):
    """Rank r has the number 2^r everywhere: what a message holds tells whose numbers are in it."""
    schedules = arithmetic(RingStepper, "schedule", [list(case) for case in CASES])
    steps = [[algorithm, n, k] for algorithm, n in CASES for k in range(2 * n - 1)]
    held = dict(zip(map(tuple, steps), arithmetic(RingStepper, "holdings", steps), strict=True))
    for (algorithm, n), schedule in zip(CASES, schedules, strict=True):
        _, log = ran(algorithm, [torch.full((n,), 1 << rank) for rank in range(n)])
        shown = [[] for _ in range(n)]
        for k, step in enumerate(schedule):
            for message in step["messages"]:
                sender, chunk = message["from"], message["chunk"]
                within = members(held[algorithm, n, k][sender][chunk])
                shown[sender].append((message["to"], sum(1 << rank for rank in within)))
        sent = [[(to, int(x[0])) for to, x in messages] for messages in log]
        assert shown == sent, (algorithm, n)
        length = 1 if algorithm == "ring" else n
        assert {len(x) for messages in log for _, x in messages} == {length}


def test_the_chunks_of_the_ring_are_the_packages(arithmetic):
    """Entry c of every rank is 10^c: what a message holds tells which chunk it is."""
    cases = [["ring", n] for n in range(2, 9)]
    for (_, n), schedule in each(arithmetic, RingStepper, "schedule", cases):
        _, log = ran("ring", [10 ** torch.arange(n) for _ in range(n)])
        for rank, messages in enumerate(log):
            sent = [len(str(int(x[0]))) - 1 for _, x in messages]
            assert sent == [step["messages"][rank]["chunk"] for step in schedule]


def test_the_order_of_addition_is_the_packages_to_the_last_bit(arithmetic):
    generator, differs = torch.Generator().manual_seed(22), 0
    for (algorithm, n, _), held in each(arithmetic, RingStepper, "holdings", ENDED):
        numbers = torch.randn(n, n, generator=generator) * 10.0 ** torch.arange(n).unsqueeze(1)
        results, _ = ran(algorithm, list(numbers))
        for rank, result in enumerate(results):
            parts = held[rank] * (1 if algorithm == "ring" else n)
            expected = [added(parts[c], numbers[:, c]) for c in range(n)]
            assert result.tolist() == [float(x) for x in expected], (algorithm, n, rank)
            differs += result.tolist() != numbers.sum(0).tolist()
    assert differs > 50  # the order matters for these numbers


def test_bytes_sent_are_the_packages(arithmetic):
    for (algorithm, n, _), shares in each(arithmetic, RingStepper, "sent", ENDED):
        name, length = f"all_reduce_{algorithm}", 840 * n
        sent = [sent_bytes(name, length, n, index=rank) for rank in range(n)]
        assert [share * length for share in shares] == pytest.approx(sent, rel=1e-12)
        assert sum(shares) * length / n == pytest.approx(sent_bytes(name, length, n), rel=1e-12)


def test_seconds_are_the_packages(arithmetic):
    def all_reduce(algorithm, size, n, latency, rate):
        return seconds(f"all_reduce_{algorithm}", size, n, latency_s=latency, bytes_per_s=rate)

    sizes, latencies = (0, 1, 1_000, 1_048_576, 141_107_412_992), (0.0, 1e-7, 5e-6, 0.01)
    given = [
        [algorithm, size, n, latency, rate]
        for (algorithm, n), size, latency, rate in itertools.product(
            CASES, sizes, latencies, (1e4, 50e9)
        )
    ]
    agrees(arithmetic, RingStepper, "seconds", given, all_reduce, rel=1e-12)
    for (algorithm, n), steps in each(arithmetic, RingStepper, "schedule", CASES):
        assert len(steps) == all_reduce(algorithm, 0, n, 1.0, 1.0)


def test_the_crossover_is_where_tree_and_ring_take_the_same_time(arithmetic):
    limits = arithmetic(RingStepper, "crossover", [[n, 5e-6, 50e9] for n in range(2, 9)])

    def difference(n, size):
        tree, ring = (
            seconds(f"all_reduce_{a}", size, n, latency_s=5e-6, bytes_per_s=50e9)
            for a in ("tree", "ring")
        )
        return tree - ring

    for n, limit in zip(range(2, 9), limits, strict=True):
        if n < 4:
            assert (limit, difference(n, 0)) == (0, 0)
        else:
            assert difference(n, int(limit) - 1) < 0 < difference(n, int(limit) + 1)


def test_steps_forward_and_back(show):
    page = show(RingStepper(rank=1))
    step = page.get_by_role("button", name="Step", exact=True)
    holds(said(page), "Wanted: their sum", "Rank 1 has its own numbers alone")
    holds(pictured(page), "nothing was sent")
    step.press("Enter")
    holds(said(page), "Step 1 of 6, reduce-scatter", "Rank 1 sent chunk 0 to rank 2")
    holds(said(page), "received chunk 3 from rank 0", "added it: 0 + 1")
    holds(pictured(page), "rank 1 sends chunk 0 to rank 2")
    step.click(click_count=2)
    holds(said(page), "reduce-scatter is done", "the finished sum of 1 of 4 chunks")
    by_key(page, "Back", "Step 2 of 6, reduce-scatter", "3 of 4 parts")
    step.click(click_count=2)
    holds(said(page), "Step 4 of 6, all-gather", "every rank has 2 of 4")
    step.click(click_count=2)
    holds(said(page), "Step 6 of 6: done", "2(n−1)/n = 1.5 ×", "1.5 MB")
    holds(pictured(page, 1), *(f"rank {rank} 1.5 ×" for rank in range(4)))
    step.click()
    assert value(page, "steps done") == "0"
    press(page, "Back", values={"steps done": "0"})


def test_the_table_has_whose_numbers_are_where(show):
    page = show(RingStepper(step=3))
    rows = table(page, "What every rank has")
    assert rows[2] == ["rank 2", "1 + 2", "2", "3 + 0 + 1 + 2", "0 + 1 + 2"]
    messages = table(page, "Every message")
    assert len(messages) == 24
    assert messages[8] == ["3 (now)", "0", "1", "chunk 1", "adds", "250 kB"]
    assert messages[12] == ["4", "0", "1", "chunk 0", "takes over", "250 kB"]


def test_tree_and_naive_send_the_whole_tensor(show):
    page = show(RingStepper(8, step=14))
    choose(page, "algorithm", "tree", values={"steps done": "6"})
    holds(said(page), "Ranks 0 and 4 each sent 3 ×", "3 MB", "is 1.75 ×")
    choose(page, "algorithm", "naive", "Rank 0 sent 7 ×", values={"steps done": "14"})
    enter(page, "steps done", "1", "One message of the whole tensor", "that wait: 6")
    holds(pictured(page), "rank 1 sends the whole tensor to rank 0")
    choose(page, "algorithm", "tree", "4 messages at once", "the whole tensor", "that wait: 0")
    assert table(page, "What every rank has")[6] == ["rank 6", "6 + 7"]
    enter(page, "steps done", "3")  # it adds in pairs
    whole = "0 + 1 + (2 + 3) + (4 + 5 + (6 + 7))"
    assert table(page, "What every rank has")[0] == ["rank 0", whole]


def test_sliders_end_with_the_ranks_and_the_cost_follows_its_fields(show):
    page = show(RingStepper())
    row = page.locator(".lc-stage svg").first.get_by_text("rank 2", exact=True).bounding_box()
    page.mouse.click(row["x"] + 150, row["y"] + 8)
    assert value(page, "rank in words") == "2"
    keys(page, "rank in words", "ArrowRight", "Rank 3")
    enter(page, "steps done", "9", note=["9 is not possible", "from 0 to 6", "6 is used"])
    enter(page, "ranks n", "2", values={"steps done": "2"})
    enter(page, "rank in words", "3", note=["1 is used"])
    enter(page, "ranks n", "99", note=["8 is used"])
    enter(page, "ranks n", "4")
    price = page.locator(".lc-stages > p").last
    holds(price.text_content(), "1 MB over 4 ranks takes 60 µs", "fastest is the ring")
    holds(price.text_content(), "Below 200 kB the tree")
    enter(page, "tensor, MB", "0.1")
    holds(price.text_content(), "fastest is the tree")
    enter(page, "latency of a message, µs", "1")
    holds(price.text_content(), "fastest is the ring")
    enter(page, "bandwidth of a link, GB/s", "500")
    holds(price.text_content(), "Below 400 kB the tree")
    holds(pictured(page, 2), "at 100 kB ring 6.3 µs, tree 4.8 µs, naive 7.2 µs")
    enter(page, "ranks n", "3")
    holds(price.text_content(), "With 3 ranks", "never slower")
    rows = table(page, "Steps, bytes and seconds")
    assert rows[2][:3] == ["naive: all to rank 0", "4", "2 ×, 200 kB"]


OWN = """() => [...document.querySelectorAll(".rs-own")]
  .filter((one) => one.getAttribute("opacity") !== "0").length"""
SUMS = """() => [...document.querySelectorAll(".lc-stage svg g")]
  .filter((one) => one.querySelector(":scope > [data-key='frame']"))
  .map((one) => Number(one.getAttribute("opacity") ?? 1))"""


def slices(page):
    found = page.locator("[data-key='token 0'] [data-key^='slice']")
    return [
        float(x) for x in found.evaluate_all("all => all.map((a) => a.getAttribute('opacity'))")
    ]


def test_a_chunk_comes_to_its_rank_and_then_the_ranks_own_numbers_join_it(show):
    """Mutants: nothing joins; it is a sum before it has come; the cell is filled before."""
    page = show(RingStepper(), as_is=True)
    stop_time(page)
    start = place(page, "token 0")
    press(page, "Step", "the sums on their way have 2 of 4")
    later(page, 300)
    middle = place(page, "token 0")
    assert (slices(page), page.evaluate(OWN), page.evaluate(SUMS)) == ([0, 1, 0, 0], 0, [0] * 4)
    later(page, 400)
    assert (page.evaluate(OWN), slices(page)) == (4, [0, 1, 0, 0])
    end = place(page, "token 0")
    assert start[0] > middle[0] > end[0]  # below, from right to left
    later(page, 500)
    assert (page.evaluate(OWN), slices(page), page.evaluate(SUMS)) == (0, [0, 1, 1, 0], [1] * 4)


def test_a_tensor_flies_up_the_tree(show):
    page = show(RingStepper(4, algorithm="tree"), as_is=True)
    stop_time(page)
    start = place(page, "token 1")
    press(page, "Step", "sums go towards rank 0")
    later(page, 300)
    middle = place(page, "token 1")
    later(page, 900)
    end = place(page, "token 1")
    assert start[0] > middle[0] > end[0]
    assert end == pytest.approx(place(page, "token 0"), abs=1)


def test_with_reduced_motion_a_chunk_has_come_and_is_a_sum_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(RingStepper(), as_is=True)
    stop_time(page)
    press(page, "Step", "2 of 4 parts")
    assert (slices(page), page.locator(".rs-own").count()) == ([0, 1, 1, 0], 0)
    assert page.evaluate(SUMS) == [1] * 4
