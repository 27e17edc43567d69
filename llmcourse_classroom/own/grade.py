"""How good a Llama of one's own is: its functions, the model that they make, what it has learnt."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

from llmcourse import nutshell
from llmcourse.data import corpus
from llmcourse_classroom.exercises.check import crash, result_of
from llmcourse_classroom.exercises.result import Line, State
from llmcourse_classroom.own.assemble import BORROWED, PIECE
from llmcourse_classroom.plots import LOSS_FLOOR
from llmcourse_labs import study

HELD_OUT_BYTES, NUM_STORIES = 60_000, 10
GOOD_LOSS = 0.8
"""A right one has 0.70 nats per token after its 600 steps."""
GOOD_SHARE = 0.5
GIVEN = ("SAVED", "V", "logits_of", "MyTokenizer", "training_text", "write")
"""What the file gives beside the pieces, and grading asks for."""


def loaded(path: Path) -> ModuleType:
    """Return a file as a module.

    Raises:
        ValueError: if there is no such file, it cannot be imported, or it is another program.
    """
    if not path.is_file():
        raise ValueError(f"there is no {path}: make it with llmcourse own assemble")
    if path.suffix != ".py":
        raise ValueError(f"{path} is no Python file: give the one that own assemble wrote")
    spec = importlib.util.spec_from_file_location("my_llama", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["my_llama"] = module  # its tracebacks show its lines
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} cannot be imported: {crash(error)}") from error
    if lacks := [name for name in GIVEN if not hasattr(module, name)]:
        raise ValueError(f"{path} has no {lacks[0]}: give the file that own assemble wrote")
    return module


def grade(path: Path) -> Iterator[Line]:
    """Yield what is right and what is wrong with a file, a line each.

    Raises:
        ValueError: if the file cannot be imported.
    """
    mine = loaded(path)
    yield from of_functions(mine, path.read_text(encoding="utf8"))
    wrong = list(of_model(mine))
    yield from wrong
    saved = path.with_name(mine.SAVED)
    if not saved.exists():
        yield Line(State.NOT_ANSWERED, f"there is no {saved.name} yet: llmcourse own train")
    elif any(line.state is not State.PASS for line in wrong):
        yield Line(State.NOT_ANSWERED, "what it has learnt is looked at when the model is right")
    else:
        yield from of_training(mine, saved)


def of_functions(mine: ModuleType, text: str) -> Iterator[Line]:
    """Yield the verdict of each piece's exercise on it."""
    for found in PIECE.finditer(text):
        name = f"{found['number']} {found['names']}"
        if found["what"].endswith(f"({BORROWED})"):
            yield Line(State.NOT_ANSWERED, f"{name}: {BORROWED}")
            continue
        result = result_of(found["number"], vars(mine), quiet=True)
        told = [line.meaning for line in result.lines if line.state is not State.PASS]
        yield Line(result.state, f"{name}: {told[0] if told else 'right'}")


def of_model(mine: ModuleType) -> Iterator[Line]:
    """Yield what holds of the whole model, before it has learnt anything."""
    torch.manual_seed(0)
    reference = nutshell.Llama(nutshell.Config())
    weights = {name: w.detach() for name, w in reference.named_parameters()}
    ids = torch.randint(mine.V, (2, 24))
    later = ids.clone()
    later[:, 16:] = torch.randint(mine.V, (2, 8))
    try:
        with torch.no_grad():
            expected, logits, changed = (
                reference(ids), mine.logits_of(weights, ids), mine.logits_of(weights, later),
            )  # fmt: skip
    except Exception as error:
        yield Line(State.NOT_YET, f"the model does not run: {crash(error)}")
        return
    if logits.shape != expected.shape:
        yield Line(State.NOT_YET, f"logits of shape {tuple(logits.shape)}, not (B, T, V)")
        return
    leak = (logits - changed)[:, :16].abs().amax(dim=(0, 2))
    if leak.max() > 1e-6:
        first = int((leak > 1e-6).nonzero()[0])
        yield Line(
            State.NOT_YET,
            f"tokens from place 16 on were exchanged, and the logits at place {first} changed: a "
            "token sees what comes after it. Such a model reaches a loss below the entropy of the "
            "text, since it reads the answer, and writes nonsense, since nothing is there to read. "
            "Look at the mask in attend",
        )
    else:
        yield Line(State.PASS, "no token sees what comes after it")
    difference = (logits - expected).abs().max().item()
    if difference > 1e-3:
        yield Line(
            State.NOT_YET,
            f"with the same weights its logits differ from the course's by {difference:.2g}",
        )
    else:
        yield Line(State.PASS, f"its logits are the course's, to {max(difference, 1e-7):.0e}")


def of_training(mine: ModuleType, saved: Path) -> Iterator[Line]:
    """Yield what a trained model has learnt: its loss on new stories, and its own stories."""
    torch.manual_seed(0)
    try:
        # The reader's own code: whatever it raises is a verdict, and no end of the grading.
        weights, _, _, step = mine.load(saved)
        tokenizer = mine.MyTokenizer(nutshell.learn_merges(mine.training_text(), mine.V))
        # Stories of seed 1; training reads those of seed 0.
        ids = torch.tensor(tokenizer.encode(corpus.stories(HELD_OUT_BYTES, seed=1)))
        # 96 tokens to read, and for each the one that follows.
        windows = ids[: len(ids) // 97 * 97].view(-1, 97)
        with torch.no_grad():
            logits = mine.logits_of(weights, windows[:, :-1])
        loss = nutshell.cross_entropy(logits, windows[:, 1:]).item()
        stories = [mine.write(weights, tokenizer) for _ in range(NUM_STORIES)]
    except Exception as error:
        yield Line(State.NOT_YET, f"the trained model cannot be used: {crash(error)}")
        return
    about = f"after {step} steps its loss on new stories is {loss:.3f} nats per token"
    # By chance the loss on so few stories may be a little below it, but not more.
    if loss < LOSS_FLOOR - 0.02:
        yield Line(
            State.NOT_YET, f"{about}, below their entropy of {LOSS_FLOOR}: it reads the answer"
        )
    elif loss > GOOD_LOSS:
        yield Line(State.NOT_YET, f"{about}; a right one reaches {GOOD_LOSS} and less")
    else:
        yield Line(State.PASS, about)
    # A good loss with bad stories points at the way of writing.
    sentences = study.story_report(nutshell.END.join(stories)).sentences
    yield Line(
        State.PASS if sentences.share > GOOD_SHARE else State.NOT_YET,
        f"{sentences.right} of {sentences.total} sentences in its {NUM_STORIES} stories are "
        f"sentences of the grammar; a right one writes more than {GOOD_SHARE:.0%} so",
    )
