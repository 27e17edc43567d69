"""The widget of chapter 46: what it shows of each layer, and every control obeys."""

import math

import pytest
import torch

from llmcourse.data.tokenizer import train_bpe
from llmcourse.model import ModelConfig, Transformer
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widget import module
from llmcourse_classroom.widgets import lens
from llmcourse_classroom.widgets.lens import (
    CANDIDATES,
    LEAST,
    MOST_TOKENS,
    LensBoard,
    seen_by_layers,
)
from llmcourse_labs.study import logit_lens
from tests.browser.hands import choose, enter, keys, later, place, press, stop_time, to_the_end
from tests.browser.kit import holds, pictured, said, table, value
from tests.browser.twins import agrees, each

FRANCE, NAMES = "The capital of France is", "two made-up names, again"
LAST = 30
TOKENIZER = train_bpe("the cat sat on the mat", 256 + 12)


def small(num_layers=3):
    """A model whose layers change what it would say."""
    shape = {"width": 16, "num_heads": 2, "num_kv_heads": 1, "head_size": 8, "hidden": 24}
    shape |= {"vocab_size": TOKENIZER.vocab_size, "context_length": 32, "tied_head": True}
    config = ModelConfig(num_layers=num_layers, **shape)
    model = Transformer(config, generator=torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(12 if weight.ndim == 2 else 1)
    return model


def test_a_reading_holds_places_and_candidates_and_the_page_reads_it(arithmetic):
    """Against sorted lists: with likely tokens, with none, with more than a float32 can tell."""
    generator = torch.Generator().manual_seed(0)
    for scale in (0.1, 3.0, 8.0, 99.0):
        logits = scale * torch.randn(4, 3, TOKENIZER.vocab_size, generator=generator)
        p_LTV = logits.double().softmax(-1)
        found = lens.reading(TOKENIZER, [65, 66, 67], logits)
        texts = [[text] for text in found["layers"]]
        for token, (_, layers) in enumerate(each(arithmetic, LensBoard, "layersOf", texts)):
            final = p_LTV[-1, token].argmax()
            for p, layer in zip(p_LTV[:, token], layers, strict=True):
                order = p.argsort(descending=True).tolist()
                assert order[layer["place"] - 1] == final
                likely = [i for n, i in enumerate(order[:CANDIDATES]) if n == 0 or p[i] >= LEAST]
                words, shares = zip(*(one.values() for one in layer["top"]), strict=True)
                assert [found["words"][n] for n in words] == [TOKENIZER.decode([i]) for i in likely]
                assert list(shares) == [round(100 * p[i].item()) for i in likely]


def test_a_part_is_what_a_model_cut_short_says_and_at_the_end_what_chapter_46_computes():
    model, text = small(), "the cat sat"
    found = seen_by_layers(model, TOKENIZER, text)
    ids = torch.tensor([TOKENIZER.encode(text)])
    assert "".join(found["tokens"]) == text
    for num_layers in (1, 2, 3):
        short = small(num_layers)
        short.load_state_dict(model.state_dict(), strict=False)
        for p, layers in zip(short(ids)[0].softmax(-1), found["layers"], strict=True):
            _, word, share, *_ = map(int, layers.split("|")[num_layers].split(","))
            assert found["words"][word] == TOKENIZER.decode([int(p.argmax())])
            assert share == round(100 * p.max().item())
    for p_V, layer in zip(
        logit_lens(model, ids)[:, 0], found["layers"][-1].split("|"), strict=True
    ):
        assert layer.split(",")[2] == f"{100 * p_V.max():.0f}"


def test_a_bar_is_a_logarithm_and_a_lead_is_the_last_that_holds(arithmetic):
    heights = [[1, 49_152], [49_152, 49_152], [222, 49_152]]
    agrees(arithmetic, LensBoard, "height", heights, lambda p, n: 1 - math.log(p, n), abs=1e-12)
    leads = {(3, 1, 2, 1, 1): 3, (1, 1): 0, (2, 1): 1}
    given = [[[{"place": p} for p in places]] for places in leads]
    assert arithmetic(LensBoard, "leadsFrom", given) == list(leads.values())


def test_layers_and_tokens_are_gone_through(show):
    page = show(LensBoard(), says=["After layer 30", "“␣Paris” with 77 %", "from layer 30 on"])
    enter(page, "after layer", "28", "“␣the” with 67 %", "place 7 of 49,152")
    holds(pictured(page), "␣the 67 %", "␣capital 3 %")
    rows = table(page)
    assert (len(rows), rows[28][1:3], rows[28][-1]) == (LAST + 1, ["␣the", "67 %"], "7")
    press(page, "Step", "After layer 29")
    press(page, "Step", "After layer 30")
    press(page, "Step", "Before the first layer", "“␣is” with 100 %")
    enter(page, "token of it", "9", used="5", note=["from 1 to 5"])
    keys(page, "token of it", "ArrowLeft", "having read “The capital of France”")
    to_the_end(page, "After layer 30 of 30", "“␣is” with 64 %")
    choose(page, "it reads", NAMES, "“or” with 95 %", values={"token of it": "14"})
    assert page.locator("[data-key^='token ']").count() == 14


def test_the_lens_is_moved_by_keys_and_what_is_pressed_is_chosen(show):
    for width in (760, 360):
        page = show(LensBoard(layer=28), width=width)
        keys(page, "lens", "ArrowDown", "After layer 29")
        keys(page, "lens", "ArrowUp ArrowUp ArrowLeft", "After layer 27", "“The capital of France”")
        page.mouse.click(*place(page, "token 1"))
        holds(said(page), "having read “The capital”", "“␣of”")
        row = page.locator(".lc-stage text", has_text="22").first.bounding_box()
        page.mouse.click(row["x"] + 30, row["y"] + 6)
        assert value(page, "after layer") == "22"
        knob = page.get_by_label("lens", exact=True).bounding_box()
        page.mouse.move(knob["x"] + 12, knob["y"] + 12)
        page.mouse.down()
        page.mouse.move(knob["x"] + 12, knob["y"] - 900, steps=3)
        page.mouse.up()
        holds(said(page), "Before the first layer")


def test_candidates_change_places_in_motion(show):
    """Between layers 28 and 29 one rises past another, one comes and one leaves."""
    page = show(LensBoard(layer=28), as_is=True)
    stop_time(page)
    before = {key: place(page, key) for key in ("␣the", "␣capital", "panel")}
    press(page, "Step")
    later(page, 100)
    on_the_way = {key: place(page, key) for key in before}
    assert page.locator("[data-gone]").count() == 2
    later(page, 1_000)
    after = {key: place(page, key) for key in before}
    assert before["␣capital"][1] > on_the_way["␣capital"][1] > after["␣capital"][1]
    assert after["␣capital"][1] < after["␣the"][1]
    assert (page.locator("[data-gone]").count(), page.locator("[data-key='␣Paris']").count()) == (
        0,
        1,
    )
    page.emulate_media(reduced_motion="reduce")
    page.get_by_label("after layer, number", exact=True).fill("28")
    page.keyboard.press("Tab")
    later(page, 1)
    assert place(page, "␣the") == before["␣the"]


# --- in a notebook


@pytest.fixture
def small_record(monkeypatch):
    model = small()
    settings = {"model": "small", "layers": 3, "vocab_size": TOKENIZER.vocab_size}
    readings = {"recorded": {"0": seen_by_layers(model, TOKENIZER, "the cat")}}
    found = {"settings": settings, "readings": readings}
    monkeypatch.setattr(lens, "recorded_runs", lambda _: found)
    return model


def test_what_is_typed_is_read_by_the_model(small_record):
    board = LensBoard((small_record, TOKENIZER, None))
    assert (board.types, board.state()["types"], board.beginning) == (True, False, "recorded")
    board.typed = "on the mat"
    assert board.beginning == "on the mat"
    assert board.readings[-1] == {
        "name": "on the mat",
        **seen_by_layers(small_record, TOKENIZER, "on the mat"),
    }
    board.typed = "xyz" * 20
    assert (board.beginning, len(board.readings)) == ("on the mat", 2)
    holds(board.note, "60 tokens are too many", f"at most {MOST_TOKENS}")
    with pytest.raises(ValueError, match=r"has 3 layers .* not 2 and .* open_model"):
        LensBoard((small(2), TOKENIZER))


TYPED = """async ([text, state, made]) => {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const { default: widget } = await import(address);
  const listeners = [], host = document.createElement("main");
  document.body.append(host);
  const model = {
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      for (const [event, f] of listeners) if (event === `change:${name}`) f();
      if (name === "typed") { // what Python does then
        model.set("readings", [...state.readings, made]);
        model.set("beginning", made.name);
      }
    },
    on: (...given) => listeners.push(given), off() {}, save_changes() {},
  };
  widget.render({ model, el: host });
}"""


def test_a_field_for_typing_is_there_where_a_model_is(page, small_record):
    board = LensBoard((small_record, TOKENIZER))
    made = {"name": "sat on", **seen_by_layers(small_record, TOKENIZER, "sat on the")}
    state = board.state() | {"types": True}
    page.goto("about:blank")
    page.evaluate(TYPED, [module(LensBoard.script), state, made])
    page.get_by_label("a beginning of your own").fill("sat on")
    page.keyboard.press("Enter")
    holds(said(page), "having read “sat on the”")
    names = page.get_by_label("it reads")
    assert (names.input_value(), names.locator("option").count()) == ("sat on", 2)
    page.get_by_label("a beginning of your own").fill("recorded")
    press(page, "Look", "having read “the cat”")


def test_the_page_has_no_such_field(show):
    page = show(LensBoard())
    assert page.get_by_label("a beginning of your own").count() == 0
    assert recorded_runs("lens")["settings"]["layers"] == LAST
