"""What models of others there are, and what one is:  llmcourse model smollm2."""

from argparse import HelpFormatter
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser

from llmcourse.base.command_line import ended
from llmcourse.model.shapes import num_parameters
from llmcourse_labs.real.opening import INSTALLED, about_model, find_model, open_model

PROGRAM = "llmcourse model"

SHAPE = (
    ("num_layers", "blocks"),
    ("width", "width"),
    ("num_heads", "query heads"),
    ("num_kv_heads", "key/value heads"),
    ("head_size", "size of a head"),
    ("hidden", "hidden units"),
    ("num_experts", "experts of a block"),
    ("context_length", "context in tokens"),
)
"""Fields of a shape that are shown, and what they are called."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _model(arguments))


def _model(arguments: Sequence[str] | None) -> None:
    """Show one model, or which there are."""
    options = _parser().parse_args(arguments)
    rows = described(options.what) if options.what else installed()
    widest = max(len(name) for name, _ in rows)
    for name, told in rows:
        print(f"{name:{widest}}  {told}")


def installed() -> list[tuple[str, str]]:
    """Return the names that can be given, each with its file, or with how to get it."""
    rows = []
    for name in INSTALLED:
        try:
            path = find_model(name)
            rows.append((name, f"{path.stat().st_size:,} bytes: {path}"))
        except ValueError as error:
            rows.append((name, str(error)))
    return [*rows, ("a path", "of a .gguf file, or of a folder with config.json and safetensors")]


def described(what: str) -> list[tuple[str, str]]:
    """Return what a model is: its file, shape, tokenizer, template and licence.

    Args:
        what: as `open_model` takes it.

    Raises:
        ValueError: as `open_model` raises it.
    """
    path = find_model(what)
    name, licence = about_model(what)
    model, tokenizer, template = open_model(what)
    config, count = model.config, num_parameters(model.config)
    rows = [
        ("model", name),
        ("licence", licence or "not told in the file"),
        ("file", f"{path} ({_size(path):,} bytes)"),
        ("parameters", f"{count:,} ({4 * count:,} bytes in float32)"),
    ]
    rows += [(told, f"{value:,}") for name, told in SHAPE if (value := getattr(config, name))]
    rows += [
        ("head", "the embedding" if config.tied_head else "a matrix of its own"),
        ("rotary base", f"{config.rope_theta:,.0f}"),
        ("tokenizer", f"{len(tokenizer.vocab):,} tokens, {len(tokenizer.merges):,} merges"),
    ]
    if template is None:
        return [*rows, ("template", "none: it was not taught to talk")]
    ends = [tokenizer.decode([i]) for i in sorted(template.stop_ids(tokenizer))]
    told = f"{len(template.source):,} characters; an answer ends with {' or '.join(ends)}"
    return [*rows, ("template", told)]


def _size(path: Path) -> int:
    """Return the bytes of a file, or of the files of a folder."""
    files = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Show a model of others, or which there are.",
    )
    told = "an installed name, a .gguf file or a folder; none: what is installed"
    parser.add_argument("what", nargs="?", help=told)
    return parser
