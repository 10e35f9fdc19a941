"""Batches whose size has a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def bounded_batches[T](
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_items: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in batches whose sizes sum to at most `most`; a larger item is a batch by itself.

    :param most_items: the largest number of items of a batch; None means no limit
    """
    batch: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == most_items or total + size > most):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
