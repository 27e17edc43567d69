"""The numbers of the home page's cards are those of the runs that were recorded."""

import gzip
import importlib.util
import statistics
import sys
from pathlib import Path

import pytest

from llmcourse.course.recorded import recorded_runs
from llmcourse.course.widgets import LiveRun
from tools import home_runs

EXTENSIONS = Path(__file__).parents[2] / "book" / "_ext"


@pytest.fixture(scope="module")
def home():
    """The extension of the home page, which Sphinx finds by its own path."""
    sys.path.insert(0, str(EXTENSIONS))
    spec = importlib.util.spec_from_file_location("home", EXTENSIONS / "home.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(EXTENSIONS))
    return module


def test_every_card_has_the_number_of_its_source(home):
    """Mutants: the last loss in place of the mean of twenty; the runs of another row."""
    run, shares, ranks = (
        recorded_runs("home")[part]["small"]["0"] for part in ("run", "phases", "ranks")
    )
    losses = {name: statistics.mean(all_) for name, all_ in recorded_runs("losses").items()}
    runs = recorded_runs("capstone")["runs"]
    facts = runs["whole"]["0"]["stages"]["funnel"]["facts"]
    apart = max(abs(a - b) for a, b in zip(ranks["1"], ranks["2"], strict=True))
    hashes = [runs[name]["0"]["hashes"] for name in ("killed", "whole")]
    assert [each.number for each in home.numbers()] == [
        f"{facts['left']} of {facts['documents']:,}",
        f"{losses['Llama, no attention']:.2f} → {losses['Llama']:.2f}",
        f"{run['losses'][0]:.2f} → {statistics.mean(run['losses'][-20:]):.2f}",
        f"{round(100 * shares['backward'])} %",
        home.in_tens(apart),
        f"{losses['Llama, SGD']:.2f} → {losses['Llama']:.2f}",
        f"{len(set(hashes[0].items()) & set(hashes[1].items()))} of {len(hashes[1])}",
    ]
    told = [each.told for each in home.numbers()]
    assert f"{round(100 * shares['forward'])} % in forward" in told[3]
    (kill,) = (e["step"] for e in runs["killed"]["0"]["log"] if e["event"] == "kill")
    assert told[6].endswith(f"killed at step {kill}")


def test_small_numbers_are_written_with_a_power_of_ten(home):
    assert home.in_tens(4.77e-7) == "5 · 10⁻⁷"
    assert home.in_tens(1.2e-12) == "1 · 10⁻¹²"


def test_the_phases_have_a_drawing_and_a_sentence_each(home):
    assert len(home.DRAWINGS) == len(home.WHAT) == len(home.PHASES) == 7
    assert len(set(home.DRAWINGS)) == 7


def test_the_hero_shows_the_recorded_run_and_is_small():
    run = recorded_runs("home")["run"]["small"]["0"]
    hero = LiveRun.of_home_page()
    assert hero.losses == [float(f"{value:.3g}") for value in run["losses"]]
    assert dict(hero.samples) == {int(step): text for step, text in run["samples"].items()}
    assert hero.config["steps"] == len(run["losses"]) == 400
    assert run["weights"] == 135_488
    assert 0.37 < hero.floor < 0.4
    assert sum(run["losses"][-20:]) / 20 < 1.0
    assert len(gzip.compress(hero.page().encode())) < 60_000


def test_the_recorded_run_begins_so_again():
    """Staleness: the first steps again, and the tokenizer that the page draws its tokens with."""
    found, again = recorded_runs("home")["run"]["small"]["0"], home_runs.whole_run(0, steps=12)
    assert again["losses"] == pytest.approx(found["losses"][:12], abs=2e-3)
    assert again["norms"] == pytest.approx(found["norms"][:12], rel=0.02)
    for name in ("merges", "weights", "floor"):
        assert again[name] == found[name], name


def test_two_processes_have_the_losses_of_one_and_phases_add_up():
    ranks = recorded_runs("home")["ranks"]["small"]["0"]
    assert len(ranks["1"]) == len(ranks["2"]) == home_runs.RANK_STEPS
    assert ranks["1"] == pytest.approx(ranks["2"], abs=1e-5)
    shares = recorded_runs("home")["phases"]["small"]["0"]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)
    assert shares["backward"] > shares["forward"] > shares["optimizer"] > shares["sync"]
