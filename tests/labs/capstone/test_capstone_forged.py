"""What the report shows is what was measured, and a record of another form is none."""

import json

import pytest

from llmcourse_labs.capstone.judging import MODELS, require_measured
from llmcourse_labs.capstone.stage import BEGUN, DONE, _read


@pytest.fixture
def judged(tmp_path):
    models = {}
    for number, (name, stage) in enumerate(MODELS.items()):
        rows = {"all": {"plain": {"right": 40 + number, "of": 80}}}
        models[name] = {"stories": rows, "marbles": {"right": 1}}
        (tmp_path / f"{stage}_stories.json").write_text(json.dumps({"rows": rows}))
    return {"models": models}


@pytest.mark.parametrize("name", MODELS)
def test_a_number_that_a_hand_has_changed_is_not(name, judged, tmp_path):
    require_measured(judged, tmp_path)
    judged["models"][name]["stories"]["all"]["plain"]["right"] = 80
    with pytest.raises(ValueError, match=f"told of the model {name} .* is not what"):
        require_measured(judged, tmp_path)


WHOLE = {"settings": {}, "inputs": {}, "facts": {}, "files": {}, "identity": "0f", "seconds": 1.5}


@pytest.mark.parametrize("field", WHOLE)
@pytest.mark.parametrize("wrong", [[], None, ["a"]])
def test_a_record_of_another_form_is_no_record(field, wrong, tmp_path):
    path = tmp_path / DONE
    path.write_text(json.dumps(WHOLE))
    assert _read(path) == WHOLE
    path.write_text(json.dumps(WHOLE | {field: wrong}))
    assert _read(path) is None
    (tmp_path / BEGUN).write_text(json.dumps({"settings": [], "inputs": {}, "seconds": 0.0}))
    assert _read(tmp_path / BEGUN) is None
