"""The block of chapter 19: boxes, shapes and bytes are those of the real tape, and it obeys."""

import itertools

import pytest
import torch

from llmcourse.backward import backprop
from llmcourse.model import ModelConfig, Transformer, attention, llama3_8b, llama3_405b, tiny
from llmcourse_classroom.widgets.block import BOXES, SHAPE, BlockTapper
from llmcourse_labs.scale import cost
from tests.browser.hands import choose, enter, later, press, stop_time, to_the_end
from tests.browser.kit import holds, pictured, said, table


def config_of(num_kv_heads, *, width=12, head_size=6, hidden=20):
    shape = {"num_heads": 4, "num_kv_heads": num_kv_heads, "head_size": head_size}
    shape |= {"width": width, "hidden": hidden, "vocab_size": 17}
    return ModelConfig(num_layers=1, context_length=16, **shape)


def shape_of(config, *, batch=3, tokens=7, keeps="log-sum-exp"):
    shape = {name: getattr(config, name) for name in SHAPE}
    return shape | {"batch": batch, "tokens": tokens, "keeps": keeps}


GRID = [
    (config_of(kv, width=width), batch, tokens)
    for kv, width, batch, tokens in itertools.product((1, 2, 4), (12, 30), (1, 3), (5, 16))
]


def tape_of(config, batch, tokens):
    """The tape of the one block of a model, and what is no part of it: the weights."""
    model = Transformer(config, generator=torch.Generator().manual_seed(0))
    ids = torch.randint(0, 17, (batch, tokens), generator=torch.Generator().manual_seed(1))
    _, tape = backprop.forward(model, ids, ids)
    weights = {p.data_ptr() for p in model.parameters()}
    return {
        box: [x for x in saved if x.data_ptr() not in weights]
        for box, saved in tape.blocks[0]._asdict().items()
    }


def test_every_box_keeps_what_the_real_tape_holds(arithmetic):
    shown = arithmetic(BlockTapper, "boxes", [[shape_of(c, batch=b, tokens=t)] for c, b, t in GRID])
    for (config, batch, tokens), boxes in zip(GRID, shown, strict=True):
        assert tuple(box["id"] for box in boxes) == BOXES
        tape, seen = tape_of(config, batch, tokens), []
        for box in boxes:
            kept = tape.get(box["id"], [])
            assert len(box["keeps"]) == len(kept), box["id"]
            for each, real in zip(box["keeps"], kept, strict=True):
                # The output projection sees the heads of attention side by side.
                heads = [*each["dims"][:2], each["dims"][2] * each["dims"][-1]]
                queries = [batch * config.num_heads, tokens]  # a row of log-sum-exp for each head
                assert list(real.shape) in (each["dims"], heads, queries), (box["id"], each)
                assert real.numel() == torch.Size(each["dims"]).numel()
                values = real.flatten()
                # x is kept by the first norm under one name, and by nobody again.
                again = any(torch.equal(values, other) for other in seen)
                assert each.get("shared", False) == again, (box["id"], each["name"])
                seen.append(values)


def test_bytes_add_up_to_those_of_the_real_tape(arithmetic):
    given = [[shape_of(c, batch=b, tokens=t), 4] for c, b, t in GRID]
    found = arithmetic(BlockTapper, "bytesByBox", given)
    for (config, batch, tokens), shown in zip(GRID, found, strict=True):
        distinct = []
        for kept in itertools.chain(*tape_of(config, batch, tokens).values()):
            if not any(torch.equal(kept.flatten(), other) for other in distinct):
                distinct.append(kept.flatten())
        assert sum(shown) == sum(4 * x.numel() for x in distinct)


def test_attention_with_all_weights_keeps_what_the_written_out_form_saves(arithmetic):
    for kv, tokens in itertools.product((1, 2, 4), (1, 5, 9)):
        config = config_of(kv)
        shape = shape_of(config, tokens=tokens, keeps="all weights")
        box = arithmetic(BlockTapper, "boxes", [[shape]])[0][BOXES.index("attention")]
        g = torch.Generator().manual_seed(0)
        heads = (config.num_heads, kv, kv)
        given = [torch.randn(3, tokens, each, 6, generator=g) for each in heads]
        _, saved = attention.attention_forward(*given)
        assert [kept["dims"] for kept in box["keeps"]] == [list(x.shape) for x in saved]


def test_the_statistics_stay_in_float32_and_the_tape_fills_and_empties(arithmetic):
    shape = shape_of(config_of(2))
    half, whole = arithmetic(BlockTapper, "bytesByBox", [[shape, 2], [shape, 4]])
    statistics = {"attention_norm": 3 * 7, "feed_forward_norm": 3 * 7, "attention": 3 * 4 * 7}
    for box, few, many in zip(BOXES, half, whole, strict=True):
        assert 2 * few - many == 4 * statistics.get(box, 0)
    added = [3, 0, 4, 5]
    given = [[added, at, going] for going in ("forward", "backward") for at in range(4)]
    assert arithmetic(BlockTapper, "onTape", given) == [3, 3, 7, 12, 0, 3, 3, 7]
    walks = [[0, "forward", 4], [3, "forward", 4], [3, "backward", 4], [0, "backward", 4]]
    assert arithmetic(BlockTapper, "following", walks) == [1, -1, 2, -1]


def test_weights_are_those_of_the_block(arithmetic):
    for config in (config_of(2), tiny(), llama3_405b()):
        with torch.device("meta"):
            block = Transformer(config).blocks[0]
        boxes = arithmetic(BlockTapper, "boxes", [[shape_of(config)]])[0]
        shown = {w["name"]: w["dims"] for box in boxes for w in box["weights"]}
        assert shown == {name: list(p.shape) for name, p in block.named_parameters()}


@pytest.mark.parametrize("make", [tiny, llama3_8b, llama3_405b])
def test_flop_are_the_packages_and_backward_is_twice_forward(arithmetic, make):
    config = make()
    tokens = config.context_length
    for keeps, products in (("all weights", 4), ("log-sum-exp", 5)):
        shape = shape_of(config, batch=2, tokens=tokens, keeps=keeps)
        (boxes,) = arithmetic(BlockTapper, "boxes", [[shape]])
        by_id = {box["id"]: box["flop"] for box in boxes}
        pairs = by_id.pop("attention")
        assert pairs["backward"] == products * pairs["forward"] / 2
        assert all(flop["backward"] == 2 * flop["forward"] for flop in by_id.values())
        parts = cost.forward_flop_by_part(config)
        per_block = 2 * tokens / config.num_layers
        assert pairs["forward"] == parts["attention pairs"] * per_block
        matrices = (parts["projections"] + parts["feed_forward"]) * per_block
        assert sum(flop["forward"] for flop in by_id.values()) == matrices


def test_a_tap_and_the_list_choose_a_box_and_what_attention_keeps(show):
    page = show(BlockTapper(llama3_8b()))
    box, panel = page.get_by_label("box", exact=True), page.locator(".bt-panel tbody")
    holds(said(page), "Attention: keeps q, k, v, out and L, 169 MB, 15 %")
    page.locator(".lc-stage svg text", has_text="silu(g) · u").click()
    assert box.input_value() == "silu"
    holds(said(page), "The gate: silu(g) · u: keeps g and u, 470 MB, 41 %")
    box.focus()
    page.keyboard.press("ArrowDown")
    holds(said(page), "Down projection: keeps h")
    holds(pictured(page), "down projection")
    holds(page.locator(".bt-back").text_content(), "dW_down = dyᵀ h")
    choose(page, "box", "key")  # it shares its input, and adds no bytes
    holds(said(page), "reads n again", "0 more bytes")
    holds(panel.text_content(), "there already", "dW_k is ready")
    choose(page, "box", "rope", "keeps nothing")
    choose(page, "box", "attention")
    choose(page, "what attention keeps", "all weights", "keeps q, k, v and P, 4.4 GB, 81 %")
    enter(page, "tokens T of a sequence", "16384", "keeps q, k, v and P, 17.4 GB, 89 %")
    choose(page, "numbers", "float32", "keeps q, k, v and P, 34.8 GB")
    holds(str(table(page)), "(n)", "whole block")


def test_steps_walk_backward_and_empty_the_tape(show):
    page = show(BlockTapper(llama3_8b()))
    choose(page, "pass", "backward", "Second residual sum, backward: dx″ arrives, dx′ and dy")
    page.get_by_role("button", name="Step").focus()
    for _ in BOXES:
        page.keyboard.press("Enter")
    holds(said(page), "RMSNorm before attention, backward: dn arrives, dx and dgain")
    holds(said(page), "0 B of 1.14 GB")
    press(page, "Reset", picture=["second residual sum"])
    choose(page, "pass", "forward")
    to_the_end(page)
    assert page.get_by_label("box", exact=True).input_value() == "second_sum"
    holds(said(page), "1.14 GB of 1.14 GB")


def test_what_travels_is_what_the_boxes_take_and_give(arithmetic):
    """Every input of a box arrives forward; the gradient of every use of an output arrives back."""
    (boxes,) = arithmetic(BlockTapper, "boxes", [[shape_of(llama3_8b())]])
    ways = [[box["id"], going] for box in boxes for going in ("forward", "backward")]
    found = dict(zip(map(tuple, ways), arithmetic(BlockTapper, "arrivals", ways), strict=True))
    for box in boxes:
        came = {name for _, to, name in found[box["id"], "forward"] if to == box["id"]}
        assert came == {each["name"] for each in box["comes"]}
        back = [name for _, to, name in found[box["id"], "backward"] if to == box["id"]]
        assert set(back) == {f"d{each['name']}" for each in box["goes"]}
    uses = {name: len(found[name, "backward"]) for name in BOXES}
    assert {name for name, count in uses.items() if count > 1} == {
        "attention_norm",
        "rope",
        "first_sum",
        "feed_forward_norm",
    }


TRAVELS = """() => [...document.querySelectorAll(".bt-travels")]
  .filter((one) => one.getAttribute("opacity") !== "0")
  .map((one) => [one.textContent, one.transform.baseVal.consolidate().matrix.f])"""


def test_gradients_of_three_uses_run_back_and_are_added(show):
    """Mutants: nothing runs; it runs forward; one of three; the sum stands there before."""
    page = show(BlockTapper(llama3_8b(), going="backward", box="rope"), as_is=True)
    stop_time(page)
    for box in ("value", "key", "query"):
        press(page, "Step", box.capitalize())
        later(page, 1_100)
    assert page.get_by_text("dn + dn + dn").count() == 0
    press(page, "Step", "RMSNorm before attention, backward: dn arrives")
    heights = []
    for _ in range(4):
        later(page, 100)
        found = page.evaluate(TRAVELS)
        assert [name for name, _ in found] == ["dn"] * 3
        heights.append(found[0][1])
        assert page.get_by_text("dn + dn + dn").get_attribute("opacity") == "0"
    assert (heights, len(set(heights))) == (sorted(heights, reverse=True), 4)
    later(page, 250)
    assert [name for name, _ in page.evaluate(TRAVELS)] == [
        "dx",
        "dx",
    ]  # past the half, and through
    later(page, 500)
    assert page.evaluate(TRAVELS) == []
    assert page.get_by_text("dn + dn + dn").get_attribute("opacity") == "1"


def test_with_reduced_motion_gradients_have_come_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(BlockTapper(llama3_8b(), going="backward", box="query"), as_is=True)
    stop_time(page)
    press(page, "Step", "dn arrives")
    assert page.evaluate(TRAVELS) == []
    assert page.get_by_text("dn + dn + dn").is_visible()
