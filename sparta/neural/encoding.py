"""Batching under a token budget, devices, number formats, threads and out-of-memory handling."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn

from sparta.base.errors import InputError
from sparta.base.remedies import Command, Option, remedy
from sparta.neural.batches import CPU_TOKENS, OTHER_TOKENS

logger = logging.getLogger(__name__)

_MEMORY_SIGNS = ("out of memory", "not enough memory", "can't allocate memory", "cublas_status_alloc_failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device or the host is out of memory."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    message = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in message for sign in _MEMORY_SIGNS)


def with_halving[T, R](function: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> list[R]:
    """Return `function(items)`; if memory runs out, apply the function to each half instead.

    If memory runs out for a single item, the error is raised.
    """
    try:
        return function(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error) or len(items) == 1:
            raise
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    middle = len(items) // 2
    logger.warning("out of memory with %d texts in a batch: trying %d", len(items), middle)
    return with_halving(function, items[:middle]) + with_halving(function, items[middle:])


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch in a single thread during the block.

    Tasks of milliseconds gain little from more threads. If other work keeps a processor busy, threads that
    wait for each other at every layer take fifty times as long (measured for one query on two processors).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of a number format: `fp32`, `bf16`, `fp16` or `auto`.

    `auto` means bf16 on devices that multiply it fast, fp16 on other CUDA devices, and otherwise fp32.

    :raises InputError: the name is unknown.
    """
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if name in dtypes:
        return dtypes[name]
    if name != "auto":
        raise InputError(
            f"torch computes in {', '.join(dtypes)} or auto, found {name!r}",
            remedy=remedy("use {}; int8 needs a CPU and OpenVINO", Option("dtype", "auto")),
        )
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    is_fast = device.type == "cpu" and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )
    return torch.bfloat16 if is_fast else torch.float32


def arithmetic(device: torch.device, name: str = "auto") -> torch.autocast:
    """Return a context in which models compute with the dtype of `pick_dtype`."""
    dtype = pick_dtype(name, device)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


def dtype_name(name: str, device: torch.device) -> str:
    """Return `fp32`, `bf16` or `fp16`: the name of `pick_dtype`'s result, with `auto` resolved."""
    return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[pick_dtype(name, device)]


def pick_device(name: str | None = None) -> torch.device:
    """Return the named device, or the first available of CUDA, MPS and CPU.

    :raises InputError: torch cannot use the named device on this machine.
    """
    if name:
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:  # AssertionError: a torch built without CUDA
            raise InputError(
                f"expected a device that torch can use here, found {name!r}: {str(error).splitlines()[0]}",
                remedy=remedy(
                    "use {}; {} lists the available devices",
                    Option("device", "cpu"),
                    Command("sparta doctor"),
                ),
            ) from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def for_inference[M: nn.Module](model: M, device: str, dtype: str) -> M:
    """Return a model for inference on a device, with its encoder in the number format of `pick_dtype`."""
    torch_device = pick_device(device)
    model.to(torch_device).eval()
    cast(Any, model).encoder.to(pick_dtype(dtype, torch_device))
    return model


def _in_threads[T, R](compute: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
    """Yield `compute(item)` for all items in order, on a CPU: each thread computes a different item."""
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    def compute_in_thread(item: T) -> R:
        # A new thread does not inherit autocast.
        with torch.autocast("cpu", autocast, enabled=autocast is not None):
            return compute(item)

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(compute_in_thread, items)
    finally:
        torch.set_num_threads(threads)  # later threads inherit the last setting of any thread


def each_batch[T, R](compute: Callable[[T], R], batches: Iterable[T], device: torch.device) -> Generator[R]:
    """Yield `compute(batch)` for all batches in order; on a CPU, each thread computes a different batch.

    Threads that share a batch wait for each other at every layer, and longer if other programs run. Close
    the generator to cancel the remaining batches.
    """
    yield from _in_threads(compute, batches) if device.type == "cpu" else map(compute, batches)


def tokens_at_once(budget: int, device: torch.device) -> int:
    """Return the maximum number of tokens in a batch of `each_batch`: the budget, or less without CUDA."""
    return min(budget, {"cuda": budget, "cpu": CPU_TOKENS}.get(device.type, OTHER_TOKENS))
