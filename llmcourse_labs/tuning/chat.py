"""A conversation in the terminal, or on a page:  llmcourse chat --model smollm2 --serve."""

import sys
from argparse import HelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from llmcourse.base.command_line import ended
from llmcourse.train.sampling import add_source, check_source
from llmcourse_labs.real.opening import open_model
from llmcourse_labs.tuning.conversation import Conversation, load_for_chat
from llmcourse_labs.tuning.serve import chat_server

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
    about = {"temperature": options.temperature, "seed": options.seed}
    check_source(options)
    if options.model is None:
        model, tokenizer, template = load_for_chat(options.run)
        usual = 40 if template is None else 128
    else:
        model, tokenizer, template = open_model(options.model)
        usual = min(256, model.config.context_length // 2)
        if template is None:
            raise ValueError(
                f"{options.model} has no template for conversations: it was not taught to talk; "
                "let it write with llmcourse sample"
            )
    about["most_tokens"] = usual if options.tokens is None else options.tokens

    def new_conversation() -> Conversation:
        return Conversation(model, tokenizer, template, **about)

    if options.serve is None:
        talk(new_conversation(), sys.stdin, _show)
    else:
        new_conversation()  # what is wrong with it is told now
        _serve(new_conversation, options)


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


def _serve(new_conversation: Callable[[], Conversation], options: Any) -> None:
    """Serve the page until Ctrl-C."""
    title = options.model or Path(options.run).resolve().name
    with chat_server(
        new_conversation, respond, options.serve, title=title, temperature=options.temperature
    ) as server:
        _show(f"talk to {title} at http://127.0.0.1:{server.server_port}; Ctrl-C ends\n")
        server.serve_forever()


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
