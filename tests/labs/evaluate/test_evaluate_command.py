"""llmcourse evaluate: rows, resuming, exports, other models, and the numbers of lm-eval."""

import json
from dataclasses import replace

import pytest
import torch

from llmcourse import __main__ as one_command
from llmcourse import train
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse_labs import evaluate
from llmcourse_labs.evaluate import command as own
from llmcourse_labs.export.folder import export
from llmcourse_labs.tuning import sft_config

NUM_ITEMS = 3


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    base = train.PRESETS["tiny"]()
    base = base.replace(model=replace(base.model, context_length=192), steps=2, warmup_steps=1)
    train.fit(train.start(base.replace(sample_tokens=1), folder / "base"))
    export(folder / "base", folder / "exported")
    tuned = sft_config(folder / "base", steps=2, warmup_steps=1, batch_size=2, examples=20)
    train.fit(train.start(tuned.replace(sample_tokens=1, validate_every=0), folder / "tuned"))
    return folder


def call(*words):
    return one_command.main(["evaluate", "--items", str(NUM_ITEMS), *map(str, words)])


def rows_of(file):
    return json.loads(file.read_text(encoding="utf8"))["rows"]


def test_a_run_is_evaluated_and_its_export_has_the_same_numbers(folders, capsys, tmp_path):
    files = [tmp_path / f"{name}.json" for name in ("base", "exported")]
    for file in files:
        assert call("--run", folders / file.stem, "--out", file) == 0
    assert capsys.readouterr().out.count("written to") == 2
    first, second = map(rows_of, files)
    assert list(first) == [*evaluate.SKILLS, "all", "loss"]
    assert first == second
    model, tokenizer = evaluate.load_model(folders / "base")
    items = evaluate.story_items(NUM_ITEMS, seed=1, skills=["next"])
    for how in ("plain", "per byte"):
        right = evaluate.are_right(items, evaluate.choice_scores(model, tokenizer, items), how)
        row = first["next"][how]
        assert row["verdicts"] == "".join("01"[r] for r in right)
        interval = evaluate.wilson(sum(right), NUM_ITEMS)
        assert (row["low"], row["high"]) == pytest.approx(interval, abs=1e-4)


def test_the_file_lies_beside_the_run_unless_another_is_named(folders, capsys):
    assert call("--run", folders / "base") == 0
    file = folders / "base" / "evaluation_stories.json"
    assert str(file) in capsys.readouterr().out
    named = {"suite", "items", "seed", "model", "tokenizer", "rows"}
    assert json.loads(file.read_text()).keys() == named


def test_a_call_that_was_ended_goes_on(folders, tmp_path, monkeypatch, capsys):
    file, whole = tmp_path / "cut.json", tmp_path / "whole.json"
    assert call("--run", folders / "base", "--out", whole) == 0
    names, measure, head = own.SUITES["stories"]
    asked = []

    def ended(model, tokenizer, name, *rest, **more):
        asked.append(name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return measure(model, tokenizer, name, *rest, **more)

    monkeypatch.setitem(own.SUITES, "stories", (names, ended, head))
    assert call("--run", folders / "base", "--out", file) == 130
    assert list(rows_of(file)) == list(evaluate.SKILLS[:2])
    assert call("--run", folders / "base", "--out", file) == 0
    assert asked == [*names[:3], *names[2:]]
    assert file.read_text() == whole.read_text()
    capsys.readouterr()
    assert call("--run", folders / "base", "--out", file) == 0  # nothing is left to do
    assert len(asked) == 1 + len(names)
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[1:-1]] == list(names)


def test_what_is_of_another_model_is_not_kept(folders, tmp_path, capsys):
    file = tmp_path / "one.json"
    assert call("--run", folders / "base", "--out", file) == 0
    first = rows_of(file)
    assert call("--run", folders / "base", "--out", file, "--seed", 2) == 0
    assert "of another model or other items: starting anew" in capsys.readouterr().err
    assert rows_of(file) != first
    model, tokenizer = evaluate.load_model(folders / "base")
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    told = []
    how = {"num_items": NUM_ITEMS, "seed": 2, "file": file, "write": told.append}
    evaluate.evaluate(model, tokenizer, "stories", **how)
    assert "starting anew" in capsys.readouterr().err
    assert len(told) == 1 + len(evaluate.SKILLS) + 2


def test_a_fine_tuned_run_answers_tasks(folders, tmp_path, capsys):
    file = tmp_path / "tasks.json"
    assert call("--run", folders / "tuned", "--suite", "tasks", "--out", file) == 0
    rows = rows_of(file)
    assert list(rows)[-1] == "refusals"
    assert rows["ball"]["exact"]["verdicts"] == "0" * NUM_ITEMS
    assert rows["ball"]["items"] == NUM_ITEMS
    capsys.readouterr()
    assert call("--run", folders / "base", "--suite", "tasks", "--out", tmp_path / "x") == 2
    assert "the tokenizer lacks ['<|system|>'" in capsys.readouterr().err


def test_what_the_command_refuses(folders, tmp_path, capsys):
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[1, 2]")
    told = {
        ("--run", folders / "base", "--suite", "poems"): "suite must be stories or tasks",
        ("--run", folders / "base", "--items", "1"): "items must be 2 or greater, got 1",
        ("--run", folders / "base", "--seed", "-1"): "seed must be 0 or greater",
        ("--run", tmp_path / "none"): "no run",
        ("--run", folders / "base", "--out", wrong): "is no evaluation: move it away",
    }
    for words, message in told.items():
        assert call(*words) == 2, words
        said = capsys.readouterr().err
        assert message in said, said
        assert said.count("\n") == 1
    assert wrong.read_text() == "[1, 2]"


METRICS = {"acc": "plain", "acc_norm": "per byte", "acc_mutual_info": "unconditional"}


@pytest.mark.filterwarnings("default")
def test_lm_eval_gives_the_same_numbers(folders, tmp_path):
    pytest.importorskip("lm_eval")
    from lm_eval import simple_evaluate  # noqa: PLC0415
    from lm_eval.api.task import ConfigurableTask  # noqa: PLC0415
    from lm_eval.models.huggingface import HFLM  # noqa: PLC0415

    items = evaluate.story_items(20, seed=1, skills=["next", "thing"])
    rows = [vars(i) | {"prompt": END_OF_TEXT + i.prompt} for i in items]
    data = tmp_path / "items.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf8")
    mean = {"aggregation": "mean", "higher_is_better": True}
    task = ConfigurableTask(
        config={
            "task": "stories_of_ours",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
            "output_type": "multiple_choice",
            "doc_to_text": "{{prompt}}",
            "doc_to_choice": "{{choices}}",
            "doc_to_target": "right",
            "target_delimiter": "",
            "metric_list": [{"metric": m, **mean} for m in METRICS],
        }
    )
    theirs = HFLM(pretrained=str(folders / "exported"), device="cpu", batch_size=8)
    found = simple_evaluate(model=theirs, tasks=[task], bootstrap_iters=0, log_samples=True)
    told = found["samples"]["stories_of_ours"]
    model, tokenizer = evaluate.load_model(folders / "exported")
    scores = evaluate.choice_scores(model, tokenizer, items)
    for name, how in METRICS.items():
        by_item = {sample["doc_id"]: sample[name] for sample in told}
        right = evaluate.are_right(items, scores, how)
        assert [bool(by_item[k]) for k in range(len(items))] == right, name
    for sample in told:
        values = [pair[0] for pair in sample["filtered_resps"]][:4]
        assert values == pytest.approx(scores[sample["doc_id"]].log_probs, abs=1e-3)
