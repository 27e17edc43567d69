"""The widget of chapter 11: the page's shares are the package's, and every control obeys."""

import gzip
import itertools
import math

import pytest
import torch

from llmcourse.model import Transformer
from llmcourse.model.attention import attention_weights, causal_mask, sliding_window_mask
from llmcourse.model.config import PRESETS
from llmcourse_classroom.widgets.attention import AttentionMap
from llmcourse_labs.study import attention_maps
from llmcourse_labs.study import queries_and_keys as those_of_a_model
from tests.browser.hands import choose, enter, keys, later, press, stop_time
from tests.browser.kit import holds, look, numbers, per_cent, pictured, said, table, value
from tests.browser.registry import ATTENDED, attention_map, queries_and_keys

SHAPES = [(4, 2), (4, 4), (4, 1), (6, 3), (8, 2), (1, 1)]
"""Query heads and key heads."""
SETTINGS = ("mask", "window", "scaled")


def shape_of(made):
    return {
        "length": len(made.tokens),
        "heads": made.num_heads,
        "kvHeads": made.num_kv_heads,
        "size": made.head_size,
    }


def numbers_of(made):
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
    if kind == "causal":
        return causal_mask(length, length)
    return sliding_window_mask(length, length, window)


def by_the_package(made, layer, kind, window, scaled):
    queries, keys = numbers_of(made)
    q = queries[layer][None] * (1 if scaled else math.sqrt(made.head_size))
    return attention_weights(q, keys[layer][None], mask=mask_of(kind, len(made.tokens), window))[0]


def shares_of(arithmetic, made, choices):
    queries, keys = (x.flatten(1).tolist() for x in numbers_of(made))
    cases = [
        [queries[layer], keys[layer], shape_of(made), head, dict(zip(SETTINGS, rest, strict=True))]
        for layer, *rest in choices
        for head in range(made.num_heads)
    ]
    return torch.tensor(arithmetic(AttentionMap, "weights", cases), dtype=torch.float64)


@pytest.mark.parametrize(("heads", "kv_heads"), SHAPES)
def test_shares_are_those_of_the_package(arithmetic, heads, kv_heads):
    made = AttentionMap(ATTENDED, *queries_and_keys(heads=heads, kv_heads=kv_heads))
    kinds = ("causal", "window", "none")
    choices = list(itertools.product(range(2), kinds, (1, 3, 9), (True, False)))
    got = shares_of(arithmetic, made, choices)
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
    choices = [(layer, "causal", 1, True) for layer in range(2)]
    got = shares_of(arithmetic, made, choices).unflatten(0, (2, 4))
    expected = attention_maps(small, ids)[:, 0]
    assert expected[:, :, -1].max() > 0.4
    torch.testing.assert_close(got, expected.double(), rtol=0, atol=0.01)


def test_huge_scores_stay_finite(arithmetic):
    cases = [[[3000.0, 2999.0, -3000.0]], [[-1e6, -1e6]]]
    assert arithmetic(AttentionMap, "softmax", cases) == [
        pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0], rel=1e-12),
        [0.5, 0.5],
    ]


def test_groups_spreads_and_the_strongest(arithmetic):
    """A group is a run of neighbouring heads; nothing is not among the strongest."""
    cases = [[head, {"heads": 8, "kvHeads": 2}] for head in range(8)]
    assert arithmetic(AttentionMap, "groupOf", cases) == [0, 0, 0, 0, 1, 1, 1, 1]
    rows = [[1, 0, 0], [0.25] * 4, [0.5, 0, 0.5], [0.7, 0.2, 0.1]]
    entropy = -sum(p * math.log(p) for p in rows[-1])
    got = arithmetic(AttentionMap, "spread", [[row] for row in rows])
    assert got == pytest.approx([1, 4, 2, math.exp(entropy)], rel=1e-12)
    cases = [[[0.1, 0.6, 0, 0.3], 3], [[1, 0, 0], 3], [[0.5, 0.5], 1]]
    assert arithmetic(AttentionMap, "strongest", cases) == [[1, 3, 0], [0], [0]]


def test_habits_are_means_over_rows_from_2_on(arithmetic):
    shares = by_the_package(attention_map(), 1, "causal", 4, True)
    got = arithmetic(AttentionMap, "habits", [[head.tolist()] for head in shares])
    for head, habits in zip(shares, got, strict=True):
        parts = {"before": head.diagonal(-1)[1:], "first": head[2:, 0]}
        parts |= {"itself": head.diagonal()[2:]}
        assert habits == pytest.approx({k: p.mean().item() for k, p in parts.items()}, rel=1e-12)


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


def test_the_sentence_says_what_the_row_reads_and_whose_keys(show):
    page = show(attention_map(layer=2, head=3, row=5))
    row = by_the_package(attention_map(), 1, "causal", 4, True)[3, 5]
    best = row.argsort(descending=True)[:3].tolist()
    holds(said(page), "Layer 2, query head 3", "key/value head 1", "head 2.", "“␣on” (5) reads")
    for i in best:
        token = ATTENDED[i].replace(" ", "␣").replace("\n", "↵")
        holds(said(page), f" {per_cent(row[i].item(), 2)} from “{token}” ({i})")


def test_heads_are_chosen_by_press_and_key_and_the_layer_changes_all(show):
    page = show(attention_map())
    framed = page.locator(".am-now")
    press(page, "head 2", "query head 2", "key/value head 1", "head 3")
    pressed = [page.get_by_role("button", name=f"head {n}") for n in (0, 2)]
    assert [one.get_attribute("aria-pressed") for one in pressed] == ["false", "true"]
    holds(pictured(page), "Head 2 over all positions")
    assert framed.get_attribute("aria-label") == "key/value head 1"
    pressed[0].press("Enter")
    holds(said(page), "query head 0", "key/value head 0", "head 1")
    assert (framed.count(), framed.get_attribute("aria-label")) == (1, "key/value head 0")
    before = page.locator(".am-group svg").evaluate_all("all => all.map(one => one.innerHTML)")
    keys(page, "layer", "ArrowRight")
    after = page.locator(".am-group svg").evaluate_all("all => all.map(one => one.innerHTML)")
    assert len(before) == 4
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert said(page).startswith("Layer 2,")
    page = show(AttentionMap(["a", " b"], *queries_and_keys(layers=1, length=2)))
    assert not page.get_by_label("layer", exact=True).is_visible()
    holds(said(page), "Layer 1, query head 0", "“␣b” (1) reads")


def test_a_button_walks_through_the_heads_of_one_group(show):
    page = show(AttentionMap(ATTENDED, *queries_and_keys(heads=6, kv_heads=2), head=4))
    seen = []
    for _ in range(4):
        press(page, "Next head with the same keys")
        seen.append(page.locator("button[aria-pressed=true]").text_content())
    assert seen == ["head 5", "head 3", "head 4", "head 5"]
    page = show(AttentionMap(ATTENDED, *queries_and_keys(heads=2, kv_heads=2)))
    assert page.get_by_role("button", name="Next head with the same keys").is_disabled()
    holds(said(page), "no other")


def test_rows_are_chosen_by_arrow_by_field_and_by_press(show):
    page = show(attention_map(row=4))
    keys(page, "position that reads", "ArrowRight", "“␣on” (5) reads")
    enter(page, "position that reads", "0", "“<|end|>” (0) reads 100 % from “<|end|>” (0)")
    for position, token in enumerate(("␣cat", "␣sat"), start=3):
        row = page.locator("svg text", has_text=f"{position} {token}").last
        row.scroll_into_view_if_needed()
        cell = row.bounding_box()
        page.mouse.click(cell["x"] + 150, cell["y"] + cell["height"] / 2)
        assert value(page, "position that reads") == str(position)
        holds(said(page), f"“{token}” ({position}) reads")
        look(page, theme="light", width=760, text=200)  # a press is where the larger picture is


def test_without_a_mask_the_future_is_read_and_the_sentence_says_how_much(show):
    page = show(attention_map(row=3, head=2))
    choose(page, "mask", "none")
    row = by_the_package(attention_map(), 0, "none", 4, True)[2, 3]
    assert row[3] > 0.02  # its own share is not of the future
    holds(said(page), f"Without a mask {per_cent(row[4:].sum().item(), 2)}")
    assert page.locator("svg [fill^='url(']").count() == 1  # only in the legend
    choose(page, "mask", "causal")
    hatched = len(ATTENDED) * (len(ATTENDED) - 1) // 2
    assert page.locator("svg [fill^='url(']").count() == hatched + 1


def test_the_window_has_a_control_only_where_it_counts(show):
    page = show(attention_map(row=8, window=3))
    width = page.get_by_label("window: positions seen, number")
    assert not width.is_visible()
    choose(page, "mask", "window")
    assert width.is_visible()
    holds(said(page), "shuts out positions 0 to 5")
    enter(page, "window: positions seen", "9", "shuts nothing out")
    enter(page, "window: positions seen", "1", "reads 100 % from “.” (8)")


def test_without_the_scale_the_softmax_is_sharper(show):
    def positions(scaled):
        row = by_the_package(attention_map(), 0, "causal", 4, scaled)[0, 8]
        return f"{row.log().mul(row).sum().neg().exp().item():.2g}"

    wide, sharp = positions(scaled=True), positions(scaled=False)
    assert float(sharp) < float(wide)
    page = show(attention_map(row=8))
    holds(said(page), f"over {wide} positions", "division by √6", f"over {sharp} positions")
    keys(page, "divide scores by √K", "Space")
    holds(said(page), "Not divided by √6 = 2.45", f"over {sharp} positions in place of {wide}")
    page.locator(".lc-table > summary").click()
    assert page.locator("th[scope=col]").all_text_contents()[3] == "score"


def test_the_table_holds_scores_and_shares_of_the_row(show):
    made = attention_map(layer=2, head=2, row=4)
    rows = table(show(made))
    queries, keys = numbers_of(made)
    dots = keys[1, :, 1] @ queries[1, 4, 2]
    shares = by_the_package(made, 1, "causal", 4, True)[2, 4]
    numbers = [[float(cell.replace(",", "")) for cell in (row[2], row[4])] for row in rows]
    assert [row[0] for row in rows] == [str(i) for i in range(len(ATTENDED))]
    assert [row[3] for row in rows[5:]] == ["masked"] * 4
    expected = torch.stack((dots, shares), dim=1)
    torch.testing.assert_close(torch.tensor(numbers).double(), expected, rtol=1e-3, atol=1e-6)


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


def along_the_way(page, thing):
    of_them = page.locator(f".am-{thing}").evaluate_all(
        "all => all.map((one) => one.transform.baseVal.consolidate().matrix).map((m) => [m.e, m.f])"
    )
    return torch.tensor(of_them)


def heights(page):
    bars = page.locator("[data-key^='bar ']")
    return [float(h) for h in bars.evaluate_all("all => all.map((b) => b.getAttribute('height'))")]


def test_a_row_asks_step_by_step_and_queries_and_values_are_seen_to_go(show):
    """Mutants: nothing travels; queries stay at the keys; shares before the softmax."""
    page = show(attention_map(row=5), as_is=True)
    stop_time(page)
    press(page, "Reset", "Position “␣on” (5) has a query", "6 keys")
    later(page, 500)
    assert heights(page) == [0] * 6
    press(page, "Step", "divided by √6, is the score")
    later(page, 600)
    queries = along_the_way(page, "query")
    assert queries.shape == (6, 2)
    row, keys = (page.locator(f"[data-key='{key}']") for key in ("row", "pair 0"))
    level = float(row.get_attribute("y")) + 13
    head = numbers(keys.get_attribute("transform").replace("(", " ").replace(")", " "))[1]
    assert (queries[:, 1] <= level + 1).all()
    assert (queries[:, 1] > head).all()
    assert queries[:, 1].max() < level  # up the columns by now
    assert heights(page) == [0] * 6  # a score is there when its query has come
    later(page, 900)
    assert not len(along_the_way(page, "query"))
    assert min(heights(page)) > 0
    press(page, "Step", "made shares of the scores", "together 100 %")
    later(page, 1_500)
    row = by_the_package(attention_map(), 0, "causal", 4, True)[0, 5, :6]
    shares = torch.tensor(heights(page))
    torch.testing.assert_close(shares / shares.sum(), row.float(), atol=1e-3, rtol=0)
    press(page, "Step", "“␣on” (5) reads")
    later(page, 700)
    values = along_the_way(page, "value")
    assert values.shape == (6, 2)
    assert ((values[:, 1] > head) & (values[:, 1] <= level + 1)).all()
    later(page, 900)
    assert not len(along_the_way(page, "value"))


def test_with_reduced_motion_a_row_has_asked_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(attention_map(row=5, shown="query"), as_is=True)
    stop_time(page)
    press(page, "Step", "is the score")
    assert not len(along_the_way(page, "query"))
    assert min(heights(page)) > 0
    press(page, "To the end", "“␣on” (5) reads")
    assert not len(along_the_way(page, "value"))
