"""Progress bars for reading a corpus. They count bytes of the corpus whose passages are finished."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from sparta.base.closing import Closing
from sparta.base.records import Advance, Passage

if TYPE_CHECKING:
    from tqdm import tqdm


class Reading(Protocol):
    """A corpus reader with a known position.

    `position` is the number of bytes or records that have been read.
    """

    position: int

    @property
    def size(self) -> tuple[int | None, bool]:
        """The size of the corpus (None if unknown), and whether it is in bytes rather than records."""


class ReadingProgress(Closing):
    """A progress bar with the finished share of a corpus and the remaining time.

    The share counts bytes of files, or records in memory. If the size is unknown, the bar shows only the
    rate.

    :param shown: True shows the bar, False hides it, None shows it on a terminal
    :param advance: called with the number of units that were finished
    """

    def __init__(self, *, shown: bool | None = False, advance: Advance | None = None) -> None:
        self._show, self._advance = shown, advance
        self._ends: deque[int] = deque()  # positions where the unfinished units end
        self._finished_position, self._passages = 0, 0
        self._lock = threading.Lock()
        self._bar: tqdm | None = None

    def follow(self, reader: Reading, units: Iterator[Passage]) -> Iterator[Passage]:
        """Yield the units of a corpus, and remember the position in the corpus where each unit ends."""
        self._open(reader)
        for unit in units:
            self._ends.append(reader.position)
            yield unit

    def advance(self, count: int) -> None:
        """Count `count` more units as finished, in the order in which they were read."""
        if self._advance:
            self._advance(count)
        if self._bar is None:
            return
        with self._lock:
            end = self._finished_position
            for _ in range(min(count, len(self._ends))):
                end = self._ends.popleft()
            self._passages += count
            if self._bar.total is None:
                self._bar.update(count)
            else:
                self._bar.set_postfix_str(f"{self._passages:,} passages", refresh=False)
                self._bar.update(max(0, end - self._finished_position))
            self._finished_position = max(end, self._finished_position)

    def _open(self, reader: Reading) -> None:
        """Show the bar. Records that the reader skipped before count as finished."""
        if self._show is False:
            return
        from tqdm import tqdm

        total, in_bytes = reader.size
        self._finished_position = reader.position
        self._bar = tqdm(
            total=total,
            initial=self._finished_position,
            unit="B" if in_bytes else "passage",
            unit_scale=in_bytes,
            disable=None if self._show is None else False,
            smoothing=0.1,
            file=sys.stderr,
        )

    def close(self) -> None:
        """Close the bar and leave it on the screen."""
        if self._bar is not None:
            self._bar.close()
