"""Forms of attention side by side, decoding with and without a cache, packing against padding."""

import random

import torch
import torch.nn.functional as F

from bench.peers import hugging_face
from bench.timing import medians, row
from llmcourse import loss
from llmcourse.data import best_fit, one_per_row, packed_rows
from llmcourse.model import ModelConfig, Transformer, attention, generate, stories
from llmcourse_labs.real import to_huggingface

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
    """Greedy continuation by 80 tokens, of one and of 8 prompts of 1 to 15, as `stories`."""
    config = stories()
    model = Transformer(config, generator=torch.Generator().manual_seed(0)).eval()
    peer = hugging_face(config, attention="sdpa").eval()
    peer.load_state_dict(to_huggingface(model.state_dict(), config))
    peer.generation_config.eos_token_id = None  # both write every token asked for
    prompt = torch.tensor([[1]])
    unequal = [torch.arange(1, length + 1) for length in range(1, 16, 2)]

    def ours(prompts, *, use_cache: bool = True):
        settings = {"temperature": 0, "use_cache": use_cache}
        return generate(model, prompts, max_new_tokens=NEW_TOKENS, **settings)

    def theirs(ids, mask):
        settings = {"do_sample": False, "use_cache": True, "pad_token_id": 0}
        return peer.generate(ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, **settings)

    padded = torch.stack([F.pad(row, (15 - len(row), 0)) for row in unequal])  # no prompt has a 0
    assert torch.equal(ours(prompt), theirs(prompt, torch.ones_like(prompt)))
    rows_of = zip(ours(unequal), theirs(padded, (padded > 0).long()), strict=True)
    assert all(torch.equal(row, their[-len(row) :]) for row, their in rows_of)
    sides = {
        "cache": lambda: ours(prompt),
        "none": lambda: ours(prompt, use_cache=False),
        "peer": lambda: theirs(prompt, torch.ones_like(prompt)),
        "unequal": lambda: ours(unequal),
        "one by one": lambda: [ours(row.unsqueeze(0)) for row in unequal],
        "peer, unequal": lambda: theirs(padded, (padded > 0).long()),
    }
    seconds = medians(sides, repeats=2 if quick else 7)
    rates = {name: NEW_TOKENS / s for name, s in seconds.items()}
    return [
        row("decoding with a cache", rates["cache"], rates["none"], "ours without", "tokens/s"),
        row(
            "decoding with a cache",
            rates["cache"],
            rates["peer"],
            "HF Llama",
            "tokens/s",
            aim=">= 1.5",
        ),
        *(
            row(
                "decoding 8 prompts of unequal lengths",
                8 * rates["unequal"],
                8 * rates[side],
                name,
                "tokens/s",
            )
            for side, name in (("one by one", "ours, one by one"), ("peer, unequal", "HF Llama"))
        ),
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
