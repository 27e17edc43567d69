"""The widgets of chapters 00 and 01: nothing kept is lost, and the page shows what Python has."""

import bisect
import itertools
import json
import re
from pathlib import Path

import pytest
import torch

from llmcourse import train
from llmcourse.base import runtime
from llmcourse.train import phases
from llmcourse_classroom.measured import PHASES, phases_of_step
from llmcourse_classroom.widgets.course import ProgressMap, curriculum
from llmcourse_classroom.widgets.run import RunScrubber, TrainingLoop
from tests.browser import registry, visits
from tests.browser.hands import enter, keys, press, to_the_end
from tests.browser.kit import holds, noted, said, table, value
from tests.browser.registry import chapter_map, exercise_sums, run_matrices, run_scrubber, sums
from tests.browser.twins import agrees

KEY, ALL = "llmcourse-progress.v1", len(curriculum())
BLOCKED = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('blocked'); }})"


def kept(page):
    text = page.evaluate("key => localStorage.getItem(key)", KEY)
    return json.loads(text)["progress"] if text else {}


def as_file(progress, **other):
    return {"format": "llmcourse-progress", "version": 1, "progress": progress} | other


# --- the progress map


def mark(page, number, state):
    page.locator(f"select[aria-label^='{number} ']").select_option(state)


def give_file(page, label, text, name="marks.json"):
    before = noted(page)
    given = {"name": name, "mimeType": "application/json", "buffer": text.encode()}
    page.get_by_label(label).set_input_files(given)
    page.wait_for_function(
        "before => !['', before].includes(document.querySelector('.lc-note').textContent)",
        arg=before,
    )


def reload(page):
    page.reload()
    page.locator(".lc").wait_for()


def store(page, key, newer):
    page.evaluate(
        "([key, text]) => window.dispatchEvent(new StorageEvent('storage', {key, newValue: text}))",
        [key, json.dumps(newer)],
    )


def has_done(page, chapters):
    holds(said(page), f"{chapters} of {ALL}")


def test_a_chapter_of_the_curriculum_is_a_link_to_the_page_beside(show):
    links = show(chapter_map()).locator(".pm-chapter a")
    hrefs = links.evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert hrefs == [f"{c['number']}_{c['slug']}.html" for c in curriculum()]


def test_what_comes_next_follows_the_laps(show):
    """After chapter 05 the first lap goes on with 10; 06 belongs to the second.

    The laps are named below the map.  Mutant: one of them is not.
    """
    done = dict.fromkeys(["00", *[c["number"] for c in curriculum() if c.get("lap") == 1]], "done")
    page = show(ProgressMap(progress={n: done[n] for n in done if n < "06"}), says=["Next: 10 "])
    titles = page.locator(".pm-chapter a").all_text_contents()
    assert [title[-1] for title in titles[4:7]] == ["①", "①", "②"]
    whole = page.locator(".lc").text_content()
    holds(whole, "① first lap: one processor. ② second lap: many processors and real data.")
    named = re.findall("([①-⑨]) [a-z]+ lap: ", whole)
    assert set(named) == {title[-1] for title in titles[1:]}
    page = show(ProgressMap(progress={n: done[n] for n in done if n != "43"}), says=["Next: 43 "])
    mark(page, "43", "done")
    holds(said(page), "Next: 06 ")


def test_shares_and_merging(arithmetic):
    chapters = [{"number": n} for n in ("00", "01", "02", "03")]
    progress = {"00": "done", "02": "reading", "99": "done"}
    got = arithmetic(ProgressMap, "counts", [[chapters, progress], [[], {}]])
    assert (got[0], got[1]["share"]) == ({"done": 1, "reading": 1, "all": 4, "share": 0.25}, 0)
    rank = {None: 0, "reading": 1, "done": 2}
    states = ({}, {"07": "reading"}, {"07": "done"}, {"08": "reading"})
    cases = list(itertools.product(states, states))
    for (mine, theirs), both in zip(cases, arithmetic(ProgressMap, "merged", cases), strict=True):
        numbers = sorted({*mine, *theirs})
        assert both == {n: max(mine.get(n), theirs.get(n), key=rank.get) for n in numbers}


def test_a_file_comes_back_as_it_went_and_of_two_sums_the_further(arithmetic):
    given = {"00": "done", "10": "reading", "99": "done"}
    (text,) = arithmetic(ProgressMap, "asFile", [[given]])
    assert json.loads(text) == as_file(given)
    assert arithmetic(ProgressMap, "fromFile", [[text]]) == [{"progress": given}]
    older = {"00": sums(2, 4), "01": sums(3, 4), "02": sums(1, 4)}
    newer = {"00": sums(3, 4), "01": sums(2, 4), "02": sums(1, 5), "10": sums(0, 1)}
    (got,) = arithmetic(ProgressMap, "furtherSums", [[older, newer]])
    assert got == {"00": newer["00"], "01": older["01"], "02": newer["02"], "10": newer["10"]}


def test_marks_change_bar_sentence_and_table_and_are_kept(show):
    page = show(chapter_map(), says=[f"0 of {ALL}", "(0 %)", "0 being read", "Next: 00"])
    mark(page, "00", "done")
    page.locator("select[aria-label^='01 ']").press("ArrowDown")
    holds(said(page), f"1 of {ALL}", "(2 %)", "1 being read", "Next: 01")
    holds(page.get_by_role("img").get_attribute("aria-label"), f"1 of {ALL}")
    assert table(page)[0][1:] == ["1", "1", "3", "5"]
    reload(page)
    assert kept(page) == {"00": "done", "01": "reading"}
    has_done(page, 1)
    mark(page, "00", "not begun")
    assert kept(page) == {"01": "reading"}


def test_another_tab_is_heard_and_its_summary_marks_nothing_twice(show):
    page = show(chapter_map())
    store(page, EXERCISES_KEY, exercise_sums(c05=(4, 4)))
    assert exercises_shown(page) == {"05": "4 of 4 exercises"}
    has_done(page, 0)
    store(page, KEY, as_file({"05": "done"}))
    has_done(page, 1)


def test_where_storage_is_blocked_it_works_and_says_so(show, page):
    page.add_init_script(BLOCKED)
    shown = show(chapter_map())
    holds(shown.locator(".lc").text_content(), "Nothing is kept")
    load_summary(shown, c00=(4, 4))
    assert exercises_shown(shown) == {"00": "4 of 4 exercises"}
    has_done(shown, 1)
    mark(shown, "01", "done")
    has_done(shown, 2)


def test_full_storage_is_said(show):
    page = show(chapter_map())
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('quota'); }; }")
    mark(page, "00", "done")
    holds(noted(page), "not kept")
    has_done(page, 1)


def test_unreadable_storage_is_set_aside(show, page):
    page.add_init_script(f"localStorage.setItem('{KEY}', '{{broken')")
    shown = show(chapter_map())
    holds(noted(shown), "not JSON")
    assert shown.evaluate("key => localStorage.getItem(key + '.unreadable')", KEY) == "{broken"
    has_done(shown, 0)


def test_export_downloads_what_import_takes(show):
    page = show(chapter_map())
    mark(page, "00", "done")
    with page.expect_download() as download:
        press(page, "Export")
    assert download.value.suggested_filename == "llmcourse-progress.json"
    text = Path(download.value.path()).read_text(encoding="utf8")
    assert json.loads(text) == as_file({"00": "done"})
    mark(page, "00", "reading")
    mark(page, "02", "done")
    give_file(page, IMPORT, text)
    assert kept(page) == {"00": "done", "02": "done"}
    holds(noted(page), "1 chapter ")


NO_MARKS = [("{", "not JSON"), ("null", "not exported"), ("", "not JSON"), ("[]", "not exported")]
NO_MARKS += [(json.dumps(as_file({}, version=2)), "version 2")]
NO_MARKS += [(json.dumps(as_file({}, format="other")), "not exported")]
NO_MARKS += [(json.dumps(as_file([])), "no progress"), ("x" * 100_001, "too large")]
NO_MARKS += [(json.dumps(as_file(None)), "no progress")]
NO_MARKS += [(json.dumps(as_file({"<b>": "done"})), "“<b>”")]
NO_MARKS += [(json.dumps(as_file({"00": "done", "01": "read"})), "chapter 01")]
"""Files, no two neighbours of which are refused in the same words."""


def test_a_broken_file_is_refused_and_loses_nothing(show):
    page = show(chapter_map())
    mark(page, "01", "reading")
    for text, problem in NO_MARKS:
        give_file(page, IMPORT, text)
        holds(noted(page), problem, "Nothing has changed")
        assert kept(page) == {"01": "reading"}
        holds(said(page), "1 being read")


def test_clear_asks_in_the_page_and_forgets_the_exercises_too(show):
    page = show(chapter_map())
    clear = page.get_by_role("button", name="Clear", exact=True)
    mark(page, "01", "reading")
    clear.click()
    assert page.get_by_role("group", name="1 chapter?").is_visible()
    page.keyboard.press("Escape")
    assert clear.evaluate("b => b === document.activeElement")
    clear.press("Enter")
    page.keyboard.press("Enter")  # the focus is on Keep
    assert kept(page) == {"01": "reading"}
    load_summary(page, c00=(4, 4))
    clear.click()
    assert page.get_by_role("group", name=re.compile("2 chapters .* exercises")).is_visible()
    press(page, "Yes, clear")
    has_done(page, 0)
    reload(page)
    assert (kept(page), exercises_shown(page)) == ({}, {})


def test_python_sets_the_progress_and_it_wins(show, page):
    page.add_init_script(
        f"localStorage.setItem('{KEY}', '{json.dumps(as_file({'00': 'reading', '03': 'done'}))}')"
    )
    show(chapter_map(progress={"00": "done"}))
    has_done(page, 2)
    chapter = {"number": "00", "slug": "a", "title": "A", "part": "P", "minutes": 5}
    assert ProgressMap([chapter]).chapters[0]["minutes"] == 5


# --- exercises

EXERCISES_KEY, SUMMARY = "llmcourse-exercises.v1", "Load a progress summary"
IMPORT = "Import a file"


def load_summary(page, **chapters):
    give_file(page, SUMMARY, json.dumps(exercise_sums(**chapters)), "map.json")


def exercises_shown(page):
    rows = page.locator(".pm-chapter:has(.pm-exercises:not(:empty))")
    texts = rows.locator(".pm-exercises").all_text_contents()
    names = rows.locator("select").evaluate_all("all => all.map(e => e.ariaLabel.slice(0, 2))")
    return dict(zip(names, texts, strict=True))


def test_a_loaded_summary_is_shown_kept_and_marks_what_is_whole(show):
    page = show(chapter_map())
    mark(page, "02", "reading")
    load_summary(page, c00=(4, 4), c01=(1, 1), c02=(3, 3), c05=(2, 4))
    of = {"00": "4 of 4 exercises", "01": "1 of 1 exercise", "02": "3 of 3 exercises"}
    assert exercises_shown(page) == of | {"05": "2 of 4 exercises"}
    holds(noted(page), "“map.json”", "10 of 12 exercises", "10 of 24 points", "2 chapters")
    done = {"00": "done", "01": "done", "02": "reading"}
    assert kept(page) == done
    holds(said(page), "10 of 12 exercises")
    reload(page)
    assert (exercises_shown(page)["05"], kept(page)) == ("2 of 4 exercises", done)


def test_a_mark_set_back_stays_until_the_chapter_is_whole_anew(show):
    page = show(chapter_map())
    load_summary(page, c00=(4, 4))
    mark(page, "00", "not begun")
    load_summary(page, c00=(4, 4), c05=(1, 4))
    reload(page)
    assert kept(page) == {}
    load_summary(page, c00=(4, 5))  # another edition has one more
    load_summary(page, c00=(5, 5))
    assert kept(page) == {"00": "done"}


def test_the_rule_of_the_marks(arithmetic):
    whole, part = sums(2, 2), sums(1, 2)
    cases = {
        "newly whole": ([{}, {"00": part}, {"00": whole}], {"00": "done"}),
        "whole from nothing": ([{}, {}, {"00": whole}], {"00": "done"}),
        "whole before": ([{}, {"00": whole}, {"00": whole}], {}),
        "marked": ([{"00": "reading"}, {}, {"00": whole}], {"00": "reading"}),
        "not whole": ([{}, {}, {"00": part}], {}),
        "others stay": ([{"01": "done"}, {}, {"00": whole}], {"01": "done", "00": "done"}),
    }
    got = arithmetic(ProgressMap, "marksAfter", [given for given, _ in cases.values()])
    assert dict(zip(cases, got, strict=True)) == {name: want for name, (_, want) in cases.items()}


def test_a_summary_of_python_is_shown_and_does_not_hide_what_is_kept(show, page):
    stored = json.dumps(exercise_sums(c00=(1, 4), c05=(3, 4)))
    page.add_init_script(f"localStorage.setItem('{EXERCISES_KEY}', '{stored}')")
    show(chapter_map(exercises=exercise_sums(c00=(4, 4), c05=(0, 4))))
    assert exercises_shown(page) == {"00": "4 of 4 exercises", "05": "3 of 4 exercises"}
    assert kept(page) == {"00": "done"}


NO_SUMMARIES = [
    ("{", "not JSON"),
    ("", "not JSON"),
    ("null", "no summary"),
    ("[]", "no summary"),
    ("{}", "no summary"),
    (json.dumps({"format": 1, "chapters": []}), "no summary"),
    (json.dumps({"format": 2, "chapters": {}}), "format 2"),
    (json.dumps({"format": 1, "questions": {}}), "progress summary FILE"),
    (json.dumps(as_file({})), "“Import a file”"),
    (json.dumps({"format": 1, "chapters": {"<b>": sums(1, 2)}}), "“<b>”"),
    *(
        (json.dumps(exercise_sums(c05=given)), "chapter 05")
        for given in ((5, 4), (-1, 4), (1.5, 4), (0, 0), ("1", 4), (1, 4, 99))
    ),
    (json.dumps({"format": 1, "chapters": {"05": None}}), "chapter 05"),
    ("[" * 50_000, "not JSON"),
]


def test_what_is_no_summary_is_named(arithmetic):
    got = arithmetic(ProgressMap, "fromSummary", [[text] for text, _ in NO_SUMMARIES])
    for (_, problem), found in zip(NO_SUMMARIES, got, strict=True):
        holds(found.get("problem", ""), problem)
    given = exercise_sums(c05=(2, 4), c77=(1, 1))
    (got,) = arithmetic(ProgressMap, "fromSummary", [[json.dumps(given)]])
    assert got == {"exercises": given["chapters"]}


def test_a_foreign_summary_is_refused_and_loses_nothing(show):
    given = exercise_sums(c05=(2, 4))
    assert (chapter_map(exercises=given).exercises, chapter_map().exercises) == (given, {})
    page = show(chapter_map(exercises=given))
    for text, problem in (NO_SUMMARIES[0], NO_SUMMARIES[7], ("x" * 100_001, "too large")):
        give_file(page, SUMMARY, text)
        holds(noted(page), problem, "Nothing has changed")
        assert (exercises_shown(page), kept(page)) == ({"05": "2 of 4 exercises"}, {})


def test_the_map_fits_a_phone_has_small_headings_and_axe_finds_nothing(show):
    page = show(chapter_map(exercises=exercise_sums(c00=(4, 4), c05=(2, 4))), width=320)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.set_viewport_size({"width": 760, "height": 900})
    assert visits.axe_in_both_themes(page) == []
    page.add_style_tag(content="legend { float: left; width: 100%; font-size: 1.5rem; }")
    size = "getComputedStyle(document.querySelector('.lc legend')).fontSize"
    assert page.evaluate(size) == "16px"


# --- the loop


@pytest.fixture(scope="module")
def config():
    return train.PRESETS["tiny"]().replace(steps=6, corpus_bytes=30_000)


@pytest.fixture(scope="module")
def started(config, tmp_path_factory):
    return train.start(config, tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def measured(started):
    return phases_of_step(started, repeats=2)


def test_a_look_at_a_step_leaves_the_run_alone(config, tmp_path):
    run, other = (train.start(config, tmp_path / name) for name in ("run", "other"))
    files = sorted(run.folder.rglob("*"))
    before = runtime.fingerprint(run.model.state_dict())
    phases_of_step(run, repeats=1)
    assert runtime.fingerprint(run.model.state_dict()) == before
    assert (run.steps_done, sorted(run.folder.rglob("*"))) == (0, files)
    for one in (run, other, run, other):
        train.step(one)
    marks = [runtime.fingerprint(one.model.state_dict()) for one in (run, other)]
    assert marks[0] == marks[1]


def test_the_facts_are_those_of_the_step(started, measured, config, tmp_path):
    run = train.start(config, tmp_path / "run")
    report = train.step(run)
    facts = {phase["name"]: dict(phase["facts"]) for phase in measured}
    rows, length = config.batch_size, config.model.context_length
    weights = sum(p.numel() for p in started.model.parameters())
    assert facts["data"]["inputs and targets"] == f"{rows} × {length} token ids each"
    assert facts["data"]["size"] == f"{2 * 8 * rows * length / 1e3:.1f} kB"
    assert facts["forward"]["logits"] == f"{rows} × {length} × {config.model.vocab_size}"
    assert facts["loss"]["loss"] == f"{report.loss:.4f} nats per token"
    assert facts["backward"]["gradients"] == f"{weights:,} numbers"
    assert facts["backward"]["size"] == f"{4 * weights / 1e3:.1f} kB"
    assert facts["optimizer"]["learning rate"] == f"{report.learning_rate:.2e}"
    assert facts["optimizer"]["gradient norm"].startswith(f"{report.gradient_norm:.3f}, clipped")
    saved = train.save(run).stat().st_size
    assert facts["checkpoint"]["file"] == f"{saved / 1e3:.1f} kB"
    assert sum(phase["share"] for phase in measured) == pytest.approx(1)


def test_every_phase_names_a_function_of_the_package():
    for phase in PHASES:
        module, name = phase["function"].rsplit(".", 1)
        assert module == "llmcourse.train.phases"
        assert callable(getattr(phases, name))


def test_the_loop_goes_round(arithmetic):
    cases = [[p, 7, by] for p in range(1, 8) for by in (1, -1)]
    agrees(arithmetic, TrainingLoop, "following", cases, lambda p, n, by: (p - 1 + by) % n + 1)


@pytest.mark.parametrize("width", [220, 300, 400, 559, 560, 900])
def test_no_box_lies_on_another_or_outside(arithmetic, width):
    (at,) = arithmetic(TrainingLoop, "places", [[7, width]])
    for i, box in enumerate(at):
        assert 66 <= box["x"] <= width - 66
        for other in at[:i]:
            assert abs(box["x"] - other["x"]) >= 132 or abs(box["y"] - other["y"]) >= 44


@pytest.mark.parametrize("width", [760, 360])
def test_a_press_or_an_arrow_key_chooses_a_phase(show, measured, width):
    page = show(TrainingLoop(measured), width=width)
    press(page, "4 backward", "Phase 4 of 7, backward")
    holds(page.get_by_role("img").get_attribute("aria-label"), "backward is lit")
    assert page.get_by_role("button", name="4 backward").get_attribute("aria-pressed") == "true"
    holds(page.locator(".tl-panel").text_content(), dict(measured[3]["facts"])["gradients"])
    link = page.get_by_role("link", name="18 Backpropagation from scratch")
    assert link.get_attribute("href") == "18_backpropagation.html"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "6 optimizer"
    page.keyboard.press("ArrowLeft")
    holds(said(page), "Phase 5 of 7, sync")
    press(page, "Step", "Phase 1 of 7, data", times=3)
    assert len(table(page)) == 7


def test_a_loop_without_times_says_nothing_about_them(show, measured):
    page = show(TrainingLoop([registry.without(phase, "share") for phase in measured]))
    assert "of the time" not in page.locator(".tl-panel").text_content()
    assert "of the step's time" not in said(page)


def test_the_loop_of_a_run(started):
    loop = TrainingLoop.of_next_step(started, phase=3)
    assert [phase["name"] for phase in loop.phases] == [phase["name"] for phase in PHASES]
    assert loop.phase == 3
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        phases_of_step(started, repeats=0)


# --- the scrubber

STEPS = [0, 1, 5, 20, 40]


def test_numbers_are_those_of_python_to_half_a_quantum(arithmetic):
    for rows, columns, seed in ((6, 8, 0), (1, 1, 1), (48, 64, 2)):
        given = run_matrices(rows, columns, seed)
        snapshots = run_scrubber(given, groups=None).snapshots
        places = range(len(given))
        whole = arithmetic(RunScrubber, "matrixAt", [[snapshots, i] for i in places])
        moved = arithmetic(RunScrubber, "changeAt", [[snapshots, i] for i in places])
        start = snapshots[0]["scale"]
        for i, matrix in enumerate(given):
            quantum = snapshots[i]["scale"] if i else 0
            change = (matrix - given[0]).flatten()
            assert (torch.tensor(moved[i]) - change).abs().max() <= quantum / 2 + 1e-7
            error = (torch.tensor(whole[i], dtype=torch.float64) - matrix.flatten()).abs().max()
            assert error <= (start + quantum) / 2 + 1e-12
            assert quantum == pytest.approx((change.abs().max() / 127).item(), abs=1e-15)


def test_a_step_has_the_last_snapshot_up_to_it(arithmetic):
    cases = [*([STEPS, step] for step in range(60)), [[3], 2], [[], 2]]
    agrees(arithmetic, RunScrubber, "lastAt", cases, lambda all, x: bisect.bisect(all, x) - 1)


def test_norm_largest_and_cosine_are_pythons(arithmetic):
    grid = [run_matrices(6, 8, seed)[i] for seed in range(4) for i in (0, 3, 4)]
    flat = [matrix.flatten().tolist() for matrix in grid]
    norms = arithmetic(RunScrubber, "norm", [[values] for values in flat])
    tops = arithmetic(RunScrubber, "largest", [[values] for values in flat])
    cosines = arithmetic(RunScrubber, "alikeness", [[values, 8, 2, 3] for values in flat])
    for matrix, norm, top, cosine in zip(grid, norms, tops, cosines, strict=True):
        assert norm == pytest.approx(matrix.norm().item(), rel=1e-12)
        place = matrix.abs().argmax().item()
        assert top == {"place": place, "value": matrix.flatten()[place].item()}
        unit = torch.nn.functional.normalize(matrix[2:5], dim=1)
        pairs = [(unit[i] @ unit[j]).item() for i, j in ((0, 1), (0, 2), (1, 2))]
        assert cosine == pytest.approx(sum(pairs) / 3, abs=1e-12)
    assert arithmetic(RunScrubber, "norm", [[[]]]) == [0]


def written(page):
    return page.get_by_role("region", name="What the model writes").text_content()


def test_slider_field_player_and_curve_go_through_the_run(show):
    page = show(run_scrubber(), says=["Before the first step", "loss is 6"])
    holds(page.locator(".lc-stages").text_content(), "no sample")
    press(page, "Step")
    keys(page, "step", "ArrowRight", "Step 2 of 50", "loss 5.45", "embedding at step 1")
    assert written(page) == "zz <b>qq"
    enter(page, "step", "40", "Step 40 of 50", "names 0.99")
    holds(page.locator("canvas").get_attribute("aria-label"), "embedding at step 40")
    page.locator(".lc-stage svg").click(position={"x": 45, "y": 80})
    assert int(value(page, "step")) < 3
    press(page, "Reset", "Before the first step")


def test_norm_and_largest_entry_are_said(show):
    given, page = run_matrices(), show(run_scrubber(step=40))
    norm, moved, largest = re.search(
        r"length ([\d.,]+), .* length ([\d.]+).* largest entry (-?[\d.]+)", said(page)
    ).groups()
    assert float(norm) == pytest.approx(given[-1].norm().item(), rel=0.01)
    assert float(moved) == pytest.approx((given[-1] - given[0]).norm().item(), rel=0.01)
    assert abs(float(largest)) == pytest.approx(given[-1].abs().max().item(), rel=0.02)
    page.get_by_label("show").select_option("change since step 0")
    holds(said(page), "Change of the embedding", "step 0 to step 40")


def test_player_stops_at_the_end_and_reduced_motion_jumps(show):
    page = show(run_scrubber(step=20))
    press(page, "Play")
    page.wait_for_function("document.querySelector('.lc-status').textContent.includes('Step 50')")
    page.get_by_role("button", name="Play").wait_for()
    to_the_end(page, "Step 50 of 50")
    assert written(page) == "the tea"


def test_the_tables_hold_the_run_and_the_cells(show):
    page = show(run_scrubber(step=1))
    assert len(table(page)) == len(STEPS)
    cells = page.locator(".lc-table").nth(1)
    assert cells.locator("td").count() == 0
    cells.locator("summary").click()
    cells.locator("td").first.wait_for()
    assert cells.locator("td").count() == 6 * 8
    first = float(cells.locator("td").first.text_content())
    assert first == pytest.approx(run_matrices()[1][0, 0].item(), abs=0.01)


INK = """() => { const canvas = document.querySelector('canvas');
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let plus = 0, minus = 0;
  for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] > 40) {
    if (pixels[i] > pixels[i + 2] + 30) plus++; if (pixels[i + 2] > pixels[i] + 30) minus++; }
  return [plus, minus, [...pixels].filter((_, i) => i % 4 < 3).reduce((a, b) => a + b, 0)]; }"""


@pytest.mark.parametrize("width", [760, 360])
def test_signs_have_colours_that_follow_the_theme(show, width):
    signed = [matrix.abs() * (1 if i < 2 else -1) for i, matrix in enumerate(run_matrices())]
    page = show(run_scrubber(signed), width=width)
    plus, minus, _ = page.evaluate(INK)
    assert plus > 100 > minus
    enter(page, "step", "40")
    plus, minus, light = page.evaluate(INK)
    assert minus > 100 > plus
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_timeout(50)
    assert page.evaluate(INK)[2] > light
    assert page.evaluate("document.documentElement.scrollWidth") <= width
