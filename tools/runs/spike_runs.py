"""Record the runs that chapter 28 compares, in llmcourse_classroom/spikes.json.

    python -m tools.runs.spike_runs [accidents] [ladder] [scores] [lab]

A call that was cut short goes on with what is missing.  All runs have chapter 28's model.

accidents  100 calm steps at a rate of 0.005, then 30 steps with one accident at their beginning:
           the highest held-out loss, minus the one before, for four choices of precautions.
ladder     150 steps at a rate of 0.02 with bad batches in steps 110 to 112: one precaution after
           the other, and all but one.
scores     the same runs with three precautions, and one more that holds scores or logits; those
           with none and with QK-norm stand in the ladder.
lab        the same with every choice that the spike lab offers; seed 0 alone, all losses.
"""

import copy
import itertools
import math
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from llmcourse import loss, model, optim, train
from llmcourse.base import runtime
from llmcourse.model.attention import causal_mask
from llmcourse.optim.stability import qk_clip, soft_cap
from llmcourse_classroom.widgets.live_labs import lab_run
from llmcourse_labs import study
from tools.runs.recording import record

FILE = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "spikes.json"
SEEDS = (0, 1, 2, 3, 4)
SHAPE = lab_run().model
RATE, CALM_RATE, NUM_STEPS, WARM_STEPS = 2e-2, 5e-3, 150, 20
BAD, BAD_TOKEN = (110, 111, 112), 200
TAU = CAP = 10.0
Z_COEFFICIENT = 1e-4
LADDER = ("warm-up", "clipping", "beta2 0.95", "QK-norm")
HOLDING = ("QK-Clip", "soft-cap", "sandwich norm", "z-loss")
"""What holds scores or logits; one of them in a run."""
LAB = ("clipping", "beta2 0.95", "QK-norm", "QK-Clip", "soft-cap")
ACCIDENTS = ("rate", "batch", "gradient")
Trained = tuple[model.Transformer, torch.optim.Optimizer]


@cache
def texts() -> tuple[Tensor, Tensor]:
    """Return the tokens that runs read, and 385 that none reads."""
    settings = train.PRESETS["stories"]().replace(model=SHAPE, corpus_bytes=400_000)
    with tempfile.TemporaryDirectory() as folder:
        prepared = train.prepare(settings, Path(folder))
        parts = prepared.training[0:150_000], prepared.validation[0:385]
        read, held_out = (torch.from_numpy(part.astype("int64")) for part in parts)
    return read, held_out


def batch(number: int, seed: int, *, bad: bool = False) -> Tensor:
    """Return eight rows of 49 tokens: text, or one token repeated."""
    if bad:
        return torch.full((8, 49), BAD_TOKEN)
    g = runtime.generator(1000 + 10_000 * seed + number)
    starts_B1 = torch.randint(0, len(texts()[0]) - 49, (8, 1), generator=g)
    return texts()[0][starts_B1 + torch.arange(49)]


def attention_capped(q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor, *, mask: None) -> Tensor:
    """Attend by scores that are bent to stay below CAP."""
    scores_BHTS = torch.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK) / math.sqrt(SHAPE.head_size)
    allowed_TS = causal_mask(*scores_BHTS.shape[-2:])
    scores_BHTS = soft_cap(scores_BHTS, CAP).masked_fill(~allowed_TS, -math.inf)
    return torch.einsum("bhts,bshk->bthk", scores_BHTS.softmax(-1), v_BTHK)


def add_norms_behind(net: model.Transformer) -> None:
    """Put a norm behind every attention and feed-forward network, too."""
    for block in net.blocks:
        for part in (block.attention, block.feed_forward):
            part.out_norm = model.RMSNorm(SHAPE.width, SHAPE.norm_eps)
            part.register_forward_hook(lambda part, _given, out: part.out_norm(out))


def begin(on: tuple[str, ...], seed: int) -> Trained:
    """Return a new model and its optimizer, with some of the precautions."""
    shape = replace(SHAPE, qk_norm="QK-norm" in on)
    net = model.Transformer(shape, generator=runtime.generator(seed))
    if "soft-cap" in on:
        net.attend_with(attention_capped)
    if "sandwich norm" in on:
        add_norms_behind(net)
    betas = (0.9, 0.95 if "beta2 0.95" in on else 0.999)
    return net, optim.AdamW(net.parameters(), lr=RATE, betas=betas, weight_decay=0.0)


def one_step(
    trained: Trained, ids_BT: Tensor, rate: float, on: tuple[str, ...], *, times: float = 1.0
) -> tuple[float, float]:
    """Train on one batch; return its loss, and the gradient's norm before clipping."""
    net, optimizer = trained
    optimizer.param_groups[0]["lr"] = rate
    logits_BTV, targets_BT = net(ids_BT[:, :-1]), ids_BT[:, 1:]
    value = total = loss.cross_entropy(logits_BTV, targets_BT)
    if "z-loss" in on:
        total = value + loss.z_loss(logits_BTV, targets_BT, coefficient=Z_COEFFICIENT)
    (times * total).backward()
    norm = optim.clip_by_global_norm(net.parameters(), 1.0 if "clipping" in on else math.inf)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if "QK-Clip" in on:
        largest_LH = study.largest_scores(net, ids_BT[:, :-1])
        for block, largest_H in zip(net.blocks, largest_LH, strict=True):
            qk_clip(block.attention.w_q, block.attention.w_k, largest_H, TAU)
    return value.item(), float(norm)


def run(on: tuple[str, ...], seed: int, *, curves: bool = False) -> dict[str, Any]:
    """Return what a run of 150 steps has come to; with `curves`, its losses and norms."""
    trained, losses, norms, scores = begin(on, seed), [], [], []
    for step in range(NUM_STEPS):
        warm = min(1, (step + 1) / WARM_STEPS) if "warm-up" in on else 1
        ids_BT = batch(step, seed, bad=step in BAD)
        value, norm = one_step(trained, ids_BT, RATE * warm, on)
        losses.append(value)
        norms.append(norm)
        if step % 10 == 9:
            with torch.no_grad():
                text_BT = batch(step, seed)[:, :-1]
                scores.append(study.largest_scores(trained[0], text_BT).max().item())
    if curves:
        return {"losses": shortened(losses), "norms": shortened(norms)}
    with torch.no_grad():
        log_z = loss.logsumexp(trained[0](batch(500, seed)[:, :-1])).mean().item()
    found = {
        "end": mean(losses[-10:]),
        "height": max(losses[step] for step in BAD),
        "rise": mean(losses[113:118]) - mean(losses[105:110]),
        "log_z": log_z,
    }
    return {name: shortened([x])[0] for name, x in found.items()} | {"scores": shortened(scores)}


def shortened(values: list[float]) -> list[float]:
    """Return the values to four digits."""
    return [float(f"{value:.4g}") for value in values]


def held_out_loss(net: model.Transformer) -> float:
    """Return the loss on text that no run reads."""
    ids = texts()[1]
    with torch.no_grad():
        return loss.cross_entropy(net(ids[:-1].view(8, 48)), ids[1:].view(8, 48)).item()


def accidents(seed: int) -> dict[str, dict[str, float]]:
    """Return how far each accident raises the held-out loss, by the precautions that are on."""
    found: dict[str, dict[str, float]] = {name: {} for name in ACCIDENTS}
    for slow in ((), ("beta2 0.95",)):
        trunk = begin(("QK-norm", *slow), seed)
        for step in range(100):
            one_step(trunk, batch(step, seed), CALM_RATE, ())
        before = held_out_loss(trunk[0])
        for accident, clip in itertools.product(ACCIDENTS, ((), ("clipping",))):
            trained, highest = copy.deepcopy(trunk), -math.inf
            for step in range(30):
                rate = 10 * CALM_RATE if accident == "rate" and step < 5 else CALM_RATE
                times = 1000.0 if accident == "gradient" and step == 0 else 1.0
                ids_BT = batch(100 + step, seed, bad=accident == "batch" and step < 3)
                one_step(trained, ids_BT, rate, clip, times=times)
                highest = max(highest, held_out_loss(trained[0]))
            found[accident][" + ".join((*clip, *slow)) or "none"] = round(highest - before, 4)
    return found


def choices() -> list[tuple[str, ...]]:
    """Return what can be on together in the spike lab: one at most of those that hold scores."""
    usual = [c for k in range(3) for c in itertools.combinations(LAB[:2], k)]
    return [(*some, *one) for one in ((), *((name,) for name in LAB[2:])) for some in usual]


def main(wanted: list[str]) -> int:
    """Make the parts that are missing, of the wanted ones or of all."""
    three = LADDER[:3]
    climbed = [LADDER[:k] for k in range(len(LADDER) + 1)]
    climbed += [tuple(name for name in LADDER if name != left) for left in three]
    many = {
        "accidents": {"rise": accidents},
        "ladder": {" + ".join(on) or "none": lambda seed, on=on: run(on, seed) for on in climbed},
        "scores": {
            name: lambda seed, name=name: run((*LADDER[:3], name), seed) for name in HOLDING
        },
    }
    lab = {
        " + ".join(on) or "none": lambda s, on=on: run(("warm-up", *on), s, curves=True)
        for on in choices()
    }
    settings = {"steps": NUM_STEPS, "rate": RATE, "bad": list(BAD), "tau": TAU, "cap": CAP}
    about = {"command": "python -m tools.runs.spike_runs", "settings": settings}
    for seeds, runs in ((SEEDS[:1], {"lab": lab}), (SEEDS, many)):
        chosen = [part for part in runs if not wanted or part in wanted]
        if chosen:
            record(FILE, runs, seeds=seeds, wanted=chosen, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
