"""Arrays that stay in their file and are read in parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparta.base.errors import IndexStateError


class StoredRows:
    """`shape` numbers of `dtype` in a file, from byte `start` on; indexing by row numbers reads these rows.

    A memory map would end the process if another program cut the file short. Here that is an error.

    :raises IndexStateError: from reading, if the file is no longer as it was when it was opened.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, start: int, shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.shape = path, np.dtype(dtype), shape
        self._start = start
        self._row_bytes = self.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        self._stream = path.open("rb", buffering=0)
        self._state = self._file_state()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        gaps = np.flatnonzero(np.diff(rows) != 1) + 1
        ends = [*gaps.tolist(), len(rows)]
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            if begin < end:
                self._read(values[begin:end], int(rows[begin]))
        if self._file_state() != self._state:
            raise self._changed()
        return values

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = self[np.arange(len(self))]
        return values if dtype is None else values.astype(dtype, copy=False)

    def _read(self, values: npt.NDArray[Any], row: int) -> None:
        place = memoryview(values).cast("B") if values.size else memoryview(b"")
        offset = self._start + row * self._row_bytes
        while len(place):
            read = os.preadv(self._stream.fileno(), [place], offset)
            if not read:
                raise self._changed()
            place, offset = place[read:], offset + read

    def _file_state(self) -> tuple[int, int]:
        state = os.fstat(self._stream.fileno())
        return state.st_size, state.st_mtime_ns

    def _changed(self) -> IndexStateError:
        return IndexStateError(
            "another program wrote into a file of vectors while it was open",
            where=str(self.path),
            remedy="open the index again; to replace an index, rename a folder instead of copying into it",
        )
