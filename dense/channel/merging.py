"""Merges small shards of vectors, so that many small updates leave few files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from dense.search.store import Rows, VectorFolder, VectorWriter
from sparta.shards.folder import SHARD_SIZE

MERGED_AT_ONCE = 8
"""Number of neighboring small shards that start a merge."""


def runs_to_merge(sizes: Sequence[int], shard_size: int = SHARD_SIZE) -> list[range]:
    """Return the ranges of neighboring small shards that are long enough to merge, as places in `sizes`.

    A shard with fewer than half of `shard_size` rows is small.
    """
    runs = []
    for is_small, group in itertools.groupby(range(len(sizes)), lambda place: 2 * sizes[place] < shard_size):
        places = list(group)
        if is_small and len(places) >= MERGED_AT_ONCE:
            runs.append(range(places[0], places[-1] + 1))
    return runs


def merge_small_shards(
    vectors: VectorFolder, writer: VectorWriter, live: Rows | None = None, shard_size: int = SHARD_SIZE
) -> list[int] | None:
    """Write the rows of small shards into new shards, and return the numbers of all shards in the new order.

    The rows keep their order. The small shards stay on disk until no manifest names them.

    :param live: the rows to keep in merged shards; None keeps all, so that every row keeps its number
    :param shard_size: the number of rows of a merged shard
    :returns: None if there is nothing to merge
    """
    runs = runs_to_merge([len(shard) for shard in vectors.shards], shard_size)
    if not runs:
        return None
    is_kept = np.ones(len(vectors), bool)
    if live is not None:
        is_kept[:] = False
        is_kept[live[live >= 0]] = True
    numbers: list[int] = []
    end_of_last_run = 0
    for run in runs:
        numbers += vectors.numbers[end_of_last_run : run.start]
        first, last = vectors.starts[run.start], vectors.starts[run.stop]
        rows = first + np.flatnonzero(is_kept[first:last])
        numbers += _write_merged_shards(vectors, writer, rows, shard_size)
        end_of_last_run = run.stop
    return numbers + list(vectors.numbers[end_of_last_run:])


def _write_merged_shards(
    vectors: VectorFolder, writer: VectorWriter, rows: Rows, shard_size: int
) -> Iterator[int]:
    """Write rows into shards, and yield the numbers of these shards."""
    for start in range(0, len(rows), shard_size):
        shard_rows = rows[start : start + shard_size]
        yield writer.next_number
        vectors.check_rows(shard_rows)
        writer.add(
            vectors.positions[shard_rows],
            vectors.hashes[shard_rows],
            vectors.take(shard_rows),
            arithmetics=vectors.arithmetics_of(shard_rows),
            merged=True,
        )
