"""A run, or a model of others, in few bits: one GGUF file.

    llmcourse quantise --model smollm2 --kind Q8_0 --out few.gguf
    llmcourse quantise --run runs/a --kind Q4_1 --method gptq --out few.gguf

Rounded to nearest, the matrices are those of ggml's own rule, to the bit.  GPTQ reads a few
thousand tokens: of a run, its own training text; of a model, addresses of the last century but
those that the course holds out.
"""

from argparse import HelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, UInt8
from jsonargparse import ArgumentParser
from torch import Tensor

from llmcourse.base.command_line import ended
from llmcourse.data import TokenShards
from llmcourse.data.corpus import sotu_split
from llmcourse.data.tokenizer import Tokenizer
from llmcourse.model import Transformer
from llmcourse.train.sampling import add_source, check_source
from llmcourse_labs.export.folder import Parts, parts_of_model, parts_of_run, write_parts
from llmcourse_labs.real.gguf_blocks import KINDS, q4_1_blocks
from llmcourse_labs.real.quantise.decoder import round_decoder
from llmcourse_labs.real.quantise.grid import Grid, Rounded

PROGRAM = "llmcourse quantise"
BLOCK = KINDS["Q4_1"].num_weights
"""Weights that share a scale, in both kinds."""
CALIBRATION_TOKENS, MOST_IN_A_ROW = 4096, 512
"""That GPTQ reads, and of one piece of text."""

Kind = Literal["Q4_1", "Q8_0"]
Method = Literal["nearest", "gptq"]


def quantise(
    to: str | Path,
    *,
    run: str | Path | None = None,
    model: str | Path | None = None,
    kind: Kind = "Q4_1",
    method: Method = "nearest",
) -> Path:
    """Write a run's newest checkpoint, or a model of others, in few bits; return where.

    Args:
        to: the new file, which ends in .gguf.
        run: its folder; or None, and a model is given.
        model: as `real.opening.open_model` takes it.
        kind: of the matrices; beside Q4_1 the embedding and the head are in Q8_0.
        method: to nearest, or by GPTQ, which is for Q4_1 and dense models.

    Raises:
        ValueError: if something stands at `to`, there is no such run or model, blocks do not divide
            its rows, or GPTQ cannot be had.
        OSError: if a file cannot be read or written.
    """
    to = Path(to)
    if to.suffix != ".gguf":
        raise ValueError(f"the file must end in .gguf, got {to}")
    if to.exists():
        raise ValueError(f"{to} exists: choose another file")
    if method == "gptq" and kind != "Q4_1":
        raise ValueError(f"gptq writes Q4_1, got {kind}: leave it out, or choose Q4_1")
    if run is None:
        parts = parts_of_model(str(model), to.stem)
    else:
        parts = parts_of_run(Path(run), to.stem, "float32")
    for name, weight in parts.state.items():
        if weight.ndim > 1 and weight.shape[-1] % BLOCK and "router" not in name:
            raise ValueError(
                f"{name} has rows of {weight.shape[-1]} weights, and {kind} needs a multiple of "
                f"{BLOCK}: llmcourse export writes such a model in float16"
            )
    blocks = None
    if method == "gptq":
        blocks = _by_gptq(parts, calibration(parts, None if run is None else Path(run)))
    write_parts(to, parts, kind=kind, blocks=blocks)
    return to


def _by_gptq(
    parts: Parts, calibration_RT: Int[Tensor, "R T"]
) -> dict[str, UInt8[Tensor, "rows bytes"]]:
    """Return the matrices of the blocks as rows of Q4_1, by our names."""
    decoder = Transformer(parts.model)
    decoder.load_state_dict(parts.state)
    rounded = round_decoder(decoder.eval(), Grid(4, BLOCK), calibration_RT)
    return {name: _rows_of_q4_1(matrix) for name, matrix in rounded.matrices.items()}


def _rows_of_q4_1(matrix: Rounded) -> UInt8[Tensor, "rows bytes"]:
    """Return the bytes of each row."""
    assert matrix.minima_FN is not None
    numbers = matrix.scales_FN, matrix.minima_FN
    d_N1, m_N1 = (number.reshape(-1, 1) for number in numbers)
    blocks_NB = q4_1_blocks(d_N1, m_N1, matrix.codes_FD.reshape(-1, BLOCK))
    return blocks_NB.view(len(matrix.codes_FD), -1)


def calibration(parts: Parts, run: Path | None) -> Int[Tensor, "R T"]:
    """Return rows of text that a model may have learnt from, evenly out of all of it.

    Args:
        parts: of the model.
        run: its folder; None of a model of others.

    Raises:
        ValueError: if the folder has no tokens of its own, or too few.
        ModuleNotFoundError: if the addresses are not installed.
    """
    length = min(parts.model.context_length, MOST_IN_A_ROW)
    num_rows = CALIBRATION_TOKENS // length
    if run is not None:
        fingerprint = parts.tokenizer.fingerprint
        shards = TokenShards(run / "data" / "training", tokenizer_fingerprint=fingerprint)
        return _from_shards(shards, num_rows, length)
    return _from_addresses(parts.tokenizer, num_rows, length)


def _from_shards(shards: TokenShards, num_rows: int, length: int) -> Int[Tensor, "R T"]:
    if len(shards) < length:
        raise ValueError(f"{shards.folder} has fewer tokens than a row of {length}")
    starts = np.linspace(0, len(shards) - length, num_rows).astype(int)
    return torch.tensor(np.stack([shards[i : i + length] for i in starts]).astype(np.int64))


def _from_addresses(tokenizer: Tokenizer, num_rows: int, length: int) -> Int[Tensor, "R T"]:
    addresses, _ = sotu_split()
    chosen = np.linspace(0, len(addresses) - 1, num_rows).astype(int)
    ids = [tokenizer.encode(addresses[i].text[: 16 * length])[:length] for i in chosen]
    joined = torch.tensor([i for row in ids for i in row])
    return joined[: len(joined) // length * length].view(-1, length)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 2 after one line that says what is wrong."""
    return ended(PROGRAM, lambda: _quantise(arguments), told=(ModuleNotFoundError,))


def _quantise(arguments: Sequence[str] | None) -> None:
    """Write the file, and say how large it is."""
    options = _parser().parse_args(arguments)
    check_source(options)
    how = {"kind": options.kind, "method": options.method}
    written = quantise(options.out, run=options.run, model=options.model, **how)
    print(f"wrote {written}: {written.stat().st_size:,} bytes")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog=PROGRAM,
        exit_on_error=False,
        default_env=False,
        formatter_class=HelpFormatter,
        description="Write a run, or a model of others, in few bits, for llama.cpp.",
    )
    add_source(parser, "folder of the run")
    told = "of the matrices: Q4_1, 5 bits a weight, or Q8_0, 8.5 (%(default)s)"
    parser.add_argument("--kind", type=Kind, default="Q4_1", help=told)
    told = "nearest, or gptq, which reads text and takes minutes (%(default)s)"
    parser.add_argument("--method", type=Method, default="nearest", help=told)
    parser.add_argument("--out", required=True, help="new file, which ends in .gguf")
    return parser
