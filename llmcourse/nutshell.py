"""The whole course in one file: a tokenizer, a Llama, its loss, its optimizer, its training.

Read it from top to bottom.  Every part is written as a textbook writes it; the rooms of the package
hold the same functions in a faster and more general form, and tests hold the two equal.

    python -m llmcourse.nutshell

trains a small model (loss 6.6 to 0.7 in a minute) and lets it write; started again, it goes on.

Letters:  B sequences of a batch, T tokens of a sequence, D channels of a token, H query heads,
G key/value heads, K channels of a head, F hidden units, V tokens of the vocabulary.
"""

import math
import os
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import regex
import torch
from torch import nn

# ------------------------------------------------------------------ tokens: byte-pair encoding

WORD = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # GPT-2's
END = "<|endoftext|>"  # ends every document, and is one token


def join(parts, pair):
    """Make one token of a pair of tokens wherever the two stand side by side in a word."""
    joined = []
    for part in parts:
        if joined and (joined[-1], part) == pair:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def learn_merges(text, vocab_size):
    """Join the most frequent pair of neighbouring tokens, again and again; return the pairs."""
    counts = Counter(word for part in text.split(END) for word in regex.findall(WORD, part))
    words = {tuple(bytes([b]) for b in word.encode()): n for word, n in counts.items()}
    merges = []
    while 256 + len(merges) + 1 < vocab_size:  # 256 bytes, the merges, END
        pairs = Counter()
        for parts, n in words.items():
            for pair in pairwise(parts):
                pairs[pair] += n
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))  # of equals the greater bytes
        merges.append(best)
        words = {tuple(join(parts, best)): n for parts, n in words.items()}
    return merges


class Tokenizer:
    """Text to token ids and back: 256 bytes, then what the merges make, then END."""

    def __init__(self, merges):
        self.merges, self.end = merges, 256 + len(merges)
        self.tokens = [bytes([byte]) for byte in range(256)] + [a + b for a, b in merges]
        self.tokens.append(END.encode())
        self.id_of = {token: i for i, token in enumerate(self.tokens)}
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.known = {}  # words met before, with their ids

    def encode_word(self, word):
        """Apply to a word the merges that it holds, first learnt first."""
        parts = [bytes([byte]) for byte in word.encode()]
        while pairs := [pair for pair in pairwise(parts) if pair in self.rank]:
            parts = join(parts, min(pairs, key=self.rank.get))
        return [self.id_of[part] for part in parts]

    def encode(self, text):
        """Return the ids of a text."""
        ids = []
        for document in text.split(END):
            for word in regex.findall(WORD, document):
                if word not in self.known:
                    self.known[word] = self.encode_word(word)
                ids += self.known[word]
            ids.append(self.end)
        return ids[:-1]  # the last piece had no END after it

    def decode(self, ids):
        """Return the text of some ids."""
        return b"".join(self.tokens[i] for i in ids).decode(errors="replace")


# ------------------------------------------------------------------ the model and its loss


@dataclass
class Config:
    """The shape of the model; as it stands, one that writes stories after a minute of training."""

    num_layers: int = 4
    width: int = 80  # D
    num_heads: int = 4  # H
    num_kv_heads: int = 2  # G
    head_size: int = 20  # K
    hidden: int = 224  # F
    vocab_size: int = 768  # V
    context_length: int = 96  # the most tokens that the model sees at once
    rope_theta: float = 10_000.0


def matrix(rows, columns, std=0.02):
    """Draw a matrix of weights from a normal distribution around 0."""
    return nn.Parameter(std * torch.randn(rows, columns))


class RMSNorm(nn.Module):
    """Scale every token to root-mean-square 1, then every channel by a learned gain.

    y = gain * x / sqrt(mean(x^2) + eps)
    """

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return self.gain * x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()


def rope_angles(num_tokens, head_size, theta):
    """Return the angle of every position t and pair of channels j:  t theta^(-2j / K)."""
    speeds = theta ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    return torch.outer(torch.arange(num_tokens, dtype=torch.float64), speeds)


def rope(x, angles):
    """Turn every two neighbouring channels (a, b) of q or k by the angle of their place."""
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


def softmax(z):
    """Turn numbers into probabilities:  exp(z) / sum exp(z)."""
    exp = (z - z.amax(-1, keepdim=True)).exp()  # the largest becomes 1: nothing overflows
    return exp / exp.sum(-1, keepdim=True)


def attend(q, k, v):
    """Let every token read from itself and from the tokens before it.

    out = softmax(q k^T / sqrt(K)) v:  what a token looks for, what each offers, and hands over
    """
    T, K = q.shape[-2:]
    scores = q @ k.transpose(-2, -1) / math.sqrt(K)  # row t: how well token t matches each token
    later = torch.ones(T, T, dtype=torch.bool).triu(1)  # above the diagonal: may not be seen
    return softmax(scores.masked_fill(later, -math.inf)) @ v


class Attention(nn.Module):
    """H query heads that share G pairs of key and value heads."""

    def __init__(self, config):
        super().__init__()
        D, K, H, G = config.width, config.head_size, config.num_heads, config.num_kv_heads
        self.head_size, self.heads_per_group = K, H // G
        self.w_q = matrix(H * K, D)
        self.w_k = matrix(G * K, D)
        self.w_v = matrix(G * K, D)
        self.w_o = matrix(D, H * K, std=0.02 / math.sqrt(2 * config.num_layers))

    def heads(self, x):
        """Cut the channels into heads:  (B, T, heads x K) to (B, heads, T, K)."""
        return x.unflatten(-1, (-1, self.head_size)).transpose(1, 2)

    def forward(self, x, angles):
        # Queries, keys and values.  Only the first two know where they stand.
        q = rope(self.heads(x @ self.w_q.T), angles)
        k = rope(self.heads(x @ self.w_k.T), angles)
        v = self.heads(x @ self.w_v.T)
        # The query heads of one group share its keys and values, which saves memory.
        k, v = (heads.repeat_interleave(self.heads_per_group, dim=1) for heads in (k, v))
        # The heads side by side again, and mixed by the output matrix.
        return attend(q, k, v).transpose(1, 2).flatten(-2) @ self.w_o.T


class FeedForward(nn.Module):
    """SwiGLU: every token by itself, through F hidden units, each multiplied by a gate.

    y = W_down (silu(W_gate x) * W_up x),  silu(z) = z sigmoid(z)
    """

    def __init__(self, config):
        super().__init__()
        D, F = config.width, config.hidden
        self.w_gate = matrix(F, D)
        self.w_up = matrix(F, D)
        self.w_down = matrix(D, F, std=0.02 / math.sqrt(2 * config.num_layers))

    def forward(self, x):
        gate = x @ self.w_gate.T
        return (gate * gate.sigmoid() * (x @ self.w_up.T)) @ self.w_down.T


class Block(nn.Module):
    """One layer.  Its two parts add to x: attention what other tokens know, then each alone."""

    def __init__(self, config):
        super().__init__()
        self.attention_norm = RMSNorm(config.width)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config.width)
        self.feed_forward = FeedForward(config)

    def forward(self, x, angles):
        x = x + self.attention(self.attention_norm(x), angles)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    """Token ids in, one logit for every token of the vocabulary out, at every position."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = matrix(config.vocab_size, config.width)  # on the way in, and out
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.width)

    def forward(self, ids):
        angles = rope_angles(ids.shape[1], self.config.head_size, self.config.rope_theta)
        x = nn.functional.embedding(ids, self.embedding)  # one row for every id
        for block in self.blocks:
            x = block(x, angles)
        return self.norm(x) @ self.embedding.T


def cross_entropy(logits, targets):
    """Return the mean surprise about the tokens that came, in nats:  -log softmax(logits)[target].

    -log softmax(z)[i] = log(sum exp(z)) - z[i]
    """
    top = logits.amax(-1, keepdim=True)
    log_sum = top.squeeze(-1) + (logits - top).exp().sum(-1).log()
    of_target = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (log_sum - of_target).mean()


# ------------------------------------------------------------------ the optimizer and its rate


class AdamW:
    """Divide every gradient by its usual size, so that all weights learn at the same pace."""

    def __init__(self, model, betas=(0.9, 0.95), eps=1e-8, decay=0.1):
        self.betas, self.eps, self.decay, self.t = betas, eps, decay, 0  # t steps done
        self.weights = dict(model.named_parameters())
        self.m = {name: torch.zeros_like(w) for name, w in self.weights.items()}
        self.v = {name: torch.zeros_like(w) for name, w in self.weights.items()}

    @torch.no_grad()
    def step(self, lr):
        """Update all weights, then forget their gradients."""
        self.t += 1
        b1, b2 = self.betas
        for name, w in self.weights.items():
            g, m, v = w.grad, self.m[name], self.v[name]
            # Gains belong near 1, and rows of rare tokens would fade: the other matrices decay.
            decay = self.decay if w.ndim == 2 and name != "embedding" else 0.0
            m.copy_(b1 * m + (1 - b1) * g)  # running mean of the gradient
            v.copy_(b2 * v + (1 - b2) * g**2)  # and of its square
            m_hat = m / (1 - b1**self.t)  # both began at 0: correct for that
            v_hat = v / (1 - b2**self.t)
            w.sub_(lr * (m_hat / (v_hat.sqrt() + self.eps) + decay * w))
            w.grad = None


@torch.no_grad()
def clip(gradients, max_norm):
    """Shorten all gradients together to length `max_norm`, if they are longer."""
    norm = sum(g.square().sum() for g in gradients).sqrt()
    for g in gradients:
        g.mul_(min(1.0, max_norm / norm))


def warmup_cosine(step, peak, num_steps, warmup, final):
    """Return the learning rate of a step: up in a straight line, then down half a cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / (num_steps - warmup)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


# ------------------------------------------------------------------ training


def batches(tokens, batch_size, length):
    """Yield windows of the text from random places; the targets are the tokens that follow."""
    while True:
        starts = torch.randint(len(tokens) - length, (batch_size,))
        windows = torch.stack([tokens[s : s + length + 1] for s in starts.tolist()])
        yield windows[:, :-1], windows[:, 1:]


def train(model, optimizer, drawn, num_steps, *, peak=6e-3, warmup=40):
    """Train to the end of the schedule; after each step, yield its loss."""
    while optimizer.t < num_steps:
        ids, targets = next(drawn)  # 1 data
        logits = model(ids)  # 2 forward
        loss = cross_entropy(logits, targets)  # 3 loss
        loss.backward()  # 4 backward
        #                                 5 gradient sync: several processes would average here
        lr = warmup_cosine(optimizer.t, peak, num_steps, warmup, final=peak / 20)
        clip([w.grad for w in model.parameters()], max_norm=1.0)
        optimizer.step(lr)  # 6 optimizer
        yield loss.item()  # 7 checkpoint: the caller may save now


def save(path, model, optimizer, tokenizer):
    """Write all that steps change.  A crash leaves the old file or the new one."""
    state = {"config": asdict(model.config), "weights": model.state_dict()}
    state |= {"m": optimizer.m, "v": optimizer.v, "t": optimizer.t}
    state |= {"merges": tokenizer.merges, "chance": torch.get_rng_state()}
    with Path(f"{path}.new").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())  # on the disk, before it takes the old one's place
    Path(f"{path}.new").replace(path)


def load(path):
    """Return model, optimizer and tokenizer; chance goes on where it was."""
    state = torch.load(path, weights_only=True)  # data alone: a file cannot run code
    model = Llama(Config(**state["config"]))
    model.load_state_dict(state["weights"])
    optimizer = AdamW(model)
    optimizer.m, optimizer.v, optimizer.t = state["m"], state["v"], state["t"]
    torch.set_rng_state(state["chance"])
    return model, optimizer, Tokenizer(state["merges"])


# ------------------------------------------------------------------ writing


def next_token_probabilities(logits, temperature=1.0, top_k=None, top_p=None):
    """Return the probabilities that the next token is drawn with."""
    if temperature == 0:  # always the likeliest
        return torch.zeros_like(logits).index_fill(-1, logits.argmax(-1), 1.0)
    p, order = softmax(logits / temperature).sort(descending=True, stable=True)
    if top_k is not None:  # the k likeliest
        p[top_k:] = 0
        p = p / p.sum()
    if top_p is not None and top_p < 1:  # the fewest likeliest that reach top_p together
        p[p.double().cumsum(-1) - p >= top_p * (1 - 1e-6)] = 0  # the likelier ones alone reach it
        p = p / p.sum()
    return torch.zeros_like(p).scatter(-1, order, p)


@torch.no_grad()
def generate(model, ids, num_tokens, stop=None, **how):
    """Append one token after the other; `how` is temperature, top_k and top_p."""
    for _ in range(num_tokens):
        seen = torch.tensor([ids[-model.config.context_length :]])
        p = next_token_probabilities(model(seen)[0, -1], **how)
        ids = [*ids, torch.multinomial(p, 1).item()]
        if ids[-1] == stop:
            break
    return ids


def main(path="nutshell.pt", num_steps=600):
    """Train on generated stories, go on where an earlier start was stopped, and write."""
    from llmcourse.data.corpus import stories  # noqa: PLC0415 - all else is in this file

    torch.set_num_threads(1)
    text = stories(2_850_000, seed=0)
    if Path(path).exists():
        model, optimizer, tokenizer = load(path)
        print(f"going on after step {optimizer.t}")
    else:
        torch.manual_seed(0)
        model = Llama(Config())
        optimizer = AdamW(model)
        tokenizer = Tokenizer(learn_merges(text, model.config.vocab_size))
    tokens = torch.tensor(tokenizer.encode(text))
    drawn = batches(tokens, 12, model.config.context_length)
    for loss in train(model, optimizer, drawn, num_steps):
        if optimizer.t % 50 == 0 or optimizer.t == num_steps:
            print(f"step {optimizer.t}: loss {loss:.3f} nats per token")
            save(path, model, optimizer, tokenizer)
    for _ in range(3):
        ids = generate(model, [tokenizer.end], 200, tokenizer.end, temperature=0.8)
        print("\n" + tokenizer.decode(ids[1:]).removesuffix(END))


if __name__ == "__main__":
    main()
