"""The rotations of a model outlive every cast, copy and move, exact to float32."""

import copy
import io
import pickle

import pytest
import torch

from llmcourse.model import Transformer, tiny, without
from llmcourse.model.attention import rope_rotations
from llmcourse.parallel.pipeline import Stage


@pytest.fixture
def decoder():
    """A model in which positions matter: its weights are large."""
    decoder = Transformer(tiny(), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(5)
    return decoder


def saved_and_loaded(decoder):
    file = io.BytesIO()
    torch.save(decoder, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def put_into_another(decoder):
    other = Transformer(decoder.config, generator=torch.Generator().manual_seed(1))
    other.load_state_dict(decoder.state_dict())
    return other


def emptied_and_loaded(decoder):
    with torch.device("meta"):
        other = Transformer(decoder.config)
    other = other.to_empty(device="cpu")
    other.load_state_dict(decoder.state_dict())
    return other


MOVES = {
    "to(float32)": lambda m: m.to(torch.float32),
    "to(cpu, float32)": lambda m: m.to("cpu", torch.float32),
    "to(other)": lambda m: m.to(torch.ones(1)),
    "to(float64)": lambda m: m.to(torch.float64),
    "double": lambda m: m.double(),
    "half": lambda m: m.half(),
    "bfloat16": lambda m: m.bfloat16(),
    "to(bfloat16), to(float32)": lambda m: m.to(torch.bfloat16).to(torch.float32),
    "type": lambda m: m.type(torch.float16),
    "inside another": lambda m: torch.nn.Sequential(m).bfloat16()[0],
    "deepcopy": copy.deepcopy,
    "copy of a cast": lambda m: copy.deepcopy(m.half()),
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "torch.save": saved_and_loaded,
    "state_dict": put_into_another,
    "to_empty": emptied_and_loaded,
    "share_memory": lambda m: m.share_memory(),
}


@pytest.mark.parametrize("move", MOVES)
def test_rotations_stay_exact(move, decoder):
    ids = torch.randint(0, 256, (2, 32), generator=torch.Generator().manual_seed(2))
    config = decoder.config
    exact = rope_rotations(config.head_size, config.context_length, theta=config.rope_theta)
    with torch.no_grad():
        expected = decoder(ids)
        moved = MOVES[move](decoder)
        assert torch.equal(moved.rotations_TJ2, exact)
        # Other positions would move the logits by more than their own size.
        rounded = moved.embedding.dtype.itemsize == 2 or "bfloat16" in move
        found = moved.float()(ids)
    assert (found - expected).abs().max() < (0.3 if rounded else 1e-4) * expected.abs().max()


def test_rotations_are_in_no_state_dict(decoder):
    """A checkpoint written when they were complex numbers has no other keys."""
    assert set(decoder.state_dict()) == {name for name, _ in decoder.named_parameters()}


def test_rotations_go_to_the_device_of_the_weights(decoder):
    assert decoder.to("meta").rotations_TJ2.is_meta
    assert decoder.to_empty(device="cpu").rotations_TJ2.device.type == "cpu"


def test_a_model_without_positions_stays_without(decoder):
    blind = without(decoder, "position").bfloat16()
    assert torch.equal(blind.rotations_TJ2, torch.tensor([1.0, 0.0]).expand(32, 4, 2))


def test_a_stage_keeps_them_too(decoder):
    stage = Stage(decoder, range(1)).to(torch.bfloat16)
    assert stage.embedding.dtype == torch.bfloat16
    assert torch.equal(stage.rotations_TJ2, decoder.rotations_TJ2)
    assert stage.rotations_TJ2.dtype == torch.float32
