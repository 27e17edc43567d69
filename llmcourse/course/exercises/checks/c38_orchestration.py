"""Checks of 38_orchestration, written by tools.exercises from its solutions."""


def check_1(t, group_of):
    """38.1 Where a rank stands, and with whom"""
    mesh = {"dp": 2, "pp": 3, "tp": 4}
    found = {axis: group_of(18, mesh, axis) for axis in mesh}
    t(
        all(
            isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[1], list | tuple)
            for pair in found.values()
        ),
        "return two things: the coordinate, and the list of the ranks in the group",
        "a coordinate and a group",
    )
    place = {axis: int(pair[0]) for axis, pair in found.items()}
    group = {axis: [int(r) for r in pair[1]] for axis, pair in found.items()}
    t(
        place != {"dp": 0, "pp": 0, "tp": 3},
        "you let the first axis change fastest: rank 1 is the neighbour of rank 0 on the last axis",
        "the last axis changes fastest",
    )
    t(
        place["pp"] < 3,
        "rank 18 cannot stand at pp 4, where there are three stages: the quotient counts on over "
        "the axes before this one, so take it modulo the size",
        "a coordinate is below the size of its axis",
    )
    t.equal(
        place,
        {"dp": 1, "pp": 1, "tp": 2},
        "18 = 1 x 12 + 1 x 4 + 2, so rank 18 stands at dp 1, pp 1, tp 2: two neighbours on an axis "
        "are as far apart as the product of the sizes behind it, its own left out",
        "rank 18 stands at dp 1, pp 1, tp 2",
    )
    t(
        group["pp"] != [18, 19, 20],
        "your group along pp is a block of ranks in a row: that is so for the last axis only. "
        "Neighbours on pp are 4 apart",
        "ranks of a group need not be in a row",
    )
    t(
        group["pp"] != [0, 4, 8],
        "your group along pp is the one of rank 0: rank 18 is not in it",
        "a rank is in its own group",
    )
    t(
        group["pp"] != [14, 22],
        "you left the rank itself out: it takes part in the collective, too",
        "the rank itself belongs to its group",
    )
    t(
        group["pp"] != [18, 22, 26],
        "you counted on from rank 18, up to a rank 26 that does not exist: begin at the rank of "
        "the group whose coordinate is 0",
        "the group begins at coordinate 0",
    )
    t(
        18 not in group["pp"] or len(group["pp"]) <= 3,
        "you gathered the ranks that share the coordinate: a group is made of those that differ on "
        "this axis, and agree on all the others",
        "a group differs on its own axis alone",
    )
    t.equal(
        group,
        {"dp": [6, 18], "pp": [14, 18, 22], "tp": [16, 17, 18, 19]},
        "rank 18 sums gradients with rank 6, is in one pipeline with 14 and 22, and shares layers "
        "with 16 to 19",
        "the three groups of rank 18",
    )
    # Llama 3 405B on 16,384 GPUs, in the order of the paper: replicas change last.
    llama = {"dp": 128, "pp": 16, "cp": 1, "tp": 8}
    t.equal(
        [group_of(16_383, llama, "cp"), group_of(1_000, llama, "dp")[1][:3]],
        [(0, [16_383]), [104, 232, 360]],
        "an axis of size 1 has the rank alone; on 16,384 GPUs the replicas are 128 ranks apart",
        "on 16,384 GPUs",
    )


def check_2(t, unmet):
    """38.2 Which layouts can run"""
    llama = {"layers": 126, "heads": 128, "kv_heads": 8}  # 405B
    job = {"gpus": 16_384, "gpus_per_server": 8, "sequence_length": 8_192, "batch_tokens": 2**24}
    long = job | {"sequence_length": 131_072}

    def words(sizes, what=job, model=llama):
        """Return the answer for sizes such as "128-1-16-8", in the order dp, cp, pp, tp."""
        numbers = map(int, sizes.split("-"))
        return unmet(dict(zip(("dp", "cp", "pp", "tp"), numbers, strict=True)), model, what)

    paper = words("128-1-16-8")
    t(isinstance(paper, list | tuple), "return a list of words", "a list of words")
    t(
        "layers" not in paper,
        "you want stages with equally many layers: Meta ran 126 layers on 16 stages, which does "
        "not divide, and gave the first and the last stage one layer fewer",
        "stages may differ in the number of layers",
    )
    t.equal(
        paper,
        [],
        "this layout did run: 16 sequences for each of 128 replicas, and a bubble of 15/16",
        "Llama 3 405B on 16,384 GPUs can run",
    )
    t(
        "ranks" not in words("8-16-16-8", long),
        "you left CP out of the product: 8 x 16 x 16 x 8 = 16,384",
        "all four axes count towards the ranks",
    )
    t(
        "bubble" not in words("8-16-16-8", long),
        "with CP 16 the 128 sequences of a batch are still shared out over DP alone, 16 for each "
        "of 8 replicas: the ranks of a context-parallel group work on the same sequences",
        "context parallelism does not divide the sequences of the batch",
    )
    t.equal(
        [words("8-16-16-8", long), words("4-16-16-8", long)],
        [[], ["ranks"]],
        "for sequences of 131,072 tokens the paper now says DP 8; its first version said DP 4, "
        "which makes 8,192 GPUs and not 16,384",
        "DP 4 was a misprint",
    )
    popular = job | {"batch_tokens": 2**22}
    t(
        words("512-1-4-8", popular) != [],
        "512 replicas share 512 sequences, so that each has one micro-batch, and m is 1: "
        "every stage would wait three quarters of the time. m is counted for a replica, not for "
        "the whole batch",
        "m is the number of micro-batches of one replica",
    )
    t.equal(
        [words("512-1-4-8", popular), words("1024-1-2-8", popular), words("96-1-16-8")],
        [["bubble"], ["batch"], ["ranks", "batch"]],
        "512 replicas and 4 M tokens leave one sequence each, and a bubble of 3/1; 1,024 replicas "
        "leave half of them without any; and 2,048 sequences are not to be shared out over 96. "
        "Where the batch is not met, the bubble is not looked at",
        "512 replicas and 4 M tokens: one sequence each, a bubble of 300 %",
    )
    t(
        "heads" in words("64-1-16-16"),
        "you shared out the heads of queries: there are 128 of them, but only 8 of keys and "
        "values, and 16 ranks would have half a head each",
        "key/value heads are the limit",
    )
    t.equal(
        words("64-1-16-16"),
        ["server", "heads"],
        "TP 16 is met neither by servers of 8 GPUs nor by 8 key/value heads: list both",
        "TP 16: two demands are not met",
    )
    small = {"gpus": 48, "gpus_per_server": 8, "sequence_length": 48, "batch_tokens": 48 * 16}
    twelve = {"layers": 12, "heads": 24, "kv_heads": 12}
    t(
        "server" in words("4-1-2-6", small, twelve),
        "a group of 6 is smaller than a server of 8, but the second group is ranks 6 to 11, and "
        "lies across two servers",
        "groups have to fill a server evenly",
    )
    t(
        "sequence" in words("1-16-3-1", small, twelve),
        "48 tokens on 16 ranks: each of them holds two chunks, and 32 chunks of 48 tokens are not "
        "equally long",
        "two chunks of the sequence for each rank",
    )
    t.equal(
        [
            words("4-1-3-4", small, twelve),
            words("4-1-6-2", small, twelve),
            words("8-3-1-2", small, twelve),
            words("1-16-3-1", small, twelve),
            words("3-1-16-1", small, twelve),
            words("16-1-2-2", small, twelve),
        ],
        [[], ["bubble"], [], ["sequence"], ["layers", "batch"], ["ranks"]],
        "48 GPUs, 12 layers, 12 key/value heads, 16 sequences of 48 tokens. In the order dp, cp, "
        "pp, tp: 4-1-3-4 can run, 4-1-6-2 has a bubble of 5/4, 8-3-1-2 can run, 1-16-3-1 cannot "
        "cut its sequence, 3-1-16-1 has too many stages and a rest, 16-1-2-2 has a bubble of 1/1, "
        "which is allowed, and too many ranks",
        "six small layouts",
    )


def check_3(t, run_in_steps):
    """38.3 From micro-batches to optimizer steps"""
    mesh = {"dp": 3, "cp": 5, "pp": 7, "tp": 11}
    answer = run_in_steps(mesh, 2, [(13, 100, 7_800 * 4)])
    t(
        isinstance(answer, list | tuple) and [len(pair) for pair in answer] == [2],
        "return a list with a pair for each period: tokens of a global batch, and steps",
        "a pair for each period",
    )
    batch = int(answer[0][0])
    t(
        batch != 3 * 5 * 7 * 11 * 13 * 2 * 100,
        "you counted every rank as a replica: the 5 x 7 x 11 ranks of a replica work on the same "
        "sequences",
        "replicas count, not ranks",
    )
    t(
        batch != 3 * 5 * 13 * 2 * 100,
        "you counted the ranks that share a sequence as replicas: each has a piece of the same "
        "sequence, and the pieces together are one",
        "context parallelism adds no sequence",
    )
    t(
        batch != 3 * 2 * 100,
        "you left out the accumulation: weights change once after 13 micro-batches, and so all 13 "
        "belong to the batch",
        "all micro-batches of a step belong to the batch",
    )
    t(
        batch != 13 * 2 * 100,
        "this is the batch of one replica: the gradients of all three are summed before weights "
        "change",
        "all replicas belong to the batch",
    )
    t(
        batch != 3 * 13 * 2,
        "these are sequences: the batch is asked for in tokens",
        "the batch is in tokens",
    )
    t.equal(
        answer,
        [(7_800, 4)],
        "3 replicas x 13 micro-batches x 2 sequences x 100 tokens = 7,800 tokens, and 31,200 are "
        "four such batches",
        "3 x 13 x 2 x 100 = 7,800 tokens, four times",
    )
    t(
        [int(pair[1]) for pair in run_in_steps(mesh, 2, [(13, 100, 7_801)])] != [1],
        "you left out the last step: one token is over after 7,800, and it takes a step of its own",
        "a step that was begun counts",
    )
    # The batch of Llama 3 405B, in the ranges that its paper gives; on 128 replicas it could be
    # these micro-batches.
    llama = {"dp": 128, "cp": 1, "pp": 16, "tp": 8}
    ramp = [
        (8, 4_096, 252 * 10**6),
        (8, 8_192, 2_870 * 10**9 - 252 * 10**6),
        (16, 8_192, 15_600 * 10**9 - 2_870 * 10**9),
    ]
    t.equal(
        run_in_steps(llama, 1, ramp),
        [(2**22, 61), (2**23, 342_101), (2**24, 758_768)],
        "4 M tokens for 61 steps, 8 M for 342,101 and 16 M for 758,768; each period has its own "
        "tokens, counted from its own beginning",
        "Llama 3 405B: 1.1 million steps, not billions. What is counted in trillions are tokens",
    )
    t.equal(
        run_in_steps({"dp": 1, "cp": 2, "pp": 1, "tp": 1}, 1, [(1, 3, 10**17 + 1), (2, 3, 6)]),
        [(3, 33_333_333_333_333_334), (6, 1)],
        "one sequence of three tokens in a step; divide whole numbers, since a float has 16 digits",
        "small batches and many tokens",
    )


def check_4(t, fit_into_racks):
    """38.4 16,384 / 72"""
    # Racks of 10 GPUs with 7 in the last one, groups of 4: two groups in a rack, one in the last.
    answer = fit_into_racks(57, 10, 4, 1, 1)
    t(
        isinstance(answer, list | tuple) and len(answer) == 2,
        "return two numbers: replicas, and GPUs left over",
        "two numbers",
    )
    replicas, left = (int(number) for number in answer)
    t(
        replicas != 14,
        "57 // 4 = 14 tears groups apart: of a rack's 10 GPUs two are left, and the next rack's "
        "cannot join them",
        "groups are counted rack by rack",
    )
    t(
        replicas != 10,
        "you left out the last rack: it is not full, but 7 GPUs have room for a group of 4",
        "the last rack is used as far as it goes",
    )
    t(
        replicas != 12,
        "you counted the last rack as a full one: it has 7 GPUs, and not 10",
        "the last rack is not full",
    )
    t(
        left != 5 * 2,
        "you left out the GPUs that are over in the last rack",
        "what is over in the last rack counts",
    )
    t.equal(
        answer,
        (11, 13),
        "five racks with two groups each and one group in the last rack are 11 replicas of 4 GPUs; "
        "57 - 44 = 13 are left over",
        "57 GPUs in racks of 10: 11 groups of 4, and 13 GPUs left over",
    )
    t(
        int(fit_into_racks(57, 10, 4, 1, 3)[0]) != 0,
        "you want a whole replica in one rack: only the tensor-parallel group has to be, and "
        "stages may lie in different racks",
        "a replica may lie across racks",
    )
    t(
        int(fit_into_racks(57, 10, 4, 1, 3)[1]) != 13,
        "the groups that make no whole replica are left over, too: 11 groups are three replicas of "
        "three, and two groups have nothing to do",
        "groups without a replica are left over",
    )
    t.equal(
        [fit_into_racks(57, 10, 4, 1, 3), fit_into_racks(57, 10, 4, 2, 2)],
        [(3, 21), (2, 25)],
        "11 groups are three replicas of three groups, or two of 2 x 2",
        "11 groups: three replicas of three, or two of four",
    )
    t.equal(
        [
            fit_into_racks(16_384, rack, tp, 1, 16)
            for rack, tp in ((8, 8), (72, 8), (72, 16), (72, 72))
        ],
        [(128, 0), (128, 0), (56, 2_048), (14, 256)],
        "16,384 GPUs, 16 stages: TP 8 fits into racks of 72 as it does into servers of 8; TP 16 "
        "leaves 8 GPUs of each rack, in the end 2,048; TP 72 leaves 256",
        "16,384/72 does not divide, and TP 8 does not mind: 72 = 9 x 8",
    )
    t.equal(
        [fit_into_racks(100, 8, 16, 1, 1), fit_into_racks(0, 72, 8, 1, 1)],
        [(0, 100), (0, 0)],
        "a group that is larger than a rack fits nowhere; and without GPUs there is no replica",
        "no room for any group, and no GPU",
    )
