"""Batches under a token budget, and what to do when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from sparta.base.errors import InputError
from sparta.base.remedies import Command, Option, remedy

logger = logging.getLogger(__name__)

CPU_TOKENS = 1024
"""Tokens that a CPU's thread reads at once: more leave its cache."""
GPU_TOKENS = 32768
"""Tokens that a GPU reads at once: 1.4 GiB with 12 layers of 384 dimensions (decision 0028)."""
OTHER_TOKENS = 4096
"""The same of other devices, and tokens that are pooled at once on a CPU."""
LARGEST_BATCH = 1024
"""Texts of a batch."""

_MEMORY_SIGNS = ("out of memory", "not enough memory", "can't allocate memory", "cublas_status_alloc_failed")


def length_sorted_batches(lengths: Sequence[int], token_budget: int, max_batch: int) -> Iterator[list[int]]:
    """Cut items into batches of similar length: indices, longest first.

    A batch holds at most `max_batch` items and, padded to its longest, at most `token_budget` tokens (one
    item always fits). The cut depends on `lengths` alone, so the same shard is always batched in the same
    way.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        size = max(1, min(max_batch, token_budget // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


def parse_devices(text: str | None) -> tuple[str, ...]:
    """Devices from their names with commas between them: `cuda:0,cuda:1`; torch must know each."""
    parts = tuple(part.strip() for part in text.split(",")) if text is not None else ()
    for part in parts:
        if not part:
            raise InputError(
                f"expected a device, or several with commas between them, found {text!r}",
                remedy=remedy("name it, as in {}, or leave it out", Option("device", "cpu")),
            )
        pick_device(part)
    return parts


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device or the host had no memory left."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    message = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in message for sign in _MEMORY_SIGNS)


def with_halving[T, R](function: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> list[R]:
    """`function(items)`; on out-of-memory, the same for both halves. One item that does not fit raises."""
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
    """Compute in the caller's thread alone.

    What takes milliseconds gains little from more, and where other work keeps a processor busy, threads that
    wait for each other at every layer take fifty times as long (a question on two processors).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`fp32`, `bf16`, `fp16`, or `auto`: bf16 where the device multiplies it fast, else fp32.

    :raises InputError: another name.
    """
    named = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if name in named:
        return named[name]
    if name != "auto":
        raise InputError(f"expected the arithmetic {', '.join(named)} or auto, found {name!r}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    fast = device.type == "cpu" and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )
    return torch.bfloat16 if fast else torch.float32


def arithmetic(device: torch.device, name: str = "auto") -> torch.autocast:
    """Return a context in which models compute as `pick_dtype` says."""
    dtype = pick_dtype(name, device)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


def dtype_name(name: str, device: torch.device) -> str:
    """Return what a name means on a device, `fp32`, `bf16` or `fp16`: so `auto` is the same elsewhere."""
    return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[pick_dtype(name, device)]


def pick_device(name: str | None = None) -> torch.device:
    """Return the named device, or CUDA, MPS, CPU: the first there is.

    :raises InputError: torch cannot use the named device here.
    """
    if name:
        try:
            return torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:  # AssertionError: a torch built without CUDA
            raise InputError(
                f"expected a device that torch can use here, found {name!r}: {str(error).splitlines()[0]}",
                remedy=remedy(
                    "use {}; {} shows what there is", Option("device", "cpu"), Command("sparta doctor")
                ),
            ) from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def in_threads[T, R](compute: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
    """What a model computes of each item on a CPU, in their order: each thread has an item of its own."""
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    def alone(item: T) -> R:
        with torch.autocast("cpu", autocast, enabled=autocast is not None):  # a thread begins without
            return compute(item)

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(alone, items)
    finally:
        torch.set_num_threads(threads)  # what a thread sets is what every later thread begins with


def each_batch[T, R](compute: Callable[[T], R], batches: Iterable[T], device: torch.device) -> Generator[R]:
    """What a model computes of each batch, in their order: on a CPU every thread has a batch of its own.

    Threads that share one wait for each other at every layer, the longer the more other work there is. Close
    the generator: batches that nobody waits for are then left out.
    """
    yield from in_threads(compute, batches) if device.type == "cpu" else map(compute, batches)


def tokens_at_once(budget: int, device: torch.device) -> int:
    """Return how many tokens a batch of `each_batch` has at most: the budget, or less without CUDA."""
    return min(budget, {"cuda": budget, "cpu": CPU_TOKENS}.get(device.type, OTHER_TOKENS))
