"""tuning.rl and tuning.rollout: phases, resuming, bad input, and that a policy learns."""

import math
from dataclasses import replace

import pytest
import torch

from llmcourse.base.runtime import fingerprint, generator
from llmcourse.data.corpus import END_OF_TEXT
from llmcourse.data.tokenizer import train_bpe
from llmcourse.model import Transformer, tiny
from llmcourse.model.sampling import generate
from llmcourse_labs import tuning
from llmcourse_labs.tuning import rl

TASKS = tuning.make_tasks(40, seed=0, kinds=["next"], difficulties=[1, 2])
OTHERS = tuning.make_tasks(800, seed=1, kinds=["next"])
TEXT = " ".join(f"{task.prompt} {task.answer}" for task in OTHERS)
TOKENIZER = tuning.with_chat_tokens(train_bpe([TEXT], 400, [END_OF_TEXT]))
END = TOKENIZER.special_tokens["<|end|>"]
SHAPE = replace(tiny(), vocab_size=TOKENIZER.vocab_size, context_length=48)
QUICK = {"steps": 4, "prompts": 3, "group_size": 4, "answer_tokens": 6}


def new_model(seed=0):
    return Transformer(SHAPE, generator=generator(seed))


def by_length(_task, text):
    return len(text) / 10


def begun(method="grpo", model=None, reward=by_length, reference=None, **settings):
    config = tuning.RLConfig(**QUICK | {"method": method} | settings)
    return rl.start(config, model or new_model(), TOKENIZER, TASKS, reward, reference=reference)


def weights(run):
    return fingerprint(dict(run.actors.state_dict()))


def test_drawn_answers_are_those_of_generate_and_end_as_it_says():
    tasks = TASKS[:5]
    given = new_model(), TOKENIZER, tasks
    rows, texts = tuning.draw_answers(*given, answer_tokens=6, generator=generator(3))
    prompts = [tuning.prompt_ids(task.turns[:1], TOKENIZER) for task in tasks]
    theirs = generate(new_model(), prompts, max_new_tokens=6, stop_id=END, generator=generator(3))
    drawn = zip(rows.ids_BT, rows.is_answer_BT, prompts, theirs, texts, strict=True)
    for row, mask, prompt, their, text in drawn:
        answer = their[len(prompt) :].tolist()
        assert row[mask].tolist() == answer
        assert row[: len(prompt)].tolist() == prompt
        assert text.endswith("…") == (answer[-1] != END)


def test_a_rollout_holds_each_answers_log_probs_under_both_models_and_its_reward():
    policy, reference = new_model(0), new_model(1)
    models, how = (policy, reference), {"group_size": 4, "answer_tokens": 6}
    given = TOKENIZER, TASKS[:3], by_length
    rolled = tuning.rolled_out(*models, *given, **how, generator=generator(0))
    assert rolled.tasks == [task for task in TASKS[:3] for _ in range(4)]
    assert torch.equal(rolled.old_BT, tuning.token_log_probs(policy, rolled.rows))
    assert torch.equal(rolled.reference_BT, tuning.token_log_probs(reference, rolled.rows))
    told = torch.tensor([len(text) / 10 for text in rolled.texts]).view(3, 4)
    assert torch.equal(rolled.rewards_PG, told)
    assert not rolled.old_BT.requires_grad


@pytest.mark.parametrize("by_own_length", [True, False])
@pytest.mark.parametrize("divide", [True, False])
def test_a_step_of_grpo_is_the_policy_gradient_with_its_advantages(divide, by_own_length):
    average = "answer" if by_own_length else "constant"
    run = begun(divide_by_spread=divide, average=average, kl=0.5)
    run.actors.reference.embedding.data.mul_(1.5)
    rolled = rl.rollout(run)
    batch = rl.load(run, rolled)
    rl.backward(run, rl.loss(run, batch, *rl.forward(run, batch)))
    ours = {name: w.grad.clone() for name, w in run.policy.named_parameters()}
    run.optimizer.zero_grad()
    rewards = rolled.rewards_PG - rolled.rewards_PG.mean(1, keepdim=True)
    if divide:
        rewards = rewards / rolled.rewards_PG.std(1, keepdim=True, correction=0)
    kl = (rolled.old_BT - rolled.reference_BT).sum(1).view(3, 4)
    assert kl.abs().max() > 0.1
    advantages = (rewards - 0.5 * (kl - kl.mean(1, keepdim=True))).flatten()
    lengths = rolled.rows.is_answer_BT.sum(1) if by_own_length else 6
    (-(advantages * tuning.answer_log_probs(run.policy, rolled.rows) / lengths).mean()).backward()
    for name, weight in run.policy.named_parameters():
        assert torch.allclose(ours[name], weight.grad, rtol=1e-4, atol=1e-6), name


def test_ppo_gives_the_reward_to_the_last_token_and_the_kl_to_every_token():
    run = begun("ppo", kl=0.3, gamma=0.9, decay=0.8)
    run.actors.reference.embedding.data.mul_(1.5)
    run.actors.value.w_D.data.normal_(generator=generator(1))
    rolled = rl.rollout(run)
    batch = rl.load(run, rolled)
    mask = rolled.rows.is_answer_BT
    earned = -0.3 * (rolled.old_BT - rolled.reference_BT)
    for row, reward in enumerate(rolled.rewards_PG.flatten()):
        earned[row, mask[row].nonzero().max()] += reward
    _, values = run.actors.log_probs_and_values(rolled.rows)
    told = tuning.gae(earned, values.detach(), mask, gamma=0.9, decay=0.8)
    assert torch.allclose(batch.advantages_BT, told, atol=1e-6)
    assert torch.allclose(batch.returns_BT, told + values.detach(), atol=1e-6)


def test_a_value_is_that_of_the_state_before_the_token_and_teaches_the_head_alone():
    run = begun("ppo")
    run.actors.value.w_D.data.normal_(generator=generator(1))
    rows = rl.rollout(run).rows
    changed = rows.ids_BT.clone()
    row, place = 0, int(rows.is_answer_BT[0].nonzero().max())
    changed[row, place] = (changed[row, place] + 1) % 5
    before = run.actors.log_probs_and_values(rows)[1]
    after = run.actors.log_probs_and_values(rows._replace(ids_BT=changed))[1]
    assert torch.allclose(before[row, 1 : place + 1], after[row, 1 : place + 1])
    before.sum().backward()
    assert run.actors.value.w_D.grad.any()
    assert all(w.grad is None for w in run.policy.parameters())


def test_the_clip_ends_what_a_rollout_may_teach():
    run = begun(updates=30, clip=1e-3, learning_rate=1e-2)
    rl.step(run)
    assert run.reports[-1].gradient_norm == 0
    few = begun(updates=1, clip=1e-3, learning_rate=1e-2)
    rl.step(few)
    assert few.reports[-1].gradient_norm > 0


def test_equal_rewards_teach_nothing_and_are_told():
    run = begun(reward=lambda _task, _text: 1.0, divide_by_spread=True)
    before = weights(run)
    reports = rl.fit(run)
    assert [report.num_equal for report in reports] == [3] * 4
    assert weights(run) == before


def test_groups_of_equal_rewards_are_drawn_again_as_often_as_asked(monkeypatch):
    """Mutants: the loop does not end when no group is left, or takes one rollout too many."""
    drawn, once = [], rl._rolled
    monkeypatch.setattr(rl, "_rolled", lambda run: drawn.append(run) or once(run))
    found = []
    for refill in (0, 1, 20):
        drawn.clear()
        odd = begun(reward=lambda _task, text: len(text) % 7 == 0, group_size=2, refill=refill)
        found.append((rl.step(odd).num_equal, len(drawn)))
    assert found[0][1] == 1
    assert found[1][1] == 2
    assert found[0][0] > found[2][0] == 0
    assert found[2][1] < 21


def test_the_report_says_what_the_rollout_was():
    run = begun()
    report = rl.step(run)
    rolled = rl.rollout(begun())
    assert report.reward == rolled.rewards_PG.mean().item()
    assert report.length == rolled.rows.is_answer_BT.sum(1).double().mean().item()
    assert report.kl == 0
    tokens = rolled.old_BT[rolled.rows.is_answer_BT]
    assert report.entropy == pytest.approx(-tokens.double().mean().item(), rel=1e-5)
    assert 0 < report.entropy <= 1.1 * math.log(SHAPE.vocab_size)
    assert rl.step(run).kl != 0


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_a_run_resumed_in_the_middle_is_the_same_bit_for_bit(method, tmp_path):
    whole = begun(method, kl=0.1, updates=2)
    rl.fit(whole)
    half = begun(method, kl=0.1, updates=2)
    rl.fit(half, on_step=lambda run, _report: run.steps_done == 2)
    rl.save(half, tmp_path)
    # Begun from other weights: everything that matters has to come from the file.
    resumed = begun(method, model=new_model(7), kl=0.1, updates=2)
    rl.restore(resumed, tmp_path)
    assert resumed.steps_done == 2
    assert rl.fit(resumed) is resumed.reports
    assert weights(resumed) == weights(whole)
    assert resumed.reports == whole.reports[2:]


def test_a_run_with_a_folder_saves_when_asked_and_at_its_end(tmp_path):
    config = tuning.RLConfig(**QUICK | {"checkpoint_every": 3})
    rl.fit(rl.start(config, new_model(), TOKENIZER, TASKS, by_length, folder=tmp_path))
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"step_00000003.ckpt", "step_00000004.ckpt"}


def test_another_runs_checkpoint_is_refused(tmp_path):
    rl.save(begun(), tmp_path)
    with pytest.raises(ValueError, match="clip"):
        rl.restore(begun(clip=0.3), tmp_path)
    other = rl.start(tuning.RLConfig(**QUICK), new_model(), TOKENIZER, TASKS[:5], by_length)
    with pytest.raises(ValueError, match="tasks"):
        rl.restore(other, tmp_path)


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_the_policy_is_no_reference_of_its_own(method):
    """Mutant: without the check the policy is frozen, and PPO trains its value head alone."""
    model, config = new_model(), tuning.RLConfig(**QUICK | {"method": method})
    with pytest.raises(ValueError, match="model and reference are one"):
        rl.start(config, model, TOKENIZER, TASKS, by_length, reference=model)
    assert all(w.requires_grad for w in model.parameters())


def test_the_reference_that_is_given_is_copied_and_stays_trainable():
    given = new_model(1)
    run = begun(reference=given)
    assert all(w.requires_grad for w in given.parameters())
    kept = fingerprint(dict(run.actors.reference.state_dict()))
    assert kept == fingerprint(dict(given.state_dict()))
    given.embedding.data.zero_()
    assert fingerprint(dict(run.actors.reference.state_dict())) == kept
    assert rl.step(run).kl != 0


def test_an_answer_longer_than_the_context_is_refused_before_it_is_drawn():
    room = 48 - max(len(tuning.prompt_ids(task.turns[:1], TOKENIZER)) for task in TASKS)
    model, draws = new_model(), generator(0)
    with pytest.raises(ValueError, match=f"an answer of up to {room + 1} do not fit"):
        tuning.draw_answers(model, TOKENIZER, TASKS, answer_tokens=room + 1, generator=draws)
    drawn = tuning.draw_answers(model, TOKENIZER, TASKS, answer_tokens=room, generator=draws)
    assert len(drawn.texts) == len(TASKS)


@pytest.mark.parametrize("settings", [{}, {"method": "ppo", "group_size": 1, "prompts": 32}])
def test_what_is_rewarded_becomes_more_frequent_and_the_reference_stays(settings):
    def vowels(_task, text):
        return sum(letter in "aeiou" for letter in text) / (len(text) or 1)

    run = begun(reward=vowels, **{"steps": 20, "learning_rate": 2e-2, "group_size": 8} | settings)
    before = fingerprint(dict(run.policy.state_dict()))
    reports = rl.fit(run)
    assert run.config.group_size > 1 or reports[0].num_equal == 32
    first, last = (sum(r.reward for r in some) / 3 for some in (reports[:3], reports[-3:]))
    assert last > first + 0.15, (first, last)
    assert fingerprint(dict(run.actors.reference.state_dict())) == before
    assert reports[-1].kl > 1
