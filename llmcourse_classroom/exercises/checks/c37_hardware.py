"""Checks of exercises 37: From a multiplier to a rack."""


def check_1(t, adamw_intensity, norm_intensity, product_intensity, users_for):
    """37.1 How many FLOPs for a byte?"""
    t.close(
        product_intensity(2, 3, 5, 2),
        60 / 62,
        "by hand, 60 FLOPs and three matrices of 6, 15 and 10 numbers of 2 bytes",
        "a (2, 3) by (3, 5) product has 60 FLOPs for 62 bytes",
    )
    t.close(
        [product_intensity(n, n, n, 4) for n in (6, 600)],
        [1.0, 100.0],
        "the intensity of squares in float32 is n / 6, because 2 n^3 FLOPs meet 3 n^2 numbers",
        "the intensity of a product grows with its size",
    )
    t.close(
        [norm_intensity(2), norm_intensity(4)],
        [1.0, 0.5],
        "each number of a norm is read and written: 4 FLOPs for twice its bytes",
        "a norm has one FLOP per byte in bf16",
    )
    t.close(
        adamw_intensity(4, 4, 0, 8),
        16 / 28,
        "in float32, AdamW reads 4 + 4 + 8 bytes and writes 4 + 8: 28",
        "AdamW moves 28 bytes in float32",
    )
    t.close(
        adamw_intensity(2, 2, 4, 8),
        16 / 28,
        "with a master copy, it reads 2 + 4 + 8 bytes and writes 4 + 8 + 2: 28 again",
        "AdamW moves 28 bytes with a master copy, too",
    )
    t.equal(
        [users_for(4096, 14336, 2, 295), users_for(6, 6, 2, 1.5)],
        [326, 3],
        "326 users bring the 8B's matrices to 295 FLOPs per byte; with k = n = 6, three rows have "
        "exactly 1.5, and two have less: round up",
        "the least number of users is found",
    )
    t.equal(
        users_for(100, 100, 2, 50),
        None,
        "for k = n = 100 the intensity comes close to 2 k n / (b (k + n)) = 50, never there",
        "some matrices are too small for any number of users",
    )


def check_2(t, attainable, bound_by, step_seconds):
    """37.2 Bound by what?"""
    pencil = {"peak": 100, "bandwidth": 10, "network": 1, "call_s": 0.5}
    t.close(
        [attainable(i, 100, 10) for i in (5, 10, 25)],
        [50, 100, 100],
        "below 10 FLOPs per byte the pencil machine reaches intensity times bandwidth, and from "
        "there on its peak",
        "the roofline has a slope and a roof",
    )
    t.equal(
        [bound_by(500, 20, 0, 1, pencil), bound_by(500, 100, 0, 1, pencil)],
        ["compute", "memory"],
        "500 FLOPs take 5 s; 20 bytes take 2 s and 100 bytes 10 s",
        "compute-bound and memory-bound are told apart",
    )
    t.equal(
        bound_by(500, 20, 8, 1, pencil),
        "network",
        "8 bytes over a network of 1 byte/s take 8 s, longer than 5 s of arithmetic",
        "what waits for the network is network-bound",
    )
    t.equal(
        bound_by(500, 20, 0, 11, pencil),
        "calls",
        "11 calls of 0.5 s take 5.5 s, longer than arithmetic and memory",
        "many small calls are noticed",
    )
    t.close(
        step_seconds([(500, 20, 0, 4)], pencil),
        7.0,
        "5 s of arithmetic hide 2 s of memory, and 4 calls of 0.5 s come before them: 7 s",
        "one operation takes the largest of its times, and its calls",
    )
    t.close(
        step_seconds([(500, 20, 8, 0), (0, 70, 0, 0)], pencil),
        15.0,
        "8 s and then 7 s: the maximum is taken for each operation, since the second one starts "
        "when the first has ended",
        "operations follow one another",
    )


def check_3(t, dense_peak, network_seconds, rack_totals, send_seconds):
    """37.3 Read the data sheet"""
    t.close(
        [dense_peak(1_979e12, True), dense_peak(312e12, False)],
        [989.5e12, 312e12],
        "with sparsity a data sheet prints twice the dense peak; 312 TFLOP/s of an A100 are dense",
        "the dense peak is half of the sparse one",
    )
    t.close(
        [send_seconds(9e9, 900e9, True), send_seconds(9e9, 450e9, False)],
        [0.02, 0.02],
        "900 GB/s in both directions are 450 GB/s in the one that is used: 9 GB take 20 ms",
        "a link sends with half of what both directions have",
    )
    t.close(
        network_seconds(9e9, 400),
        0.18,
        "400 gigabits are 50 gigabytes, so 9 GB take 180 ms",
        "gigabits are turned into bytes",
    )
    rack = {"sparse_flop_per_s": 5e15, "memory_bytes": 186e9}
    rack |= {"memory_bytes_per_s": 8e12, "link_bytes_per_s": 900e9}
    found = rack_totals(rack, 72)
    t.close(
        found["pflop_per_s"],
        180.0,
        "72 GPUs with 5 PFLOP/s in sparse bf16 have 180 PFLOP/s in dense bf16",
        "the rack has 180 PFLOP/s",
    )
    t.close(
        [found["memory_tb"], found["memory_tb_per_s"]],
        [13.392, 576.0],
        "72 times 186 GB are 13.4 TB, and 72 times 8 TB/s are 576 TB/s",
        "memory and its bandwidth add up over the GPUs",
    )
    t.close(
        found["link_tb_per_s"],
        129.6,
        "900 GB/s in each of two directions, 72 times, are the 130 TB/s of the brochure",
        "the brochure's 130 TB/s count both directions",
    )


def check_4(t, moved_fused, moved_line_by_line, step_gain):
    """37.4 What would fusion buy?"""
    gate = [(["gate"], "s"), (["gate", "s"], "a"), (["a", "up"], "y")]
    square = [(["x", "x"], "x2"), (["x2"], "y")]
    t.equal(
        moved_line_by_line(gate),
        8,
        "the calls of the gate read 1, 2 and 2 arrays and write one each: 8",
        "the gate moves 8 arrays line by line",
    )
    t.equal(
        moved_line_by_line(square),
        4,
        "x times x reads x once: 2 arrays moved, and 2 by the second call",
        "an array that is read twice by one call is moved once",
    )
    t.equal(
        moved_fused(gate, ["y"]),
        3,
        "one loop reads gate and up and writes y: 3, since s and a stay in the processor",
        "fused, the gate moves 3 arrays",
    )
    t.equal(
        moved_fused(gate, ["y", "s"]),
        4,
        "if backward wants s, the loop has to write it as well",
        "what is wanted later has to be written",
    )
    t.close(
        step_gain(0, 8, 8, 3),
        8 / 3,
        "where everything is moving, 3 arrays in place of 8 are 2.67 times as fast",
        "without products the gain is that of the arrays",
    )
    t.close(
        step_gain(8, 8, 8, 3),
        16 / 11,
        "8 s of products stay, and 8 s of moving become 3 s: 16 s become 11",
        "products limit the gain",
    )


def check_5(t, best_users, most_users, token_seconds, what_helps):
    """37.5 Turn the batch"""
    small = {"weight_bytes": 100, "flop": 20, "cache_bytes": 1}
    card = {"peak": 40, "bandwidth": 10, "memory": 160}
    t.close(
        token_seconds(small, card, 3, 5),
        11.5,
        "three users: 1.5 s of arithmetic hide behind 10 s of reading the weights, and caches of "
        "15 bytes take 1.5 s more",
        "three users take 11.5 s",
    )
    t.close(
        token_seconds(small, card, 30, 1),
        18.0,
        "30 users need 15 s of arithmetic, more than the 10 s of reading the weights, and 3 s for "
        "their caches",
        "many users are bound by arithmetic",
    )
    t.equal(
        [most_users(small, card, 5), most_users(small, card, 7)],
        [12, 8],
        "60 bytes are free: 12 caches of 5 bytes, or 8 whole ones of 7",
        "as many caches fit as there is memory beside the weights",
    )
    t.equal(
        most_users(small, {"peak": 40, "bandwidth": 10, "memory": 99}, 1),
        0,
        "where the weights do not fit, no user does",
        "a GPU that is too small serves nobody",
    )
    t.equal(
        best_users(small, card, 5, 13),
        6,
        "with 5 tokens of cache each user adds 0.5 s to 10 s, so within 13 s six users are served",
        "patience limits the users",
    )
    t.equal(
        [best_users(small, card, 5, 1e9), best_users(small, card, 5, 10)],
        [12, None],
        "with all the time of the world as many as fit are best, and in 10 s nobody is served",
        "memory limits the users, or nobody is served",
    )
    t.equal(
        sorted(what_helps()),
        ["bandwidth", "memory"],
        "double each of the three and look: the multipliers wait in any case, a faster memory "
        "reads the same bytes in less time, and more memory shares the weights among more users",
        "bandwidth and memory help, and the peak does not",
    )
