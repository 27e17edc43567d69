"""base.settings: groups, choices among them, and their flat names."""

from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import train
from llmcourse.base.settings import LARGEST, Settings, from_flat, held, idle, settings_of
from llmcourse.data.settings import OneSource
from llmcourse.model import ModelConfig
from llmcourse.train.layout_settings import MeshRanks, OneProcess, SeveralRanks, TorchRanks
from llmcourse.train.saved import config_of
from llmcourse_labs.tuning.tune_config import TuneConfig


@dataclass(frozen=True, kw_only=True)
class Oven(Settings):
    needs: ClassVar = "way = oven"

    way: Literal["oven"] = "oven"
    degrees: int = 180
    """How hot."""

    @classmethod
    def is_meant(cls, flat: Any) -> bool:
        return flat["way"] == "oven"


@dataclass(frozen=True, kw_only=True)
class Soak(Settings):
    needs: ClassVar = "water"
    refused: ClassVar = {"degrees": "is for an oven, and this is water"}

    way: Literal["water"] = "water"
    """How it is
    done."""
    hours: float = idle(0.0)


@dataclass(frozen=True, kw_only=True)
class Dish(Settings):
    name: str
    """What it is."""
    cook: Oven | Soak = field(default_factory=Oven)
    times: int = 1
    """How often."""


def test_flat_names_choose_a_group_fill_it_and_are_whole():
    assert Dish.of(name="bread") == Dish(name="bread", cook=Oven(degrees=180))
    assert Dish.of(name="bread", degrees=220).cook == Oven(degrees=220)
    assert Dish.of(name="beans", way="water", hours=9.0).cook == Soak(hours=9.0)
    twice = Dish(name="bread", times=2)
    assert twice.replace(degrees=90) == Dish(name="bread", times=2, cook=Oven(degrees=90))
    soaked = Dish.of(name="beans", way="water", hours=9.0)
    own = {"name": "beans", "way": "water", "hours": 9.0, "times": 1}
    assert soaked.flat() == own | {"degrees": 180}
    assert held(soaked) == own
    assert isinstance(train.PRESETS["tiny"]().flat()["model"], dict)


def test_what_another_choice_has_is_left_behind_but_not_asked_for_in_vain():
    hot = Dish.of(name="bread", degrees=220)
    assert hot.replace(way="water", hours=1.0).cook == Soak(hours=1.0)
    with pytest.raises(ValueError, match="degrees = 90 is for an oven, and this is water"):
        hot.replace(way="water", hours=1.0, degrees=90)
    with pytest.raises(ValueError, match=r"hours = 2\.0 has no effect without water: give both"):
        hot.replace(hours=2.0)
    assert hot.replace(hours=0.0) == hot  # what it would be anyway
    flat = {"name": "x", "way": "water", "hours": 1.0, "degrees": 90}
    assert from_flat(Dish, flat, {}) == Dish(name="x", cook=Soak(hours=1.0))
    mixed = train.PRESETS["tiny"]().replace(corpus="prepared", data="x", mix="a=1")
    assert mixed.replace(mix="").text == OneSource(data="x")
    assert mixed.replace(mix="", order="random").text == OneSource(data="x", order="random")


def test_a_setting_knows_type_default_help_and_a_choice_its_own_words_alone():
    known = settings_of(Dish)
    assert list(known) == ["name", "way", "degrees", "hours", "times"]
    assert known["way"].hint == Literal["oven", "water"]
    assert (known["way"].help, known["degrees"].help) == ("How it is done.", "How hot.")
    assert (known["degrees"].default, known["hours"].default) == (180, 0.0)
    assert known["name"].default is MISSING
    with pytest.raises(ValueError, match="parallel = fsdp with several ranks: choose from ddp"):
        train.PRESETS["tiny"]().replace(ranks=2, parallel="fsdp")
    with pytest.raises(ValueError, match="parallel = zero2 with a mesh"):
        train.PRESETS["tiny"]().replace(mesh="dp=2", parallel="zero2")
    with pytest.raises(TypeError):
        Dish.of(times=2)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"times": LARGEST + 1}, "times must be at most"),
        ({"way": "water", "hours": float("nan")}, "hours must be a finite number, got nan"),
        ({"way": "water", "hours": float("-inf")}, "hours must be a finite number, got -inf"),
        ({"time": 3}, "Dish has no setting 'time'"),
    ],
)
def test_what_cannot_be_is_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        Dish.of(name="x", **settings)


def one_of(*values):
    return st.sampled_from(values)


MESHES = one_of("dp=2,pp=2", "dp=2,tp=2")
LAYOUTS = st.one_of(
    st.just(OneProcess()),
    st.builds(OneProcess, device=one_of("cpu", "auto"), accumulate=st.just(2)),
    st.builds(SeveralRanks, ranks=one_of(2, 4), parallel=one_of("ddp", "zero1", "zero2", "zero3")),
    st.builds(MeshRanks, mesh=MESHES, parallel=one_of("ddp", "zero1"), micro_batches=one_of(0, 2)),
    st.builds(TorchRanks, ranks=one_of(1, 2), parallel=one_of("ddp", "fsdp")),
)
CHANGES = one_of(
    {},
    {"schedule": "wsd", "decay_steps": 5},
    {"corpus": "bin", "bin_folder": "x"},
    {"corpus": "prepared", "data": "x", "mix": "a=0.5,b=0.5", "anneal": "3:a=1"},
    {"corpus": "prepared", "data": "x", "order": "random"},
    {"beta1": 0.5, "checkpoint_every": 0, "patience": 3},
)


@given(LAYOUTS, CHANGES)
def test_a_run_is_the_same_after_its_flat_form(layout, changes):
    config = train.PRESETS["tiny"]().replace(**held(layout) | changes)
    assert config.layout == layout
    flat = config.flat()
    assert list(flat) == list(settings_of(train.TrainConfig))
    assert config_of(flat, Path("a file")) == config


def test_a_move_keeps_what_the_new_place_has_and_a_run_of_1_0_is_read():
    config = train.PRESETS["tiny"]()
    sharded = config.replace(ranks=4, parallel="zero2", accumulate=2)
    assert sharded.moved(ranks=2).layout == SeveralRanks(ranks=2, parallel="zero2", accumulate=2)
    assert sharded.moved(ranks=1).layout == OneProcess(accumulate=2)
    assert sharded.moved(steps=40, mesh=None).steps == 40
    split = config.replace(mesh="dp=2,pp=2", pipeline="gpipe", micro_batches=4, parallel="zero1")
    assert split.moved(mesh="dp=4").layout == MeshRanks(mesh="dp=4", parallel="zero1")
    assert split.moved(mesh="tp=2").layout == MeshRanks(mesh="tp=2")
    with pytest.raises(ValueError, match="zero1 has no effect with dp = 1"):
        split.moved(mesh="tp=2", parallel="zero1")
    assert split.moved(mesh="").layout == OneProcess()
    assert split.moved(ranks=2).layout == SeveralRanks(ranks=2, parallel="zero1")
    assert split.moved(ranks=2, engine="torch", parallel="fsdp").layout.parallel == "fsdp"
    # There every run had every setting, those of fine-tuning, too.
    tiny = train.PRESETS["tiny"]()
    old = {"start": "", "examples": 3000, "replay": 0.0, "lora_rank": 0, "learn_all": False}
    assert config_of(tiny.flat() | old, Path("a file")) == tiny
    asked = old | {"stage": "sft", "start": "runs/a", "lora_rank": 4, "replay": 0.25}
    asked |= {"corpus": "tasks", "order": "packed", "steps": 9, "warmup_steps": 1}
    tuned = config_of(tiny.flat() | asked, Path("a file"))
    assert isinstance(tuned, TuneConfig)
    assert (tuned.start, tuned.lora_rank, tuned.text.replay) == ("runs/a", 4, 0.25)
    assert tuned.model == ModelConfig(**vars(tiny.model))
