"""What widgets are refused with: a table for all, of what each is given and of words of the error.

Unknown names, choices and numbers are refused by every widget: see test_every_widget.py.
"""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import traitlets

from llmcourse import train
from llmcourse.backward.autodiff import Value
from llmcourse.data.tokenizer import Tokenizer
from llmcourse_classroom import plots, widgets
from llmcourse_classroom.measured import PHASES
from llmcourse_classroom.widgets.mixture import MEAN
from llmcourse_classroom.widgets.targets import Strip
from tests.browser import registry
from tests.browser.registry import TINY_LLAMA, sums, tiny_config, without


class Either:
    """Several things that are refused in the same words."""

    def __init__(self, *given):
        self.given = given


def changed(make, right):
    return lambda change: make(**right | change)


def with_first(make, rows):
    return lambda change: make([rows[0] | change, *rows[1:]])


def keys_of(q_shape, k_shape, tokens=9):
    return {"tokens": ["a"] * tokens, "queries": torch.zeros(q_shape), "keys": torch.zeros(k_shape)}


def not_finite(wrong):
    queries, keys = registry.queries_and_keys()
    keys[0, 0, 0, 0] = wrong
    return {"tokens": registry.ATTENDED, "queries": queries, "keys": keys}


def renamed_sum():
    total = Value(1.0, name="a") + 1.0
    total.name = "b"
    return total


def live_run(change):
    config = train.TrainConfig(model=TINY_LLAMA, batch_size=4, steps=60).replace(**change)
    return widgets.LiveRun(config, registry.story_merges(43), floor=0.4)


CALM, CLIPPED = registry.spiky_run([]), registry.spiky_run(["clipping"])
CHAPTER = {"number": "00", "slug": "a", "title": "A", "part": "P", "minutes": 5}
PHASED, MATRICES = registry.loop_phases(), registry.run_matrices()
EVENTS, LEAKS = registry.machine_events(), registry.leak_rows()
RATES, AXIS = registry.rate_runs(), registry.axis_models()
CHATS, SCORES = registry.conversations(), registry.hacking_scores()
SMALL = registry.SMALL_LAW
KEPT = {"gpus": 1_024, "gpu_mtbf_h": 50_677, "save_s": 59.9, "restart_s": 3_599}
ONES = np.ones((2, 2))
MERGES = [(bytes([a]), bytes([b])) for a, b in itertools.product(range(50), range(50))]
make_axis = functools.partial(widgets.LossAxis, beginnings=registry.BEGINNINGS, floor=0.38)
make_shapes = {"steps": [0, 1], "matrices": [ONES] * 2, "losses": [2.0, 1.0]}
make_world = {"names": ["a", "b", "c"], "reference": [0.5, 0.3, 0.2], "utilities": [0, 1, 2]}
make_mixture = {"sources": ["a", "b", "c"], "law": registry.MIXING_LAW, "measured": []}
make_board = {"contexts": registry.CONTEXTS, "logits": registry.board_scores()}
make_board |= {"tokens": registry.BOARD_TOKENS}
LAW, SPLIT = registry.MIXING_LAW[:2], "shares are 0 or more and add to 1"
THREE = "three sources of different names"
POSSIBLE = "a share from 1e-06 to 1 for each answer"
VALUES = {
    changed(widgets.AttentionMap, {}): [
        (keys_of((2, 1, 9, 4, 6), (2, 1, 9, 2, 6)), "take one text of the batch"),
        (keys_of((2, 8, 4, 6), (2, 8, 2, 6)), r"for 9 tokens queries \(2, 8, 4, 6\)"),
        (keys_of((2, 9, 4, 6), (1, 9, 2, 6)), "do not fit"),
        (keys_of((2, 9, 4, 6), (2, 9, 2, 8)), "do not fit"),
        (keys_of((2, 9, 4, 6), (2, 9, 3, 6)), "a multiple of the key heads, not 4 and 3"),
        (keys_of((2, 9, 9, 6), (2, 9, 3, 6)), "at most 8 query heads"),
        (keys_of((5, 9, 4, 6), (5, 9, 2, 6)), "1 to 4 layers, not 5"),
        (keys_of((1, 21, 1, 2), (1, 21, 1, 2), 21), "2 to 20 tokens, not 21"),
        (keys_of((1, 1, 1, 2), (1, 1, 1, 2), 1), "2 to 20 tokens, not 1"),
        *((not_finite(wrong), "finite") for wrong in (math.nan, math.inf, -1e30)),
    ],
    lambda change: widgets.AnswerLoss([CHATS[1] | {"name": "x"}, CHATS[0] | change]): [
        ({"tokens": ["a"]}, "2 to 60 tokens, not 1"),
        ({"tokens": ["a"] * 61}, "2 to 60 tokens, not 61"),
        ({"tokens": [""] * 7}, "a token is a text of 1 to 40 characters"),
        ({"roles": ["user"] * 7}, "the assistant among them"),
        ({"roles": ["assistant"] * 6}, "a role for each token"),
        ({"losses": {"before": [1.0] * 6}}, r"losses of \['before', 'after'\], not of"),
        ({"losses": {"before": [1.0] * 6, "after": [math.nan] * 6}}, "a finite loss of 0 or more"),
        ({"losses": {"before": [1.0] * 6, "after": [1.0] * 7}}, "each of the 6 tokens after"),
        ({"name": "x"}, "a name of its own"),
    ],
    widgets.AnswerLoss: [
        ([], "1 to 8 conversations, not 0"),
        ([CHATS[0] | {"losses": {}}], "losses of 1 to 6 models, not 0"),
        ([without(CHATS[0], "roles")], r"has no \['roles'\]"),
    ],
    changed(widgets.BatchSlider, {"least_steps": 1}): [
        (Either({"least_steps": 0}, {"least_steps": math.inf}), "finite and above 0"),
        ({"least_steps": 1_001}, "is at most 1,000"),
        (Either({"runs": {2: [-1]}}, {"runs": {0: [1]}}), "finite and above 0"),
        *(
            ({"runs": runs}, "runs of at most")
            for runs in ({2: []}, {batch: [1] for batch in range(1, 8)})
        ),
    ],
    widgets.FunnelBoard: [([], "no pages"), ([[10, 0.5, 0.5, 1.5, 1]], "a row is words, english")],
    widgets.GraphStepper: [
        ("", "empty"),
        ("b = a + a", "cannot read 'a'"),
        ("a = 1; a = 2", "twice"),
        ("a = 1; a + a", "name = formula"),
        ("a = = 1", "not a program"),
        ("a = 2; b = a ** a", "exponent"),
        ("a = 2; b = sin(a)", "cannot read"),
        ("; ".join(["a = 1", "b = " + " + ".join(["a"] * 30)]), "at most 24"),
        ({}, "no graph"),
        (renamed_sum(), "keep its operation's name"),
    ],
    lambda points: widgets.HackingBoard([{"name": "x", "runs": [points]}]): [
        ([[0, 1, 1]], "2 to 40 points"),
        ([[0, 1, 1], [1, 2]], "2 to 40 points of KL, proxy and gold"),
        ([[0, 1, 1], [1, math.nan, 1]], "all numbers are finite"),
        (Either([[0.5, 1, 1], [1, 2, 1]], [[0, 1, 1], [0, 2, 1]]), "the KL increases from 0"),
        ([[0, 1, 1], [101, 2, 1]], "to at most 100"),
    ],
    widgets.HackingBoard: [
        ([], "1 to 6 scores, not 0"),
        ([{"name": "x"}], r"has no \['runs'\]"),
        ([SCORES[0], SCORES[1] | {"name": SCORES[0]["name"]}], "a name of its own"),
        ([{"name": "x", "runs": []}], "1 to 8 seeds, not 0"),
        ([SCORES[0] | {"name": ""}], "names have 1 to 30"),
        ([SCORES[0], SCORES[1] | {"runs": SCORES[1]["runs"][:1]}], "the same number of seeds"),
    ],
    widgets.IsoflopValley: [
        ([], "names of their own"),
        ([("a", SMALL, 1e12, 1e13, []), ("a", SMALL, 1e12, 1e13, [])], "names of their own"),
        ([("a" * 25, SMALL, 1e12, 1e13, [])], "1 to 24 characters"),
        ([("a", SMALL, 1e13, 1e12, [])], "least compute of a law's runs is above"),
        ([("a", SMALL, 1e8, 1e12, [])], "from 1e9 to 1e27"),
        ([("a", SMALL, 1e12, 1e13, [(1e5, 1e6, 1.0)])], "held out"),
        ([("a", SMALL, 1e12, 1e13, [(1e5, 1e6, math.nan, True)])], "finite"),
    ],
    registry.leak_board: [
        (LEAKS[:1], "give 2 to 8 rows"),
        ([*LEAKS, LEAKS[-1]], "each with its own name"),
        ([without(LEAKS[0], "order_p"), LEAKS[1]], r"a row has no \['order_p'\]"),
    ],
    changed(registry.leak_board, {}): [
        ({"half": 0}, "half is 1 to 1000, options 2 to 1000; not 0, 10"),
        ({"lengths": [3, 3]}, "lengths of runs, each once"),
    ],
    with_first(registry.leak_board, LEAKS): [
        ({"name": "64 in other words"}, "names have 1 to 9 characters"),
        (Either({"losses": [0.9, 0.9]}, {"losses": []}), "for the same 1 to 5 seeds"),
        ({"losses": [0.9, 0.9, math.nan]}, "losses are above 0"),
        ({"leaked": [1, 2, 51]}, "right answers are 0 to 50"),
        ({"overlap_fresh": [[0.1]] * 3}, "for each of the lengths"),
        ({"clean_items": [[0, 101]] * 3}, "clean_right is at most clean_items, these 100"),
        ({"clean_right": [[1, 0]] * 3}, "clean_right is at most clean_items"),
        ({"order_p": [0.1, 0.1, 1.1]}, "shares and p-values are 0 to 1"),
    ],
    widgets.LiveRanks: [
        (tiny_config(steps=3_000), "steps must be from 1 to"),
        (replace(tiny_config(), batch_size=6), "4 ranks must divide the batch, got 6"),
    ],
    changed(widgets.LiveSpike, {}): [
        ({"saved": 95}, "a multiple of 10 in the run, got 95"),
        ({"saved": 140}, "a multiple of 10 in the run, got 140"),
    ],
    widgets.LiveCrash: [(tiny_config(dropout=0.1), "dropout must be")],
    live_run: [
        ({"schedule": "wsd"}, "schedule must be 'cosine' in a page"),
        ({"dropout": 0.1}, "dropout must be 0.0"),
        ({"steps": 2_001}, "steps must be from 1 to 2,000"),
        ({"model": replace(TINY_LLAMA, hidden=30)}, "hidden must be a multiple of 4, got 30"),
        ({"model": replace(TINY_LLAMA, tied_head=False)}, "a dense Llama alone"),
        ({"model": replace(TINY_LLAMA, qk_norm=True)}, "a dense Llama alone"),
        ({"model": replace(TINY_LLAMA, width=4_000)}, "at most 1,000,000 weights"),
        ({"model": replace(TINY_LLAMA, vocab_size=296)}, "43 merges need a vocabulary of 300"),
    ],
    changed(registry.tiny_live_run, {}): [
        ({"floor": 0.0}, "floor must be above 0"),
        ({"floor": 9.0}, "floor must be above 0 and below ln V"),
        ({"losses": [1.0] * 61}, "at most 60 steps, not 61"),
        ({"losses": [math.nan]}, "not finite"),
        ({"samples": {3: "a"}}, "samples must be of steps 0 to 0"),
        ({"rows": {"none": ["Tom Tom"]}}, "none: the vocabulary has no token"),
        ({"show": ("smoke",)}, "show must be one of phases, loss, words, rows, not 'sm"),
    ],
    with_first(make_axis, AXIS): [
        ({"loss": math.nan}, "loss must be finite and at least 0, not nan"),
        ({"spread": -0.1}, "spread must be finite and at least 0, not -0.1"),
        ({"samples": []}, "give 1 to 5 samples, not 0"),
        ({"samples": ["a"]}, r"every model needs as many samples, not \[1, 2\]"),
        ({"expects": [[("a", 1.0)]]}, "after 1 beginnings, and there are 2"),
        ({"expects": [[("a", 1.0)], []]}, "give 1 to 8 tokens for each beginning, not 0"),
        ({"expects": [[("a", 1.5)], [("a", 1.0)]]}, "probabilities are from 0 to 1"),
        ({"name": "x" * 41}, "a name has 1 to 40 characters"),
        ({"name": AXIS[1]["name"]}, "every model needs a name of its own"),
    ],
    make_axis: [
        (registry.axis_models(1), "give 2 to 12 models, not 1"),
        (registry.axis_models(13), "give 2 to 12 models, not 13"),
    ],
    lambda names: widgets.LossAxis(
        registry.axis_models(beginnings=len(names)), names, floor=plots.LOSS_FLOOR
    ): [(Either([], ["a", "a"]), "one beginning or more, all different")],
    with_first(registry.machine_board, EVENTS): [
        ({"event": "nap"}, "an event is one of begin, end"),
        ({"event": "kill"}, "an event 'kill' needs step, too"),
        ({"stage": "lunch"}, "the stage 'lunch' is none of crawl, train"),
        ({"event": "ranks", "state": "tired", "number": 4}, "processes are starting, training"),
        ({"event": "step", "step": 1, "loss": math.nan}, "numbers of an event 'step' must be"),
        ({"at": 1e6}, "do not decrease"),
    ],
    registry.machine_board: [
        (EVENTS[:1], "give 2 to 2000 events, not 1"),
        (EVENTS[:2], "must have dp and pp for 0 processes"),
    ],
    changed(registry.machine_board, {}): [
        ({"stages": {}}, "give 1 to 12 stages, not 0"),
        ({"mesh": {"dp": 4, "pp": 2}}, "must have dp and pp for 4 processes"),
    ],
    widgets.MergeBoard: [
        (Tokenizer.from_merges(MERGES), "2,756 ids, and a page holds at most 2,000"),
        (Tokenizer.from_merges([], pattern=r"[\s\S]"), "by the pattern GPT2 or LLAMA3"),
    ],
    registry.merge_board: [("\ud800", "lone surrogate")],
    changed(widgets.MixtureTriangle, make_mixture): [
        (Either({"sources": ["a", "b"]}, {"sources": ["a", "b", "b"]}), THREE),
        ({"sources": ["a", "b", MEAN]}, THREE),
        ({"sources": ["a", "b", "x" * 15]}, "names have 1 to 14 characters"),
        ({"law": LAW}, "a row for each of three sources, not 2"),
        ({"law": [*LAW, (1.0, 2.0, (0.0, 1.0))]}, "a number for each of three"),
        ({"law": [*LAW, (1.0, math.inf, (0.0, 1.0, 1.0))]}, "finite, not inf"),
        ({"measured": [[[0.5, 0.5, 0.1], [1, 1, 1]]]}, SPLIT),
        ({"measured": [[[1.5, -0.5, 0], [1, 1, 1]]]}, SPLIT),
        ({"measured": [[[1, 0, 0], [1, 1]]]}, "a number for each of three"),
    ],
    lambda lengths: widgets.PackingBoard(lengths, 8): [
        (Either([], [0, 0]), "0 tokens together"),
        ([3, -1], "document 1 has -1 tokens"),
        ([1] * 65, "at most 64 documents, not 65"),
        ([8_193], "8,193 tokens together; give 1 to 8,192"),
    ],
    changed(lambda **world: widgets.PreferenceBoard(world), make_world): [
        ({"names": ["a"]}, "2 to 6 answers with names of their own"),
        ({"names": ["a", "a", "b"]}, "2 to 6 answers with names of their own"),
        ({"names": ["a", "b", ""]}, "a name has 1 to 16 characters"),
        (Either({"reference": [0.5, 0.5]}, {"reference": [0.5, 0.5, 0.0]}), POSSIBLE),
        ({"reference": [0.5, 0.2, 0.2]}, "the shares of the reference sum to 1, not 0.9"),
        ({"utilities": [1.0, 2.0]}, "a utility from -20 to 20 for each answer"),
        ({"utilities": [1.0, 2.0, math.nan]}, "a utility from -20 to 20 for each answer"),
    ],
    widgets.PreferenceBoard: [
        (without(make_world, "utilities"), r"the world has no \['utilities'\]")
    ],
    widgets.ProgressMap: [
        ([{"number": "00", "title": "A"}], r"has no \['slug', 'part'\]"),
        ([CHAPTER, CHAPTER], "same number"),
    ],
    widgets.RateRegimes: [
        (RATES[:1], "give 2 to 6 runs, not 1"),
        ([RATES[0], RATES[0]], "a name of its own"),
        (registry.rate_runs(501), "keep every n-th"),
        ([without(RATES[0], "train"), *RATES[1:]], r"a run has no \['train'\]"),
    ],
    with_first(widgets.RateRegimes, RATES[1::-1]): [
        ({"rate": 0}, "a rate above 0"),
        ({"name": ""}, "needs a name"),
        ({"steps": RATES[0]["steps"][::-1]}, "steps must increase"),
        ({"train": [1.0]}, "60 steps, 1 losses of training"),
        ({"validation": [1.0]}, "60 steps, 60 losses of training and 1 of validation"),
        ({"train": [math.nan] * 60}, "the first loss of training must be finite"),
    ],
    widgets.RotaryClocks: [(15, "head_size must be even, for pairs of channels, not 15")],
    changed(registry.run_scrubber, {}): [
        ({"steps": [0], "weights": MATRICES[:1]}, "2 to 20 snapshots, not 1"),
        ({"weights": MATRICES[:4]}, "4 matrices for 5 steps"),
        (Either({"steps": [1, 2, 3, 4, 5]}, {"steps": [0, 2, 2, 4, 5]}), "increase from 0"),
        ({"losses": [1.0] * 39}, "losses of all 40 steps"),
        ({"losses": [1.0] * 2_001}, "at most 2,000"),
        ({"losses": [1.0] * 49 + [math.nan]}, "a loss is not finite"),
        ({"samples": {51: "x"}}, "samples must be of steps 0 to 50"),
        ({"weights": [*MATRICES[:4], torch.ones(3, 3)]}, "a matrix like the first"),
        ({"weights": [torch.ones(6)] * 5}, "a matrix like the first"),
        ({"weights": registry.run_matrices(49, 2), "groups": None}, "at most 48 x 64"),
        ({"weights": [*MATRICES[:4], MATRICES[0] / 0]}, "a weight is not finite"),
        ({"groups": {"names": ["Max"]}}, "groups name 1 rows, the matrices have 6"),
    ],
    changed(widgets.SamplingBoard, make_board): [
        ({"contexts": ["a"]}, "must be 1 contexts x 300 tokens"),
        ({"contexts": ["a", "a"]}, "all differ"),
        ({"logits": np.full((2, 300), np.nan)}, "finite"),
        ({"tokens": ["a"]}, "2 contexts x 1 tokens"),
    ],
    lambda names: widgets.SpikeLab(names, [CALM]): [
        (Either([], "clipping", [*"abcdef"]), "1 to 5 names"),
        (["clipping", "clipping"], "different names"),
    ],
    lambda change: widgets.SpikeLab(["clipping"], [CALM | change]): [
        (Either({"on": ["z-loss"]}, {"on": "clipping"}), "run 0: on must be a list of"),
        ({"on": ["clipping"]}, "all precautions off"),
        ({"losses": [1.0] * 4, "norms": [1.0] * 4}, "5 to 500 steps, not 4|5 to 500"),
        ({"losses": [1.0] * 501, "norms": [1.0] * 501}, "not 501 and 501"),
        ({"norms": [1.0] * 5}, "not 120 and 5"),
        ({"losses": [math.nan] * 120}, "nothing can be drawn"),
        ({"norms": [-1.0] * 120}, "a norm is negative"),
    ],
    lambda runs: widgets.SpikeLab(["clipping"], runs): [
        ([{"on": [], "losses": [1.0] * 9}], "run 0 has no norms"),
        ([CALM, CLIPPED, CLIPPED], r"more than one run has on \['clipping'\]"),
    ],
    changed(Strip, {"name": "s"}): [
        ({"tokens": []}, "1 to 48 tokens, not 0"),
        ({"tokens": ["a"] * 49}, "1 to 48 tokens, not 49; cut it"),
        ({"tokens": ["a", ""]}, "token 1 must be a string of 1 to 200 characters, not ''"),
        ({"tokens": ["a" * 201]}, "token 0 must be a string of 1 to 200"),
        ({"tokens": ["a", "b"], "roles": ["user"]}, "2 tokens but 1 roles"),
        ({"tokens": ["a"], "documents": [0, 0]}, "1 tokens but 2 documents"),
    ],
    widgets.TokenStrip: [
        ([], "1 to 12 strips, not 0"),
        ([Strip(str(i), ["a"]) for i in range(13)], "1 to 12 strips, not 13"),
        ([Strip("s", ["a"]), Strip("s", ["b"])], "a name of its own"),
    ],
    widgets.TrainingLoop: [
        (PHASED[:6], "seven phases, not 6"),
        ([PHASED[0], PHASES[1], *PHASED[2:]], r"phase 2 has no \['facts'\]"),
        (
            [PHASED[0] | {"share": 1.5}, *PHASED[1:]],
            r"phase 1: share must be from 0 to 1, not 1\.5",
        ),
    ],
    changed(functools.partial(widgets.WeightScrubber, "w"), make_shapes): [
        ({"steps": [0], "matrices": [ONES], "losses": [1]}, "2 to 12 checkpoints"),
        ({"steps": list(range(13))}, "2 to 12 checkpoints, not 13"),
        ({"matrices": [ONES]}, "1 matrices for 2 steps"),
        ({"losses": [1.0]}, "1 losses for 2 steps"),
        (Either({"steps": [5, 5]}, {"steps": [5, 1]}), "steps must increase"),
        ({"steps": [-1, 1]}, "steps must increase from 0 or more"),
        ({"losses": [1.0, math.inf]}, "every loss must be finite"),
        ({"matrices": [ONES, np.ones((2, 3))]}, r"step 1: .* not of shape \(2, 3\)"),
        ({"matrices": [np.ones(4), np.ones(4)]}, r"step 0: .* not of shape \(4,\)"),
        ({"matrices": [np.ones((0, 4)), np.ones((0, 4))]}, r"step 0: .* not of shape \(0, 4\)"),
        ({"matrices": [np.ones((257, 300))] * 2}, "may be 256, not 257: give some of the rows"),
        ({"matrices": [ONES, np.full((2, 2), np.nan)]}, "step 1: a weight is not"),
    ],
}
TYPES = {
    widgets.BlockTapper: [("llama3_8b", "ModelConfig")],
    widgets.MergeBoard: [("gpt2", "Tokenizer")],
    widgets.TokenStrip: [([{"name": "s", "tokens": ["a"], "colour": 1}], "colour")],
}
TRAITS = {
    changed(widgets.GoodputPlanner, {}): [
        ({"kept": {"gpus": 3}}, "kept must have gpus, gpu_mtbf_h, save_s, restart_s"),
        ({"kept": KEPT | {"save_s": 0}}, "save_s of kept must be from"),
        ({"kept": KEPT | {"gpus": "many"}}, "gpus of kept must be from"),
    ],
    changed(widgets.MemoryTimeline, {}): [
        ({"choices": ["block"]}, "2 to 12"),
        ({"choices": ["block", "half"]}, "not 'half'"),
    ],
    changed(widgets.RouterBoard, {}): [
        ({"biases": [0, 0, 0, 0]}, "biases must be 8 numbers, got 4")
    ],
}
ROWS = [
    pytest.param(make, error, given, message, id=f"{error.__name__}: {message[:40]}")
    for error, table in ((ValueError, VALUES), (TypeError, TYPES), (traitlets.TraitError, TRAITS))
    for make, rows in table.items()
    for either, message in rows
    for given in (either.given if isinstance(either, Either) else [either])
]


@pytest.mark.parametrize(("make", "error", "given", "message"), ROWS)
def test_what_cannot_be_is_refused(make, error, given, message):
    with pytest.raises(error, match=message):
        make(given)


SET = [
    (registry.chapter_map, "progress", {"0": "done"}, "number is such as '00'"),
    (registry.chapter_map, "progress", {"00": "finished"}, "'reading' or 'done'"),
    (registry.chapter_map, "progress", {"00": "not begun"}, "left out"),
    *(
        (registry.chapter_map, "exercises", given, "exercises")
        for given in (
            {"chapters": {}},
            {"format": 2, "chapters": {}},
            {"format": 1},
            {"format": 1, "chapters": {"5": sums(1, 2)}},
            {"format": 1, "chapters": {"05": sums(3, 2)}},
            {"format": 1, "chapters": {"05": sums(0, 0)}},
            {"format": 1, "chapters": {"05": {"passed": 1}}},
            {"format": 1, "chapters": {"05": "2 of 4"}},
        )
    ),
    (registry.spike_lab, "on", ["z-loss"], r"there is no precaution \['z-loss'\]"),
]


@pytest.mark.parametrize(("make", "name", "given", "message"), SET)
def test_what_is_set_and_cannot_be_is_refused_and_changes_nothing(make, name, given, message):
    made = make()
    before = getattr(made, name)
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(made, name, given)
    assert getattr(made, name) == before


LIMITS = {
    registry.attention_map: {"layer": (1, 2), "head": (0, 3), "row": (0, 8), "window": (1, 9)},
    functools.partial(registry.answer_loss, conversation="long"): {"token": (1, 59)},
    functools.partial(registry.weight_scrubber, 3, 9): {"directions": (1, 3)},
    widgets.LiveEpochs: {"patience": (1, 20)},
    registry.hacking_board: {"budget": (0, 4)},
    registry.isoflop_valley: {"budget": (9, 27), "off": (0.05, 20)},
    registry.loss_axis: {"sample": (1, 2)},
    registry.machine_board: {"event": (1, len(EVENTS))},
    registry.run_scrubber: {"step": (0, 50)},
    registry.sampling_board: {"top_k": (1, 300)},
    registry.spike_lab: {"step": (0, 119), "window": (3, 100)},
    registry.token_strip: {"shift": (0, 2)},
    registry.weight_scrubber: {"checkpoint": (0, 3)},
    registry.answer_world: {"beta": (0.03, 10)},
    functools.partial(widgets.BatchSlider, 60): {"batch": (1, 1_024)},
    functools.partial(widgets.FunnelBoard, [[120, 0.99, 0.0, 0.9, 1]]): {"quality": (0, 1)},
    functools.partial(widgets.GraphStepper, registry.TWO_LINES): {"step": (0, 400)},
    functools.partial(widgets.PackingBoard, [3], 8): {"context_length": (1, 512)},
    functools.partial(widgets.RateRegimes, RATES): {"step": (0, 295)},
    functools.partial(widgets.TrainingLoop, PHASED): {"phase": (1, 7)},
    widgets.BucketTimeline: {"bucket_mb": (0.001, 4_000)},
    widgets.ClusterBoard: {"replicas": (1, 8)},
    widgets.CollapseLab: {"temperature": (0.6, 1.4)},
    widgets.CostCalculator: {"gpus": (1, 1_000_000), "mfu": (0.01, 1), "pue": (1, 3)},
    widgets.GoodputPlanner: {"interval_s": (10, 604_800)},
    widgets.IntervalLab: {"items": (10, 5_000)},
    widgets.MatrixSplitter: {"tokens": (1, 131_072)},
    widgets.NormAndGate: {"gate": (-6, 6)},
    widgets.OptimizerRace: {"start_x": (-2, 2)},
    widgets.OrderBoard: {"stop": (0, 4)},
    widgets.RooflineBoard: {"batch": (1, 4_096)},
    widgets.ScheduleDesigner: {"peak": (1e-6, 1)},
    widgets.SchedulePlayer: {"micro_batches": (1, 16)},
    widgets.ShareBar: {"num_layers": (1, 256)},
    widgets.StepSimulator: {"tp": (1, 128)},
    widgets.WavelengthChart: {"factor": (1, 64)},
}
"""Of some numbers, that hang on what a widget was made with or that the tests once typed in."""


@pytest.mark.parametrize("make", LIMITS)
def test_numbers_are_clamped_to_these_limits(make):
    made = make()
    for name, (low, high) in LIMITS[make].items():
        for given in (low - 1, high + 1):
            setattr(made, name, given)
            assert getattr(made, name) == min(max(low, given), high)
            assert f"{getattr(made, name):g} is used" in made.note
        assert (made.limits[name]["low"], made.limits[name]["high"]) == (low, high)
