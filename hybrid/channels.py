"""The channels of an index, opened and searched side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Protocol

from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.jvm import leave_thread
from sparta.search import Hit, Searcher

CHANNELS = ("bm25", "sparta", "dense")


class ChannelSearcher(Protocol):
    """What a channel can do: `sparta.search.Searcher` and `dense.search.DenseSearcher` have it."""

    @property
    def num_docs(self) -> int:
        """Number of passages."""

    def search(self, q: str, k: int = 10) -> list[Hit]:
        """The k best passages for a question."""

    def batch_search(
        self, queries: Sequence[str], qids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[Hit]]:
        """The k best passages for each question, by query id."""

    def close(self) -> None:
        """Let go of the index."""


def _opener(name: str) -> Callable[[Path], ChannelSearcher]:
    if name not in CHANNELS:
        raise InputError(
            f"expected a channel of {', '.join(CHANNELS)}, found {name!r}", remedy="name one of these"
        )
    if name == "dense":
        from dense.search import DenseSearcher

        return DenseSearcher
    return partial(Searcher, channel=name)


def open_channel(index: Path, name: str) -> ChannelSearcher:
    """Open one of `CHANNELS`; torch is imported for `dense` only.

    :raises InputError: an unknown name.
    :raises IndexStateError: there is no index, or it lacks this channel.
    """
    return _opener(name)(index)


def channels_of(index: Path) -> list[str]:
    """Return the channels that an index has."""
    from dense.index import has_dense

    return [name for name in CHANNELS if name != "dense" or has_dense(index)]


class Channels(Closing):
    """Some channels of an index, opened side by side, and searched so: a wait is that for the slowest.

    The caller's thread searches one of them, the others have a thread each. Java and torch let go of Python's
    lock while they compute.

    :raises InputError: an unknown channel.
    :raises IndexStateError: there is no index, or it lacks one of the channels.
    """

    def __init__(self, index: Path, names: Sequence[str]) -> None:
        openers = {name: _opener(name) for name in names}  # what they need is imported here, in one thread
        self._threads = {name: ThreadPoolExecutor(1, name) for name in openers}
        self.searchers: dict[str, ChannelSearcher] = {}

        def open_one(name: str) -> None:
            self.searchers[name] = openers[name](index)

        try:
            self._each({name: partial(open_one, name) for name in openers})
        except BaseException:
            self.close()
            raise
        self.searchers = {name: self.searchers[name] for name in openers}  # not by who was first

    def search(self, q: str, k: int, names: Iterable[str] | None = None) -> dict[str, list[Hit]]:
        """The k best passages of each channel, or of some of them."""
        chosen = self.searchers if names is None else names
        return self._each({name: partial(self.searchers[name].search, q, k) for name in chosen})

    def batch_search(
        self, queries: Sequence[str], qids: Sequence[str], k: int, threads: int = 1
    ) -> dict[str, dict[str, list[Hit]]]:
        """The k best passages of each channel for each question."""
        return self._each(
            {name: partial(s.batch_search, queries, qids, k, threads) for name, s in self.searchers.items()}
        )

    def _each[T](self, tasks: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """Do all of them at once, and wait for all; then the first error there was, if any, is raised."""
        own = max(tasks, key=CHANNELS.index)
        others = {name: self._threads[name].submit(task) for name, task in tasks.items() if name != own}
        try:
            mine = tasks[own]()
        finally:
            wait(others.values())
        return {name: mine if name == own else others[name].result() for name in tasks}

    def close(self) -> None:
        """Let go of the index and of the threads. Closing again does nothing."""
        for searcher in self.searchers.values():
            searcher.close()
        while self._threads:
            _, thread = self._threads.popitem()
            thread.submit(leave_thread)
            thread.shutdown()
