"""Small shards of vectors become larger ones, so that many small writes leave few files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from dense.search.store import Rows, VectorFolder, VectorWriter
from sparta.shards.folder import SHARD_SIZE

SMALL_SHARD = SHARD_SIZE // 2
"""Shards with fewer rows are merged."""
MERGED_AT_ONCE = 8
"""Number of neighboring small shards that start a merge."""


def runs_to_merge(sizes: Sequence[int]) -> list[range]:
    """The runs of neighboring small shards that are long enough to be merged, as places in the order."""
    runs = []
    for is_small, group in itertools.groupby(range(len(sizes)), lambda place: sizes[place] < SMALL_SHARD):
        places = list(group)
        if is_small and len(places) >= MERGED_AT_ONCE:
            runs.append(range(places[0], places[-1] + 1))
    return runs


def merge_small_shards(
    vectors: VectorFolder, writer: VectorWriter, live: Rows | None = None
) -> list[int] | None:
    """Write the rows of small shards into new shards, and return the numbers of all shards in the new order.

    The rows keep their order. The merged shards stay until no manifest names them.

    :param live: the rows to keep in merged shards; None keeps all, so that every row keeps its number
    :returns: None if there is nothing to merge
    """
    runs = runs_to_merge([len(shard) for shard in vectors.shards])
    if not runs:
        return None
    kept = np.ones(len(vectors), bool)
    if live is not None:
        kept[:] = False
        kept[live[live >= 0]] = True
    numbers: list[int] = []
    end = 0
    for run in runs:
        numbers += vectors.numbers[end : run.start]
        first, last = vectors.starts[run.start], vectors.starts[run.stop]
        numbers += _written(vectors, writer, first + np.flatnonzero(kept[first:last]))
        end = run.stop
    return numbers + list(vectors.numbers[end:])


def _written(vectors: VectorFolder, writer: VectorWriter, rows: Rows) -> Iterator[int]:
    """Write rows into shards of `SHARD_SIZE`; yields the numbers of these shards."""
    for start in range(0, len(rows), SHARD_SIZE):
        part = rows[start : start + SHARD_SIZE]
        yield writer.next_number
        writer.add(vectors.positions[part], vectors.hashes[part], vectors.take(part), merged=True)
