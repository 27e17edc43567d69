"""A model's chat template gives transformers' text and ids, and keeps what a message says plain.

Costs about 5 s, most of it the import of transformers; the templates are written in the shapes that
models use, and the tokenizer knows a few words.
"""

import functools
import importlib.util
import json

import pytest
import tokenizers

from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import train_bpe
from llmcourse_labs.export.huggingface import CHAT_TEMPLATE, tokenizer_json
from llmcourse_labs.real.template import Template
from llmcourse_labs.tuning.chat_format import CHAT_TOKENS, Turn, answer_mask, chat_tokens

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
            with pytest.raises(ValueError, match="the model's chat template fails: (Sys|Roles)"):
                ours.render(talk)
            continue
        for prompt in (False, True):
            for given in (None, tools):
                asked = {"chat_template": source, "add_generation_prompt": prompt, "tools": given}
                text = theirs().apply_chat_template(talk, tokenize=False, **asked)
                assert ours.render(talk, add_generation_prompt=prompt, tools=given) == text
            ids = theirs().apply_chat_template(
                talk, chat_template=source, add_generation_prompt=prompt, return_dict=False
            )
            if "<think>" not in str(talk):
                assert ours.ids(talk, tokenizer(), add_generation_prompt=prompt) == ids
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
