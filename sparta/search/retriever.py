"""`Retriever`: the base class of everything that ranks an index's passages for a query."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparta.base.checks import queries_of, query_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Hit, PassageRecord, Ranking
from sparta.base.remedies import Option, remedy
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.contexts import joined_hits, place_of_chunk
from sparta.search.ranked import CHUNKS, DOCUMENTS, deepened, reduction


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a ranking: the `k` best passages after the first `offset`.

    :param filter: keep only passages with this metadata, such as `{"lang": "en", "year": {"gte": 1990}}`
    :param collapse: a metadata field; keep only the best passage for each value of the field, and every
        passage without the field
    :param deepest: group at most this many passages, when passages are grouped
    :param hits: `documents` or `chunks`; only an index of chunks distinguishes them
    :param join: join hits of neighboring chunks, as `joined_hits` does
    :raises InputError: a number below its minimum, an invalid filter, a field name that is not a string, or
        hits that are neither `documents` nor `chunks`.
    """

    k: int = 10
    offset: int = 0
    filter: Filter | None = None
    collapse: str | None = None
    deepest: int | None = None
    hits: str = DOCUMENTS
    join: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("k", self.k))
        object.__setattr__(self, "offset", whole("offset", self.offset, 0))
        object.__setattr__(self, "filter", Filter.of(self.filter))
        if self.collapse is not None and (not isinstance(self.collapse, str) or not self.collapse):
            raise InputError(
                f"collapse must be the name of a metadata field, found {self.collapse!r}",
                remedy=remedy("name a field, as in {}", Option("collapse", "lang")),
            )
        if self.hits not in (DOCUMENTS, CHUNKS):
            raise InputError(f"hits must be {DOCUMENTS} or {CHUNKS}, found {self.hits!r}")
        if self.join and self.hits != CHUNKS:
            raise InputError(
                "only chunks can be joined, but the hits are documents",
                remedy=remedy("add {}", Option("hits", CHUNKS)),
            )

    @property
    def fields(self) -> list[str]:
        """The metadata fields of the filter and of `collapse`."""
        return [*(self.filter.fields if self.filter else ()), *([self.collapse] if self.collapse else ())]

    @property
    def depth(self) -> int:
        """The number of passages to rank: `k + offset`."""
        return self.k + self.offset

    def rankings(
        self,
        search: Callable[[int, Sequence[int]], list[Ranking]],
        n_queries: int,
        unit: str,
        keys: Callable[..., Sequence[str | None]],
    ) -> list[Ranking]:
        """Return this page of each query's ranking, grouped by document and by `collapse`.

        :param search: returns the rankings of the queries with these numbers, to a depth
        :param unit: the unit of the index
        :param keys: takes docids and a metadata `field`, and returns the passages' values of the field
        :raises InputError: `hits` is `chunks`, and the index holds no chunks.
        """
        reduced = reduction(unit, partial(keys, field=self.collapse) if self.collapse else None, self.hits)
        if reduced:
            rankings = deepened(search, n_queries, self.depth, reduced, self.deepest)
        else:
            rankings = search(self.depth, range(n_queries))
        return [ranking[self.offset :] for ranking in rankings] if self.offset else rankings


class Retriever(Closing, ABC):
    """Ranks the passages of an index for a query, by impacts, BM25, vectors or a fusion of these.

    A subclass implements `rank` and `records`; `search`, `batch_search` and `run` build on these two.
    """

    channel: str
    """The channel's name, which is also the tag of its runs."""
    rerank_depth: int = 0
    """The number of first hits whose order and scores are a cross-encoder's; 0 without one."""

    @property
    def ranking_name(self) -> str:
        """The channel, or the channels of a fusion with their weights, and all unusual settings.

        Retrievers of one index whose rankings differ have different names.
        """
        return self.channel

    @property
    def first_stage(self) -> Retriever:
        """The retriever that finds the hits; a reranker only orders them."""
        return self

    @property
    def most_hits(self) -> int:
        """The highest number of hits of a query."""
        return self.num_docs

    @property
    @abstractmethod
    def num_docs(self) -> int:
        """The number of passages."""

    @property
    @abstractmethod
    def tokenizer(self) -> QueryTokenizer:
        """The tokenizer that turns queries into bags of terms."""

    @property
    @abstractmethod
    def language(self) -> str:
        """The language code of the index's texts."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of the index: `passage`, `sentence` or `chunk:…`. Chunks give hits of documents."""

    @abstractmethod
    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return one page of each query's ranking: passage ids, docids and scores."""

    @abstractmethod
    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the records of these docids: dictionaries with `id`, `title`, `text` and metadata."""

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """Return the passages' values of a metadata field, for grouping; None if a passage lacks it."""
        raise NotImplementedError

    def fields_among(self, names: Collection[str]) -> list[str]:
        """Return the metadata fields with these names, if the retriever knows the fields of its index."""
        return []

    def close(self) -> None:
        """Release all resources. A retriever that holds none needs no method."""

    def holding(self) -> AbstractContextManager[object]:
        """Pin the current snapshot and its docids until the block ends, even if another thread refreshes."""
        return nullcontext()

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
        hits: str = DOCUMENTS,
        join: bool = False,
    ) -> list[Hit]:
        """Return the `k` best passages for a query, best first; none if the index knows no term of the query.

        :param offset: skip this many of the best passages; pages are parts of one ranking
        :param filter: keep only passages with this metadata, such as `{"lang": "en", "year": {"gte": 1990}}`
        :param collapse: a metadata field; keep only the best passage for each value of the field, and every
            passage without the field
        :param hits: in an index of chunks: `documents` returns each document once, with its best chunk, and
            `chunks` returns the best chunks, each with `document_id`, `start` and `end`
        :param join: with `chunks`: join hits of neighboring chunks of a document into one hit
        :raises InputError: an invalid filter, or a field that no passage has.
        """
        page = Page(k, offset, Filter.of(filter), collapse, hits=hits, join=join)
        return self.search_all([query_of(query)], page)[0]

    def batch_search(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str] | None = None,
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
        hits: str = DOCUMENTS,
        join: bool = False,
    ) -> dict[str, list[Hit]]:
        """Return the hits of each query, by query id; the options are those of `search`.

        :param query_ids: the queries' ids; None numbers the queries from 0
        """
        texts, ids = queries_of(queries, query_ids)
        page = Page(k, offset, Filter.of(filter), collapse, hits=hits, join=join)
        return dict(zip(ids, self.search_all(texts, page, whole("threads", threads)), strict=True))

    def run(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str] | None = None,
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
        hits: str = DOCUMENTS,
    ) -> dict[str, Ranking]:
        """Rank passages for many queries, with the options of `batch_search`.

        Returns passage ids and scores by query id (a TREC run).
        """
        texts, ids = queries_of(queries, query_ids)
        page = Page(k, offset, Filter.of(filter), collapse, hits=hits)
        return dict(zip(ids, self.rank(texts, page, whole("threads", threads)), strict=True))

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return a page of hits for each query, all from one snapshot."""
        with self.holding():
            hits = self.hits(self.rank(queries, page, threads))
        return [joined_hits(query_hits) for query_hits in hits] if page.join else hits

    def hits(self, rankings: Sequence[Ranking]) -> list[list[Hit]]:
        """Return the hits of rankings, with titles, texts and metadata. One call reads all records."""
        records = iter(self.records([docid for ranking in rankings for docid in ranking.docids]))
        columns = ((ranking.passage_ids, ranking.scores, records) for ranking in rankings)
        return [list(map(hit_of, *columns_of_ranking)) for columns_of_ranking in columns]

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits for a reader; sentences get their passage's text as `context`."""
        return list(hits)


class DelegatingRetriever(Retriever):
    """A retriever that ranks the passages of another retriever, which describes the index and its passages.

    A subclass sets `retriever`, and implements `rank` and `close`. A subclass that searches in the thread of
    its caller also passes on `holding` and `most_hits`.
    """

    retriever: Retriever
    """The retriever that knows the passages by docid."""

    @property
    def num_docs(self) -> int:
        """The number of passages."""
        return self.retriever.num_docs

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The tokenizer that turns queries into bags of terms."""
        return self.retriever.tokenizer

    @property
    def language(self) -> str:
        """The language code of the index's texts."""
        return self.retriever.language

    @property
    def unit(self) -> str:
        """The unit of the index: `passage`, `sentence` or `chunk:…`."""
        return self.retriever.unit

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the records of these docids."""
        return self.retriever.records(docids)

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """Return the passages' values of a metadata field, for grouping; None if a passage lacks it."""
        return self.retriever.keys(docids, field)

    def fields_among(self, names: Collection[str]) -> list[str]:
        """Return the metadata fields with these names."""
        return self.retriever.fields_among(names)

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits for a reader; sentences get their passage's text as `context`."""
        return self.retriever.in_context(hits)


def hit_of(passage_id: str, score: float, record: Mapping[str, Any]) -> Hit:
    """Return a hit with the title, text and metadata of a record."""
    if "text" not in record and "contents" in record:  # a retriever of the last release
        record = PassageRecord.of(record)
        warnings.warn("The key 'contents' of a record is now 'text'", DeprecationWarning, stacklevel=2)
    metadata = {name: value for name, value in record.items() if name not in ("id", "title", "text")}
    title = record.get("title")
    return Hit(
        passage_id,
        score,
        title if isinstance(title, str) else "",
        str(record.get("text") or ""),
        metadata,
        **place_of_chunk(record, record.get("id")),
    )


def passage_object(passage_id: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of a passage with its record: `id`, `title`, `text` and `metadata`."""
    hit = hit_of(passage_id, 0.0, record)
    return {"id": passage_id, "title": hit.title, "text": hit.text, "metadata": dict(hit.metadata)}
