"""Where and how reproducibly the code runs: devices, threads, generators, determinism.

This is the only module that knows the names of accelerators and the only one that seeds torch's
global generator.  Everything else takes a device from its inputs and an explicit generator.
"""

import hashlib
import random
from typing import Any, cast

import numpy as np
import torch


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
    # As `use_deterministic_algorithms(True)`, without importing torch's compiler.
    torch.set_deterministic_debug_mode("error")
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def global_rng_state() -> dict[str, Any]:
    """Return the state of Python's, NumPy's and torch's global generators, as plain data."""
    version, keys, gauss = random.getstate()
    name, words, position, has_gauss, cached = cast(tuple, np.random.get_state())
    return {
        "python": [version, list(keys), gauss],
        "numpy": [name, torch.from_numpy(words.astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
    }


def restore_global_rng_state(state: dict[str, Any]) -> None:
    """Put back what `global_rng_state` returned.

    Raises:
        ValueError: if a generator is missing from `state`, or its state is broken.
    """
    check_global_rng_state(state)
    random.setstate(_of_python(state))
    np.random.set_state(_of_numpy(state))
    torch.set_rng_state(state["torch"])


def check_global_rng_state(state: dict[str, Any]) -> None:
    """Try a state on other generators than the global ones; errors as above."""
    missing = {"python", "numpy", "torch"} - state.keys()
    if missing:
        raise ValueError(f"the state lacks {sorted(missing)}; save it with global_rng_state()")
    try:
        random.Random().setstate(_of_python(state))
        np.random.RandomState().set_state(_of_numpy(state))
        torch.Generator().set_state(state["torch"])
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(f"the state of a global generator is broken: {error}") from error


def _of_python(state: dict[str, Any]) -> tuple:
    version, keys, gauss = state["python"]
    return version, tuple(keys), gauss


def _of_numpy(state: dict[str, Any]) -> tuple:
    name, words, position, has_gauss, cached = state["numpy"]
    if not 0 <= position <= len(words):  # NumPy would read past the end
        raise ValueError(f"the state of NumPy's generator is at {position} of {len(words)}")
    return name, words.numpy().astype(np.uint32), position, has_gauss, cached


def fingerprint(tensors: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of named tensors: equal exactly when every bit is equal.

    The hash covers names, dtypes, shapes and bytes, in the order of the names.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        # Bytes alone do not tell a name, a dtype or a shape.
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # As plain bytes, since numpy has no bfloat16; so 0.0 and -0.0 differ.
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
