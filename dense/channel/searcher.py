"""Dense search: encodes queries into vectors and returns the passages with the highest dot products."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from dense.channel.vectors import DenseChannel
from dense.encoding.question_encoder import QuestionEncoder
from dense.search.store import Floats, VectorFolder
from sparta.base.checks import whole
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Hit, Ranking
from sparta.index.channels import DENSE
from sparta.index.folder import IndexFolder
from sparta.index.reader import IndexReader, reopened
from sparta.models.query_encoder import is_blank
from sparta.search.retriever import Page
from sparta.search.searcher import ChannelSearcher


class DenseSearcher(ChannelSearcher):
    """Searches the dense channel of an index folder.

    Hits are ordered by descending score (dot product, float32), then by corpus position. If the Lucene index
    is newer than the dense channel, deleted passages are skipped, and a warning counts the passages without
    a vector.

    :param index: an index folder, or an open reader; None is `$SPARTA_INDEX` or `./sparta-index`
    :raises IndexStateError: there is no index, or its dense channel is missing or in a newer format.
    """

    def __init__(self, index: str | Path | IndexReader | None = None) -> None:
        super().__init__(index, DENSE, None, (DENSE,))
        self._encoded = threading.local()

    def __reduce__(self) -> tuple[object, ...]:
        return reopened, (type(self), self.reader.settings)

    @contextmanager
    def opened(self) -> Iterator[DenseChannel]:
        """Yield the dense channel of the current snapshot. The snapshot stays open until the block ends."""
        with self.reader.snapshot() as snapshot:
            yield cast(DenseChannel, snapshot.channel(DENSE))

    @property
    def folder(self) -> IndexFolder:
        """The folder of the index."""
        return self.reader.folder

    @property
    def num_docs(self) -> int:
        """Number of passages that have a vector."""
        with self.opened() as channel:
            return len(channel.rows)

    @property
    def vectors(self) -> VectorFolder:
        """The vectors of the channel, and the name and hash of their model."""
        with self.opened() as channel:
            return channel.vectors

    @property
    def model(self) -> QuestionEncoder:
        """The question encoder of the channel's model."""
        with self.opened() as channel:
            return channel.model

    @property
    def model_name(self) -> str:
        """The name or folder of the channel's model."""
        with self.opened() as channel:
            return channel.model_name

    @contextmanager
    def encoded(self, queries: Iterable[str]) -> Iterator[None]:
        """Encode queries in one run of the network: `rank` uses their vectors in this thread and block.

        The caller pins the snapshot (`holding`), so that the vectors are of the searched channel's model.
        """
        with self.opened() as channel:
            self._encoded.vectors = channel.encode(queries)
        try:
            yield
        finally:
            del self._encoded.vectors

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return one page of the ranking of each query; the ranking of a blank query is empty."""
        encoded: Mapping[str, Floats] = getattr(self._encoded, "vectors", {})
        has_all = all(query in encoded or is_blank(query) for query in queries)
        with self.opened() as channel:
            return channel.rank(queries, page, threads, encoded if has_all else None)

    def search_vectors(
        self,
        questions: Floats,
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
    ) -> list[list[Hit]]:
        """Return the k best passages for each query vector, after the first `offset`.

        :param questions: query vectors `(n, width)`
        :raises InputError: the vectors have another width than the channel, NaN or infinity, or k is below 1.
        """
        page = Page(k, offset, Filter.of(filter))
        with self.holding(), self.opened() as channel:
            return self.hits(channel.rank_vectors(questions, page, whole("threads", threads)))
