"""The engine: every request gets what `generate` gives it alone, whatever else is served."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmcourse.model import Transformer, generate
from llmcourse_labs.real.serve import Engine, Request
from tests.strategies import small_config

CONFIG = small_config(context_length=32)
BEGIN = [5, 3, 5, 8, 1, 16, 2, 2, 9, 0]


def made(config=CONFIG):
    g = torch.Generator().manual_seed(0)
    decoder = Transformer(config, generator=g).double()
    for p in decoder.parameters():
        p.data += 0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64)
    return decoder.eval()


DECODER = made()


def alone(request, decoder=DECODER):
    """What `generate` writes for this request and no other."""
    ids = generate(
        decoder,
        [list(request.prompt_ids)],
        max_new_tokens=request.max_new_tokens,
        generator=torch.Generator().manual_seed(request.seed),
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        stop_id=request.stop_ids,
    )[0]
    return ids[len(request.prompt_ids) :].tolist()


def served(engine, arrivals, cancels=()):
    """Return ids and end of every request; `arrivals` and `cancels` tell in which step each is."""
    numbers, ids, ends, step = {}, {}, {}, 0
    while not engine.is_idle or len(numbers) < len(arrivals):
        for i, (at, request) in enumerate(arrivals):
            if at == step:
                numbers[engine.submit(request)] = i
                ids[i] = []
        for i, at in cancels:
            if at == step:
                engine.cancel(next((n for n, j in numbers.items() if j == i), 99))
        for event in engine.step():
            i = numbers[event.number]
            assert i not in ends, "something came after the end"
            ids[i] += event.ids
            if event.finish:
                ends[i] = event.finish
        step += 1
        assert step < 1000, "it goes on for ever"
    return ids, ends


@st.composite
def requests(draw):
    begin = BEGIN[: draw(st.integers(0, len(BEGIN)))]
    end = draw(st.lists(st.integers(0, CONFIG.vocab_size - 1), min_size=1, max_size=4))
    return Request(
        begin + end,
        draw(st.integers(1, 14)),
        stop_ids=draw(st.sampled_from([(), (1,), (3, 13)])),
        temperature=draw(st.sampled_from([0.0, 0.0, 1.0])),
        seed=draw(st.integers(0, 2)),
    )


@st.composite
def engines(draw):
    max_rows = draw(st.integers(1, 4))
    return {
        "num_pages": draw(st.integers(4, 14)),
        "page_size": draw(st.integers(1, 5)),
        "max_rows": max_rows,
        "tokens_per_step": draw(st.integers(max_rows, 9)),
    }


def fits(request, settings):
    total = len(request.prompt_ids) + request.max_new_tokens
    return total <= settings["num_pages"] * settings["page_size"]


CASES = {
    "engine": engines(),
    "arrivals": st.lists(st.tuples(st.integers(0, 9), requests()), min_size=1, max_size=6),
    "cancels": st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=2),
}


@settings(max_examples=30)
@given(**CASES)
def test_every_request_is_served_as_if_it_were_alone(engine, arrivals, cancels):
    arrivals = [(at, request) for at, request in arrivals if fits(request, engine)]
    assume(arrivals)
    engine = Engine(DECODER, **engine)
    ids, ends = served(engine, arrivals, cancels)
    for i, (_, request) in enumerate(arrivals):
        expected = alone(request)
        if ends[i] == "cancelled":
            assert i in dict(cancels)
            assert ids[i] == expected[: len(ids[i])]
        else:
            assert ids[i] == expected
            assert ends[i] == ("stop" if expected[-1] in request.stop_ids else "length")
    counts = engine.counts
    assert (counts.running, counts.waiting, counts.pages_used) == (0, 0, 0)
    assert counts.pages_kept + counts.pages_free == engine._pool.num_pages
    assert counts.new_tokens == sum(map(len, ids.values()))
