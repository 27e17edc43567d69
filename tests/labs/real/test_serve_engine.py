"""The engine: every request gets what `generate` gives it alone, whatever else is served."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcourse.model import Transformer, generate
from llmcourse_labs.real.serve import Engine, OwnDraft, PromptLookup, Request
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
SMALLER = made(replace(CONFIG, num_layers=1, context_length=14))


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


REQUESTS = st.fixed_dictionaries(
    {
        "shared": st.integers(0, len(BEGIN)),
        "own": st.lists(st.integers(0, CONFIG.vocab_size - 1), min_size=1, max_size=4),
        "max_new_tokens": st.integers(1, 14),
        "stop_ids": st.sampled_from([(), (1,), (3, 13)]),
        "temperature": st.sampled_from([0.0, 0.0, 1.0]),
        "seed": st.integers(0, 2),
    }
)


def asked(*, shared, own, **others):
    """A request; made outside of strategies, which must not see the dice of type checks."""
    return Request(BEGIN[:shared] + own, **others)


@st.composite
def engines(draw):
    max_rows = draw(st.integers(1, 4))
    return {
        "num_pages": draw(st.integers(4, 14)),
        "page_size": draw(st.integers(1, 5)),
        "max_rows": max_rows,
        "tokens_per_step": draw(st.integers(max_rows, 9)),
    }


CASES = {
    "engine": engines(),
    "draft": st.sampled_from([None, "lookup", "own"]),
    "arrivals": st.lists(st.tuples(st.integers(0, 9), REQUESTS), min_size=1, max_size=6),
    "cancels": st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=2),
}


def is_exact(engine, draft, arrivals, cancels, make=Engine):
    """Serve; return whether each request got what it gets alone, and no page is lost."""
    all_slots = engine["num_pages"] * engine["page_size"]
    asked_for = [(at, asked(**each)) for at, each in arrivals]
    asked_for = [
        (at, r) for at, r in asked_for if len(r.prompt_ids) + r.max_new_tokens <= all_slots
    ]
    if draft == "own":  # its draws are others, of the same distribution: see test_serve_draft
        asked_for = [(at, replace(r, temperature=0.0)) for at, r in asked_for]
    drafts = {None: None, "lookup": PromptLookup(2, 3), "own": OwnDraft(SMALLER, 2)}
    engine = make(DECODER, draft=drafts[draft], **engine)
    ids, ends = served(engine, asked_for, cancels)
    for i, (_, request) in enumerate(asked_for):
        expected = alone(request)
        end = "stop" if expected[-1] in request.stop_ids else "length"
        if ends[i] == "cancelled" and i in dict(cancels):
            expected, end = expected[: len(ids[i])], "cancelled"
        if (ids[i], ends[i]) != (expected, end):
            return False
    counts = engine.counts
    return (
        (counts.running, counts.waiting, counts.pages_used) == (0, 0, 0)
        and counts.pages_kept + counts.pages_free == engine._pool.num_pages
        and counts.new_tokens == sum(map(len, ids.values()))
        and drafts["own"]._rows == {}
    )


@settings(max_examples=25)
@given(**CASES)
def test_every_request_is_served_as_if_it_were_alone(engine, draft, arrivals, cancels):
    assert is_exact(engine, draft, arrivals, cancels)
