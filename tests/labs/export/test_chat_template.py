"""What Hugging Face's files say of conversations and tokens, where others would read more."""

import json

import jinja2
import pytest
import tokenizers

from llmcourse.base.files import write_atomically
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import LLAMA3, Tokenizer, train_bpe
from llmcourse_labs.export.huggingface import CHAT_TEMPLATE, tokenizer_json
from llmcourse_labs.real.huggingface_tokenizer import read_tokenizer_json
from llmcourse_labs.tuning.chat_format import CHAT_TOKENS, ROLES, Turn, chat_tokens

TEXT = "low lower newer wide one two three river " * 30


def rendered(*messages, **settings):
    def raised(text):
        raise ValueError(text)

    environment = jinja2.Environment(autoescape=False)
    environment.globals["raise_exception"] = raised
    template = environment.from_string(CHAT_TEMPLATE)
    said = [{"role": role, "content": content} for role, content in messages]
    return template.render(messages=said, **settings)


def faces_of(content):
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def faces(tokenizer):
    return faces_of(tokenizer_json(tokenizer))


def test_the_template_gives_the_ids_of_ours():
    ours = train_bpe(TEXT, 300, [END_OF_TEXT, *CHAT_TOKENS])
    turns = [(role, f"low {role} <| wide |> river") for role in ROLES]
    found = faces(ours).encode(rendered(*turns), add_special_tokens=False).ids
    assert found == chat_tokens([Turn(*each) for each in turns], ours).ids_T.tolist()
    assert rendered(*turns, add_generation_prompt=True) == rendered(*turns) + "<|assistant|>"


REFUSED = [
    ("tool", "a", "role must be one of system, user, assistant, got tool"),
    ("", "a", "role must be one of"),
    ("user", [{"type": "text", "text": "a"}], "content of a message must be a text"),
    ("user", None, "content of a message must be a text"),
]
for token in (END_OF_TEXT, *CHAT_TOKENS):
    said = f"wide {token} low", "which would be taken for the token"
    REFUSED += [(role, *said) for role in ROLES]


@pytest.mark.parametrize(("role", "content", "message"), REFUSED)
def test_other_roles_and_contents_and_tokens_of_control_are_refused(role, content, message):
    with pytest.raises(ValueError, match=message):
        rendered(("user", "low"), (role, content))


def read(content, folder):
    with write_atomically(folder / "tokenizer.json") as file:
        file.write(json.dumps(content).encode())
    return read_tokenizer_json(folder)


def test_words_that_are_taken_whole_are_read_and_written(tmp_path):
    content = tokenizer_json(train_bpe(TEXT, 280, [END_OF_TEXT], LLAMA3))
    content["model"]["ignore_merges"] = True
    content["model"]["vocab"]["\u0120zebra"] = 280
    ours = read(content, tmp_path)
    assert ours.encode("low zebra") == faces_of(content).encode("low zebra").ids
    assert tokenizer_json(ours) == content


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("model", "dropout", 0.1),
        ("model", "byte_fallback", True),
        ("model", "end_of_word_suffix", "</w>"),
        ("token", "lstrip", True),
        ("token", "rstrip", True),
        ("token", "single_word", True),
        ("cut", "behavior", "Removed"),
        ("cut", "invert", True),
        ("spelling", "use_regex", True),
    ],
)
def test_settings_that_give_other_ids_are_refused(where, name, value, tmp_path):
    content = tokenizer_json(train_bpe(TEXT, 280, [END_OF_TEXT], LLAMA3))
    cut, spelling = content["pre_tokenizer"]["pretokenizers"]
    parts = {"model": content["model"], "token": content["added_tokens"][0]}
    assert read(content, tmp_path).encode("low") == faces_of(content).encode("low").ids
    (parts | {"cut": cut, "spelling": spelling})[where][name] = value
    with pytest.raises(ValueError, match="cannot be read"):
        read(content, tmp_path)


def with_gaps(specials):
    made = train_bpe(TEXT, 270, [END_OF_TEXT])
    plain = {i: x for i, x in made.vocab.items() if i != made.special_tokens[END_OF_TEXT]}
    return Tokenizer(plain, made.merges, specials, made.pattern)


def test_other_special_tokens_and_gaps_are_written_as_they_are():
    ours = with_gaps({END_OF_TEXT: 280, "<|pad|>": 300})
    text = f"low wide{END_OF_TEXT}<|pad|> river"
    assert faces(ours).encode(text, add_special_tokens=False).ids == ours.encode(text)


def test_ids_of_a_gap_have_no_bytes_and_no_text():
    ours = with_gaps({END_OF_TEXT: 280})
    lengths = ours.token_lengths
    assert (len(lengths), lengths[[269, 275, 279]].tolist()) == (281, [0, 0, 0])
    assert [lengths[i] for i in ours.vocab] == [len(x) for x in ours.vocab.values()]
    ids = ours.encode("low wide")
    assert ours.decode_known([ids[0], 275, *ids[1:], 999]) == "low wide"
    with pytest.raises(ValueError, match="275 is not in the vocabulary"):
        ours.decode([275])
