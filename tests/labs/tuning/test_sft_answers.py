"""tuning.sft and tuning.conversation: answers, their judgement, history, the terminal."""

import io
from dataclasses import replace

import pytest
import torch

from llmcourse import checkpoint, train
from llmcourse.base import runtime
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import train_bpe
from llmcourse.loss import mask_from_roles
from llmcourse.model import Transformer, tiny
from llmcourse_labs.export.folder import export
from llmcourse_labs.tuning import (
    CHAT_TOKENS,
    Conversation,
    Turn,
    answer_mask,
    answers,
    chat,
    chat_tokens,
    judge,
    load_for_chat,
    make_tasks,
    prompt_ids,
    score,
    sft_config,
    with_chat_tokens,
)

TEXT = "Who has the ball? Mia has the ball. The story does not say. " * 9
TOKENIZER = with_chat_tokens(train_bpe([TEXT], 290, [END_OF_TEXT]))
SHAPE = replace(tiny(), vocab_size=TOKENIZER.vocab_size, context_length=160)
END = TOKENIZER.special_tokens["<|end|>"]
TASKS = make_tasks(12, seed=0)


class Parrot(Transformer):
    def __init__(self, text, *, ends=True):
        super().__init__(SHAPE, generator=runtime.generator(0))
        self.said = [*TOKENIZER.encode(text), *([END] if ends else [])]
        self.read = []

    def forward(self, ids_BT, **given):
        logits = torch.zeros(*ids_BT.shape, SHAPE.vocab_size)
        start = given["cache"][0].length
        if start == 0:
            self.read.append(ids_BT.tolist())
            self.place = 0
        for cache in given["cache"]:
            cache.length += ids_BT.shape[1]
        logits[:, -1, self.said[self.place % len(self.said)]] = 50.0
        self.place += 1
        return logits


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    base = train.PRESETS["tiny"]()
    base = base.replace(model=replace(base.model, context_length=192), steps=2, warmup_steps=1)
    train.fit(train.start(base, folder / "base"))
    quick = {"examples": 80, "steps": 2, "batch_size": 2, "warmup_steps": 1, "sample_tokens": 4}
    quick |= {"validation_tokens": 400, "validate_every": 0}
    train.fit(train.start(sft_config(folder / "base", lora_rank=2, **quick), folder / "chat"))
    export(folder / "chat", folder / "exported")
    return folder


def test_the_chat_tokens_come_after_the_last_id_and_change_no_other():
    plain = train_bpe([TEXT], 290, [END_OF_TEXT])
    grown = with_chat_tokens(plain)
    assert grown.vocab_size == plain.vocab_size + 4
    new = [grown.special_tokens[name] for name in CHAT_TOKENS]
    assert new == list(range(plain.vocab_size, grown.vocab_size))
    assert grown.encode(TEXT) == plain.encode(TEXT)
    assert with_chat_tokens(grown).fingerprint == grown.fingerprint


def test_the_mask_follows_from_the_ids_as_from_the_roles():
    turns = [Turn("system", "Be brief."), Turn("user", "<|end|>?"), Turn("assistant", "Mia.")]
    chat_ids = chat_tokens([*turns, Turn("user", "b"), Turn("assistant", "")], TOKENIZER)
    expected = mask_from_roles(chat_ids.roles)
    assert torch.equal(answer_mask(chat_ids.ids_T, TOKENIZER.special_tokens), expected)


def test_the_mask_of_packed_rows_is_that_of_the_documents():
    end = TOKENIZER.special_tokens[END_OF_TEXT]
    talk = [*chat_tokens(TASKS[0].turns, TOKENIZER).ids_T.tolist(), end]
    story = [*TOKENIZER.encode("Mia has the ball."), end]
    row = torch.tensor([story + talk + talk + story])
    lengths = torch.tensor([len(part) for part in (story, talk, talk, story)])
    numbers = torch.arange(4).repeat_interleave(lengths)[None]
    found = answer_mask(row, TOKENIZER.special_tokens, documents_BT=numbers)
    alone = [answer_mask(torch.tensor(d), TOKENIZER.special_tokens) for d in (story, talk)]
    assert torch.equal(found[0], torch.cat([alone[0], alone[1], alone[1], alone[0]]))
    assert alone[0].all()
    assert not alone[1][-1]
    joined = answer_mask(row, TOKENIZER.special_tokens)
    assert not torch.equal(found, joined)  # the last story would belong to nobody


def test_answers_are_what_comes_before_the_end():
    assert answers(Parrot("Mia."), TOKENIZER, TASKS[:3]) == ["Mia."] * 3
    (cut,) = answers(Parrot("ball ", ends=False), TOKENIZER, TASKS[:1])
    assert cut.startswith("ball ball")
    assert cut.endswith("…")
    model = Parrot("x")
    answers(model, TOKENIZER, TASKS[:1])
    assert model.read[0] == [prompt_ids(TASKS[0].turns[:1], TOKENIZER)]
    assert model.read[0][0][-1] == TOKENIZER.special_tokens["<|assistant|>"]


def test_the_score_counts_forms_and_right_answers_by_kind():
    tasks = make_tasks(60, seed=2)
    said = [task.answer for task in tasks]
    assert score(tasks, said)[:2] == (1.0, 1.0)
    said[0], said[1] = "…", tasks[1].answer + "…"
    found = score(tasks, said)
    assert found.in_format == found.right == pytest.approx(58 / 60)
    names = [t.answer.replace(t.answer.split()[0], "Zoe", 1) for t in tasks if t.kind == "ball"]
    balls = [task for task in tasks if task.kind == "ball"]
    assert score(balls, names) == (1.0, 0.0, {"ball": 0.0})
    refusing = judge(Parrot("The story does not say."), TOKENIZER, tasks)
    share = sum(task.kind in ("ball", "refuse") for task in tasks) / len(tasks)
    assert refusing.in_format == pytest.approx(share)
    assert (refusing.by_kind["refuse"], refusing.by_kind["copy"]) == (1, 0)
    with pytest.raises(ValueError, match="got 1 to 2"):
        score(tasks[:2], ["x"])


class TestConversation:
    def test_turns_are_kept_and_read_again(self):
        model = Parrot("Mia.")
        conversation = Conversation(model, TOKENIZER)
        written = []
        assert conversation.answer(" Who? ", written.append) == "Mia."
        assert "".join(written) == "Mia."
        conversation.answer("And now?")
        turns = [Turn("user", "Who?"), Turn("assistant", "Mia."), Turn("user", "And now?")]
        assert conversation.turns == [*turns, Turn("assistant", "Mia.")]
        assert model.read[-1] == [prompt_ids(turns, TOKENIZER)]
        conversation.reset()
        conversation.answer("Who?")
        assert model.read[-1] == [prompt_ids(turns[:1], TOKENIZER)]

    def test_the_oldest_turns_fall_out_of_the_context(self):
        model = Parrot("Mia.")
        conversation = Conversation(model, TOKENIZER, most_tokens=20)
        for n in range(30):
            conversation.answer(f"Who has the ball number {n}?")
            (ids,) = model.read[-1]
            assert len(ids) <= SHAPE.context_length - 20
            assert ids[0] == TOKENIZER.special_tokens["<|user|>"]
            assert f"number {n}?" in TOKENIZER.decode(ids)
        assert len(conversation.turns) == 60
        assert 2 < len(conversation.remembered) < 20

    def test_what_does_not_fit_is_refused_and_forgotten(self):
        conversation = Conversation(Parrot("Mia."), TOKENIZER)
        conversation.answer("Who?")
        before = list(conversation.turns)
        with pytest.raises(ValueError, match=r"makes \d+ tokens, and the context has room for 120"):
            conversation.answer("xyz" * 80)
        with pytest.raises(ValueError, match="nothing was said"):
            conversation.answer("  ")
        assert conversation.turns == before

    def test_neither_halves_of_characters_nor_special_tokens_are_written(self):
        written = []
        assert Conversation(Parrot("ä🙂"), TOKENIZER).answer("Who?", written.append) == "ä🙂"
        assert "\ufffd" not in "".join(written)
        said = Parrot("Mia", ends=False)
        said.said = [TOKENIZER.special_tokens["<|user|>"], *TOKENIZER.encode("Mia"), END]
        assert Conversation(said, TOKENIZER).answer("Who?") == "Mia"

    def test_the_seed_decides_and_the_temperature_matters(self):
        model = Transformer(SHAPE, generator=runtime.generator(0)).eval()
        settings = ((1.0, 0), (1.0, 0), (1.0, 1), (0.0, 0), (0.0, 1))
        talks = [Conversation(model, TOKENIZER, temperature=t, seed=s) for t, s in settings]
        texts = [talk.answer("Who?") for talk in talks]
        assert texts[0] == texts[1] != texts[2]
        assert texts[3] == texts[4]


class TestTerminal:
    def talk(self, typed, model=None):
        conversation, written = Conversation(model or Parrot("Mia."), TOKENIZER), []
        chat.talk(conversation, io.StringIO(typed), written.append)
        return conversation, "".join(written)

    def test_lines_are_answered_until_quit(self):
        conversation, text = self.talk("Who?\n\nAnd now?\n/quit\nnever read\n")
        assert (text, len(conversation.turns)) == ("Mia.\nMia.\n", 4)

    def test_commands(self):
        conversation, text = self.talk("Who?\n/reset\n/temperature 0.5\n/temperature x\n/what\n")
        assert text.splitlines()[:3] == ["Mia.", "forgotten", "temperature 0.5"]
        assert "a temperature is a number, got 'x'" in text
        assert text.splitlines()[-1] == chat.HELP
        assert (conversation.turns, conversation.temperature) == ([], 0.5)

    def test_a_refusal_does_not_end_the_conversation(self):
        _, text = self.talk("/temperature -1\n" + "xyz" * 80 + "\nWho?\n")
        assert "temperature must be 0 or greater" in text
        assert "fewer words" in text
        assert text.endswith("Mia.\n")

    def test_a_run_and_its_export_say_the_same(self, tuned, capsys, monkeypatch):
        said, fingerprints = [], set()
        for name in ("chat", "exported"):
            monkeypatch.setattr("sys.stdin", io.StringIO("Who has the ball?\n"))
            assert chat.main(["--run", str(tuned / name), "--tokens", "12"]) == 0
            said.append(capsys.readouterr().out)
            fingerprints.add(load_for_chat(tuned / name)[1].fingerprint)
        assert said[0] == said[1] != ""
        assert len(fingerprints) == 1

    @pytest.mark.parametrize(
        ("said", "flags"),
        [
            ("holds no run", ["--run", "nothing"]),
            ("the tokenizer lacks", ["--run", "base"]),
            ("tokens must be below 192", ["--run", "chat", "--tokens", "192"]),
            ("temperature must be 0 or greater", ["--run", "chat", "--temperature", "-1"]),
            ("give --run, a folder, or --model", []),
        ],
    )
    def test_bad_input(self, tuned, capsys, said, flags):
        flags = [str(tuned / f) if f in ("nothing", "base", "chat") else f for f in flags]
        assert chat.main(flags) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1

    def test_the_settings_of_a_run_are_read_once(self, tuned, monkeypatch):
        """Mutant: the weights are read twice, the second time for their settings."""
        files, read = [], checkpoint.load
        monkeypatch.setattr(checkpoint, "load", lambda file: files.append(file) or read(file))
        load_for_chat(tuned / "chat")
        assert len(files) == 1


class TestExport:
    def test_transformers_reads_the_same_template_and_the_same_model(self, tuned):
        transformers = pytest.importorskip("transformers")
        folder = tuned / "exported"
        model, tokenizer, _ = load_for_chat(tuned / "chat")
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        turns = [Turn("user", "Who has it?"), Turn("assistant", "Mia."), Turn("user", "Now?")]
        messages = [{"role": role, "content": text} for role, text in turns]
        ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert list(ids) == prompt_ids(turns, tokenizer)
        network = transformers.AutoModelForCausalLM.from_pretrained(folder)
        ids = torch.tensor([ids])
        torch.testing.assert_close(network(ids).logits, model(ids), rtol=0, atol=1e-4)
        assert tokenizer.special_tokens["<|end|>"] in network.generation_config.eos_token_id
        told = (folder / "README.md").read_text()
        assert "It was trained from the weights of another run" in told

    @pytest.mark.parametrize(
        "content", ["{", "[]", "{}", '{"model": {"type": "WordPiece"}, "added_tokens": []}']
    )
    def test_a_file_of_another_kind_is_named(self, tuned, tmp_path, content):
        folder = export(tuned / "chat", tmp_path / "out")
        (folder / "tokenizer.json").write_text(content)
        with pytest.raises(ValueError, match=r"tokenizer.json cannot be read"):
            load_for_chat(folder)
