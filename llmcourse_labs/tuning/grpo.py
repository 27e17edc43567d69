"""GRPO on a model of others: an adapter is learnt from answers that a checker has judged.

    llmcourse tune --stage grpo --model smollm2 --tasks sums --out adapters/sums

Each question stands in the model's own template.  A checker teaches nothing where no answer, or
every answer, is right: a model that does not answer in the form that is checked has to learn it
first, by --stage sft.  What comes out is an adapter in peft's files:  llmcourse chat --model
adapters/sums.
"""

from argparse import HelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from jsonargparse import ArgumentParser

from llmcourse.base import runtime
from llmcourse.base.progress import bar
from llmcourse_labs.real import peft_adapter
from llmcourse_labs.real.opening import RealModel, open_model
from llmcourse_labs.tuning.arithmetic import CHECKERS, Question, make_products, make_sums
from llmcourse_labs.tuning.checked import Asked, CheckedSettings, as_asked, learn_checked
from llmcourse_labs.tuning.dpo import write_adapter
from llmcourse_labs.tuning.lora import add_low_rank

TASKS: dict[str, Callable[[int], list[Question]]] = {
    "sums": lambda seed: make_sums(800, seed=seed),
    "products": lambda _seed: make_products(before=0),
}
"""By name: what is asked, for a seed."""


def in_template(questions: Sequence[Question], opened: RealModel) -> Asked:
    """Return questions as a model reads them that has to speak now.

    Raises:
        ValueError: if the model has no template, or the prompts differ in their lengths.
    """
    if opened.template is None:
        raise ValueError("the model has no template for conversations")
    asks = [[{"role": "user", "content": q.prompt.strip()}] for q in questions]
    return as_asked(
        questions,
        [opened.template.ids(a, opened.tokenizer, add_generation_prompt=True) for a in asks],
    )


def tune(arguments: Sequence[str]) -> None:
    """Learn an adapter, write it, and say how it went."""
    options = _parser().parse_args(list(arguments))
    to = Path(options.out)
    if to.exists():
        raise ValueError(f"{to} exists: choose another folder")
    if (Path(options.model) / peft_adapter.CONFIG).is_file():
        raise ValueError(f"{options.model} is an adapter: give the model that it was merged into")
    names = ("steps", "prompts", "group_size", "answer_tokens", "learning_rate", "seed")
    settings = CheckedSettings(**{name: options[name] for name in names})
    opened = open_model(options.model)
    runtime.set_up(num_threads=options.num_threads, seed=settings.seed)
    asked = in_template(TASKS[options.tasks](settings.seed), opened)
    assert opened.template is not None  # or there were no prompts
    end = min(opened.template.stop_ids(opened.tokenizer))
    model, generator = opened.decoder, torch.Generator().manual_seed(settings.seed + 3)
    add_low_rank(model, options.lora_rank, generator=generator)
    checker, told = CHECKERS[options.checker], 0
    steps = learn_checked(model, opened.tokenizer, asked, checker, settings, end_id=end)
    with bar(total=settings.steps) as shown:
        for step in steps:
            shown.update()
            told += settings.prompts - step.num_equal
            shown.set_postfix_str(f"reward {step.reward:.3f}, says {step.texts[0]!r}")
    if not told:
        raise ValueError(
            f"no step taught anything: all {settings.group_size} answers to each question had the "
            f"same reward, {step.reward:g}; begin with a model that gets some right, by --stage sft"
        )
    write_adapter(model, options.model, to)
    print(f"the last reward was {step.reward:.3f}; wrote {to}: llmcourse chat --model {to}")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="llmcourse tune --stage grpo",
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Learn from a checker of one's own answers (GRPO, with LoRA).",
    )
    parser.add_argument("--stage", choices=["grpo"], help="grpo")
    told = "a model of others: smollm2, a .gguf file, a folder"
    parser.add_argument("--model", required=True, help=told)
    parser.add_argument("--tasks", choices=[*TASKS], required=True, help="what is asked")
    told = "who judges an answer (%(default)s)"
    parser.add_argument("--checker", choices=[*CHECKERS], default="right", help=told)
    parser.add_argument("--out", required=True, help="new folder of the adapter")
    told = "of the thin matrices (%(default)s)"
    parser.add_argument("--lora_rank", type=int, default=16, help=told)
    parser.add_argument("--steps", type=int, default=100, help="updates (%(default)s)")
    parser.add_argument("--prompts", type=int, default=8, help="of one (%(default)s)")
    parser.add_argument("--group_size", type=int, default=8, help="answers to each (%(default)s)")
    told = "most of an answer, its end among them (%(default)s)"
    parser.add_argument("--answer_tokens", type=int, default=4, help=told)
    told = "of AdamW (%(default)s)"
    parser.add_argument("--learning_rate", type=float, default=1e-4, help=told)
    parser.add_argument("--seed", type=int, default=0, help="of the draws (%(default)s)")
    parser.add_argument("--num_threads", type=int, default=1, help="of a product (%(default)s)")
    return parser
