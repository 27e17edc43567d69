"""A folder of transformers' gives its logits, or is refused by the name of what we lack.

Costs about 10 s, most of it the import of transformers; the models are tiny.
"""

import json
import math
import os
import pickle
from dataclasses import replace

import pytest
import safetensors.torch
import torch

from llmcourse import model
from llmcourse.base import checks
from llmcourse_labs.export import huggingface as exported
from llmcourse_labs.real import (
    config_from_huggingface,
    from_huggingface,
    load_huggingface,
    split_experts,
    to_huggingface,
)

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 50,
    "max_position_embeddings": 16,
    "rms_norm_eps": 3e-4,
}
"""All differ; the heads together are wider than a token."""

ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}
EXPERTS = {
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.02,
    "experts_implementation": "eager",
}
KINDS = {
    "Llama": {},
    "Mistral": {"sliding_window": None},
    "Qwen3": {"tie_word_embeddings": True},
    "Mixtral": EXPERTS,
    "Qwen3Moe": EXPERTS
    | {"norm_topk_prob": True, "moe_intermediate_size": 20, "tie_word_embeddings": True},
}


def theirs(kind, **changes):
    """A model of transformers whose weights are large enough that every part matters."""
    import transformers  # noqa: PLC0415 - slow import

    settings = SIZES | ROPE | KINDS[kind] | changes
    made = getattr(transformers, f"{kind}ForCausalLM")(
        getattr(transformers, f"{kind}Config")(**settings)
    ).eval()
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in made.named_parameters():
            shift = 1.0 if "norm" in name else 0.0
            p.copy_(shift + 0.2 * torch.randn(p.shape, generator=g))
    return made


@torch.no_grad()
def difference(folder, made):
    """How far our logits are from theirs, relative to the largest."""
    ids = torch.randint(0, 50, (3, 16), generator=torch.Generator().manual_seed(1))
    return checks.relative_error(load_huggingface(folder)(ids), made(ids).logits)


@pytest.fixture(params=KINDS)
def saved(request, tmp_path):
    made = theirs(request.param)
    made.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved", made


def rewritten(folder, **changes):
    """Change keys of a folder's config.json; ... takes one out."""
    path = folder / "config.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))
    return folder


def test_logits_equal(saved):
    assert difference(*saved) < 1e-5


# A logit is the end of a chain of about 20 sums of at most 60 products.  Each is off by sqrt(60)
# roundings of 6e-8; independent ones add up to 2e-6 of the largest, and norms stretch some of them.
ODD = 1e-5


@pytest.mark.parametrize("num_kv_heads", [3, 2, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_odd_groups_of_heads_write_the_same_text_and_go_back_to_the_bit(
    kind, num_kv_heads, tmp_path
):
    """Groups of 2, 3 and 6 heads of 10 channels, 60 together, beside a width of 24.

    Mutants: groups in another order, heads not permuted, w3 and w2 exchanged, Qwen's experts under
    Mixtral's names, a cache that forgets a token.
    """
    heads = {"num_attention_heads": 6, "num_key_value_heads": num_kv_heads}
    made = theirs(kind, **heads, tie_word_embeddings=num_kv_heads != 2)
    made.save_pretrained(tmp_path)
    ours, written = (
        load_huggingface(tmp_path),
        safetensors.torch.load_file(tmp_path / "model.safetensors"),
    )
    assert difference(tmp_path, made) < ODD
    prompts = torch.randint(0, 50, (3, 4), generator=torch.Generator().manual_seed(2))
    greedy = {"max_new_tokens": 12}
    settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    text = made.generate(prompts, attention_mask=torch.ones_like(prompts), **greedy, **settings)
    for use_cache in (True, False):
        told = model.generate(ours, prompts, **greedy, temperature=0, use_cache=use_cache)
        assert torch.equal(told, text)
    # What transformers has in memory, what it writes, what we write.
    joined = from_huggingface(made.state_dict(), ours.config)
    again = split_experts(to_huggingface(joined, ours.config))
    if ours.config.tied_head:
        del again["lm_head.weight"]
    assert again.keys() == written.keys()
    assert all(torch.equal(again[name], weight) for name, weight in written.items())
    assert all(torch.equal(joined[name], weight) for name, weight in ours.state_dict().items())
    config = exported.config_json(ours.config, end_id=0, dtype="float32")
    assert config_from_huggingface(config) == ours.config


def test_the_comparison_notices_a_config_that_is_not_read(saved):
    folder, made = saved
    for changes in (
        {"rms_norm_eps": 1e-2},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
    ):
        assert difference(rewritten(folder, **changes), made) > 1e-3


def test_weights_in_several_files_are_the_same(saved, tmp_path):
    folder, made = saved
    made.save_pretrained(tmp_path / "parts", max_shard_size="8KB")
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 2
    one, parts = load_huggingface(folder).state_dict(), load_huggingface(tmp_path / "parts")
    assert all(torch.equal(one[name], w) for name, w in parts.state_dict().items())


def test_names_of_transformers_4_are_read(saved):
    folder, made = saved
    scaled = {"rope_scaling": None, "rope_theta": 300.0, "rope_parameters": ...}
    assert difference(rewritten(folder, **scaled), made) < 1e-5
    assert difference(rewritten(folder, rope_scaling={"type": "default"}), made) < 1e-5
    window = {"use_sliding_window": False, "sliding_window": 4}
    if made.config.model_type in ("mistral", "mixtral"):  # which have no such switch
        refused(folder, "no sliding window", **window)
        return
    assert difference(rewritten(folder, **window), made) < 1e-5
    if made.config.model_type == "qwen3_moe":
        own = {"num_local_experts": ..., "num_experts": 3, "decoder_sparse_step": ...}
        assert difference(rewritten(folder, **own, mlp_only_layers=None), made) < 1e-5


SCALED = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
    "yarn, every number": {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 4,
        "beta_fast": 3.0,
        "beta_slow": 0.5,
        "attention_factor": 0.1 * math.log(2) + 1,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    },
}


@pytest.mark.parametrize("scaled", SCALED)
def test_scaled_rotations_are_read_in_both_spellings(scaled, tmp_path):
    rope = SCALED[scaled]
    made = theirs("Llama", rope_parameters=rope | {"rope_theta": 300.0}, max_position_embeddings=32)
    made.save_pretrained(tmp_path)
    assert difference(tmp_path, made) < 1e-5
    old = {"type": rope["rope_type"]} | {k: v for k, v in rope.items() if k != "rope_type"}
    changes = {"rope_parameters": ..., "rope_theta": 300.0, "rope_scaling": old}
    assert difference(rewritten(tmp_path, **changes), made) < 1e-5
    plain = {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}, "rope_scaling": None}
    assert difference(rewritten(tmp_path, **plain), made) > 1e-3


def test_a_trained_length_that_is_not_named_is_the_context(tmp_path):
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 300.0}
    theirs("Llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"rope_parameters": rope}
    assert config_from_huggingface(config).rope_scaling.original_length == 16
    moved = config_from_huggingface(config | {"original_max_position_embeddings": 8})
    assert moved.rope_scaling.original_length == 8


def test_what_is_learnt_stays_out_of_the_file(tmp_path):
    """Its weights are read where they lie, and written elsewhere."""
    theirs("Llama").save_pretrained(tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    ours = load_huggingface(tmp_path)
    ours(torch.ones(1, 3, dtype=torch.int64)).sum().backward()
    torch.optim.SGD(ours.parameters(), lr=1.0).step()
    assert not torch.equal(ours.embedding, load_huggingface(tmp_path).embedding)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_narrow_file_is_loaded_in_float32(tmp_path):
    theirs("Llama").to(torch.bfloat16).save_pretrained(tmp_path)
    assert load_huggingface(tmp_path).embedding.dtype == torch.float32
    made = type(theirs("Llama")).from_pretrained(tmp_path, dtype=torch.float32)
    assert difference(tmp_path, made) < 1e-5


def test_absent_keys_mean_what_transformers_takes_them_for(tmp_path):
    made = theirs("Llama", head_dim=None, num_key_value_heads=4)
    made.save_pretrained(tmp_path)
    rewritten(tmp_path, head_dim=..., num_key_value_heads=..., tie_word_embeddings=...)
    assert difference(tmp_path, made) < 1e-5
    old = {"model_type": "llama", "rope_parameters": ..., "rope_theta": ...}
    assert config_from_huggingface(rewritten(tmp_path, **old) / "config.json").rope_theta == 1e4
    made = theirs("Mixtral", head_dim=None)
    made.save_pretrained(tmp_path / "mixtral")
    assert difference(tmp_path / "mixtral", made) < 1e-5


@pytest.mark.parametrize("preset", ["tiny", "llama3_8b", "mixtral_8x7b", "tiny_moe"])
def test_a_config_that_we_write_is_read_back(preset):
    config = model.PRESETS[preset]()
    written = exported.config_json(config, end_id=0, dtype="float32")
    assert config_from_huggingface(written) == config


def test_frequencies_beside_the_weights_are_passed_over(tmp_path):
    made = theirs("Llama")
    made.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = safetensors.torch.load_file(path)
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(5)
    safetensors.torch.save_file(state, path)
    assert difference(tmp_path, made) < 1e-5


YARN = {"rope_type": "yarn", "factor": 4.0}


def plain(**changes):
    return {"model_type": "llama"} | SIZES | {"rope_theta": 300.0} | changes


def mixed(**changes):
    return plain(model_type="qwen3_moe", **KINDS["Qwen3Moe"]) | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "gemma2"},
            "must be one of llama, mistral, qwen3, qwen3_moe, mixtral, got .*2",
        ),
        ({"model_type": ["llama"]}, r"model_type must be one of .* got \['llama'\]"),
        ({"hidden_act": "gelu"}, "no activation besides silu.*hidden_act = 'gelu'"),
        ({"attention_bias": True}, "no biases in attention.*attention_bias = True"),
        ({"is_causal": False}, "no attention to later tokens.*is_causal = False"),
        ({"mlp_bias": True}, "no biases in the feed-forward network.*mlp_bias = True"),
        ({"quantization_config": {"bits": 4}}, "no quantised weights"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
        ({"sliding_window": 8}, "no sliding window.*sliding_window = 8"),
        ({"sliding_window": 8, "use_sliding_window": True}, "no sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "linear, yarn or llama3, .*dynamic"),
        ({"rope_scaling": {"rope_type": ["yarn"]}}, r"linear, yarn or llama3.*\['yarn'\]"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "must give low_freq_factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor must be 1 or greater"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 3}},
            "our linear rotation has no beta_fast",
        ),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0}}, "must give factor, of"),
        ({"rope_parameters": YARN | {"attention_factor": 1.0}}, "no yarn with another temperature"),
        ({"rope_parameters": YARN | {"mscale": 0.7}}, "our yarn rotation has no mscale"),
        ({"rope_parameters": YARN | {"truncate": False}}, "no yarn without whole pairs"),
        ({"rope_parameters": YARN, "rope_scaling": YARN | {"factor": 2.0}}, "several scalings of"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
        ({"rope_parameters": 7}, "rope_parameters must be an object, got 7"),
        ({"rope_parameters": {"rope_theta": 500.0}}, r"several rope_theta: \[300.0, 500.0\]"),
        ({"partial_rotary_factor": 0.5}, "no partial rotation.*partial_rotary_factor = 0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "no partial rotation"),
        ({"head_dim": 7}, "head_size must be even"),
        ({"head_dim": None, "hidden_size": 26}, "no head_dim, and its hidden_size = 26"),
        ({"num_key_value_heads": 3}, "num_kv_heads must divide"),
        ({"hidden_size": None}, "must give hidden_size, of type int, got None"),
        ({"hidden_size": True}, "must give hidden_size, of type int, got True"),
        ({"hidden_size": "24"}, "must give hidden_size, of type int, got '24'"),
        ({"vocab_size": -1}, "vocab_size must be 1 or greater"),
        ({"rms_norm_eps": ...}, "must give rms_norm_eps"),
        ({"rope_theta": "1e4"}, "must give rope_theta, of type float"),
        ({"tie_word_embeddings": "no"}, "must give tie_word_embeddings, of type bool, got 'no'"),
        ({"model_type": "qwen3", "head_dim": ...}, "must give head_dim"),
        ({"model_type": "qwen3", "num_key_value_heads": ...}, "must give num_key_value_heads"),
        ({"model_type": "mixtral"}, "must give num_local_experts"),
        ({"model_type": "mistral"}, "a Mistral has one unless .* says sliding_window = null"),
        ({"model_type": "mistral", "sliding_window": 8}, "no sliding window.*sliding_window = 8"),
        (mixed(norm_topk_prob=...), "sum to 1 in our decoder.*norm_topk_prob = False"),
        (mixed(norm_topk_prob=False), "sum to 1 in our decoder.*norm_topk_prob = False"),
        (mixed(decoder_sparse_step=2), "no mixture in some layers.*decoder_sparse_step = 2"),
        (mixed(mlp_only_layers=[0]), r"no mixture in some layers.*mlp_only_layers = \[0\]"),
        (mixed(num_experts=4), r"several numbers of experts: \[3, 4\]"),
        (mixed(num_local_experts=...), "must give num_local_experts"),
        (mixed(num_experts_per_tok=4), "from 1 to num_experts = 3, got 4"),
        (mixed(moe_intermediate_size=...), "must give moe_intermediate_size"),
        (mixed(use_sliding_window=True, sliding_window=8), "no sliding window"),
    ],
)
def test_what_the_decoder_lacks_is_refused_by_name(changes, message):
    config_from_huggingface(plain())
    given = {key: value for key, value in plain(**changes).items() if value is not ...}
    with pytest.raises(ValueError, match=message) as caught:
        config_from_huggingface(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", "\x00", "[" * 100_000])
def test_a_config_that_is_no_object_is_refused(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"is not JSON|must hold a JSON object"):
        config_from_huggingface(tmp_path / "config.json")


@pytest.mark.parametrize("kind", ["Llama", "Mixtral"])
def test_a_head_of_its_own_is_not_dropped(kind, tmp_path):
    made = theirs(kind)
    made.save_pretrained(tmp_path)
    state, config = made.state_dict(), config_from_huggingface(tmp_path / "config.json")
    assert not config.tied_head
    tied = replace(config, tied_head=True)
    with pytest.raises(ValueError, match=r"lm_head\.weight.*set tied_head to False"):
        from_huggingface(state, tied)
    with pytest.raises(ValueError, match="set tied_head to False"):
        from_huggingface(state | {"lm_head.weight": state["lm_head.weight"].double()}, tied)
    same = state | {"lm_head.weight": state["model.embed_tokens.weight"].clone()}
    assert "head" not in from_huggingface(same, tied)
    with pytest.raises(ValueError, match="lm_head"):
        load_huggingface(rewritten(tmp_path, tie_word_embeddings=True))


def refused(folder, message, **changes):
    """Refuse a folder whose config.json is another, in one line; then put it back."""
    path = folder / "config.json"
    before = path.read_text()
    with pytest.raises(ValueError, match=message) as caught:
        load_huggingface(rewritten(folder, **changes))
    assert "\n" not in str(caught.value)
    path.write_text(before)


def test_weights_of_another_shape_are_refused(saved):
    folder, made = saved
    hidden = "moe_" * (made.config.model_type == "qwen3_moe") + "intermediate_size"
    for key in ("head_dim", "vocab_size", hidden, "num_key_value_heads"):
        refused(folder, "has the shape", **{key: 2 * getattr(made.config, key)})
    refused(folder, "has no parameter", num_hidden_layers=3)


def test_sizes_beyond_reason_are_one_line(tmp_path):
    theirs("Llama").save_pretrained(tmp_path)
    refused(tmp_path, "too few for 1000000000 layers", num_hidden_layers=10**9)
    refused(tmp_path, "cannot be made here", vocab_size=10**30)
    refused(tmp_path, "cannot be made here", vocab_size=2**40, hidden_size=2**40)
    refused(tmp_path, "cannot be made here", max_position_embeddings=10**15)


def test_a_pickle_is_not_read(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    theirs("Llama").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match=r"pytorch_model\.bin, a pickle.*save_pretrained"):
        load_huggingface(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "pytorch_model.bin").read_bytes())
    with pytest.raises(ValueError, match="no intact safetensors file"):
        load_huggingface(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_is_not_whole_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing is downloaded"):
        load_huggingface("meta-llama/Llama-3.2-1B")
    theirs("Llama").save_pretrained(tmp_path, max_shard_size="8KB")
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    places = content["weight_map"]
    outside = places | {"lm_head.weight": "../x.safetensors"}
    for broken, message in (
        ({}, "has no weight_map"),
        ({"weight_map": {"a": 1}}, "has no weight_map"),
        ({"weight_map": outside}, r"names '\.\./x\.safetensors'"),
        ({"weight_map": places | {"a": "pytorch_model.bin"}}, "is no safetensors file"),
        ({"weight_map": places | {"a": "b.safetensors"}}, "which is not there"),
        ({"weight_map": places | {"a": min(places.values())}}, "do not list the same tensors: 'a'"),
    ):
        index.write_text(json.dumps(broken))
        with pytest.raises(ValueError, match=message):
            load_huggingface(tmp_path)
    index.write_text(json.dumps(content))
    load_huggingface(tmp_path)
    part = tmp_path / min(places.values())
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(ValueError, match="no intact safetensors file"):
        load_huggingface(tmp_path)
    index.unlink()
    with pytest.raises(ValueError, match="holds neither"):
        load_huggingface(tmp_path)


def test_quantised_weights_are_refused(tmp_path):
    theirs("Llama").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = safetensors.torch.load_file(path)
    state["lm_head.weight"] = state["lm_head.weight"].to(torch.int8)
    safetensors.torch.save_file(state, path)
    with pytest.raises(ValueError, match=r"lm_head\.weight as torch\.int8"):
        load_huggingface(tmp_path)
