"""The block of chapter 19: boxes, shapes and bytes are those of the real tape, and it obeys."""

import itertools

import pytest
import torch

from llmcourse.backward import backprop
from llmcourse.course.widgets.block import BOXES, SHAPE, BlockTapper
from llmcourse.model import ModelConfig, Transformer, attention, llama3_8b, llama3_405b, tiny
from llmcourse.scale import cost
from tests.browser.kit import enter, pictured, said


def config_of(num_kv_heads, *, width=12, head_size=6, hidden=20):
    return ModelConfig(
        num_layers=1,
        width=width,
        num_heads=4,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        hidden=hidden,
        vocab_size=17,
        context_length=16,
    )


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
    for (config, batch, tokens), shown in zip(
        GRID, arithmetic(BlockTapper, "bytesByBox", given), strict=True
    ):
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


def test_the_statistics_stay_in_float32(arithmetic):
    shape = shape_of(config_of(2))
    half, whole = arithmetic(BlockTapper, "bytesByBox", [[shape, 2], [shape, 4]])
    statistics = {"attention_norm": 3 * 7, "feed_forward_norm": 3 * 7, "attention": 3 * 4 * 7}
    for box, few, many in zip(BOXES, half, whole, strict=True):
        assert 2 * few - many == 4 * statistics.get(box, 0)


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
        boxes = arithmetic(
            BlockTapper, "boxes", [[shape_of(config, batch=2, tokens=tokens, keeps=keeps)]]
        )[0]
        by_id = {box["id"]: box["flop"] for box in boxes}
        pairs = by_id.pop("attention")
        assert pairs["backward"] == products * pairs["forward"] / 2
        assert all(flop["backward"] == 2 * flop["forward"] for flop in by_id.values())
        parts = cost.forward_flop_by_part(config)
        per_block = 2 * tokens / config.num_layers
        assert pairs["forward"] == parts["attention pairs"] * per_block
        matrices = (parts["projections"] + parts["feed_forward"]) * per_block
        assert sum(flop["forward"] for flop in by_id.values()) == matrices


def test_the_tape_fills_forward_and_empties_backward(arithmetic):
    added = [3, 0, 4, 5]
    given = [[added, at, going] for going in ("forward", "backward") for at in range(4)]
    assert arithmetic(BlockTapper, "onTape", given) == [3, 3, 7, 12, 0, 3, 3, 7]
    walks = [[0, "forward", 4], [3, "forward", 4], [3, "backward", 4], [0, "backward", 4]]
    assert arithmetic(BlockTapper, "following", walks) == [1, -1, 2, -1]


def test_a_tap_and_the_list_choose_a_box(show):
    page = show(BlockTapper(llama3_8b()))
    assert said(page).startswith("Attention: keeps q, k, v, out and L, 169 MB, 15 %")
    page.locator(".lc-stage svg text", has_text="silu(g) · u").click()
    assert page.get_by_label("box", exact=True).input_value() == "silu"
    assert said(page).startswith("The gate: silu(g) · u: keeps g and u, 470 MB, 41 %")
    page.get_by_label("box", exact=True).focus()
    page.keyboard.press("ArrowDown")
    assert said(page).startswith("Down projection: keeps h")
    picture = pictured(page)
    assert "down projection" in picture
    assert "dW_down = dyᵀ h" in page.locator(".bt-back").text_content()


def test_a_box_that_shares_its_input_adds_no_bytes(show):
    page = show(BlockTapper(llama3_8b(), box="key"))
    assert "reads n again, which is on the tape already: 0 more bytes" in said(page)
    assert "there already" in page.locator(".bt-panel tbody").text_content()
    assert "dW_k is ready" in page.locator(".bt-panel tbody").text_content()
    page.get_by_label("box", exact=True).select_option("rope")
    assert "keeps nothing" in said(page)


def test_steps_walk_backward_and_empty_the_tape(show):
    page = show(BlockTapper(llama3_8b()))
    page.get_by_label("pass", exact=True).select_option("backward")
    assert said(page).startswith("Second residual sum, backward: dx″ arrives, dx′ and dy come out")
    step = page.get_by_role("button", name="Step")
    step.focus()
    for _ in BOXES:
        page.keyboard.press("Enter")
    assert said(page).startswith("RMSNorm before attention, backward: dn arrives, dx and dgain")
    assert said(page).endswith("0 B of 1.14 GB are still on the tape after it.")
    page.get_by_role("button", name="Reset").click()
    assert "second residual sum" in pictured(page)


def test_play_goes_to_the_end_where_motion_is_reduced(show):
    page = show(BlockTapper(llama3_8b(), box="attention_norm"))
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("button", name="To the end").click()
    assert page.get_by_label("box", exact=True).input_value() == "second_sum"
    assert "1.14 GB of 1.14 GB" in said(page)


def test_all_weights_grow_with_the_square_of_the_tokens(show):
    page = show(BlockTapper(llama3_8b()))
    page.get_by_label("what attention keeps").select_option("all weights")
    assert "keeps q, k, v and P, 4.4 GB, 81 %" in said(page)
    enter(page, "tokens T of a sequence", "16384")
    assert "keeps q, k, v and P, 17.4 GB, 89 %" in said(page)
    page.get_by_label("numbers", exact=True).select_option("float32")
    assert "keeps q, k, v and P, 34.8 GB" in said(page)
    page.locator(".lc-table > summary").click()
    table = page.locator(".lc-table tbody").text_content()
    assert "(n)" in table
    assert "whole block" in table


def test_what_does_not_fit_is_refused():
    with pytest.raises(TypeError, match="ModelConfig"):
        BlockTapper("llama3_8b")
    assert BlockTapper(tiny()).tokens == 32
