"""The bytes that cross the Java border: numbers are little-endian, strings UTF-8.

A *string table* is `int32 n, int32 offsets[n+1], bytes`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sparta.base.checks import not_unicode
from sparta.base.errors import InputError
from sparta.base.normal_form import normal_form

Integers = npt.NDArray[np.integer[Any]] | Sequence[int]
EXACT_SCORES = 2**24
"""Impact scores below this number are exact. Lucene rounds larger scores to float32."""
MOST_BYTES = 2**31 - 9
_FEW = 64  # strings, for which NumPy would take longer


@dataclass(frozen=True, slots=True)
class Hits:
    """Hits of several queries, each query's best first; those of query q are `[indptr[q], indptr[q+1])`.

    :param indptr: `(n_queries + 1,) int32`
    :param docids: `(n_hits,) int32`, Lucene's numbers, valid for the searcher that gave them
    :param scores: `(n_hits,) float32`
    """

    indptr: npt.NDArray[np.int32]
    docids: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def query(self, q: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Return docids and scores of one query."""
        part = slice(self.indptr[q], self.indptr[q + 1])
        return self.docids[part], self.scores[part]


@dataclass(frozen=True, slots=True)
class TermPostings:
    """Some terms in byte order with all their postings; those of term t are `[indptr[t], indptr[t+1])`.

    :param terms: n terms
    :param indptr: `(n + 1,) int32`
    :param docids: `(n_postings,) int32`, live, ascending in each term
    :param impacts: `(n_postings,) int32`
    """

    terms: list[str]
    indptr: npt.NDArray[np.int32]
    docids: npt.NDArray[np.int32]
    impacts: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ReadVectors:
    """What Java read of n lines of JSON vectors; the postings of line i are `[indptr[i], indptr[i+1])`.

    :param spans: `(n, 2) int32`, where the vector stands in its line, in bytes; −1 in a line that Java leaves
        to Python
    :param indptr: `(n + 1,) int32`
    :param term_ids: `(n_postings,) int32`
    :param impacts: `(n_postings,) int32`, at least 1
    :param zeros: impacts of 0, which are left out
    :param new_terms: terms that nothing before has told of; their ids count on
    """

    spans: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]
    term_ids: npt.NDArray[np.int32]
    impacts: npt.NDArray[np.int32]
    zeros: int
    new_terms: list[str]


def pack_strings(strings: Sequence[str]) -> bytes:
    """Pack strings into a string table.

    :raises InputError: a string that UTF-8 cannot hold, or more than 2 GB of them.
    """
    try:
        return pack_bytes([string.encode() for string in strings])
    except UnicodeEncodeError as error:
        raise not_unicode(error) from error


def composed(text: str) -> str:
    """Return a text to be analyzed with each accented letter as one character (NFC), however it was typed."""
    return normal_form("NFC", text)


def pack_texts(texts: Sequence[str]) -> bytes:
    """Return a string table of texts to be analyzed, `composed`."""
    return pack_strings([composed(text) for text in texts])


def pack_bytes(encoded: Sequence[bytes]) -> bytes:
    """Pack strings that are UTF-8 already into a string table.

    :raises InputError: more than 2 GB of them.
    """
    n = len(encoded)
    if n <= _FEW:
        ends = list(itertools.accumulate(map(len, encoded), initial=0))
        check_size(ends[-1] + 4 * n + 8)
        return b"".join([struct.pack(f"<{n + 2}i", n, *ends), *encoded])
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum([len(string) for string in encoded], out=offsets[1:])
    check_size(int(offsets[-1]) + 4 * len(offsets) + 4)
    return b"".join([np.array([n], "<i4").tobytes(), offsets.astype("<i4").tobytes(), *encoded])


def unpack_strings(data: bytes, start: int = 0) -> list[str]:
    """Unpack a string table that begins at `start`."""
    n = int(np.frombuffer(data, "<i4", 1, start)[0])
    offsets = np.frombuffer(data, "<i4", n + 1, start + 4)
    edges = (offsets.astype(np.int64) + start + 4 * (n + 2)).tolist()
    return [data[begin:end].decode() for begin, end in pairwise(edges)]


def pack_integers(values: Integers, dtype: type[np.int32 | np.int64], name: str) -> bytes:
    """Pack integers, little-endian.

    :param name: what a message calls them.
    :raises InputError: not one row of integers, or one that `dtype` cannot hold.
    """
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return b""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{name}: expected one row of integers, found {array.dtype} of shape {array.shape}")
    limits = np.iinfo(dtype)
    if array.dtype.itemsize > limits.dtype.itemsize or array.dtype.kind == "u":
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise InputError(f"{name}: {low} to {high} does not fit into {limits.dtype}")
    check_size(array.size * limits.dtype.itemsize)
    return array.astype(limits.dtype.newbyteorder("<"), copy=False).tobytes()


def pack_queries(queries: Sequence[Mapping[str, int]]) -> bytes:
    """Pack weighted queries: `int32 n, int32 indptr[n+1], int32 weights[m]`, a string table of m terms."""
    indptr = np.zeros(len(queries) + 1, "<i4")
    np.cumsum([len(query) for query in queries], out=indptr[1:])
    weights = pack_integers([w for query in queries for w in query.values()], np.int32, "query-term weights")
    terms = [term for query in queries for term in query]
    head = np.array([len(queries)], "<i4")
    return b"".join([head.tobytes(), indptr.tobytes(), weights, pack_strings(terms)])


def unpack_hits(data: bytes) -> Hits:
    """Unpack `int32 n, int32 indptr[n+1], int32 docids[h], float32 scores[h]`."""
    n = int(np.frombuffer(data, "<i4", 1)[0])
    indptr = np.frombuffer(data, "<i4", n + 1, 4)
    start, hits = 4 * (n + 2), int(indptr[-1])
    docids = np.frombuffer(data, "<i4", hits, start)
    return Hits(indptr, docids, np.frombuffer(data, "<f4", hits, start + 4 * hits))


def unpack_postings(data: bytes) -> TermPostings:
    """Unpack `int32 t, int32 indptr[t+1], int32 docids[p], int32 impacts[p]`, a string table of t terms."""
    t = int(np.frombuffer(data, "<i4", 1)[0])
    indptr = np.frombuffer(data, "<i4", t + 1, 4)
    start, p = 4 * (t + 2), int(indptr[-1])
    docids = np.frombuffer(data, "<i4", p, start)
    impacts = np.frombuffer(data, "<i4", p, start + 4 * p)
    return TermPostings(unpack_strings(data, start + 8 * p), indptr, docids, impacts)


def unpack_vectors(data: bytes) -> ReadVectors:
    """Unpack `int32 n, begins[n], ends[n], indptr[n+1], zeros, terms[m], impacts[m]`, a string table."""
    n = int(np.frombuffer(data, "<i4", 1)[0])
    spans = np.frombuffer(data, "<i4", 2 * n, 4).reshape(2, n).T
    indptr = np.frombuffer(data, "<i4", n + 1, 4 + 8 * n)
    m, start = int(indptr[-1]), 12 * n + 8
    zeros = int(np.frombuffer(data, "<i4", 1, start)[0])
    term_ids = np.frombuffer(data, "<i4", m, start + 4)
    impacts = np.frombuffer(data, "<i4", m, start + 4 + 4 * m)
    return ReadVectors(spans, indptr, term_ids, impacts, zeros, unpack_strings(data, start + 4 + 8 * m))


def check_size(size: int) -> None:
    """Refuse more bytes than one Java array holds."""
    if size > MOST_BYTES:
        raise InputError(
            f"a batch of {size:,} bytes; at most 2 GB pass at once", remedy="use smaller batches"
        )
