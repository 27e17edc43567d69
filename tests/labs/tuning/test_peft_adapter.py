"""An adapter of ours is peft's, one of peft's is ours, and what we lack is refused by its name.

Without peft its files are merged here by their names into transformers' model.

Mutants: B not permuted, or permuted back; alpha for alpha / r; the root of r left out; gate and up
exchanged; names without base_model.
"""

import importlib.util
import json

import pytest
import safetensors.torch
import torch

from llmcourse.base import checks, runtime
from llmcourse.train import sampling
from llmcourse_labs.export import folder as exporting
from llmcourse_labs.real import load_huggingface, opening
from llmcourse_labs.real.peft_adapter import CONFIG, WEIGHTS, adapter_files, read_adapter
from llmcourse_labs.tuning import tune
from llmcourse_labs.tuning.lora import adapter_of, add_adapter, add_low_rank
from tests.labs.real.test_huggingface_folder import theirs
from tests.labs.real.test_opening import decoder, file, tokenizer  # noqa: F401 - fixtures
from tests.labs.tuning.test_conversations import QUICK, talk  # noqa: F401 - fixture
from tests.labs.tuning.test_lora import adapted

peft = None
if importlib.util.find_spec("peft"):
    import peft
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing`:FutureWarning"  # peft asks transformers by an old name
)

CLOSE = 1e-4  # of the largest logit in float32, 5e-6 was seen; the mildest mutant is at 2e-2
KINDS = ["Llama", "Qwen3"]


@torch.no_grad()
def differ(one, other):
    """How far the logits of two models of transformers' are apart, or of ours and theirs."""
    ids = torch.randint(0, 50, (3, 16), generator=runtime.generator(1))
    a, b = (getattr(made, "logits", made) for made in (one(ids), other(ids)))
    return checks.relative_error(a, b)


def drawn(model, seed=3):
    """Draw every B anew."""
    generator = runtime.generator(seed)
    for name, weight in model.named_parameters():
        if name.endswith(".b") or "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator) / 5


def saved(made, folder):
    made.save_pretrained(folder)
    return load_huggingface(folder)


def with_files(made, folder):
    """transformers' model with the adapter of a folder, by peft if it is there."""
    if peft:
        return peft.PeftModel.from_pretrained(made, folder).eval()
    told = json.loads((folder / CONFIG).read_text())
    tensors = safetensors.torch.load_file(folder / WEIGHTS)
    for name in [name for name in tensors if "lora_A" in name]:
        owner = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        product = tensors[name.replace("lora_A", "lora_B")] @ tensors[name]
        made.get_submodule(owner).weight.data += told["lora_alpha"] / told["r"] * product
    return made


def foreign(made, folder, **how):
    """An adapter that peft made and saved; return peft's model."""
    wrapped = peft.get_peft_model(made, peft.LoraConfig(**how)).eval()
    drawn(wrapped)
    wrapped.save_pretrained(folder)
    return wrapped


@pytest.mark.parametrize("kind", KINDS)
def test_peft_reads_ours_and_we_read_it_back_to_the_bit(kind, tmp_path):
    made = theirs(kind)
    ours = saved(made, tmp_path / "whole")
    assert differ(ours, made) < CLOSE
    add_low_rank(ours, 3, generator=runtime.generator(2))
    drawn(ours)
    thin = adapter_of(ours.state_dict())
    for name, content in adapter_files(thin, ours.config, base="theirs").items():
        (tmp_path / name).write_bytes(content)
    again = read_adapter(tmp_path, ours.config)
    assert again.keys() == thin.keys()
    for name, (a, b, alpha) in thin.items():
        assert torch.equal(again[name].a_RD, a)
        assert torch.equal(again[name].b_FR, b)
        assert again[name].alpha == alpha == 16
    assert differ(ours, made) > 0.1
    assert differ(ours, with_files(made, tmp_path)) < CLOSE


HOW = {
    "some matrices": {"r": 5, "lora_alpha": 7, "target_modules": ["q_proj", "k_proj", "down_proj"]},
    "by the root": {"r": 3, "lora_alpha": 4, "use_rslora": True, "target_modules": "all-linear"},
    "two ranks": {"r": 2, "rank_pattern": {"v_proj": 4}, "target_modules": ["v_proj", "up_proj"]},
}


@pytest.mark.skipif(peft is None, reason="peft makes them")
@pytest.mark.parametrize("how", HOW)
def test_we_read_theirs(how, tmp_path):
    made = theirs("Llama")
    ours = saved(made, tmp_path / "whole")
    wrapped = foreign(made, tmp_path / "adapter", **HOW[how])
    assert differ(ours, wrapped) > 0.01
    add_adapter(ours, read_adapter(tmp_path / "adapter", ours.config))
    assert differ(ours, wrapped) < CLOSE
    assert {name[-2:] for name, w in ours.named_parameters() if w.requires_grad} == {".a", ".b"}


REFUSED = {
    "use_dora": True,
    "bias": "all",
    "lora_bias": True,
    "modules_to_save": ["lm_head"],
    "alpha_pattern": {"q_proj": 3},
    "init_lora_weights": "pissa",
    "peft_type": "IA3",
    "lora_alpha": "much",
}


def test_what_we_lack_is_refused_by_its_name(tmp_path):
    ours, folder = saved(theirs("Llama"), tmp_path / "whole"), tmp_path / "adapter"
    shape = ours.config
    add_low_rank(ours, 2, generator=runtime.generator(2))
    thin = {name: pair for name, pair in adapter_of(ours.state_dict()).items() if "w_q" in name}
    folder.mkdir()
    for name, content in adapter_files(thin, shape, base="theirs").items():
        (folder / name).write_bytes(content)
    told, weights = json.loads((folder / CONFIG).read_text()), folder / WEIGHTS
    assert len(read_adapter(folder, shape)) == 2
    for key, value in REFUSED.items():
        (folder / CONFIG).write_text(json.dumps(told | {key: value}))
        with pytest.raises(ValueError, match="IA3" if key == "peft_type" else key):
            read_adapter(folder, shape)
    (folder / CONFIG).write_text(json.dumps(told))
    right = safetensors.torch.load_file(weights)
    first = min(right)
    odd = {
        "is not of this model": {name: w for name, w in right.items() if name != first},
        "of self_attn.q_proj|is not of this": right | {first: right[first][:1]},
        "holds base_model.model.lm_head.lora_A": right
        | {"base_model.model.lm_head.lora_A.weight": torch.ones(2, 24)},
        "holds nothing": {},
    }
    for message, tensors in odd.items():
        safetensors.torch.save_file(tensors, weights)
        with pytest.raises(ValueError, match=message):
            read_adapter(folder, shape)
    weights.unlink()
    with pytest.raises(ValueError, match=f"holds no {WEIGHTS}"):
        read_adapter(folder, shape)


def test_a_run_is_exported_and_opened(file, talk, tmp_path, capsys):  # noqa: F811
    out, to = tmp_path / "run", tmp_path / "adapter"
    told = ["--model", str(file), "--data", str(talk), "--out", str(out), "--lora_rank", "2"]
    assert tune.main([*told, *QUICK]) == 0, capsys.readouterr().err
    words = ["--run", str(out), "--to", str(to), "--adapter"]
    assert exporting.main(words) == 0
    assert exporting.main(words) == 2
    assert exporting.main([*words, "--force"]) == 0
    assert exporting.main([*words, "--force", "--dtype", "bfloat16"]) == 2
    after, _ = sampling.load(out)
    state = opening.open_model(to).decoder.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in after.state_dict().items())
    made = theirs_of(exporting.export_model(file, tmp_path / "whole"))
    assert differ(after, made) > 1e-4
    assert differ(after, with_files(made, to)) < CLOSE


def theirs_of(folder):
    import transformers  # noqa: PLC0415 - slow import

    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def test_runs_without_an_adapter_of_their_own_are_refused():
    plain, copy = adapted()
    with pytest.raises(ValueError, match="this run has learnt all weights"):
        adapter_of(plain.state_dict())
    with pytest.raises(ValueError, match="rows of new tokens"):
        adapter_of(copy.state_dict())
