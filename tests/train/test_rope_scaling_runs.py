"""train --model.rope_scaling...: a run keeps its scaling when it goes on or is exported."""

import json

import pytest
import torch

from llmcourse import train
from llmcourse.base import checks
from llmcourse.model.attention import RopeScaling
from llmcourse.train import __main__ as command_line
from llmcourse_labs.export import export
from llmcourse_labs.real import load_huggingface

FLAGS = ["--preset", "tiny", "--steps", "3", "--warmup_steps", "1", "--corpus_bytes", "30000"]
YARN = {"kind": "yarn", "factor": 4.0, "original_length": 16}
SCALED = [f for k, v in YARN.items() for f in (f"--model.rope_scaling.{k}", str(v))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scaled") / "run"
    assert command_line.main([*FLAGS, *SCALED, "--out", str(folder)]) == 0
    return folder


def test_a_run_goes_on_with_its_scaling(folder):
    run = train.resume(folder, steps=4)
    assert run.config.model.rope_scaling == RopeScaling(**YARN)
    assert run.model.rotations_TJ2.norm(dim=-1).min() > 1.1  # yarn's are longer
    assert json.loads((folder / "config.json").read_text())["model"]["rope_scaling"]["factor"] == 4


@torch.no_grad()
def test_an_export_computes_what_the_run_does(folder, tmp_path):
    import transformers  # noqa: PLC0415 - slow import

    run = train.resume(folder)
    to = export(folder, tmp_path / "exported")
    ids = torch.randint(0, 300, (2, 32), generator=torch.Generator().manual_seed(0))
    ours, theirs = run.model(ids), transformers.LlamaForCausalLM.from_pretrained(to)
    assert checks.relative_error(theirs(ids).logits, ours) < 3e-6
    assert checks.relative_error(load_huggingface(to)(ids), ours) < 1e-6
    path = to / "config.json"
    found = json.loads(path.read_text())
    del found["rope_parameters"]  # transformers 4 looks at the other one
    path.write_text(json.dumps(found))
    assert checks.relative_error(load_huggingface(to)(ids), ours) < 1e-6
    del found["rope_scaling"]
    path.write_text(json.dumps(found))
    assert checks.relative_error(load_huggingface(to)(ids), ours) > 1e-3


def test_a_folder_of_a_run_with_an_impossible_scaling_is_refused(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    for scaling, said in (
        ({"kind": "yarn", "bend": 2}, "the setting 'bend', which this version has not"),
        ({"kind": "spline", "factor": 2.0}, "kind = 'spline', which cannot be"),
        ({**YARN, "factor": 0.5}, "factor must be 1 or greater"),
        (7, "holds no settings of a run"),
    ):
        (tmp_path / "config.json").write_text(
            json.dumps(config | {"model": config["model"] | {"rope_scaling": scaling}})
        )
        with pytest.raises(ValueError, match=said):
            train.resume(tmp_path)


def test_another_scaling_is_another_run(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    config["model"]["rope_scaling"] = None
    changed = tmp_path / "run"
    changed.mkdir()
    (changed / "checkpoints").symlink_to(folder / "checkpoints")
    (changed / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"a run with model\.rope_scaling = "):
        train.resume(changed)
