"""What the searchers of single channels share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sparta.base.checks import queries_of, query_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.filters import FilterLike
from sparta.base.records import Hit, ScoredPassage
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.ranked import Ranked, depth_of


class ChannelSearcher(Closing):
    """What the searchers of single channels share; a `Retriever`.

    `rank` gives ids and scores alone, which fusion and evaluation need; `search` and `batch_search` add the
    passages' titles, texts and metadata.
    """

    channel: str

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        raise NotImplementedError

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        raise NotImplementedError

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        raise NotImplementedError

    @property
    def unit(self) -> str:
        """The unit of the index: `passage`, `sentence` or `chunk:…`; hits of chunks are their documents."""
        raise NotImplementedError

    def holding(self) -> AbstractContextManager[None]:
        """Keep to one commit until the block ends, also if another thread refreshes: docids stay valid."""
        return nullcontext()

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
        """The `k` best passages for each query, ids and scores alone.

        :param deepest: of so many passages at most the groups are, where a ranking is one of groups
        """
        raise NotImplementedError

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages."""
        raise NotImplementedError

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """The values of a metadata field, to tell which passages share them; None where there is none."""
        raise NotImplementedError

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> list[Hit]:
        """The `k` best passages for a query, best first; none for a query without a known term.

        :param offset: leave out so many of the best; pages are parts of one ranking
        :param filter: only passages whose metadata is so, as `{"lang": "en", "year": {"gte": 1990}}`
        :param collapse: a metadata field; only the best passage of each of its values, and those without it
        :raises InputError: a filter that is none, or a field that no passage has.
        """
        with self.holding():
            ranked = self._pages([query_of(query)], k, offset=offset, filter=filter, collapse=collapse)
            return self.hits(next(ranked))

    def batch_search(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str],
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> dict[str, list[Hit]]:
        """The `k` best passages for each query, by query id; options as in `search`."""
        texts, ids = queries_of(queries, query_ids)
        with self.holding():
            ranked = self._pages(texts, k, threads, offset=offset, filter=filter, collapse=collapse)
            return {query_id: self.hits(own) for query_id, own in zip(ids, ranked, strict=True)}

    def run(
        self,
        queries: Iterable[str],
        query_ids: Iterable[str],
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> dict[str, list[ScoredPassage]]:
        """The same without titles and texts, for runs and evaluation."""
        texts, ids = queries_of(queries, query_ids)
        ranked = self._pages(texts, k, threads, offset=offset, filter=filter, collapse=collapse)
        return {i: own.scored() for i, own in zip(ids, ranked, strict=True)}

    def _pages(
        self,
        queries: Sequence[str],
        k: int,
        threads: int = 1,
        *,
        offset: int,
        collapse: str | None,
        **options: Any,
    ) -> Iterator[Ranked]:
        """The ranks `offset` + 1 to `offset` + k for each query."""
        depth = depth_of(k, offset)
        check_field(collapse)
        ranked = self.rank(queries, depth, whole("threads", threads), collapse=collapse, **options)
        return (own.part(offset, depth) for own in ranked) if offset else ranked

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        return list(hits)

    def hits(self, ranked: Ranked) -> list[Hit]:
        """Return hits with titles, texts and metadata, all read at once."""
        return self.batch_hits([ranked])[0]

    def batch_hits(self, ranked: Sequence[Ranked]) -> list[list[Hit]]:
        """The same for several queries, with the records of all of them in memory."""
        records = iter(self.records([docid for own in ranked for docid in own.docids]))
        rows = (zip(own.passage_ids, own.scores, records, strict=False) for own in ranked)
        return [[hit_of(*row) for row in own] for own in rows]


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


def check_field(collapse: str | None) -> None:
    """Refuse what names no field to collapse by."""
    if collapse is not None and not isinstance(collapse, str):
        raise InputError(
            f"expected the name of a field to collapse by, found {collapse!r}", remedy='as in collapse="lang"'
        )
