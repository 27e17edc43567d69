"""The widget of chapter 38: ranks stand where the package puts them, and every control obeys."""

import itertools
import math

import pytest

from llmcourse.model import PRESETS
from llmcourse.parallel.collectives import chunk_sizes
from llmcourse.parallel.world.rank import place_of
from llmcourse_classroom.widgets.mesh import LAYOUTS, MeshGrid
from llmcourse_labs.scale import cost
from tests.browser.hands import by_key, choose, enter, keys, later, place, press, stop_time
from tests.browser.kit import holds, pictured, said, table, value
from tests.browser.twins import agrees, each

AXES = ("dp", "pp", "cp", "tp")
WORDS = ("ranks", "server", "heads", "layers", "sequence", "batch", "bubble")
MESHES = [
    dict(zip(AXES, sizes, strict=True))
    for sizes in [
        (1, 1, 1, 1),
        (2, 3, 4, 5),
        (1, 7, 1, 2),
        (3, 1, 2, 1),
        (5, 2, 1, 3),
        (2, 2, 2, 2),
    ]
]


def shown_demands(page):
    return page.locator(".mg-demands li").all_text_contents()


def about(page):
    return page.locator(".mg-about").text_content()


def test_every_rank_stands_where_the_package_puts_it(arithmetic):
    given = [[rank, mesh] for mesh in MESHES for rank in range(math.prod(mesh.values()))]
    given += [[rank, LAYOUTS["llama3_long"][1]] for rank in (0, 1, 127, 2_048, 9_000, 16_383)]
    places = [place_of(rank, {axis: mesh[axis] for axis in AXES}) for rank, mesh in given]
    assert arithmetic(MeshGrid, "placeOf", given) == places


def test_a_group_is_those_that_differ_on_one_axis_alone(arithmetic):
    def group_of(rank, mesh, axis):
        mine, ranks = place_of(rank, mesh), range(math.prod(mesh.values()))
        return [r for r in ranks if place_of(r, mesh) | {axis: mine[axis]} == mine]

    given = [
        [rank, mesh, axis]
        for mesh in MESHES
        for rank in range(math.prod(mesh.values()))
        for axis in AXES
    ]
    agrees(arithmetic, MeshGrid, "groupOf", given, group_of)


def test_layers_are_cut_as_chunks(arithmetic):
    cases = [(layers, pp) for layers in (1, 4, 32, 80, 126) for pp in (1, 2, 3, 16, 126, 128)]
    given = [[stage, layers, pp] for layers, pp in cases for stage in range(pp)]
    found = iter(arithmetic(MeshGrid, "layersOf", given))
    for layers, pp in cases:
        cuts = [0, *itertools.accumulate(chunk_sizes(layers, pp))]
        assert [next(found) for _ in range(pp)] == [list(pair) for pair in itertools.pairwise(cuts)]


def dealt(sizes, job):
    """Deal the sequences of a batch out one micro-batch at a time; None if that does not work."""
    tokens, hands = job["batch_tokens"], [0] * sizes["dp"]
    while tokens:
        for replica in range(sizes["dp"]):
            tokens -= job["micro_batch"] * job["sequence_length"]
            hands[replica] += 1
            if tokens < 0:
                return None
    return hands[0] if len(set(hands)) == 1 else None


def waits(pp, micro_batches):
    ends = [[0] * micro_batches for _ in range(pp)]
    for stage, k in itertools.product(range(pp), range(micro_batches)):
        before = ends[stage][k - 1] if k else 0
        ends[stage][k] = max(before, ends[stage - 1][k] if stage else 0) + 1
    return (ends[-1][-1] - micro_batches) / micro_batches


def demanded(sizes, model, job):
    """What is not met, found by dealing, cutting and counting in place of formulas."""
    pp, tp = sizes["pp"], sizes["tp"]
    micro_batches, server = dealt(sizes, job), job["gpus_per_server"]
    ranks = range(server * tp)  # whole servers and whole groups
    crossing = any(
        len({r // server for r in ranks[g : g + tp]}) > 1 for g in range(0, len(ranks), tp)
    )
    pieces = chunk_sizes(job["sequence_length"], 2 * sizes["cp"])
    unmet = {
        "ranks": sum(1 for _ in itertools.product(*(range(sizes[axis]) for axis in AXES)))
        != job["gpus"],
        "server": crossing,
        "heads": len(set(chunk_sizes(model["kv_heads"], tp))) > 1,
        "layers": 0 in chunk_sizes(model["layers"], pp),
        "sequence": len(set(pieces)) > 1,
        "batch": micro_batches is None,
        "bubble": micro_batches is not None and waits(pp, micro_batches) > 1,
    }
    return [word for word in WORDS if unmet[word]]


def cases():
    model = {"layers": 6, "kv_heads": 4}
    batches = ((64, 8), (256, 8), (96, 12), (80, 10))
    grid = itertools.product((1, 2, 3), (1, 3, 7), (1, 2, 3), (1, 2, 3, 8), batches, (1, 3))
    for dp, pp, cp, tp, (tokens, length), micro in grid:
        sizes = {"dp": dp, "pp": pp, "cp": cp, "tp": tp}
        job = {"gpus": 12, "gpus_per_server": 8, "batch_tokens": tokens}
        yield [sizes, model, job | {"sequence_length": length, "micro_batch": micro}]
    job = {"gpus": 12, "gpus_per_server": 8, "batch_tokens": 100}  # not a whole number of sequences
    yield [MESHES[0], model, job | {"sequence_length": 8, "micro_batch": 1}]


def test_unmet_demands_are_those_of_a_count(arithmetic):
    found = agrees(arithmetic, MeshGrid, "unmet", cases(), demanded)
    assert {word for words in found for word in words} == set(WORDS)
    assert [] in found


def test_the_bubble_is_the_share_of_waiting(arithmetic):
    given = [[sizes, job] for sizes, _, job in cases()]
    for (sizes, job), shared in each(arithmetic, MeshGrid, "sharedOut", given):
        micro_batches = dealt(sizes, job)
        if micro_batches is None:
            assert shared["bubble"] is None
        else:
            assert shared["microBatches"] == micro_batches
            assert shared["bubble"] == pytest.approx(waits(sizes["pp"], micro_batches), rel=1e-12)
        assert shared["sequences"] * job["sequence_length"] == pytest.approx(job["batch_tokens"])


PUBLISHED = {
    # table 4 of the Llama 3 paper: GPUs, sequences per replica
    "llama3_8192": (8_192, 32),
    "llama3_16384": (16_384, 16),
    "llama3_long": (16_384, 16),
    # 512 replicas and 4 M tokens: one sequence each
    "popular": (16_384, 1),
}


def test_the_presets_are_as_published(arithmetic):
    states = {name: state for name, (_, state) in LAYOUTS.items()}
    found = arithmetic(MeshGrid, "sharedOut", [[states[name], states[name]] for name in PUBLISHED])
    for shared, (name, (gpus, sequences)) in zip(found, PUBLISHED.items(), strict=True):
        assert math.prod(states[name][axis] for axis in AXES) == states[name]["gpus"] == gpus
        assert shared["perReplica"] == sequences
    models = MeshGrid().models
    given = [[state, models[state["model"]], state] for state in states.values()]
    unmet = dict(zip(states, arithmetic(MeshGrid, "unmet", given), strict=True))
    assert unmet == {
        "llama3_16384": [],
        "llama3_8192": [],
        "llama3_long": [],
        "popular": ["bubble"],
        "racks": ["ranks", "heads", "batch"],
        "small": [],
    }


def test_the_start_is_the_405b(show):
    page = show(MeshGrid(rank=1_234))
    holds(said(page), "128 replicas", "16 stages", "8 slices", "= 16,384 ranks")
    holds(said(page), "16 sequences for each replica", "All demands are met")
    assert shown_demands(page) == []
    holds(pictured(page), "replica 9 of 128", "ranks 1,152 to 1,279", "it sends nothing yet")
    holds(pictured(page), "rank 1,234, stage 10, part 0, slice 2", "0 tiles without work")
    holds(about(page), "Rank 1,234 is in replica 9, stage 10", "slice 2 of layers 80 to 87 of 126")
    holds(about(page), "6.3 GB", "TP, 8 ranks", "CP: alone", "82, 210, 338, … 16,338")
    press(page, "Step", "Along TP")
    assert page.locator(".lc-stage svg *").count() < 1_500  # it is light


def test_a_preset_may_wait_and_more_tokens_help(show):
    page = show(MeshGrid())
    choose(page, "start from", "popular", "1 sequence for each replica", "Not met: bubble.")
    assert value(page, "DP: replicas") == "512"
    holds(page.locator(".lc-stages").text_content(), "waits for 75 % of the step")
    holds(pictured(page, 1), "works for 1 of 4 slots")
    enter(page, "tokens in a global batch", "16777216", "All demands are met")


def test_racks_of_72_leave_gpus_without_work(show):
    page = show(MeshGrid("racks"))
    ranks, heads, batch = shown_demands(page)
    holds(ranks, "ranks: 227 × 1 × 1 × 72 = 16,344 ranks for 16,384 GPUs", "40 GPUs have no work")
    holds(heads, "heads: 8 key/value heads for TP 72", "impossible without copies")
    holds(batch, "batch: 16,777,216 tokens are 2,048 sequences for 227 replicas", "impossible")
    holds(pictured(page, 1), "cannot be shared out")
    assert page.locator("path[fill^='url']").count() == 1  # the hatched ones
    enter(page, "TP: slices of a layer", "8")
    by_key(page, "Fill the GPUs with replicas", values={"DP: replicas": "2048"})
    assert page.locator("path[fill^='url']").count() == 0
    holds(said(page), "1 sequence for each replica", "All demands")
    holds(about(page), "about 100 GB, more than the 80")


UNMET = [
    ("DP: replicas", 256, 128, "ranks", "32,768 ranks for 16,384 GPUs: too many"),
    ("TP: slices of a layer", 3, 8, "server", "groups of 3 in servers of 8"),
    ("TP: slices of a layer", 16, 8, "heads", "8 key/value heads for TP 16"),
    ("PP: stages", 127, 16, "layers", "126 layers for 127 stages: too few"),
    ("CP: parts of a sequence", 3, 1, "sequence", "8,192 tokens into 6 chunks"),
    ("tokens in a global batch", 524_288, 2**24, "batch", "64 sequences for 128 replicas: too few"),
    ("tokens in a global batch", 4_000_000, 2**24, "batch", "488.3 sequences for 128 replicas"),
    ("tokens in a global batch", 2**23, 2**24, "bubble", "bubble (16 − 1)/8 = 188 %"),
    ("sequences in a micro-batch", 3, 1, "batch", "micro-batches of 3"),
    ("GPUs", 20, 16_384, "ranks", "16,384 ranks for 20 GPUs: too many"),
]


def test_what_is_not_met_is_said_and_a_slider_moves_in_powers_of_two(show):
    page = show(MeshGrid())
    for field, number, right, word, text in UNMET:
        enter(page, field, str(number))
        (found,) = [demand for demand in shown_demands(page) if demand.startswith(f"{word}: ")]
        holds(found, text)
        holds(said(page), word)
        rows = {row[0]: row[3] for row in table(page, "What a layout must meet")}
        assert (rows[word], list(rows)) == ("no", list(WORDS))
        enter(page, field, str(right))
        assert shown_demands(page) == []
    keys(page, "PP: stages", "ArrowRight", values={"PP: stages": "32"})
    keys(page, "PP: stages", "ArrowLeft ArrowLeft", values={"PP: stages": "8"})
    for field, high in (("GPUs", 16_384), ("DP: replicas", 16_384), ("TP: slices of a layer", 128)):
        keys(page, field, "End", values={field: str(high)})
        keys(page, field, "Home", values={field: "1"})


def test_another_model_has_other_layers(show):
    page = show(MeshGrid(pp=64, dp=32))
    assert shown_demands(page) == []
    choose(page, "model", "llama3_8b")
    (unmet,) = shown_demands(page)
    holds(unmet, "layers: 32 layers for 64 stages")
    enter(page, "rank", "16383")
    holds(about(page), "slice 7 of no layer of 32")


def spots(page, kind):
    return page.locator(f".lc-stage svg .{kind}").evaluate_all(
        """all => all.map((one) => {
          const [own, all] = [one, one.ownerSVGElement].map((it) => it.getBoundingClientRect());
          return [one.dataset.key, own.x + own.width / 2 - all.x, own.y + own.height / 2 - all.y];
        })"""
    )


def test_along_each_axis_it_sends_to_its_group_and_in_a_pipeline_to_its_neighbours(show):
    """Mutants: a pipeline sends to all stages; the servers of a group are not counted."""
    page = show(MeshGrid(rank=1_234))
    press(
        page, "Step", "Along TP rank 1,234", "to 7 ranks in its own server", "1,232, 1,233, 1,235"
    )
    press(page, "Step", "Along PP rank 1,234", "to 2 ranks on 2 other servers, 1,226, 1,242")
    press(page, "Step", "Along DP rank 1,234", "to 127 ranks on 127 other servers, 82, 210, 338")
    assert len(spots(page, "mg-sent")) == 7 + 2 + 127
    press(page, "Step")
    assert "Along" not in said(page)
    choose(page, "it talks along", "cp", "Along CP rank 1,234 is alone")
    page = show(MeshGrid("popular", rank=2))
    choose(page, "it talks along", "dp", "to 511 ranks")
    assert len([key for key, _, _ in spots(page, "mg-sent") if (key or "").startswith("dp")]) == 256


def test_what_is_sent_flies_from_the_rank_to_its_group(show):
    page = show(MeshGrid(rank=1_234), as_is=True)
    stop_time(page)
    start = place(page, "rank")
    assert place(page, "dp 0") == pytest.approx(start, abs=1)
    press(page, "Step", times=2)
    later(page, 1_500)
    press(page, "Step")
    later(page, 200)
    near = place(page, "dp 0")
    later(page, 1_500)
    end = place(page, "dp 0")
    assert end[0] - start[0] > 100
    assert start[0] + 10 < near[0] < end[0] - 10
    assert place(page, "pp 0") == pytest.approx(start, abs=1)  # what was sent before is home again
    # In the first replica's tile: stage 10 of 16, slice 2 of 8.
    tile = page.locator("[data-key='tile']").bounding_box()
    assert end[1] == pytest.approx(tile["y"] + tile["height"] * 0.62, abs=3)


def test_with_reduced_motion_it_is_there_at_once(show, page):
    page.emulate_media(reduced_motion="reduce")
    show(MeshGrid(rank=1_234), as_is=True)
    stop_time(page)
    start = place(page, "tp 0")
    press(page, "Step")
    there = place(page, "tp 0")
    assert there[0] < start[0] - 20
    later(page, 1_500)
    assert place(page, "tp 0") == there


def test_a_press_on_a_cell_or_a_tile_chooses_a_rank(show):
    page = show(MeshGrid("small"))
    picture = page.locator(".lc-stage svg").first
    assert {key for key, _, _ in spots(page, "mg-sent")} == {f"{axis} 0" for axis in AXES}
    choose(page, "it talks along", "cp")
    (x, y) = next((x, y) for key, x, y in spots(page, "mg-sent") if key == "cp 0")
    picture.click(position={"x": x, "y": y})
    assert value(page, "rank") == "2"
    choose(page, "it talks along", "pp")
    (x, y) = next((x, y) for key, x, y in spots(page, "mg-sent") if key == "pp 0")
    picture.click(position={"x": x, "y": y})
    assert value(page, "rank") == "6"
    holds(pictured(page), "chosen: rank 6, stage 1, part 1, slice 0")
    holds(about(page), "Rank 6 is in replica 0, stage 1", "slice 0 of layers 16 to 31 of 32")
    holds(about(page), "for part 1")
    keys(page, "rank", "ArrowRight", values={"rank": "7"})
    rows = table(page, "The chosen rank")
    assert rows[0] == ["DP (replica)", "2", "0", "8", "7, 15"]
    assert rows[3] == ["TP (slice)", "2", "1", "1", "6, 7"]
    choose(page, "it talks along", "dp")
    (x, y) = next((x, y) for key, x, y in spots(page, "mg-sent") if key == "dp 0")
    picture.click(position={"x": x, "y": y})
    assert value(page, "rank") == "15"
    enter(page, "rank", "16", note=["16 is not possible", "from 0 to 15", "15 is used"])
    enter(page, "DP: replicas", "0", note=["1 is used"])
    assert value(page, "rank") == "7"  # one replica has ranks 0 to 7
    enter(page, "DP: replicas", "1.6", note=["2 is used"])


def test_every_cell_and_every_tile_is_drawn_once(show):
    """Pieces of the paths: the cells of a replica, its tiles, and the groups of the rank."""
    pieces = "all => all.map((one) => one.getAttribute('d').split('M').length - 1)"
    page = show(MeshGrid("racks", rank=3))
    light, dark, working, idle, *groups = (
        page.locator(".lc-stage svg").first.locator("path:not(defs path)").evaluate_all(pieces)
    )
    assert ((light + dark, working, idle), groups) == ((72, 227, 1), [72, 1, 1, 227])
    assert page.locator(".lc-stage svg *").count() < 1_500  # it is light


def test_the_models_are_the_packages():
    for name, model in MeshGrid().models.items():
        config = PRESETS[name]()
        assert (model["layers"], model["kv_heads"]) == (config.num_layers, config.num_kv_heads)
        assert model["parameters"] == cost.num_parameters(config)
