"""A model behind OpenAI's usual interface:  llmcourse serve --model smollm2.

curl http://127.0.0.1:8000/v1/chat/completions -H "Content-Type: application/json" \
    -d '{"model": "smollm2", "messages": [{"role": "user", "content": "Hello"}]}'
"""

from argparse import HelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from llmcourse.base.arguments import require
from llmcourse.base.command_line import ended
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train.sampling import add_source, check_source
from llmcourse_labs.real.opening import open_model
from llmcourse_labs.real.serve.engine import Engine
from llmcourse_labs.real.server.live import LiveEngine
from llmcourse_labs.real.template import Template
from llmcourse_labs.tuning.chat_format import Turn
from llmcourse_labs.tuning.conversation import load_for_chat
from llmcourse_labs.tuning.sft import answer_ends, prompt_ids

PROGRAM = "llmcourse serve"

PAGE = 16
"""Tokens of a page of the cache."""

TOKENS = 256
"""Most tokens of an answer, where nothing else is said and half the context is not fewer."""

PASS = 128
"""Most new tokens in one pass, so that many rows can write side by side at most."""

CACHED = 8_192
"""Tokens that the cache holds, if a context is not longer."""


def talker(options: Namespace) -> tuple[str, Transformer, Tokenizer, Template | None]:
    """Return the name of the model that a command was given, and its parts.

    Args:
        options: with run and model, of which one is given.

    Raises:
        ValueError: if there is no such run or model, or it has not learnt to talk.
    """
    check_source(options)
    if options.model is None:
        name = Path(options.run).resolve().name
        return name, *load_for_chat(options.run)
    model, tokenizer, template = open_model(options.model)
    if template is None:
        raise ValueError(
            f"{options.model} has no template for conversations: it was not taught to talk; "
            "let it write with llmcourse sample"
        )
    path = Path(options.model)
    return path.stem if path.suffix == ".gguf" else path.name, model, tokenizer, template


def engine_at_work(model: Transformer, *, rows: int = 16, most: int = 64) -> LiveEngine:
    """Return an engine that begins to work in a `with` block.

    Args:
        model: in evaluation mode.
        rows: requests that are answered side by side.
        most: requests that are open, with those that wait.

    Raises:
        ValueError: if the engine cannot have the model, or a number is outside its range.
    """
    require("rows", rows, least=1, most=PASS)
    pages = -(-max(CACHED, model.config.context_length) // PAGE)
    engine = Engine(model, num_pages=pages, page_size=PAGE, max_rows=rows, tokens_per_step=PASS)
    return LiveEngine(engine, most=most)


@contextmanager
def serve_extra() -> Iterator[None]:
    """Say in one line how to get what a server needs.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "a package").split(".")[0]
        raise ValueError(f'a server needs {package}: pip install "llmcourse[serve]"') from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _serve(arguments))


def _serve(arguments: Sequence[str] | None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    options = _parser().parse_args(arguments)
    with serve_extra():
        from llmcourse_labs.real.server import app, house, metrics  # noqa: PLC0415 - an extra
    name, model, tokenizer, template = talker(options)
    context = model.config.context_length
    tokens = min(TOKENS, context // 2) if options.tokens is None else options.tokens
    require("tokens", tokens, least=1, below=context)
    require("seconds", options.seconds, above=0)
    require("queue", options.queue, least=1)

    def as_read(messages: list[dict[str, str]]) -> list[int]:
        turns = [Turn(message["role"], message["content"]) for message in messages]
        return prompt_ids(turns, tokenizer, template)

    served = app.Served(
        name=name,
        tokenizer=tokenizer,
        prompt_ids=as_read,
        end_ids=answer_ends(tokenizer, template),
        context_length=context,
        most_tokens=tokens,
        most_seconds=options.seconds,
    )
    counted = metrics.Metrics()
    at = house.bound(options.host, options.port)
    with at, engine_at_work(model, rows=options.rows, most=options.queue) as live:
        port = at.getsockname()[1]
        guarded = house.Guard(
            app.serving_app(served, live, counted), options.host, port, count=counted.count
        )
        listener = house.Listener(guarded, at, on_end=live.close, is_busy=lambda: live.num_open > 0)
        where = f"[{options.host}]" if ":" in options.host else options.host
        print(f"{name} answers at http://{where}:{port}/v1; Ctrl-C ends", flush=True)
        if guarded.is_open:
            print("whoever reaches this machine may ask: there are no keys", flush=True)
        listener.listen()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Answer chat completions as OpenAI's clients ask for them.",
    )
    add_source(parser, "folder of a fine-tuned run, or of its export")
    told = "address to listen at (%(default)s, which this machine alone reaches)"
    parser.add_argument("--host", default="127.0.0.1", help=told)
    told = "to listen at; 0 takes one that is free (%(default)s)"
    parser.add_argument("--port", type=int, default=8000, help=told)
    told = f"most tokens of an answer ({TOKENS}, or half a shorter context)"
    parser.add_argument("--tokens", type=int, help=told)
    told = "requests that are answered side by side (%(default)s)"
    parser.add_argument("--rows", type=int, default=16, help=told)
    told = "requests that may be open, with those that wait; more are refused (%(default)s)"
    parser.add_argument("--queue", type=int, default=64, help=told)
    told = "most seconds of a request (%(default)s)"
    parser.add_argument("--seconds", type=float, default=300.0, help=told)
    return parser
