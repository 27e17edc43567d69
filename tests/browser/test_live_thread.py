"""A live run in its thread: steps, saving, going back, failing."""

import re

import numpy as np
import pytest

from llmcourse.course.widget import bundle
from llmcourse.data.corpus import END_OF_TEXT
from tests.browser.engine import ENGINE, THREAD, start_of
from tests.browser.registry import tiny_live_run


def test_a_run_that_was_ended_goes_on_bit_for_bit(engine):
    start = start_of(tiny_live_run(), arithmetic="SIMD")
    found = engine(
        THREAD
        + """
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
        engine=bundle(ENGINE),
        start=start,
    )
    assert found[0] == found[1]
    assert found[2] == found[3]


def test_going_back_and_on_gives_the_same_steps(engine):
    found = engine(
        THREAD
        + """
        const thread = open({ start: given.start });
        await thread.heard();
        const once = await steps(thread, 25);
        const { rewound } = await thread.ask({ rewind: 17 });
        return [once.slice(rewound.step), await steps(thread, 25 - rewound.step), rewound.step];""",
        engine=bundle(ENGINE),
        start=start_of(tiny_live_run(), arithmetic="SIMD"),
    )
    assert found[0] == found[1]
    assert found[2] == 10  # the last checkpoint before


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
        start=start_of(tiny_live_run(steps=400), arithmetic="SIMD"),
    )
    assert found[0] <= 16
    assert found[1][0] == 0
    assert len({b - a for a, b in zip(found[1], found[1][1:], strict=False)}) == 1
    assert found[2] == 0


def test_a_run_learns_and_measures_seven_phases(engine):
    found = engine(
        """const run = new Run(given.start);
        const reports = [];
        while (!run.done) reports.push(run.step());
        return [reports, run.write(), [...run.rows([5, 260])].length];""",
        start=start_of(tiny_live_run(steps=40), arithmetic="relaxed SIMD"),
    )
    reports, written, size = found
    assert [report["step"] for report in reports] == list(range(1, 41))
    assert reports[0]["loss"] == pytest.approx(np.log(300), abs=0.05)
    assert reports[-1]["loss"] < reports[0]["loss"] - 1
    assert all(len(report["ms"]) == 7 and min(report["ms"]) >= 0 for report in reports)
    assert len(written) > 0
    assert END_OF_TEXT not in written
    assert size == 2 * 16


def test_a_thread_says_what_failed(engine):
    start = start_of(tiny_live_run(), arithmetic="SIMD")
    start["config"] = {**start["config"], "hidden": 33}
    found = engine(
        THREAD + "return (await open({ start: given.start }).heard()).failed;",
        engine=bundle(ENGINE),
        start=start,
    )
    assert "hidden must be a multiple of 4, got 33" in found


def test_no_two_modules_declare_the_same_name():
    declared = re.findall(r"^(?:export )?(?:const|let|class|function) (\w+)", bundle(ENGINE), re.M)
    assert len(declared) == len(set(declared)) > 40
