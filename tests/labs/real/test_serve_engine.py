"""The engine: every request gets what `generate` gives it alone, whatever else is served."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcourse.model import Transformer, generate, tiny
from llmcourse.model.attention import attention_sdpa
from llmcourse_labs.real.quantise import Grid, pack, round_decoder
from llmcourse_labs.real.serve import (
    Engine,
    OwnDraft,
    PagedDecoder,
    PromptLookup,
    Request,
    Span,
    page_names,
)
from llmcourse_labs.real.serve import engine as engine_module
from tests.edits import edited
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


@cache
def _alone(asked_for, decoder):
    request = Request(**dict(asked_for))
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


def alone(request, decoder=DECODER):
    """What `generate` writes for this request and no other."""
    asked_for = {**vars(request), "prompt_ids": tuple(request.prompt_ids)}
    return list(_alone(tuple(asked_for.items()), decoder))


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
        assert step < 200, "it goes on for ever"
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


@settings(max_examples=12)
@given(**CASES)
def test_every_request_is_served_as_if_it_were_alone(engine, draft, arrivals, cancels):
    assert is_exact(engine, draft, arrivals, cancels)


def case(shared, own, new, temperature=0.0, stop_ids=()):
    asked_for = {"shared": shared, "own": own, "max_new_tokens": new, "stop_ids": stop_ids}
    return asked_for | {"temperature": temperature, "seed": 1}


TIGHT = {
    "engine": {"num_pages": 7, "page_size": 3, "max_rows": 3, "tokens_per_step": 6},
    "draft": "lookup",
    "arrivals": [
        (0, case(3, [8, 1], 14, 1.0)),
        (0, case(6, [3], 12, 1.0)),
        (1, case(6, [3], 12)),
        (2, case(9, [5, 3], 9, 0.0, (3, 13))),
        (3, case(0, [2, 2, 2, 8, 1, 16, 2], 12)),
    ],
    "cancels": [(4, 7)],
}
"""Rows that wait again, share pages, guess wrongly and rightly, stop, and are cancelled."""


def fails(make):
    """Whether an engine serves the tight case wrongly, or not to its end."""
    try:
        return not is_exact(**TIGHT, make=make)
    except (AssertionError, LookupError, RuntimeError, TypeError):
        return True


def test_a_tight_case_has_everything():
    engine = Engine(DECODER, draft=PromptLookup(2, 3), **TIGHT["engine"])
    arrivals = [(at, asked(**each)) for at, each in TIGHT["arrivals"]]
    _, ends = served(engine, arrivals, TIGHT["cancels"])
    assert set(ends.values()) == {"stop", "length", "cancelled"}
    counts = engine.counts
    assert min(counts.preemptions, counts.shared_tokens, counts.accepted) > 0
    assert counts.accepted < counts.drafted
    assert not fails(Engine)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row.pages, row.names, row.length = [], [], 0", "\\g; row.generator.manual_seed(1)"),
        ("row.length = len(row.ids) - 1", "row.length += row.num_new + len(row.guesses)"),
        ("pool.release(row.pages[num_pages:])", "pass"),
        ("        self._pool.release(row.pages)\n", ""),
        ("youngest = self._running.pop()", "youngest = self._running.pop(0)"),
        ("stops), None)]", "stops), 1)]"),
    ],
)
def test_other_engines_are_found(old, new):
    assert fails(edited(Engine, (old, new.replace("\\g", old))))


def test_pages_with_the_same_tokens_after_others_are_not_the_same(monkeypatch):
    settings = {"num_pages": 9, "page_size": 2, "max_rows": 1}
    arrivals = [(0, Request(ids, 6, temperature=1.0)) for ids in ([1, 2, 5, 8, 1], [5, 8, 1])]
    expected = {i: alone(request) for i, (_, request) in enumerate(arrivals)}
    assert served(Engine(DECODER, **settings), arrivals)[0] == expected
    monkeypatch.setattr(engine_module, "page_names", edited(page_names, ("before + ", "")))
    assert served(Engine(DECODER, **settings), arrivals)[0] != expected


# --- who runs when


def steps_of(engine):
    """Return which requests got a token in every step."""
    steps = []
    while not engine.is_idle:
        steps.append([event.number for event in engine.step()])
    return steps


def test_rows_join_and_leave_between_any_two_steps():
    engine = Engine(DECODER, num_pages=9, max_rows=2)
    for i, length in enumerate([2, 6, 3, 1]):
        engine.submit(Request([i], length))
    assert steps_of(engine) == [[0, 1], [0, 1], [1, 2], [1, 2], [1, 2], [1, 3]]


def test_others_write_while_a_long_prompt_is_read_in_pieces():
    engine = Engine(DECODER, num_pages=9, page_size=4, max_rows=2, tokens_per_step=4)
    engine.submit(Request([1], 6))
    engine.submit(Request([3] * 12, 1))
    assert steps_of(engine) == [[0], [0], [0], [0, 1], [0], [0]]
    assert engine.counts.prompt_tokens == 13


def test_a_full_pool_makes_the_youngest_wait_and_the_order_stays():
    engine = Engine(DECODER, num_pages=4, page_size=2, max_rows=3)
    for i in range(4):
        engine.submit(Request([i], 5))
    first = [[0, 1, 2], [0, 1, 2], [0, 1], [0, 1], [0], [1]]
    assert steps_of(engine) == [*first, [2, 3], [2, 3], [2], [3], [3], [3]]
    assert engine.counts.preemptions == 3


# --- what is shared


def test_what_was_read_once_is_found_again():
    engine = Engine(DECODER, num_pages=20, page_size=4)
    answer = served(engine, [(0, Request(BEGIN, 7))])[0][0]
    assert engine.counts.prompt_tokens == 10
    for prompt, shared in ((BEGIN[:8], 4), ([*BEGIN[:9], 3], 8), ([*BEGIN, *answer, 3, 1], 16)):
        before = engine.counts
        request = Request(prompt, 5)
        assert served(engine, [(0, request)])[0] == {0: alone(request)}
        assert engine.counts.shared_tokens - before.shared_tokens == shared
        assert engine.counts.prompt_tokens - before.prompt_tokens == len(prompt) - shared


def test_two_that_come_together_share_what_is_read_in_the_same_step():
    engine = Engine(DECODER, num_pages=20, page_size=4)
    arrivals = [(0, Request([*BEGIN, end], 5)) for end in (3, 4)]
    assert served(engine, arrivals)[0] == {i: alone(r) for i, (_, r) in enumerate(arrivals)}
    assert (engine.counts.prompt_tokens, engine.counts.shared_tokens) == (14, 8)
    assert engine.counts.steps == 5


def test_guesses_after_a_stop_id_are_left_out():
    expected = alone(Request([1, 2], 9))
    stop = expected[2]
    request = Request([1, 2], 9, stop_ids=(stop,))
    engine = Engine(DECODER, num_pages=9, draft=OwnDraft(DECODER, 7))
    ids = expected[: expected.index(stop) + 1]
    assert served(engine, [(0, request)]) == ({0: ids}, {0: "stop"})
    assert engine.counts.new_tokens == len(ids)


# --- cancelling and refusing


def test_who_cancels_gets_one_event_and_the_pages_are_free_at_once():
    engine = Engine(DECODER, num_pages=9, max_rows=1)
    numbers = [engine.submit(Request([1, 2], 9)) for _ in range(3)]
    engine.step()
    for number in (*numbers[:2], *numbers[:2], 77):
        engine.cancel(number)
    counts = engine.counts
    assert (counts.running, counts.waiting, counts.pages_used) == (0, 1, 0)
    events = engine.step()
    assert [(e.number, e.finish) for e in events] == [
        *((number, "cancelled") for number in numbers[:2]),
        (numbers[2], None),
    ]
    engine.cancel(numbers[2])
    assert not engine.is_idle
    assert [e.finish for e in engine.step()] == ["cancelled"]
    assert engine.is_idle
    assert engine.step() == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"prompt_ids": []}, "the prompt is empty: give at least one token"),
        ({"prompt_ids": [1, 17]}, "ids must be from 0 to 16, got 1 to 17"),
        ({"prompt_ids": [-1, 3]}, "ids must be from 0 to 16, got -1 to 3"),
        ({"max_new_tokens": 0}, "max_new_tokens must be 1 or greater, got 0"),
        ({"max_new_tokens": 31}, "2 tokens of prompt and 31 new ones do not fit into the context"),
        ({"max_new_tokens": 19}, "need 6 pages, and there are 5: ask for fewer"),
        ({"temperature": -1.0}, "temperature must be 0 or greater, got -1"),
        ({"top_p": 0.0}, "top_p must be above 0, got 0"),
        ({"seed": -1}, "seed must be 0 or greater, got -1"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(changes, told):
    engine = Engine(DECODER, num_pages=5, page_size=4)
    with pytest.raises(ValueError, match=told):
        engine.submit(Request(**{"prompt_ids": [1, 2], "max_new_tokens": 18} | changes))
    assert engine.is_idle
    assert served(engine, [(0, Request([1, 2], 18))])[0] == {0: alone(Request([1, 2], 18))}


def test_an_engine_wants_a_decoder_in_use_and_a_token_for_every_row():
    with pytest.raises(ValueError, match=r"in training mode.*call decoder.eval\(\) first"):
        Engine(Transformer(CONFIG), num_pages=4)
    with pytest.raises(ValueError, match="a vocabulary of 300, and the decoder of 17"):
        Engine(DECODER, num_pages=4, draft=OwnDraft(Transformer(tiny())))
    with pytest.raises(ValueError, match="tokens_per_step must be 8 or greater, got 7"):
        Engine(DECODER, num_pages=4, max_rows=8, tokens_per_step=7)


# --- decoders


def test_a_mixture_with_a_capacity_is_served_as_it_is_alone():
    experts = {"num_experts": 4, "experts_per_token": 2, "capacity_factor": 0.5}
    decoder = made(replace(CONFIG, **experts))
    arrivals = [(i, Request([i, 3, 5], 6)) for i in range(3)]
    ids, _ = served(Engine(decoder, num_pages=9, max_rows=3), arrivals)
    assert ids == {i: alone(request, decoder) for i, (_, request) in enumerate(arrivals)}


@torch.no_grad()
def test_the_decoder_stays_as_it_is_and_shares_its_weights_packed_or_not():
    decoder = made(tiny()).float()
    for each in (decoder, pack(round_decoder(decoder, Grid(4)))):
        paged = PagedDecoder(each, 4, 5)
        for name, weight in each.named_parameters():
            assert paged.decoder.get_parameter(name).data_ptr() == weight.data_ptr()
        ids = [7, 3, 3, 9, 200, 4, 11]
        first, none = paged.logits([Span(ids[:4], 0, [2, 0], 2), Span([5], 0, [1], 0)])
        (second,) = paged.logits([Span(ids[4:], 4, [2, 0], 3)])
        assert len(none) == 0
        expected = each(torch.tensor([ids]))[0, 2:]
        assert torch.allclose(torch.cat([first, second]), expected, atol=1e-4)
        assert each.blocks[0].attention.attend is attention_sdpa
