"""tools.runs.recording: missing runs are made, others are kept, and nothing is lost."""

import json

import pytest

from tools.runs.recording import read, record, record_parts

SAID = {"text": "two  spaces, [brackets], {braces}\nand a line", "values": [1, 2.5], "none": []}


def made(file, runs, *, wanted=(), seeds=(0, 1)):
    record(file, runs, seeds=seeds, wanted=wanted, about={"settings": {"steps": [3, 4]}})
    return json.loads(file.read_text("utf8"))


def test_what_is_recorded_is_what_the_runs_returned(tmp_path):
    """Mutant: all white space of an innermost row joined, also that of its texts."""
    runs = {"a": {"one": lambda seed: SAID | {"seed": seed}}, "b": {"": lambda seed: seed}}
    found = made(tmp_path / "x.json", runs)
    assert found["a"] == {"one": {str(seed): SAID | {"seed": seed} for seed in (0, 1)}}
    assert (found["b"], found["settings"]) == ({"": {"0": 0, "1": 1}}, {"steps": [3, 4]})
    assert "torch" in found["machine"]
    assert '"values": [ 1, 2.5 ]' in (tmp_path / "x.json").read_text("utf8")  # one line


def test_a_call_that_was_cut_short_goes_on_with_what_is_missing(tmp_path):
    """Mutants: rows that are there made again; the file written at the end alone."""
    calls = []

    def run(name, seed):
        calls.append((name, seed))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return seed

    runs = {"part": {name: lambda seed, name=name: run(name, seed) for name in ("one", "two")}}
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "x.json", runs)
    found = made(tmp_path / "x.json", runs)
    assert found["part"] == {name: {"0": 0, "1": 1} for name in ("one", "two")}
    assert sorted(calls) == [("one", 0), ("one", 1), ("two", 0), ("two", 0), ("two", 1)]


def test_a_part_recorded_anew_leaves_the_others(tmp_path):
    file, about, made = tmp_path / "runs.json", {"command": "python -m tools.x"}, []

    def part(name):
        return lambda: made.append(name) or {"losses": [1.5, 1.25], "of": name}

    parts = {name: part(name) for name in ("a", "b")}
    record_parts(file, parts, wanted=(), about=about)
    first = read(file)
    assert first["a"] == {"losses": [1.5, 1.25], "of": "a"}
    assert set(first) == {"a", "b", "command", "date", "machine"}
    record_parts(file, parts | {"b": lambda: 2}, wanted=["b"], about=about)
    assert read(file) == first | {"b": 2}
    assert made == ["a", "b"]


@pytest.mark.parametrize("recording", [record, record_parts])
def test_a_part_that_there_is_not_is_refused_before_any_is_made(recording, tmp_path):
    """Mutant: no look at what is wanted, so nothing happens."""
    runs, seeds = {"a": {}, "b": {}}, {"seeds": (0,)} if recording is record else {}
    with pytest.raises(SystemExit, match="no part is called c; there are a, b"):
        recording(tmp_path / "x.json", runs, wanted=["a", "c"], about={}, **seeds)
    assert not (tmp_path / "x.json").exists()


def test_only_the_wanted_parts_are_made(tmp_path):
    runs = {part: {"": lambda seed: seed} for part in ("a", "b")}
    assert "a" not in made(tmp_path / "x.json", runs, wanted=["b"])
    found = made(tmp_path / "x.json", runs, seeds=(0,))
    assert (found["a"], found["b"]) == ({"": {"0": 0}}, {"": {"0": 0, "1": 1}})
