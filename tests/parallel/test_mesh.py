"""Every mesh takes the steps of one process: losses, norms, gradients, weights and moments."""

from dataclasses import replace

import numpy as np
import programs_mesh as programs
import pytest
import torch
from parallel_kit import error

from llmcourse import train
from llmcourse.model import tiny, tiny_moe
from llmcourse.parallel import mesh
from llmcourse.train.layouts import OnMesh

DENSE = replace(tiny(), num_layers=4)
UNTIED = replace(DENSE, tied_head=False, qk_norm=True)
MIXTURE = replace(tiny_moe(), num_layers=2, balance_weight=0.0)

MESHES = {
    "dp=2": {},
    "dp=2,tp=2": {"sequence_parallel": True},
    "dp=2,pp=2": {"micro_batches": 2, "parallel": "zero1"},
    "dp=2,cp=2": {},
    "cp=2,tp=2": {"sequence_parallel": True},
    "pp=2,cp=2": {"micro_batches": 4, "pipeline": "zero_bubble"},
    "pp=2,tp=2": {"micro_batches": 4, "pipeline": "interleaved", "chunks": 2},
    "pp=4": {"micro_batches": 4, "pipeline": "gpipe"},
    "tp=4": {"replicate_kv": True, "sequence_parallel": True},
    "dp=2,pp=2,tp=2": {"micro_batches": 2, "parallel": "zero1"},
    "pp=2,cp=2,tp=2": {"micro_batches": 2, "sequence_parallel": True},
    "dp=2,pp=2,cp=2": {"micro_batches": 2},
}
WITH_EXPERTS = {
    "ep=2": {},
    "dp=2,ep=2": {"parallel": "zero1"},
    "pp=2,ep=2": {"micro_batches": 2},
    "cp=2,ep=2": {},
}
CASES = [
    *((text, ("untied", "tied")[i % 2]) for i, text in enumerate(MESHES)),
    *((text, "mixture") for text in WITH_EXPERTS),
]
"""Every axis has a tied and an untied model, and every model every axis."""
SHAPES = {"tied": DENSE, "untied": UNTIED, "mixture": MIXTURE}


def config_of(text, model):
    settings = {"steps": 3, "warmup_steps": 0, "clip_norm": 0.5, "mesh": text}
    settings |= (MESHES | WITH_EXPERTS).get(text, {})
    return train.PRESETS["tiny"]().replace(model=SHAPES[model], **settings)


def test_a_mesh_is_read_from_text():
    assert mesh.parse("dp=2, tp=4,pp=1") == {"dp": 2, "tp": 4, "pp": 1}
    split = mesh.Split(**mesh.parse("tp=2,dp=3"))
    assert list(split.sizes.items()) == [("dp", 3), ("pp", 1), ("cp", 1), ("ep", 1), ("tp", 2)]
    assert split.num_ranks == 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("mesh")
    train.prepare(config_of("", "tied"), place / "data")
    return place


@pytest.fixture(scope="module")
def alone(folder):
    found = {}

    def run(model, dtype=torch.float64):
        if (model, dtype) not in found:
            found[model, dtype] = programs.alone(config_of("", model), folder, dtype)
        return found[model, dtype]

    return run


def on_mesh(pools, folder, config, dtype=torch.float64, fault=None):
    return pools(config.layout.num_ranks).run(programs.on_mesh, config, folder, dtype, fault)


def largest_difference(found, expected):
    assert found.keys() == expected.keys()
    return max(error(found[name], x) for name, x in expected.items())


def relative(found, expected):
    return np.abs(np.subtract(found, expected) / np.asarray(expected)).max()


def assert_equal_steps(found, expected, *, gradients, weights):
    assert relative(found.losses, expected.losses) < gradients
    assert relative(found.norms, expected.norms) < gradients
    if found.gradients:
        assert largest_difference(found.gradients, expected.gradients) < gradients
    assert largest_difference(found.weights, expected.weights) < weights


@pytest.mark.parametrize(("text", "model"), CASES)
def test_a_mesh_takes_the_steps_of_one_process(text, model, pools, folder, alone):
    """Float64: rounding of a sum over a few thousand terms, through a model of 4 layers."""
    config = config_of(text, model)
    expected = alone(model)
    assert expected.norms[0] > config.clip_norm  # so that clipping has something to do
    results = on_mesh(pools, folder, config)
    for found in results:
        assert_equal_steps(found, expected, gradients=1e-13, weights=1e-10)
        assert found.losses == results[0].losses
    for number, state in expected.moments.items():
        mine = results[0].moments[number]
        assert mine["step"] == state["step"] == config.steps
        moments = {key: x for key, x in state.items() if key != "step"}
        assert largest_difference({k: mine[k] for k in moments}, moments) < 1e-9


@pytest.mark.parametrize("text", ["dp=2,pp=2,tp=2", "cp=2,tp=2"])
def test_in_float32_too(text, pools, folder, alone):
    expected = alone("untied", torch.float32)
    found = on_mesh(pools, folder, config_of(text, "untied"), torch.float32)[0]
    # 6e-8 a rounding, some hundred of them; AdamW's first steps divide by tiny roots.
    assert relative(found.losses, expected.losses) < 5e-6
    if found.gradients:
        assert largest_difference(found.gradients, expected.gradients) < 2e-5
    assert largest_difference(found.weights, expected.weights) < 3e-3


def test_the_model_learns_in_these_steps(alone):
    """Or else equal would say little."""
    for model in SHAPES:
        first, *_, last = alone(model).losses
        assert last < first - 0.01


def skip_sync(axis):
    def fault(layout: OnMesh) -> None:
        real = layout.model.sync
        layout.model.sync = lambda axes: real([name for name in axes if name != axis])

    return fault


def forget_copies(layout: OnMesh) -> None:
    """A fault: the norm counts what several ranks hold several times."""
    layout.model.owned_parameters = layout.model.parameters


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("dp=2,cp=2", skip_sync("dp")),
        ("dp=2,cp=2", skip_sync("cp")),
        ("dp=2,tp=2", forget_copies),
        ("pp=2,ep=2", skip_sync("ep")),
    ],
    ids=["dp not summed", "cp not summed", "copies counted twice", "ep not summed"],
)
def test_a_faulty_mesh_is_found(text, fault, pools, folder, alone):
    model = "mixture" if "ep" in text else "tied"
    found = on_mesh(pools, folder, config_of(text, model), fault=fault)[0]
    expected = alone(model)
    with pytest.raises(AssertionError):
        assert_equal_steps(found, expected, gradients=1e-6, weights=1e-6)


def test_what_is_cut_is_joined_again():
    config = replace(DENSE, num_kv_heads=2)
    split = mesh.Split(tp=4, replicate_kv=True)
    shapes = mesh.whole_shapes(config)
    generator = torch.Generator().manual_seed(0)
    whole = {n: {"x": torch.randn(s, generator=generator), "step": 3} for n, s in shapes.items()}
    places = [{"tp": index, "ep": 0} for index in range(4)]
    held = [mesh.cut(whole, list(shapes), config, split, place) for place in places]
    num_held = sum(part["blocks.0.attention.w_k"]["x"].numel() for part in held)
    assert num_held == 2 * whole["blocks.0.attention.w_k"]["x"].numel()
    for name, shape in shapes.items():
        covered = torch.zeros(shape)
        for index, part in enumerate(held):
            cut = mesh.cut_of(name, shape, config, split, places[index])
            dim, start, stop = cut or (0, 0, shape[0])
            assert part[name]["step"] == 3
            covered.narrow(dim, start, stop - start).fill_(1)
            assert torch.equal(part[name]["x"], whole[name]["x"].narrow(dim, start, stop - start))
        assert bool(covered.all())
