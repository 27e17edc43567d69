"""tuning: what cannot be learnt, drawn or said is refused, with what was given and why."""

import math
from functools import partial

import pytest
import torch

from llmcourse import model as models
from llmcourse.base import runtime
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import train_bpe
from llmcourse_labs import tuning
from llmcourse_labs.tuning import rl
from llmcourse_labs.tuning.lora import add_low_rank
from tests.labs.tuning import test_sft_answers as said
from tests.labs.tuning.test_fitting import PAIRS, SETTINGS, small
from tests.labs.tuning.test_rewards import world
from tests.labs.tuning.test_rl import QUICK, TASKS, TOKENIZER, begun, by_length, new_model
from tests.labs.tuning.test_self_training import lineage
from tests.strategies import small_config

PLAIN = train_bpe(said.TEXT, 290, [END_OF_TEXT])
ZEROS, ONES, TRUE = torch.zeros(2), torch.ones(1, 2), torch.ones(1, 2) > 0
COUNTS, FRESH = torch.tensor([50, 0, 3, 40, 5, 2]), {"fresh": lambda number: ["x"]}
ONE, OTHER = small(), models.Transformer(small_config(num_layers=1), generator=runtime.generator(0))


def lost():
    policy = small()
    policy.norm.gain.data.fill_(math.nan)
    return policy


def fit_pair(policy, reference):
    tuning.fit_preferences(policy, reference, PAIRS, SETTINGS, beta=0.1)


def started(tasks=TASKS, tokenizer=TOKENIZER, **given):
    return rl.start(tuning.RLConfig(**QUICK), new_model(), tokenizer, tasks, by_length, **given)


def rewarded(value):
    return rl.step(begun(reward=lambda _task, _text: value))


def thin(rank, shape=None):
    add_low_rank(models.Transformer(shape or models.tiny()), rank, generator=runtime.generator(1))


def talk(tokenizer=said.TOKENIZER, **given):
    return tuning.Conversation(said.Parrot("x"), tokenizer, **given)


def kept(check, characters=5):
    return tuning.verify_and_keep(lambda n: ["a"] * 3, check, characters, most_rounds=3)


REFUSED = [
    # rewards
    (lambda: tuning.best_of_n(*world(), 0), "n must be 1"),
    (lambda: tuning.best_of_n_bound(0), "n must be 1"),
    (lambda: tuning.kl_optimal(*world(), 0), "beta must be above 0"),
    (lambda: tuning.within_kl(*world(), -1), "budget must be 0 or greater"),
    (lambda: tuning.within_kl(world()[0], torch.ones(6).double(), 1), "all answers have the same"),
    (lambda: tuning.combined(torch.ones(2, 2), "best"), "must be mean or worst, got 'best'"),
    (lambda: tuning.trick_world(0, members=0), "members must be 1"),
    (lambda: tuning.trick_world(0, shared=1.1), "shared must be at most 1"),
    (lambda: tuning.trick_world(0, num_answers=1), "num_answers must be 2"),
    (lambda: tuning.best_stop([], patience=1), "number of judgements must be 1"),
    (lambda: tuning.best_stop([1.0], patience=0), "patience must be 1"),
    # the policy gradient
    (lambda: tuning.group_advantages(torch.ones(3, 1)), "of a group must be 2 or greater"),
    (lambda: tuning.group_advantages(torch.tensor([[0.0, math.nan]])), "rewards must be finite"),
    (lambda: tuning.clipped_objective(*torch.ones(3, 2), clip=0), "clip must be above 0, got 0"),
    (lambda: tuning.clipped_objective(*torch.ones(3, 2), clip=1, clip_high=0), "clip_high must be"),
    (lambda: tuning.group_advantages(ONES, correction=2), "correction must be at most 1, got 2"),
    (lambda: tuning.mean_over_tokens(ONES, ~TRUE), "the tokens of all answers"),
    (lambda: tuning.answer_log_ratios(ONES, ONES, ~TRUE), "shortest answer"),
    (lambda: tuning.truncated_weights(ONES, ONES, cap=0), "cap must be above 0"),
    (lambda: tuning.RLConfig(steps=1, average="mean"), "answer, token, constant, got 'mean'"),
    (lambda: tuning.RLConfig(steps=1, ratio="all"), "ratio must be one of token, answer"),
    (lambda: tuning.RLConfig(steps=1, method="ppo", refill=1), "ppo has an advantage for each"),
    (lambda: tuning.RLConfig(steps=1, spread_correction=2), "spread_correction must be at most 1"),
    (lambda: tuning.RLConfig(steps=1, clip_high=0), "clip_high must be above 0"),
    (lambda: tuning.RLConfig(steps=1, refill=-1), "refill must be 0"),
    (lambda: tuning.gae(ONES, ONES, TRUE, gamma=1.5), "gamma must be at"),
    (lambda: tuning.gae(ONES, ONES, TRUE, decay=-1), "decay must be 0 or"),
    (lambda: tuning.mean_over_answers(ONES, ~TRUE), "shortest answer"),
    (lambda: tuning.mean_over_answers(ONES, TRUE, tokens=0), "tokens"),
    # preferences
    *(
        (lambda bad=bad: tuning.dpo_loss(ZEROS, ZEROS, ZEROS + bad, ZEROS, beta=1), "be finite")
        for bad in (math.nan, math.inf, -math.inf)
    ),
    (lambda: tuning.simpo_loss(ZEROS, ZEROS, beta=1, margin=-0.1), "margin must be 0 or greater"),
    (lambda: tuning.optimal_policy(torch.ones(2) / 2, ZEROS, beta=0), "beta must be above 0"),
    *(
        (partial(call, beta=beta), "beta must be above 0")
        for beta in (0, -1, math.nan)
        for call in (
            partial(tuning.dpo_loss, *[ZEROS] * 4),
            partial(tuning.simpo_loss, *[ZEROS] * 2, margin=0),
        )
    ),
    *(
        (partial(tuning.bradley_terry_loss, *pair), f"a score is {bad}: all must be finite")
        for bad in (math.nan, math.inf, -math.inf)
        for pair in ((ZEROS, ZEROS + bad), (ZEROS + bad, ZEROS))
    ),
    # fitting
    (lambda: fit_pair(small(), OTHER), "the reference has another shape than the policy"),
    (lambda: fit_pair(ONE, ONE), "policy and reference are one model"),
    (lambda: fit_pair(lost(), small()), "must be finite; lower the learning rate"),
    (lambda: tuning.FitSettings(steps=0), "steps must be"),
    (lambda: tuning.FitSettings(batch_size=0), "batch_size must be"),
    (lambda: tuning.FitSettings(learning_rate=0.0), "learning_rate must be"),
    (lambda: tuning.FitSettings(seed=-1), "seed must be"),
    # self-training
    (lambda: lineage(num_generations=1, fresh_share=0.5), "go together"),
    (lambda: lineage(num_generations=1, **FRESH), "go together"),
    (lambda: lineage(num_generations=1, **FRESH, fresh_share=0.5), "2 fresh documents are needed"),
    (lambda: lineage(num_generations=1, **FRESH, fresh_share=1.5), r"fresh_share .*1, got 1\.5"),
    (lambda: tuning.rare_tokens(COUNTS, 0.01), r"no token makes up less than 0\.01"),
    (lambda: tuning.rare_tokens(COUNTS, 0), "share must be above 0"),
    (lambda: tuning.tail_loss(ZEROS, ZEROS.long(), COUNTS[:1]), "no target is a rare"),
    (lambda: kept(lambda text: False), "of 9 documents in 3 rounds, 0 passed the check"),
    (lambda: kept(bool, 0), "num_characters must be 1 or greater"),
    (lambda: tuning.write_documents(ONE, PLAIN, 10, seed=0), "must be 64 or greater, got 10"),
    # reinforcement
    (lambda: rewarded(math.nan), r"the reward of '.*' as the answer to '.*' is nan"),
    (lambda: rewarded(math.inf), r"the reward of '.*' as the answer to '.*' is inf"),
    (lambda: started(reference=OTHER), "the reference has the shape"),
    (lambda: started([]), "there is no task"),
    (lambda: started(tokenizer=PLAIN), "the tokenizer lacks"),
    (lambda: rl.step(begun(answer_tokens=40)), "context of 48: lower answer_tokens"),
    (lambda: begun("dpo"), "method must be one of grpo, ppo, got 'dpo'"),
    (lambda: begun(group_size=1), "group_size must be 2 or greater, got 1"),
    (lambda: begun(steps=0), "steps must be 1"),
    (lambda: begun(learning_rate=0), "learning_rate must be above 0"),
    (lambda: begun(clip=0.0), "clip must be above 0"),
    (lambda: begun(kl=-0.1), "kl must be 0"),
    (lambda: begun(decay=1.1), "decay must be at most 1"),
    # LoRA
    (lambda: thin(0), "lora_rank must be 1 or greater, got 0"),
    (lambda: thin(17), "lora_rank for attention.w_k must be at most 16, got 17"),
    (lambda: thin(2, models.tiny_moe()), "LoRA is for dense models"),
    # conversations
    (lambda: tuning.answer_mask(torch.tensor([1, 2]), PLAIN.special_tokens), "tokenizer lacks"),
    (lambda: tuning.answers(said.Parrot("x"), PLAIN, said.TASKS), "tokenizer lacks"),
    (lambda: talk(PLAIN), r"the tokenizer lacks .* with_chat_tokens"),
    (lambda: tuning.chat_tokens(said.TASKS[0].turns, PLAIN), "tokenizer lacks"),
    (lambda: talk(most_tokens=0), "tokens must be 1 or greater"),
    (lambda: talk(most_tokens=160), "tokens must be below 160"),
    (lambda: talk(temperature=-1), "temperature must be 0 or greater"),
    (lambda: talk(temperature=math.nan), "temperature must be 0 or greater, got nan"),
    (lambda: talk(seed=-1), "seed must be 0 or greater"),
]


@pytest.mark.parametrize(("call", "fact"), REFUSED)
def test_what_cannot_be_is_refused(call, fact):
    with pytest.raises(ValueError, match=fact):
        call()
