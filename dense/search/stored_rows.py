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
        self._opened_state = self._file_state()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        gap_ends = np.flatnonzero(np.diff(rows) != 1) + 1
        ends = [*gap_ends.tolist(), len(rows)]
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            if begin < end:
                self._read(values[begin:end], int(rows[begin]))
        if self._file_state() != self._opened_state:
            raise self._changed_file_error()
        return values

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = self[np.arange(len(self))]
        return values if dtype is None else values.astype(dtype, copy=False)

    def _read(self, values: npt.NDArray[Any], row: int) -> None:
        buffer = memoryview(values).cast("B") if values.size else memoryview(b"")
        offset = self._start + row * self._row_bytes
        while len(buffer):
            n_read = os.preadv(self._stream.fileno(), [buffer], offset)
            if not n_read:
                raise self._changed_file_error()
            buffer, offset = buffer[n_read:], offset + n_read

    def _file_state(self) -> tuple[int, int]:
        state = os.fstat(self._stream.fileno())
        return state.st_size, state.st_mtime_ns

    def _changed_file_error(self) -> IndexStateError:
        return IndexStateError(
            "another program changed this file of vectors while the index was open",
            where=str(self.path),
            remedy="open the index again; to replace an index, rename a folder instead of copying into it",
        )
