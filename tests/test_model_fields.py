"""Every field of ModelConfig is answered by everybody who reads a shape: used, refused, or listed.

A new field fails here until it has a line in `CHANGES`, and then in each consumer that overlooks
it: a model with another norm, say, would otherwise be exported as a Llama without a word.
"""

from dataclasses import fields, replace

import pytest
import torch

from llmcourse import loss, train
from llmcourse.backward import backprop
from llmcourse.base import checks
from llmcourse.model import ModelConfig, Transformer, tiny, tiny_moe
from llmcourse.model.attention.rope_scaling import RopeScaling
from llmcourse.model.huggingface import obstacle
from llmcourse.model.shapes import num_parameters
from llmcourse.parallel.mesh import Split
from llmcourse.parallel.tensor_parallel.table import style_of
from llmcourse.train import TrainConfig, phases
from llmcourse_classroom.widgets import live
from llmcourse_classroom.widgets import model as explorer
from llmcourse_classroom.widgets import roofline as roofline_page
from llmcourse_classroom.widgets import simulator as simulator_page
from llmcourse_classroom.widgets.block import BlockTapper
from llmcourse_labs.export.huggingface import config_json
from llmcourse_labs.real.huggingface_config import config_from_huggingface
from llmcourse_labs.scale import cost
from llmcourse_labs.scale.roofline.operations import training_operations
from llmcourse_labs.scale.simulator import Cluster, simulate
from llmcourse_labs.scale.simulator.step import _held as weights_of_a_gpu
from tests.train.runs import SHORT

DENSE, MIXTURE = tiny(), tiny_moe()
CHANGES = {"num_layers": (DENSE, 4), "width": (DENSE, 48), "num_heads": (DENSE, 8)}
CHANGES |= {"num_kv_heads": (DENSE, 4), "head_size": (DENSE, 12), "hidden": (DENSE, 96)}
CHANGES |= {"vocab_size": (DENSE, 320), "context_length": (DENSE, 48), "rope_theta": (DENSE, 500.0)}
CHANGES |= {"rope_scaling": (DENSE, RopeScaling(kind="linear", factor=2.0))}
CHANGES |= {"tied_head": (DENSE, False), "norm_eps": (DENSE, 0.1), "qk_norm": (DENSE, True)}
CHANGES |= {"num_experts": (MIXTURE, 5), "experts_per_token": (MIXTURE, 3)}
CHANGES |= {"balance_weight": (MIXTURE, 0.5), "capacity_factor": (MIXTURE, 0.5)}
"""For each field a shape, and another value of the field."""


def pair(field):
    start, value = CHANGES[field]
    return start, replace(start, **{field: value})


def ids_of(config):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(config.vocab_size, (2, config.context_length), generator=generator)


def model_of(config):
    return Transformer(config, generator=torch.Generator().manual_seed(0)).double()


def total(operations):
    return [sum(getattr(o, what) for o in operations) for what in ("flop", "bytes", "eager_bytes")]


def simulated(config):
    step = simulate(config, Split(), Cluster(num_gpus=1), batch_size=2)
    return step.seconds_by_part, step.bytes_by_part


def on_the_live_page(config):
    live._check_config(TrainConfig.of(model=config, steps=60, batch_size=4))
    return {name: getattr(config, name) for name in live.SHAPE}


SAYS = {"FLOPs": cost.training_flop_per_token, "cache": cost.kv_cache_bytes_per_token}
SAYS |= {"kept for backward": cost.kept_bytes}
SAYS |= {"roofline": lambda config: total(training_operations(config, batch_size=2))}
SAYS |= {"simulator": simulated, "live page": on_the_live_page}
SAYS |= {"page of a block": lambda config: (BlockTapper(config).shape, BlockTapper(config).tokens)}
SAYS |= {"page of a shape": explorer.shape_of, "page of the roofline": roofline_page.sizes_of}
SAYS |= {"page of the simulator": simulator_page.shape_of}
SAME_WORK = "changes numbers, and neither how many there are nor what is done with them"
OF_TRAINING = "nothing beside the products, which are what is counted"
ONE_BLOCK = "a block is shown, and no part of it depends on it"
PICKED = "shapes come from a list of published ones, and none of them differs in it"
OF_EXPERTS = ("num_experts", "experts_per_token", "balance_weight", "capacity_factor")
ROPE = dict.fromkeys(("rope_theta", "rope_scaling"), SAME_WORK)
NUMBERS = ROPE | {"norm_eps": SAME_WORK}
TRAINED = dict.fromkeys(("balance_weight", "capacity_factor"), OF_TRAINING)
FROM_A_LIST = dict.fromkeys(("qk_norm", *OF_EXPERTS), PICKED)
READERS = {"context_length": "the reader sets it"}
SIZES = dict.fromkeys(("num_layers", "vocab_size", "context_length"), ONE_BLOCK)
BLOCKS = {**ROPE, "tied_head": ONE_BLOCK, "norm_eps": SAME_WORK}
SILENT = {
    "FLOPs": {
        **ROPE,
        "tied_head": "the same product, of a matrix that is there once",
        **dict.fromkeys(("norm_eps", "qk_norm"), OF_TRAINING),
        **TRAINED,
    },
    "cache": dict.fromkeys(
        [name for name in CHANGES if name not in ("num_layers", "num_kv_heads", "head_size")],
        "keys and values of a token, in every layer, and nothing else",
    ),
    "kept for backward": SIZES | BLOCKS | TRAINED,
    "roofline": NUMBERS,
    "simulator": NUMBERS | TRAINED,
    "live page": {},
    "page of a block": dict.fromkeys(("num_layers", "vocab_size"), ONE_BLOCK) | BLOCKS,
    "page of a shape": NUMBERS | FROM_A_LIST,
    "page of the roofline": READERS | NUMBERS | dict.fromkeys(OF_EXPERTS[1:], PICKED),
    "page of the simulator": READERS | NUMBERS | FROM_A_LIST,
}
"""Fields that a consumer says nothing of, and why that is right."""


def answer(says, config):
    try:
        return says(config)
    except ValueError:
        return None


def test_every_field_has_a_change_and_what_is_picked_from_a_list_is_the_same_in_all_of_it():
    assert [field.name for field in fields(ModelConfig)] == list(CHANGES)
    assert all(start != changed for start, changed in map(pair, CHANGES))
    shown = [make() for pages in (explorer, roofline_page) for make in pages.SHAPES.values()]
    shown += [row.config for row in simulator_page.PUBLISHED.values()]
    for config in shown:
        assert not config.num_experts
        assert not config.qk_norm


@pytest.mark.parametrize("who", SAYS)
def test_a_field_is_used_refused_or_listed(who):
    """Mutants: a field that is left out of a sum, or of what a page is told."""
    silent = []
    for field in CHANGES:
        before, after = (answer(SAYS[who], config) for config in pair(field))
        if after is not None and after == before:
            silent.append(field)
    assert silent == list(SILENT[who])


@pytest.mark.parametrize("field", CHANGES)
def test_the_first_step_of_a_run_depends_on_it(field, tmp_path):
    """The loss that a gradient is taken of, with weights that are the same where they can be."""
    found = []
    for number, config in enumerate(pair(field)):
        run = train.start(SHORT.replace(model=config), tmp_path / str(number))
        value = phases.forward_backward(run, phases.load(run))
        found.append((value.total.item(), num_parameters(config), value.nats.shape))
    assert found[0] != found[1]


@pytest.mark.parametrize("field", CHANGES)
def test_the_backward_pass_by_hand_follows_it_or_refuses(field):
    _, config = pair(field)
    net, ids = model_of(config), ids_of(config)
    try:
        value, tape = backprop.forward(net, ids[:, :-1], ids[:, 1:])
    except ValueError:
        return
    gradients = backprop.backward(net, tape)
    expected = loss.cross_entropy(net(ids[:, :-1]), ids[:, 1:])
    expected.backward()
    assert checks.relative_error(value, expected.detach()) < 1e-12
    for name, p in net.named_parameters():
        assert checks.relative_error(gradients[name], p.grad) < 1e-10, name


@pytest.mark.parametrize("field", CHANGES)
def test_parameters_are_counted_and_have_a_line_in_the_table_of_tensor_parallelism(field):
    _, config = pair(field)
    real = sum(p.numel() for p in Transformer(config).parameters())
    assert cost.num_parameters(config) == num_parameters(config) == real
    assert weights_of_a_gpu(config, 1, 1, 1) == real  # what the simulator makes its bytes of
    if config.num_experts:
        with pytest.raises(ValueError, match="tp must be 1 for a model with experts"):
            Split(tp=2).check_model(config)
        return
    assert all(style_of(name) for name, _ in Transformer(config).named_parameters())


TRAINING_ALONE = ("balance_weight", "capacity_factor")
"""What a model that is only run does not have."""


@pytest.mark.parametrize("field", CHANGES)
def test_an_export_tells_it_or_is_refused(field):
    """And who reads it back has the same shape: both files of Hugging Face's names know it."""
    start, config = pair(field)
    if (why := obstacle(config)) is not None:
        with pytest.raises(ValueError, match=why[:30]):
            config_json(config, end_id=0, dtype="float32")
        return
    told = config_json(config, end_id=0, dtype="float32")
    read = config_from_huggingface(told)
    assert replace(read, **{name: getattr(config, name) for name in TRAINING_ALONE}) == config
    if field not in TRAINING_ALONE:
        assert told != config_json(start, end_id=0, dtype="float32")
