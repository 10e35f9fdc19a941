"""Blocks of passages that take about equally long to encode, on any machine."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from sparta.base.records import Passage
from sparta.shards.folder import Block

BLOCK_SECONDS = 2.5
# Of a block while the speed is unknown: a loaded machine encodes as few as 2,000 characters per second.
_FIRST_PASSAGES = 32
_FIRST_CHARACTERS = 16_000


class PacedBlocks:
    """Splits passages into blocks whose encoding takes about `BLOCK_SECONDS`.

    The speed is the number of characters per second of the last finished block. So Ctrl-C loses a few seconds
    of work on a fast and on a slow machine, for short and for long passages.

    :param largest: the maximum number of passages of a block
    :param clock: returns the time in seconds
    """

    def __init__(self, largest: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.largest = largest
        self._clock = clock
        self._unfinished: deque[int] = deque()  # characters of the blocks that are not yet encoded
        self._characters_per_second = 0.0
        self._last_end = clock()

    def split(self, passages: Iterable[Passage]) -> Iterator[Block]:
        """Yield numbered blocks: `(number, first position, passages)`."""
        stream, first = iter(passages), 0
        for number in itertools.count():
            block = self._next_block(stream)
            if not block:
                return
            yield number, first, block
            first += len(block)

    def _next_block(self, stream: Iterator[Passage]) -> list[Passage]:
        most_characters = self._characters_per_second * BLOCK_SECONDS or _FIRST_CHARACTERS
        most_passages = self.largest if self._characters_per_second else min(self.largest, _FIRST_PASSAGES)
        block: list[Passage] = []
        characters = 0
        for passage in stream:
            block.append(passage)
            characters += len(passage.title) + len(passage.context or passage.text)
            if len(block) >= most_passages or characters >= most_characters:
                break
        self._unfinished.append(characters)
        return block

    def finish(self) -> None:
        """Measure the speed; call this when the oldest unfinished block is encoded."""
        now = self._clock()
        seconds, self._last_end = now - self._last_end, now
        self._characters_per_second = max(1, self._unfinished.popleft()) / max(seconds, 1e-3)
