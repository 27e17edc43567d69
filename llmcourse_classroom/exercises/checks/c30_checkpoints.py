"""Checks of exercises 30: Checkpoints you can trust."""

import torch


def check_1(t, observed_save):
    """30.1 The old file or the new one"""
    OLD, NEW = b"the old state", b"the new state, whole"
    PARTS = [b"the new ", b"state, ", b"whole"]
    seen = observed_save(OLD, PARTS)
    renames = [event for event in seen["log"] if event[0] == "rename"]
    t(
        seen["left"].get("state.ckpt") != OLD,
        "after the save, the name still means the old state: the last step is to rename",
        "after the save, the name means another file",
    )
    t(
        None not in seen["found"],
        "you took the old file away before the new one had its name: between the two there is no "
        "checkpoint. os.replace needs no free name",
        "the name is never without a file",
    )
    t(
        len(renames) > 0 or seen["left"].get("state.ckpt") != NEW,
        "you wrote into the file itself: from its first byte to its last there is neither the old "
        "state nor the new one. Write to another file, and rename it",
        "the file itself is never open for writing",
    )
    t(
        {*seen["found"]} <= {OLD, NEW},
        "for a moment the name meant an empty file or a part of the new state",
        "under the name there is the old state or the new one",
    )
    t(
        all(event[1] != "elsewhere" for event in renames),
        "your temporary file is in another folder, which may be on another disk: then the rename "
        "fails, or becomes a copy, which a crash can cut in two",
        "the temporary file is in the same folder",
    )
    before = seen["log"][: seen["log"].index(renames[0])] if renames else []
    synced = [event for event in before if event[0] == "fsync" and event[1] != "folder"]
    t(
        len(synced) > 0,
        "there was no fsync of your file before it got its name: the rename may reach the disk "
        "before the content does, and after a power failure the name means an empty file",
        "the file is brought to disk before the rename",
    )
    if synced:
        t(
            any(event[2] == NEW for event in synced),
            "when you called fsync, not all bytes were in the file: some stood in the memory of "
            "Python's file object, which file.flush() empties. fsync cannot know of them",
            "at fsync, the file is complete",
        )
    t(
        ["fsync", "folder"] in [list(event[:2]) for event in seen["log"][len(before) :]],
        "you did not bring the folder to disk after the rename: the new name is content of the "
        "folder. A power failure after your return may bring the old file back",
        "after the rename, the folder is brought to disk",
    )
    t.equal(
        [seen["raised"], seen["left"]],
        ["nothing", {"state.ckpt": NEW}],
        "after a save the folder holds the new state and nothing else",
        "the folder holds the new state and nothing else",
    )
    for fails, what in {
        "part": "the disk was full",
        "fsync": "fsync failed",
        "rename": "the rename failed",
        "stop": "someone pressed the stop button",
    }.items():
        seen = observed_save(OLD, PARTS, fails)
        if fails == "fsync" and not synced:
            continue
        t(
            seen["raised"] == "the error",
            f"{what}, and your function returned as if all were well: the caller would remove "
            "older checkpoints. Pass the error on"
            + "; shutil.move makes a copy instead, which can be cut in two"
            * (fails == "rename"),
            f"{what}: the caller is told",
        )
        t(
            seen["left"].get("state.ckpt") == OLD,
            f"{what}, and the old state is not there as it was",
            f"{what}: the old state is there",
        )
        t(
            len(seen["left"]) == 1,
            f"{what}, and your temporary file was left"
            + (
                ": KeyboardInterrupt is no OSError, and not even an Exception"
                if fails == "stop"
                else ": remove it, or every failure takes some more of the disk"
            ),
            f"{what}: no temporary file is left",
        )
    half = observed_save(OLD, PARTS)["half"]
    t.equal(
        observed_save(OLD, PARTS, "", half)["left"].get("state.ckpt"),
        NEW,
        "an earlier save was killed and left its temporary file: yours went on writing behind what "
        "was in it",
        "what a killed save left behind does no harm",
    )
    t.equal(
        observed_save(None, PARTS)["left"],
        {"state.ckpt": NEW},
        "the first save of all finds no old file",
        "the first save works as well",
    )


def check_2(t, missing_parts):
    """30.2 What did it forget?"""
    dice = torch.Generator().manual_seed(30)
    saved = {
        "weights": torch.randn(3, 2, generator=dice, dtype=torch.float64),
        "mean": torch.randn(3, 2, generator=dice, dtype=torch.float64),
        "mean_square": 2 + torch.rand(3, 2, generator=dice, dtype=torch.float64),
        "updates": 4,
        "steps": 4,
        "position": 4,
        "generator": dice.get_state(),
    }
    usual = {
        "batch": 4,
        "draws": torch.rand(4, generator=dice),
        "rate": 0.005,
        "before": saved["weights"],
        "gradient": torch.randn(3, 2, generator=dice, dtype=torch.float64),
    }

    def step_without(*parts, **other):
        """Return what is seen of a step whose optimizer lacks some parts."""
        seen, g = usual | other, usual["gradient"]
        m, v = (saved[x] * (x not in parts) for x in ("mean", "mean_square"))
        n = saved["updates"] * ("updates" not in parts) + 1
        m, v = (0.9 * m + 0.1 * g) / (1 - 0.9**n), (0.95 * v + 0.05 * g**2) / (1 - 0.95**n)
        return seen | {"after": seen["before"] - seen["rate"] * m / (v.sqrt() + 1e-8)}

    answer = missing_parts(saved, step_without())
    t(
        isinstance(answer, list | tuple),
        "return a list of names; if nothing is missing, an empty one",
        "a list of names",
    )
    t(
        "weights" not in answer,
        "nothing is missing here, and you miss the weights: those after the step differ from what "
        "was saved because it was a step. Compare those before it",
        "the weights before the step are compared",
    )
    t(
        list(missing_parts(saved, step_without("mean"))) != [],
        "the mean is missing here, and you find nothing. If no combination gives the weights after "
        "the step: n counts this step as well, so that it is 5 after 4 updates",
        "a missing mean is found",
    )
    t.equal(
        answer,
        [],
        "nothing is missing here, and you miss something",
        "a complete checkpoint lacks nothing",
    )
    t.equal(
        missing_parts(saved, step_without("mean")),
        ["mean"],
        "the mean alone is missing here: the three parts of the optimizer can be told apart, "
        "because each changes the step in its own way",
        "the mean alone",
    )
    t.equal(
        [missing_parts(saved, step_without(part)) for part in ("mean_square", "updates")],
        [["mean_square"], ["updates"]],
        "first the mean square alone is missing, then the number of updates alone: a step with "
        "the right means and n = 1 divides by another bias correction",
        "the mean square alone, the number of updates alone",
    )
    moved = usual["before"] + 0.25
    t.equal(
        missing_parts(saved, step_without(before=moved)),
        ["weights"],
        "the weights alone are missing here: compare those before the step, and let the step begin "
        "from the weights that it had. From others, no combination gives the weights after it",
        "other weights are not blamed on the optimizer",
    )
    t.equal(
        missing_parts(saved, step_without("mean", before=moved)),
        ["weights", "mean"],
        "the weights and the mean are missing: make the step from the weights that it had",
        "weights and mean",
    )
    t.equal(
        missing_parts(saved, step_without("mean_square", rate=0.001)),
        ["mean_square", "steps"],
        "the mean square and the number of steps are missing: the rate was 0.001, that of the "
        "first step, in place of 0.005. Make the step with the rate that it had",
        "another learning rate is not blamed on the optimizer",
    )
    t.equal(
        [missing_parts(saved, step_without(batch=batch)) for batch in (0, 6)],
        [["position"], ["position"]],
        "the position is missing, once with batch 0 and once with batch 6: a loader that had read "
        "two batches ahead and saved this as its position loses them",
        "the position may be lost forwards as well",
    )
    again = torch.rand(4, generator=torch.Generator().manual_seed(30))
    t.equal(
        missing_parts(saved, step_without("mean", "mean_square", "updates", draws=again)),
        ["mean", "mean_square", "updates", "generator"],
        "the whole optimizer is missing, and the generator, which began again from its seed",
        "the whole optimizer and the generator",
    )


def check_3(t, read_plan):
    """30.3 Four wrote, two read"""
    four = [[("w", 0, 3)], [("w", 3, 7)], [("w", 7, 8)], [("w", 8, 10)]]
    plans = read_plan(four, {"w": 10}, 2)
    t(
        isinstance(plans, list | tuple) and len(plans) == 2,
        "return a list with a list of reads for each of the two readers",
        "a list for each reader",
    )
    first, second = ([tuple(read) for read in plan] for plan in plans)
    t(
        first != [("w", 0, 0, 3), ("w", 1, 0, 4)],
        "your first reader takes files 0 and 1 whole: that fits only if all files are of equal "
        "length. Of file 1 it needs two of four entries",
        "not whole files, but ranges",
    )
    t(
        ("w", 1, 3, 5) not in first,
        "3 to 5 are entries of the tensor: file 1 holds four entries, at the places 0 to 3, and "
        "begins with entry 3",
        "places are counted in the file",
    )
    t(
        all(start < stop for _, _, start, stop in first + second),
        "a read of yours is empty, or ends before it begins: where ranges do not overlap, there is "
        "nothing to read",
        "no read is empty",
    )
    t.equal(
        [first, second],
        [[("w", 0, 0, 3), ("w", 1, 0, 2)], [("w", 1, 2, 4), ("w", 2, 0, 1), ("w", 3, 0, 2)]],
        "the first reader keeps entries 0 to 4: all of file 0 and places 0 and 1 of file 1. The "
        "second keeps 5 to 9: places 2 and 3 of file 1, and files 2 and 3",
        "two readers cut file 1 in the middle",
    )
    t.equal(
        read_plan([[("w", 0, 11)]], {"w": 11}, 3),
        [[("w", 0, 0, 3)], [("w", 0, 3, 7)], [("w", 0, 7, 11)]],
        "three readers of 11 entries begin at 0, 11 // 3 = 3 and 22 // 3 = 7, by the rule above: "
        "that is neither 3 for each and the rest for the last, nor 4 for each but the last",
        "11 entries on three readers are 3, 4 and 4",
    )
    several = [[("v", 2, 5), ("w", 0, 4)], [("w", 4, 6), ("w", 6, 6), ("v", 0, 2)]]
    t.equal(
        read_plan(several, {"w": 6, "v": 5}, 1),
        [[("w", 0, 3, 7), ("w", 1, 0, 2), ("v", 1, 2, 4), ("v", 0, 0, 3)]],
        "in file 0, w stands behind three entries of v, so it begins at place 3. And entries 0 and "
        "1 of v come first, though they are in the other file",
        "a piece begins where the one before it in the file ends",
    )
    t.equal(
        read_plan([[("w", 0, 3)], [("w", 2, 4)], [("w", 5, 6)]], {"w": 6}, 2),
        None,
        "these files hold 3 + 2 + 1 = 6 entries, and yet it is no checkpoint: entry 2 is there "
        "twice, and entry 4 is missing. Return None",
        "a sum of 6 is not yet 6 different entries",
    )
    t.equal(
        [
            read_plan([[("w", 1, 6)]], {"w": 6}, 2),
            read_plan([[("w", 0, 5)]], {"w": 6}, 2),
            read_plan([[("w", 0, 6)], []], {"w": 6, "v": 1}, 2),
        ],
        [None] * 3,
        "the first entry is missing, then the last one, then all of a tensor: return None",
        "a beginning, an end or a whole tensor that is missing is noticed",
    )
    t.equal(
        read_plan([[], [("w", 0, 1)]], {"w": 1, "none": 0}, 3),
        [[], [], [("w", 1, 0, 1)]],
        "one entry for three readers goes to the last, by the rule for the ranges; the others have "
        "nothing to read, and a tensor without entries is whole",
        "readers, files and tensors that have nothing",
    )


def check_4(t, observed_saves):
    """30.4 Saving in the background"""
    seen = observed_saves(1, [])
    t(
        not seen["in_training"],
        "you called write without a thread: training stands still as long as the disk is busy",
        "a thread does the writing",
    )
    t(
        not seen["stood_still"],
        "you started a thread and waited for it at once: training stands still as long as without "
        "one. The function that you return is to wait",
        "training does not wait for its own save",
    )
    t(
        seen["function"],
        "return a function, and not a thread or what a function gives: training calls it without "
        "arguments when it wants to wait",
        "a function is returned",
    )
    written = seen["written"]
    t(
        seen["ended"] == 1,
        "the function that you returned came back before the write had ended: it has to wait",
        "finish waits for the write",
    )
    t(
        written[0] != [2, [2.0, 2.0], [2.0, 2.0], [1.0, 2.0]],
        "the state was saved after step 1, and all that was written is of step 2: the copy has to "
        "be made before begin_save returns, and not when the thread gets its turn",
        "the copy is made before training goes on",
    )
    t(
        written[0][0] != 1 or written[0][1] == [1.0, 1.0],
        "the step in the file is 1, and the weights are those of step 2: you copied dictionaries, "
        "and the tensors in them are still those that training changes",
        "weights and step belong together",
    )
    t.equal(
        written[0],
        [1, [1.0, 1.0], [1.0, 1.0], [1.0]],
        "a part of the file is of step 2: step, weights, two means in a list and the list of "
        "losses all have to be those of step 1",
        "everything written is of step 1",
    )
    seen = observed_saves(3, [])
    t.equal(
        seen["waited"],
        [False, True, True],
        "you did not call `earlier`: with a slow disk, writes pile up, each with a copy of the "
        "whole state in memory",
        "a save waits for the one before",
    )
    t.equal(
        [content[0] for content in seen["written"]],
        [1, 2, 3],
        "three saves after steps 1, 2 and 3: each has to be written, in this order",
        "three saves, in order",
    )
    raised = observed_saves(1, [0])["raised"]
    t(
        raised != [],
        "the disk was full, and nobody was told: an error in a thread ends the thread and nothing "
        "else. Keep it, and raise it where someone waits",
        "an error of the thread is not lost",
    )
    t.equal(
        raised,
        [["finish", "write 0 failed"]],
        "the function that you return raises the error of its write, and begin_save does not",
        "the error is raised by the one who waits",
    )
    seen = observed_saves(3, [0])
    t.equal(
        [seen["raised"], [content[0] for content in seen["written"]]],
        [[["begin_save", "write 0 failed"]], [1, 3]],
        "the first write failed, so the second call raises its error and begins nothing; the third "
        "call, with `earlier` None again, begins anew",
        "the next begin_save raises the error of the one before",
    )


def check_5(t, observed_resume):
    """30.5 Save and resume"""
    seen = observed_resume(30, 7, 6)
    BATCH, DRAWS, RATE, BEFORE, AFTER = range(5)
    right, first, second = ([tuple(step) for step in seen[x]] for x in ("right", "first", "second"))
    t(
        seen["plain"],
        "torch.load does not read what you saved: it holds an object. Save the state of the "
        "generator, and nothing but tensors, numbers and lists",
        "tensors and plain data",
    )
    t(
        first[0][BATCH] != 9,
        "seven batches were used, and the resumed run goes on with number 9: numbers 7 and 8 had "
        "been read ahead, and no step will ever see them",
        "what was read ahead is not lost",
    )
    t(
        first[0][BATCH] != 1,
        "the resumed run uses a batch that it had read ahead itself, before it was resumed",
        "nothing is left of what the other run had read",
    )
    t.equal(
        [step[BATCH] for step in first],
        [7, 8, 9, 10, 11, 12],
        "seven batches were used, numbers 0 to 6: the steps that follow use 7, 8, 9 and so on",
        "the right batches",
    )
    t.equal(
        [step[DRAWS] for step in first],
        [step[DRAWS] for step in right],
        "the resumed run draws other random numbers: the state of the generator has to be saved, "
        "and put back",
        "the right random numbers",
    )
    t(
        first[0][BEFORE] != right[-1][AFTER],
        "the resumed run begins with the weights of six steps later: training went on after "
        "save_run, and what you saved changed with it. Save copies",
        "what is saved does not change",
    )
    t.equal(
        first[0][BEFORE],
        right[0][BEFORE],
        "the resumed run begins with other weights than were saved",
        "the right weights",
    )
    t.equal(
        [step[RATE] for step in first],
        [step[RATE] for step in right],
        "the learning rate is another one: it follows from the number of steps",
        "the right learning rate",
    )
    t.equal(
        first[0][AFTER],
        right[0][AFTER],
        "weights, batch, draws and rate are right, and the weights after the step are not: the "
        "two means and `updates` belong to the state, and a bad batch made no update",
        "the first step is right",
    )
    t.equal(first, right, "a later step is another one", "six equal steps, to the last bit")
    t.equal(
        second,
        right,
        "a second run that is resumed from the same dictionary is another one: the first has "
        "changed it. Put copies into a run",
        "what was saved can be used again",
    )
