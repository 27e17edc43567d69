"""export: transformers computes what we compute, the card is true, nothing is half there."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import get_args

import huggingface_hub
import pytest
import safetensors.torch
import tokenizers
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from llmcourse import checkpoint, model, train
from llmcourse.base import checks
from llmcourse.base.settings import settings_of
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import GPT2, LLAMA3, Tokenizer
from llmcourse.model.huggingface import obstacle
from llmcourse.train import TrainConfig
from llmcourse.train import command as train_command
from llmcourse_labs.export import export, huggingface
from llmcourse_labs.export import folder as export_module
from llmcourse_labs.export.folder import main
from llmcourse_labs.export.model_card import _CORPORA
from llmcourse_labs.real import from_huggingface, load_huggingface, whole_folder
from llmcourse_labs.real.whole_folder import NAMES
from llmcourse_labs.tuning.tune_config import TuneConfig
from tests.train.runs import TINY as PLAIN

TheirLlama = transformers.LlamaForCausalLM
TheirMixtral, TheirQwen = transformers.MixtralForCausalLM, transformers.Qwen3ForCausalLM
TheirQwenMoe = transformers.Qwen3MoeForCausalLM
# Not the default of transformers, and large enough that leaving it out is seen.
TINY = replace(PLAIN, model=replace(PLAIN.model, norm_eps=3e-4))
TOLERANCE = 3e-6  # float32; right exports were measured at up to 7e-7, the mildest mutant at 2e-2
DECAY = {"schedule": "wsd", "decay_steps": 7}
EXPERTS = {"num_experts": 4, "experts_per_token": 2, "hidden": 24}
EXPERTS |= {"balance_weight": 0.02, "capacity_factor": 1.5}
ODD = {"num_kv_heads": 4, "width": 36, "head_size": 6, "hidden": 52, "num_layers": 3}
SHAPES = {
    "untied, one key for all": {"tied_head": False, "num_kv_heads": 1, "rope_theta": 500.0},
    "tied, a key for each, odd sizes": ODD | {"norm_eps": 1e-5},
    # Its heads do not divide its width, and its rows are no whole 16 bytes.
    "a mixture of odd sizes": EXPERTS | {"width": 30, "hidden": 21},
    "a mixture with norms of its heads": EXPERTS | {"num_heads": 6, "qk_norm": True},
}


def trained(folder, *, shape=None, **settings):
    """A short run; its weights move far from where they began."""
    config = TINY.replace(model=replace(TINY.model, **shape or {}), **settings)
    return train.fit(train.start(config, folder))


def altered(run, folder, **settings):
    shutil.copytree(run.folder, folder)
    config = run.config.replace(**settings)
    (folder / "config.json").write_text(json.dumps(config.flat()))
    last = checkpoint.load(checkpoint.latest(folder / "checkpoints"))
    checkpoint.save(folder / "checkpoints", step=last.step, model=last.model, config=config.flat())
    return folder


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "a")


@pytest.fixture(scope="module")
def run(result):
    return result.run


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    return export(run.folder, tmp_path_factory.mktemp("exported") / "a")


def ids_of(config, seed=2):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.vocab_size, (3, config.context_length), generator=g)


def family_of(config):
    if config.num_experts:
        return TheirQwenMoe if config.qk_norm else TheirMixtral
    return TheirQwen if config.qk_norm else TheirLlama


@torch.no_grad()
def difference(folder, ours):
    """How far transformers' logits are from ours, relative to the largest."""
    theirs = family_of(ours.config).from_pretrained(folder, dtype=torch.float32)
    ids = ids_of(ours.config)
    return checks.relative_error(ours(ids), theirs(ids).logits)


def loaded_right(to, run):
    """transformers finds the class, misses and adds no weight, and computes what we do."""
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(to, output_loading_info=True)
    assert type(theirs) is family_of(run.config.model)
    assert theirs.dtype == torch.float32
    assert not any(report.values()), report
    assert theirs.num_parameters() == sum(p.numel() for p in run.model.parameters())
    assert difference(to, run.model.eval()) < TOLERANCE  # capacity is for training
    return theirs


def weights_of(to, run, dtype=torch.float32):
    loaded = safetensors.torch.load_file(to / "model.safetensors")
    assert {weight.dtype for weight in loaded.values()} == {dtype}
    back, expected = from_huggingface(loaded, run.config.model), run.model.state_dict()
    assert back.keys() == expected.keys()
    assert all(torch.equal(back[name], weight.to(dtype)) for name, weight in expected.items())
    return loaded


def mutated(folder, to, *, weights=dict, **settings):
    """An export with other weights and settings; ... leaves a setting out."""
    tensors = weights(safetensors.torch.load_file(folder / "model.safetensors"))
    config = json.loads((folder / "config.json").read_text()) | settings
    safetensors.torch.save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    kept = {name: value for name, value in config.items() if value is not ...}
    (to / "config.json").write_text(json.dumps(kept))
    return to


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_shape_is_read_as_written_and_no_weight_is_missing_or_left_over(run, folder):
    theirs, ours = loaded_right(folder, run).config, run.config.model
    assert theirs.max_position_embeddings == ours.context_length
    assert (theirs.num_attention_heads, theirs.num_key_value_heads) == (4, 2)
    assert (theirs.head_dim, theirs.rms_norm_eps) == (ours.head_size, ours.norm_eps)
    assert (theirs.attention_bias, theirs.mlp_bias, theirs.pad_token_id) == (False, False, None)


def test_transformers_writes_what_we_write(run, folder):
    """Greedily to the end of the context, where both stop by themselves."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    settings, end = theirs.generation_config, run.prepared.tokenizer.special_tokens[END_OF_TEXT]
    assert (settings.do_sample, settings.temperature, settings.top_k) == (True, 0.8, 0)
    assert settings.eos_token_id == end
    prompt = torch.tensor([[end]])
    greedy = {"temperature": 0, "stop_id": end, "generator": torch.Generator()}
    length = run.config.model.context_length - 1
    ours = model.generate(run.model, prompt, max_new_tokens=length, **greedy)
    settings.do_sample, settings.temperature, settings.top_k = False, None, None
    assert torch.equal(theirs.generate(prompt, attention_mask=torch.ones_like(prompt)), ours)
    assert ours.shape[1] > 10


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_ours_in_other_shapes(shape, tmp_path):
    run = trained(tmp_path / "run", shape=SHAPES[shape], steps=8, corpus_bytes=30_000).run
    loaded_right(export(run.folder, tmp_path / "exported"), run)


# bfloat16 rounds to 8 bits, then all is in float32: far above rounding, far below another model.
@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("float32", 0, TOLERANCE), ("bfloat16", 1e-4, 3e-2)]
)
def test_every_weight_is_the_same_bits_and_is_loaded_as_such(dtype, least, most, run, tmp_path):
    to = export(run.folder, tmp_path / "exported", dtype=dtype)
    weights_of(to, run, getattr(torch, dtype))
    with safetensors.safe_open(to / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    assert TheirLlama.from_pretrained(to).dtype == getattr(torch, dtype)
    assert least <= difference(to, run.model) < most


def swapped(a, b):
    other = {a: b, b: a}
    return lambda given: {re.sub(f"{a}|{b}", lambda m: other[m[0]], n): w for n, w in given.items()}


def changed(part, change):
    return lambda tensors: {n: change(w) if part in n else w for n, w in tensors.items()}


def unpermuted(tensors):
    """Weights for adjacent pairs, as ours are."""
    ours = from_huggingface(tensors, TINY.model)
    return tensors | {
        f"model.layers.{layer}.self_attn.{name}_proj.weight": ours[
            f"blocks.{layer}.attention.w_{name}"
        ]
        for layer in range(TINY.model.num_layers)
        for name in "qk"
    }


def next_expert(tensors):
    return {
        re.sub(r"experts\.(\d)\.w2", lambda m: f"experts.{(int(m[1]) + 1) % 4}.w2", n): w
        for n, w in tensors.items()
    }


OTHER_BASE = {"rope_type": "default", "rope_theta": 500.0}
MUTANTS = {
    "rotates halves with weights for adjacent pairs": {"weights": unpermuted},
    "swaps gate and up": {"weights": swapped("gate_proj", "up_proj")},
    "swaps key and value": {"weights": swapped("k_proj", "v_proj")},
    "swaps the norms": {"weights": swapped("input_layernorm", "post_attention_layernorm")},
    "rounds to bfloat16": {"weights": changed("", torch.Tensor.bfloat16)},
    "shifts the embedding by a row": {"weights": changed("embed", lambda w: w.roll(1, 0))},
    "leaves eps to the default": {"rms_norm_eps": ...},
    "writes another base of the rotation": {"rope_theta": 500.0, "rope_parameters": OTHER_BASE},
    "uses gelu": {"hidden_act": "gelu"},
    "does not tie the head": {"tie_word_embeddings": False},
}
MIXTURE_MUTANTS = {
    "swaps gate and up": {"weights": swapped("w1", "w3")},
    "mixes up the experts": {"weights": next_expert},
    "turns the router round": {"weights": changed("moe.gate", torch.neg)},
    "uses one expert of a token": {"num_experts_per_tok": 1},
    "uses three experts of a token": {"num_experts_per_tok": 3},
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_notices(mutant, run, folder, tmp_path):
    to = mutated(folder, tmp_path, **MUTANTS[mutant])
    assert difference(to, run.model) > 1_000 * TOLERANCE, f"accepted an export that {mutant}"


@pytest.mark.parametrize("mutant", MIXTURE_MUTANTS)
def test_the_comparison_notices_in_a_mixture(mutant, mixture, tmp_path):
    run, folder = mixture
    to = mutated(folder, tmp_path, **MIXTURE_MUTANTS[mutant])
    assert difference(to, run.model) > 100 * TOLERANCE, f"accepted an export that {mutant}"


def test_the_same_run_gives_the_same_bytes(run, folder, tmp_path):
    assert files_of(export(run.folder, tmp_path / "a")) == files_of(folder)
    assert {path.name for path in folder.iterdir()} == NAMES


def test_a_run_on_ranks_is_exported_like_any_other(tmp_path):
    config = TINY.replace(steps=3, ranks=2, parallel="zero3", warmup_steps=1, corpus_bytes=30_000)
    train.fit_on_ranks(config, tmp_path / "run")
    to = export(tmp_path / "run", tmp_path / "exported")
    assert difference(to, train.resume(tmp_path / "run").model) < TOLERANCE


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    run = trained(folder / "run", shape=EXPERTS, steps=12, corpus_bytes=30_000).run
    run.model.eval()  # capacity is for training
    return run, export(run.folder, folder / "exported")


def test_a_mixture_is_read_as_written_to_the_bit_and_computes_the_same(mixture):
    run, folder = mixture
    theirs = loaded_right(folder, run).config
    assert (theirs.num_local_experts, theirs.num_experts_per_tok) == (4, 2)
    assert (theirs.intermediate_size, theirs.sliding_window) == (24, None)
    assert (theirs.router_aux_loss_coef, theirs.output_router_logits) == (0.01, False)
    assert theirs.router_jitter_noise == 0
    assert "model.layers.0.block_sparse_moe.experts.3.w2.weight" in weights_of(folder, run)


def test_the_card_of_a_mixture_says_what_it_is(mixture):
    run, folder = mixture
    rows, card = card_of(folder)
    total = sum(p.numel() for p in run.model.parameters())
    spare = sum(p.numel() for n, p in run.model.named_parameters() if ".experts." in n) // 2
    assert f"{total:,} parameters, of which a token uses {total - spare:,}" in card
    assert "`MixtralForCausalLM`" in card
    facts = {"experts in a block": "4", "experts of a token": "2"}
    facts |= {"hidden units of an expert": "24", "weight of the balance loss": "0.02"}
    facts |= {"capacity factor of an expert": "1.5"}
    assert {name: rows[name][0] for name in facts} == facts
    assert 'tags: ["mixtral", "llmcourse"]' in card
    assert "Llama" not in card


def test_a_model_with_qk_norm_is_exported_as_a_qwen3(tmp_path):
    """Its heads together are wider than a token, and do not divide it."""
    shape = {"qk_norm": True, "width": 30, "head_size": 12, "num_layers": 3, "tied_head": False}
    run = trained(tmp_path / "run", shape=shape, steps=12, corpus_bytes=30_000).run
    to = export(run.folder, tmp_path / "exported")
    theirs = loaded_right(to, run)
    assert all(kind == "full_attention" for kind in theirs.config.layer_types)
    rows, card = card_of(to)
    assert "`Qwen3ForCausalLM`" in card
    assert "RMSNorm" in rows["norm of queries and keys"][0]
    loaded = load_huggingface(to)
    assert loaded.config == run.config.model
    assert all(torch.equal(w, run.model.state_dict()[n]) for n, w in loaded.state_dict().items())
    mutated(to, to, weights=changed("q_norm", torch.ones_like))
    assert difference(to, run.model) > 100 * TOLERANCE


def known_characters():
    """Characters of Unicode 3.2, which every library knows, and one of planes that have none."""
    category = unicodedata.ucd_3_2_0.category
    known = [chr(c) for c in range(0x110000) if category(chr(c)) not in ("Cn", "Cs")]
    return [*known[:1_500], *known[1_500::41], "\u0740", "\u07c0", "\U00040000", "\U00080000"]


KNOWN = known_characters()

AWKWARD = (
    "I'll do don''t 12345 x\u00a0y\r\n \n\n\t  z   !?  ",
    f"{END_OF_TEXT * 2} a {END_OF_TEXT}\n<|endoftext <|endoftext|",
    *("", " ", "a" * 300, "a\ufffd \ufffd\ufffd b"),
    *("".join(KNOWN), " ".join(KNOWN), "".join(reversed(KNOWN))),
)


@pytest.fixture(scope="module")
def face(folder):
    """As the card says, without a limit whose crossing would be worth a warning."""
    return transformers.AutoTokenizer.from_pretrained(folder, model_max_length=1_000_000)


@given(text=st.lists(st.sampled_from([*KNOWN, *" '\n.a1" * 100, "'ll", END_OF_TEXT])).map("".join))
def test_made_up_text_gets_the_same_ids(text, face, run):
    assert face(text)["input_ids"] == run.prepared.tokenizer.encode(text)


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_awkward_text_gets_the_same_ids(text, face, run):
    ids = face(text)["input_ids"]
    assert ids == run.prepared.tokenizer.encode(text)
    assert face.decode(ids) == text


def test_every_id_means_the_same(face, folder, run):
    assert len(set("".join(KNOWN).encode())) == 256 - 13  # all bytes that occur in UTF-8
    ours = run.prepared.tokenizer
    assert len(face) == ours.vocab_size
    for i in range(ours.vocab_size):
        assert face.decode([i]) == ours.decode([i])
    assert face.eos_token_id == face.bos_token_id == ours.special_tokens[END_OF_TEXT]
    # Without it transformers 4 would take its own class for a Llama, which adds a token.
    wrapped = json.loads((folder / "tokenizer_config.json").read_text())
    assert wrapped["tokenizer_class"] == "PreTrainedTokenizerFast"
    fast = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert fast("It's 12 o'clock.")["input_ids"] == ours.encode("It's 12 o'clock.")


@pytest.mark.parametrize("pattern", [GPT2, LLAMA3])
def test_words_are_cut_as_the_pattern_says(pattern):
    """With merges that would cross every cut; those of so small a run happen to cross none."""
    pairs = [(b"t", b"h"), (b"th", b"e"), (b"'", b"t"), (b"l", b"l"), (b"e", b" "), (b" ", b" ")]
    pairs += [(b"\n", b"\n"), (b"\n\n", b" "), (b"3", b"4"), (b"34", b"5"), (b"a", b"1")]
    pairs += [(b"!", b"the")]
    ours, uncut = (
        Tokenizer.from_merges(pairs, special_tokens=[END_OF_TEXT], pattern=each)
        for each in (pattern, r"(?s:.+)")
    )
    peer = tokenizers.Tokenizer.from_str(json.dumps(huggingface.tokenizer_json(ours)))
    for text in ("'the", "a1 'll", "the  the", "12345", "!the", ".\n\n a\n\n", "".join(KNOWN[::7])):
        assert peer.encode(text).ids == ours.encode(text)
    assert uncut.encode("'the a1") != ours.encode("'the a1")


def test_a_tokenizer_without_a_separator_is_refused():
    with pytest.raises(ValueError, match="no special token"):
        huggingface.tokenizer_json(Tokenizer.from_merges([]))


def card_of(folder):
    text = (folder / "README.md").read_text()
    rows = re.findall(r"^\| (.+?) \| (.+?) \|(?: (.+?) \|)?$", text, flags=re.MULTILINE)
    return {name: (value, step) for name, value, step in rows}, text


def number(text):
    return float(re.match(r"[\d,.]+", text)[0].replace(",", ""))


def test_the_card_has_the_figures_of_the_run(result, folder):
    run, (rows, text), code = result.run, card_of(folder), checkpoint.code_version()
    last, tokens = result.validations[30], run.prepared.training[:]
    num_bytes = len(run.prepared.tokenizer.decode_bytes(tokens))
    weights = (folder / "model.safetensors").read_bytes()
    assert number(rows["parameters"][0]) == sum(p.numel() for p in run.model.parameters())
    assert number(rows["tokens seen"][0]) == 30 * 8 * 32
    for name, facts in {
        "bits per byte, held-out text": (f"{last.bits_per_byte:.4f}", "30"),
        "nats per token, held-out text": (f"{last.nats_per_token:.4f}", "30"),
        "nats per token, last training batch": (f"{result.reports[-1].loss:.4f}", "30"),
        "steps": ("30 of 30", ""),
        "to train on": (f"{num_bytes:,} bytes, {len(tokens):,} tokens", ""),
        "precision": ("float32", ""),
        "seed": ("0", ""),
        "SHA-256 of model.safetensors": (f"`{hashlib.sha256(weights).hexdigest()}`", ""),
        "weights": (f"model.safetensors, float32, {len(weights):,} bytes", ""),
    }.items():
        assert rows[name] == facts
    assert "0.006" in rows["learning rate"][0]
    assert code["version"] in rows["code that trained it"][0]
    assert code["source_sha256"] in rows["SHA-256 of its sources"][0]
    for section in ("Shape", "Data", "Training", "Results", "Use and limits", "How to load"):
        assert f"\n## {section}\n\n" in text
    assert "None" not in text


def test_the_hub_can_read_the_front_matter(result, folder):
    card = huggingface_hub.ModelCard.load(folder / "README.md").data
    named = (card.library_name, card.pipeline_tag, card.language, card.model_name)
    assert named == ("transformers", "text-generation", "en", "a")
    (found,) = card.eval_results
    assert (found.metric_type, found.dataset_type) == ("bits_per_byte", "stories")
    assert found.metric_value == result.validations[30].bits_per_byte


def test_what_the_card_tells_to_run_runs(folder, monkeypatch):
    _, text = card_of(folder)
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(folder.parent)
    names = {}
    torch.manual_seed(0)
    exec(code, names)  # the card's own words
    assert names["written"].shape[1] > 5


def test_a_name_with_quotes_is_still_yaml_and_python(run, tmp_path, monkeypatch):
    to = export(run.folder, tmp_path / 'a "b": c # é')
    assert huggingface_hub.ModelCard.load(to / "README.md").data.model_name == to.name
    (code,) = re.findall(r"^folder = .*$", (to / "README.md").read_text(), flags=re.MULTILINE)
    names = {}
    exec(code, names)
    assert names["folder"] == to.name


@pytest.mark.parametrize(
    ("settings", "name", "fact"),
    [
        ({"corpus": "sotu"}, "licence of the text", "public domain"),
        ({"corpus": "python"}, "licence of the text", "PSF-2.0"),
        ({"precision": "bf16"}, "precision", "bfloat16"),
        ({"seed": 3}, "seed", "3"),
        (DECAY, "learning rate", "7 steps of linear decay to 0.0003"),
    ],
)
def test_the_card_tells_what_is_set(settings, name, fact, run, tmp_path):
    copy = altered(run, tmp_path / "run", **settings)
    rows, text = card_of(export(copy, tmp_path / "exported", dtype="bfloat16"))
    assert fact in rows[name][0]
    assert f"`{settings.get('corpus', 'stories')}`" in rows["corpus"][0]
    assert f'language: "{"code" if "PSF" in fact else "en"}"\n' in text
    assert "Measured before the weights were rounded to bfloat16." in text


def test_there_is_a_card_for_every_corpus():
    kinds = [settings_of(each)["corpus"].hint for each in (TrainConfig, TuneConfig)]
    assert set(_CORPORA) == {corpus for kind in kinds for corpus in get_args(kind)}


def test_an_interrupted_run_is_told_as_such(tmp_path):
    run = train.start(TINY, tmp_path / "run")
    train.fit(run, interrupted=lambda: run.steps_done == 17)
    # A crash later on: metrics of steps whose weights are lost, the last line cut short.
    with (run.folder / "metrics.jsonl").open("a") as file:
        row = {"step": 20, "loss": 9.0, "validation_loss": 9.0, "validation_bits_per_byte": 9.0}
        file.write(json.dumps(row) + "\n" + '{"step": 21, "lo')
    rows, text = card_of(export(run.folder, tmp_path / "exported"))
    assert (rows["steps"][0], number(rows["tokens seen"][0])) == ("17 of 30", 17 * 8 * 32)
    assert rows["bits per byte, held-out text"][1] == "10"
    assert rows["nats per token, last training batch"][1] == "17"
    assert "These weights are of step 17; the validation is an earlier one." in text


@pytest.fixture
def copied(run, tmp_path):
    return shutil.copytree(run.folder, tmp_path / "run")


def test_without_metrics_the_card_claims_no_result(copied, tmp_path):
    (copied / "metrics.jsonl").unlink()
    to = export(copied, tmp_path / "exported")
    rows, text = card_of(to)
    assert "No result was recorded." in text
    assert not [name for name in rows if "per byte" in name]
    assert huggingface_hub.ModelCard.load(to / "README.md").data.eval_results is None


def test_a_loss_of_an_earlier_step_is_not_called_the_last(copied, tmp_path):
    lines = (copied / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copied / "metrics.jsonl").write_text("".join(lines[:15]))
    rows, _ = card_of(export(copied, tmp_path / "exported"))
    assert "nats per token, last training batch" not in rows
    assert rows["nats per token, held-out text"][1] == "10"


def test_a_damaged_checkpoint_is_passed_over(copied, tmp_path):
    _, newest = checkpoint.list_checkpoints(copied / "checkpoints")
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    to = export(copied, tmp_path / "exported")
    assert card_of(to)[0]["steps"][0] == "20 of 30"
    weights_of(to, train.resume(copied))


@pytest.mark.parametrize("part", model.PARTS)
def test_a_model_with_a_part_removed_is_refused(part):
    assert re.search(f"without {part} is no Llama.*--without nothing", obstacle(TINY.model, part))


NOT_EXPORTABLE = [
    ({"without": "gate"}, "without gate is no Llama"),
    ({"model": replace(TINY.model, width=30)}, "num_heads divides width, here 30 and 4"),
]


@pytest.mark.parametrize(("settings", "message"), NOT_EXPORTABLE)
def test_a_run_learns_at_its_start_that_it_cannot_be_exported(settings, message):
    told = train_command.settings_text(TINY.replace(**settings), "run a").splitlines()
    assert re.search(f"^this run will not be exportable: .*{message}", told[-1])
    assert "exportable" not in train_command.settings_text(TINY, "run a")


@pytest.mark.parametrize(("settings", "message"), NOT_EXPORTABLE)
def test_what_is_no_llama_leaves_nothing(settings, message, run, tmp_path, monkeypatch):
    """By the settings beside the checkpoints, before one is read, and by those in the newest."""
    copy = altered(run, tmp_path / "run", **settings)
    monkeypatch.setattr(export_module, "config_and_checkpoint", None)
    with pytest.raises(ValueError, match=message):
        export(copy, tmp_path / "exported")
    for odd in ("", "[]", "{}", '{"model": 3}', '{"model": {"width": "x"}}'):
        (copy / "config.json").write_text(odd)
        with pytest.raises(TypeError, match="not callable"):  # went on to the checkpoint
            export(copy, tmp_path / "exported")
    monkeypatch.undo()
    (copy / "config.json").unlink()
    with pytest.raises(ValueError, match=message):
        export(copy, tmp_path / "exported")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["embedding", "blocks.1.attention.w_q"])
def test_other_weights_than_those_of_the_settings_are_refused(name, run, tmp_path):
    saved = checkpoint.load(checkpoint.latest(run.folder / "checkpoints"))
    for broken in (
        {n: w for n, w in saved.model.items() if n != name},
        saved.model | {"router": torch.ones(3)},
        saved.model | {name: saved.model[name][:-1]},
    ):
        with pytest.raises(ValueError, match="not those of its settings"):
            export_module._check_weights(replace(saved, model=broken), run.config)


def test_what_cannot_be_exported_is_refused_and_nothing_is_left(copied, tmp_path):
    with pytest.raises(Exception, match="dtype"):  # before it looks for the run
        export(tmp_path / "nowhere", tmp_path / "to", dtype="float16")
    with pytest.raises(ValueError, match="holds no run to go on with"):
        export(tmp_path / "nowhere", tmp_path / "to")
    (copied / "data" / "tokenizer" / "vocab.json").unlink()
    with pytest.raises(ValueError, match=r"no tokenizer in .*vocab\.json is missing"):
        export(copied, tmp_path / "to")
    assert list(tmp_path.iterdir()) == [copied]


def test_force_replaces_exports_only(run, tmp_path):
    to = tmp_path / "a"
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")}

    def refused(message, to=to, force=True):
        with pytest.raises(ValueError, match=message):
            export(run.folder, to, dtype="bfloat16", force=force)

    refused("it holds 'checkpoints'", run.folder)
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")} == before
    before = files_of(export(run.folder, to))
    refused("exists", force=False)
    assert files_of(to) == before
    (to / "notes.txt").write_text("mine")
    refused(r"'notes\.txt'")
    assert (to / "notes.txt").read_text() == "mine"
    (to / "notes.txt").unlink()
    (to / "config.json").rename(tmp_path / "file")
    refused(r"it lacks 'config\.json'")
    assert len(files_of(to)) == len(NAMES) - 1
    refused("is no folder", tmp_path / "file")
    (tmp_path / "file").rename(to / "config.json")
    assert files_of(to) == before
    export(run.folder, to, dtype="bfloat16", force=True)
    assert json.loads((to / "config.json").read_text())["dtype"] == "bfloat16"
    (tmp_path / "empty").mkdir()
    assert files_of(export(run.folder, tmp_path / "empty", force=True)).keys() == NAMES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "empty"]


def fail_at(monkeypatch, name, owner, call):
    """Let the n-th call of a function, counted from 0, fail as on a full disk."""
    original, calls = getattr(owner, name), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == call + 1:
            raise OSError(28, "No space left on device", str(args[0]))
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    return calls


FAILURES = [(force, "write_atomically", n) for force in (False, True) for n in range(len(NAMES))]
FAILURES += [(False, "rename", 0), (True, "rename", 0), (True, "rename", 1)]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_full_disk_leaves_nothing_and_loses_nothing(failure, run, tmp_path, monkeypatch):
    force, name, call = failure
    to, owner = tmp_path / "a", Path if name == "rename" else whole_folder
    before = files_of(export(run.folder, to)) if force else None
    calls = fail_at(monkeypatch, name, owner, call)
    with pytest.raises(OSError, match="No space left"):
        export(run.folder, to, dtype="bfloat16", force=force)
    assert len(calls) == call + 1 or (name == "rename" and len(calls) > call)
    assert [path.name for path in tmp_path.iterdir()] == (["a"] if force else [])
    assert not force or files_of(to) == before


def test_what_came_meanwhile_is_kept(run, tmp_path, monkeypatch):
    to = tmp_path / "a"
    original = export_module._contents

    def slow(*args):
        to.mkdir()
        (to / "theirs").write_text("x")
        return original(*args)

    monkeypatch.setattr(export_module, "_contents", slow)
    with pytest.raises(ValueError, match="exists"):
        export(run.folder, to)
    assert [path.name for path in to.iterdir()] == ["theirs"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux to name descriptors")
def test_files_are_on_disk_before_the_folder_has_its_name(run, tmp_path, monkeypatch):
    """Every file, then the temporary folder is synced before the rename, the folder above after."""
    events = []
    original_sync, original_rename = os.fsync, Path.rename

    def record_sync(descriptor):
        events.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))
        return original_sync(descriptor)

    def record_rename(self, target):
        events.append(("rename", self))
        return original_rename(self, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "rename", record_rename)
    export(run.folder, tmp_path / "a")
    (place,) = (i for i, (kind, _) in enumerate(events) if kind == "rename")
    temporary = events[place][1]
    synced = [path.name for _, path in events[:place]]
    assert all(any(name in path for path in synced) for name in NAMES)
    assert events[place - 1] == ("sync", temporary)
    assert events[place + 1 :] == [("sync", tmp_path)]


SCRIPT = """
import os, runpy, signal, sys

# As python -m does it; later imports would find the module imported already.
run, to, *folders = sys.argv[1:]
sys.argv = ["export", "--run", run, "--to", to, "--dtype", "bfloat16"]
try:
    runpy.run_module("llmcourse_labs.export", run_name="__main__", alter_sys=True)
except SystemExit as error:
    print(error.code)

from pathlib import Path
import torch
from llmcourse_labs.export import folder as export
from llmcourse_labs.real import whole_folder

def kill_at(original, number):
    calls = []
    def patched(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)
    return patched

torch.set_num_threads(1)
places = (whole_folder, "write_atomically", 4), (Path, "rename", 2)
for folder, (owner, name, number) in zip(folders, places):
    sys.stdout.flush()
    if os.fork() == 0:
        setattr(owner, name, kill_at(getattr(owner, name), number))
        export.export(run, folder, force=True, dtype="bfloat16")
        os._exit(1)
    _, status = os.wait()
    print(os.WTERMSIG(status))
"""


@pytest.fixture(scope="module")
def processes(run, tmp_path_factory):
    """What a process of its own did: the command line, and two exports that were killed."""
    folders = [tmp_path_factory.mktemp(name) / "a" for name in ("command", "writing", "renaming")]
    before = [files_of(export(run.folder, to)) for to in folders[1:]]
    command = [sys.executable, "-W", "error", "-c", SCRIPT, run.folder, *folders]
    return subprocess.run(command, check=False, capture_output=True, text=True), folders, before[0]


def test_an_export_that_is_killed_while_writing_loses_nothing(processes, run):
    done, (_, to, _), before = processes
    assert done.stdout.split()[-2] == str(int(signal.SIGKILL)), done.stderr
    assert files_of(to) == before
    assert [p.name for p in to.parent.iterdir() if not p.name.startswith(".")] == ["a"]
    export(run.folder, to, force=True)  # what was left is in nobody's way
    assert files_of(to) == before


def test_an_export_that_is_killed_between_the_renames_leaves_both_whole(processes):
    done, (_, _, to), before = processes
    assert done.stdout.split()[-1] == str(int(signal.SIGKILL)), done.stderr
    (kept,), (new,) = (to.parent.glob(f".a.*.{end}") for end in ("old", "tmp"))
    assert not to.exists()
    assert files_of(kept) == before
    assert files_of(new).keys() == NAMES


def test_the_command_line_exports(processes):
    done, (to, *_), before = processes
    assert done.stderr == ""
    assert done.stdout.startswith(f"exported to {to}\n0\n")
    assert files_of(to).keys() == NAMES
    assert files_of(to) != before
    assert json.loads((to / "config.json").read_text())["dtype"] == "bfloat16"


def failed(capsys, run="x", to="y", *more, status=2):
    given = ("--run", run), ("--to", to)
    words = [str(word) for flag, value in given if value for word in (flag, value)]
    assert main([*words, *more]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("llmcourse export: ")
    return line


def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "give --run" in failed(capsys, run=None)
    assert "required" in failed(capsys, to=None)
    assert "dtype" in failed(capsys, "x", "y", "--dtype", "int8")
    assert "colour" in failed(capsys, "x", "y", "--colour", "red")
    assert "holds no run to go on with" in failed(capsys)
    assert "exists" in failed(capsys, to=".")
    assert list(tmp_path.iterdir()) == []
    train.start(TINY, tmp_path / "run")
    capsys.readouterr()
    assert "holds no checkpoint yet: " in failed(capsys, "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def interrupted(*_args, **_kwargs):
    raise KeyboardInterrupt


def test_a_full_disk_and_an_interruption_are_one_line(run, tmp_path, monkeypatch, capsys):
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, "write_atomically", whole_folder, 0)
        assert "No space left on device" in failed(capsys, run.folder, tmp_path / "a")
    monkeypatch.setattr(whole_folder, "_put_in_place", interrupted)
    assert "interrupted" in failed(capsys, run.folder, tmp_path / "a", status=130)
    assert list(tmp_path.iterdir()) == []


def test_the_preset_of_mixtral_has_the_published_weight_of_the_balance_loss():
    """Its config.json says 0.02, for a loss that is k = 2 times ours."""
    written = huggingface.config_json(model.mixtral_8x7b(), end_id=2, dtype="bfloat16")
    assert written["router_aux_loss_coef"] == 0.02
