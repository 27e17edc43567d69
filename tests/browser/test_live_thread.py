"""A live run in its thread: steps, saving, going back, failing."""

import re

import pytest

from llmcourse_classroom.widget import bundle
from tests.browser.engine import ENGINE, THREAD, start_of
from tests.browser.registry import tiny_live_run


def simd(**given):
    return start_of(tiny_live_run(**given), arithmetic="SIMD")


def in_thread(engine, body, start=None):
    return engine(THREAD + body, engine=bundle(ENGINE), start=start or simd())


def test_a_run_that_was_ended_goes_on_bit_for_bit(engine):
    found = in_thread(
        engine,
        """
        const whole = open({ start: given.start });
        await whole.heard();
        const expected = await steps(whole, 12);
        const last = (await whole.ask({ save: true })).saved;
        whole.worker.terminate();
        const first = open({ start: given.start });
        await first.heard();
        const losses = await steps(first, 5);
        const { saved } = await first.ask({ save: true });
        first.worker.terminate();
        const second = open({ start: { ...given.start, saved } });
        await second.heard();
        losses.push(...await steps(second, 7));
        const end = (await second.ask({ save: true })).saved;
        second.worker.terminate();
        const bits = (state) => ["weights", "means", "squares"].map((name) => textOf(state[name]));
        return [expected, losses, bits(last), bits(end)];""",
    )
    assert (found[0], found[2]) == (found[1], found[3])


def test_going_back_and_on_gives_the_same_steps(engine):
    found = in_thread(
        engine,
        """
        const thread = open({ start: given.start });
        await thread.heard();
        const once = await steps(thread, 25);
        const { rewound } = await thread.ask({ rewind: 17 });
        return [once.slice(rewound.step), await steps(thread, 25 - rewound.step), rewound.step];""",
    )
    assert found[0] == found[1]
    assert found[2] == 10  # the last checkpoint before


# --- a step that stops after its backward pass

STOPS = """
  const [plain, other] = [new Run(given.start), new Run(given.start)];
  const losses = [plain, other].map(() => []);
  const saved = [];
  for (let i = 0; i < 12; i++) {
    losses[0].push(plain.step().loss);
    if (i % 3 === 0) other.stop();
    if (i === 3) saved.push(other.state());
    if (i === 6) for (let at = 0; at < 9; at++) other.nudge({ name: "embedding", at, by: 0.5 });
    losses[1].push(other.step().loss);
  }
  other.stop();
  other.restore(saved[0]);
  losses.push([...losses[0].slice(0, 3), ...Array.from({ length: 9 }, () => other.step().loss)]);
  return losses;"""


def test_a_step_that_stopped_is_the_same_step(engine):
    found = engine(STOPS, start=simd())
    assert found[0] == found[1] == found[2]


STOP_MUTANTS = {
    "the rest of a step takes another batch": ("this.stopped ?? this.stop()", "this.stop()"),
    "the next step takes the old gradients": (
        "this.stopped = null;\n    const timed",
        "const timed",
    ),
    "a nudge stays": ("numbers[at] = before;", ""),
    "what is saved has lost a batch": ("this.stopped?.stories ?? ", ""),
}


@pytest.mark.parametrize("name", STOP_MUTANTS)
def test_a_mistake_of_the_stop_is_seen(engine, name):
    right, wrong = STOP_MUTANTS[name]
    text = bundle(ENGINE)
    assert text.count(right) == 1
    found = engine(STOPS, mutant=text.replace(right, wrong), start=simd())
    assert not found[0] == found[1] == found[2]


def test_a_nudge_finds_the_gradient(engine):
    found = engine(
        """const run = new Run(given.start);
        for (let i = 0; i < 15; i++) run.step();
        run.stop();
        const names = ["embedding", "blocks.0.attention.w_q", "blocks.0.feed_forward.w_up"];
        return names.map((name) => {
          const { numbers } = run.model.dw[name];
          const at = numbers.reduce((best, g, i) => (g > numbers[best] ? i : best), 0);
          const { length, rows, columns } = run.lengths()[name];
          const squares = [...numbers].reduce((sum, g) => sum + g * g, 0);
          const nudged = run.nudge({ name, at, by: 0.01 });
          return [nudged.quotient / numbers[at], nudged.up > nudged.down, length ** 2 / squares,
            rows * columns === numbers.length];
        });""",
        start=simd(),
    )
    for ratio, rises, squared, whole in found:
        assert ratio == pytest.approx(1, abs=0.02)
        assert rises
        assert squared == pytest.approx(1, abs=1e-9)
        assert whole


# --- checkpoints, learning, failing


def test_of_too_many_checkpoints_every_second_is_kept(engine):
    found = engine(
        """const run = new Run(given.start);
        const seen = [];
        while (!run.done) {
          run.step();
          seen.push(run.checkpoints.length);
        }
        const kept = run.checkpoints.map(({ stepsDone }) => stepsDone);
        run.rewind(3);
        return [Math.max(...seen), kept, run.stepsDone];""",
        start=simd(steps=400),
    )
    assert found[0] <= 16
    assert found[1][0] == 0
    assert len({b - a for a, b in zip(found[1], found[1][1:], strict=False)}) == 1
    assert found[2] == 0


def test_a_thread_says_what_failed(engine):
    start = simd()
    start["config"] = {**start["config"], "hidden": 33}
    found = in_thread(engine, "return (await open({ start: given.start }).heard()).failed;", start)
    assert "hidden must be a multiple of 4, got 33" in found


def test_no_two_modules_declare_the_same_name():
    declared = re.findall(r"^(?:export )?(?:const|let|class|function) (\w+)", bundle(ENGINE), re.M)
    assert len(declared) == len(set(declared)) > 40
