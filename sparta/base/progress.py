"""How far the reading of a corpus has come: a bar of bytes, for passages that are done."""

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
    """What is read: `position` of `size`, None where that is not known, in bytes or in records."""

    position: int

    @property
    def size(self) -> tuple[int | None, bool]:
        """What there is to read, and whether it is counted in bytes."""


class ReadingProgress(Closing):
    """A bar with the share of a corpus whose passages are done, and the time that is left.

    The share is of the bytes of the files, or of the records in memory where their number is known; of a
    stream, the rate alone is shown.

    :param shown: True shows the bar, False does not, None does on a terminal
    :param advance: called with the number of passages that are done, besides
    """

    def __init__(self, *, shown: bool | None = False, advance: Advance | None = None) -> None:
        self._shown, self._advance = shown, advance
        self._ends: deque[int] = deque()  # of passages that were read and are not done
        self._at, self._passages = 0, 0
        self._lock = threading.Lock()
        self._bar: tqdm | None = None

    def follow(self, reader: Reading, units: Iterator[Passage]) -> Iterator[Passage]:
        """Yield units of a corpus, and remember where each ends in it."""
        self._open(reader)
        for unit in units:
            self._ends.append(reader.position)
            yield unit

    def advance(self, count: int) -> None:
        """Say that so many more units are done, in the order in which they were read."""
        if self._advance:
            self._advance(count)
        if self._bar is None:
            return
        with self._lock:
            end = self._at
            for _ in range(min(count, len(self._ends))):
                end = self._ends.popleft()
            self._passages += count
            if self._bar.total is None:
                self._bar.update(count)
            else:
                self._bar.set_postfix_str(f"{self._passages:,} passages", refresh=False)
                self._bar.update(max(0, end - self._at))
            self._at = max(end, self._at)

    def _open(self, reader: Reading) -> None:
        """Show the bar; what was skipped before counts as done."""
        if self._shown is False:
            return
        from tqdm import tqdm

        total, in_bytes = reader.size
        self._at = reader.position
        self._bar = tqdm(
            total=total,
            initial=self._at,
            unit="B" if in_bytes else "passage",
            unit_scale=in_bytes,
            disable=None if self._shown is None else False,
            smoothing=0.1,
            file=sys.stderr,
        )

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
