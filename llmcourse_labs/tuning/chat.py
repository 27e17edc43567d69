"""A conversation in the terminal, or on a page:  llmcourse chat --model smollm2 --serve."""

import sys
from argparse import HelpFormatter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from llmcourse.base.command_line import ended
from llmcourse.train.sampling import add_source
from llmcourse_labs.tuning.conversation import Conversation
from llmcourse_labs.tuning.serving import engine_at_work, serve_extra, talker

PROGRAM = "llmcourse chat"

HELP = (
    "/temperature 0.8 draws answers at another temperature, /reset forgets what was said, "
    "/quit or Ctrl-D ends"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _chat(arguments))


def _chat(arguments: Sequence[str] | None) -> None:
    options = _parser().parse_args(arguments)
    name, model, tokenizer, template = talker(options)
    parts = model, tokenizer, template
    usual = 40 if template is None else 128
    if options.model is not None:
        usual = min(256, model.config.context_length // 2)
    about = {
        "most_tokens": usual if options.tokens is None else options.tokens,
        "temperature": options.temperature,
        "seed": options.seed,
    }
    conversation = Conversation(*parts, **about)
    if options.serve is None:
        talk(conversation, sys.stdin, _show)
    else:
        _serve(name, parts, about, options)


def talk(conversation: Conversation, lines: Any, write: Callable[[str], Any]) -> None:
    """Answer line after line, until they end or one is /quit.

    Args:
        conversation: goes on.
        lines: a text file of what the user types; a terminal is shown where to type.
        write: is given all that is to be seen, piece by piece.
    """
    asks = lines.isatty()
    if asks:
        write(f"{HELP}\n")
    while True:
        if asks:
            write("you: ")
        line = lines.readline()
        if not line or line.strip() == "/quit":
            return
        if line.strip():
            respond(conversation, line, write)
            write("\n")


def respond(conversation: Conversation, line: str, write: Callable[[str], Any]) -> None:
    """Answer a line, or do what it says if it begins with a slash; what is wrong is written."""
    try:
        if line.startswith("/"):
            write(_obeyed(conversation, line))
        else:
            conversation.answer(line, write)
    except ValueError as error:
        write(str(error))


def _obeyed(conversation: Conversation, line: str) -> str:
    """Do what a line that begins with a slash says; return what was done."""
    word, *rest = line.split()
    if word == "/reset" and not rest:
        conversation.reset()
        return "forgotten"
    if word == "/temperature" and len(rest) == 1:
        try:
            number = float(rest[0])
        except ValueError:
            raise ValueError(f"a temperature is a number, got {rest[0]!r}") from None
        conversation.set_temperature(number)
        return f"temperature {number}"
    return HELP


def _serve(name: str, parts: tuple[Any, ...], about: dict[str, Any], options: Namespace) -> None:
    """Serve the page until SIGTERM or Ctrl-C."""
    with serve_extra():
        from llmcourse_labs.tuning import chat_page  # noqa: PLC0415 - an extra
    with engine_at_work(parts[0]) as live:
        listener = chat_page.chat_listener(
            partial(chat_page.EngineConversation, live, *parts, **about),
            respond,
            options.serve,
            title=options.model or name,
            temperature=options.temperature,
            on_end=live.close,
        )
        _show(f"talk to {name} at http://127.0.0.1:{listener.port}; Ctrl-C ends\n")
        listener.listen()


def _show(text: str) -> None:
    """Print text at once."""
    print(text, end="", flush=True)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Talk to a fine-tuned run, to the folder it was exported to, or to a model "
        "of others.",
    )
    add_source(parser, "folder of the run, or of its export")
    told = "most tokens of an answer (40 of a run, 256 of a model)"
    parser.add_argument("--tokens", type=int, help=told)
    told = "0 takes the likeliest token (%(default)s)"
    parser.add_argument("--temperature", type=float, default=0.0, help=told)
    told = "the same seed draws the same answers (%(default)s)"
    parser.add_argument("--seed", type=int, default=0, help=told)
    told = "show a page on this machine in place of the terminal (at port %(const)s)"
    parser.add_argument("--serve", type=int, nargs="?", const=8000, metavar="PORT", help=told)
    return parser
