"""Arrays that stay in their file; an access reads only the rows that it needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparta.base.errors import IndexStateError
from sparta.base.files import storage_error


class StoredRows:
    """An array in a file: `shape` numbers of `dtype` from byte `start` on. Indexing reads only some rows.

    The class avoids a memory map: a memory map would end the process if another program truncated the file.

    :raises IndexStateError: from reading, if the file was changed since it was opened.
    :raises StorageError: from reading, if the disk fails.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, start: int, shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.shape = path, np.dtype(dtype), shape
        self._start = start
        self.row_bytes = self.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        self._stream = path.open("rb", buffering=0)
        self._file = self._stream.fileno()
        self._opened_state = self._file_state()

    def __del__(self) -> None:
        if stream := getattr(self, "_stream", None):  # none, if the file could not be opened
            stream.close()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return read_rows([self], np.zeros(len(rows), np.int64), rows)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = self[np.arange(len(self))]
        return values if dtype is None else values.astype(dtype, copy=False)

    def read(self, buffer: memoryview, row: int) -> None:
        """Fill a buffer of bytes with the rows from `row` on."""
        offset = self._start + row * self.row_bytes
        while n_missing := len(buffer):
            try:
                n_read = os.preadv(self._file, [buffer], offset)
            except OSError as error:
                raise storage_error(self.path, error, reading=True) from error
            if n_read == n_missing:
                return
            if not n_read:
                raise self._changed_file_error()
            buffer, offset = buffer[n_read:], offset + n_read

    def check_unchanged(self) -> None:
        """Raise an IndexStateError if the file has changed since it was opened. Call it after `read`."""
        if self._file_state() != self._opened_state:
            raise self._changed_file_error()

    def _file_state(self) -> tuple[int, int]:
        state = os.fstat(self._file)
        return state.st_size, state.st_mtime_ns

    def _changed_file_error(self) -> IndexStateError:
        return IndexStateError(
            "another program changed this file of vectors while the index was open",
            where=str(self.path),
            remedy="open the index again; to replace an index, rename a folder instead of copying into it",
        )


def read_rows(
    arrays: Sequence[StoredRows], places: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """Return rows of several arrays, whose rows have the same shape and dtype.

    One system call reads a run of successive rows.

    :param places: the place in `arrays` of each row's array, `(n,) int64`
    :param rows: the number of each row in its array, `(n,) int64`
    :raises IndexStateError: another program has changed a file since it was opened.
    """
    values = np.empty((len(rows), *arrays[0].shape[1:]), arrays[0].dtype)
    if values.size:
        buffer, size = memoryview(values).cast("B"), arrays[0].row_bytes
        begins = np.flatnonzero((np.diff(places, prepend=-1) != 0) | (np.diff(rows, prepend=-2) != 1))
        ends = [*begins[1:].tolist(), len(rows)]
        runs = zip(begins.tolist(), ends, places[begins].tolist(), rows[begins].tolist(), strict=True)
        for begin, end, place, first in runs:
            arrays[place].read(buffer[begin * size : end * size], first)
    for place in np.unique(places).tolist():
        arrays[place].check_unchanged()
    return values
