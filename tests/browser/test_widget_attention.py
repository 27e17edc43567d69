"""The widget of chapter 11: the page's shares are the package's, and every control obeys."""

import gzip
import itertools
import math

import pytest
import torch
import traitlets

from llmcourse.course.widgets.attention import AttentionMap
from llmcourse.model import Transformer, attention_maps
from llmcourse.model import queries_and_keys as those_of_a_model
from llmcourse.model.attention import attention_weights, causal_mask, sliding_window_mask
from llmcourse.model.config import PRESETS
from tests.browser.kit import enter, look, pictured, said, table, value
from tests.browser.registry import ATTENDED, attention_map, queries_and_keys

SHAPES = [(4, 2), (4, 4), (4, 1), (6, 3), (8, 2), (1, 1)]
"""Query heads and key heads."""


def shape_of(made):
    return {
        "length": len(made.tokens),
        "heads": made.num_heads,
        "kvHeads": made.num_kv_heads,
        "size": made.head_size,
    }


def numbers_of(made):
    """Return the queries (L, T, H, K) and keys (L, T, G, K) that the page has, in float64."""
    layers, length = len(made.query_numbers), len(made.tokens)
    pairs = (made.query_numbers, made.num_heads), (made.key_numbers, made.num_kv_heads)
    return tuple(
        torch.tensor(numbers, dtype=torch.float64).view(layers, length, heads, made.head_size)
        / 10**made.decimals
        for numbers, heads in pairs
    )


def mask_of(kind, length, window):
    if kind == "none":
        return torch.ones(length, length, dtype=torch.bool)
    return (
        causal_mask(length, length)
        if kind == "causal"
        else sliding_window_mask(length, length, window)
    )


def by_the_package(made, layer, kind, window, scaled):
    """Return the shares (H, T, T) of a layer of the numbers that the page has."""
    queries, keys = numbers_of(made)
    q = queries[layer][None] * (1 if scaled else math.sqrt(made.head_size))
    mask = mask_of(kind, len(made.tokens), window)
    return attention_weights(q, keys[layer][None], mask=mask)[0]


# --- arithmetic


@pytest.mark.parametrize(("heads", "kv_heads"), SHAPES)
def test_shares_are_those_of_the_package(arithmetic, heads, kv_heads):
    made = AttentionMap(ATTENDED, *queries_and_keys(heads=heads, kv_heads=kv_heads))
    queries, keys = (x.flatten(1).tolist() for x in numbers_of(made))
    choices = list(
        itertools.product(range(2), ("causal", "window", "none"), (1, 3, 9), (True, False))
    )
    cases = [
        [
            *(queries[layer], keys[layer], shape_of(made), head),
            {"mask": kind, "window": window, "scaled": scaled},
        ]
        for layer, kind, window, scaled in choices
        for head in range(heads)
    ]
    got = torch.tensor(arithmetic(AttentionMap, "weights", cases), dtype=torch.float64)
    expected = torch.cat([by_the_package(made, *choice) for choice in choices])
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-14)
    assert torch.equal(got == 0, expected == 0)


def test_the_shares_of_a_model_are_its_own(arithmetic):
    small = Transformer(PRESETS["tiny"](), generator=torch.Generator().manual_seed(0))
    ids = torch.randint(300, (1, len(ATTENDED)), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for name, weight in small.named_parameters():
            if "attention" in name:
                weight.mul_(8)  # far from equal shares
    queries, keys = those_of_a_model(small, ids)
    made = AttentionMap(ATTENDED, queries[:, 0], keys[:, 0])
    flat = [x.flatten(1).tolist() for x in numbers_of(made)]
    cases = [
        [
            *(flat[0][layer], flat[1][layer], shape_of(made), head),
            {"mask": "causal", "window": 1, "scaled": True},
        ]
        for layer in range(2)
        for head in range(4)
    ]
    got = torch.tensor(arithmetic(AttentionMap, "weights", cases)).unflatten(0, (2, 4))
    expected = attention_maps(small, ids)[:, 0]
    assert expected[:, :, -1].max() > 0.4
    torch.testing.assert_close(got, expected, rtol=0, atol=0.01)


def test_huge_scores_stay_finite(arithmetic):
    cases = [[[3000.0, 2999.0, -3000.0]], [[-1e6, -1e6]]]
    assert arithmetic(AttentionMap, "softmax", cases) == [
        pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0], rel=1e-12),
        [0.5, 0.5],
    ]


def test_a_group_is_a_run_of_neighbouring_heads(arithmetic):
    cases = [[head, {"heads": 8, "kvHeads": 2}] for head in range(8)]
    assert arithmetic(AttentionMap, "groupOf", cases) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_spread_is_the_number_of_equal_shares(arithmetic):
    rows = [[1, 0, 0], [0.25] * 4, [0.5, 0, 0.5], [0.7, 0.2, 0.1]]
    entropy = -sum(p * math.log(p) for p in rows[-1])
    got = arithmetic(AttentionMap, "spread", [[row] for row in rows])
    assert got == pytest.approx([1, 4, 2, math.exp(entropy)], rel=1e-12)


def test_habits_are_means_over_rows_from_2_on(arithmetic):
    shares = by_the_package(attention_map(), 1, "causal", 4, True)
    got = arithmetic(AttentionMap, "habits", [[head.tolist()] for head in shares])
    for head, each in zip(shares, got, strict=True):
        assert each["before"] == pytest.approx(head.diagonal(-1)[1:].mean().item(), rel=1e-12)
        assert each["first"] == pytest.approx(head[2:, 0].mean().item(), rel=1e-12)
        assert each["itself"] == pytest.approx(head.diagonal()[2:].mean().item(), rel=1e-12)


def test_the_strongest_come_first_and_nothing_is_not_among_them(arithmetic):
    cases = [[[0.1, 0.6, 0, 0.3], 3], [[1, 0, 0], 3], [[0.5, 0.5], 1]]
    assert arithmetic(AttentionMap, "strongest", cases) == [[1, 3, 0], [0], [0]]


@pytest.mark.parametrize(("scale", "decimals"), [(1.5, 3), (2000.0, 2)])
def test_numbers_come_through_to_half_a_unit(scale, decimals):
    length = 18
    tokens = [f" w{i}" for i in range(length)]
    queries, keys = queries_and_keys(layers=4, length=length, size=18, scale=scale)
    made = AttentionMap(tokens, queries, keys)
    assert made.decimals == decimals
    for ours, theirs in zip(numbers_of(made), (queries, keys), strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs.double()).abs().max() <= 0.5 / 10**decimals * (1 + 1e-6)


# --- the page


def test_the_sentence_says_what_the_row_reads_and_whose_keys(show):
    page = show(attention_map(layer=2, head=3, row=5))
    row = by_the_package(attention_map(), 1, "causal", 4, True)[3, 5]
    best = row.argsort(descending=True)[:3].tolist()
    assert "Layer 2, query head 3 reads key/value head 1, shared with head 2." in said(page)
    reads = [
        f"{round(100 * row[i].item())} % from “{ATTENDED[i].replace(' ', '␣')}” ({i})" for i in best
    ]
    readable = ", ".join(reads).replace("\n", "↵")
    assert f"Position “␣on” (5) reads {readable}." in said(page)


def test_heads_are_chosen_by_press_and_by_key(show):
    page = show(attention_map())
    page.get_by_role("button", name="head 2").click()
    assert "query head 2 reads key/value head 1, shared with head 3" in said(page)
    assert page.get_by_role("button", name="head 2").get_attribute("aria-pressed") == "true"
    assert page.get_by_role("button", name="head 0").get_attribute("aria-pressed") == "false"
    assert "Head 2 over all positions" in pictured(page)
    assert page.locator(".am-now").get_attribute("aria-label") == "key/value head 1"
    page.get_by_role("button", name="head 0").press("Enter")
    assert "query head 0 reads key/value head 0, shared with head 1" in said(page)
    framed = page.locator(".am-now")
    assert framed.count() == 1
    assert framed.get_attribute("aria-label") == "key/value head 0"


def test_a_button_walks_through_the_heads_of_one_group(show):
    page = show(AttentionMap(ATTENDED, *queries_and_keys(heads=6, kv_heads=2), head=4))
    step = page.get_by_role("button", name="Next head with the same keys")
    seen = []
    for _ in range(4):
        step.click()
        seen.append(page.locator("button[aria-pressed=true]").text_content())
    assert seen == ["head 5", "head 3", "head 4", "head 5"]


def test_where_no_keys_are_shared_there_is_no_next_head(show):
    page = show(AttentionMap(ATTENDED, *queries_and_keys(heads=2, kv_heads=2)))
    assert page.get_by_role("button", name="Next head with the same keys").is_disabled()
    assert "shared with no other" in said(page)


def test_rows_are_chosen_by_arrow_by_field_and_by_press(show):
    page = show(attention_map(row=4))
    page.get_by_role("slider", name="position that reads").press("ArrowRight")
    assert "Position “␣on” (5) reads" in said(page)
    enter(page, "position that reads", "0")
    assert "Position “<|end|>” (0) reads 100 % from “<|end|>” (0)." in said(page)
    for position, token in enumerate(("␣cat", "␣sat"), start=3):
        row = page.locator("svg text", has_text=f"{position} {token}").last
        row.scroll_into_view_if_needed()
        cell = row.bounding_box()
        page.mouse.click(cell["x"] + 150, cell["y"] + cell["height"] / 2)
        assert value(page, "position that reads") == str(position)
        assert f"Position “{token}” ({position}) reads" in said(page)
        look(page, theme="light", width=760, text=200)  # a press is where the larger picture is


def test_without_a_mask_the_future_is_read_and_the_sentence_says_how_much(show):
    page = show(attention_map(row=3, head=2))
    page.get_by_label("mask", exact=True).select_option("none")
    row = by_the_package(attention_map(), 0, "none", 4, True)[2, 3]
    later = row[4:].sum().item()
    assert row[3] > 0.02  # its own share is not of the future
    assert f"Without a mask {round(100 * later)} % comes from later tokens" in said(page)
    assert page.locator("svg [fill^='url(']").count() == 1  # only in the legend
    page.get_by_label("mask", exact=True).select_option("causal")
    hatched = len(ATTENDED) * (len(ATTENDED) - 1) // 2
    assert page.locator("svg [fill^='url(']").count() == hatched + 1


def test_the_window_has_a_control_only_where_it_counts(show):
    page = show(attention_map(row=8, window=3))
    width = page.get_by_label("window: positions seen, number")
    assert not width.is_visible()
    page.get_by_label("mask", exact=True).select_option("window")
    assert width.is_visible()
    assert "The window shuts out positions 0 to 5." in said(page)
    width.fill("9")
    page.keyboard.press("Tab")
    assert "The window shuts nothing out here." in said(page)
    width.fill("1")
    page.keyboard.press("Tab")
    assert "reads 100 % from “.” (8)." in said(page)


def test_without_the_scale_the_softmax_is_sharper(show):
    def positions(scaled):
        row = by_the_package(attention_map(), 0, "causal", 4, scaled)[0, 8]
        return f"{row.log().mul(row).sum().neg().exp().item():.2g} positions"

    wide, sharp = positions(scaled=True), positions(scaled=False)
    assert float(sharp.split()[0]) < float(wide.split()[0])
    page = show(attention_map(row=8))
    assert f"as over {wide}; without the division by √6, over {sharp}." in said(page)
    page.get_by_label("divide scores by √K").press("Space")
    assert "Not divided by √6 = 2.45, the softmax is sharper" in said(page)
    assert f"spread as over {sharp} in place of {wide}." in said(page)
    page.locator(".lc-table > summary").click()
    assert page.locator("th[scope=col]").all_text_contents()[3] == "score"


def test_the_table_holds_scores_and_shares_of_the_row(show):
    made = attention_map(layer=2, head=2, row=4)
    page = show(made)
    rows = table(page)
    queries, keys = numbers_of(made)
    dots = keys[1, :, 1] @ queries[1, 4, 2]
    shares = by_the_package(made, 1, "causal", 4, True)[2, 4]
    numbers = [[float(cell.replace(",", "")) for cell in (row[2], row[4])] for row in rows]
    assert [row[0] for row in rows] == [str(i) for i in range(len(ATTENDED))]
    assert [row[3] for row in rows[5:]] == ["masked"] * 4
    expected = torch.stack((dots, shares), dim=1)
    torch.testing.assert_close(torch.tensor(numbers).double(), expected, rtol=1e-3, atol=1e-6)


def test_a_single_layer_has_no_slider(show):
    page = show(AttentionMap(ATTENDED, *queries_and_keys(layers=1)))
    assert not page.get_by_label("layer", exact=True).is_visible()
    assert said(page).startswith("Layer 1, query head 0")


def test_the_layer_changes_every_head(show):
    page = show(attention_map())
    before = page.locator(".am-group svg").evaluate_all("all => all.map(one => one.innerHTML)")
    page.get_by_role("slider", name="layer").press("ArrowRight")
    after = page.locator(".am-group svg").evaluate_all("all => all.map(one => one.innerHTML)")
    assert len(before) == 4
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert said(page).startswith("Layer 2,")


def test_two_tokens_are_enough(show):
    page = show(AttentionMap(["a", " b"], *queries_and_keys(length=2)))
    assert "Position “␣b” (1) reads" in said(page)


# --- Python


@pytest.mark.parametrize("scale", [1.5, 30.0])
def test_the_largest_that_is_taken_is_small_and_a_larger_one_is_refused(scale):
    def made(size):
        return AttentionMap(
            [" w"] * 20,
            *queries_and_keys(layers=4, length=20, heads=8, kv_heads=8, size=size, scale=scale),
        )

    fits = []
    for size in range(8, 32):
        try:
            fits.append(made(size))
        except ValueError as error:
            assert "too many for a page" in str(error)  # noqa: PT017 - the first that fails ends it
            break
    assert fits
    assert len(gzip.compress(fits[-1].page().encode())) < 60_000
    with pytest.raises(ValueError, match="too many for a page of 60 kB: give fewer tokens"):
        made(64)


def test_python_sets_the_state_and_is_clamped():
    made = attention_map()
    made.row, made.head, made.layer, made.window = 19, 7, 3, 20
    assert (made.row, made.head, made.layer, made.window) == (8, 3, 2, 9)
    assert "9 is used" in made.note
    made.head, made.layer = -1, 0
    assert (made.head, made.layer) == (0, 1)
    with pytest.raises(traitlets.TraitError, match="mask must be one of"):
        made.mask = "future"
    assert {made.limits[name]["high"] for name in ("layer", "head", "row", "window")} == {
        2,
        3,
        8,
        9,
    }


def q_and_k(q_shape, k_shape):
    return torch.zeros(q_shape), torch.zeros(k_shape)


@pytest.mark.parametrize(
    ("tokens", "queries", "keys", "message"),
    [
        (9, (2, 1, 9, 4, 6), (2, 1, 9, 2, 6), "take one text of the batch"),
        (9, (2, 8, 4, 6), (2, 8, 2, 6), r"for 9 tokens queries \(2, 8, 4, 6\)"),
        (9, (2, 9, 4, 6), (1, 9, 2, 6), "do not fit"),
        (9, (2, 9, 4, 6), (2, 9, 2, 8), "do not fit"),
        (9, (2, 9, 4, 6), (2, 9, 3, 6), "a multiple of the key heads, not 4 and 3"),
        (9, (2, 9, 9, 6), (2, 9, 3, 6), "at most 8 query heads"),
        (9, (5, 9, 4, 6), (5, 9, 2, 6), "1 to 4 layers, not 5"),
        (21, (1, 21, 1, 2), (1, 21, 1, 2), "2 to 20 tokens, not 21"),
        (1, (1, 1, 1, 2), (1, 1, 1, 2), "2 to 20 tokens, not 1"),
    ],
)
def test_what_does_not_fit_is_refused(tokens, queries, keys, message):
    with pytest.raises(ValueError, match=message):
        AttentionMap(["a"] * tokens, *q_and_k(queries, keys))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1e30])
def test_numbers_that_are_not_finite_are_refused(wrong):
    queries, keys = queries_and_keys()
    keys[0, 0, 0, 0] = wrong
    with pytest.raises(ValueError, match="finite"):
        AttentionMap(ATTENDED, queries, keys)
