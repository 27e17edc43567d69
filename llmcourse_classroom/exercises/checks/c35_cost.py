"""Checks of exercises 35: What it costs."""


def check_1(t, computed_flop, doubling_context, needed_flop):
    """35.1 Six N D, with attention"""
    t.close(
        needed_flop(1_000, 2, 10, 4, True),
        6_600,
        "by hand, 6 N is 6,000, and a causal token among 4 adds 6 L A (T + 1) = 600",
        "a causal model of 1,000 parameters needs 6,600",
    )
    t.close(
        needed_flop(1_000, 2, 10, 4, False),
        6_960,
        "with all pairs attention adds 12 L A T = 960",
        "with all pairs it is 6,960",
    )
    t.close(
        computed_flop(1_000, 2, 10, 4, 1),
        8_800,
        "the whole forward pass is a third of 6,600, so running it again makes 8,800",
        "all of forward again is a third more",
    )
    t.close(
        [computed_flop(1_000, 2, 10, 4, 0), computed_flop(1_000, 2, 10, 4, 0.75)],
        [6_600, 8_250],
        "with no share of forward again nothing is added, with three quarters 1,650",
        "three quarters of forward again add 1,650",
    )
    t.equal(
        [doubling_context(1_000, 2, 10), doubling_context(1_001, 2, 10)],
        [49, 50],
        "at T = 49, 6 L A (T + 1) is exactly 6,000, which is enough for N = 1,000; for 1,001 "
        "parameters it takes one token more: round up, and mind the + 1",
        "a whole number of tokens is found, the exact case included",
    )
    t.equal(
        doubling_context(15, 2, 10),
        1,
        "a context has at least one token",
        "a context has at least one token",
    )


def check_2(t, lost_hours, mfu_from_hours, mfu_from_rate):
    """35.2 MFU from seconds, and from hours"""
    t.close(
        mfu_from_rate(5, 60, 8, 100),
        0.375,
        "5 tokens of 60 FLOPs are 300 FLOP/s, and 8 GPUs with a peak of 100 could do 800: 0.375",
        "300 of 800 FLOP/s are 0.375",
    )
    t.close(
        mfu_from_rate(238_300, 3.2777e12, 6_144, 275e12),
        0.462285,
        "PaLM: 238,300 tokens per second of 3.2777 TFLOP on 6,144 TPUs of 275 TFLOP/s is 46.2 %",
        "PaLM's 46.2 % come out",
        relative=1e-4,
    )
    t.close(
        mfu_from_hours(3_600_000, 40, 100),
        0.25,
        "40 GPU-hours are 144,000 GPU-seconds, in which a peak of 100 FLOP/s would do 14.4 million "
        "FLOPs; 3.6 million are a quarter",
        "GPU-hours are turned into seconds",
    )
    t.close(
        mfu_from_hours(3.8e25, 30.84e6, 989.4e12),
        0.345937,
        "Llama 3.1 405B: 3.8e25 FLOPs in 30.84 million hours is 34.6 % of 989.4 TFLOP/s",
        "the 34.6 % of Llama 3.1 405B come out",
        relative=1e-4,
    )
    t.close(
        lost_hours(3_600_000, 40, 100, 0.5),
        20.0,
        "at an MFU of 0.5 the run of 40 hours at 0.25 would have taken 20, so 20 were lost",
        "at twice the MFU half of the hours are saved",
    )
    t.close(
        lost_hours(3_600_000, 40, 100, 0.25),
        0.0,
        "a run that went at its best MFU all the time lost nothing",
        "a run at its best lost nothing",
        absolute=1e-9,
    )


def check_3(t, fitting_unit, is_plausible, work):
    """35.3 Spot the unit error"""
    t.close(
        work(2, "GPU-hours", 1e12),
        7.2e15,
        "2 GPU-hours at 10^12 FLOP/s are 2 times 3,600 times 10^12 FLOPs",
        "GPU-hours are turned into FLOPs",
    )
    t.close(
        work(3_640, "PF-days", 28e12),
        3.14496e23,
        "a PF-day is 10^15 FLOP/s for 86,400 s, on any GPU: 3,640 of them are 3.145e23 FLOPs",
        "PF-days do not depend on the GPU",
    )
    t.close(
        [work(1, "GPU-days", 1e12) / 1e16, work(1, "GPU-years", 1e12) / 1e19],
        [8.64, 3.15576],
        "a GPU-day has 24 hours, and a GPU-year 365.25 days",
        "days and years are turned into FLOPs",
    )
    t.equal(
        [fitting_unit(x, 3.14e23, 28e12) for x in (3_640, 3_115_000, 130_000, 355)],
        ["PF-days", "GPU-hours", "GPU-days", "GPU-years"],
        "for 3.14e23 FLOPs at 28 TFLOP/s, 3,640 are PF-days, 3,115,000 GPU-hours, 130,000 "
        "GPU-days and 355 GPU-years",
        "the figures of GPT-3 find their units",
    )
    t.equal(
        fitting_unit(1, 5.5e19, 3.125e14),
        "PF-days",
        "8.64e19 is 1.6 times 5.5e19, and 2.7e19 only half of it: near is meant as a factor, not "
        "as a difference",
        "near is meant as a factor",
    )
    t.equal(
        [is_plausible(x, "GPU-hours", 3.14e23, 125e12) for x in (3_640, 3_115_000, 5e8)],
        [False, True, False],
        "on a V100 with 125 TFLOP/s, 3,640 GPU-hours would mean a utilisation far above 1, and "
        "500 million one of 0.1 %; 3.115 million mean 22 %",
        "hours that are too few or far too many are noticed",
    )
    t.equal(
        [is_plausible(x, "PF-days", 3.14e23, 125e12) for x in (3_640, 4_000, 3_000)],
        [True, False, False],
        "PF-days are the FLOPs themselves in another unit: 3,640 are within 5 % of 3.14e23, and "
        "3,000 or 4,000 are not",
        "PF-days have to be the FLOPs",
    )


def check_4(t, break_even, cheapest, tokens_needed):
    """35.4 Over-train, or serve?"""
    simple = {"E": 1, "A": 10, "B": 10, "alpha": 1, "beta": 1}
    t.close(
        tokens_needed(simple, 10, 3),
        10.0,
        "by hand, E and A / N leave 1 for B / D, so D = 10",
        "the text needed by hand is right",
    )
    t.close(
        tokens_needed(simple | {"beta": 0.5}, 10, 3),
        100.0,
        "with beta = 0.5, 10 / sqrt(D) = 1 needs D = 100: take the root of degree beta, which is "
        "the power 1 / beta",
        "beta is an exponent",
    )
    t.equal(
        [tokens_needed(simple, 5, 3), tokens_needed(simple, 4, 3)],
        [None, None],
        "with N = 5, E and A / N are the whole loss of 3: no text is enough, so return None",
        "a model that is too small is told",
    )
    t.close(
        break_even(10, 20, 4, 100),
        100.0,
        "6 (400 - 200) = 1,200 FLOPs more in training, and each served token saves 2 (10 - 4) = "
        "12: 100 tokens",
        "after 100 served tokens both have cost the same",
    )
    t.close(
        break_even(10, 20, 4, 40),
        0.0,
        "a smaller model that is trained with fewer FLOPs was never more expensive: 0",
        "where the smaller one is cheaper from the start, it is 0",
        absolute=1e-12,
    )
    chinchilla = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
    sizes = [100e9, 72e9, 36e9, 18e9, 9e9]
    t.equal(
        cheapest(chinchilla, sizes, 1.974, 0),
        72e9,
        "if nothing is served, 72 billion parameters reach 1.974 with the least training",
        "without serving the best for training is chosen",
    )
    t.equal(
        [cheapest(chinchilla, sizes, 1.974, served) for served in (1e13, 1e14)],
        [36e9, 18e9],
        "with 10^13 served tokens 36 billion are cheapest, with 10^14 18 billion; 9 billion never "
        "reach the loss: count 6 N D and 2 N for each served token",
        "the more is served, the smaller is best",
    )
    t.equal(
        cheapest(chinchilla, [9e9, 5e9], 1.974, 1e12),
        None,
        "if no size reaches the loss, return None",
        "where none reaches the loss, that is said",
    )


def check_5(t, account, spread, weakest_link, what_more_gpus_change):
    """35.5 The price of your own run"""
    small = {"flop": 3.6e18, "peak": 1e15, "mfu": 0.5, "gpus": 4, "dollars_per_gpu_hour": 3}
    small |= {"watts": 500, "host_share": 0.5, "pue": 1.2}
    found = account(small)
    t.close(
        found["gpu_hours"],
        2.0,
        "3.6e18 FLOPs at half of 1e15 FLOP/s take 7,200 s of one GPU, 2 GPU-hours, however many "
        "share them",
        "2 GPU-hours come out",
    )
    t.close(
        found["days"],
        0.5 / 24,
        "on 4 GPUs 2 GPU-hours are half an hour, 1/48 of a day",
        "GPUs share the hours",
    )
    t.close(
        found["dollars"],
        6.0,
        "2 GPU-hours at $3 cost $6, on any number of GPUs",
        "2 hours at $3 cost $6",
    )
    t.close(
        found["kwh"],
        1.8,
        "2 hours of 500 W with half as much again for the server, times a PUE of 1.2, are 1.8 kWh",
        "the energy has its three factors",
    )
    t.close(
        [
            spread(small, "mfu", [0.3, 0.6, 0.4], "dollars"),
            spread(small, "pue", [1.1, 1.65], "kwh"),
        ],
        [2.0, 1.5],
        "an MFU from 0.3 to 0.6 moves the dollars by a factor of 2, a PUE from 1.1 to 1.65 the "
        "energy by 1.5: divide the largest result by the smallest",
        "the spread is the largest over the smallest",
    )
    t.close(
        spread(small, "host_share", [0.2, 0.8], "kwh"),
        1.5,
        "a host share from 0.2 to 0.8 makes 1.2 to 1.8 of every watt, a factor of 1.5",
        "the host share is added to one",
    )
    ranges = {"mfu": [0.3, 0.45], "dollars_per_gpu_hour": [1.5, 4], "pue": [1.1, 1.2]}
    t.equal(
        [weakest_link(small, ranges, "dollars"), weakest_link(small, ranges, "kwh")],
        ["dollars_per_gpu_hour", "mfu"],
        "for the dollars the rent has the largest spread, for the energy the MFU: the rent does "
        "not touch the energy",
        "the weakest link depends on the quantity",
    )
    t.equal(
        sorted(what_more_gpus_change()),
        ["days"],
        "double the GPUs and look: the hours of all of them together stay, and so do dollars and "
        "kWh at the same MFU",
        "more GPUs change the days alone",
    )
