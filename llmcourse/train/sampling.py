"""What a model writes, shown token by token:  llmcourse sample --run runs/a --prompt Once."""

import codecs
from argparse import HelpFormatter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace
from torch import Tensor

from llmcourse.base import runtime
from llmcourse.base.arguments import require
from llmcourse.base.command_line import ended
from llmcourse.base.plugins import plugin
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer, generate, without
from llmcourse.model.sampling import check_sampling
from llmcourse.train.config import TrainConfig
from llmcourse.train.saved import as_value_error, config_and_checkpoint
from llmcourse.train.stage import stage_of

PROGRAM = "llmcourse sample"


def load(run_folder: str | Path) -> tuple[Transformer, Tokenizer]:
    """Return the model of a run's newest intact checkpoint, on the CPU, and the run's tokenizer.

    Raises:
        ValueError: as `load_run`.
    """
    return load_run(run_folder)[1:]


def load_run(run_folder: str | Path) -> tuple[TrainConfig, Transformer, Tokenizer]:
    """Return a run's settings, and what `load` does.

    Raises:
        ValueError: if the folder holds no run, no checkpoint, or tokens without a tokenizer.
    """
    folder = Path(run_folder)
    config, saved = config_and_checkpoint(folder)
    if config.text.corpus == "bin" and not (folder / "data" / "tokenizer").exists():
        raise ValueError(f"the tokens of {folder} came without a tokenizer: it cannot write text")
    tokenizer = Tokenizer.load(folder / "data" / "tokenizer")
    if tokenizer.vocab_size > config.model.vocab_size:
        raise ValueError(
            f"{folder / 'data' / 'tokenizer'} has {tokenizer.vocab_size} ids and the model "
            f"{config.model.vocab_size}: it is the tokenizer of another run"
        )
    runtime.set_up(num_threads=config.num_threads)
    model = Transformer(config.model)
    if config.without != "nothing":
        model = without(model, config.without)
    with as_value_error(folder):
        model.load_state_dict(stage_of(config).whole(saved.model))
    return config, model.eval(), tokenizer


def stream(
    model: Transformer,
    tokenizer: Tokenizer,
    prompt: str,
    write: Callable[[str], Any],
    *,
    begin_ids: Sequence[int] | None = None,
    end_ids: Collection[int] = (),
    **how: Any,
) -> None:
    """Write what a model appends to a prompt, each character as soon as its last byte is drawn.

    Args:
        model: of a run, or of others.
        tokenizer: the model's.
        prompt: the beginning of a document; "" lets the model begin it.
        write: is given the text piece by piece, without what ends it.
        begin_ids: what stands before a prompt; None is the separator of documents, as in training.
        end_ids: what ends a text, beside that separator.
        how: max_new_tokens, generator, temperature, top_k, top_p, as `generate` takes them.

    Raises:
        ValueError: if `generate` refuses its arguments, or the prompt is no text.
    """
    end = tokenizer.special_tokens.get(END_OF_TEXT)
    if end is None and not (prompt or begin_ids):
        raise ValueError(f"the tokenizer of this model has no {END_OF_TEXT}: give a prompt")
    separator = [] if end is None else [end]
    ids = [*(separator if begin_ids is None else begin_ids), *tokenizer.encode(prompt)] or separator
    ends = {*end_ids, *separator}
    decoder = codecs.getincrementaldecoder("utf8")(errors="replace")
    known = tokenizer.vocab

    def on_token(drawn_11: Tensor) -> None:
        token = int(drawn_11)
        if token not in ends:  # the rows of a padded vocabulary have no bytes
            write(decoder.decode(known.get(token, b"")))

    generate(model, torch.tensor([ids]), stop_id=ends, on_token=on_token, **how)
    write(decoder.decode(b"", final=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _sample(arguments))


def _sample(arguments: Sequence[str] | None) -> None:
    """Write a text for each prompt; the draws of all come from one seed."""
    options = _parser().parse_args(arguments)
    prompts = options.prompt or [""]
    if options.prompt and "" in prompts:
        raise ValueError("the prompt is empty: leave out --prompt, and the model begins the text")
    if any("\ud800" <= character <= "\udfff" for character in "".join(prompts)):
        raise ValueError("a prompt holds bytes that are no UTF-8: type it in a terminal of UTF-8")
    require("tokens", options.tokens, least=1)
    require("seed", options.seed, least=0, below=2**63)
    how = {name: options[name] for name in ("temperature", "top_k", "top_p")}
    check_sampling(**how)
    how |= {"max_new_tokens": options.tokens, "generator": runtime.generator(options.seed)}
    check_source(options)
    if options.model is None:
        model, tokenizer = load(options.run)
    else:
        opened = plugin("models", "open")(options.model)
        model, tokenizer, _ = opened
        how |= {"begin_ids": opened.begin_ids, "end_ids": opened.end_ids}
    for number, prompt in enumerate(prompts):
        _show("\n" * (number > 0) + prompt)
        stream(model, tokenizer, prompt, _show, **how)
        _show("\n")


def add_source(parser: ArgumentParser, told: str) -> None:
    """Let a command take a run, which is told of so, or a model of others."""
    parser.add_argument("--run", metavar="FOLDER", help=told)
    told = "in place of a run, one of others: smollm2, a .gguf file, a folder"
    parser.add_argument("--model", help=told)


def check_source(options: Namespace) -> None:
    """Raise ValueError unless a command was given either a run or a model."""
    if (options.run is None) == (options.model is None):
        raise ValueError("give --run, a folder, or --model, one of others such as smollm2")


def _show(text: str) -> None:
    """Print text at once."""
    print(text, end="", flush=True)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Let a run's newest checkpoint, or a model of others, write until it ends.",
    )
    add_source(parser, "folder of the run")
    parser.add_argument(
        "--prompt", nargs="+", metavar="TEXT", help="beginnings, one text each; none: a new text"
    )
    told = "most new tokens of a text (%(default)s)"
    parser.add_argument("--tokens", type=int, default=200, help=told)
    told = "0 takes the likeliest token (%(default)s)"
    parser.add_argument("--temperature", type=float, default=0.8, help=told)
    parser.add_argument(
        "--top_k", "--top-k", type=int, metavar="K", help="draw from the K likeliest"
    )
    parser.add_argument(
        "--top_p", "--top-p", type=float, metavar="P", help="draw from the likeliest that make up P"
    )
    told = "the same seed draws the same text (%(default)s)"
    parser.add_argument("--seed", type=int, default=0, help=told)
    return parser
