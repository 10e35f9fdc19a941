"""Pack and unpack the bytes exchanged with Java: numbers are little-endian, strings UTF-8.

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
_FEW_STRINGS = 64  # up to this many strings, struct is faster than NumPy


@dataclass(frozen=True, slots=True)
class Hits:
    """The hits of several queries, best first; query q has the hits `[indptr[q], indptr[q+1])`.

    :param indptr: `(n_queries + 1,) int32`
    :param docids: `(n_hits,) int32`, Lucene's docids, valid only for the same searcher
    :param scores: `(n_hits,) float32`
    """

    indptr: npt.NDArray[np.int32]
    docids: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def query(self, q: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Return the docids and scores of one query."""
        query_slice = slice(self.indptr[q], self.indptr[q + 1])
        return self.docids[query_slice], self.scores[query_slice]


@dataclass(frozen=True, slots=True)
class TermPostings:
    """Terms in byte order with all their postings; term t has the postings `[indptr[t], indptr[t+1])`.

    :param terms: n terms
    :param indptr: `(n + 1,) int32`
    :param docids: `(n_postings,) int32`, live, ascending within each term
    :param impacts: `(n_postings,) int32`
    """

    terms: list[str]
    indptr: npt.NDArray[np.int32]
    docids: npt.NDArray[np.int32]
    impacts: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ReadVectors:
    """The vectors of n JSON lines, parsed by Java; line i has the postings `[indptr[i], indptr[i+1])`.

    :param spans: `(n, 2) int32`, the byte offsets of the vector in its line; −1 if Java could not parse the
        line
    :param indptr: `(n + 1,) int32`
    :param term_ids: `(n_postings,) int32`
    :param impacts: `(n_postings,) int32`, at least 1
    :param zeros: the number of impacts of 0, which are left out
    :param new_terms: the terms that occur for the first time; their ids continue the numbering
    """

    spans: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]
    term_ids: npt.NDArray[np.int32]
    impacts: npt.NDArray[np.int32]
    zeros: int
    new_terms: list[str]


def pack_strings(strings: Sequence[str]) -> bytes:
    """Return the string table of these strings.

    :raises InputError: a string is not valid Unicode, or the strings exceed 2 GB.
    """
    try:
        return pack_bytes([string.encode() for string in strings])
    except UnicodeEncodeError as error:
        raise not_unicode(error) from error


def composed(text: str) -> str:
    """Return a text in Unicode's composed form (NFC): each accented letter is one character."""
    return normal_form("NFC", text)


def pack_texts(texts: Sequence[str]) -> bytes:
    """Return the string table of texts for analysis, in composed form (see `composed`)."""
    return pack_strings([composed(text) for text in texts])


def pack_bytes(encoded: Sequence[bytes]) -> bytes:
    """Return the string table of strings that are already UTF-8 bytes.

    :raises InputError: the strings exceed 2 GB.
    """
    string_count = len(encoded)
    if string_count <= _FEW_STRINGS:
        ends = list(itertools.accumulate(map(len, encoded), initial=0))
        check_size(ends[-1] + 4 * string_count + 8)
        return b"".join([struct.pack(f"<{string_count + 2}i", string_count, *ends), *encoded])
    offsets = np.zeros(string_count + 1, np.int64)
    np.cumsum([len(string) for string in encoded], out=offsets[1:])
    check_size(int(offsets[-1]) + 4 * len(offsets) + 4)
    return b"".join([np.array([string_count], "<i4").tobytes(), offsets.astype("<i4").tobytes(), *encoded])


def unpack_strings(data: bytes, start: int = 0) -> list[str]:
    """Return the strings of a string table that begins at the offset `start`."""
    n = int(np.frombuffer(data, "<i4", 1, start)[0])
    offsets = np.frombuffer(data, "<i4", n + 1, start + 4)
    edges = (offsets.astype(np.int64) + start + 4 * (n + 2)).tolist()
    return [data[begin:end].decode() for begin, end in pairwise(edges)]


def pack_integers(values: Integers, dtype: type[np.int32 | np.int64], name: str) -> bytes:
    """Return integers as little-endian bytes.

    :param name: the name of the values, for error messages.
    :raises InputError: the values are not a one-dimensional array of integers, or one does not fit `dtype`.
    """
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return b""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"{name} must be a one-dimensional array of integers, found {array.dtype} of shape {array.shape}"
        )
    limits = np.iinfo(dtype)
    if array.dtype.itemsize > limits.dtype.itemsize or array.dtype.kind == "u":
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise InputError(f"{name} has values from {low} to {high}, which do not fit into {limits.dtype}")
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
    indptr, docids, scores, _ = _rows(data, "<f4")
    return Hits(indptr, docids, scores)


def unpack_postings(data: bytes) -> TermPostings:
    """Unpack `int32 t, int32 indptr[t+1], int32 docids[p], int32 impacts[p]`, a string table of t terms."""
    indptr, docids, impacts, end = _rows(data, "<i4")
    return TermPostings(unpack_strings(data, end), indptr, docids, impacts)


def _rows(
    data: bytes, dtype: str
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[Any], int]:
    """Unpack `int32 n, int32 indptr[n+1], int32 docids[m]` and `m` values of 4 bytes, and return the end."""
    n = int(np.frombuffer(data, "<i4", 1)[0])
    indptr = np.frombuffer(data, "<i4", n + 1, 4)
    start, m = 4 * (n + 2), int(indptr[-1])
    docids = np.frombuffer(data, "<i4", m, start)
    return indptr, docids, np.frombuffer(data, dtype, m, start + 4 * m), start + 8 * m


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
    """Raise if the bytes exceed the largest Java array."""
    if size > MOST_BYTES:
        raise InputError(
            f"the batch has {size:,} bytes; Java takes at most 2 GB", remedy="use smaller batches"
        )
