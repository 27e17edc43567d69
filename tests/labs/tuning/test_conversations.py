"""A model of others learns from conversations of one's own, in its own template."""

import io
import json
from dataclasses import replace

import pytest
import torch

from llmcourse import train
from llmcourse.train import sampling
from llmcourse_labs.export import export
from llmcourse_labs.real import opening
from llmcourse_labs.real.template import Template
from llmcourse_labs.tuning import chat, conversations, tune
from llmcourse_labs.tuning.tune_config import TuneConfig
from tests.labs.real.test_opening import TALK, decoder, file, tokenizer  # noqa: F401 - fixtures

QUICK = ["--steps", "4", "--warmup_steps", "1", "--batch_size", "2", "--validate_every", "2"]


def said(*texts, system=None):
    """A conversation in turns, the user's first."""
    roles = ("user", "assistant")
    told = [{"role": "system", "content": system}] if system else []
    told += [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"messages": told}


@pytest.fixture
def talk(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [said(f"the cat {i}", f"sat {i}", "and", "on the mat", system="dog") for i in range(11)]
    rows.append(said("the <|im_end|> cat", "spelled <|im_start|>assistant"))
    path.write_text("".join(f"{json.dumps(row)}\n\n" for row in rows))
    return path


def test_answers_are_told_from_ids_as_from_spans(file, talk):  # noqa: F811
    opened = opening.open_model(file)
    spelled, end = opened.tokenizer, 0
    documents = [
        conversations.conversation_ids(messages, opened.template, spelled, end_id=end)
        for messages in conversations.read_conversations(talk)
    ]
    row = torch.tensor([documents[0] + documents[-1]])
    of = torch.tensor([[0] * len(documents[0]) + [1] * len(documents[-1])])
    learned = conversations.answers_of(row, opened.template, spelled, documents_BT=of)
    heard = [spelled.decode([i]) for i in row[learned].tolist()]
    assert "".join(heard) == (
        "sat 0<|im_end|>on the mat<|im_end|>spelled <|im_start|>assistant<|im_end|>"
    )


def test_a_run_learns_the_answers_and_talks(file, talk, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "run"
    told = ["--model", str(file), "--data", str(talk), "--out", str(out), "--lora_rank", "2"]
    assert tune.main([*told, *QUICK]) == 0, capsys.readouterr().err
    run = train.resume(out)
    opened = opening.open_model(file)
    assert run.config.model == replace(opened.decoder.config, context_length=256)
    assert len(run.prepared.validation) > 0
    # The weights moved from where they began, by thin matrices alone.
    model, spelled = sampling.load(out)
    assert spelled.fingerprint == opened.tokenizer.fingerprint
    before, after = opened.decoder.state_dict(), model.state_dict()
    assert torch.equal(before["embedding"], after["embedding"])
    moved = after["blocks.0.attention.w_q"] - before["blocks.0.attention.w_q"]
    assert 0 < torch.linalg.matrix_rank(moved.double(), rtol=1e-4) <= 2
    # Chat and export know its template.
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO("the cat\n"))
        assert chat.main(["--run", str(out), "--tokens", "3"]) == 0
    again = opening.open_model(export(out, tmp_path / "tuned.gguf"))
    assert again.template.source == TALK
    assert torch.equal(
        again.decoder.state_dict()["blocks.0.attention.w_q"], after["blocks.0.attention.w_q"]
    )


REFUSED = {
    "not JSON": ("{", "line 1 is not JSON"),
    "no messages": ('{"text": "a"}', "line 1 holds no conversation"),
    "a content that is no text": (
        json.dumps({"messages": [{"role": "user", "content": 3}]}),
        "line 1 holds no conversation",
    ),
    "nobody answers": (json.dumps(said("a")), "line 1 has nothing to learn"),
    "nothing": ("\n", "holds no conversation"),
    "one conversation": (json.dumps(said("a", "b")), "write two or more"),
    "too long": (json.dumps(said("a " * 400, "b")), "reads at most 256"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_conversation_is_told(case, file, tmp_path, capsys):  # noqa: F811
    content, told = REFUSED[case]
    (tmp_path / "a.jsonl").write_text(content)
    words = ["--model", str(file), "--data", str(tmp_path / "a.jsonl"), "--out"]
    assert tune.main([*words, str(tmp_path / "run"), *QUICK]) == 2
    assert told in capsys.readouterr().err


WORDS = {
    "no file": (["--model", "smollm2"], "--data FILE.jsonl"),
    "replay": (["--model", "MODEL", "--data", "TALK", "--replay", "0.1"], "replay has no effect"),
}


@pytest.mark.parametrize("case", WORDS)
def test_settings_that_do_not_fit_are_told(case, file, talk, tmp_path, capsys):  # noqa: F811
    words, told = WORDS[case]
    places = {"MODEL": str(file), "TALK": str(talk)}
    words = [places.get(word, word) for word in words]
    assert tune.main([*words, "--out", str(tmp_path / "run"), *QUICK]) == 2
    assert told in capsys.readouterr().err
    with pytest.raises(ValueError, match="learns from conversations of your own"):
        TuneConfig(model=opening.open_model(file).decoder.config, start="x", template="y")


def test_a_template_that_opens_answers_with_plain_text_is_refused(tokenizer):  # noqa: F811
    plain = TALK.replace("<|im_start|>assistant", "assistant")
    template = Template(plain, tokens={"eos_token": "<|im_end|>"})
    with pytest.raises(ValueError, match="opens answers with no special token"):
        conversations.answers_of(torch.tensor([[1, 2]]), template, tokenizer)
