"""The report of a run: what it says, what it refuses, and that it says the same twice."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from llmcourse import __main__ as one_command
from llmcourse import checkpoint, model, train
from llmcourse.base.runtime import generator
from llmcourse.data import read_prepared
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.data.tokenizer import Tokenizer, train_bpe
from llmcourse_labs import evaluate
from llmcourse_labs.curation import prepare_text
from llmcourse_labs.evaluate import report_ability as ability
from llmcourse_labs.evaluate.report import TITLES
from llmcourse_labs.evaluate.report_page import page, shown
from llmcourse_labs.scale import cost
from llmcourse_labs.tuning import sft_config

ITEMS = 3


def make(folder):
    """Two runs of four steps, the second fine-tuned from the first, each with an evaluation."""
    shape = replace(train.PRESETS["tiny"]().model, context_length=192)
    often = {"validate_every": 2, "checkpoint_every": 2, "sample_tokens": 1}
    config = train.PRESETS["tiny"]().replace(model=shape, steps=4, warmup_steps=1, **often)
    train.fit(train.start(config, folder / "base"))
    few = {"steps": 4, "warmup_steps": 1, "batch_size": 2, "examples": 20}
    train.fit(train.start(sft_config(folder / "base", **few, **often), folder / "tuned"))
    for name, suite in (("base", "stories"), ("tuned", "tasks")):
        words = ["--run", str(folder / name), "--suite", suite, "--items", str(ITEMS)]
        assert one_command.main(["evaluate", *words]) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    make(folder)
    return folder


@pytest.fixture
def base(made, tmp_path):
    return shutil.copytree(made / "base", tmp_path / "runs" / "base")


@pytest.fixture
def told(made, tmp_path):
    return evaluate.report(made / "base", tmp_path / "told")["sections"]


def value(sections, name, what):
    return sections[name]["facts"][what]["value"]


def rows(sections, name, caption):
    (table,) = (t for t in sections[name]["tables"] if caption in t["caption"])
    return table["rows"]


def refused(folder, message, out, **options):
    with pytest.raises(ValueError, match=message):
        evaluate.report(folder, out, **options)
    assert not out.exists()


def test_every_number_is_that_of_the_run(made, told):
    """Mutants: positions of a step less, the first loss for the last, the text of both splits."""
    config = train.resume(made / "base").config
    lines = (made / "base" / "metrics.jsonl").read_text().splitlines()
    log = [json.loads(line) for line in lines]
    prepared = train.prepare(config, made / "base" / "data")
    net, tokenizer = evaluate.load_model(made / "base")
    expected = {
        ("run", "steps done"): 4,
        ("data", "tokens to train on"): len(prepared.training),
        ("data", "tokens held out"): len(prepared.validation),
        ("mixture", "passes over the text"): 4 * 8 * 192 / len(prepared.training),
        ("shape", "parameters in the checkpoint"): sum(w.numel() for w in net.parameters()),
        ("shape", "parameters by formula"): cost.num_parameters(config.model),
        ("compute", "positions learnt from"): 4 * 8 * 192,
        ("compute", "FLOPs of the run"): 4 * 8 * 192 * cost.training_flop_per_token(config.model),
        ("losses", "training loss at step 4"): log[-1]["loss"],
        ("losses", "last validation loss, at step 4"): log[-1]["validation_loss"],
        ("before", "stages before this run"): 0,
        ("seeds", "weights, order of the text, samples"): config.seed,
        ("hashes", "weights"): evaluate.weights_hash(net.state_dict()),
        ("hashes", "tokenizer"): tokenizer.fingerprint,
        ("hashes", "training tokens"): prepared.training.fingerprint,
        ("settings", "learning_rate"): config.schedule.learning_rate,
    }
    assert {key: value(told, *key) for key in expected} == expected
    (training, held_out) = rows(told, "data", "Sources")
    ids = prepared.training[: len(prepared.training)].tolist()
    texts = tokenizer.decode(ids).split(END_OF_TEXT)[:-1]
    assert training[2:4] == [len(texts), sum(len(text.encode()) for text in texts)]
    assert held_out[:2] == ["own", "validation"]
    (curve,) = told["losses"]["curves"]
    assert curve["lines"]["training"] == [[row["step"], row["loss"]] for row in log]
    assert [step for step, _ in curve["lines"]["validation"]] == [2, 4]


def test_benchmarks_have_their_intervals_and_what_is_not_measured_is_said(told):
    found = rows(told, "benchmarks", "stories: shares")
    by_name = {(of, how): rest for of, how, *rest in found}
    assert {of for of, _ in by_name} == {*evaluate.SKILLS, "all"}
    items, right, share, low, high = by_name["next", "plain"]
    assert (items, share) == (ITEMS, pytest.approx(right / ITEMS, abs=1e-4))
    assert (low, high) == pytest.approx(evaluate.wilson(right, ITEMS), abs=1e-4)
    notes = " ".join(told["benchmarks"]["notes"])
    assert "tasks: not measured; llmcourse evaluate --run base --suite tasks" in notes
    assert told["funnel"]["missing"] == "the text of this run was not prepared from files"


@pytest.mark.parametrize("few", [6, 8])
def test_the_overlap_is_that_of_the_texts_with_a_control(few, made, tmp_path, monkeypatch):
    """Mutants: held-out text for training text, prompts without answers, flags turned round."""
    monkeypatch.setattr(ability, "RUN_WORDS", few)  # 13 words in a row so little text has not
    told = evaluate.report(made / "base", tmp_path)["sections"]
    training, held_out = train.texts(train.resume(made / "base").config)
    items = [item.prompt + item.choices[item.right] for item in evaluate.story_items(ITEMS, seed=1)]
    flags = evaluate.overlapping_items(items, training[0].split(END_OF_TEXT), n=few)
    by_chance = evaluate.overlapping_items(items, held_out[0].split(END_OF_TEXT), n=few)
    found = {where: rest for _, where, *rest in rows(told, "contamination", "Overlap")}
    size = len(items)
    assert found[ability.ALL][1:] == [size, sum(flags), sum(flags) / size]
    assert found[ability.HELD_OUT][1:] == [size, sum(by_chance), sum(by_chance) / size]
    assert found[ability.AS_MUCH][0] == found[ability.HELD_OUT][0] < found[ability.ALL][0]
    assert found[ability.AS_MUCH][2] <= sum(flags)
    assert "False positives" in " ".join(told["contamination"]["notes"])
    shares = {which: rest for _, which, *rest in rows(told, "contamination", "Score")}
    if few == 6:
        assert (sum(flags), sum(by_chance) > 0) == (size, True)  # so the control has something
        assert shares["not found"] == [0, 0, "not measured: all were found"]
        return
    evaluated = json.loads((made / "base" / "evaluation_stories.json").read_text())
    right = [mark == "1" for mark in evaluated["rows"]["all"]["plain"]["verdicts"]]
    clean = evaluate.split_score(right, flags)
    assert shares["not found"] == [clean.clean_items, clean.clean_right, clean.clean]
    assert shares["found"] == [clean.flagged_items, clean.flagged_right, clean.flagged]


def test_a_fine_tuned_run_tells_of_the_run_before_it(made, tmp_path):
    sections = evaluate.report(made / "tuned", tmp_path)["sections"]
    (before,) = rows(sections, "before", "Runs")
    assert before[:4] == ["base", "pretrain", "stories", 4]
    assert before[-1] == evaluate.weights_hash(evaluate.load_model(made / "base")[0].state_dict())
    assert value(sections, "seeds", "the same of base") == 0
    assert value(sections, "settings", "start") == '"base"'
    _, where, searched, *_ = rows(sections, "contamination", "Overlap")[0]
    assert where == ability.ALL
    both = [evaluate.report(made / name, tmp_path)["sections"] for name in ("base", "tuned")]
    assert searched == sum(value(each, "data", "tokens to train on") for each in both)


def test_a_run_whose_start_has_gone_says_so(made, tmp_path):
    alone = shutil.copytree(made / "tuned", tmp_path / "elsewhere" / "tuned")
    settings = json.loads((alone / "config.json").read_text())
    gone = tmp_path / "gone" / "base"
    saved = checkpoint.load(alone / "checkpoints")
    path = checkpoint.latest(alone / "checkpoints")
    parts = {name: getattr(saved, name) for name in ("step", "model", "optimizer", "schedule")}
    config = saved.config | {"start": str(gone)}
    shutil.rmtree(alone / "checkpoints")
    checkpoint.save(path, **parts, data=saved.data, config=config)
    (alone / "config.json").write_text(json.dumps(settings | {"start": str(gone)}))
    sections = evaluate.report(alone, tmp_path / "out")["sections"]
    assert sections["before"]["missing"] == "base, which the run started from, is not here any more"
    assert "is not here" in sections["contamination"]["missing"]


class Read(HTMLParser):
    """What a page says: sections, headings, numbers with all their digits, whatever it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.numbers, self.loads, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "section":
            self.ids.append(given["id"])
        if tag == "data":
            self.numbers.append([given["value"], ""])
            self.open.append(tag)
        self.loads += [given[name] for name in ("src", "href") if given.get(name, "#")[0] != "#"]

    def handle_endtag(self, tag):
        if tag == "data":
            self.open.pop()

    def handle_data(self, data):
        if self.open:
            self.numbers[-1][1] += data


def numbers_in(record):
    for section in record["sections"].values():
        for fact in section["facts"].values():
            yield from (fact[name] for name in ("value", "low", "high") if name in fact)
        for table in section["tables"]:
            yield from (cell for row in table["rows"] for cell in row[1:])


def test_the_page_has_every_section_and_every_number(made, tmp_path):
    """Mutants: a section without facts left out, two digits for five, rows after the tenth lost."""
    for name in ("base", "tuned"):
        record = evaluate.report(made / name, tmp_path)
        assert json.loads((tmp_path / "report.json").read_text()) == record
        assert list(record["sections"]) == list(TITLES)
        text = (tmp_path / "report.html").read_text()
        read = Read(text)
        assert read.ids == list(TITLES)
        assert set(read.loads) == {"data:,"}
        expected = [repr(n) for n in numbers_in(record) if type(n) in (int, float)]
        assert [exact for exact, _ in read.numbers] == expected
        for exact, said in read.numbers:
            plain = re.sub(r" × 10(-?\d+)", r"e\1", said.replace(",", ""))
            assert float(plain) == pytest.approx(float(exact), rel=5.1e-5), exact
        missing = sum("missing" in section for section in record["sections"].values())
        assert text.count("Not measured: ") == missing
        assert re.search(r'<svg [^>]*role="img" aria-labelledby="losses-0-told"', text)


@pytest.mark.parametrize(
    ("value", "says"),
    [(1234567, "1,234,567"), (0.123456, "0.12346"), (3.8e25, "3.8e+25"), (2.0, "2"), (True, "yes")],
)
def test_how_values_are_shown(value, says):
    assert shown(value) == says


def test_text_of_others_is_no_markup(made, tmp_path):
    name = '<script>alert("1")</script>'
    stage = {"title": name, "facts": {name: {"value": name, "from": name}}, "notes": [name]}
    stage["tables"] = [{"caption": name, "columns": [name], "rows": [[name]], "from": name}]
    stage["curves"] = [{"x": name, "y": name, "lines": {name: [[1, 2.0]]}, "from": name}]
    assert "<script" not in page(evaluate.report(made / "base", tmp_path, stages={name: stage}))


def test_a_loss_that_is_no_number_is_told_in_words(made, base, tmp_path):
    log = base / "metrics.jsonl"
    first, second, *rest = log.read_text().splitlines()
    broken = json.dumps(json.loads(second) | {"loss": float("nan")})
    log.write_text("\n".join([first, broken, *rest, ""]))
    (curve,) = evaluate.report(base, tmp_path / "out")["sections"]["losses"]["curves"]
    assert curve["lines"]["training"][1] == [2, "nan"]
    (curve,) = evaluate.report(made / "base", tmp_path / "whole")["sections"]["losses"]["curves"]
    assert "nan" not in str(curve)


def test_two_reports_of_equal_runs_are_equal_to_the_byte(made, tmp_path):
    """Mutants: settings with whole paths, the clock in the title, the order of a set."""
    make(tmp_path / "second")
    for name in ("base", "tuned"):
        texts = []
        for number, folder in enumerate((made, tmp_path / "second")):
            out = tmp_path / f"{name}{number}"
            evaluate.report(folder / name, out)
            record = json.loads((out / "report.json").read_text())
            html = (out / "report.html").read_text()
            assert str(folder) not in html
            assert str(folder) not in json.dumps(record)
            assert list(record["sections"])[-1] == "times"
            cut = html.index('<section id="times"'), html.index("</main>")
            del record["sections"]["times"]
            texts.append((html[: cut[0]] + html[cut[1] :], json.dumps(record)))
        assert texts[0] == texts[1]


def test_sections_of_a_caller_stand_before_the_benchmarks(made, tmp_path):
    dpo = {"title": "Preferences", "facts": {"pairs": {"value": 400, "from": "dpo/pairs.jsonl"}}}
    table = {"caption": "Steps", "columns": ["step", "kept"], "rows": [["rules", 95]], "from": "x"}
    stages = {"dpo": dpo, "funnel": {"tables": [table]}}
    sections = evaluate.report(made / "base", tmp_path, stages=stages)["sections"]
    names = list(sections)
    assert names.index("dpo") + 1 == names.index("benchmarks")
    assert set(names) == {*TITLES, "dpo"}
    assert sections["funnel"]["title"] == TITLES["funnel"]
    assert "missing" not in sections["funnel"]
    same = {"facts": {"steps done": {"value": 4, "from": "elsewhere"}}}
    sections = evaluate.report(made / "base", tmp_path, stages={"run": same})["sections"]
    assert sections["run"]["facts"]["steps done"]["from"].startswith("checkpoints/")


@pytest.mark.parametrize(
    ("name", "section", "message"),
    [
        ("x", {"facts": {}}, "'x' needs a title"),
        ("x", {"title": "X"}, "'x' is empty: say what is missing"),
        ("x", {"title": "X", "rows": []}, "has 'rows': its parts are title, facts"),
        ("run", {"facts": {"a": {"value": 1}}}, "fact 'a' .* must say where it is from"),
        ("run", {"facts": {"a": {"value": 1, "from": "/home/a"}}}, "another machine"),
        ("run", {"facts": {"a": {"value": None, "from": "b"}}}, "a number, a string or a bool"),
        ("run", {"facts": {"steps done": {"value": 5, "from": "b"}}}, "says 4: leave it out"),
        ("run", {"tables": [{"caption": "", "rows": [], "from": "b"}]}, "lacks 'columns'"),
        ("run", {"curves": [{"x": "", "y": "", "from": "b"}]}, "lacks 'lines'"),
    ],
)
def test_sections_that_are_none_are_refused(name, section, message, made, tmp_path):
    refused(made / "base", message, tmp_path / "out", stages={name: section})


def test_no_run_and_half_a_run(base, tmp_path, capsys):
    """Mutant: the newest intact checkpoint is taken, whatever its step."""
    out = tmp_path / "out"
    refused(tmp_path, "holds no run", out)
    checkpoint.list_checkpoints(base / "checkpoints")[-1].unlink()
    refused(base, "is at step 2 of 4: go on with llmcourse train --resume", out)
    shutil.rmtree(base / "checkpoints")
    refused(base, "holds no checkpoint yet", out)
    assert one_command.main(["report", "--run", str(base)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("llmcourse report: ")
    assert said.count("\n") == 1


def test_a_damaged_checkpoint_is_not_passed_over(base, tmp_path):
    """Mutant: `latest`, which takes the checkpoint before it."""
    newest = checkpoint.list_checkpoints(base / "checkpoints")[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    refused(base, "step_00000004.ckpt", tmp_path / "out")


def test_tokens_that_have_changed(base, made, tmp_path):
    shard = base / "data" / "training" / "shard_00000.bin"
    content = bytearray(shard.read_bytes())
    content[-2] ^= 1
    shard.write_bytes(content)
    refused(base, "is damaged: its tokens do not match its hash", tmp_path / "out")
    shutil.copy(made / "base" / "data" / "validation" / "shard_00000.bin", shard)
    refused(base, "has learnt from other tokens than its data holds now", tmp_path / "out")


def changed(base, change):
    file = base / "evaluation_stories.json"
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.update(model="0" * 16), "of other weights, 0000000000000000; those of the"),
        (lambda e: e.update(tokenizer="0"), "of another tokenizer than the run's"),
        (lambda e: e.pop("seed"), "is no evaluation"),
        (lambda e: e.update(rows=[]), "is no evaluation"),
        (lambda e: e.update(suite="poems"), "its suite or its rows are strange"),
        (lambda e: e["rows"]["next"]["plain"].update(share=0.99), "next, plain has share 0.99"),
        (lambda e: e["rows"]["next"]["plain"].update(high=1.0), "next, plain has high 1.0"),
        (lambda e: e["rows"]["sum"]["plain"].update(verdicts="111", right=2), "right 2, and what"),
        (lambda e: e["rows"]["sum"]["plain"].update(verdicts="", right=0), "must be 1 or greater"),
        (lambda e: e["rows"]["all"]["plain"].update(low=0.999), "outside of its own interval"),
    ],
)
def test_evaluations_of_others_or_changed_by_hand(change, message, base, tmp_path):
    """Mutants: weights not compared, verdicts not counted, intervals not computed again."""
    changed(base, change)
    refused(base, message, tmp_path / "out")


def test_an_evaluation_is_stale_once_the_run_has_gone_on(base, tmp_path):
    train.fit(train.resume(base, steps=5))
    refused(base, "of other weights", tmp_path / "out")
    (base / "evaluation_stories.json").unlink()
    sections = evaluate.report(base, tmp_path / "out")["sections"]
    assert sections["benchmarks"]["missing"] == "there is no evaluation of these weights"
    assert "no evaluation" in sections["contamination"]["missing"]


def test_rows_that_an_ended_evaluation_lacks_are_named(base, tmp_path):
    changed(base, lambda e: [e["rows"].pop(name) for name in ("all", "loss")])
    sections = evaluate.report(base, tmp_path / "out")["sections"]
    assert "stories: not measured: all, loss" in " ".join(sections["benchmarks"]["notes"])
    assert "the evaluation in evaluation_stories.json" in sections["contamination"]["missing"]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A run on a mixture of two sources, the first of which went through a funnel."""
    folder = tmp_path_factory.mktemp("mixed")
    source = folder / "curated" / "documents"
    source.mkdir(parents=True)
    texts = [text for text in stories(30_000, 3).split(END_OF_TEXT) if text]
    (source / "a.jsonl").write_text("".join(f"{json.dumps({'text': t})}\n" for t in texts))
    data = folder / "curated" / "data"
    first = prepare_text([source], data / "first", vocab_size=300)
    (folder / "b.txt").write_text(stories(20_000, 4))
    prepare_text([folder / "b.txt"], data / "second", tokenizer=first.folder / "tokenizer")
    size = sum(len(text.encode()) for text in texts)
    tally = {"name": "read", "taken": len(texts) + 2, "kept": len(texts), "changed": 1}
    record = {"documents": len(texts) + 2, "left": len(texts), "left_out": ["quality"]}
    record["tallies"] = [tally | {"kept_bytes": size}]
    (folder / "curated" / "report.json").write_text(json.dumps(record))
    settings = {"corpus": "prepared", "data": str(data), "steps": 5, "warmup_steps": 1}
    shares = {"mix": "first=0.75,second=0.25", "anneal": "3:second=1"}
    config = train.PRESETS["tiny"]().replace(**settings, **shares, sample_tokens=1)
    train.fit(train.start(config, folder / "run"))
    return folder


def test_a_mixture_has_its_shares_epochs_and_funnel(mixed, tmp_path):
    """Mutants: epochs of the first stage alone, the funnel of whatever lies there."""
    sections = evaluate.report(mixed / "run", tmp_path)["sections"]
    shares = [[0, "first", 0.75], [0, "second", 0.25], [3, "second", 1.0]]
    assert rows(sections, "mixture", "Shares") == shares
    read = {name: rest for name, *rest in rows(sections, "mixture", "Read")}
    assert [windows for windows, _ in read.values()] == [3 * 8 * 3 // 4, 3 * 8 // 4 + 2 * 8]
    prepared = read_prepared(mixed / "curated" / "data" / "first")
    windows = (prepared.training.tokens - 1) // train.PRESETS["tiny"]().model.context_length
    assert read["first"][1] == 18 / windows
    by_split = {(n, s): rest for n, s, *rest in rows(sections, "data", "Sources")}
    assert by_split["first", "training"] == list(prepared.training[:3])
    number = prepared.training.documents + prepared.validation.documents
    assert value(sections, "funnel", "documents left") == number
    assert value(sections, "funnel", "documents read") == number + 2
    assert "Left out: quality." in sections["funnel"]["notes"]


def test_a_funnel_of_other_documents_is_not_taken(mixed, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    message = "is not there: name the folder that llmcourse curate wrote with --curated"
    refused(mixed / "run", message, tmp_path / "out", curated=other)
    record = json.loads((mixed / "curated" / "report.json").read_text())
    record["tallies"][-1]["kept_bytes"] += 1
    (other / "report.json").write_text(json.dumps(record))
    refused(mixed / "run", "is of other documents than the data", tmp_path / "out", curated=other)
    (other / "report.json").write_text("{}")
    refused(mixed / "run", "is no report of llmcourse curate", tmp_path / "out", curated=other)


def test_text_that_has_gone_is_told_as_it_was_recorded(mixed, tmp_path):
    before = evaluate.report(mixed / "run", tmp_path / "before")["sections"]
    (mixed / "curated").rename(mixed / "away")
    try:
        after = evaluate.report(mixed / "run", tmp_path / "after")["sections"]
    finally:
        (mixed / "away").rename(mixed / "curated")
    assert rows(after, "data", "Sources") == rows(before, "data", "Sources")
    assert "nobody compared their hashes" in " ".join(after["data"]["notes"])
    assert "not measured" in " ".join(after["mixture"]["notes"])
    of_both = [{k: v["value"] for k, v in s["hashes"]["facts"].items()} for s in (before, after)]
    assert of_both[0] == of_both[1]
    assert "is not there" in after["funnel"]["missing"]


def test_the_command_writes_beside_the_run_unless_told_where(base, tmp_path, capsys):
    assert one_command.main(["report", "--run", str(base)]) == 0
    assert "Funnel of the documents: not measured: the text" in capsys.readouterr().out
    assert {path.name for path in (base / "report").iterdir()} == {"report.html", "report.json"}
    assert one_command.main(["report", "--run", str(base), "--out", str(tmp_path / "o")]) == 0
    assert (tmp_path / "o" / "report.html").exists()


def test_a_tokenizer_of_another_run_is_refused_though_it_has_as_many_ids(base, tmp_path):
    """Mutant: the sizes of the vocabularies are compared, and nothing else."""
    old = Tokenizer.load(base / "data" / "tokenizer")
    other = train_bpe([stories(60_000, 99)], old.vocab_size, [END_OF_TEXT])
    assert other.fingerprint != old.fingerprint
    shutil.rmtree(base / "data" / "tokenizer")
    other.save(base / "data" / "tokenizer")
    with pytest.raises(ValueError, match="is the tokenizer of another run"):
        evaluate.load_model(base)
    refused(base, "was written with another tokenizer", tmp_path / "out")


def test_a_model_that_has_diverged_has_no_answers(made, tmp_path):
    """Mutant: of scores that are all NaN the first is the largest, and 'right' by chance."""
    net, tokenizer = evaluate.load_model(made / "base")
    broken = model.Transformer(net.config, generator=generator(0))
    for weight in broken.parameters():
        weight.data.fill_(float("nan"))
    how = {"num_items": ITEMS, "seed": 1, "file": tmp_path / "x.json", "write": str}
    with pytest.raises(ValueError, match="NaN: its weights have diverged"):
        evaluate.evaluate(broken.eval(), tokenizer, "stories", **how)
