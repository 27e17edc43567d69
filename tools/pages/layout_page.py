"""Write the page about choosing a layout, book/choosing_a_layout.md, from the simulator.

python -m tools.pages.layout_page [--check | --search]

The fastest layouts, with which the page compares the rule, take two minutes to find.  They lie in
book/data/layouts.json, and --search finds them again; the page computes what they reach.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from llmcourse.model import ModelConfig, llama3_8b, llama3_70b, llama3_405b
from llmcourse.parallel.mesh import Split
from llmcourse_labs.scale import cost, simulator
from llmcourse_labs.scale.simulator import Cluster, Step

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGE, BEST = BOOK / "choosing_a_layout.md", BOOK / "data" / "layouts.json"
TEXT = Path(__file__).with_name("choosing_a_layout.md")
"""The page, with names of `numbers` and of tables in braces."""
SIZES = (8, 64, 512, 2_048, 16_384)
HOP = "\N{MIDDLE DOT}"
SLOW = replace(simulator.REACHED["H100"], network=simulator.REACHED["H100"].network / 8)
"""A network of 50 Gb/s for each GPU, as one card of 400 Gb/s for a server."""


def _deepseek() -> ModelConfig:
    """Return a Llama with experts of the size of DeepSeek-V3; its ninth expert is the shared one.

    The 58 layers with experts; one key/value head stands for latent attention.
    """
    return ModelConfig(
        num_layers=58,
        width=7_168,
        num_heads=128,
        num_kv_heads=1,
        head_size=128,
        hidden=2_048,
        vocab_size=129_280,
        context_length=4_096,
        num_experts=256,
        experts_per_token=9,
    )


def _one() -> ModelConfig:
    """Return the shape of Llama 3.2 1B."""
    return ModelConfig(
        num_layers=16,
        width=2_048,
        num_heads=32,
        num_kv_heads=8,
        head_size=64,
        hidden=8_192,
        vocab_size=128_256,
        context_length=8_192,
        tied_head=True,
    )


def _at(config: ModelConfig, length: int) -> ModelConfig:
    return replace(config, context_length=length)


LARGE, LONG = _at(llama3_405b(), 8_192), _at(llama3_405b(), 131_072)
MODELS = {
    "1B": (_one(), 512),
    "8B": (_at(llama3_8b(), 8_192), 512),
    "70B": (_at(llama3_70b(), 8_192), 512),
    "405B": (LARGE, 2_048),
    "671B, experts": (_deepseek(), 15_360),
}
"""Models, and the sequences of a step."""
NEMOTRON = ModelConfig(
    num_layers=96,
    width=18_432,
    num_heads=96,
    num_kv_heads=8,
    head_size=192,
    hidden=8 * 18_432 // 3,
    vocab_size=256_000,
    context_length=4_096,
)
"""Two matrices of width 4 D, as three of 8/3 D."""
OLMO = ModelConfig(
    num_layers=64,
    width=5_120,
    num_heads=40,
    num_kv_heads=8,
    head_size=128,
    hidden=27_648,
    vocab_size=100_352,
    context_length=8_192,
)
"""Three of four layers look back 4,096 tokens alone; here all look back to the beginning."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A layout as its makers published it."""

    name: str
    config: ModelConfig
    batch_size: int
    axes: dict[str, int]
    chunks: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    accelerator: str = "H100"
    printed: str

    @property
    def cluster(self) -> Cluster:
        """What it ran on."""
        return Cluster(accelerator=self.accelerator, num_gpus=Split(**self.axes).num_ranks)

    @property
    def step(self) -> Step:
        """What the simulator says of it."""
        shares = Split(**self.axes).batch_shares
        return _simulated(
            self.config,
            self.cluster,
            self.batch_size,
            {**self.axes, "micro_batches": self.batch_size // shares, "chunks": self.chunks},
            self.settings,
        )

    @property
    def rule(self) -> Step:
        """What the rule would have picked."""
        return _chosen(self.config, self.cluster, self.batch_size)


HYBRID = {"zero_stage": 3, "shards": 64}
"""Of OLMo 3."""

PUBLISHED = {
    "llama": Published(
        name="Llama 3 405B, 8,192 tokens",
        config=LARGE,
        batch_size=2_048,
        axes={"dp": 128, "pp": 16, "tp": 8},
        chunks=7,
        settings={"recompute": "cheap"},
        printed="41 %",
    ),
    "long": Published(
        name="Llama 3 405B, 131,072 tokens",
        config=LONG,
        batch_size=128,
        axes={"dp": 8, "pp": 16, "cp": 16, "tp": 8},
        chunks=7,
        settings={"recompute": "cheap"},
        printed="38 %",
    ),
    "nemotron": Published(
        name="Nemotron-4 340B",
        config=NEMOTRON,
        batch_size=2_304,
        axes={"dp": 64, "pp": 12, "tp": 8},
        chunks=8,
        printed="41 %",
    ),
    "olmo": Published(
        name="OLMo 3 32B",
        config=OLMO,
        batch_size=1_024,
        axes={"dp": 1_024},
        settings=HYBRID | {"recompute": "block"},
        printed="41 %",
    ),
    "deepseek": Published(
        name="DeepSeek-V3",
        config=_deepseek(),
        batch_size=15_360,
        axes={"dp": 2, "pp": 16, "ep": 64},
        settings={"recompute": "block"},
        accelerator="H800",
        printed="{deepseek_mfu} %",
    ),
}


def _simulated(
    config: ModelConfig,
    cluster: Cluster,
    batch_size: int,
    sizes: dict[str, int],
    settings: dict[str, Any],
) -> Step:
    """Return a step of a layout that is given by its numbers."""
    tp = sizes.get("tp", 1)
    split = Split(
        **sizes,
        pipeline="interleaved" if sizes.get("chunks", 1) > 1 else "1f1b",
        sequence_parallel=tp > 1,
        replicate_kv=tp > config.num_kv_heads,
    )
    return simulator.simulate(config, split, cluster, batch_size=batch_size, **settings)


@cache
def _chosen(config: ModelConfig, cluster: Cluster, batch_size: int) -> Step:
    return simulator.choose(config, cluster, num_tokens=batch_size * config.context_length)


def picked(name: str, num_gpus: int, **cluster: Any) -> Step | None:
    """Return what the rule picks for a row of the table, or None if nothing fits."""
    config, batch = MODELS[name]
    try:
        return _chosen(config, Cluster(num_gpus=num_gpus, **cluster), batch)
    except ValueError as error:
        if "the rule" not in str(error):
            raise
        return None


# --- the fastest layouts


def find_best() -> dict[str, Any]:
    """Search the fastest layout of every cell of the table in which one fits."""
    found = {}
    for name, (config, batch) in MODELS.items():
        menu = ("nothing", "attention", "block")
        menu = menu if config.num_experts else ("nothing", "cheap", *menu[1:])
        for num_gpus in SIZES:
            if picked(name, num_gpus) is None:
                continue
            tokens = batch * config.context_length
            cluster = Cluster(num_gpus=num_gpus)
            best = simulator.search(
                config, cluster, num_tokens=tokens, recompute=menu, sharded=True
            )[0]
            found[f"{name}, {num_gpus}"] = described(best)
    return found


def described(step: Step) -> dict[str, Any]:
    """Return the numbers by which `_simulated` finds a step again."""
    names = ("dp", "pp", "cp", "ep", "tp", "micro_batches", "chunks")
    job, sizes = step.job, asdict(step.job.split)
    settings = {"recompute": job.recompute, "zero_stage": job.zero_stage, "shards": job.shards}
    return {"sizes": {name: sizes[name] for name in names}, "settings": settings}


@cache
def best(name: str, num_gpus: int) -> Step:
    """Return the fastest step of a cell, from the layout that was found."""
    config, batch = MODELS[name]
    one = json.loads(BEST.read_text(encoding="utf8"))[f"{name}, {num_gpus}"]
    return _simulated(config, Cluster(num_gpus=num_gpus), batch, one["sizes"], one["settings"])


# --- the page


def layout(step: Step) -> str:
    """Return the axes of a step, those of 1 left out."""
    sizes = step.job.split.sizes
    inner = ("tp", "cp", "ep", "pp", "dp")
    return f" {HOP} ".join(f"{axis} {sizes[axis]:,}" for axis in inner if sizes[axis] > 1)


def state(step: Step) -> str:
    """Return what is sharded."""
    job = step.job
    if job.zero_stage < 3:
        return "ZeRO-1"
    ranks = job.split.dp * job.split.cp
    return "ZeRO-3" if job.shards in (None, ranks) else f"ZeRO-3 over {job.shards}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def table() -> str:
    """Return the decision table."""
    lines = [
        "| model | GPUs | layout | state | computed again | MFU | memory, GB | behind the best |",
        "|---|---:|---|---|---|---:|---:|---:|",
    ]
    for name, (config, batch) in MODELS.items():
        for num_gpus in SIZES:
            step = picked(name, num_gpus)
            if step is None:
                each = batch * config.context_length // num_gpus
                few = each < simulator.TOKENS
                why = f"batch too small: {each} tokens for each" if few else "does not fit"
                lines.append(f"| {name} | {num_gpus:,} | {why} | | | | | |")
                continue
            behind = step.seconds / best(name, num_gpus).seconds - 1
            cells = (name, f"{num_gpus:,}", layout(step), state(step), step.job.recompute)
            numbers = (percent(step.mfu), f"{step.memory_bytes / 1e9:.0f}", percent(behind))
            lines.append(f"| {' | '.join((*cells, *numbers))} |")
    return "\n".join(lines)


def kept_table() -> str:
    """Return what a sequence keeps of three models."""
    lines = [
        "| model | a token in a layer, kB | a sequence, GB | without cheap parts | blocks again |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in ("8B", "70B", "405B"):
        config, _ = MODELS[name]
        sizes = [
            config.num_layers * config.context_length * cost.kept_bytes(config, again) / 1e9
            for again in ("nothing", "cheap", "block")
        ]
        each = f"{cost.kept_bytes(config) / 1e3:,.0f}"
        lines.append(f"| {name} | {each} | " + " | ".join(f"{x:,.0f}" for x in sizes) + " |")
    return "\n".join(lines)


def price(name: str, **axes: int) -> float:
    """Return the messages of a layer as a share of its arithmetic, for a cut along one axis."""
    config, _ = MODELS[name]
    tp = axes.get("tp", 1)
    split = Split(**axes, sequence_parallel=tp > 1, replicate_kv=tp > config.num_kv_heads)
    job = simulator.Job(config=config, split=split, batch_size=split.batch_shares)
    cluster = Cluster(num_gpus=split.num_ranks)
    seconds = {"arithmetic": 0.0, "messages": 0.0}
    for _, part, forward, backward in simulator.operations(job, cluster):
        kind = "arithmetic" if part in ("products", "attention") else "messages"
        seconds[kind] += (forward + backward) * (part != "memory")
    return seconds["messages"] / seconds["arithmetic"]


def price_table() -> str:
    """Return what cuts inside a replica cost."""
    cuts: dict[str, dict[str, int]] = {
        "cp 2": {"cp": 2},
        "cp 4": {"cp": 4},
        "tp 2": {"tp": 2},
        "tp 4": {"tp": 4},
        "tp 4 and cp 4": {"tp": 4, "cp": 4},
        "tp 8": {"tp": 8},
        "tp 16, across the network": {"tp": 16},
    }
    lines = ["| cut | 8B | 70B | 405B |", "|---|---:|---:|---:|"]
    for cut, axes in cuts.items():
        shares = (percent(price(name, **axes)) for name in ("8B", "70B", "405B"))
        lines.append(f"| {cut} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


def networks() -> str:
    """Return the rule's layouts on three networks."""
    kinds: dict[str, dict[str, Any]] = {
        "H100, 400 Gb/s for each GPU": {},
        "H100, 50 Gb/s for each GPU": {"reached": SLOW},
        "GB200, domains of 72": {"accelerator": "GB200"},
    }
    lines = [
        "| model | GPUs | network | layout | state | computed again | MFU |",
        "|---|---:|---|---|---|---|---:|",
    ]
    for name, num_gpus in (("70B", 512), ("405B", 2_048), ("671B, experts", 2_048)):
        for kind, cluster in kinds.items():
            step = picked(name, num_gpus, **cluster)
            where = f"| {name} | {num_gpus:,} | {kind} |"
            if step is None:
                lines.append(f"{where} does not fit | | | |")
                continue
            cells = (layout(step), state(step), step.job.recompute, percent(step.mfu))
            lines.append(f"{where} {' | '.join(cells)} |")
    return "\n".join(lines)


def published_table() -> str:
    """Return published layouts beside the rule's."""
    lines = ["| run | GPUs | whose | layout | state | MFU, predicted | published |"]
    lines.append("|---|---:|---|---|---|---:|---:|")
    for run in PUBLISHED.values():
        gpus = f"{run.cluster.num_gpus:,} {run.accelerator}"
        for who, step, printed in (("theirs", run.step, run.printed), ("the rule's", run.rule, "")):
            cells = (run.name, gpus, who, layout(step), state(step), percent(step.mfu), printed)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def tokens_to_hide(cards: int, reached: simulator.Efficiency | None = None) -> float:
    """Return the tokens of a micro-batch behind which the messages of ZeRO-3 hide.

    Bytes 8 N (weights twice, gradients once) against 6 N FLOPs for each token.
    """
    cluster = Cluster(reached=reached)
    rate = cluster.ring(inside=cards, span=cluster.num_gpus, rings=1)
    return 8 / 6 * cluster.product_flop_per_s / rate


def numbers() -> dict[str, Any]:
    """Return the numbers of the text."""
    large, moe = MODELS["405B"][0], MODELS["671B, experts"][0]
    steps = {name: (run.step, run.rule) for name, run in PUBLISHED.items()}
    plain = replace(PUBLISHED["deepseek"], settings={"recompute": "nothing"}).step.seconds_by_part
    behind = [
        step.seconds / best(name, n).seconds - 1
        for name in MODELS
        for n in SIZES
        if (step := picked(name, n))
    ]
    parameters = cost.num_parameters(large)
    olmo = replace(PUBLISHED["olmo"], settings=HYBRID | {"recompute": "cheap"})
    code = _chosen(MODELS["70B"][0], Cluster(num_gpus=512), 512)
    sizes = code.job.split.sizes
    return {
        "reached": f"{Cluster().product_flop_per_s / 1e12:.0f}",
        "eight_cards": f"{Cluster().ring(inside=8, span=64, rings=1) / 1e9:.0f}",
        "exposed": round(100 * simulator.rule.EXPOSED),
        "code_says": f"{sizes} {code.mfu:.0%}",
        "nemotron_one": percent(replace(PUBLISHED["nemotron"], chunks=1).step.mfu),
        "olmo_block": percent(steps["olmo"][0].mfu),
        "olmo_cheap": percent(olmo.step.mfu),
        "rms": f"{100 * simulator.root_mean_square(simulator.validate(simulator.PREDICTED)):.1f}",
        "hide_eight": f"{tokens_to_hide(8):,.0f}",
        "hide_one": f"{tokens_to_hide(1):,.0f}",
        "hide_slow": f"{tokens_to_hide(8, SLOW):,.0f}",
        "seventy_state": f"{18 * cost.num_parameters(MODELS['70B'][0]) / 64e9:.0f}",
        "large_state": f"{6 * parameters / 64e9 + 12 * parameters / 16_384e9:.0f}",
        "tp_eight": percent(price("405B", tp=8)),
        "tp_network": percent(price("405B", tp=16)),
        "ep_inside": percent(price("671B, experts", ep=8)),
        "ep_network": percent(price("671B, experts", ep=64)),
        "bubble_meta": percent(15 / (7 * 16)),
        "moe_total": f"{cost.num_parameters(moe) / 1e9:.0f}",
        "moe_active": f"{cost.num_active_parameters(moe) / 1e9:.0f}",
        "tokens": simulator.TOKENS,
        "slice": simulator.SLICE,
        "bubble": round(100 * simulator.BUBBLE),
        "num_cells": len(behind),
        "num_near": sum(each <= 0.03 for each in behind),
        "worst": percent(max(behind)),
        "deepseek_ratio": f"{plain['ep'] / (plain['products'] + plain['attention']):.1f}",
        "deepseek_mfu": f"{100 * cost.PUBLISHED['DeepSeek-V3'].mfu:.0f}",
        "steps": steps,
        "behind": behind,
    }


def drawing() -> str:
    """Return the five questions as a drawing, in SVG that takes the page's colours."""
    steps = (
        ("1", "Is the batch large enough?", "fewer GPUs, or a larger batch"),
        ("2", "Do the activations fit?", "cheap recomputation, cp, tp"),
        ("3", "Does the state fit?", "ZeRO-3 if it hides, else pp"),
        ("4", "Are there experts?", "ep, inside the domain"),
        ("5", "Is the bubble small?", "one more cut: back to 2"),
    )
    answers = ("no", "no", "no", "yes", "no")
    parts = []
    for row, ((number, question, action), answer) in enumerate(zip(steps, answers, strict=True)):
        y = 8 + 76 * row
        text = 'fill="currentColor" stroke="none"'
        on = 'text-anchor="middle" style="fill:var(--look-on)"'
        parts += [
            f'<rect class="off" x="8" y="{y}" width="246" height="46" rx="4"/>',
            f'<circle class="on" cx="30" cy="{y + 23}" r="12"/>',
            f'<text x="30" y="{y + 28}" {on}>{number}</text>',
            f'<text x="50" y="{y + 28}" {text}>{question}</text>',
            f'<path class="ink" d="M254,{y + 23}H286M280,{y + 18}L286,{y + 23}L280,{y + 28}"/>',
            f'<text x="270" y="{y + 14}" text-anchor="middle" {text}>{answer}</text>',
            f'<text x="294" y="{y + 28}" {text}>{action}</text>',
        ]
        if row < len(steps) - 1:
            down = f"M131,{y + 46}V{y + 74}M126,{y + 68}L131,{y + 74}L136,{y + 68}"
            parts.append(f'<path class="ink" d="{down}"/>')
    said = " ".join(
        f"{n}. {q} {a.capitalize()}: {act}." for (n, q, act), a in zip(steps, answers, strict=True)
    )
    return (
        '<svg class="drawing" viewBox="0 0 520 368" role="img" font-size="14" '
        f'aria-label="Five boxes, one under the other. {said}">' + "".join(parts) + "</svg>"
    )


def check(found: dict[str, Any]) -> None:
    """Fail where a sentence of the page is no longer true of its numbers."""
    steps, behind = found["steps"], found["behind"]
    split = {name: (a.job.split, b.job.split) for name, (a, b) in steps.items()}
    theirs, ours = split["llama"]
    assert (theirs.pp, ours.pp, ours.tp, ours.cp) == (16, 16, 4, 4)
    assert (ours.micro_batches, theirs.micro_batches) == (32, 16)
    bubbles = [step.seconds_by_part["bubble"] for step in steps["llama"]]
    assert 1.8 < bubbles[0] / bubbles[1] < 2.2
    assert (split["long"][1].pp, steps["long"][1].job.zero_stage) == (1, 3)
    theirs, ours = split["nemotron"]
    assert (ours.pp, ours.dp, ours.tp, ours.cp) == (theirs.pp, theirs.dp, 4, 2)
    assert percent(steps["nemotron"][0].mfu) == "41 %"
    assert abs(steps["olmo"][0].mfu - 0.41) < 0.015
    for again in ("nothing", "cheap", "attention"):
        assert not replace(PUBLISHED["olmo"], settings=HYBRID | {"recompute": again}).step.fits
    assert (split["olmo"][1].cp, percent(steps["olmo"][1].mfu)) == (2, "54 %")
    assert (split["deepseek"][0].pp, split["deepseek"][1].pp, split["deepseek"][1].ep) == (
        16,
        16,
        8,
    )
    assert all(step.fits for pair in steps.values() for step in pair)
    moe, few = ("671B, experts", 2_048), ("1B", 2_048)
    assert max(behind) < 0.36
    assert sorted(behind)[-3] > 0.25 > sorted(behind)[-4]
    for case in (moe, few):
        assert _chosen(*_row(*case)).seconds / best(*case).seconds > 1.25
    assert best(*few).job.split.tp == 2
    check_by_hand()
    assert best(*moe).job.split.cp > 2
    assert best(*moe).job.recompute == "nothing"
    for name in ("1B", "8B"):
        assert all(picked_split(name, n).num_ranks == picked_split(name, n).dp for n in SIZES[:3])
    assert picked_split("70B", 512).pp == 1 < picked_split("70B", 2_048).pp
    slow, fast = (_chosen(*_row("70B", 512, **at)) for at in ({"reached": SLOW}, {}))
    assert slow.job.split.pp > 1
    assert 0.6 < slow.mfu / fast.mfu < 0.72
    slow, fast = (_chosen(*_row("405B", 2_048, **at)) for at in ({"reached": SLOW}, {}))
    assert slow.mfu / fast.mfu > 0.96


def check_by_hand() -> None:
    """Check the worked example: a 70B on 64 GPUs."""
    config, batch = MODELS["70B"]
    parameters = cost.num_parameters(config) / 1e9
    whole, cheap = (
        config.num_layers * config.context_length * cost.kept_bytes(config, again) / 1e9
        for again in ("nothing", "cheap")
    )
    room = 0.95 * 80
    assert batch * config.context_length // 64 == 65_536
    assert [round(x) for x in (whole, cheap, whole / 2, cheap / 2, whole / 4)] == [
        180,
        121,
        90,
        60,
        45,
    ]
    assert (round(6 * parameters), round(18 * parameters / 64)) == (423, 20)
    assert cheap / 2 + 18 * parameters / 64 > room > whole / 4 + 18 * parameters / 64
    step = _chosen(*_row("70B", 64))
    assert (layout(step), state(step)) == (f"cp 4 {HOP} dp 16", "ZeRO-3")
    assert step.job.recompute == "nothing"


def _row(name: str, num_gpus: int, **cluster: Any) -> tuple[ModelConfig, Cluster, int]:
    config, batch = MODELS[name]
    return config, Cluster(num_gpus=num_gpus, **cluster), batch


def picked_split(name: str, num_gpus: int) -> Split:
    return _chosen(*_row(name, num_gpus)).job.split


def page() -> str:
    """Return the page; what its sentences say of the numbers is checked here."""
    found = numbers()
    check(found)
    published = published_table().replace("{deepseek_mfu}", found["deepseek_mfu"])
    tables = {
        "kept": kept_table(),
        "prices": price_table(),
        "table": table(),
        "networks": networks(),
        "published": published,
    }
    return TEXT.read_text(encoding="utf8").format(
        **{name: value for name, value in found.items() if isinstance(value, str | int)},
        drawing=drawing(),
        **{name: rows.replace(" %", "&nbsp;%") for name, rows in tables.items()},
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or say whether it is stale; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    parser.add_argument("--search", action="store_true", help="find the fastest layouts again")
    options = parser.parse_args(arguments)
    if options.search:
        BEST.write_text(json.dumps(find_best(), indent=1) + "\n", encoding="utf8")
    fresh = page()
    if not options.check:
        PAGE.write_text(fresh, encoding="utf8")
        return 0
    current = PAGE.exists() and PAGE.read_text(encoding="utf8") == fresh
    print("book/choosing_a_layout.md is " + ("fresh" if current else "stale: run make format"))
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
