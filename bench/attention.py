"""Forms of attention side by side, decoding with and without a cache, packing against padding."""

import random

import torch

from bench.peers import hugging_face
from bench.timing import medians, row
from llmcourse import loss
from llmcourse.data import best_fit, one_per_row, packed_rows
from llmcourse.model import ModelConfig, Transformer, attention, generate, stories, to_huggingface

LENGTHS = (256, 1024)
NEW_TOKENS = 80


def attention_rows(quick: bool) -> list[dict]:
    """Forward passes of 1 x T x 8 heads of 32 channels, 2 of them for keys and values."""
    found = []
    for length in LENGTHS[:1] if quick else LENGTHS:
        g = torch.Generator().manual_seed(0)
        q = torch.randn(1, length, 8, 32, generator=g)
        k, v = (torch.randn(1, length, 2, 32, generator=g) for _ in range(2))
        forms = {
            "sdpa": lambda q=q, k=k, v=v: attention.attention_sdpa(q, k, v),
            "written out": lambda q=q, k=k, v=v: attention.attention(q, k, v),
            "tiled, tiles of 64": lambda q=q, k=k, v=v: attention.attention_tiled(q, k, v),
        }
        seconds = medians(forms, repeats=3 if quick else 15)
        found += [
            row(
                f"attention {name}, T = {length}",
                length / seconds[name],
                length / seconds["sdpa"],
                "torch SDPA",
                "tokens/s",
            )
            for name in list(forms)[1:]
        ]
    return found


def decoding_rows(quick: bool) -> list[dict]:
    """Greedy continuation of one token by 80, on the `stories` shape."""
    config = stories()
    model = Transformer(config, generator=torch.Generator().manual_seed(0)).eval()
    peer = hugging_face(config, attention="sdpa").eval()
    peer.load_state_dict(to_huggingface(model.state_dict(), config))
    peer.generation_config.eos_token_id = None  # both write every token asked for
    prompt = torch.tensor([[1]])

    def ours(*, use_cache: bool):
        return generate(
            model,
            prompt,
            max_new_tokens=NEW_TOKENS,
            generator=torch.Generator(),
            temperature=0,
            use_cache=use_cache,
        )

    def theirs():
        return peer.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
        )

    assert torch.equal(ours(use_cache=True), theirs())
    sides = {
        "cache": lambda: ours(use_cache=True),
        "none": lambda: ours(use_cache=False),
        "peer": theirs,
    }
    seconds = medians(sides, repeats=2 if quick else 7)
    rates = {name: NEW_TOKENS / s for name, s in seconds.items()}
    return [
        row("decoding with a cache", rates["cache"], rates["none"], "ours without", "tokens/s"),
        row("decoding with a cache", rates["cache"], rates["peer"], "HF Llama", "tokens/s"),
    ]


def packing_rows(quick: bool) -> list[dict]:
    """Forward and backward over the same documents, packed and padded."""
    rng = random.Random(0)
    config: ModelConfig = stories()
    lengths = [min(96, max(2, int(rng.lognormvariate(3.2, 0.7)))) for _ in range(60)]
    documents = [[rng.randrange(config.vocab_size) for _ in range(n)] for n in lengths]
    model = Transformer(config, generator=torch.Generator().manual_seed(0))

    def step(rows):
        mask = attention.document_mask(rows.documents_RT)
        logits = model(rows.ids_RT, positions_BT=rows.positions_RT, mask=mask)
        targets = loss.shifted_targets(rows.ids_RT, documents_BT=rows.documents_RT)
        loss.cross_entropy(logits, targets).backward()
        model.zero_grad(set_to_none=True)

    rows = {
        way.__name__: packed_rows(documents, way(lengths, 96), padding_id=0)
        for way in (best_fit, one_per_row)
    }
    sides = {name: lambda packed=packed: step(packed) for name, packed in rows.items()}
    seconds = medians(sides, repeats=2 if quick else 7)
    rates = {name: sum(lengths) / s for name, s in seconds.items()}
    return [
        row("packed documents", rates["best_fit"], rates["one_per_row"], "padded", "real tokens/s")
    ]


def rows(*, quick: bool) -> list[dict]:
    """Return the rows of this benchmark."""
    return attention_rows(quick) + decoding_rows(quick) + packing_rows(quick)
