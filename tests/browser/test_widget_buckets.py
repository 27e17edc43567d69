"""The widget of chapter 23: its times are the package's, and every control obeys."""

import itertools

import pytest
import torch
from torch import nn

from llmcourse.model import PRESETS, Transformer, stories
from llmcourse.parallel.data_parallel import cut_buckets
from llmcourse_classroom.widgets.buckets import CUT, LABELS, BucketTimeline
from llmcourse_labs.scale.arithmetic import overlap
from llmcourse_labs.scale.arithmetic.overlap import bucket_times, exposed_s, full_buckets
from llmcourse_labs.scale.cost import num_parameters
from tests.browser.hands import choose, enter, keys
from tests.browser.kit import holds, noted, pictured, said, table, value
from tests.browser.twins import each

TENSORS = {name: overlap.gradient_tensors(PRESETS[name](), cut=CUT[name]) for name in LABELS}
BUCKET_BYTES = (1, 1_000, 71_680, 71_999, 72_000, 200_000, 25_000_000, 400_000_000, 5_000_000_000)


# --- the Python side: its gradients are the model's, and its times those of a link


def test_gradients_are_those_of_the_model_in_the_order_of_buckets():
    model = Transformer(stories(), generator=torch.Generator().manual_seed(0))
    assert [size for size, _ in TENSORS["stories"]] == [p.nbytes for p in model.parameters()][::-1]
    for bucket_bytes in BUCKET_BYTES:
        buckets = cut_buckets(list(model.parameters())[::-1], bucket_bytes)
        assert [size for size, _ in full_buckets(TENSORS["stories"], bucket_bytes)] == [
            sum(p.nbytes for p in bucket) for bucket in buckets
        ]


def test_cut_gradients_add_up_to_the_model():
    config = PRESETS["llama3_8b"]()
    norms = (2 * config.num_layers + 1) * config.width
    cut = 4 * ((num_parameters(config) - norms) // 8 + norms)
    assert sum(size for size, _ in TENSORS["llama3_8b"]) == cut


@pytest.mark.parametrize("preset", LABELS)
def test_shares_of_backward_never_fall_and_end_at_one(preset):
    shares = [share for _, share in TENSORS[preset]]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.25
    assert shares[-1] == 1


def test_hooks_fire_nearly_in_that_order():
    """The order that the widget takes for granted is that of a real backward pass, by layers."""
    model = Transformer(stories(), generator=torch.Generator().manual_seed(0))
    place = {id(p): i for i, p in enumerate(list(model.parameters())[::-1])}
    fired = []
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: fired.append(place[id(p)]))
    ids = torch.zeros(1, 8, dtype=torch.int64)
    nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    assert fired[-1] == 37
    assert [(i - 1) // 9 for i in fired[1:-1]] == sorted((i - 1) // 9 for i in fired[1:-1])


def test_times_by_hand():
    """Two ranks: 2 messages, each 1 s and half of the bytes at 10 bytes a second."""
    link = {"num_ranks": 2, "latency_s": 1, "bytes_per_s": 10}
    buckets = [(20, 0.1), (40, 0.2), (10, 1.0)]
    times = bucket_times(buckets, backward_s=10, **link)
    assert [tuple(t) for t in times] == [(1, 1, 5), (2, 5, 11), (10, 11, 14)]
    assert exposed_s(times, backward_s=10) == 4
    late = bucket_times(buckets, backward_s=10, **link, overlap=False)
    assert [tuple(t) for t in late] == [(10, 10, 14), (10, 14, 20), (10, 20, 23)]
    assert exposed_s(late, backward_s=10) == 13
    alone = bucket_times(buckets, backward_s=10, **(link | {"num_ranks": 1}))
    assert exposed_s(alone, backward_s=10) == 0


def test_buckets_are_the_packages(arithmetic):
    given = [[TENSORS[name], size] for name, size in itertools.product(TENSORS, BUCKET_BYTES)]
    for (tensors, size), buckets in each(arithmetic, BucketTimeline, "fullBuckets", given):
        found = [(num_bytes, share) for num_bytes, share, _ in buckets]
        assert found == full_buckets(tensors, size)
        assert sum(count for *_, count in buckets) == len(tensors)


def test_times_and_exposed_time_are_the_packages(arithmetic):
    sizes = (1_000, 200_000, 25_000_000, 5_000_000_000)
    links = ((0.06, 2, 1e-3, 40e6), (0.36, 64, 1e-5, 50e9), (10.0, 16_384, 1e-7, 1e12))
    given = [
        [full_buckets(TENSORS[name], size), *link, overlap]
        for name, size, link, overlap in itertools.product(TENSORS, sizes, links, (True, False))
    ]
    got = arithmetic(BucketTimeline, "bucketTimes", given)
    cases = [[times, case[1]] for times, case in zip(got, given, strict=True)]
    waits = arithmetic(BucketTimeline, "exposed", cases)
    names = ("backward_s", "num_ranks", "latency_s", "bytes_per_s", "overlap")
    for (buckets, *rest), times, wait in zip(given, got, waits, strict=True):
        expected = bucket_times(buckets, **dict(zip(names, rest, strict=True)))
        for got_one, right in zip(times, expected, strict=True):
            assert got_one == pytest.approx(list(right), rel=1e-12)
        # A difference of two times that may be nearly equal.
        assert wait == pytest.approx(exposed_s(expected, backward_s=rest[0]), rel=1e-9, abs=1e-12)
    assert min(waits) < 0.02 < max(waits)


def test_the_curve_is_made_of_exposed_times(arithmetic):
    link = {"num_ranks": 64, "latency_s": 1e-5, "bytes_per_s": 50e9}
    given = [TENSORS["llama3_8b"], 1e3, 4e9, 25, 0.36, 64, 1e-5, 50e9, True]
    (points,) = arithmetic(BucketTimeline, "sweep", [given])
    for size, wait in points:
        # Sizes between two whole numbers of bytes hold what the lower one holds.
        times = bucket_times(full_buckets(TENSORS["llama3_8b"], int(size)), backward_s=0.36, **link)
        assert wait == pytest.approx(exposed_s(times, backward_s=0.36), rel=1e-9)
    waits = [wait for _, wait in points]
    assert 0 < waits.index(min(waits)) < len(waits) - 1  # neither the smallest nor the largest


def times_of_stories(**link):
    buckets = full_buckets(TENSORS["stories"], 100_000)
    return bucket_times(buckets, backward_s=0.06, num_ranks=2, **link)


def test_the_sentence_says_what_is_exposed_and_follows_the_controls(show):
    page = show(BucketTimeline())
    times = times_of_stories(latency_s=1e-3, bytes_per_s=40e6)
    wait = f"{1e3 * exposed_s(times, backward_s=0.06):.1f} ms"
    holds(said(page), "17 buckets", "69.4 ms", "49 % is latency", f"Exposed: {wait}")
    holds(pictured(page), f"exposed {wait}")
    rows = table(page, "Every bucket")
    assert len(rows) == len(times) == 17
    assert [*rows[-1][:4], rows[-1][-1]] == ["bucket 16", "1", "246 kB", "60 ms", "no"]
    assert rows[0][-1] == "yes"
    keys(page, "send during backward", "Space", "100 % of it", "Nothing leaves")
    page.get_by_label("send during backward").check()
    assert "Nothing leaves" not in said(page)
    enter(page, "bucket, MB", "0.001", "38 buckets", "The link is behind")
    enter(page, "bucket, MB", "2", "A single bucket")
    best = page.get_by_role("button", name="Take the best size")
    best.press("Enter")
    holds(said(page), "No size does much better")
    size = float(value(page, "bucket, MB"))
    assert 0.1 < size < 0.3
    enter(page, "latency of a message, µs", "5000", "With ")
    best.press("Enter")
    assert float(value(page, "bucket, MB")) > size
    before = float(value(page, "backward, ms"))
    keys(page, "backward, ms", "ArrowRight")
    assert float(value(page, "backward, ms")) > before


def test_a_preset_brings_its_numbers_along(show):
    page = show(BucketTimeline())
    choose(page, "gradients of", "llama3_8b")
    assert (value(page, "ranks"), value(page, "bucket, MB")) == ("64", "25")
    holds(said(page), "131 buckets")
    assert noted(page) == ""
    rows = table(page, "Every bucket")
    assert (len(rows), rows[50][0]) == (61, "… 71 more")
    enter(page, "ranks", "2048", "97 % is latency")


def test_the_link_keeps_up_when_it_is_quick(show):
    show(BucketTimeline(gigabytes_per_s=1, latency_us=10), says=["The link keeps up"])
