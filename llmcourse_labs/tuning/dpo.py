"""DPO on a model of others: an adapter is learnt from pairs of answers of one's own.

    llmcourse tune --stage dpo --model smollm2 --data pairs.jsonl --out adapters/kind

Every line of the file is a conversation and two answers, of which the first was preferred::

    {"messages": [{"role": "user", "content": "Hi"}], "chosen": "Hello!", "rejected": "What."}

The model itself is the reference, so no second one is held: LoRA adds nothing at its start, and
what the reference says of the pairs is computed then, once.  What comes out is an adapter in peft's
files, which every command opens:  llmcourse chat --model adapters/kind.  Ctrl-C ends with what was
learnt so far; what was ended cannot be resumed, since an adapter holds no state of the optimizer.

Source:
    Rafailov et al. 2023, https://arxiv.org/abs/2305.18290
"""

from argparse import HelpFormatter
from collections.abc import Sequence
from pathlib import Path

import torch
from jsonargparse import ArgumentParser

from llmcourse.base import progress, runtime
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train.signals import StopRequest, interruptible
from llmcourse_labs.real.opening import INSTALLED, open_model
from llmcourse_labs.real.peft_adapter import adapter_files
from llmcourse_labs.real.template import Template
from llmcourse_labs.real.whole_folder import write_folder
from llmcourse_labs.tuning.conversations import Preferred, read_pairs
from llmcourse_labs.tuning.fitting import FitSettings, PairRows, fit_preferences
from llmcourse_labs.tuning.lora import adapter_of, add_low_rank
from llmcourse_labs.tuning.preferences import PreferenceLoss


def own_pair_rows(pairs: Sequence[Preferred], template: Template, tokenizer: Tokenizer) -> PairRows:
    """Return pairs of one's own as token ids, in the template of a model.

    Raises:
        ValueError: if the template does not begin an answer as its generation prompt says.
    """
    prompts: list[list[int]] = []
    sides: tuple[list[list[int]], list[list[int]]] = ([], [])
    for messages, *answers in pairs:
        prompt = template.ids(messages, tokenizer, add_generation_prompt=True)
        for side, answer in zip(sides, answers, strict=True):
            said = [*messages, {"role": "assistant", "content": answer}]
            ids, learned = template.learned(said, tokenizer)
            end = len(ids) - learned[::-1].index(True)
            if ids[: len(prompt)] != prompt or not all(learned[len(prompt) : end]):
                raise ValueError(
                    "the model's chat template opens answers in another way than its generation "
                    f"prompt: {answer[:60]!r}"
                )
            side.append(ids[len(prompt) : end])
        prompts.append(prompt)
    return PairRows(prompts, *sides)


def tune(arguments: Sequence[str]) -> None:
    """Learn an adapter, write it, and say how it went."""
    options = _parser().parse_args(list(arguments))
    to = Path(options.out)
    if to.exists():
        raise ValueError(f"{to} exists: choose another folder")
    pairs, opened = read_pairs(options.data), open_model(options.model)
    if opened.template is None:
        raise ValueError(f"{options.model} has no template for conversations")
    names = ("steps", "batch_size", "learning_rate", "seed")
    settings = FitSettings(**{name: options[name] for name in names})
    runtime.set_up(num_threads=options.num_threads, seed=settings.seed)
    rows = own_pair_rows(pairs, opened.template, opened.tokenizer)
    model, generator = opened.decoder, torch.Generator().manual_seed(settings.seed + 3)
    add_low_rank(model, options.lora_rank, generator=generator)
    told: list[str] = []
    asked, bar = StopRequest(listens=False), progress.bar(total=settings.steps, unit="step")

    def look(step: int, found: PreferenceLoss) -> bool:
        loss, ahead = found.losses_B.mean().item(), (found.margins > 0).float().mean().item()
        told.append(
            f"step {step} of {settings.steps}: loss {loss:.4f}, chosen ahead in {ahead:.0%}"
        )
        bar.update()
        bar.set_postfix(loss=f"{loss:.4f}", ahead=f"{ahead:.0%}")
        return asked()

    with bar, interruptible(asked):
        fit_preferences(model, None, rows, settings, beta=options.beta, on_step=look)
    write_adapter(model, options.model, to)
    early = "interrupted; " if len(told) < settings.steps else ""
    print(f"{told[0]}\n{told[-1]}\n{early}wrote {to}: llmcourse chat --model {to}")


def write_adapter(model: Transformer, base: str, to: Path) -> None:
    """Write the thin matrices of a model in peft's files, with the name of the model beside them.

    Args:
        model: with thin matrices.
        base: what was opened: an installed name, or a path.
        to: a new folder, which appears whole.
    """
    base = base if base in INSTALLED else str(Path(base).resolve())
    thin = adapter_of(model.state_dict())
    write_folder(to, adapter_files(thin, model.config, base=base), force=False)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="llmcourse tune --stage dpo",
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Learn from pairs of answers which one is preferred (DPO, with LoRA).",
    )
    parser.add_argument("--stage", choices=["dpo"], help="dpo")
    told = "a model of others: smollm2, a .gguf file, a folder"
    parser.add_argument("--model", required=True, help=told)
    told = "a .jsonl file, a pair a line: messages, chosen, rejected"
    parser.add_argument("--data", required=True, metavar="FILE", help=told)
    parser.add_argument("--out", required=True, help="new folder of the adapter")
    told = "what a nat away from the model as it was costs (%(default)s)"
    parser.add_argument("--beta", type=float, default=0.1, help=told)
    told = "of the thin matrices (%(default)s)"
    parser.add_argument("--lora_rank", type=int, default=16, help=told)
    parser.add_argument("--steps", type=int, default=100, help="updates (%(default)s)")
    parser.add_argument("--batch_size", type=int, default=4, help="pairs of one (%(default)s)")
    told = "of AdamW; it rises over 10 steps and falls to 0 (%(default)s)"
    parser.add_argument("--learning_rate", type=float, default=2e-4, help=told)
    parser.add_argument("--seed", type=int, default=0, help="of the draws (%(default)s)")
    parser.add_argument("--num_threads", type=int, default=1, help="of a product (%(default)s)")
    return parser
