"""Where and how reproducibly the code runs: devices, threads, generators, determinism.

This is the only module that knows the names of accelerators and the only one that seeds torch's
global generator.  Everything else takes a device from its inputs and an explicit generator.

Taught in: chapters/00_how_to_use.ipynb, chapters/30_checkpoints.ipynb
"""

import contextlib
import hashlib
import os
import random
import sys
import uuid
from argparse import ArgumentError
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from tqdm import tqdm

# Registered by torch for its own compiler; absent from builds without oneDNN.
_ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
# Below about this many multiply-adds the call itself costs more than oneDNN saves (measured).
_ONEDNN_MIN_PRODUCTS = 1_000_000


def generator(seed: int, *, device: str | torch.device = "cpu") -> torch.Generator:
    """Return a new random generator, seeded.

    Args:
        seed: any integer from 0 to 2^63 - 1.
        device: where the numbers are drawn.

    Raises:
        ValueError: if the seed is negative.
    """
    if seed < 0:
        raise ValueError(f"seed must be 0 or greater, got {seed}")
    return torch.Generator(device=device).manual_seed(seed)


def device(name: str = "cpu") -> torch.device:
    """Return the device called `name`, if this machine has it.

    Args:
        name: "cpu", "cuda", "cuda:1", "mps", or "auto" for the first accelerator that is present.

    Raises:
        ValueError: if the device is not present on this machine.
    """
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    if name == "auto":
        return accelerator or torch.device("cpu")
    try:
        wanted = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device must be cpu, cuda, mps or auto, got {name!r}") from error
    if wanted.type != "cpu" and (accelerator is None or accelerator.type != wanted.type):
        present = "cpu" if accelerator is None else f"cpu, {accelerator.type}"
        raise ValueError(f"device {name!r} is not present here; present: {present}")
    return wanted


def set_up(*, num_threads: int = 1, seed: int = 0) -> None:
    """Make the process reproducible: fixed thread count, deterministic kernels, seeded globals.

    One thread is the rule of the course: two threads on a busy machine were measured to be
    several times slower than one, and one thread adds numbers in one order only.

    Raises:
        ValueError: if `num_threads` is below 1 or the seed is negative.
    """
    if num_threads < 1:
        raise ValueError(f"num_threads must be 1 or greater, got {num_threads}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or greater, got {seed}")
    torch.set_num_threads(num_threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def global_rng_state() -> dict[str, Any]:
    """Return the state of Python's, NumPy's and torch's global generators, as plain data."""
    version, keys, gauss = random.getstate()
    name, words, position, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, list(keys), gauss],
        "numpy": [name, torch.from_numpy(words.astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
    }


def restore_global_rng_state(state: dict[str, Any]) -> None:
    """Put back what `global_rng_state` returned.

    Raises:
        ValueError: if a generator is missing from `state`.
    """
    missing = {"python", "numpy", "torch"} - state.keys()
    if missing:
        raise ValueError(f"the state lacks {sorted(missing)}; save it with global_rng_state()")
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    name, words, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, words.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])


def fingerprint(tensors: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of named tensors: equal exactly when every bit is equal.

    The hash covers names, dtypes, shapes and bytes, in the order of the names.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def write_atomically(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` only when it is complete and on disk.

    Write to a hidden temporary file beside it, fsync it, rename it over `path`, fsync the folder.
    A crash at any moment leaves the old file or the new one, never a half.  The temporary file of
    a process that was killed stays behind; its name is ".NAME.HEX.tmp".

    Args:
        path: the final file; missing folders above it are made.

    Yields:
        The temporary file, open for bytes.

    Raises:
        OSError: if the file cannot be written (disk full, no permission); `path` is as it was.

    Source:
        Pillai et al. 2014, "All file systems are not created equal", sections 2 and 4.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        _remove_quietly(temporary)
        if error.filename not in (None, str(temporary), str(path.parent)):
            raise  # the caller's own trouble with another file
        raise OSError(error.errno, f"cannot write: {error.strerror}", str(path)) from error
    except BaseException:
        _remove_quietly(temporary)
        raise


def _remove_quietly(path: Path) -> None:
    """Remove a file if it can be removed; the error that is being handled matters more."""
    with contextlib.suppress(OSError):
        path.unlink()


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk; Windows has no such call and needs none."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def progress(**settings: Any) -> tqdm:
    """Return a progress bar: shown on a terminal and in a live notebook, silent elsewhere.

    In a notebook it is silenced by tqdm's own switch, the environment variable TQDM_DISABLE=1, as
    the book and the tests do.

    Args:
        settings: passed on to tqdm, such as total, unit and desc.
    """
    ipython = sys.modules.get("IPython")
    in_notebook = ipython is not None and hasattr(ipython.get_ipython(), "kernel")
    return tqdm(**settings if in_notebook else {"disable": None} | settings)


def product_transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return x w^T of two matrices through the fastest float32 kernel that this torch carries.

    torch's own product goes to MKL, which takes a slow path on processors that are not Intel's: on
    an AMD Zen 5 core it was measured at 105 GFLOP/s where oneDNN, which is part of the same torch
    wheel, reaches 230.  Small products, other dtypes and other devices take torch's own.

    Args:
        x: (rows, inner), any strides.
        w: (columns, inner), any strides.
    """
    if _ONEDNN_LINEAR is None or x.dtype != torch.float32 or x.device.type != "cpu":
        return x @ w.T
    if x.shape[0] * w.shape[0] * w.shape[1] < _ONEDNN_MIN_PRODUCTS:
        return x @ w.T
    return _ONEDNN_LINEAR(x, w, None, "none", [], "")


def widened(x: torch.Tensor) -> torch.Tensor:
    """Return a bf16 or fp16 tensor in float32, and any other as it is.

    For what must not be summed or divided in 8 or 11 bits: norms, rotations, the loss.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


Autocast = Literal["lower", "float32", "as given"]
"""In what a function computes under `torch.autocast`: in its narrow dtype, in float32, or in the
dtype of what it is given."""


def differentiable(
    forward: Callable[..., tuple[torch.Tensor, tuple]],
    backward: Callable[..., Any],
    *,
    autocast: Autocast = "as given",
) -> Callable[..., torch.Tensor]:
    """Make one differentiable function of a pair (forward, backward).

    Args:
        forward: maps its arguments to (output, saved), saved being a NamedTuple of tensors.
        backward: maps (output gradient, saved) to one gradient per tensor argument of `forward`
            that can have one, those arguments standing first.
        autocast: in what it computes under `torch.autocast`.

    Returns:
        A function with forward's positional arguments that returns its output.
    """

    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
            y, saved = forward(*arguments)
            ctx.save_for_backward(*saved)
            ctx.saved_type = type(saved)
            ctx.num_arguments = len(arguments)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple:
            gradients = backward(dy, ctx.saved_type(*ctx.saved_tensors))
            return (*gradients, *[None] * (ctx.num_arguments - len(gradients)))

    def apply(*arguments: Any) -> torch.Tensor:
        device = next(a.device.type for a in arguments if isinstance(a, torch.Tensor))
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            return Pair.apply(*arguments)
        # The casts stand outside the pair, where autograd sees them; inside, nothing is cast.
        dtype = torch.get_autocast_dtype(device) if autocast == "lower" else torch.float32
        with torch.autocast(device, enabled=False):
            return Pair.apply(*(_cast(a, dtype, autocast) for a in arguments))

    return apply


def _cast(argument: Any, dtype: torch.dtype, autocast: Autocast) -> Any:
    """Return a floating-point tensor in the dtype that autocast asks for, all else as it is."""
    is_wanted = isinstance(argument, torch.Tensor) and argument.is_floating_point()
    return argument.to(dtype) if is_wanted and autocast != "as given" else argument


def fail(program: str, problem: Exception | str) -> int:
    """Say in one line on standard error what is wrong with a command, and return its status, 2."""
    said = str(problem)
    if isinstance(problem, ArgumentError):
        said = problem.message or said
    elif isinstance(problem, OSError):
        said = f"{problem.strerror or said}: {problem.filename or 'while writing'}"
    print(f"{program}: {' '.join(said.split())}", file=sys.stderr)
    return 2
