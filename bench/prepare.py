"""From JSON Lines to a tokenizer and tokens on disk: `llmcourse prepare` against `tokenizers`.

The peer is a preparation in the style of `datasets`' `map(batched=True, num_proc=N)`, without that
package: each process takes a part of the file and writes what `encode_batch_fast` gives, some
documents at a time.  Both sides train a tokenizer of 8,192 on 10 MB first.  Each run is a program
of its own, so that its memory can be seen.  The text is addresses and Python sources, repeated.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.timing import row

VOCAB = 8_192
SAMPLE_BYTES = 10_000_000
BATCH = 1_000
SIDES = ("ours", "theirs")


def rows(quick: bool = False) -> list[dict]:
    """Measure one and two processes, both sides in turn; quick takes a tenth of the text."""
    num_bytes, found = 10_000_000 if quick else 100_000_000, []
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.jsonl"
        size = write_text(text, num_bytes) / 1e6
        for processes in (1, 2):
            measured = {side: measure(side, text, processes) for side in SIDES}
            (our_seconds, our_peak), (their_seconds, their_peak) = measured.values()
            what = f"preparing {size:.0f} MB, processes: {processes}"
            sides = (size / our_seconds, size / their_seconds)
            aim = "" if quick else ">= 1.5"
            found.append(row(what, *sides, "Hugging Face tokenizers", "MB/s", aim=aim))
            peaks = (our_peak / 1e6, their_peak / 1e6)
            found.append(row(f"{what}: peak memory", *peaks, "Hugging Face tokenizers", "MB"))
    return found


def write_text(path: Path, num_bytes: int) -> int:
    """Write documents as JSON Lines; return the bytes of their text."""
    from llmcourse.data import corpus  # noqa: PLC0415 - not in the memory of the peer

    documents = [each.text for each in [*corpus.sotu(), *corpus.python_source()]]
    used = 0
    with path.open("w", encoding="utf8") as file:
        while used < num_bytes:
            for text in documents:
                if used < num_bytes:
                    file.write(json.dumps({"text": text}) + "\n")
                    used += len(text.encode())
    return used


def measure(side: str, text: Path, processes: int) -> tuple[float, int]:
    """Return the seconds that a side takes, and the most bytes that its processes hold together."""
    with tempfile.TemporaryDirectory() as out:
        words = ["-m", "bench.prepare", side, str(text), f"{out}/data", str(processes)]
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
        started, peak = time.perf_counter(), 0
        program = subprocess.Popen(
            [sys.executable, *words], env=environment, stdout=subprocess.DEVNULL
        )
        while program.poll() is None:
            peak = max(peak, held_bytes(psutil.Process(program.pid)))
            time.sleep(0.2)
        seconds = time.perf_counter() - started
        if program.returncode:
            raise RuntimeError(f"{' '.join(words)} ended with {program.returncode}")
        return seconds, peak


def held_bytes(process: psutil.Process) -> int:
    """Return the memory of a process and of those below it; what they share counts once."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_full_info().pss
        except psutil.Error:  # it has ended
            continue
    return total


def theirs(text: Path, out: Path, processes: int) -> None:
    """Train and encode with `tokenizers`."""
    import tokenizers  # noqa: PLC0415

    out.mkdir()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCAB,
        initial_alphabet=byte_level.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample(text), trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    borders = [text.stat().st_size * part // processes for part in range(processes + 1)]
    parts = [(out, text, *borders[part : part + 2]) for part in range(processes)]
    if processes == 1:
        encode_part(*parts[0])
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            pool.starmap(encode_part, parts)


def sample(text: Path):
    """Yield the first documents."""
    used = 0
    with text.open(encoding="utf8") as file:
        while used < SAMPLE_BYTES and (line := file.readline()):
            document = json.loads(line)["text"]
            used += len(document)
            yield document


def encode_part(out: Path, text: Path, first: int, last: int) -> None:
    """Encode the lines that begin in a part of a file."""
    import numpy as np  # noqa: PLC0415
    import tokenizers  # noqa: PLC0415

    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    end = np.array([tokenizer.token_to_id("<|endoftext|>")], np.uint16)
    with text.open("rb") as file, (out / f"{first}.bin").open("wb") as written:
        if first:
            file.seek(first - 1)
            file.readline()
        documents = []
        while documents or file.tell() < last:
            while len(documents) < BATCH and file.tell() < last:
                documents.append(json.loads(file.readline())["text"])
            for encoding in tokenizer.encode_batch_fast(documents, add_special_tokens=False):
                written.write(np.array(encoding.ids, np.uint16).tobytes() + end.tobytes())
            documents = []


def ours(text: Path, out: Path, processes: int) -> None:
    """Call the command."""
    from llmcourse_labs.curation.prepare import main  # noqa: PLC0415

    words = [str(text), "--out", str(out), "--vocab", str(VOCAB), "--processes", str(processes)]
    if main(words):
        raise SystemExit(2)


if __name__ == "__main__":
    side, text, out, processes = sys.argv[1:]
    {"ours": ours, "theirs": theirs}[side](Path(text), Path(out), int(processes))
