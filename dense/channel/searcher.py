"""Dense search: a question becomes a vector, and the passages with the highest dot products are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from dense.channel.vectors import DenseChannel
from dense.models.question_encoder import QuestionEncoder
from dense.search.store import Floats, VectorFolder
from sparta.base.checks import whole
from sparta.base.errors import InputError
from sparta.base.filters import FilterLike
from sparta.base.records import Hit, Ranking
from sparta.index.folder import IndexFolder
from sparta.index.reader import IndexReader
from sparta.lucene.bridge import Bm25
from sparta.search.retriever import Page
from sparta.search.searcher import ChannelSearcher

DENSE = "dense"


class DenseSearcher(ChannelSearcher):
    """Searches the dense channel of an index folder.

    Order: score (dot product, float32) descending, then corpus position. When the Lucene index was changed
    and the channel was not, passages that are gone are not found, and a warning tells of those that have no
    vector yet.

    :param index: an index folder, or an open reader; None is `$SPARTA_INDEX` or `./sparta-index`
    :raises IndexStateError: there is no index, it has no dense channel, or one of another making.
    """

    def __init__(
        self,
        index: str | Path | IndexReader | None = None,
        *,
        channel: str = DENSE,
        bm25: Bm25 | None = None,
    ) -> None:
        if channel != DENSE:
            raise InputError(f"expected the channel dense, found {channel!r}")
        super().__init__(index, channel, bm25, (DENSE,))

    @contextmanager
    def opened(self) -> Iterator[DenseChannel]:
        """Lend the channel as the present snapshot has it."""
        with self.reader.reading() as snapshot:
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
        """The vectors, and the model that they are of."""
        with self.opened() as channel:
            return channel.vectors

    @property
    def model(self) -> QuestionEncoder:
        """The question side of the channel's model."""
        with self.opened() as channel:
            return channel.model

    @property
    def model_name(self) -> str:
        """The name of the channel's model, or where it lies."""
        with self.opened() as channel:
            return channel.model_name

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of the ranking of each query; none for a blank query."""
        with self.opened() as channel:
            return channel.rank(queries, page, threads)

    def search_vectors(
        self,
        questions: Floats,
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> list[list[Hit]]:
        """Return the k best passages for each question, given as vectors `(n, width)`, as in `search`.

        :raises InputError: another width than the channel's, NaN or infinity, k below 1.
        """
        page = Page.of(k, offset, filter, collapse)
        with self.holding(), self.opened() as channel:
            return self.hits(channel.rank_vectors(questions, page, whole("threads", threads)))
