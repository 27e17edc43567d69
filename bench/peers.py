"""The peers of our model: Hugging Face's Llama, and a GPT of torch's own modules."""

import torch
import torch.nn.functional as F
from torch import nn

from llmcourse.model import ModelConfig


class GPTBlock(nn.Module):
    """LayerNorm, fused attention, GELU network: torch's own modules throughout."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.network_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, D = x.shape
        heads = (B, T, 3, self.num_heads, D // self.num_heads)
        q, k, v = self.qkv(self.attention_norm(x)).view(heads).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(read.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.network_norm(x))))


class GPT(nn.Module):
    """A GPT without dropout, its head tied to the embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(config.context_length, config.width)
        self.blocks = nn.ModuleList(
            GPTBlock(config.width, config.num_heads) for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def hugging_face(config: ModelConfig, *, attention: str) -> nn.Module:
    """Return Hugging Face's Llama of the same shape, with the named attention implementation."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - slow import

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.width,
            intermediate_size=config.hidden,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_size,
            max_position_embeddings=config.context_length,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tied_head,
            use_cache=False,
            attn_implementation=attention,
        )
    )
