"""A stage is kept as long as nothing that it depends on changes, and else done anew."""

import json
from dataclasses import asdict, replace

import pytest
from tiny_machine import tiny

from llmcourse_labs.capstone.config import Crawl, Funnel
from llmcourse_labs.capstone.log import Log, read_log
from llmcourse_labs.capstone.stage import Artifact, ArtifactStore, CapstoneStage

CALLS = []


def write(place):
    CALLS.append(place.folder.name.partition("_")[2])
    told = {each: facts["text"] for each, facts in place.facts.items()}
    text = json.dumps([told, place.config.crawl.pages, place.config.funnel.run_of_words])
    (place.folder / "text").write_text(text)
    return Artifact({"text": text}, [place.folder / "text"])


def a_stage(name, *reads, section="crawl"):
    return CapstoneStage(
        name, name, reads, lambda c: asdict(getattr(c, section)), write, lambda f: f["text"]
    )


STAGES = (a_stage("one"), a_stage("two", "one", section="funnel"), a_stage("three", "two"))


def call(folder, config=None, shelf=ArtifactStore):
    CALLS.clear()
    with Log(folder) as log:
        made = shelf(config or tiny(), folder, STAGES, log)
        for stage in STAGES:
            made.bring(stage.name)
    return list(CALLS)


def with_settings(**sections):
    return lambda folder: replace(tiny(), **sections)


def with_file(name, edit):
    def change(folder):
        content = edit((folder / name).read_text())
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_text(content)
        return tiny()

    return change


def better(record):
    content = json.loads(record)
    content["facts"]["text"] = "better"
    return json.dumps(content)


damaged = with_file("02_two/text", lambda _: "another text")
CHANGES = {
    "nothing": (with_settings(), []),
    "a setting": (with_settings(funnel=Funnel(run_of_words=8)), ["two", "three"]),
    "the first": (with_settings(crawl=Crawl(pages=99)), ["one", "two", "three"]),
    "a file": (damaged, ["two"]),  # what it writes anew is what was there
    "a file that is gone": (with_file("01_one/text", lambda _: None), ["one"]),
    "a record cut short": (with_file("02_two/done.json", lambda _: '{"facts":'), ["two"]),
    "a fact": (with_file("02_two/done.json", better), ["two"]),
}


def check(shelf=ArtifactStore, *, folder):
    assert call(folder, shelf=shelf) == ["one", "two", "three"]
    for name, (change, expected) in CHANGES.items():
        assert call(folder, change(folder), shelf=shelf) == expected, name
        call(folder, shelf=shelf)  # as it was


REASONS = ["text is not what the stage has written", "text is gone", "done.json was changed"]
REASONS += ["other settings: run_of_words", "other inputs: one"]


def test_what_changed_is_done_anew_and_nothing_else(tmp_path):
    check(folder=tmp_path)
    events = read_log(tmp_path)
    assert {e["event"] for e in events} == {"begin", "end", "kept", "again"}
    assert {e["why"] for e in events if e["event"] == "again"} >= set(REASONS)


class WithoutSettings(ArtifactStore):
    def key_of(self, name):
        return super().key_of(name) | {"settings": {}}


class WithoutInputs(ArtifactStore):
    def key_of(self, name):
        return super().key_of(name) | {"inputs": {}}


class WithoutHashes(ArtifactStore):
    def why_not(self, name):
        why = super().why_not(name)
        return "" if "is not what" in why or "was changed" in why else why


class AlwaysAnew(ArtifactStore):
    def why_not(self, name):
        return super().why_not(name) or "new"


@pytest.mark.parametrize("mutant", [WithoutSettings, WithoutInputs, WithoutHashes, AlwaysAnew])
def test_the_check_notices(mutant, tmp_path):
    with pytest.raises(AssertionError):
        check(mutant, folder=tmp_path)


def test_a_stage_that_was_cut_short_goes_on_in_its_folder(tmp_path, monkeypatch):
    def cut_short(place):
        (place.folder / "half").write_text("half")
        raise KeyboardInterrupt

    stages = (a_stage("one"), replace(a_stage("two", "one"), run=cut_short))
    with Log(tmp_path) as log:
        shelf = ArtifactStore(tiny(), tmp_path, stages, log)
        shelf.bring("one")
        with pytest.raises(KeyboardInterrupt):
            shelf.bring("two")
    assert not (tmp_path / "02_two" / "done.json").exists()
    seconds = json.loads((tmp_path / "02_two" / "begun.json").read_text())["seconds"]
    found = []

    def go_on(place):
        found.append((place.folder / "half").exists())
        return write(place)

    for config in (tiny(), replace(tiny(), crawl=Crawl(pages=99))):
        with Log(tmp_path) as log:
            shelf = ArtifactStore(config, tmp_path, (stages[0], replace(stages[1], run=go_on)), log)
            shelf.bring("one")
            assert shelf.bring("two")["seconds"] >= seconds if config == tiny() else True
            shelf.bring("two")
    assert found == [True, False]  # with other settings it begins in an empty folder


def test_the_plan_names_what_follows(tmp_path):
    call(tmp_path)
    damaged(tmp_path)
    with Log(tmp_path) as log:
        plan = ArtifactStore(tiny(), tmp_path, STAGES, log).planned()
    assert plan == {"one": "", "two": REASONS[0], "three": "after two"}


def test_a_line_that_a_crash_has_cut_short_spoils_no_other(tmp_path):
    with Log(tmp_path) as log:
        log("begin", stage="one", goes_on=False)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"at": 1, "eve')
    with Log(tmp_path) as log:
        log("end", stage="one", seconds=1.0)
    assert [e["event"] for e in read_log(tmp_path)] == ["begin", "end"]
    with pytest.raises(ValueError, match="holds no capstone: llmcourse capstone --out"):
        read_log(tmp_path / "elsewhere")
