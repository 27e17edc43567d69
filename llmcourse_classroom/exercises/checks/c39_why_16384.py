"""Checks of exercises 39: Why 16,384 GPUs?."""

from llmcourse_labs.scale.simulator import LLAMA, REACHED


def check_1(t, best_cp, micro_batch, step):
    """39.1 Cut the context, too"""
    compute, messages = micro_batch(8, 8, 2, 2, 10)
    t.close(
        compute,
        2.0,
        "8 s of arithmetic are shared by tp · cp = 4 GPUs: 2 s",
        "all GPUs of a stage share the arithmetic",
    )
    t.close(
        messages,
        0.8,
        "a GPU holds 2 of the 8 bytes; it passes them on once in forward (2 bytes) and once in "
        "backward with their float32 gradients (2 + 4 bytes): 8 bytes at 10 per second are 0.8 s",
        "keys and values go round twice, their gradients once",
    )
    t.close(
        micro_batch(8, 80, 1, 4, 10)[1],
        24.0,
        "with cp = 4 a GPU holds 20 of 80 bytes and passes them on 3 times: 3 · 80 bytes are 24 s",
        "a ring of cp passes cp - 1 times",
    )
    t.close(
        micro_batch(8, 8, 2, 1, 10)[1],
        0.0,
        "with cp = 1 nothing is sent",
        "without a ring nothing is sent",
        absolute=1e-12,
    )
    work = {"alone_s": 8, "kv_bytes": 8, "rate": 10, "sequences": 8}
    t.close(
        step(2, 2, 2, 2, work),
        7.0,
        "a stage has half of the model: 1 s and 0.4 s for a sequence; a replica has 8 / 2 = 4 of "
        "them, and 4 + 2 - 1 = 5 times 1.4 s are 7 s",
        "a step is m + pp - 1 micro-batches long",
    )
    t.equal(
        [best_cp(16, 2, 2, work | {"kv_bytes": b}) for b in (0.1, 2, 1000)],
        [4, 2, 1],
        "16 GPUs with pp = tp = 2 and 8 sequences: few bytes make cp = 4 the fastest, more of them "
        "cp = 2, and many cp = 1; dp is 16 / (4 cp), and m = 8 / dp",
        "the best cp depends on the bytes",
    )
    t.equal(
        best_cp(32, 4, 1, work | {"kv_bytes": 1000}),
        4,
        "with cp = 1 or 2, dp would be 8 or 4, and a replica would have 1 or 2 sequences for 4 "
        "stages: too few",
        "a pipeline gets a sequence for each stage",
    )


def check_2(t, best, gigabytes, layouts):
    """39.2 The best layout on 1,024"""
    t.equal(
        [tuple(each) for each in layouts(8, 2, 4, 8)],
        [(8, 1, 1), (4, 2, 1), (4, 1, 2), (2, 2, 2), (2, 1, 4), (1, 2, 4)],
        "8 GPUs, 2 layers, 4 heads, 8 sequences: tp 8 does not divide 4 heads, pp is at most 2, "
        "and the six layouts come in order of tp, then pp",
        "the legal layouts of 8 GPUs are found",
    )
    t.equal(
        [tuple(each) for each in layouts(8, 4, 1, 12)],
        [(4, 2, 1), (2, 4, 1)],
        "12 sequences: dp = 8 does not divide them; with dp = 4 each replica has 3, enough for 2 "
        "stages",
        "dp divides the sequences",
    )
    t.equal(
        [tuple(each) for each in layouts(8, 4, 1, 4)],
        [],
        "4 sequences: dp = 4 leaves one for 2 stages, and dp = 2 two for 4 stages, too few",
        "a pipeline wants a sequence for each stage",
    )
    t.close(
        gigabytes((2, 2, 2), 4, 8, 6),
        27.0,
        "by hand, 12 GB of weights and gradients, 12 of the optimizer's state, which dp shares, "
        "and 3 of activations",
        "the memory by hand is right",
    )
    t.close(
        gigabytes((8, 4, 1), 2, 8, 6),
        18.0,
        "with 2 sequences and 4 stages a GPU keeps 2 sequences, not 4: 12 + 3 + 3 GB",
        "no more than m sequences are kept",
    )
    big = {"layers": 126, "heads": 128, "sequences": 2_048, "billions": 405.9, "kept_gb": 537}
    t.equal(
        tuple(best(1_024, big, 90)),
        (4, 32, 8),
        "with 90 GB the 405B on 1,024 GPUs is fastest with dp 4, pp 32, tp 8 by seconds_of",
        "the fastest that fits is found",
    )
    t.equal(
        best(1_024, big, 20),
        None,
        "if no layout fits, return None",
        "where nothing fits, that is said",
    )


def check_3(t, gain, step_seconds, worth):
    """39.3 Where data parallelism stops helping"""
    t.close(
        [step_seconds(8, 64, 1, 4, 3), step_seconds(16, 64, 1, 4, 3)],
        [13.0, 9.0],
        "by hand, 8 replicas take (8 + 4 - 1) + (3 - 1) = 13 s, 16 take (4 + 4 - 1) + 2 = 9 s",
        "both steps by hand are right",
    )
    t.close(
        step_seconds(8, 64, 1, 4, 0.5),
        11.0,
        "a sum of 0.5 s is hidden behind a micro-batch of 1 s: nothing of it is left, and no time "
        "is won",
        "a short sum is hidden",
    )
    t.close(
        step_seconds(1, 64, 1, 4, 3),
        67.0,
        "a single replica has nothing to sum: 64 + 4 - 1 = 67 s",
        "one replica sums nothing",
    )
    t.close(
        gain(8, 64, 1, 4, 3),
        13 / 9,
        "twice as many replicas take 9 s in place of 13: 1.44 times as fast",
        "the gain is old seconds over new",
    )
    t.equal(
        [worth(64, 1, 4, 3, least) for least in (1.9, 1.5, 1.4, 1)],
        [1, 8, 16, 16],
        "64 sequences: the gains are 1.81, 1.76, 1.61, 1.44 up to 16 replicas, where each has 4 "
        "sequences for 4 stages; 32 would leave it 2",
        "doubling ends where the gain or the batch does",
    )
    t.equal(
        worth(48, 1, 2, 0, 1),
        16,
        "48 sequences cannot be shared by 32 replicas: 48 / 32 is no whole number",
        "replicas divide the sequences",
    )


def check_4(t, best_batch, run_seconds, shortest, text):
    """39.4 The limit that no cluster can pass"""
    t.close(
        text(100, 1_000, 100),
        2_000.0,
        "at the critical batch a run needs twice the least text: 2,000 tokens",
        "the text by hand is right",
    )
    t.close(
        run_seconds(100, 1_000, 100, 50, 2),
        80.0,
        "20 steps of 100 / 50 + 2 = 4 s are 80 s",
        "the run by hand takes 80 s",
    )
    t.close(
        best_batch(100, 50, 2),
        100.0,
        "a run of D_min (1 / rate + fixed / B_crit + B / (rate B_crit) + fixed / B) is shortest at "
        "B = sqrt(B_crit · rate · fixed_s) = sqrt(100 · 50 · 2) = 100",
        "the best batch by hand is 100 tokens",
    )
    near = best_batch(7.4e6, 8e5, 0.3)
    least = run_seconds(near, 1e13, 7.4e6, 8e5, 0.3)
    t(
        all(run_seconds(f * near, 1e13, 7.4e6, 8e5, 0.3) >= least for f in (0.5, 0.9, 1.1, 2)),
        "half, nine tenths, 1.1 times or twice the best batch must not be faster than it",
        "no batch near it is better",
    )
    t.close(
        shortest(1_000, 100, 2),
        20.0,
        "at least D_min / B_crit = 10 steps remain, each with its 2 fixed seconds: 20 s",
        "the fixed seconds of the least steps remain",
    )
    t.close(
        run_seconds(1e12, 1_000, 100, 1e18, 2),
        20.0,
        "with a huge batch on a huge cluster run_seconds has to come near `shortest`, 20 s",
        "a huge cluster comes near it",
        relative=1e-4,
    )


def check_5(t, first_at_131072, ranking, seconds_with, slower):
    """39.5 Change one number, and see"""
    plain = LLAMA[1].simulated().seconds
    t.close(
        seconds_with(1, "link", 1),
        plain,
        "with a factor of 1 the step is the simulator's own",
        "a factor of 1 changes nothing",
    )
    t(
        seconds_with(1, "link", 0.5) > 1.1 * plain,
        "with half of the link the step of row 1 takes over a tenth longer: put the changed "
        "numbers into the cluster",
        "a slower link slows the step",
    )
    t.close(
        seconds_with(1, "network", 5),
        seconds_with(1, "network", 1 / REACHED["H100"].network),
        "a share ends at 1: five times 0.92 is 1",
        "shares end at 1",
    )
    t(
        slower(1, "message_s") > 1 and slower(1, "launch_s") > 1,
        "a latency gets worse when it grows: multiply it by 1.1",
        "latencies get worse by growing",
    )
    t.close(
        slower(1, "products"),
        seconds_with(1, "products", 0.9) / plain,
        "how many times as long: new seconds over old",
        "slower is new over old",
    )
    t.equal(
        ranking(1, ["memory", "attention", "products", "link"]),
        ["products", "link", "attention", "memory"],
        "on row 1, products matter most, then the link, attention, and memory",
        "the ranking begins with what matters most",
    )
    t.equal(
        [ranking(place, ["memory", "network", "attention", "link"])[0] for place in (0, 1, 2)],
        ["link", "link", "attention"],
        "at 8,192 tokens the link matters most of the four, at 131,072 attention",
        "the length decides what to improve",
    )
    t.equal(
        first_at_131072(),
        "attention",
        "rank the four names for row 2: attention grows with the square of the length, all else "
        "with the length",
        "attention takes over",
    )
