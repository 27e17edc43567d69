"""DPO on a model of others learns an adapter from pairs of one's own.

Mutants: the answers exchanged, their ends left out, a reference that moves with the policy; Ctrl-C
that is heard and not answered; files written one by one under the name; a bar where nobody looks.
"""

import copy
import io
import json
import math
import signal

import pytest
import torch

from llmcourse.base import progress
from llmcourse_labs.real import opening, whole_folder
from llmcourse_labs.tuning import fitting, tune
from llmcourse_labs.tuning.conversations import read_pairs
from llmcourse_labs.tuning.dpo import own_pair_rows
from tests.labs.real.test_opening import decoder, file, tokenizer  # noqa: F401 - fixtures
from tests.labs.tuning.test_fitting import PAIRS, SETTINGS, small


def pair(*said, chosen="on the mat", rejected="the dog"):
    roles = ("user", "assistant")
    told = [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]
    return {"messages": told, "chosen": chosen, "rejected": rejected}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [pair(f"the cat {i}") for i in range(3)] + [pair("sat", "and", "the dog <|im_end|>")]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_pairs_stand_as_the_template_has_them(file, data):  # noqa: F811
    opened = opening.open_model(file)
    rows = own_pair_rows(read_pairs(data), opened.template, opened.tokenizer)
    spelled = [[opened.tokenizer.decode(list(ids)) for ids in part] for part in rows]
    before = "<|im_start|>user\nthe cat 0<|im_end|>\n<|im_start|>assistant\n"
    assert [part[0] for part in spelled] == [before, "on the mat<|im_end|>", "the dog<|im_end|>"]
    assert spelled[0][3].count("<|im_end|>") == 4  # one of them typed
    assert rows.prompts[3].count(opened.tokenizer.special_tokens["<|im_end|>"]) == 3


def test_without_a_reference_it_is_the_policy_at_its_start():
    settings = fitting.FitSettings(
        steps=3, batch_size=len(PAIRS.prompts), learning_rate=SETTINGS.learning_rate
    )
    one, other = small(), small()
    before = copy.deepcopy(one)
    fitting.fit_preferences(one, before, PAIRS, settings, beta=0.1)
    fitting.fit_preferences(other, None, PAIRS, settings, beta=0.1)
    pairs = zip(one.parameters(), other.parameters(), before.parameters(), strict=True)
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in pairs)


def told_by(file, data, out):  # noqa: F811
    """The words of the command."""
    words = ["--stage", "dpo", "--model", str(file), "--data", str(data), "--out", str(out)]
    return [*words, "--steps", "12", "--learning_rate", "0.01", "--lora_rank", "2"]


def test_the_command_leaves_an_adapter_that_prefers(file, data, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "adapter"
    words = told_by(file, data, out)
    assert tune.main(words) == 0, capsys.readouterr().err
    told, err = capsys.readouterr()
    first, last, wrote = told.splitlines()
    assert first.startswith(f"step 1 of 12: loss {math.log(2):.4f}")
    assert (wrote, err) == (f"wrote {out}: llmcourse chat --model {out}", "")
    opened, tuned = opening.open_model(file), opening.open_model(out)
    rows = own_pair_rows(read_pairs(data), opened.template, opened.tokenizer)
    was_N2, is_N2 = (fitting.pair_log_probs(made.decoder, rows) for made in (opened, tuned))
    moved_N2 = is_N2 - was_N2
    assert (moved_N2[:, 0] - moved_N2[:, 1] > 1).all()
    assert last.startswith("step 12 of 12: ")
    assert last.endswith("chosen ahead in 100%")
    assert tune.main(words) == 2
    assert "exists: choose another folder" in capsys.readouterr().err


class PressedAt3(progress.tqdm):
    """Ctrl-C is pressed in the third step."""

    def update(self, n=1):
        super().update(n)
        if self.n == 3:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_what_was_learnt(file, data, tmp_path, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(progress, "bar", lambda **told: PressedAt3(**told, file=io.StringIO()))
    out = tmp_path / "adapter"
    assert tune.main(told_by(file, data, out)) == 0
    _, last, wrote = capsys.readouterr().out.splitlines()
    assert last.startswith("step 3 of 12: ")
    assert wrote.startswith(f"interrupted; wrote {out}")
    one, other = (opening.open_model(what).decoder.state_dict() for what in (file, out))
    moved = [name for name, weight in one.items() if not torch.equal(weight, other[name])]
    assert moved
    assert all(".w_" in name for name in moved)


def test_a_full_disk_leaves_no_half_of_an_adapter(
    file, data, tmp_path, capsys, monkeypatch  # noqa: F811
):  # fmt: skip
    write, places = whole_folder.write_atomically, []

    def failing(path):
        places.append(path)
        if len(places) == 2:
            raise OSError(28, "No space left on device", str(path))
        return write(path)

    monkeypatch.setattr(whole_folder, "write_atomically", failing)
    assert tune.main(told_by(file, data, tmp_path / "adapter")) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [data.name]
    assert len(places) == 2


REFUSED = {
    "one answer": (pair("a", rejected=None), "line 1 holds no pair"),
    "the same": (pair("a", chosen="b", rejected="b"), "two texts that differ"),
    "nobody asked": (pair("a", "b"), "the last message must be the user's"),
    "no messages": ({"chosen": "a", "rejected": "b"}, "line 1 holds no conversation"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_pair_is_told(case, tmp_path):
    content, told = REFUSED[case]
    (tmp_path / "a.jsonl").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=told):
        read_pairs(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="holds no pair"):
        read_pairs(tmp_path / "a.jsonl")
