"""The files beside the weights that Hugging Face's transformers reads, as plain data.

A Llama can be written, a Qwen3, a Mixtral or a Qwen3-MoE: what else the course can build is
refused.  Nothing here imports transformers; the tests load what is written with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import GPT2, Tokenizer
from llmcourse.data.tokenizer.files import spell
from llmcourse.model import ModelConfig
from llmcourse.model.huggingface import Family, family_of, obstacle
from llmcourse_labs.real.tokenizer_parts import SMOLLM, shown_ids
from llmcourse_labs.tuning.chat_format import CHAT_TOKENS, ROLES

DType = Literal["float32", "bfloat16", "float16", "q8_0"]
"""In what weights are written: the first two in a folder, all but bfloat16 in a GGUF file."""

SAMPLE_TEMPERATURE = 0.8
"""Of generated text, as in `train.sample`."""


MODEL_TYPES: dict[Family, str] = {
    "Llama": "llama",
    "Qwen3": "qwen3",
    "Mixtral": "mixtral",
    "Qwen3Moe": "qwen3_moe",
}
"""What transformers calls its classes in config.json."""


def config_json(
    config: ModelConfig, *, end_id: int, dtype: DType, begin_id: int | None = None
) -> dict[str, Any]:
    """Return config.json: the shape under the names of transformers' classes.

    No id is named for padding: that row of the embedding would no longer be trained.

    Args:
        config: the shape.
        end_id: of the token between two documents.
        dtype: of the weights.
        begin_id: of the token before a text; None is `end_id`.

    Raises:
        ValueError: if transformers has no class for such a model.
    """
    if (why := obstacle(config)) is not None:
        raise ValueError(why)
    family = family_of(config)
    return {
        "architectures": [f"{family}ForCausalLM"],
        "model_type": MODEL_TYPES[family],
        **_ALONE[family],
        **(_mixture(config, family) if config.num_experts else {}),
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.context_length,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        **_rope(config),
        "tie_word_embeddings": config.tied_head,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": end_id if begin_id is None else begin_id,
        "eos_token_id": end_id,
        "dtype": dtype,
        "torch_dtype": dtype,  # where transformers 4 looks
    }


def _rope(config: ModelConfig) -> dict[str, Any]:
    """Return the rotation under the names of transformers 5, and where transformers 4 looks.

    Its "dynamic" follows the length of each row; ntk of a fixed factor is another base, no more.
    """
    scaling, theta = config.rope_scaling, config.rope_theta
    numbers: dict[str, Any] = {"rope_type": "default"}
    if scaling is not None and scaling.kind == "ntk":
        theta *= scaling.factor ** (config.head_size / (config.head_size - 2))
    elif scaling is not None:
        names = {"linear": (), "yarn": ("beta_fast", "beta_slow")}
        names["llama3"] = ("low_freq_factor", "high_freq_factor")
        numbers = {"rope_type": scaling.kind, "factor": scaling.factor}
        numbers |= {name: getattr(scaling, name) for name in names[scaling.kind]}
        if scaling.original_length:
            numbers["original_max_position_embeddings"] = scaling.original_length
    for_4 = {} if numbers["rope_type"] == "default" else {"rope_scaling": numbers}
    return {"rope_parameters": {**numbers, "rope_theta": theta}, "rope_theta": theta, **for_4}


_QWEN3 = {"attention_bias": False, "use_sliding_window": False, "sliding_window": None}
_ALONE: dict[Family, dict[str, Any]] = {
    "Llama": {"attention_bias": False, "mlp_bias": False},
    "Qwen3": _QWEN3,
    "Mixtral": {"router_jitter_noise": 0.0, "sliding_window": None},
    "Qwen3Moe": _QWEN3 | {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
}
"""What only one class has to say."""


def _mixture(config: ModelConfig, family: Family) -> dict[str, Any]:
    """Return what only a mixture has to say.

    transformers' balance loss is k times ours, of all layers together; it drops no token, as we
    drop none outside training.  Its fast product of experts takes rows of a multiple of 16 bytes
    only, and fails on others: for those the plain one is named.
    """
    whole_rows = config.width % 8 == config.hidden % 8 == 0  # in bfloat16, too
    sizes = {"num_local_experts": config.num_experts}
    if family == "Qwen3Moe":  # the name of its own files, and that of one expert's hidden units
        sizes = {"num_experts": config.num_experts, "moe_intermediate_size": config.hidden}
    return {
        **sizes,
        "num_experts_per_tok": config.experts_per_token,
        "router_aux_loss_coef": config.balance_weight / config.experts_per_token,
        "output_router_logits": False,
        **({} if whole_rows else {"experts_implementation": "eager"}),
    }


def generation_config_json(
    config: ModelConfig, *, begin_id: int, end_ids: Sequence[int]
) -> dict[str, Any]:
    """Return generation_config.json: sample as the run did, and stop where a document ends.

    Args:
        config: of the model.
        begin_id: of the token before a text.
        end_ids: where the model stops: at the end of a document, first of all, and of a turn.
    """
    return {
        "bos_token_id": begin_id,
        "eos_token_id": list(end_ids) if len(end_ids) > 1 else end_ids[0],
        "pad_token_id": end_ids[0],
        "do_sample": True,
        "temperature": SAMPLE_TEMPERATURE,
        "top_k": 0,  # all tokens; transformers' own default is 50
        "max_length": config.context_length,
    }


def tokenizer_json(tokenizer: Tokenizer, begin_ids: Sequence[int] = ()) -> dict[str, Any]:
    """Return tokenizer.json, the form of Hugging Face's `tokenizers`: it gives the ids of ours.

    The two may differ on characters that one of them does not know yet: each cuts words by the
    version of Unicode that it was built with.

    Args:
        tokenizer: of the model.
        begin_ids: of special tokens that a text begins with.

    Raises:
        ValueError: if there is no special token, to stand between documents.
    """
    specials = tokenizer.special_tokens
    if not specials:
        raise ValueError("the tokenizer has no special token, such as the end of a document")
    # Special tokens stand as they are; the bytes of others are spelt in GPT-2's characters.
    names = {i: token for token, i in specials.items()}
    vocabulary = {
        names[i] if i in names else spell(piece): i for i, piece in sorted(tokenizer.vocab.items())
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added(token, i, special=i not in shown_ids(tokenizer))
            for i, token in sorted(names.items())
        ],
        "normalizer": {"type": "NFC"} if "NFC" in tokenizer.quirks else None,
        "pre_tokenizer": _pre_tokenizer(tokenizer.pattern),
        "post_processor": _beginning([names[i] for i in begin_ids], specials),
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": "whole words" in tokenizer.quirks,
            "vocab": vocabulary,
            "merges": [[spell(a), spell(b)] for a, b in tokenizer.merges],
        },
    }


_CONTROL = (END_OF_TEXT, *CHAT_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{{% if message['role'] not in {list(ROLES)} %}}"
    f"{{{{ raise_exception('role must be one of {', '.join(ROLES)}, got ' ~ message['role']) }}}}"
    "{% endif %}"
    "{% if message['content'] is not string %}"
    "{{ raise_exception('the content of a message must be a text') }}{% endif %}"
    f"{{% for token in {list(_CONTROL)} %}}{{% if token in message['content'] %}}"
    "{{ raise_exception('a message spells ' ~ token ~ ', which would be taken for the token') }}"
    "{% endif %}{% endfor %}"
    "<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Turns as `data.chat_tokens` writes them, in the language of templates, Jinja.

transformers makes tokens of the whole text: what a user spells would be taken for a token of
control, so such a message is refused.
"""


def tokenizer_config_json(
    config: ModelConfig, *, tokens: Mapping[str, str], template: str | None = None
) -> dict[str, Any]:
    """Return tokenizer_config.json: how transformers wraps tokenizer.json.

    Args:
        config: of the model.
        tokens: by role, such as bos_token and eos_token.
        template: for conversations, in Jinja; None of a model that was not taught to talk.
    """
    return {
        **({} if template is None else {"chat_template": template}),
        "tokenizer_class": "PreTrainedTokenizerFast",
        **tokens,
        "model_max_length": config.context_length,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }


def _beginning(tokens: Sequence[str], specials: Mapping[str, int]) -> dict[str, Any] | None:
    """Return what sets special tokens before a text; None where there are none."""
    if not tokens:
        return None
    first = [{"SpecialToken": {"id": token, "type_id": 0}} for token in tokens]
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [*first, a],
        "pair": [*first, a, *first, b],
        "special_tokens": {t: {"id": t, "ids": [specials[t]], "tokens": [t]} for t in tokens},
    }


def _added(token: str, token_id: int, *, special: bool) -> dict[str, Any]:
    """Return how tokenizer.json names an added token; white space beside it is not taken."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": token, **flags, "special": special}


def _pre_tokenizer(pattern: str) -> dict[str, Any]:
    """Return what cuts text into words by a pattern and spells their bytes."""
    if pattern == GPT2:
        return _byte_level(use_regex=True)
    if pattern == SMOLLM:
        digits = {"type": "Digits", "individual_digits": True}
        return {"type": "Sequence", "pretokenizers": [digits, _byte_level(use_regex=True)]}
    cut = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [cut, _byte_level(use_regex=False)]}


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    """Return the part of tokenizer.json that turns bytes into printable characters, or back."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }
