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
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args, get_type_hints

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
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import GPT2, LLAMA3, Tokenizer
from llmcourse.train import TrainConfig
from llmcourse.train import __main__ as train_command
from llmcourse.train.export import export, huggingface
from llmcourse.train.export import folder as export_module
from llmcourse.train.export.folder import NAMES, main
from llmcourse.train.export.model_card import _CORPORA

TheirLlama = transformers.LlamaForCausalLM
TINY = train.PRESETS["tiny"]()
# Not the default of transformers, and large enough that leaving it out is seen.
TINY = replace(TINY, model=replace(TINY.model, norm_eps=3e-4))
TOLERANCE = 3e-6  # float32; right exports were measured at up to 7e-7, the mildest mutant at 2e-2
SHAPES = {
    "untied, one key for all": {"tied_head": False, "num_kv_heads": 1, "rope_theta": 500.0},
    "tied, a key for each, odd sizes": {
        "num_kv_heads": 4,
        "width": 36,
        "head_size": 6,
        "hidden": 52,
        "num_layers": 3,
        "norm_eps": 1e-5,
    },
}


def trained(folder, *, shape=None, **settings):
    """A short run; its weights move far from where they began."""
    config = replace(TINY, model=replace(TINY.model, **shape or {}), **settings)
    return train.fit(train.start(config, folder))


def altered(run, folder, **settings):
    """A copy of a run that has other settings."""
    shutil.copytree(run.folder, folder)
    config = replace(run.config, **settings)
    (folder / "config.json").write_text(json.dumps(asdict(config)))
    saved = checkpoint.load(checkpoint.latest(folder / "checkpoints"))
    checkpoint.save(
        folder / "checkpoints", step=saved.step, model=saved.model, config=asdict(config)
    )
    return folder


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The run that most tests export."""
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


@torch.no_grad()
def difference(folder, ours):
    """How far transformers' logits are from ours, relative to the largest."""
    family = transformers.MixtralForCausalLM if ours.config.num_experts else TheirLlama
    family = transformers.Qwen3ForCausalLM if ours.config.qk_norm else family
    theirs = family.from_pretrained(folder, dtype=torch.float32)
    ids = ids_of(ours.config)
    return checks.relative_error(ours(ids), theirs(ids).logits)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- weights


def test_logits_equal_ours(run, folder):
    assert difference(folder, run.model) < TOLERANCE


def test_the_shape_is_read_as_written(run, folder):
    theirs, ours = transformers.AutoConfig.from_pretrained(folder), run.config.model
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
    context = run.config.model.context_length
    ours = model.generate(
        run.model,
        prompt,
        max_new_tokens=context - 1,
        generator=torch.Generator(),
        temperature=0,
        stop_id=end,
    )
    settings.do_sample, settings.temperature, settings.top_k = False, None, None
    mask = torch.ones_like(prompt)
    assert torch.equal(theirs.generate(prompt, attention_mask=mask), ours)
    assert ours.shape[1] > 10


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_ours_in_other_shapes(shape, tmp_path):
    run = trained(tmp_path / "run", shape=SHAPES[shape], steps=8, corpus_bytes=30_000).run
    to = export(run.folder, tmp_path / "exported")
    assert difference(to, run.model) < TOLERANCE
    theirs = transformers.AutoModelForCausalLM.from_pretrained(to)
    assert type(theirs) is transformers.LlamaForCausalLM
    assert theirs.dtype == torch.float32
    assert theirs.num_parameters() == sum(p.numel() for p in run.model.parameters())


def test_no_weight_is_missing_or_left_over_or_tied_by_accident(folder):
    _, report = transformers.LlamaForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_weight_is_the_same_bits(dtype, run, tmp_path):
    to = export(run.folder, tmp_path / "exported", dtype=dtype)
    loaded = safetensors.torch.load_file(to / "model.safetensors")
    assert {weight.dtype for weight in loaded.values()} == {getattr(torch, dtype)}
    back = model.from_huggingface(loaded, run.config.model)
    expected = run.model.state_dict()
    assert back.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(back[name], weight.to(getattr(torch, dtype))), name
    with safetensors.safe_open(to / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_bfloat16_is_loaded_as_such_and_is_near(run, tmp_path):
    to = export(run.folder, tmp_path / "exported", dtype="bfloat16")
    assert transformers.LlamaForCausalLM.from_pretrained(to).dtype == torch.bfloat16
    # Rounded to 8 bits, then computed in float32: far above rounding, far below another model.
    assert 1e-4 < difference(to, run.model) < 3e-2


def swapped(tensors, a, b):
    """Two parts of each layer in each other's place."""
    other = {a: b, b: a}
    return {re.sub(f"{a}|{b}", lambda m: other[m[0]], n): w for n, w in tensors.items()}


def unpermuted(tensors, config):
    ours = model.from_huggingface(tensors, config)
    return tensors | {
        f"model.layers.{layer}.self_attn.{name}_proj.weight": ours[
            f"blocks.{layer}.attention.w_{name}"
        ]
        for layer in range(config.num_layers)
        for name in "qk"
    }


MUTANTS = {
    "rotates halves with weights for adjacent pairs": lambda t, c: (unpermuted(t, TINY.model), c),
    "swaps gate and up": lambda t, c: (swapped(t, "gate_proj", "up_proj"), c),
    "swaps key and value": lambda t, c: (swapped(t, "k_proj", "v_proj"), c),
    "swaps the norms": lambda t, c: (
        swapped(t, "input_layernorm", "post_attention_layernorm"),
        c,
    ),
    "leaves eps to the default": lambda t, c: (t, {k: v for k, v in c.items() if "eps" not in k}),
    "writes another base of the rotation": lambda t, c: (
        t,
        c | {"rope_theta": 500.0, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "uses gelu": lambda t, c: (t, c | {"hidden_act": "gelu"}),
    "does not tie the head": lambda t, c: (t, c | {"tie_word_embeddings": False}),
    "rounds to bfloat16": lambda t, c: ({n: w.bfloat16() for n, w in t.items()}, c),
    "shifts the embedding by a row": lambda t, c: (
        t | {"model.embed_tokens.weight": t["model.embed_tokens.weight"].roll(1, 0)},
        c,
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_notices(mutant, run, folder, tmp_path):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    tensors, config = MUTANTS[mutant](tensors, config)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert difference(tmp_path, run.model) > 1_000 * TOLERANCE, f"accepted an export that {mutant}"


def test_the_same_run_gives_the_same_bytes(run, folder, tmp_path):
    assert files_of(export(run.folder, tmp_path / "a")) == files_of(folder)
    assert {path.name for path in folder.iterdir()} == NAMES


def test_a_run_on_ranks_is_exported_like_any_other(tmp_path):
    config = replace(TINY, steps=3, ranks=2, parallel="zero3", warmup_steps=1, corpus_bytes=30_000)
    train.fit_on_ranks(config, tmp_path / "run")
    to = export(tmp_path / "run", tmp_path / "exported")
    assert difference(to, train.resume(tmp_path / "run").model) < TOLERANCE


# --- a mixture of experts

EXPERTS = {
    "num_experts": 4,
    "experts_per_token": 2,
    "hidden": 24,
    "balance_weight": 0.02,
    "capacity_factor": 1.5,
}


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """A run with experts, and its export."""
    folder = tmp_path_factory.mktemp("mixture")
    run = trained(folder / "run", shape=EXPERTS, steps=12, corpus_bytes=30_000).run
    run.model.eval()  # capacity is for training
    return run, export(run.folder, folder / "exported")


def test_logits_of_a_mixture_equal_ours(mixture):
    run, folder = mixture
    assert difference(folder, run.model) < TOLERANCE
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert type(theirs) is transformers.MixtralForCausalLM
    assert not any(report.values()), report
    assert theirs.num_parameters() == sum(p.numel() for p in run.model.parameters())


def test_the_shape_of_a_mixture_is_read_as_written(mixture):
    theirs = transformers.AutoConfig.from_pretrained(mixture[1])
    assert (theirs.num_local_experts, theirs.num_experts_per_tok) == (4, 2)
    assert (theirs.intermediate_size, theirs.sliding_window) == (24, None)
    assert (theirs.router_aux_loss_coef, theirs.output_router_logits) == (0.01, False)
    assert theirs.router_jitter_noise == 0


def test_every_weight_of_a_mixture_is_the_same_bits(mixture):
    run, folder = mixture
    loaded = safetensors.torch.load_file(folder / "model.safetensors")
    assert "model.layers.0.block_sparse_moe.experts.3.w2.weight" in loaded
    back = model.from_huggingface(loaded, run.config.model)
    expected = run.model.state_dict()
    assert back.keys() == expected.keys()
    assert all(torch.equal(back[name], expected[name]) for name in expected)


def next_expert(tensors):
    """The downward matrix of every expert in its neighbour's place."""
    return {
        re.sub(r"experts\.(\d)\.w2", lambda m: f"experts.{(int(m[1]) + 1) % 4}.w2", n): w
        for n, w in tensors.items()
    }


MIXTURE_MUTANTS = {
    "swaps gate and up": lambda t, c: (swapped(t, "w1", "w3"), c),
    "mixes up the experts": lambda t, c: (next_expert(t), c),
    "uses one expert of a token": lambda t, c: (t, c | {"num_experts_per_tok": 1}),
    "uses three experts of a token": lambda t, c: (t, c | {"num_experts_per_tok": 3}),
    "turns the router round": lambda t, c: (
        {n: -w if "moe.gate" in n else w for n, w in t.items()},
        c,
    ),
}


@pytest.mark.parametrize("mutant", MIXTURE_MUTANTS)
def test_the_comparison_notices_in_a_mixture(mutant, mixture, tmp_path):
    run, folder = mixture
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    tensors, config = MIXTURE_MUTANTS[mutant](tensors, config)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert difference(tmp_path, run.model) > 100 * TOLERANCE, f"accepted an export that {mutant}"


def test_the_card_of_a_mixture_says_what_it_is(mixture):
    run, folder = mixture
    card = (folder / "README.md").read_text()
    total = sum(p.numel() for p in run.model.parameters())
    spare = sum(p.numel() for n, p in run.model.named_parameters() if ".experts." in n) // 2
    assert f"{total:,} parameters, of which a token uses {total - spare:,}, that" in card
    assert "It is a Mixtral: transformers loads it as `MixtralForCausalLM`." in card
    for row in (
        "| experts in a block | 4 |",
        "| experts of a token | 2 |",
        "| hidden units of an expert | 24 |",
        "| weight of the balance loss | 0.02 |",
        "| capacity factor of an expert | 1.5 |",
    ):
        assert row in card
    assert 'tags: ["mixtral", "llmcourse"]' in card
    assert "Llama" not in card


# --- normalised queries and keys


def test_a_model_with_qk_norm_is_exported_as_a_qwen3(tmp_path):
    """Its heads together are wider than a token, and do not divide it."""
    shape = {"qk_norm": True, "width": 30, "head_size": 12, "num_layers": 3, "tied_head": False}
    run = trained(tmp_path / "run", shape=shape, steps=12, corpus_bytes=30_000).run
    to = export(run.folder, tmp_path / "exported")
    assert difference(to, run.model) < TOLERANCE
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(to, output_loading_info=True)
    assert type(theirs) is transformers.Qwen3ForCausalLM
    assert not any(report.values()), report
    assert theirs.num_parameters() == sum(p.numel() for p in run.model.parameters())
    assert all(kind == "full_attention" for kind in theirs.config.layer_types)
    card = (to / "README.md").read_text()
    assert "It is a Qwen3: transformers loads it as `Qwen3ForCausalLM`." in card
    assert "| norm of queries and keys | RMSNorm, before they are rotated |" in card
    loaded = model.load_huggingface(to)
    assert loaded.config == run.config.model
    assert all(torch.equal(w, run.model.state_dict()[n]) for n, w in loaded.state_dict().items())
    # The comparison notices norms that are left at 1.
    tensors = safetensors.torch.load_file(to / "model.safetensors")
    ones = {n: torch.ones_like(w) if "q_norm" in n else w for n, w in tensors.items()}
    safetensors.torch.save_file(ones, to / "model.safetensors", metadata={"format": "pt"})
    assert difference(to, run.model) > 100 * TOLERANCE


def test_a_mixture_of_odd_sizes_is_exported(tmp_path):
    """Its heads do not divide its width, and its rows are no whole 16 bytes."""
    shape = EXPERTS | {"width": 30, "hidden": 21}
    run = trained(tmp_path / "run", shape=shape, steps=8, corpus_bytes=30_000).run
    run.model.eval()
    assert difference(export(run.folder, tmp_path / "exported"), run.model) < TOLERANCE


# --- the tokenizer


def known_characters():
    """Characters of Unicode 3.2, which every library knows, and one of planes that have none."""
    category = unicodedata.ucd_3_2_0.category
    known = [chr(c) for c in range(0x110000) if category(chr(c)) not in ("Cn", "Cs")]
    return [*known[:1_500], *known[1_500::41], "\u0740", "\u07c0", "\U00040000", "\U00080000"]


KNOWN = known_characters()
TEXT = st.lists(st.sampled_from([*KNOWN, *" '\n.a1" * 100, "'ll", END_OF_TEXT])).map("".join)

AWKWARD = (
    "I'll don''t 12345 x\u00a0y\r\n \n\n\t  z   !?  ",
    f"{END_OF_TEXT}{END_OF_TEXT} a {END_OF_TEXT}\n<|endoftext <|endoftext|",
    "",
    " ",
    "a" * 300,
)


@pytest.fixture(scope="module")
def face(folder):
    """As the card says, without a limit whose crossing would be worth a warning."""
    return transformers.AutoTokenizer.from_pretrained(folder, model_max_length=1_000_000)


def test_all_bytes_get_the_same_ids(face, run):
    ours = run.prepared.tokenizer
    for text in ("".join(KNOWN), " ".join(KNOWN), "".join(reversed(KNOWN))):
        # 13 bytes never occur in UTF-8.
        assert len(set(text.encode())) == 256 - 13
        assert face(text)["input_ids"] == ours.encode(text)
        assert face.decode(face(text)["input_ids"]) == text


@given(text=TEXT)
def test_made_up_text_gets_the_same_ids(text, face, run):
    assert face(text)["input_ids"] == run.prepared.tokenizer.encode(text)


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_gets_the_same_ids(text, face, run):
    ids = face(text)["input_ids"]
    assert ids == run.prepared.tokenizer.encode(text)
    assert face.decode(ids) == text


def test_generated_text_gets_the_same_ids(face, result, run):
    texts = [result.samples[30], *(train.sample(run, temperature=t) for t in (0.0, 1.0, 5.0))]
    assert any(len(text) > 20 for text in texts)
    for text in texts:
        assert face(text)["input_ids"] == run.prepared.tokenizer.encode(text)


def test_every_id_means_the_same(face, run):
    ours = run.prepared.tokenizer
    assert len(face) == ours.vocab_size
    for i in range(ours.vocab_size):
        assert face.decode([i]) == ours.decode([i])
    assert face.eos_token_id == face.bos_token_id == ours.special_tokens[END_OF_TEXT]


def test_fast_class_reads_it_too(folder, run):
    # Without it transformers 4 would take its own class for a Llama, which adds a token.
    wrapped = json.loads((folder / "tokenizer_config.json").read_text())
    assert wrapped["tokenizer_class"] == "PreTrainedTokenizerFast"
    face = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert face("It's 12 o'clock.")["input_ids"] == run.prepared.tokenizer.encode(
        "It's 12 o'clock."
    )


@pytest.mark.parametrize("pattern", [GPT2, LLAMA3])
def test_words_are_cut_as_the_pattern_says(pattern):
    """With merges that would cross every cut; those of so small a run happen to cross none."""
    pairs = [(b"t", b"h"), (b"th", b"e"), (b"'", b"t"), (b"l", b"l"), (b"e", b" "), (b" ", b" ")]
    pairs += [
        (b"\n", b"\n"),
        (b"\n\n", b" "),
        (b"3", b"4"),
        (b"34", b"5"),
        (b"a", b"1"),
        (b"!", b"the"),
    ]
    ours, uncut = (
        Tokenizer.from_merges(pairs, special_tokens=[END_OF_TEXT], pattern=each)
        for each in (pattern, r"(?s:.+)")
    )
    peer = tokenizers.Tokenizer.from_str(json.dumps(huggingface.tokenizer_json(ours)))
    for text in ("'the", "a1 'll", "the  the", "12345", "!the", ".\n\n a\n\n", "".join(KNOWN[::7])):
        assert peer.encode(text).ids == ours.encode(text)
    assert uncut.encode("'the a1") != ours.encode("'the a1")


def test_more_special_tokens_are_refused():
    tokenizer = Tokenizer.from_merges([], special_tokens=[END_OF_TEXT, "<|user|>"])
    with pytest.raises(ValueError, match="alone"):
        huggingface.tokenizer_json(tokenizer)


# --- the card


def card_of(folder):
    """The tables of a card as one mapping, and the rest of its text."""
    text = (folder / "README.md").read_text()
    rows = re.findall(r"^\| (.+?) \| (.+?) \|(?: (.+?) \|)?$", text, flags=re.MULTILINE)
    return {name: (value, step) for name, value, step in rows}, text


def number(text):
    return float(re.match(r"[\d,.]+", text)[0].replace(",", ""))


def test_the_card_has_the_figures_of_the_run(result, folder):
    run, (rows, text) = result.run, card_of(folder)
    last = result.validations[30]
    assert rows["bits per byte, held-out text"] == (f"{last.bits_per_byte:.4f}", "30")
    assert rows["nats per token, held-out text"] == (f"{last.nats_per_token:.4f}", "30")
    assert rows["nats per token, last training batch"] == (f"{result.reports[-1].loss:.4f}", "30")
    assert number(rows["parameters"][0]) == sum(p.numel() for p in run.model.parameters())
    assert rows["steps"][0] == "30 of 30"
    assert number(rows["tokens seen"][0]) == 30 * 8 * 32
    tokens = run.prepared.training[:]
    num_bytes = len(run.prepared.tokenizer.decode_bytes(tokens))
    assert rows["to train on"][0] == f"{num_bytes:,} bytes, {len(tokens):,} tokens"
    assert "0.006" in rows["learning rate"][0]
    assert rows["precision"][0] == "float32"
    assert rows["seed"][0] == "0"
    assert checkpoint.code_version()["version"] in rows["code that trained it"][0]
    assert checkpoint.code_version()["source_sha256"] in rows["SHA-256 of its sources"][0]
    for section in ("Shape", "Data", "Training", "Results", "Use and limits", "How to load"):
        assert f"\n## {section}\n\n" in text
    assert "None" not in text


def test_the_hash_is_that_of_the_weights(folder):
    content = (folder / "model.safetensors").read_bytes()
    rows, _ = card_of(folder)
    found = rows["SHA-256 of model.safetensors"][0]
    assert found == f"`{hashlib.sha256(content).hexdigest()}`"
    assert rows["weights"][0] == f"model.safetensors, float32, {len(content):,} bytes"


def test_the_hub_can_read_the_front_matter(result, folder):
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-generation"
    assert card.data.language == "en"
    assert card.data.model_name == "a"
    (found,) = card.data.eval_results
    assert found.metric_type == "bits_per_byte"
    assert found.metric_value == result.validations[30].bits_per_byte
    assert found.dataset_type == "stories"


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


@pytest.mark.parametrize("corpus", ["sotu", "python"])
def test_the_card_names_the_corpus_and_its_licence(corpus, run, tmp_path):
    changed = altered(run, tmp_path / "run", corpus=corpus)
    rows, text = card_of(export(changed, tmp_path / "exported"))
    assert f"`{corpus}`" in rows["corpus"][0]
    licence = {"sotu": "public domain", "python": "PSF-2.0"}[corpus]
    assert licence in rows["licence of the text"][0]
    assert f"language: {json.dumps({'sotu': 'en', 'python': 'code'}[corpus])}\n" in text


def test_there_is_a_card_for_every_corpus():
    assert set(_CORPORA) == set(get_args(get_type_hints(TrainConfig)["corpus"]))


def test_schedule_and_precision_are_told(run, tmp_path):
    settings = {"schedule": "wsd", "decay_steps": 7, "precision": "bf16", "seed": 3}
    changed = altered(run, tmp_path / "run", **settings)
    rows, text = card_of(export(changed, tmp_path / "exported", dtype="bfloat16"))
    assert "7 steps of linear decay to 0.0003" in rows["learning rate"][0]
    assert "bfloat16" in rows["precision"][0]
    assert rows["seed"][0] == "3"
    assert "Measured before the weights were rounded to bfloat16." in text


def test_an_interrupted_run_is_told_as_such(tmp_path):
    run = train.start(TINY, tmp_path / "run")
    train.fit(run, interrupted=lambda: run.steps_done == 17)
    # A crash later on: metrics of steps whose weights are lost, the last line cut short.
    with (run.folder / "metrics.jsonl").open("a") as file:
        row = {"step": 20, "loss": 9.0, "validation_loss": 9.0, "validation_bits_per_byte": 9.0}
        file.write(json.dumps(row) + "\n" + '{"step": 21, "lo')
    rows, text = card_of(export(run.folder, tmp_path / "exported"))
    assert rows["steps"][0] == "17 of 30"
    assert number(rows["tokens seen"][0]) == 17 * 8 * 32
    assert rows["bits per byte, held-out text"][1] == "10"
    assert rows["nats per token, last training batch"][1] == "17"
    assert "These weights are of step 17; the validation is an earlier one." in text


def test_without_metrics_the_card_claims_no_result(run, tmp_path):
    copy = shutil.copytree(run.folder, tmp_path / "run")
    (copy / "metrics.jsonl").unlink()
    to = export(copy, tmp_path / "exported")
    rows, text = card_of(to)
    assert "No result was recorded." in text
    assert not [name for name in rows if "per byte" in name]
    assert huggingface_hub.ModelCard.load(to / "README.md").data.eval_results is None


def test_a_loss_of_an_earlier_step_is_not_called_the_last(run, tmp_path):
    copy = shutil.copytree(run.folder, tmp_path / "run")
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:15]))
    rows, _ = card_of(export(copy, tmp_path / "exported"))
    assert "nats per token, last training batch" not in rows
    assert rows["nats per token, held-out text"][1] == "10"


def test_a_damaged_checkpoint_is_passed_over(run, tmp_path):
    copy = shutil.copytree(run.folder, tmp_path / "run")
    older, newest = checkpoint.list_checkpoints(copy / "checkpoints")
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    to = export(copy, tmp_path / "exported")
    assert card_of(to)[0]["steps"][0] == "20 of 30"
    loaded = model.from_huggingface(
        safetensors.torch.load_file(to / "model.safetensors"), run.config.model
    )
    expected = checkpoint.load(older).model
    assert all(torch.equal(loaded[name], weight) for name, weight in expected.items())


# --- refusals


@pytest.mark.parametrize("part", model.PARTS)
def test_a_model_with_a_part_removed_is_refused(part):
    reason = huggingface.obstacle(replace(TINY, without=part))
    assert re.search(f"without {part} is no Llama.*--without nothing", reason)


NOT_EXPORTABLE = [
    ({"without": "gate"}, "without gate is no Llama"),
    (
        {"model": replace(TINY.model, qk_norm=True, num_experts=2, experts_per_token=1)},
        "no Mixtral with qk_norm: train with --model.qk_norm false",
    ),
    ({"model": replace(TINY.model, width=30)}, "num_heads divides width, here 30 and 4"),
]


@pytest.mark.parametrize(("settings", "message"), NOT_EXPORTABLE)
def test_a_run_learns_at_its_start_that_it_cannot_be_exported(settings, message):
    told = train_command._settings(replace(TINY, **settings), "run a").splitlines()
    assert re.search(f"^this run will not be exportable: .*{message}", told[-1])
    assert "exportable" not in train_command._settings(TINY, "run a")


@pytest.mark.parametrize(("settings", "message"), NOT_EXPORTABLE)
def test_it_is_refused_before_a_checkpoint_is_read(settings, message, tmp_path, monkeypatch):
    config = replace(TINY, **settings)
    (tmp_path / "config.json").write_text(json.dumps(asdict(config)))
    monkeypatch.setattr(export_module, "config_and_checkpoint", None)
    with pytest.raises(ValueError, match=message):
        export(tmp_path, tmp_path / "exported")
    for odd in ("", "[]", "{}", '{"model": 3}', '{"model": {"width": "x"}}'):
        (tmp_path / "config.json").write_text(odd)
        with pytest.raises(TypeError, match="not callable"):  # went on to the checkpoint
            export(tmp_path, tmp_path / "exported")


@pytest.mark.parametrize(("settings", "message"), NOT_EXPORTABLE)
def test_what_is_no_llama_is_refused_and_leaves_nothing(settings, message, run, tmp_path):
    changed = altered(run, tmp_path / "run", **settings)
    with pytest.raises(ValueError, match=message):
        export(changed, tmp_path / "exported")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_transformers_itself_refuses_a_width_that_heads_do_not_divide():
    """Why we do: it would be written, and could not be loaded."""
    config = huggingface.config_json(replace(TINY.model, width=30), end_id=0, dtype="float32")
    with pytest.raises(Exception, match="not a multiple"):  # its class has changed
        transformers.LlamaConfig(**config)


@pytest.mark.parametrize("name", ["embedding", "blocks.1.attention.w_q"])
def test_other_weights_than_those_of_the_settings_are_refused(name, run, tmp_path):
    saved = checkpoint.load(checkpoint.latest(run.folder / "checkpoints"))
    for broken in (
        {n: w for n, w in saved.model.items() if n != name},
        saved.model | {"router": torch.ones(3)},
        saved.model | {name: saved.model[name][:-1]},
    ):
        with pytest.raises(ValueError, match="not those of its settings"):
            export_module._weights(replace(saved, model=broken), run.config, "float32")


def test_a_wrong_dtype_is_refused_first(tmp_path):
    with pytest.raises(Exception, match="dtype"):
        export(tmp_path / "nowhere", tmp_path / "to", dtype="float16")


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no run to go on with"):
        export(tmp_path / "nowhere", tmp_path / "to")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_its_tokenizer_is_refused(run, tmp_path):
    copy = shutil.copytree(run.folder, tmp_path / "run")
    (copy / "data" / "tokenizer" / "vocab.json").unlink()
    with pytest.raises(ValueError, match=r"no tokenizer in .*vocab\.json is missing"):
        export(copy, tmp_path / "to")


def test_an_existing_folder_is_kept_without_force(run, tmp_path):
    to = export(run.folder, tmp_path / "a")
    before = files_of(to)
    with pytest.raises(ValueError, match="exists"):
        export(run.folder, to, dtype="bfloat16")
    assert files_of(to) == before
    export(run.folder, to, dtype="bfloat16", force=True)
    assert json.loads((to / "config.json").read_text())["dtype"] == "bfloat16"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_force_replaces_exports_only(run, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")}
    with pytest.raises(ValueError, match="it holds 'checkpoints'"):
        export(run.folder, run.folder, force=True)
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")} == before
    to = export(run.folder, tmp_path / "a")
    (to / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"'notes\.txt'"):
        export(run.folder, to, force=True)
    assert (to / "notes.txt").read_text() == "mine"
    (to / "notes.txt").unlink()
    (to / "config.json").unlink()
    with pytest.raises(ValueError, match=r"it lacks 'config\.json'"):
        export(run.folder, to, force=True)
    assert len(files_of(to)) == len(NAMES) - 1
    (tmp_path / "empty").mkdir()
    assert files_of(export(run.folder, tmp_path / "empty", force=True)).keys() == NAMES
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is no folder"):
        export(run.folder, tmp_path / "file", force=True)
    assert (tmp_path / "file").read_text() == "mine"


# --- nothing half there


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


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("file", range(len(NAMES)))
def test_a_full_disk_leaves_nothing_and_loses_nothing(file, force, run, tmp_path, monkeypatch):
    to = tmp_path / "a"
    before = files_of(export(run.folder, to)) if force else None
    calls = fail_at(monkeypatch, "write_atomically", export_module, file)
    with pytest.raises(OSError, match="No space left"):
        export(run.folder, to, dtype="bfloat16", force=force)
    assert len(calls) == file + 1
    assert [path.name for path in tmp_path.iterdir()] == (["a"] if force else [])
    assert not force or files_of(to) == before


@pytest.mark.parametrize(("force", "call"), [(False, 0), (True, 0), (True, 1)])
def test_a_rename_that_fails_loses_nothing(force, call, run, tmp_path, monkeypatch):
    to = tmp_path / "a"
    before = files_of(export(run.folder, to)) if force else None
    calls = fail_at(monkeypatch, "rename", Path, call)
    with pytest.raises(OSError, match="No space left"):
        export(run.folder, to, dtype="bfloat16", force=force)
    assert len(calls) >= call + 1
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
    runpy.run_module("llmcourse.train.export", run_name="__main__", alter_sys=True)
except SystemExit as error:
    print(error.code)

from pathlib import Path
import torch
from llmcourse.train.export import folder as export

def kill_at(original, number):
    calls = []
    def patched(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)
    return patched

torch.set_num_threads(1)
places = (export, "write_atomically", 4), (Path, "rename", 2)
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
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done, folders, before[0]


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


# --- the command line


def test_the_command_line_exports(processes):
    done, (to, *_), before = processes
    assert done.stderr == ""
    assert done.stdout.startswith(f"exported to {to}\n0\n")
    assert files_of(to).keys() == NAMES
    assert files_of(to) != before
    assert json.loads((to / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "x"], "required"),
        (["--run", "x"], "required"),
        (["--run", "x", "--to", "y", "--dtype", "int8"], "dtype"),
        (["--run", "x", "--to", "y", "--colour", "red"], "colour"),
        (["--run", "x", "--to", "y"], "holds no run to go on with"),
        (["--run", "x", "--to", "."], "exists"),
    ],
)
def test_bad_input_is_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(rf"llmcourse export: .*{message}.*\n", printed.err)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_checkpoint_is_one_line(tmp_path, capsys):
    train.start(TINY, tmp_path / "run")
    capsys.readouterr()
    assert main(["--run", str(tmp_path / "run"), "--to", str(tmp_path / "a")]) == 2
    printed = capsys.readouterr()
    assert re.fullmatch(r"llmcourse export: [^\n]* holds no checkpoint yet: [^\n]*\n", printed.err)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_full_disk_is_one_line(run, tmp_path, monkeypatch, capsys):
    fail_at(monkeypatch, "write_atomically", export_module, 0)
    assert main(["--run", str(run.folder), "--to", str(tmp_path / "a")]) == 2
    assert re.fullmatch(r"[^\n]*No space left on device[^\n]*\n", capsys.readouterr().err)


def test_an_interruption_is_one_line(run, tmp_path, monkeypatch, capsys):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(export_module, "_put_in_place", interrupted)
    assert main(["--run", str(run.folder), "--to", str(tmp_path / "a")]) == 2
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_preset_of_mixtral_has_the_published_weight_of_the_balance_loss():
    """Its config.json says 0.02, for a loss that is k = 2 times ours."""
    written = huggingface.config_json(model.mixtral_8x7b(), end_id=2, dtype="bfloat16")
    assert written["router_aux_loss_coef"] == 0.02
