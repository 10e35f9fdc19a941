"""FAISS indexes of a folder of vectors: flat, IVF, IVF-PQ or HNSW, by inner product."""

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

from dense.search.exact import Candidates, RowMask
from dense.search.store import Floats, Rows, VectorFolder, record_hash
from sparta.base.errors import InputError
from sparta.base.files import atomic_write
from sparta.base.remedies import Command, Option, Remedy, remedy

KINDS = ("flat", "ivf", "ivfpq", "hnsw")
LARGEST_FLAT = 200_000
"""The largest number of vectors for which `auto` chooses flat search, which is exact and needs no build.

On one core, flat search takes 20 ms/query for 100,000 vectors of width 384 (benchmarks/vector_search.py). At
200,000 it takes about as long as a small encoder takes to encode the query. IVF-PQ takes 3 ms/query for
341,354 vectors, and 9.5 ms for 8.8 million (benchmarks/dense_size.py).
"""
_LARGEST_GPU_K = 2048
"""The largest k that FAISS supports on a GPU."""
_BASE_SIZE = 100_000
"""Number of vectors for which the smallest search depth of HNSW was measured."""
_TRAINING_VECTORS_PER_LIST = 64
"""Number of vectors per IVF list that k-means is trained on."""
_PQ_PROBES = 8.0
"""IVF-PQ searches this number times the square root of the number of lists."""
_PQ_HITS = 128
"""For more hits, IVF-PQ searches more lists: twice as many for eight times as many hits."""
SMALLEST_PQ = 624
"""Smallest number of vectors for IVF-PQ. FAISS advises 39 for each of the 16 centroids that 4 bits name."""
_PQ_CANDIDATES = 5
"""Number of vectors per hit that IVF-PQ returns to be scored exactly."""


def has_faiss() -> bool:
    """Return whether FAISS is installed, without importing it."""
    return importlib.util.find_spec("faiss") is not None


def _faiss() -> Any:
    """Import FAISS at the first use. Its type is Any: FAISS adds methods at run time that its stubs lack."""
    return importlib.import_module("faiss")


def choose_kind(requested: str, n: int) -> str:
    """Return the kind of index for n vectors.

    `auto` chooses flat search for up to `LARGEST_FLAT` vectors or without FAISS, else IVF-PQ (decision 0052).
    Without vectors, or with too few to train IVF-PQ, the kind is flat.

    :raises InputError: unknown kind, or a kind that needs FAISS, which is not installed.
    """
    if requested not in ("auto", *KINDS):
        raise InputError(
            f"unknown kind of index {requested!r}; known kinds: auto, {', '.join(KINDS)}",
            remedy=remedy("omit {}: the default auto chooses by the number of passages", Option("kind")),
        )
    if requested == "auto":
        return "flat" if n <= LARGEST_FLAT or not has_faiss() else "ivfpq"
    if requested != "flat" and not has_faiss():
        raise InputError(
            f"an index of kind {requested} needs FAISS, which is not installed",
            remedy=remedy(
                "pip install 'sparta-search[dense]', or use {}, which is exact", Option("kind", "flat")
            ),
        )
    least = SMALLEST_PQ if requested == "ivfpq" else 1
    return requested if n >= least else "flat"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The build parameters of an approximate index. The search depth follows from them and from k.

    `lists` is the number of IVF lists (IVF and IVF-PQ). `links` and `build_depth` are M and efConstruction
    of HNSW.

    IVF-PQ stores each vector's difference from the centroid of its list, 4 bits for each pair of dimensions
    (`IndexIVFPQFastScan`). So a search scores more candidates than k roughly, and the vectors on disk decide
    among them.

    HNSW stores each distinct vector once. Otherwise all neighbors of a vector that many rows share would be
    copies of this vector, and a search that reached one copy could not leave the copies.
    """

    kind: str
    lists: int = 0
    links: int = 0
    build_depth: int = 0

    @property
    def distinct(self) -> bool:
        """Whether the index stores each distinct vector once."""
        return self.kind == "hnsw"

    @staticmethod
    def default(kind: str, n: int) -> Parameters:
        """Return the default parameters for n vectors."""
        if kind in ("ivf", "ivfpq"):
            return Parameters(kind, lists=int(max(1, min(4 * n**0.5, n // 39))))
        if kind == "hnsw":
            return Parameters(kind, links=32, build_depth=64)
        return Parameters(kind)

    def probes(self, k: int, n: int) -> int:
        """Return the number of IVF lists to search for the k best of n vectors (nprobe)."""
        many = max(1.0, k / _PQ_HITS) ** (1 / 3)
        share = self.lists // 8 if self.kind == "ivf" else int(_PQ_PROBES * many * self.lists**0.5)
        return min(self.lists, max(share, 40 * k * self.lists // max(1, n)))

    def candidates(self, k: int, n: int) -> int:
        """Return the number of vectors among n that a search returns to be scored exactly, for the k best."""
        return min(n, _PQ_CANDIDATES * k) if self.kind == "ivfpq" else k

    def depth(self, k: int, n: int) -> int:
        """Return the number of HNSW candidates for the k best of n vectors (efSearch). It grows with n."""
        return int(max(192, 3 * k) * max(1.0, (n / _BASE_SIZE) ** 0.25))


def nodes_of(vectors: VectorFolder) -> Rows:
    """Return the number of each row's vector among the distinct vectors, `(n,) int64`.

    Distinct vectors are numbered in the order of their first rows, so numbers stay the same when rows are
    added.
    """
    keys = [record_hash(row) for shard in vectors.shards for row in np.ascontiguousarray(shard.vectors)]
    _, first_rows, key_of_row = np.unique(np.array(keys, np.uint64), return_index=True, return_inverse=True)
    node_numbers = np.empty(len(first_rows), np.int64)
    node_numbers[np.argsort(first_rows)] = np.arange(len(first_rows))
    return node_numbers[key_of_row]


def build(parameters: Parameters, vectors: VectorFolder, nodes: Rows | None = None) -> Any:
    """Build an IVF, IVF-PQ or HNSW index of all rows, in their order.

    :param nodes: the result of `nodes_of`, if the index stores each distinct vector once; None if FAISS's
        numbers are the row numbers
    """
    faiss = _faiss()

    width, metric = vectors.width, faiss.METRIC_INNER_PRODUCT
    if parameters.kind != "hnsw":
        lists = faiss.IndexFlatIP(width), width, parameters.lists
        if parameters.kind == "ivf":  # False: store each vector, not its difference from the list's centroid
            index = faiss.IndexIVFScalarQuantizer(*lists, faiss.ScalarQuantizer.QT_fp16, metric, False)
        else:
            index = faiss.IndexIVFPQFastScan(*lists, width if width % 2 else width // 2, 4, metric)
            index.by_residual = True
        n = len(vectors)
        sample = np.random.default_rng(0).permutation(n)[: parameters.lists * _TRAINING_VECTORS_PER_LIST]
        index.train(vectors.take(np.sort(sample)))
    else:
        index = faiss.IndexHNSWSQ(width, faiss.ScalarQuantizer.QT_fp16, parameters.links, metric)
        index.train(np.zeros((1, width), np.float32))  # FAISS requires the call, though it learns nothing
        index.hnsw.efConstruction = parameters.build_depth
    extend(index, vectors, nodes)
    return index


def extend(index: Any, vectors: VectorFolder, nodes: Rows | None = None) -> None:
    """Add the vectors that an index lacks: new rows, or the first row of each new node."""
    if nodes is None:
        rows = np.arange(index.ntotal, len(vectors))
    else:
        rows = np.unique(nodes, return_index=True)[1][index.ntotal :]
    for block in vectors.blocks(rows):
        index.add(block)


def write(index: Any, path: Path) -> None:
    """Write an index to a file, atomically.

    FAISS writes through a Python stream: it ignores errors on closing a file, so on a full disk its file
    would be incomplete.

    :raises StorageError: the disk is full or not writable.
    """
    faiss = _faiss()
    failed: list[OSError] = []

    def write_to(stream: BinaryIO) -> None:
        def write_on(data: bytes) -> int:
            try:
                stream.write(data)
            except OSError as error:  # FAISS does not report an error of the callback
                failed.append(error)
            return len(data)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write_on))
        if failed:
            raise failed[0]

    atomic_write(path, write_to)


def read(path: Path) -> Any:
    """Read an index from a file.

    :raises InputError: the file is damaged, is no IVF, IVF-PQ or HNSW index, or claims more vectors than fit
        into it.
    """
    faiss = _faiss()

    try:
        size = path.stat().st_size
        if limit := getattr(faiss, "set_deserialization_vector_byte_limit", None):
            # Without a limit, a damaged file could make FAISS allocate far too much memory. For IVF-PQ, FAISS
            # counts a table of eight times the centroids' bytes, which inner products do not need.
            limit(8 * size)
        index = faiss.read_index(str(path))
        if not _is_approximate(index):
            raise RuntimeError(f"the file has an unsupported kind of index, {type(index).__name__}")
        if not 0 <= index.ntotal <= size:
            raise RuntimeError(f"the header claims {index.ntotal:,} vectors in {size:,} bytes")
        return index
    except (RuntimeError, MemoryError, OSError) as error:
        raise InputError(
            f"cannot read the FAISS index: {str(error).splitlines()[0]}",
            where=str(path),
            remedy=_how_to_rebuild(path),
        ) from error


def _how_to_rebuild(path: Path) -> Remedy:
    """Return the remedy for a damaged file of FAISS in the dense channel of an index."""
    command = Command.of("dense index", index=path.parent.parent)
    return remedy("delete this file and rebuild the dense channel with: {}", command)


def _is_approximate(index: Any) -> bool:
    """Return whether an index is of FAISS's classes of the approximate kinds."""
    faiss = _faiss()
    kinds = faiss.IndexIVFScalarQuantizer, faiss.IndexIVFPQFastScan, faiss.IndexHNSWSQ
    return isinstance(index, kinds)


@contextmanager
def _faiss_threads(n: int) -> Iterator[None]:
    """Set FAISS's number of threads for the block."""
    faiss = _faiss()

    n_before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(n_before)


class FlatSearch:
    """Exact search of some rows by FAISS in memory, on all GPUs if FAISS supports them."""

    exact = True

    def __init__(self, vectors: VectorFolder, rows: Rows) -> None:
        faiss = _faiss()

        self.rows = rows
        self.index = faiss.IndexFlatIP(vectors.width)
        for block in vectors.blocks(rows):
            self.index.add(block)
        self._mask_bits, self._search_parameters = np.empty(0, np.uint8), None
        self.on_gpu = None
        if len(rows) and getattr(faiss, "get_num_gpus", int)() > 0:
            self.on_gpu = faiss.index_cpu_to_all_gpus(self.index)

    def __call__(self, query_vectors: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """Return the k best rows and their scores; see `dense.search.exact.Candidates`."""
        index = self.on_gpu if self.on_gpu is not None and k <= _LARGEST_GPU_K else self.index
        with _faiss_threads(threads):
            scores, numbers = index.search(query_vectors, k, params=self._search_parameters)
        return np.where(numbers < 0, -1, self.rows[numbers] if len(self.rows) else -1), scores

    def within(self, mask: RowMask) -> Candidates:
        """Return a search that is limited to some rows; see `Candidates`. FAISS skips all other rows."""
        search = copy.copy(self)
        search.on_gpu = None  # FAISS cannot filter rows on a GPU
        search._mask_bits = np.packbits(mask, bitorder="little")
        search._search_parameters = _faiss().SearchParameters(
            sel=_faiss().IDSelectorBitmap(search._mask_bits)
        )
        return search


class ApproximateSearch:
    """Searches an IVF, IVF-PQ or HNSW index, without the vectors that have no live row."""

    exact = False

    def __init__(self, index: Any, parameters: Parameters, rows: Rows, nodes: Rows | None = None) -> None:
        """Search an index, limited to some rows of the folder of vectors.

        :param rows: row numbers of the searchable rows
        :param nodes: FAISS's number of the vector of each row, `(n,)` for all n rows of the folder; None if
            FAISS's numbers are the row numbers
        """
        faiss = _faiss()

        self.index, self.parameters, self._has_nodes = index, parameters, nodes is not None
        self._all_rows, self._nodes = rows, nodes
        numbers = rows if nodes is None else nodes[rows]
        self._rows_by_number = rows[np.argsort(numbers, kind="stable")]  # groups the rows of each node
        n_rows = np.bincount(numbers, minlength=index.ntotal)
        self._ends = np.cumsum(n_rows)
        self._starts = self._ends - n_rows
        n_live = int((n_rows > 0).sum())
        # FAISS also visits vectors without a live row, so a search must look at more vectors.
        self.widened = index.ntotal / max(1, n_live)
        self._selector: Any = None
        if n_live < index.ntotal:
            self._mask_bits = np.packbits(n_rows > 0, bitorder="little")
            self._selector = faiss.IDSelectorBitmap(self._mask_bits)

    @classmethod
    def open(cls, path: Path, parameters: Parameters, rows: Rows, nodes: Rows | None = None) -> Self:
        """Read an index from a file and return a search of this index, limited to some rows.

        :param rows: row numbers of the searchable rows; see the constructor
        :param nodes: FAISS's number of the vector of each row; see the constructor
        :raises InputError: the file is damaged, or lacks a vector whose number is in `nodes` (without
            `nodes`: in `rows`).
        """
        index = read(path)
        numbers = rows if nodes is None else nodes
        if int(numbers.max(initial=-1)) >= index.ntotal:
            raise InputError(
                f"the FAISS index lacks vector {numbers.max():,}: it has only {index.ntotal:,} vectors",
                where=str(path),
                remedy=_how_to_rebuild(path),
            )
        return cls(index, parameters, rows, nodes)

    def __call__(self, query_vectors: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """Return the k best rows and their scores; see `dense.search.exact.Candidates`."""
        faiss = _faiss()

        requested = int(k * self.widened)
        selector: dict[str, Any] = {"sel": self._selector} if self._selector is not None else {}
        if self.parameters.kind != "hnsw":
            probes = self.parameters.probes(requested, self.index.ntotal)
            parameters = faiss.SearchParametersIVF(nprobe=probes, **selector)
        else:
            parameters = faiss.SearchParametersHNSW(
                efSearch=self.parameters.depth(requested, self.index.ntotal), **selector
            )
        k = self.parameters.candidates(k, self.index.ntotal)
        with _faiss_threads(threads):
            scores, numbers = self.index.search(query_vectors, k, params=parameters)
        return self._rows_of_nodes(numbers, scores) if self._has_nodes else (numbers, scores)

    def within(self, mask: RowMask) -> Candidates:
        """Return a search that is limited to some rows; see `Candidates`. FAISS skips all other rows."""
        return ApproximateSearch(self.index, self.parameters, self._all_rows[mask], self._nodes)

    def _rows_of_nodes(self, numbers: Rows, scores: Floats) -> tuple[Rows, Floats]:
        """Replace FAISS's vector numbers `(q, k)` by the rows that share these vectors, cut off at k rows."""
        rows = np.full(numbers.shape, -1, np.int64)
        row_scores = np.full(numbers.shape, -np.inf, np.float32)
        for query, query_numbers in enumerate(numbers):
            is_found = query_numbers >= 0
            nodes = query_numbers[is_found]
            sizes = self._ends[nodes] - self._starts[nodes]
            offsets = np.cumsum(sizes) - sizes
            places = np.repeat(self._starts[nodes] - offsets, sizes) + np.arange(sizes.sum())
            n = min(len(places), numbers.shape[1])
            rows[query, :n] = self._rows_by_number[places[:n]]
            row_scores[query, :n] = np.repeat(scores[query][is_found], sizes)[:n]
        return rows, row_scores
