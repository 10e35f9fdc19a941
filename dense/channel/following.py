"""The dense channel as it is now: a searcher that can be told that the index was written."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from dense.channel.searcher import DenseSearcher
from sparta.base.filters import FilterLike
from sparta.base.records import Hit
from sparta.base.shared import Shared
from sparta.index.folder import lasting_path
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.channel_searcher import ChannelSearcher
from sparta.search.ranked import Ranked


class FollowingSearcher(ChannelSearcher):
    """A `DenseSearcher` that is opened anew by the first search after a `refresh`.

    Threads may share it: searches that are running end on the commit that they began with. The model of
    questions stays open where it is still that of the channel.

    :raises IndexStateError: there is no index, or it has no dense channel.
    """

    channel = "dense"

    def __init__(self, index: Path) -> None:
        self._index = lasting_path(index)
        self._shared = Shared(DenseSearcher(index), str(index))
        self._opening = threading.Lock()
        self._stale = False

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._index,)

    def refresh(self) -> None:
        """Search what was written since, from the next search on; opens nothing yet."""
        self._stale = True

    def _follow(self) -> None:
        """Open what was written since; a thread that holds a commit stays on it."""
        if not self._stale or self._shared.is_held:
            return
        with self._opening:
            if not self._stale:
                return
            self._stale = False  # before opening: what is written meanwhile is told again
            try:
                with self._shared.reading() as old:
                    new = DenseSearcher(self._index)
                    new.keep_model_of(old)
                self._shared.replace(new)
            except BaseException:
                self._stale = True
                raise

    @contextmanager
    def _reading(self) -> Iterator[DenseSearcher]:
        self._follow()
        with self._shared.reading() as own:
            yield own

    def holding(self) -> AbstractContextManager[None]:
        """Keep to one commit until the block ends, also if another thread refreshes."""
        self._follow()
        return self._shared.holding()

    @property
    def num_docs(self) -> int:
        """Number of passages that have a vector."""
        with self._reading() as own:
            return own.num_docs

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The index's tokenizer."""
        with self._reading() as own:
            return own.tokenizer

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        with self._reading() as own:
            return own.language

    @property
    def unit(self) -> str:
        """The unit of the index."""
        with self._reading() as own:
            return own.unit

    def rank(
        self,
        queries: Sequence[str],
        k: int,
        threads: int = 1,
        *,
        filter: FilterLike | None = None,
        collapse: str | None = None,
        deepest: int | None = None,
    ) -> Iterator[Ranked]:
        """The `k` best passages for each query, ids and scores alone."""
        options: dict[str, Any] = {"filter": filter, "collapse": collapse, "deepest": deepest}
        with self._reading() as own:
            return iter(list(own.rank(queries, k, threads, **options)))

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages."""
        with self._reading() as own:
            return own.records(docids)

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        with self._reading() as own:
            return own.in_context(hits)

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """The values of a metadata field, to tell which passages share them; None where there is none."""
        with self._reading() as own:
            return own.keys(docids, field)

    def close(self) -> None:
        """Release the index as soon as no search uses it."""
        self._shared.close()
