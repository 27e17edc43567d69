"""GRPO on a model of others learns an adapter from a checker.

Mutants: the adapter is written without its matrices, a run that learnt nothing is written, the
advantages with the other sign.
"""

from functools import partial

import torch

from llmcourse_labs.real import opening
from llmcourse_labs.tuning import CHECKERS, make_sums, right_probabilities, tune
from llmcourse_labs.tuning.grpo import in_template
from tests.labs.real.test_opening import decoder, file, tokenizer  # noqa: F401 - fixtures


def words(file, out, *more):  # noqa: F811
    said = ["--stage", "grpo", "--model", str(file), "--tasks", "sums", "--out", str(out)]
    return [*said, "--prompts", "2", "--lora_rank", "2", *more]


def test_an_adapter_moves_towards_what_its_checker_likes(file, tmp_path, capsys, monkeypatch):  # noqa: F811
    """And away from it, if the checker likes the rest: a model this small moves little."""
    first = opening.open_model(file)
    asked = in_template(make_sums(8, seed=5), first)
    texts = [first.tokenizer.decode_known([i]) for i in range(len(first.decoder.embedding))]
    liked = torch.tensor(["" < f"{text}…" < "P" for text in texts])

    def share(opened):
        return (opened.decoder(asked.prompts_PT)[:, -1].softmax(-1) * liked).sum(1).mean().item()

    found = {}
    for wanted in (True, False):
        judge = partial(lambda wanted, _, text: float(("" < text < "P") == wanted), wanted)
        monkeypatch.setitem(CHECKERS, "form", judge)
        out = tmp_path / f"adapter_{wanted}"
        more = ["--steps", "30", "--learning_rate", "0.1", "--answer_tokens", "1"]
        assert tune.main(words(file, out, *more, "--checker", "form")) == 0, capsys.readouterr().err
        assert f"llmcourse chat --model {out}" in capsys.readouterr().out
        found[wanted] = share(opening.open_model(out))
    assert found[False] + 0.003 < share(first) < found[True] - 0.003, (found, share(first))
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
