"""GRPO on a model of others learns an adapter from a checker.

Mutants: the adapter is written without its matrices, a run that learnt nothing is written.
"""

import torch

from llmcourse_labs.real import opening
from llmcourse_labs.tuning import CHECKERS, make_sums, right_probabilities, tune
from llmcourse_labs.tuning.grpo import in_template
from tests.labs.real.test_opening import decoder, file, tokenizer  # noqa: F401 - fixtures


def words(file, out, *more):  # noqa: F811
    said = ["--stage", "grpo", "--model", str(file), "--tasks", "sums", "--out", str(out)]
    return [*said, "--prompts", "2", "--lora_rank", "2", *more]


def test_the_command_leaves_an_adapter_that_a_checker_likes(
    file,  # noqa: F811
    tmp_path,
    capsys,
    monkeypatch,
):
    monkeypatch.setitem(CHECKERS, "form", lambda _question, text: float("" < text < "P"))
    out = tmp_path / "adapter"
    more = ["--steps", "10", "--learning_rate", "0.02", "--checker", "form", "--answer_tokens", "1"]
    assert tune.main(words(file, out, *more)) == 0, capsys.readouterr().err
    assert f"llmcourse chat --model {out}" in capsys.readouterr().out
    first, last = opening.open_model(file), opening.open_model(out)
    asked = in_template(make_sums(8, seed=5), first)
    logits = [made.decoder(asked.prompts_PT)[:, -1].softmax(-1) for made in (first, last)]
    texts = [first.tokenizer.decode_known([i]) for i in range(logits[0].shape[1])]
    liked = torch.tensor(["" < f"{text}…" < "P" for text in texts])
    was, now = ((p_PV * liked).sum(1).mean().item() for p_PV in logits)
    assert now > was + 0.002
    assert tune.main(words(out, tmp_path / "more")) == 2
    assert "is an adapter" in capsys.readouterr().err


def test_a_run_that_was_taught_nothing_says_so_and_writes_nothing(file, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "adapter"
    assert tune.main(words(file, out, "--steps", "1")) == 2
    told = capsys.readouterr().err
    assert "all 8 answers to each question had the same reward, 0; begin with a model" in told
    assert not out.exists()
    opened = opening.open_model(file)
    asked = in_template(make_sums(2, seed=0), opened)
    ids = [(*opened.tokenizer.encode(q.answer), 0) for q in asked.questions]
    assert right_probabilities(opened.decoder, asked.prompts_PT, ids).max() < 1e-3
