"""real.server: OpenAI's own client talks to a tiny model; what cannot be is one line."""

from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from llmcourse.model import generate
from llmcourse_labs.real.serve.text import TextStream
from llmcourse_labs.real.server.app import MOST_BYTES
from llmcourse_labs.tuning.sft import answer_ends
from tests.labs.real.serving import HELLO, PATH, ids_of, running, tiny


@pytest.fixture(scope="module")
def server():
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=30) as client:
        yield client


def alone(seed=0, most=12, **how):
    """What the model writes by `generate`."""
    decoder, tokenizer = tiny()
    ids = ids_of(HELLO["messages"])
    g = torch.Generator().manual_seed(seed)
    how = {"generator": g, "max_new_tokens": most, "stop_id": answer_ends(tokenizer)} | how
    text = TextStream(tokenizer)
    return (
        text.feed(generate(decoder, torch.tensor([ids]), **how)[0, len(ids) :].tolist())
        + text.end()
    )


def test_an_answer_is_that_of_generate(client):
    made = client.chat.completions.create(**HELLO, temperature=0, top_p=0.5, max_tokens=12)
    (choice,) = made.choices
    assert choice.message.content == alone(temperature=0)
    assert (choice.message.role, choice.finish_reason, made.model) == (
        "assistant",
        "length",
        "tiny",
    )
    num = len(ids_of(HELLO["messages"]))
    used = made.usage
    assert (used.prompt_tokens, used.completion_tokens, used.total_tokens) == (num, 12, num + 12)


def streamed(client, **given):
    """The pieces of an answer, why it ended, and what it used."""
    chunks = list(client.chat.completions.create(**HELLO | given, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    pieces = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    *before, finish = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert set(before) == {None}
    return pieces, finish, chunks[-1].usage


def test_a_stream_brings_the_same_answer_piece_by_piece(client):
    how = {
        "seed": 7,
        "max_tokens": 12,
        "temperature": 0.9,
        "top_p": 0.95,
        "extra_body": {"top_k": 90},
    }
    whole = client.chat.completions.create(**HELLO, **how).choices[0].message.content
    assert whole == alone(seed=7, temperature=0.9, top_p=0.95, top_k=90)
    pieces, finish, used = streamed(client, **how, stream_options={"include_usage": True})
    assert ("".join(pieces), finish, used.completion_tokens) == (whole, "length", 12)
    assert sum(map(bool, pieces)) > 4
    assert streamed(client, **how)[2] is None


def test_a_seed_says_what_is_drawn_whatever_else_is_served(client):
    def drawn(seed):
        given = {"seed": seed, "max_completion_tokens": 12, "temperature": 1.5}
        return client.chat.completions.create(**HELLO | given).choices[0].message.content

    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(drawn, [1, 2, -3, 1, 2**63 - 1, None, 1, 2]))
    assert texts[0] == texts[3] == texts[6] == alone(seed=1, temperature=1.5)
    assert texts[1] == texts[7]
    assert len(set(texts)) == 5
    assert drawn(None) != drawn(None)


def test_a_stop_string_ends_an_answer_and_is_never_shown(client):
    text = alone(seed=1, temperature=1.5)
    stop = text[5:8]
    before = text[: text.index(stop)]
    assert 0 < len(before) <= 5
    how = {"seed": 1, "temperature": 1.5, "stop": ["never there", stop], "max_tokens": 12}
    (choice,) = client.chat.completions.create(**HELLO, **how).choices
    assert (choice.message.content, choice.finish_reason) == (before, "stop")
    pieces, finish, _ = streamed(client, **how)
    assert ("".join(pieces), finish) == (before, "stop")


def test_the_model_is_listed(client, server):
    (listed,) = client.models.list().data
    assert listed == client.models.retrieve("tiny")
    assert (listed.id, listed.object) == ("tiny", "model")
    with pytest.raises(openai.NotFoundError, match="no model 'other' here: ask for 'tiny'"):
        client.models.retrieve("other")
    assert server.ask("GET", "/health") == (200, {"status": "ok", "open": 0})


REFUSED = [
    ({"model": "other"}, 404, "there is no model 'other' here: ask for 'tiny'"),
    ({"model": None}, 400, "model must be the name 'tiny'; got null"),
    ({"messages": []}, 400, "messages must be a list of one message or more; got []"),
    ({"messages": [{"role": "tool", "content": "a"}]}, 400, "role is one of system, developer"),
    ({"messages": [{"role": "user", "content": 3}]}, 400, "messages[0].content must be a text"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "a"}]}]},
        400,
        "messages[0].content must be a text, or parts of text",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "text": "a"}]}]},
        400,
        "messages[0].content must be a text, or parts of text",
    ),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "half of a surrogate pair"),
    ({"messages": [{"role": "user", "content": "a" * 900}]}, 400, "the context has 128: there is"),
    ({"max_tokens": 0}, 400, "max_tokens must be a whole number from 1"),
    ({"max_tokens": 41}, 400, "an answer has at most 40 tokens here, got 41"),
    ({"max_completion_tokens": True}, 400, "max_completion_tokens must be a whole number"),
    ({"temperature": -1}, 400, "temperature must be a number from 0 to 100; got -1"),
    ({"temperature": "hot"}, 400, 'got "hot"'),
    ({"top_p": 0}, 400, "top_p must be a number above 0"),
    ({"top_k": 0.5}, 400, "top_k must be a whole number"),
    ({"seed": 2**63}, 400, "seed must be a whole number"),
    ({"stop": ["a"] * 5}, 400, "stop must be a text, or a list of at most 4"),
    ({"stop": [""]}, 400, "none of them empty"),
    ({"stream": 1}, 400, "stream must be true or false"),
    ({"stream_options": 1}, 400, "stream_options must be an object"),
    ({"n": 2}, 400, "n must be 1, since this server has nothing else; got 2"),
    ({"n": True}, 400, "n must be 1, since this server has nothing else; got true"),
    ({"logprobs": 0}, 400, "logprobs must be false, since this server has nothing else; got 0"),
    ({"tools": [{}]}, 400, "tools must be []"),
    ({"tempreature": 1}, 400, "there is no setting 'tempreature' here: leave it out"),
    ({"\ud800": 1}, 400, "there is no setting '\\ud800' here"),
    (
        {"messages": [{"role": "user", "content": "a", "\ud800": 1}]},
        400,
        "messages[0].\\ud800 must",
    ),
    ({"messages": [{"role": "user", "content": "a", "b" * 900: 1}]}, 400, "must be nothing"),
]


@pytest.mark.parametrize(("change", "status", "says"), REFUSED)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_one_line(server, change, status, says, stream):
    got, answer = server.ask(body=HELLO | {"stream": stream} | change)
    told = answer["error"]
    assert (got, set(told)) == (status, {"message", "type", "param", "code"})
    assert says in told["message"]
    assert "\n" not in told["message"]
    assert len(told["message"]) < 400


def test_settings_that_change_nothing_are_taken(client):
    neutral = {
        "n": 1,
        "frequency_penalty": 0.0,
        "presence_penalty": 0,
        "logit_bias": {},
        "user": "a",
    }
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]
    spoken = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "sat", "tool_calls": None, "refusal": None},
        {"role": "user", "content": "on"},
    ]
    given = {"messages": spoken, "temperature": 0, "max_tokens": 5}
    made = client.chat.completions.create(**HELLO | given, logprobs=False, **neutral)
    plain = [("system", "Be brief."), ("user", "the cat"), ("assistant", "sat"), ("user", "on")]
    assert made.usage.prompt_tokens == len(ids_of([{"role": r, "content": c} for r, c in plain]))


BODIES = [
    (b"", 400, "the body is no JSON"),
    (b"\xff", 400, "the body is no JSON in UTF-8"),
    (b"[1]", 400, "the body is an object of JSON, got a list"),
    (b"[" * 100_000, 400, "the body is no JSON"),
    (b'{"seed": NaN}', 400, "NaN is no number of JSON"),
    (b'{"seed": ' + b"9" * 5_000 + b"}", 400, "the body is no JSON"),
    (b" " * (MOST_BYTES + 1), 413, "a body has at most 200,000 bytes"),
]


@pytest.mark.parametrize(("body", "status", "says"), BODIES)
def test_a_body_that_cannot_be_is_one_line(server, body, status, says):
    got, answer = server.ask(body=body)
    assert got == status
    assert says in answer["error"]["message"]
    pieces = (body[i : i + 9_000] for i in range(0, len(body), 9_000))  # of a length not told
    assert server.ask(body=pieces)[0] == status


def test_what_is_not_there_is_one_line(server):
    assert server.ask("GET", "/")[1]["error"]["message"] == "GET /: Not Found"
    status, answer = server.ask("GET", PATH)
    assert (status, answer["error"]["message"]) == (405, f"GET {PATH}: Method Not Allowed")


@pytest.mark.parametrize(("method", "path"), [("POST", PATH), ("GET", "/metrics"), ("GET", "/")])
def test_a_page_of_another_site_is_refused(server, method, path):
    here = f"localhost:{server.port}"
    others = [
        "evil.example",
        f"evil.example:{server.port}",
        "localhost:1",
        "localhost",
        f"8.8.8.8:{server.port}",
        "",
    ]
    for host in others:
        assert server.ask(method, path, HELLO, Host=host)[0] == 403
    for origin in ["null", "https://evil.example", f"https://{here}", "http://localhost:1", here]:
        assert server.ask(method, path, HELLO, Origin=origin)[0] == 403
    status, answer = server.ask(method, path, HELLO, Host=here, Origin=f"http://{here}")
    assert status == (404 if path == "/" else 200), answer


def test_metrics_are_in_prometheus_form(client, server):
    def read():
        status, text = server.ask("GET", "/metrics")
        assert status == 200
        families = text_string_to_metric_families(text)
        return {
            (s.name, *s.labels.values()): (family.type, s.value)
            for family in families
            for s in family.samples
        }

    before = read()
    list(client.chat.completions.create(**HELLO, max_tokens=6, temperature=0, stream=True))
    server.ask(body=b"")
    after = read()
    grown = {k: value - before.get(k, ("", 0))[1] for k, (_, value) in after.items()}
    assert grown["llmcourse_engine_new_tokens_total",] == 6
    assert grown["llmcourse_requests_total", "200"] == 2  # the answer, and the metrics before
    assert grown["llmcourse_requests_total", "400"] == 1
    assert grown["llmcourse_first_token_seconds_count",] == 1
    assert grown["llmcourse_between_tokens_seconds_bucket", "+Inf"] == 5
    assert grown["llmcourse_answer_seconds_count",] == 1
    assert after["llmcourse_engine_running",][0] == "gauge"
    assert after["llmcourse_engine_steps_total",][0] == "counter"
    steps = [
        v for (name, *_), (_, v) in after.items() if name == "llmcourse_first_token_seconds_bucket"
    ]
    assert steps == sorted(steps)
