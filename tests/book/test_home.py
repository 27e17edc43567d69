"""The numbers of the home page's cards are those of the runs that were recorded."""

import gzip
import statistics

import home
import pytest

from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widgets import LiveRun
from tools.runs import live_runs


def live(part, name="small"):
    return recorded_runs("live")[part][name]["0"]


def test_every_card_has_the_number_of_its_source():
    """Mutants: the last loss in place of the mean of twenty; the runs of another row."""
    run, shares, ranks = map(live, ("run", "phases", "ranks"))
    of_seeds = recorded_runs("losses")["runs"]
    losses = {name: statistics.mean(all_) for name, all_ in of_seeds.items()}
    runs = recorded_runs("capstone")["runs"]
    facts = runs["whole"]["0"]["stages"]["funnel"]["facts"]
    apart = max(abs(a - b) for a, b in zip(ranks["1"], ranks["2"], strict=True))
    hashes = [runs[name]["0"]["hashes"] for name in ("killed", "whole")]
    assert [each.number for each in home.numbers()] == [
        f"{facts['left']} of {facts['documents']:,}",
        f"{losses['Llama, no attention']:.2f} → {losses['Llama']:.2f}",
        f"{run['losses'][0]:.2f} → {statistics.mean(run['losses'][-20:]):.2f}",
        f"{round(100 * shares['backward'])}\u00a0%",
        home.in_tens(apart),
        f"{losses['Llama, SGD']:.2f} → {losses['Llama']:.2f}",
        f"{len(set(hashes[0].items()) & set(hashes[1].items()))} of {len(hashes[1])}",
    ]
    told = [each.told for each in home.numbers()]
    assert f"forward takes {round(100 * shares['forward'])}\u00a0%" in told[3]
    (kill,) = (e["step"] for e in runs["killed"]["0"]["log"] if e["event"] == "kill")
    assert told[6].endswith(f"killed at step {kill}")


def test_the_hero_shows_the_recorded_run_and_is_small():
    run, hero = live("run"), LiveRun.recorded("small", rows={})
    assert hero.losses == [float(f"{value:.3g}") for value in run["losses"]]
    assert dict(hero.samples) == {int(step): text for step, text in run["samples"].items()}
    assert hero.config["steps"] == len(run["losses"]) == 400
    assert run["weights"] == 135_488
    assert 0.37 < hero.floor < 0.4
    assert sum(run["losses"][-20:]) / 20 < 1.0
    assert len(gzip.compress(hero.page().encode())) < 60_000


RUNS = {"small": live_runs.small, "chapter 01": live_runs.chapter}


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_begins_so_again(name):
    """Staleness: the first steps, and the tokenizer that the page draws its tokens with."""
    found, made = live("run", name), RUNS[name](0, steps=12)
    assert made["losses"] == pytest.approx(found["losses"][:12], abs=2e-3)
    for part in ("merges", "weights", "floor"):
        assert made[part] == found[part], part
    assert made["samples"]["1"] == found["samples"]["1"]


def test_chapter_01_has_its_own_run_behind_the_readers():
    run = live("run", "chapter 01")
    assert (run["weights"], len(run["losses"])) == (354_000, 300)
    assert sum(run["losses"][-30:]) / 30 < 0.9
    widget = LiveRun.recorded("chapter 01")
    assert (widget.config["steps"], widget.config["hidden"]) == (300, 224)
    with pytest.raises(ValueError, match="no run 'x' is recorded; there are small, chapter 01"):
        LiveRun.recorded("x")
    with pytest.raises(SystemExit, match="no part is called walk; there are run, phases, ranks"):
        live_runs.main(["run", "walk"])


def test_two_processes_have_the_losses_of_one_phases_add_up_and_have_drawings():
    ranks = live("ranks")
    assert len(ranks["1"]) == len(ranks["2"]) == live_runs.RANK_STEPS
    assert ranks["1"] == pytest.approx(ranks["2"], abs=1e-5)
    shares = live("phases")
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)
    assert shares["backward"] > shares["forward"] > shares["optimizer"] > shares["sync"]
    drawings = [(home.DRAWINGS / f"{name}.svg").read_text("utf8") for name in home.PHASES]
    assert len(set(drawings)) == len(set(home.WHAT)) == 7
    assert all("currentColor" in drawing and "aria-hidden" in drawing for drawing in drawings)
    assert (home.in_tens(4.77e-7), home.in_tens(1.2e-12)) == ("5 · 10⁻⁷", "1 · 10⁻¹²")
