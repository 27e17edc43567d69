"""A package's names arrive when they are asked for, and nothing else does."""

import importlib
import json
import pickle
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest
import torch
from jaxtyping import TypeCheckError

import llmcourse
from llmcourse import model
from llmcourse_classroom.widgets import attention
from llmcourse_labs import study
from tools.build import uses

PACKAGES = [
    found.name
    for package in map(importlib.import_module, uses.PACKAGES)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if found.ispkg
]


def loaded_by(code):
    """Return the modules of the package that a fresh Python has after some code."""
    tell = "import json, sys\nprint(json.dumps([n for n in sys.modules if n[:9] == 'llmcourse']))"
    words = [sys.executable, "-c", f"{code}\n{tell}"]
    return set(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_of_a_package_is_there(name):
    package = importlib.import_module(name)
    names = getattr(package, "__all__", [])
    assert set(names) == set(getattr(package, "_homes", names)), "__all__ and the imports differ"
    assert set(names) <= set(dir(package))
    for each in names:
        home = importlib.import_module(package._homes[each])
        assert getattr(package, each) is getattr(home, each)
        assert not isinstance(getattr(package, each), ModuleType)


def test_a_name_that_is_not_there_and_a_package_that_is_sent_by_its_name():
    """So a function of a notebook that names one reaches ranks which are already there."""
    with pytest.raises(AttributeError, match=r"'llmcourse.optim' has no attribute 'AdamX'"):
        llmcourse.optim.AdamX  # noqa: B018
    with pytest.raises(ImportError):
        exec("from llmcourse.optim import AdamX")
    assert pickle.loads(pickle.dumps(llmcourse.optim)) is llmcourse.optim


@pytest.mark.parametrize(
    "code",
    [
        "from llmcourse.train import prepare",
        "import llmcourse.train.prepare; from llmcourse.train import prepare",
        "from llmcourse.train import loop, prepare",
        "from llmcourse import train; import llmcourse.train.loop; prepare = train.prepare",
    ],
)
def test_a_function_is_not_hidden_by_the_module_of_its_name(code):
    asks = f"{code}\nassert prepare.__name__ == 'prepare', prepare"
    subprocess.run([sys.executable, "-c", asks], check=True)


def test_only_what_is_asked_for_is_loaded_and_no_compiler_of_torch(tmp_path):
    """It would be a third of the start; torch imports it in `use_deterministic_algorithms`, too."""
    adam = loaded_by("from llmcourse import optim\noptim.AdamW")
    assert "llmcourse.optim.adamw" in adam
    assert "llmcourse.optim.muon" not in adam
    bowl = loaded_by("from llmcourse_classroom.widgets import Bowl")
    widgets = "llmcourse_classroom.widgets."
    assert [name for name in bowl if name.startswith(widgets)] == [f"{widgets}descent"]
    assert "llmcourse.optim.muon" not in loaded_by("from llmcourse import train\ntrain.fit")
    subprocess.run([sys.executable, "-c", WHOLE_RUN, str(tmp_path / "run")], check=True)


def test_names_that_arrive_late_and_shapes_are_checked_in_all_packages(request):
    """Ids without a batch in the laboratories, queries without layers in the classroom."""
    *packages, checker = request.config.getoption("--jaxtyping-packages").split(",")
    assert (packages, checker) == ([*uses.PACKAGES], "beartype.beartype")
    with pytest.raises(TypeCheckError, match="B T"):
        study.residual_rms(model.Transformer(model.tiny()), torch.zeros(3, dtype=torch.long))
    with pytest.raises(TypeCheckError, match="L T H K"):
        attention._whole(torch.ones(2, 4), 3)
    from llmcourse import loss  # noqa: PLC0415 - the import is what is tested

    with pytest.raises(Exception, match="Type-check error"):
        loss.cross_entropy("no tensor", "no tensor")


WHOLE_RUN = """
import sys
from llmcourse import model, train
model.whole_shapes(model.tiny())
run = train.start(train.PRESETS["tiny"](), sys.argv[1])
while run.steps_done < 2:
    train.step(run)
run.optimizer.load_state_dict(run.optimizer.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
