"""Ranks, bad batches and crashes of the live engine: its arithmetic, and what the pages do."""

import re

import numpy as np
import pytest

from llmcourse.parallel.legal import chunk_sizes
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widget import bundle, module
from llmcourse_classroom.widgets import LiveCrash, LiveRanks, LiveRun, LiveSpike
from llmcourse_classroom.widgets.live import letters_run
from tests.browser import hands, kit
from tests.browser.engine import THREAD, as_array, as_text, start_of
from tests.browser.hands import press
from tests.browser.kit import holds
from tests.browser.registry import tiny_config
from tests.browser.test_widget_live import press_until, wait_to_say

RANK, RUN = bundle("live/rank.js"), bundle("live/worker.js")

# --- ranks


def ring_sums(arrays):
    """Return the sum of arrays as the package's ring adds them: chunk c from rank c + 1 to c."""
    n = len(arrays)
    cuts = np.cumsum([0, *chunk_sizes(len(arrays[0]), n)])
    total = np.empty_like(arrays[0])
    for c in range(n):
        place = slice(cuts[c], cuts[c + 1])
        total[place] = arrays[(c + 1) % n][place]
        for k in range(2, n + 1):
            total[place] += arrays[(c + k) % n][place]
    return total


ALL_REDUCE = """
  const arrays = given.arrays.map((text) => numbersOf(text));
  const n = arrays.length;
  const ports = arrays.map(() => new MessageChannel());
  const inboxes = ports.map((_, r) => new Inbox(ports[(r + n - 1) % n].port2));
  let bytes = 0;
  await Promise.all(arrays.map((x, rank) => allReduce(x, { rank, ranks: n,
    send(numbers) { bytes += numbers.byteLength; ports[rank].port1.postMessage(numbers); },
    async receive() { return (await inboxes[rank].take())[0]; } })));
  return [arrays.map(textOf), bytes];"""


@pytest.mark.parametrize(("ranks", "length"), [(1, 5), (2, 7), (3, 10), (4, 101), (4, 3)])
def test_the_ring_adds_as_the_package_does(engine, ranks, length):
    draws = np.random.default_rng(ranks)
    arrays = [draws.normal(size=length).astype(np.float32) for _ in range(ranks)]
    found, sent = engine(ALL_REDUCE, mutant=RANK, arrays=[as_text(x) for x in arrays])
    for text in found:
        assert np.array_equal(as_array(text), ring_sums(arrays))
    assert sent == 2 * (ranks - 1) * 4 * length


TEAM = """
  const address = URL.createObjectURL(new Blob([given.engine.replace(/^export /gm, "")],
    { type: "text/javascript" }));
  const train = (n) => new Promise((resolve, reject) => {
    const team = Array.from({ length: n }, () => new Worker(address));
    const ports = team.map(() => new MessageChannel());
    const reports = [];
    team.forEach((worker, rank) => {
      const [next, previous] = [ports[rank].port1, ports[(rank + n - 1) % n].port2];
      worker.onmessage = ({ data }) => {
        if (data.failed) reject(data.failed);
        if (data.report) reports.push(data.report);
        if (reports.length < n * given.skips.length) return;
        team.forEach((each) => each.terminate());
        resolve(reports);
      };
      worker.postMessage({ start: { ...given.start, rank, ranks: n, next, previous } },
        [next, previous]);
      for (const skip of given.skips) worker.postMessage({ step: { sync: !skip } });
    });
  });
  const found = [];
  for (const n of given.teams) found.push(await train(n));
  return found;"""


def trained(engine, text=RANK, *, teams=(1, 2, 4), skips=(False,) * 8):
    start, runs = start_of(LiveRanks(tiny_config())), []
    for reports in engine(TEAM, engine=text, start=start, teams=teams, skips=skips):
        steps = [[r for r in reports if r["step"] == at + 1] for at in range(len(skips))]
        run = {"reports": reports, "norms": np.array([ranks[0]["norm"] for ranks in steps])}
        run["losses"] = np.array([np.mean([r["loss"] for r in ranks]) for ranks in steps])
        runs.append(run | {"hashes": [{r["hash"] for r in ranks} for ranks in steps]})
    return runs


def is_data_parallel(runs):
    agree = all(len(hashes) == 1 for run in runs for hashes in run["hashes"])
    pairs = [(run[what], runs[0][what]) for run in runs for what in ("losses", "norms")]
    return agree and all(np.allclose(*pair, rtol=2e-4) for pair in pairs)


def test_two_and_four_ranks_do_what_one_does(engine):
    runs = trained(engine)
    assert is_data_parallel(runs)
    assert runs[0]["losses"][-1] < runs[0]["losses"][0] - 0.1
    assert [len(run["reports"][0]["sent"]) for run in runs] == [0, 2, 6]
    weights = 6_768 * 4
    assert [run["reports"][0]["bytes"] / weights for run in runs] == pytest.approx([0, 1, 1.5])
    for report in runs[2]["reports"]:
        assert (report["times"], len(report["received"])) == (sorted(report["times"]), 6)


MUTANTS = {
    "the sum is no mean": ("gradients[i] /= ranks", "gradients[i] /= 1"),
    "all ranks read the same rows": ("this.rank * size, (this.rank + 1) * size", "0, size"),
    "sums do not go round": ("round < 2 * (ranks - 1)", "round < ranks - 1"),
    "what comes replaces": ("mine[i] += got[i]", "mine[i] = got[i]"),
    "the wrong chunk": ("chunk(rank - round - 2)]", "chunk(rank - round - 1)]"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_of_the_ranks_is_seen(engine, name):
    right, wrong = MUTANTS[name]
    assert RANK.count(right) == 1
    assert not is_data_parallel(trained(engine, RANK.replace(right, wrong), teams=(1, 2)))


def test_ranks_that_once_left_phase_5_out_stay_apart(engine):
    (run,) = trained(engine, teams=(2,), skips=(False, True, False, False))
    assert [len(hashes) for hashes in run["hashes"]] == [1, 2, 2, 2]


FLIPS = """const numbers = new Float32Array(9).map((_, i) => i / 7);
  const words = new Uint32Array(numbers.buffer);
  const found = [fingerprint(numbers)];
  for (let bit = 0; bit < 9 * 32; bit++) {
    words[bit >> 5] ^= 1 << (bit & 31);
    found.push(fingerprint(numbers));
    words[8] ^= 1 << 31;
    found.push(fingerprint(numbers));
    words[8] ^= 1 << 31;
    words[bit >> 5] ^= 1 << (bit & 31);
  }
  return found;"""


def test_a_fingerprint_tells_every_bit(engine):
    found = engine(FLIPS)
    assert len(set(found)) == len(found) - 1  # the last two flips undo each other
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in found)
    wrong = RUN.replace("words[i], 0x", "words[i] & ~1, 0x")
    assert wrong != RUN
    assert len(set(engine(FLIPS, mutant=wrong))) < len(found) - 1


def test_arrows_and_speed(arithmetic):
    reports = [{"sent": [1, 4], "received": [3, 6]}, {"sent": [2, 5], "received": [2.5, 7]}]
    expected = [[0, 1, 2.5], [0, 4, 7], [1, 2, 3], [1, 5, 6]]
    assert arithmetic(LiveRanks, "arrows", [[reports]]) == [expected]
    assert arithmetic(LiveRanks, "perSecond", [[[0, 1]], [list(range(0, 70, 10))]]) == [None, 100]


def choose_ranks(page, number):
    hands.choose(page, "ranks", number)
    press_until(page, "Train", f"Step 60 of 60, {number} rank")


def test_ranks_train_in_the_page(show):
    page = show(LiveRanks(tiny_config()), says=["2 ranks, 2 sequences each"])
    assert len(page.workers) == 0
    choose_ranks(page, "1")
    choose_ranks(page, "2")
    holds(kit.said(page), "the same bits", "2 messages, 0.0271 MB")
    assert page.locator(".lr-message").count() == 4
    holds(kit.pictured(page), "2 messages")
    assert len(page.workers) == 2
    lines = page.locator(".lc-stage").nth(1).locator("polyline, path")
    strokes = lines.evaluate_all("all => all.map((one) => one.getAttribute('stroke'))")
    assert not {f"var(--{kind}-{n})" for kind in ("phase", "lc") for n in range(1, 7)} & {*strokes}
    rows = kit.table(page, "Compare the runs")
    assert [row[2] for row in rows] == ["60", "60", "–"]
    assert float(rows[1][4]) < 1e-2
    assert "5.70" in kit.pictured(page, 1) or "2 ranks" in kit.pictured(page, 1)


def test_without_phase_5_the_page_says_that_the_ranks_differ(show):
    page = show(LiveRanks(tiny_config(), sync=False))
    press_until(page, "Step", "Step 1 of 60")
    holds(kit.said(page), "different weights since step 1", "Phase 5 was left out")
    page.get_by_label("phase 5: sum the gradients").check()
    press_until(page, "Step", "Step 2 of 60")
    holds(kit.said(page), "different weights since step 1", "In phase 5 each rank sent")
    assert page.locator(".lc-stage").get_by_text("≠").count() == 1
    holds(kit.table(page, "Compare the runs")[1][5], "differ since step 1")


# --- bad batches

BATCHES = """const run = new Run(given.start);
  const plain = new Run(given.start);
  run.bad = 2;
  const batches = [0, 1, 2].map((step) => {
    run.model.stepsDone = step;
    return [run.load(), plain.load()].map(({ ids }) => [...ids]);
  });
  run.rewind(0);
  run.bad = 1;
  const reports = [run.step(), run.step()];
  return [batches, reports.map(({ bad }) => bad), reports.map(({ loss }) => loss)];"""


def test_a_bad_batch_has_random_tokens_and_costs_no_place_in_the_data(engine):
    start = start_of(LiveSpike(tiny_config(), saved=20))
    batches, bad, losses = engine(BATCHES, start={**start, "arithmetic": "SIMD"})
    assert [wrong == right for wrong, right in batches] == [False, False, True]
    assert batches[0][0] != batches[1][0]
    counts = np.bincount(batches[0][0] + batches[1][0], minlength=300)
    assert counts.max() < 6
    assert (len(counts), bad) == (300, [True, False])
    assert all(np.isfinite(losses))


def test_clipping_is_turned_off_by_a_message(engine):
    body = (
        THREAD
        + """
        const thread = open({ start: given.start });
        await thread.heard();
        const found = [];
        for (const clip of [1e-9, Infinity]) {
          const before = (await thread.ask({ clip, save: true })).saved.means;
          await thread.ask({ step: true });
          const { means } = (await thread.ask({ save: true })).saved;
          found.push(Math.max(...means.map((m, i) => Math.abs(m - before[i]))));
        }
        return found;"""
    )
    start = {**start_of(LiveSpike(tiny_config(), saved=20)), "arithmetic": "SIMD"}
    clipped, free = engine(body, engine=RUN, start=start)
    assert clipped < 1e-9
    assert free > 1e-4


def test_a_bad_batch_is_met_from_the_saved_state_with_clipping_and_without(show):
    page = show(LiveSpike(tiny_config(steps=50), saved=20))
    hands.enter(page, "bad batches in a row", "1")
    assert page.get_by_role("button", name="Bad batch").is_disabled()
    press_until(page, "Train", "Step 50 of 50")
    press_until(page, "Bad batch", "bad batches, clipping. Loss above")
    assert page.locator(".ls-bad").count() == 3  # one step in each of three pictures
    page.get_by_label("clip the gradient at norm 1").uncheck()
    press_until(page, "Bad batch", "bad batches, no clipping. Loss above")
    rows = kit.table(page, "What came of it")
    assert [row[1] for row in rows] == ["0", "1", "1"]
    assert float(rows[1][2]) > float(rows[0][2])
    assert rows[1][2] == rows[2][2]  # the same bad batch at the same weights
    press_until(page, "Rewind", "Step 20 of 50")
    holds(kit.said(page), "the saved state")
    holds(kit.pictured(page), "no bad batch")
    assert page.locator(".lc-stage").first.get_by_text("ln 300 = 5.70").count() == 1


# --- a crash

RESTORED = """const run = new Run(given.start);
  const begun = run.state();
  for (let i = 0; i < 6; i++) run.step();
  const saved = run.state();
  const found = {};
  for (const without of ["", "moments", "position"]) {
    const next = new Run({ ...given.start, seed: 9 });
    next.restore(restored(saved, begun, without));
    const before = next.model.flat.weights.slice();
    const [report, rate] = [next.step(), run.rate()];
    const moved = next.model.flat.weights.map((w, i) => Math.abs(w - before[i]) / rate);
    found[without || "nothing"] = [report.loss, moved.reduce((a, b) => a + b) / moved.length,
      fingerprint(next.model.flat.weights), report.rate / rate];
  }
  return [found, run.step().loss, fingerprint(run.model.flat.weights)];"""


def restored_function(text=None):
    shipped = text or module(LiveCrash.script)
    return re.search(r"^export (function restored.*?^})", shipped, re.M | re.S)[1]


def went_on(engine, function, run=RUN):
    start = {**start_of(LiveCrash(tiny_config())), "arithmetic": "SIMD"}
    return engine(function + RESTORED, mutant=run, start=start)


def test_each_part_of_the_state_makes_another_step(engine):
    found, loss, fingerprint = went_on(engine, restored_function())
    assert (found["nothing"][0], found["nothing"][2]) == (loss, fingerprint)
    assert len({each[2] for each in found.values()}) == 3
    assert found["moments"][0] == loss  # the weights are right, and the first step is wrong
    assert found["position"][0] != loss
    # With new moments every weight with a gradient moves by the whole rate.
    assert found["moments"][1] > 1.3 * found["nothing"][1]
    assert [each[3] for each in found.values()] == [1, 1, 1]  # the rate follows the step


def test_old_counts_for_new_moments_are_seen(engine):
    wrong = restored_function().replace("momentsFrom: saved.stepsDone", "momentsFrom: 0")
    found, _, _ = went_on(engine, wrong)
    assert found["moments"][1] < 1.3 * found["nothing"][1]


def test_when_bits_part_and_means_over_steps(arithmetic):
    right = [[1, 0, "a"], [2, 0, "b"], [3, 0, "c"]]
    others = [right, [[2, 0, "b"], [3, 0, "x"]], [[2, 0, "x"]], []]
    got = arithmetic(LiveCrash, "sameUntil", [[other, right] for other in others])
    assert got == [3, 2, None, None]
    both = [[[2, 5.0], [9, 1.0]], [[1, 1.0], [2, 3.0]]]
    assert arithmetic(LiveCrash, "difference", [both]) == [[[2, 2.0]]]
    points = [[1, 2.0], [2, 4.0], [5, 9.0]]
    assert arithmetic(LiveSpike, "meanOver", [[points, 2, 4], [points, 7, 9]]) == [4.0, None]


def test_a_thread_is_terminated_and_comes_back_whole_or_not(show):
    page = show(LiveCrash(tiny_config(steps=2_000, warmup_steps=5), pace="5 steps a second"))
    assert page.get_by_role("button", name="Restore").is_disabled()
    press_until(page, "Train", re.compile(r"Step [2-9] of"))
    hands.choose(page, "speed", "full speed")
    wait_to_say(page, re.compile(r"Last checkpoint: step [2-9]\d"))
    press_until(page, "Terminate", "memory is gone")
    at = int(re.search(r"that of step (\d+)", kit.said(page))[1])
    assert at % 10 == 0
    other = f"Other bits since step {at + 1}"
    ways = {"everything": "The same bits"}
    ways |= {f"all but {part}": other for part in ("Adam's moments", "the place in the data")}
    for way, bits in ways.items():
        hands.choose(page, "restore with", way)
        press_until(page, "Restore", re.compile(rf"Restored with {way} from step {at}.* {bits}"))
        press(page, "Pause")
    holds(kit.pictured(page, 1), "restored: everything 0 at step")
    assert len(page.workers) <= 2


# --- all three


@pytest.mark.parametrize("make", [LiveSpike, LiveCrash])
def test_on_paper_there_are_recorded_curves(show, make):
    page = show(make())
    holds(kit.pictured(page), "no step yet")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert kit.pictured(page).count("recorded: ") >= 3
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    holds(kit.pictured(page), "no step yet")


def test_without_scripts_there_are_recorded_curves():
    assert "recorded run: 6.6" in LiveRanks().still()
    spike, crash = LiveSpike().still(), LiveCrash().still()
    assert spike.count("<polyline") == crash.count("<polyline") == 3
    first = recorded_runs("live_labs")["spike"]["lab"]["0"]["free"]["loss"][100]
    holds(spike, f"clipping off: {first:.2f} at step 101")
    holds(crash, "everything: 0.00 at step 41, 0.00 at step 80")
    steady = recorded_runs("live_labs")["letters"]["steady"]["0"]
    letters = LiveRun(letters_run(), (), floor=0.5, losses=steady, show=("loss",)).still()
    holds(letters, "5.59 at first", f"{steady[-1]:.2f} at step 400")


def test_the_recorded_runs_are_what_the_engine_does(engine):
    runs = recorded_runs("live_labs")
    recorded = {part: runs[part]["lab"]["0"] for part in ("spike", "crash")}
    start = start_of(LiveCrash(), arithmetic="SIMD") | {"seed": 0}
    body = """const run = new Run(given.start);
      return Array.from({ length: 6 }, () => run.step().loss);"""
    found = engine(body, start=start)
    assert found == pytest.approx([loss for _, loss in recorded["crash"]["whole"][:6]], abs=1e-4)
    assert recorded["crash"]["everything"] == recorded["crash"]["whole"][40:]
    highest = {way: max(run["loss"]) for way, run in recorded["spike"].items()}
    assert highest["clipped"] == highest["free"] > highest["calm"] + 2
