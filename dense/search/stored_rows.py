"""Arrays that stay in their file; an access reads only the rows that it needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparta.base.errors import IndexStateError


class StoredRows:
    """An array in a file: `shape` numbers of `dtype` from byte `start` on. Indexing reads only some rows.

    The class avoids a memory map: a memory map would end the process if another program truncated the file.

    :raises IndexStateError: from reading, if the file was changed since it was opened.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, start: int, shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.shape = path, np.dtype(dtype), shape
        self._start = start
        self._row_bytes = self.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        self._stream = path.open("rb", buffering=0)
        self._file = self._stream.fileno()
        self._opened_state = self._file_state()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        if values.size:
            buffer, size = memoryview(values).cast("B"), self._row_bytes
            begins = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
            ends = [*begins[1:].tolist(), len(rows)]
            for begin, end, first in zip(begins.tolist(), ends, rows[begins].tolist(), strict=True):
                self.read(buffer[begin * size : end * size], first)
        self.check_unchanged()
        return values

    def check_unchanged(self) -> None:
        """Raise an error if the file has changed since it was opened. Call it after `read`."""
        if self._file_state() != self._opened_state:
            raise self._changed_file_error()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = self[np.arange(len(self))]
        return values if dtype is None else values.astype(dtype, copy=False)

    def read(self, buffer: memoryview, row: int) -> None:
        """Fill a buffer of bytes with the rows from `row` on."""
        offset = self._start + row * self._row_bytes
        while n_missing := len(buffer):
            n_read = os.preadv(self._file, [buffer], offset)
            if n_read == n_missing:
                return
            if not n_read:
                raise self._changed_file_error()
            buffer, offset = buffer[n_read:], offset + n_read

    def _file_state(self) -> tuple[int, int]:
        state = os.fstat(self._file)
        return state.st_size, state.st_mtime_ns

    def _changed_file_error(self) -> IndexStateError:
        return IndexStateError(
            "another program changed this file of vectors while the index was open",
            where=str(self.path),
            remedy="open the index again; to replace an index, rename a folder instead of copying into it",
        )
