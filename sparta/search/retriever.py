"""`Retriever`: whatever ranks the passages of an index for a query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from sparta.base.checks import queries_of, query_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Hit, Ranking
from sparta.models.query_encoder import QueryTokenizer


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a ranking that is wanted: the `k` best passages after the first `offset`.

    :param filter: only passages whose metadata is so, as `{"lang": "en", "year": {"gte": 1990}}`
    :param collapse: a metadata field; only the best passage of each of its values, and those without it
    :param deepest: where passages are grouped, groups are those of so many passages at most
    :raises InputError: a number below its least, a filter that is none, or no name of a field.
    """

    k: int = 10
    offset: int = 0
    filter: Filter | None = field(default=None)
    collapse: str | None = None
    deepest: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("k", self.k))
        object.__setattr__(self, "offset", whole("offset", self.offset, 0))
        if self.collapse is not None and not isinstance(self.collapse, str):
            raise InputError(
                f"expected the name of a field to collapse by, found {self.collapse!r}",
                remedy='as in collapse="lang"',
            )

    @classmethod
    def of(
        cls,
        k: int = 10,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
        deepest: int | None = None,
    ) -> Page:
        """Return a page with a filter as it is written in Python."""
        return cls(k, offset, Filter.of(filter), collapse, deepest)

    @property
    def depth(self) -> int:
        """How many passages must be ranked."""
        return self.k + self.offset


class Retriever(Closing, ABC):
    """Whatever ranks the passages of an index for a query: impacts, BM25, vectors, a fusion of them.

    A subclass has `rank` and `records`; `search`, `batch_search` and `run` follow from these.
    """

    channel: str
    """Its name, as in the tag of a run."""

    @property
    @abstractmethod
    def num_docs(self) -> int:
        """Number of passages."""

    @property
    @abstractmethod
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""

    @property
    @abstractmethod
    def language(self) -> str:
        """The code of the language that the texts are in."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of the index: `passage`, `sentence` or `chunk:…`; hits of chunks are their documents."""

    @abstractmethod
    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of the ranking of each query: ids, docids and scores."""

    @abstractmethod
    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the stored records of passages."""

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """Return the values of a metadata field, by which passages are grouped; None where there is none."""
        raise NotImplementedError

    def holding(self) -> AbstractContextManager[object]:
        """Keep to one snapshot until the block ends, also if another thread refreshes: docids stay valid."""
        return nullcontext()

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> list[Hit]:
        """Return the `k` best passages for a query, best first; none for a query without a known term.

        :param offset: leave out so many of the best; pages are parts of one ranking
        :param filter: only passages whose metadata is so, as `{"lang": "en", "year": {"gte": 1990}}`
        :param collapse: a metadata field; only the best passage of each of its values, and those without it
        :raises InputError: a filter that is none, or a field that no passage has.
        """
        return self.search_all([query_of(query)], Page.of(k, offset, filter, collapse))[0]

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
    ) -> dict[str, list[Hit]]:
        """Return the hits of each query by its id; options as in `search`.

        :param query_ids: None: the queries' numbers from 0
        """
        texts, ids = queries_of(queries, query_ids)
        page = Page.of(k, offset, filter, collapse)
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
    ) -> dict[str, Ranking]:
        """Return passage ids and scores alone, for runs and evaluation; options as in `batch_search`."""
        texts, ids = queries_of(queries, query_ids)
        page = Page.of(k, offset, filter, collapse)
        return dict(zip(ids, self.rank(texts, page, whole("threads", threads)), strict=True))

    def search_all(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[list[Hit]]:
        """Return a page of hits for each query, all of one snapshot."""
        with self.holding():
            return self.hits(self.rank(queries, page, threads))

    def hits(self, rankings: Sequence[Ranking]) -> list[list[Hit]]:
        """Return rankings with titles, texts and metadata, which are all read at once."""
        records = iter(self.records([docid for ranking in rankings for docid in ranking.docids]))
        columns = ((ranking.passage_ids, ranking.scores, records) for ranking in rankings)
        return [list(map(hit_of, *rows)) for rows in columns]

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        return list(hits)


def hit_of(passage_id: str, score: float, record: Mapping[str, Any]) -> Hit:
    """Return the hit of a stored record."""
    metadata = {name: value for name, value in record.items() if name not in ("id", "title", "contents")}
    title = record.get("title")
    return Hit(
        passage_id,
        score,
        title if isinstance(title, str) else "",
        str(record.get("contents") or ""),
        metadata,
    )
