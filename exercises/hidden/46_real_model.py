"""Hidden tests of the exercises of chapter 46."""

import numpy as np
import torch


def check_1(t, call, rng):
    """Groups of all bytes, one or several."""
    drawn = np.random.default_rng(rng.randrange(2**31))
    for count in (1, 2, 5):
        groups = drawn.integers(0, 256, (count, 20), dtype=np.uint8)
        groups[:, :4] = drawn.normal(size=(count, 2)).astype("<f2").view(np.uint8)
        right = []
        for group in groups:
            d, m = group[:4].view("<f2").astype(float)
            bits = np.unpackbits(group[4:]).reshape(16, 2, 4) @ [8, 4, 2, 1]
            right += [d * q + m for q in (*bits[:, 1], *bits[:, 0])]
        answer = list(call("dequantise", groups.tobytes()))
        t.close(answer, right, f"{count} groups", relative=1e-6, absolute=1e-6)


def check_2(t, call, rng):
    """All names of models of several depths, names of other models, and files with gaps."""
    table = {
        **{f"attn_{x}": f"attention.w_{x}" for x in "qkv"},
        "attn_output": "attention.w_o",
        "attn_norm": "attention_norm.gain",
        "ffn_norm": "feed_forward_norm.gain",
        **{f"ffn_{x}": f"feed_forward.w_{x}" for x in ("gate", "up", "down")},
    }
    depth = rng.randrange(11, 40)
    whole = {"token_embd.weight": "embedding", "output_norm.weight": "norm.gain"}
    for layer in range(depth):
        for part, ours in table.items():
            whole[f"blk.{layer}.{part}.weight"] = f"blocks.{layer}.{ours}"
    for theirs in rng.sample(sorted(whole), 40):
        t.equal(call("our_name", theirs), whole[theirs], theirs)
    others = [
        "output.weight",
        "blk.0.attn_k.bias",
        "blk.2.ffn_gate_inp.weight",
        "blk..attn_q.weight",
    ]
    others += ["blk.1.attn_k_norm.weight", "a.blk.1.attn_q.weight", "blk.1.2.attn_q.weight", ""]
    for theirs in others:
        t.equal(call("our_name", theirs), None, f"the name {theirs!r}")
    for lost in (0, 1, 7):
        gone = set(rng.sample(sorted(whole), lost)) | set(sorted(whole)[::-1][: min(lost, 2)])
        kept = [name for name in whole if name not in gone] + others
        rng.shuffle(kept)
        right = sorted(whole[name] for name in gone)
        t.equal(
            call("missing", kept, depth), right, f"{depth} blocks, {len(gone)} tensors are missing"
        )


def check_3(t, call, rng):
    """Rows of several sizes, with equal logits among them."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for rows, size in ((1, 5), (4, 9), (7, 300)):
        logits = torch.randn(rows, size, generator=generator, dtype=torch.float64)
        logits = (4 * logits).round() / 4  # some are equal
        targets = torch.randint(size, (rows,), generator=generator)
        places, shares = [], []
        for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
            places.append(1 + sum(logit > row[target] for logit in row))
            shares.append(np.exp(row[target]) / np.exp(row).sum())
        right = [sum(p == 1 for p in places) / rows, float(np.median(places)), np.mean(shares)]
        answer = [float(number) for number in call("report", logits, targets)]
        t.close(answer, right, f"{rows} rows of {size} logits", relative=1e-5)


def check_4(t, call, rng):
    """Random attention weights with a sink at a random place."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    for layers, heads, num_tokens in ((1, 1, 6), (3, 2, 11), (2, 5, 17)):
        skip, place = rng.randrange(1, num_tokens - 1), rng.randrange(0, 2)
        scores = torch.randn(layers, heads, num_tokens, num_tokens, generator=generator)
        scores[..., place] += 3
        if layers * heads > 1:  # one head looks elsewhere
            scores[-1, -1, :, 2] += 9
        later = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)
        maps = scores.masked_fill(later, -torch.inf).softmax(-1)
        total = np.zeros(num_tokens)
        for row in maps.numpy().reshape(-1, num_tokens, num_tokens):
            total += row[skip:].sum(0)
        right = int(total.argmax())
        found, shares = call("sink", maps, skip)
        case = f"{layers} layers, {heads} heads, {num_tokens} tokens, {skip} skipped"
        t.equal(int(found), right, f"{case}: the place")
        t.close(shares, maps[:, :, skip:, right].sum(-1) / (num_tokens - skip), case, relative=1e-4)


def check_5(t, call, rng):
    """Conversations of several turns, with line breaks and empty messages."""
    start, end = "<|im_start|>", "<|im_end|>"
    for turns in (1, 2, 5):
        roles = ["user", "assistant"] * 3
        contents = [
            rng.choice(["", "one\ntwo", " 7 + 5 ", "system", "Hello"]) for _ in range(turns)
        ]
        talk = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
        for own in (False, True):
            messages = [{"role": "system", "content": "s"}, *talk] if own else talk
            for default in (None, "", "You are kind."):
                for ask in (False, True):
                    first = [] if own or default is None else [("system", default)]
                    pairs = first + [(m["role"], m["content"]) for m in messages]
                    pieces = ["".join((start, r, "\n", c, end, "\n")) for r, c in pairs]
                    right = "".join(pieces) + (start + "assistant\n" if ask else "")
                    case = f"{turns} messages, own system {own}, default {default!r}, ask {ask}"
                    t.equal(call("written", messages, default, ask), right, case)
        late = [*talk, {"role": "system", "content": "late"}]
        right = f"{start}system\nd{end}\n" + call("written", late, None, False)
        t.equal(call("written", late, "d", False), right, "a system message at the end")
        last = rng.choice(["", "a\nb", "Yes."])
        text = "".join(f"{start}assistant\n{c}{end}\n" for c in contents) + f"{start}assistant\n"
        t.equal(call("answered", text + last), last, "an answer that was cut off")
        t.equal(call("answered", f"{text}{last}{end}\n{start}user\nNo{end}\n"), last, "an answer")
