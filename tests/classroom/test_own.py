"""A reader's own Llama: put together, trained, resumed, graded, and told its faults."""

import json
import re
from pathlib import Path

import nbformat
import pytest
import torch

from llmcourse import nutshell
from llmcourse.data import corpus
from llmcourse_classroom.exercises import exercise
from llmcourse_classroom.exercises.result import State
from llmcourse_classroom.own import __main__ as command
from llmcourse_classroom.own import assemble, grade

EXERCISES = Path(__file__).parents[2] / "exercises"
PIECES = assemble.pieces(assemble.template())


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for number in sorted({piece.number[:2] for piece in PIECES}):
        (source,) = (EXERCISES / "solutions").glob(f"{number}_*.ipynb")
        notebook = nbformat.read(source, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.source = exercise.solution_of(cell.source)
        nbformat.write(notebook, folder / source.name)
    return folder


@pytest.fixture
def folder(solved, tmp_path):
    for path in solved.glob("*.ipynb"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def made(folder, *, borrow=False):
    out = folder / "my_llama.py"
    return out, assemble.assemble(folder, out, borrow=borrow)


def change(folder, number, *, add):
    (path,) = folder.glob(f"{number}_*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(add))
    nbformat.write(notebook, path)


def test_the_course_stands_in_for_everything(tmp_path):
    path, whose = made(tmp_path, borrow=True)
    assert {*whose.values()} == {assemble.BORROWED}
    assert [*whose] == [p.number for p in PIECES]
    assert path.read_text().count(f"({assemble.BORROWED})\n") == len(PIECES) >= 13
    lines = [*grade.of_functions(grade.loaded(path), path.read_text())]
    assert {line.state for line in lines} == {State.NOT_ANSWERED}
    assert [*map(str, (line.state for line in grade.of_model(grade.loaded(path))))] == ["PASS"] * 2


def test_all_answers_make_a_llama_that_trains_and_is_graded(folder, monkeypatch):
    path, whose = made(folder)
    assert {*whose.values()} == {assemble.YOURS}
    mine = grade.loaded(path)
    monkeypatch.setattr(mine, "training_text", lambda: corpus.stories(150_000, seed=0))
    lines = [*grade.of_functions(mine, path.read_text()), *grade.of_model(mine)]
    assert [line.meaning for line in lines if line.state is not State.PASS] == []
    assert len(lines) == len(PIECES) + 2
    whole, halves = folder / "whole.pt", folder / "halves.pt"
    mine.main(whole, num_steps=20, every=10)
    save = mine.save

    def save_and_stop(*state):
        save(*state)
        raise KeyboardInterrupt

    mine.save = save_and_stop
    with pytest.raises(KeyboardInterrupt):
        mine.main(halves, num_steps=20, every=10)
    mine.save = save
    mine.main(halves, num_steps=20, every=10)
    ours, theirs = (mine.load(each) for each in (whole, halves))
    assert ours[3] == theirs[3] == 20
    assert all(torch.equal(w, theirs[0][name]) for name, w in ours[0].items())
    monkeypatch.setattr(grade, "NUM_STORIES", 1)
    loss, verdict = grade.of_training(mine, whole)
    found = re.fullmatch(r"after 20 steps its loss on new stories is (\S+) nats.*", loss.meaning)
    assert 3 < float(found[1]) < 6
    assert loss.state is verdict.state is State.NOT_YET
    assert "are sentences of the grammar" in verdict.meaning
    monkeypatch.setattr(grade, "GOOD_LOSS", 6.0)
    assert next(grade.of_training(mine, whole)).state is State.PASS
    monkeypatch.setattr(grade, "LOSS_FLOOR", 6.1)
    assert "it reads the answer" in next(grade.of_training(mine, whole)).meaning


def test_missing_answers_are_named_and_can_be_borrowed(folder, capsys):
    for number in ("12", "25"):  # as the learner gets them
        (path,) = EXERCISES.glob(f"{number}_*.ipynb")
        (folder / path.name).write_bytes(path.read_bytes())
    missing = {"12.3": "gated", "25.1": "adamw_step", "25.4": "clip"}
    with pytest.raises(assemble.NotPossibleError) as raised:
        made(folder)
    assert not (folder / "my_llama.py").exists()
    named = re.findall(r"^  (\S+): (\w+) in \S+ is not answered yet$", str(raised.value), re.M)
    assert dict(named) == missing
    path, whose = made(folder, borrow=True)
    assert {n for n, who in whose.items() if who == assemble.BORROWED} == {*missing}
    words = ["--exercises", str(folder), "--out", str(path)]
    assert command.main(["assemble", *words]) == 2
    assert "25.4: clip" in capsys.readouterr().err
    assert command.main(["assemble", *words, "--borrow"]) == 0
    assert f"12.3  {'gated':26}{assemble.BORROWED}" in capsys.readouterr().out
    assert command.main(["grade", str(path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert ". 12.3 gated: borrowed from the course" in said
    assert "+ 11.1 attend: right" in said
    assert said[-1].startswith(". there is no my_llama.pt yet")


LEAKS = (
    "def attend(q, k, v):\n    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5\n"
    "    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(2)\n"
    "    return scores.masked_fill(later, -torch.inf).softmax(-1) @ v"
)


def test_a_mask_that_leaks_is_told_by_its_symptom(folder):
    change(folder, "11", add=LEAKS)
    path, _ = made(folder)
    mine = grade.loaded(path)
    of_attend = [x for x in grade.of_functions(mine, path.read_text()) if "attend" in x.meaning]
    assert [x.state for x in of_attend] == [State.NOT_YET]
    leak, other = grade.of_model(mine)
    assert leak.state is other.state is State.NOT_YET
    found = re.search(r"from place 16 on .* the logits at place (\d+) changed", leak.meaning)
    assert 16 - 4 <= int(found[1]) < 16  # by one in each of four layers
    assert "a loss below the entropy of the text" in leak.meaning
    torch.save({}, path.with_name(mine.SAVED))
    *_, last = grade.grade(path)
    assert last.meaning == "what it has learnt is looked at when the model is right"
    change(folder, "11", add="def attend(q, k, v):\n    return q @ k")
    path.unlink()
    (line,) = grade.of_model(grade.loaded(made(folder)[0]))
    assert line.meaning.startswith("the model does not run: your code stopped with RuntimeError")


def test_helpers_and_imports_come_along(folder):
    own = (
        "%matplotlib inline\nfrom math import sqrt as root\nTINY = 1e-9\n\n\n"
        "def scale(x):\n    # a comment of mine\n    return root(x) + 0 * TINY\n\n\n"
        "def rmsnorm(x, gain, eps):\n    size = x.square().mean(-1, keepdim=True) + eps\n"
        "    return gain * x / size.sqrt() / scale(1.0)"
    )
    change(folder, "13", add=own)
    path, whose = made(folder)
    text = path.read_text()
    assert whose["13.1"] == assemble.YOURS
    assert "# a comment of mine" in text
    assert text.index("TINY = ") < text.index("def scale")
    assert text.index("from math import sqrt as root") < text.index("import torch")
    of_norm = [x for x in grade.of_functions(grade.loaded(path), text) if "13.1" in x.meaning]
    assert [x.state for x in of_norm] == [State.PASS]


@pytest.mark.parametrize(
    ("number", "add", "says"),
    [
        ("12", "def gated(x, a, b, c):\n    raise NotImplementedError()", "is not answered yet"),
        ("12", "def f(): raise NotImplementedError()\ndef gated(*a): return f()", "gated uses f"),
        ("12", "def write(): ...\ndef gated(*a): return write()", "12.3 has a helper write"),
        ("13", "def same(): return 1\ndef rmsnorm(*a): return same()", "12.3 has a helper same"),
    ],
)
def test_what_cannot_be_put_together_is_told(number, add, says, folder):
    change(folder, "12", add="def same(): return 2\ndef gated(*a): return same()")
    change(folder, number, add=add)
    with pytest.raises(assemble.NotPossibleError, match=says):
        made(folder)
    assert not (folder / "my_llama.py").exists()


def test_a_notebook_that_is_not_there_or_not_one(folder):
    (path,) = folder.glob("16_*.ipynb")
    path.write_text("no")
    (other,) = folder.glob("05_*.ipynb")
    other.unlink()
    with pytest.raises(assemble.NotPossibleError) as raised:
        made(folder)
    assert f"16.1: {path.name} is not a notebook" in str(raised.value)
    assert "05.2: there is no notebook 05_*.ipynb" in str(raised.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["assemble"], "there is no folder exercises: name yours with --exercises"),
        (["train"], "there is no my_llama.py: make it with llmcourse own assemble"),
        (["grade"], "there is no my_llama.py: make it with llmcourse own assemble"),
        (["grade", "bad.py"], "bad.py cannot be imported: your code stopped with ValueError: no"),
        (["grade", "x.py"], ".*x.py has no SAVED"),
        (["grade", "x.txt"], ".*no Python"),
    ],
)
def test_an_empty_folder_and_other_files_are_a_line(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in (("bad.py", "raise ValueError('no')"), ("x.py", "pass"), ("x.txt", "pass")):
        Path(name).write_text(f"{text}\n")
    assert command.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(f"llmcourse own: {says}", line)


def test_a_file_with_changes_is_not_overwritten(tmp_path):
    path, _ = made(tmp_path, borrow=True)
    first = path.read_text()
    made(tmp_path, borrow=True)  # as it was made: nothing is lost
    assert path.read_text() == first
    path.write_text(changed := first.replace("STEPS, WARMUP, PEAK, DECAY = 12", "# mine", 1))
    assert changed != first
    for text in (changed, "print('another program')\n"):
        path.write_text(text)
        with pytest.raises(assemble.NotPossibleError, match="changes of your own"):
            made(tmp_path, borrow=True)
        assert path.read_text() == text


def test_train_runs_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my_llama.py").write_text("open('ran', 'w').close()\nraise SystemExit(3)\n")
    assert command.main(["train"]) == 3
    assert Path("ran").exists()


def test_the_borrowed_pieces_are_the_nutshells(tmp_path):
    mine = grade.loaded(made(tmp_path, borrow=True)[0])
    text = corpus.stories(30_000, seed=0)
    merges = nutshell.learn_merges(text, 400)
    assert mine.MyTokenizer(merges).encode(text) == nutshell.Tokenizer(merges).encode(text)
    logits = torch.randn(50, generator=torch.Generator().manual_seed(0))
    for how in ((0, None, None), (0.7, 5, None), (1.3, None, 0.8), (1.0, 7, 0.5)):
        expected = nutshell.next_token_probabilities(logits, *how)
        torch.testing.assert_close(mine.next_token_probabilities(logits, *how), expected)
    pair = torch.stack([logits, -logits]), torch.tensor([3, 9])
    torch.testing.assert_close(mine.cross_entropy(*pair), nutshell.cross_entropy(*pair))
    rates = [mine.learning_rate_of(s, 0.5, 4, 20, 0.1, 0) for s in range(20)]
    assert rates == [nutshell.warmup_cosine(s, 0.5, 20, 4, 0.1) for s in range(20)]
    listed = "".join(json.loads((EXERCISES / "own_llama.ipynb").read_text())["cells"][3]["source"])
    assert re.findall(r"\[(\d\d\.\d)\]", listed) == [piece.number for piece in PIECES]
