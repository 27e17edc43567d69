"""Checks of exercises 38: Orchestration."""


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


def check_3(t, start_now):
    """38.3 Who may overtake"""
    # The queue of the chapter at hour 1.5: A has five of eight nodes until 4, C two until 3.
    running = [(4, 5), (3, 2)]
    queue = [("B", 8, 3), ("D", 1, 6), ("E", 1, 2)]
    answer = start_now(1.5, 1, running, queue)
    t(isinstance(answer, list | tuple), "return a list of names", "a list of names")
    t(
        list(answer) != [],
        "nobody overtakes: E has a node, and is gone at 3.5, before B can start at 4",
        "who ends in time may overtake",
    )
    t(
        "D" not in answer,
        "D fits now, but it would still have its node at 4, when B needs all eight",
        "who is in the way at S waits",
    )
    t.equal(answer, ["E"], "E overtakes B and D: it ends at 3.5", "E overtakes")
    t.equal(
        start_now(1.5, 1, running, [("B", 8, 3), ("E", 1, 2.5)]),
        ["E"],
        "a job that ends exactly at S is in nobody's way",
        "who ends exactly at S may overtake",
    )
    t.equal(
        start_now(0, 4, [], [("a", 3, 2), ("b", 4, 1), ("c", 1, 3), ("d", 1, 2)]),
        ["a", "d"],
        "a starts, and from then on it runs until 2: b can start at 2, so d may overtake and c may "
        "not",
        "who has just started runs, too",
    )
    more = start_now(0, 2, [(10, 3)], [("b", 3, 5), ("c", 1, 50), ("d", 1, 50)])
    t(
        "c" in more,
        "at 10 there are five nodes and b takes three: two are left over, and c may keep one of "
        "them for as long as it likes",
        "nodes that are left over at S may be used",
    )
    t.equal(more, ["c", "d"], "two nodes are left over at 10: c and d", "two are left over")
    t.equal(
        start_now(0, 3, [(10, 2)], [("b", 4, 5), ("c", 1, 50), ("d", 1, 50), ("e", 1, 9)]),
        ["c", "e"],
        "one node is left over at 10, and c takes it: d, too, would delay b. e ends at 9",
        "a node is left over once",
    )
    t.equal(
        [start_now(5, 6, [], [("a", 2, 1), ("b", 4, 1)]), start_now(5, 2, [(9, 1)], [])],
        [["a", "b"], []],
        "if all fit, all start; of an empty queue nobody does",
        "all fit, and nobody is there",
    )


def check_4(t, run_through):
    """38.4 Elastic restart"""
    calm = run_through(10, 4, 2, [])
    t(
        isinstance(calm, list | tuple) and len(calm) == 3,
        "return three numbers: the end, hours lost, hours of restarts",
        "three numbers",
    )
    t(
        calm[2] != 2,
        "the first start is no restart: it takes no time here",
        "the job begins at 0 without a restart",
    )
    t.equal(calm, (10, 0, 0), "without a failure ten hours of work take ten hours", "no failure")
    once = run_through(10, 4, 2, [7])
    t(
        once != (19, 7, 2),
        "you began from zero: at 7 hours of work the checkpoint of 4 hours was there",
        "the job goes on from its checkpoint",
    )
    t(
        once != (12, 0, 2),
        "you lost nothing: what was done since the checkpoint at 4 has to be done again",
        "work since the checkpoint is lost",
    )
    t.equal(once, (15, 3, 2), "3 hours are lost, 2 go into the restart: 10 + 3 + 2", "one failure")
    t(
        run_through(10, 4, 2, [7, 14]) != (17, 3, 4),
        "you counted checkpoints by the clock: at 14 the job has worked 4 + 5 hours, 8 are saved "
        "and 1 is lost",
        "checkpoints are counted in work",
    )
    t.equal(
        run_through(10, 4, 2, [7, 14]),
        (18, 4, 4),
        "at 7 three hours are lost; it works from 9 on, at 14 it has 9 hours, of which 1 is lost",
        "two failures",
    )
    t(
        run_through(10, 4, 2, [7, 8])[2] != 4,
        "the first restart was cut off after an hour: it took 1 hour, and the second one 2",
        "a restart that fails takes only as long as it lasted",
    )
    t.equal(
        run_through(10, 4, 2, [7, 8]),
        (16, 3, 3),
        "at 8 the restart begins anew, and the job works from 10 on; nothing more is lost",
        "a failure during a restart",
    )
    t.equal(
        [run_through(10, 4, 2, [10, 11]), run_through(10, 20, 2, [3, 30])],
        [(10, 0, 0), (15, 3, 2)],
        "what fails when the work is done, or later, changes nothing",
        "failures after the end",
    )
    t.equal(
        [run_through(100, every, 1, [15, 40, 41, 77]) for every in (1, 10, 100)],
        [(104, 0, 4), (118, 14, 4), (178, 74, 4)],
        "with a checkpoint every hour nothing is lost, every ten hours 14, and never 74",
        "what not saving costs: 74 hours",
    )


def check_5(t, read_job):
    """38.5 Read an sbatch"""

    def script(nodes, gpus, time):
        """Return a script with a misleading comment after its first command."""
        return (
            f"#!/bin/bash\n#SBATCH --job-name=run-7\n#SBATCH --nodes={nodes}\n"
            f"#SBATCH --ntasks-per-node=1\n# where all meet\n\n#SBATCH --gpus-per-node={gpus}\n"
            f"#SBATCH --time={time}\n#SBATCH --requeue\n\nset -euo pipefail\n"
            '#SBATCH --nodes=999\n#SBATCH --time=9-00:00:00\nsrun torchrun "$@"\n'
        )

    answer = read_job(script(4, 8, "0-12:00:00"), {"dp": 2, "pp": 2, "tp": 8})
    t(
        isinstance(answer, list | tuple) and len(answer) == 3,
        "return three numbers: ranks, seconds, nodes of a group",
        "three numbers",
    )
    t(
        answer[0] != 4,
        "you counted one process on each node: the one task is torchrun, and it starts a process "
        "for each of the 8 GPUs",
        "torchrun starts a process for each GPU",
    )
    t(
        answer[0] != 999 * 8 and answer[1] != 9 * 86_400,
        "you read on after the first command: from there on #SBATCH is a comment",
        "#SBATCH counts up to the first command",
    )
    t.equal(
        answer,
        (32, 43_200, 1),
        "4 nodes with 8 GPUs are 32 ranks, twelve hours are 43,200 seconds, and ranks 0 to 7 are "
        "one group and one node",
        "32 ranks for 43,200 seconds, tp inside a node",
    )
    t(
        read_job(script(4, 8, "2-01:02:03"), {"dp": 4, "tp": 8})[1] != 3_723,
        "you left the days out: 2-01:02:03 is two days, an hour, two minutes and three seconds",
        "the days count",
    )
    t.equal(
        read_job(script(4, 8, "2-01:02:03"), {"dp": 4, "tp": 8})[1],
        2 * 86_400 + 3_723,
        "2-01:02:03 is two days, an hour, two minutes and three seconds",
        "a time in seconds",
    )
    first = read_job(script(4, 8, "0-01:00:00"), {"tp": 4, "pp": 2, "dp": 4})[2]
    t(
        first != 1,
        "you took tp for the last axis: here it is the first, and ranks 0, 8, 16 and 24 are one "
        "group, on four nodes",
        "the order of the axes decides",
    )
    t.equal(first, 4, "ranks 0, 8, 16 and 24 are one group, on four nodes", "tp first: four nodes")
    t.equal(
        [
            read_job(script(2, 8, "0-01:00:00"), {"dp": 1, "tp": 16})[2],
            read_job(script(3, 8, "0-01:00:00"), {"dp": 4, "tp": 6})[2],
            read_job(script(2, 4, "0-01:00:00"), {"pp": 2, "tp": 2, "cp": 2})[2],
            read_job(script(4, 2, "0-01:00:00"), {"dp": 2, "tp": 2, "cp": 2})[2],
        ],
        [2, 2, 1, 2],
        "16 ranks need two nodes of 8; of groups of six, the second is ranks 6 to 11 and lies on "
        "two nodes; with cp behind it, tp joins ranks 0 and 2, on one node of four, but on two "
        "nodes of two",
        "groups that cross, and groups that do not",
    )
