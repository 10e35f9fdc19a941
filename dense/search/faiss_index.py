"""FAISS over a folder of vectors: flat, IVF or HNSW, by inner product."""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from dense.search.exact import Candidates, Kept
from dense.search.store import Floats, Rows, VectorFolder, record_hash
from sparta.base.errors import InputError
from sparta.base.files import atomic_write
from sparta.base.remedies import Option, remedy

KINDS = ("flat", "ivf", "hnsw")
# Flat is exact and has nothing to build. On one core 100,000 vectors of 384 take about 20 ms/query
# (benchmarks/vector_search.py): up to here it is about as long as a small encoder takes to read the question.
# Beyond, HNSW: less than a millisecond, and its time hardly grows.
LARGEST_FLAT = 200_000
_GPU_K = 2048
_MEASURED_ON = 100_000
_TRAINED_ON = 64  # vectors a list, for k-means


def has_faiss() -> bool:
    """Whether FAISS is installed; does not load it."""
    return importlib.util.find_spec("faiss") is not None


def _faiss() -> Any:
    """FAISS, loaded when it is needed; its own annotations lack what is added at run time."""
    return importlib.import_module("faiss")


def choose_kind(requested: str, n: int) -> str:
    """The kind for n vectors: the one asked for or, for `auto`, by size; flat without FAISS, or any vector.

    :raises InputError: no such kind, or one that needs FAISS where there is none.
    """
    if requested not in ("auto", *KINDS):
        raise InputError(
            f"expected an index of kind auto, {', '.join(KINDS)}, found {requested!r}",
            remedy=remedy("leave {} out: auto chooses by the number of passages", Option("kind")),
        )
    if requested == "auto":
        return "flat" if n <= LARGEST_FLAT or not has_faiss() else "hnsw"
    if requested != "flat" and not has_faiss():
        raise InputError(
            f"expected FAISS for an index of kind {requested}, found none installed",
            remedy=remedy(
                "pip install 'sparta-search[faiss]', or use {}, which is exact", Option("kind", "flat")
            ),
        )
    return requested if n else "flat"


@dataclass(frozen=True, slots=True)
class Parameters:
    """How an approximate index is built: `lists` of IVF; `links` and `build_depth` (M, efConstruction) of
    HNSW. How deep it is searched follows from it and from k.

    HNSW holds each distinct vector once. In a graph, the neighbours of a vector that many rows share would
    all be its own copies, and a search that came to them would not leave them again.
    """

    kind: str
    lists: int = 0
    links: int = 0
    build_depth: int = 0

    @property
    def distinct(self) -> bool:
        """Whether the index holds each distinct vector once."""
        return self.kind == "hnsw"

    @staticmethod
    def default(kind: str, n: int) -> Parameters:
        """For n vectors."""
        if kind == "ivf":
            return Parameters(kind, lists=int(max(1, min(4 * n**0.5, n // 39))))
        if kind == "hnsw":
            return Parameters(kind, links=32, build_depth=64)
        return Parameters(kind)

    def probes(self, k: int, n: int) -> int:
        """IVF: how many lists are searched, of n vectors."""
        return min(self.lists, max(self.lists // 8, 40 * k * self.lists // max(1, n)))

    def depth(self, k: int, n: int) -> int:
        """HNSW: how many candidates are held (efSearch), of n vectors; among more, more to find as many."""
        return int(max(192, 3 * k) * max(1.0, (n / _MEASURED_ON) ** 0.25))


def nodes_of(vectors: VectorFolder) -> Rows:
    """`(n,) int64`: of each row, the number of its vector among the distinct ones.

    These are numbered in the order in which they come, so numbers stay when rows are added.
    """
    keys = [record_hash(row) for shard in vectors.shards for row in np.ascontiguousarray(shard.vectors)]
    _, first, inverse = np.unique(np.array(keys, np.uint64), return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.int64)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[inverse]


def build(parameters: Parameters, vectors: VectorFolder, nodes: Rows | None = None) -> Any:
    """An IVF or HNSW index of all rows, in their order.

    FAISS's numbers are the rows or, where rows share vectors, the `nodes` that `nodes_of` gives.
    """
    faiss = _faiss()

    width, metric = vectors.width, faiss.METRIC_INNER_PRODUCT
    if parameters.kind == "ivf":
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(width),
            width,
            parameters.lists,
            faiss.ScalarQuantizer.QT_fp16,
            metric,
            False,  # the vectors themselves, not what is left of them after their list's center
        )
        n = len(vectors)
        sample = np.random.default_rng(0).permutation(n)[: parameters.lists * _TRAINED_ON]
        index.train(vectors.take(np.sort(sample)))
    else:
        index = faiss.IndexHNSWSQ(width, faiss.ScalarQuantizer.QT_fp16, parameters.links, metric)
        index.train(np.zeros((1, width), np.float32))  # nothing is learned, but it must have been called
        index.hnsw.efConstruction = parameters.build_depth
    extend(index, vectors, nodes)
    return index


def extend(index: Any, vectors: VectorFolder, nodes: Rows | None = None) -> None:
    """Add what an index does not have yet: the rows after its last, or the first row of each new node."""
    if nodes is None:
        rows = np.arange(index.ntotal, len(vectors))
    else:
        rows = np.unique(nodes, return_index=True)[1][index.ntotal :]
    for block in vectors.blocks(rows):
        index.add(block)


def write(index: Any, path: Path) -> None:
    """Write an index; the file is there whole or not at all.

    Through a stream of Python's: FAISS does not look whether closing a file failed, which on a full disk
    leaves it short.

    :raises StorageError: the disk is full or may not be written.
    """
    faiss = _faiss()
    failed: list[OSError] = []

    def to(stream: BinaryIO) -> None:
        def write_on(data: bytes) -> int:
            try:
                stream.write(data)
            except OSError as error:  # FAISS would lose it
                failed.append(error)
            return len(data)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write_on))
        if failed:
            raise failed[0]

    atomic_write(path, to)


def read(path: Path) -> Any:
    """Read an index; a damaged file, or one that claims more than it holds, is an InputError."""
    faiss = _faiss()

    try:
        size = path.stat().st_size
        if limit := getattr(faiss, "set_deserialization_vector_byte_limit", None):
            limit(size)  # of each array, before FAISS takes memory for it
        index = faiss.read_index(str(path))
        if not isinstance(index, (faiss.IndexIVFScalarQuantizer, faiss.IndexHNSWSQ)):
            raise RuntimeError(f"it is of the kind {type(index).__name__}")
        if not 0 <= index.ntotal <= size:
            raise RuntimeError(f"it claims {index.ntotal:,} vectors in {size:,} bytes")
        return index
    except (RuntimeError, MemoryError, OSError) as error:
        raise InputError(
            f"expected an index of FAISS, could not read it: {str(error).splitlines()[0]}",
            where=str(path),
            remedy="delete this file and run: dense index",
        ) from error


@contextmanager
def _threads(n: int) -> Iterator[None]:
    """So many threads for FAISS."""
    faiss = _faiss()

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class FlatSearch:
    """Exact search of some rows by FAISS, in memory; on all GPUs where FAISS can use them."""

    exact = True

    def __init__(self, vectors: VectorFolder, rows: Rows) -> None:
        faiss = _faiss()

        self.rows = rows
        self.index = faiss.IndexFlatIP(vectors.width)
        for block in vectors.blocks(rows):
            self.index.add(block)
        self._bits, self._kept = np.empty(0, np.uint8), None
        self.on_gpu = None
        if len(rows) and getattr(faiss, "get_num_gpus", int)() > 0:
            self.on_gpu = faiss.index_cpu_to_all_gpus(self.index)

    def __call__(self, questions: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """As `dense.search.exact.Candidates` says."""
        index = self.on_gpu if self.on_gpu is not None and k <= _GPU_K else self.index
        with _threads(threads):
            scores, found = index.search(questions, k, params=self._kept)
        return np.where(found < 0, -1, self.rows[found] if len(self.rows) else -1), scores

    def within(self, kept: Kept) -> Candidates:
        """As `Candidates` says; FAISS looks at those rows alone."""
        part = copy.copy(self)
        part.on_gpu = None  # which knows no selection
        part._bits = np.packbits(kept, bitorder="little")
        part._kept = _faiss().SearchParameters(sel=_faiss().IDSelectorBitmap(part._bits))
        return part


class ApproximateSearch:
    """IVF or HNSW, with the rows that are gone left out."""

    exact = False

    def __init__(self, index: Any, parameters: Parameters, rows: Rows, nodes: Rows | None = None) -> None:
        """Search an index for those `rows` alone; `nodes (n,)` of all rows, where some share vectors."""
        faiss = _faiss()

        self.index, self.parameters, self._shared = index, parameters, nodes is not None
        self._all, self._nodes = rows, nodes
        own = rows if nodes is None else nodes[rows]
        self._rows = rows[np.argsort(own, kind="stable")]  # those of one node side by side, in their order
        held = np.bincount(own, minlength=index.ntotal)
        self._ends = np.cumsum(held)
        self._starts = self._ends - held
        live = int((held > 0).sum())
        self.widened = index.ntotal / max(1, live)  # those that are gone take places in what is looked at
        self._selector: Any = None
        if live < index.ntotal:
            self._bits = np.packbits(held > 0, bitorder="little")
            self._selector = faiss.IDSelectorBitmap(self._bits)

    @classmethod
    def open(cls, path: Path, parameters: Parameters, rows: Rows, nodes: Rows | None = None) -> Self:
        """Read the index first."""
        index = read(path)
        numbers = rows if nodes is None else nodes
        if int(numbers.max(initial=-1)) >= index.ntotal:
            raise InputError(
                f"expected an index of FAISS with vector {numbers.max():,}, found {index.ntotal:,} vectors",
                where=str(path),
                remedy="delete this file and run: dense index",
            )
        return cls(index, parameters, rows, nodes)

    def __call__(self, questions: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """As `dense.search.exact.Candidates` says."""
        faiss = _faiss()

        requested = int(k * self.widened)
        given: dict[str, Any] = {"sel": self._selector} if self._selector is not None else {}
        if self.parameters.kind == "ivf":
            probes = self.parameters.probes(requested, self.index.ntotal)
            chosen = faiss.SearchParametersIVF(nprobe=probes, **given)
        else:
            chosen = faiss.SearchParametersHNSW(
                efSearch=self.parameters.depth(requested, self.index.ntotal), **given
            )
        with _threads(threads):
            scores, found = self.index.search(questions, k, params=chosen)
        return self._expanded(found, scores) if self._shared else (found, scores)

    def within(self, kept: Kept) -> Candidates:
        """As `Candidates` says; the others are left out as those that are gone are."""
        return ApproximateSearch(self.index, self.parameters, self._all[kept], self._nodes)

    def _expanded(self, found: Rows, scores: Floats) -> tuple[Rows, Floats]:
        """The rows that stand behind what FAISS numbered, as many as it found."""
        rows = np.full(found.shape, -1, np.int64)
        expanded = np.full(found.shape, -np.inf, np.float32)
        for q, numbers in enumerate(found):
            known = numbers >= 0
            nodes = numbers[known]
            sizes = self._ends[nodes] - self._starts[nodes]
            before = np.cumsum(sizes) - sizes
            places = np.repeat(self._starts[nodes] - before, sizes) + np.arange(sizes.sum())
            n = min(len(places), found.shape[1])
            rows[q, :n] = self._rows[places[:n]]
            expanded[q, :n] = np.repeat(scores[q][known], sizes)[:n]
        return rows, expanded
