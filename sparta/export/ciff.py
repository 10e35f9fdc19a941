"""Writing the Common Index File Format, version 1 (osirrc/ciff), as length-prefixed protobuf messages.

A file holds one Header, then all posting lists, then all document records. Fields with the value 0 are
omitted, as in protobuf, so the bytes equal those of any protobuf library. NumPy encodes the postings of a
page of terms at once. Protobuf's Python objects, one per posting, would take six times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

VERSION = 1
LARGEST = 2**31 - 1
"""The largest docid, impact or passage length in the format (int32)."""

_VARINT, _DOUBLE, _BYTES = 0, 1, 2
_POSTING = 4


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file with a whole index: numbers of posting lists and documents, sum of impacts."""

    lists: int
    documents: int
    total_terms: int
    description: str

    def encode(self) -> bytes:
        """Return the header as the first message of the file."""
        average = self.total_terms / self.documents if self.documents else 0.0
        return _delimited(
            _number(1, VERSION),
            _number(2, self.lists),
            _number(3, self.documents),
            _number(4, self.lists),
            _number(5, self.documents),
            _number(6, self.total_terms),
            _tag(7, _DOUBLE) + struct.pack("<d", average) if average else b"",
            _string(8, self.description),
        )


def postings_lists(
    terms: Sequence[str],
    indptr: npt.NDArray[np.integer[Any]],
    docids: npt.NDArray[np.integer[Any]],
    impacts: npt.NDArray[np.integer[Any]],
) -> Iterator[bytes]:
    """Yield the PostingsList message of each term; term t has the postings `[indptr[t], indptr[t+1])`.

    :param terms: n terms, each with at least one posting
    :param docids: `(n_postings,)` integers, ascending within each term; the file stores their differences
    :param impacts: `(n_postings,)` integers of at least 1, stored as term frequencies
    """
    if not terms:
        return
    gaps = np.diff(docids, prepend=0)
    gaps[indptr[:-1]] = docids[indptr[:-1]]
    data, ends = _postings(gaps, impacts)
    offsets = np.concatenate(([0], ends))[indptr].tolist()
    counts = np.diff(indptr).tolist()
    impact_sums = np.add.reduceat(impacts, indptr[:-1], dtype=np.int64).tolist()
    for term, df, cf, begin, end in zip(terms, counts, impact_sums, offsets, offsets[1:], strict=False):
        yield _delimited(_string(1, term), _number(2, df), _number(3, cf), data[begin:end])


def doc_record(docid: int, passage_id: str, length: int) -> bytes:
    """Return the DocRecord message of one passage."""
    return _delimited(_number(1, docid), _string(2, passage_id), _number(3, length))


def _postings(
    gaps: npt.NDArray[np.integer[Any]], impacts: npt.NDArray[np.integer[Any]]
) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Return all encoded postings as one byte string, and the end offset of each posting.

    Each posting is encoded in a row of cells that is wide enough for the longest posting. A mask drops the
    unused cells.
    """
    docid, docid_used = _varints(gaps)
    tf, tf_used = _varints(impacts)
    docid_used &= (gaps > 0)[:, None]
    cells = np.empty((len(gaps), 4 + docid.shape[1] + tf.shape[1]), np.uint8)
    used = np.ones(cells.shape, np.bool_)
    middle = 3 + docid.shape[1]
    cells[:, 0] = _tag(_POSTING, _BYTES)[0]
    cells[:, 2] = _tag(1, _VARINT)[0]
    cells[:, 3:middle] = docid
    cells[:, middle] = _tag(2, _VARINT)[0]
    cells[:, middle + 1 :] = tf
    used[:, 2] = gaps > 0
    used[:, 3:middle] = docid_used
    used[:, middle + 1 :] = tf_used
    sizes = used.sum(1)
    cells[:, 1] = sizes - 2  # at most 12, so one byte suffices
    return cells[used].tobytes(), np.cumsum(sizes, dtype=np.int64)


def _varints(values: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Encode values as varints: rows of cells with 7 bits each, lowest first, and a mask of used cells."""
    unsigned = values.astype(np.uint32)
    width = max(1, -(-int(unsigned.max()).bit_length() // 7))
    cells = np.empty((len(values), width), np.uint8)
    used = np.empty(cells.shape, np.bool_)
    for i in range(width):
        used[:, i] = (unsigned > 0) | (i == 0)
        cells[:, i] = (unsigned & 0x7F) | ((unsigned > 0x7F) << 7)
        unsigned >>= 7
    return cells, used


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _tag(number: int, kind: int) -> bytes:
    return bytes([number << 3 | kind])


def _number(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value) if value else b""


def _string(number: int, value: str) -> bytes:
    data = value.encode()
    return _tag(number, _BYTES) + _varint(len(data)) + data if data else b""


def _delimited(*fields: bytes) -> bytes:
    message = b"".join(fields)
    return _varint(len(message)) + message
