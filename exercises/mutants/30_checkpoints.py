"""Typical wrong answers to the exercises of chapter 30, and what the checks say to them."""


# %% 30.1 in_place
# says: you wrote into the file itself: from its first byte to its last there is neither the old
# state nor the new one. Write to another file, and rename it
def atomic_save(path, parts):
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def observed_save(old, parts, fails="", beside=None):
    return watch_save(atomic_save, old, parts, fails, beside or {})


# %% 30.1 old_one_removed_first
# says: you took the old file away before the new one had its name: between the two there is no
# checkpoint. os.replace needs no free name
def atomic_save(path, parts):
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        path.unlink(missing_ok=True)
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def observed_save(old, parts, fails="", beside=None):
    return watch_save(atomic_save, old, parts, fails, beside or {})


# %% 30.1 in_the_folder_for_temporary_files
# says: your temporary file is in another folder, which may be on another disk: then the rename
# fails, or becomes a copy, which a crash can cut in two
def atomic_save(path, parts):
    temporary = Path(tempfile.gettempdir()) / f"{path.parent.name}.tmp"
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def observed_save(old, parts, fails="", beside=None):
    return watch_save(atomic_save, old, parts, fails, beside or {})


# %% 30.1 fsync_without_flush
# says: when you called fsync, not all bytes were in the file: some stood in the memory of
# Python's file object, which file.flush() empties. fsync cannot know of them
def atomic_save(path, parts):
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            pass
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def observed_save(old, parts, fails="", beside=None):
    return watch_save(atomic_save, old, parts, fails, beside or {})


# %% 30.1 folder_left_out
# says: you did not bring the folder to disk after the rename: the new name is content of the
# folder. A power failure after your return may bring the old file back
def atomic_save(path, parts):
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def observed_save(old, parts, fails="", beside=None):
    return watch_save(atomic_save, old, parts, fails, beside or {})


# %% 30.1 stop_button_forgotten
# says: someone pressed the stop button, and your temporary file was left: KeyboardInterrupt is no
# OSError, and not even an Exception
def atomic_save(path, parts):
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def observed_save(old, parts, fails="", beside=None):
    return watch_save(atomic_save, old, parts, fails, beside or {})


# %% 30.2 optimizer_as_one
# says: the mean alone is missing here: the three parts of the optimizer can be told apart,
# because each changes the step in its own way
import torch


def missing_parts(saved, seen):
    generator = torch.Generator()
    generator.set_state(saved["generator"])
    missing = {
        "weights": not torch.equal(seen["before"], saved["weights"]),
        "mean": False,
        "mean_square": False,
        "updates": False,
        "steps": abs(seen["rate"] - rate_after(saved["steps"])) > 1e-12,
        "position": seen["batch"] != saved["position"],
        "generator": not torch.equal(seen["draws"], torch.rand(4, generator=generator)),
    }

    g, (beta1, beta2) = seen["gradient"], (0.9, 0.95)
    for kept in itertools.product([1, 0], repeat=3):
        m0, v0, n0 = (
            k * saved[name]
            for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
        )
        m = (beta1 * m0 + (1 - beta1) * g) / (1 - beta1 ** (n0 + 1))
        v = (beta2 * v0 + (1 - beta2) * g.square()) / (1 - beta2 ** (n0 + 1))

        after = seen["before"] - seen["rate"] * m / (v.sqrt() + 1e-8)
        if torch.allclose(after, seen["after"], rtol=1e-9, atol=1e-12):
            missing |= {name: kept != (1, 1, 1) for name in ("mean", "mean_square", "updates")}
    return [name for name, is_missing in missing.items() if is_missing]


# %% 30.2 this_step_not_counted
# says: the mean is missing here, and you find nothing. If no combination gives the weights after
# the step: n counts this step as well, so that it is 5 after 4 updates
import torch


def missing_parts(saved, seen):
    generator = torch.Generator()
    generator.set_state(saved["generator"])
    missing = {
        "weights": not torch.equal(seen["before"], saved["weights"]),
        "mean": False,
        "mean_square": False,
        "updates": False,
        "steps": abs(seen["rate"] - rate_after(saved["steps"])) > 1e-12,
        "position": seen["batch"] != saved["position"],
        "generator": not torch.equal(seen["draws"], torch.rand(4, generator=generator)),
    }

    g, (beta1, beta2) = seen["gradient"], (0.9, 0.95)
    for kept in itertools.product([1, 0], repeat=3):
        m0, v0, n0 = (
            k * saved[name]
            for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
        )
        m = (beta1 * m0 + (1 - beta1) * g) / (1 - beta1 ** max(n0, 1))
        v = (beta2 * v0 + (1 - beta2) * g.square()) / (1 - beta2 ** max(n0, 1))

        after = seen["before"] - seen["rate"] * m / (v.sqrt() + 1e-8)
        if torch.allclose(after, seen["after"], rtol=1e-9, atol=1e-12):
            missing |= {
                name: not k
                for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
            }
    return [name for name, is_missing in missing.items() if is_missing]


# %% 30.2 from_the_saved_weights
# says: the weights and the mean are missing: make the step from the weights that it had
import torch


def missing_parts(saved, seen):
    generator = torch.Generator()
    generator.set_state(saved["generator"])
    missing = {
        "weights": not torch.equal(seen["before"], saved["weights"]),
        "mean": False,
        "mean_square": False,
        "updates": False,
        "steps": abs(seen["rate"] - rate_after(saved["steps"])) > 1e-12,
        "position": seen["batch"] != saved["position"],
        "generator": not torch.equal(seen["draws"], torch.rand(4, generator=generator)),
    }

    g, (beta1, beta2) = seen["gradient"], (0.9, 0.95)
    for kept in itertools.product([1, 0], repeat=3):
        m0, v0, n0 = (
            k * saved[name]
            for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
        )
        m = (beta1 * m0 + (1 - beta1) * g) / (1 - beta1 ** (n0 + 1))
        v = (beta2 * v0 + (1 - beta2) * g.square()) / (1 - beta2 ** (n0 + 1))

        after = saved["weights"] - seen["rate"] * m / (v.sqrt() + 1e-8)
        if torch.allclose(after, seen["after"], rtol=1e-9, atol=1e-12):
            missing |= {
                name: not k
                for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
            }
    return [name for name, is_missing in missing.items() if is_missing]


# %% 30.2 at_the_right_rate
# says: the mean square and the number of steps are missing: the rate was 0.001, that of the first
# step, in place of 0.005. Make the step with the rate that it had
import torch


def missing_parts(saved, seen):
    generator = torch.Generator()
    generator.set_state(saved["generator"])
    missing = {
        "weights": not torch.equal(seen["before"], saved["weights"]),
        "mean": False,
        "mean_square": False,
        "updates": False,
        "steps": abs(seen["rate"] - rate_after(saved["steps"])) > 1e-12,
        "position": seen["batch"] != saved["position"],
        "generator": not torch.equal(seen["draws"], torch.rand(4, generator=generator)),
    }

    g, (beta1, beta2) = seen["gradient"], (0.9, 0.95)
    for kept in itertools.product([1, 0], repeat=3):
        m0, v0, n0 = (
            k * saved[name]
            for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
        )
        m = (beta1 * m0 + (1 - beta1) * g) / (1 - beta1 ** (n0 + 1))
        v = (beta2 * v0 + (1 - beta2) * g.square()) / (1 - beta2 ** (n0 + 1))

        after = seen["before"] - rate_after(saved["steps"]) * m / (v.sqrt() + 1e-8)
        if torch.allclose(after, seen["after"], rtol=1e-9, atol=1e-12):
            missing |= {
                name: not k
                for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
            }
    return [name for name, is_missing in missing.items() if is_missing]


# %% 30.2 only_batch_0
# says: the position is missing, once with batch 0 and once with batch 6: a loader that had read
# two batches ahead and saved this as its position loses them
import torch


def missing_parts(saved, seen):
    generator = torch.Generator()
    generator.set_state(saved["generator"])
    missing = {
        "weights": not torch.equal(seen["before"], saved["weights"]),
        "mean": False,
        "mean_square": False,
        "updates": False,
        "steps": abs(seen["rate"] - rate_after(saved["steps"])) > 1e-12,
        "position": seen["batch"] == 0,
        "generator": not torch.equal(seen["draws"], torch.rand(4, generator=generator)),
    }

    g, (beta1, beta2) = seen["gradient"], (0.9, 0.95)
    for kept in itertools.product([1, 0], repeat=3):
        m0, v0, n0 = (
            k * saved[name]
            for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
        )
        m = (beta1 * m0 + (1 - beta1) * g) / (1 - beta1 ** (n0 + 1))
        v = (beta2 * v0 + (1 - beta2) * g.square()) / (1 - beta2 ** (n0 + 1))

        after = seen["before"] - seen["rate"] * m / (v.sqrt() + 1e-8)
        if torch.allclose(after, seen["after"], rtol=1e-9, atol=1e-12):
            missing |= {
                name: not k
                for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
            }
    return [name for name, is_missing in missing.items() if is_missing]


# %% 30.2 weights_after_the_step
# says: nothing is missing here, and you miss the weights: those after the step differ from what
# was saved because it was a step. Compare those before it
import torch


def missing_parts(saved, seen):
    generator = torch.Generator()
    generator.set_state(saved["generator"])
    missing = {
        "weights": not torch.equal(seen["after"], saved["weights"]),
        "mean": False,
        "mean_square": False,
        "updates": False,
        "steps": abs(seen["rate"] - rate_after(saved["steps"])) > 1e-12,
        "position": seen["batch"] != saved["position"],
        "generator": not torch.equal(seen["draws"], torch.rand(4, generator=generator)),
    }

    g, (beta1, beta2) = seen["gradient"], (0.9, 0.95)
    for kept in itertools.product([1, 0], repeat=3):
        m0, v0, n0 = (
            k * saved[name]
            for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
        )
        m = (beta1 * m0 + (1 - beta1) * g) / (1 - beta1 ** (n0 + 1))
        v = (beta2 * v0 + (1 - beta2) * g.square()) / (1 - beta2 ** (n0 + 1))

        after = seen["before"] - seen["rate"] * m / (v.sqrt() + 1e-8)
        if torch.allclose(after, seen["after"], rtol=1e-9, atol=1e-12):
            missing |= {
                name: not k
                for k, name in zip(kept, ("mean", "mean_square", "updates"), strict=True)
            }
    return [name for name, is_missing in missing.items() if is_missing]


# %% 30.3 files_in_pairs
# says: your first reader takes files 0 and 1 whole: that fits only if all files are of equal
# length. Of file 1 it needs two of four entries
def read_plan(files, sizes, num_readers):
    plans = [[] for _ in range(num_readers)]
    for number, content in enumerate(files):
        place = 0
        for name, first, last in content:
            reader = number * num_readers // len(files)
            plans[reader].append((name, number, place, place + last - first))
            place += last - first
    return plans


# %% 30.3 entries_of_the_tensor
# says: 3 to 5 are entries of the tensor: file 1 holds four entries, at the places 0 to 3, and
# begins with entry 3
def read_plan(files, sizes, num_readers):
    pieces = {name: [] for name in sizes}
    for number, content in enumerate(files):
        place = 0
        for name, first, last in content:
            if first < last:
                pieces[name].append((first, last, number, place))
            place += last - first

    plans = [[] for _ in range(num_readers)]
    for name, size in sizes.items():
        found = sorted(pieces[name])
        if [*(first for first, *_ in found), size] != [0, *(last for _, last, *_ in found)]:
            return None
        for reader, plan in enumerate(plans):
            low, high = size * reader // num_readers, size * (reader + 1) // num_readers
            for first, last, number, place in found:
                begin, end = max(low, first), min(high, last)
                if begin < end:
                    plan.append((name, number, begin, end))
    return plans


# %% 30.3 each_piece_begins_at_0
# says: in file 0, w stands behind three entries of v, so it begins at place 3. And entries 0 and
# 1 of v come first, though they are in the other file
def read_plan(files, sizes, num_readers):
    pieces = {name: [] for name in sizes}
    for number, content in enumerate(files):
        place = 0
        for name, first, last in content:
            if first < last:
                pieces[name].append((first, last, number, place))
            place += last - first

    plans = [[] for _ in range(num_readers)]
    for name, size in sizes.items():
        found = sorted(pieces[name])
        if [*(first for first, *_ in found), size] != [0, *(last for _, last, *_ in found)]:
            return None
        for reader, plan in enumerate(plans):
            low, high = size * reader // num_readers, size * (reader + 1) // num_readers
            for first, last, number, place in found:
                begin, end = max(low, first), min(high, last)
                if begin < end:
                    plan.append((name, number, begin - first, end - first))
    return plans


# %% 30.3 rest_to_the_last
# says: three readers of 11 entries begin at 0, 11 // 3 = 3 and 22 // 3 = 7, by the rule above:
# that is neither 3 for each and the rest for the last, nor 4 for each but the last
def read_plan(files, sizes, num_readers):
    pieces = {name: [] for name in sizes}
    for number, content in enumerate(files):
        place = 0
        for name, first, last in content:
            if first < last:
                pieces[name].append((first, last, number, place))
            place += last - first

    plans = [[] for _ in range(num_readers)]
    for name, size in sizes.items():
        found = sorted(pieces[name])
        if [*(first for first, *_ in found), size] != [0, *(last for _, last, *_ in found)]:
            return None
        for reader, plan in enumerate(plans):
            low = size // num_readers * reader
            high = size if reader == num_readers - 1 else low + size // num_readers
            for first, last, number, place in found:
                begin, end = max(low, first), min(high, last)
                if begin < end:
                    plan.append((name, number, place + begin - first, place + end - first))
    return plans


# %% 30.3 sums_compared
# says: these files hold 3 + 2 + 1 = 6 entries, and yet it is no checkpoint: entry 2 is there
# twice, and entry 4 is missing. Return None
def read_plan(files, sizes, num_readers):
    pieces = {name: [] for name in sizes}
    for number, content in enumerate(files):
        place = 0
        for name, first, last in content:
            if first < last:
                pieces[name].append((first, last, number, place))
            place += last - first

    plans = [[] for _ in range(num_readers)]
    for name, size in sizes.items():
        found = sorted(pieces[name])
        if sum(last - first for first, last, *_ in found) != size:
            return None
        for reader, plan in enumerate(plans):
            low, high = size * reader // num_readers, size * (reader + 1) // num_readers
            for first, last, number, place in found:
                begin, end = max(low, first), min(high, last)
                if begin < end:
                    plan.append((name, number, place + begin - first, place + end - first))
    return plans


# %% 30.3 empty_reads
# says: a read of yours is empty, or ends before it begins: where ranges do not overlap, there is
# nothing to read
def read_plan(files, sizes, num_readers):
    pieces = {name: [] for name in sizes}
    for number, content in enumerate(files):
        place = 0
        for name, first, last in content:
            if first < last:
                pieces[name].append((first, last, number, place))
            place += last - first

    plans = [[] for _ in range(num_readers)]
    for name, size in sizes.items():
        found = sorted(pieces[name])
        if [*(first for first, *_ in found), size] != [0, *(last for _, last, *_ in found)]:
            return None
        for reader, plan in enumerate(plans):
            low, high = size * reader // num_readers, size * (reader + 1) // num_readers
            for first, last, number, place in found:
                begin, end = max(low, first), min(high, last)
                if True:
                    plan.append((name, number, place + begin - first, place + end - first))
    return plans


# %% 30.4 no_copy
# says: the state was saved after step 1, and all that was written is of step 2: the copy has to
# be made before begin_save returns, and not when the thread gets its turn
def begin_save(state, write, earlier):
    if earlier is not None:
        earlier()
    snapshot = state
    errors = []

    def run():
        try:
            write(snapshot)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish():
        thread.join()
        if errors:
            raise errors[0]

    return finish


def observed_saves(num_saves, failing):
    return watch_saves(begin_save, num_saves, failing)


# %% 30.4 outer_dictionary_copied
# says: the step in the file is 1, and the weights are those of step 2: you copied dictionaries,
# and the tensors in them are still those that training changes
def begin_save(state, write, earlier):
    if earlier is not None:
        earlier()
    snapshot = dict(state)
    errors = []

    def run():
        try:
            write(snapshot)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish():
        thread.join()
        if errors:
            raise errors[0]

    return finish


def observed_saves(num_saves, failing):
    return watch_saves(begin_save, num_saves, failing)


# %% 30.4 copied_in_the_thread
# says: the state was saved after step 1, and all that was written is of step 2: the copy has to
# be made before begin_save returns, and not when the thread gets its turn
def begin_save(state, write, earlier):
    if earlier is not None:
        earlier()
    snapshot = state
    errors = []

    def run():
        try:
            write(copy.deepcopy(snapshot))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish():
        thread.join()
        if errors:
            raise errors[0]

    return finish


def observed_saves(num_saves, failing):
    return watch_saves(begin_save, num_saves, failing)


# %% 30.4 two_writers
# says: you did not call `earlier`: with a slow disk, writes pile up, each with a copy of the
# whole state in memory
def begin_save(state, write, earlier):
    if False:
        pass
    snapshot = copy.deepcopy(state)
    errors = []

    def run():
        try:
            write(snapshot)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish():
        thread.join()
        if errors:
            raise errors[0]

    return finish


def observed_saves(num_saves, failing):
    return watch_saves(begin_save, num_saves, failing)


# %% 30.4 waits_at_once
# says: you started a thread and waited for it at once: training stands still as long as without
# one. The function that you return is to wait
def begin_save(state, write, earlier):
    if earlier is not None:
        earlier()
    snapshot = copy.deepcopy(state)
    errors = []

    def run():
        try:
            write(snapshot)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    def finish():
        thread.join()
        if errors:
            raise errors[0]

    return finish


def observed_saves(num_saves, failing):
    return watch_saves(begin_save, num_saves, failing)


# %% 30.4 error_swallowed
# says: the disk was full, and nobody was told: an error in a thread ends the thread and nothing
# else. Keep it, and raise it where someone waits
def begin_save(state, write, earlier):
    if earlier is not None:
        earlier()
    snapshot = copy.deepcopy(state)
    errors = []

    def run():
        try:
            write(snapshot)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def finish():
        thread.join()

    return finish


def observed_saves(num_saves, failing):
    return watch_saves(begin_save, num_saves, failing)
