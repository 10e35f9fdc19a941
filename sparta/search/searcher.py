"""Searching: a query becomes a bag of terms, and Lucene sums their impacts."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sparta.base.closing import Closing
from sparta.base.errors import InputError, NoPassageError
from sparta.base.records import Hit, ScoredPassage
from sparta.data.units import is_chunk, passage_of
from sparta.index.folder import default_index
from sparta.index.view import IndexVersion, IndexView, OpenIndex
from sparta.lucene.bridge import Bm25, ImpactSearcher
from sparta.lucene.packing import Hits
from sparta.models.query_encoder import QueryTokenizer

IMPACT, BM25 = "impact", "bm25"
CHANNELS = (IMPACT, BM25)
_OLD_NAMES = {"sparta": IMPACT}
_CHUNKS_A_DOCUMENT = 4  # that are searched for at first


class Ranked(NamedTuple):
    """The passages of one query, best first, in columns: passage ids, Lucene's docids, scores."""

    passage_ids: list[str]
    docids: list[int]
    scores: list[float]

    def scored(self) -> list[ScoredPassage]:
        """The same as the lines of a run."""
        return [ScoredPassage(*one) for one in zip(self.passage_ids, self.scores, strict=True)]

    def first_of_each(self) -> Ranked:
        """The best part of each passage, under the passage's id."""
        first: dict[str, int] = {}
        for place, passage_id in enumerate(self.passage_ids):
            first.setdefault(passage_of(passage_id), place)
        places = first.values()
        return Ranked(list(first), [self.docids[i] for i in places], [self.scores[i] for i in places])


def by_document(ranked: Callable[[int], list[Ranked]], k: int) -> list[Ranked]:
    """Rankings of chunks as rankings of their documents: each by its best chunk, `k` documents of each query.

    :param ranked: the rankings of all queries to a depth; searched ever deeper until `k` documents are there
    """
    depth = _CHUNKS_A_DOCUMENT * k
    while True:
        found = ranked(depth)
        best = [own.first_of_each() for own in found]
        if all(len(b.docids) >= k or len(own.docids) < depth for b, own in zip(best, found, strict=True)):
            return [Ranked(own.passage_ids[:k], own.docids[:k], own.scores[:k]) for own in best]
        depth *= _CHUNKS_A_DOCUMENT


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

    def rank(self, queries: Sequence[str], k: int, threads: int = 1) -> Iterator[Ranked]:
        """The `k` best passages for each query, ids and scores alone."""
        raise NotImplementedError

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages."""
        raise NotImplementedError

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The `k` best passages for a query, best first; none for a query without a known term."""
        return self.hits(next(self.rank([query], k)))

    def batch_search(
        self, queries: Sequence[str], query_ids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[Hit]]:
        """The `k` best passages for each query, by query id."""
        check_query_ids(queries, query_ids)
        ranked = self.rank(queries, k, threads)
        return {query_id: self.hits(own) for query_id, own in zip(query_ids, ranked, strict=True)}

    def run(
        self, queries: Sequence[str], query_ids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[ScoredPassage]]:
        """The same without titles and texts, for runs and evaluation."""
        check_query_ids(queries, query_ids)
        return {i: own.scored() for i, own in zip(query_ids, self.rank(queries, k, threads), strict=True)}

    def hits(self, ranked: Ranked) -> list[Hit]:
        """Return hits with titles, texts and metadata, all read at once."""
        return self.batch_hits([ranked])[0]

    def batch_hits(self, ranked: Sequence[Ranked]) -> list[list[Hit]]:
        """The same for several queries, with the records of all of them in memory."""
        records = iter(self.records([docid for own in ranked for docid in own.docids]))
        rows = (zip(own.passage_ids, own.scores, records, strict=False) for own in ranked)
        return [[hit_of(*row) for row in own] for own in rows]


class Searcher(ChannelSearcher):
    """Searches an index folder; needs no neural network.

    `channel` is `impact` (summed impacts, integers; SPARTA, eq. 9) or `bm25` (title and text).
    Order: score descending, then corpus position. Threads may share a searcher.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :param bm25: k1 and b, where they are not 0.9 and 0.4
    :raises IndexStateError: there is no index, or one of a newer format.
    """

    def __init__(
        self,
        index: str | Path | OpenIndex | None = None,
        *,
        channel: str = IMPACT,
        bm25: Bm25 | None = None,
    ) -> None:
        self.channel = channel_name(channel)
        self.index = index if isinstance(index, OpenIndex) else OpenIndex(index or default_index(), bm25)

    def beside(self, channel: str) -> Searcher:
        """Return a searcher of another channel of the same open index; closing one of them closes both."""
        return Searcher(self.index, channel=channel)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels of this Lucene index, the default one first."""
        with self.index.reading() as view:
            return (BM25,) if view.generation.channels == BM25 else CHANNELS

    @property
    def version(self) -> IndexVersion:
        """The generation and commit that are searched."""
        return self.index.version

    def refresh(self) -> bool:
        """Search what was committed since the index was opened; returns whether there was anything."""
        return self.index.refresh()

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        with self.index.reading() as view:
            return view.lucene.num_docs

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        with self.index.reading() as view:
            return view.tokenizer

    def rank(self, queries: Sequence[str], k: int, threads: int = 1) -> Iterator[Ranked]:
        """The `k` best passages for each query, ids and scores alone."""
        _check_depth(k)
        with self.index.reading() as view:
            if self.channel == BM25:
                return _ranked(view, lambda depth: view.lucene.search_text(queries, depth, threads), 0, k)
            view.require_impacts()
            bags = [view.tokenizer.terms(query) for query in queries]

            def hits(depth: int) -> Hits:
                return view.lucene.search_impacts(bags, depth, threads)

            return _ranked(view, hits, len(queries), k)

    def rank_both(
        self, queries: Sequence[str], k: int, threads: int = 1
    ) -> tuple[list[Ranked], list[Ranked]]:
        """Rank by impacts and by BM25, side by side in one call."""
        _check_depth(k)
        with self.index.reading() as view:
            view.require_impacts()
            bags = [view.tokenizer.terms(query) for query in queries]

            def hits(depth: int) -> Hits:
                return view.lucene.search_both(bags, queries, depth, threads)

            ranked = list(_ranked(view, hits, len(queries), k))
        return ranked[: len(queries)], ranked[len(queries) :]

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages."""
        with self.index.reading() as view:
            return [json.loads(raw) for raw in view.lucene.raws(docids)]

    def docids(self, passage_ids: Sequence[str]) -> list[int]:
        """Lucene's docids of passages, −1 where there is none."""
        with self.index.reading() as view:
            docids: list[int] = view.lucene.docids(passage_ids).tolist()
            return docids

    def passage(self, passage_id: str) -> dict[str, Any]:
        """The stored record of one passage; an unknown id is a NoPassageError."""
        with self.index.reading() as view:
            docid = docid_of(view.lucene, passage_id)
            record: dict[str, Any] = json.loads(view.lucene.raws([docid])[0])
            return record

    def close(self) -> None:
        """Release the index."""
        self.index.close()


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


def docids_of(lucene: ImpactSearcher, passage_id: str) -> list[int]:
    """Lucene's number of a passage, or of its sentences or chunks; an unknown id is a NoPassageError."""
    docid = int(lucene.docids([passage_id])[0])
    docids = [docid] if docid >= 0 else lucene.docids(lucene.sentences([passage_id])).tolist()
    if not docids:
        raise NoPassageError(
            f"the index holds no passage with the id {passage_id!r}",
            where=str(lucene.path.parent),
            remedy="sparta search prints ids",
        )
    return docids


def docid_of(lucene: ImpactSearcher, passage_id: str) -> int:
    """Lucene's number of a passage, which is one whole; an unknown id is a NoPassageError."""
    first, *others = docids_of(lucene, passage_id)
    if others:
        raise InputError(
            f"expected one passage, found the {1 + len(others)} parts of {passage_id!r}",
            where=str(lucene.path.parent),
            remedy=f"name one of them, as in {passage_id}#0",
        )
    return first


def channel_name(name: str, channels: Sequence[str] = CHANNELS) -> str:
    """Return the name of one of these channels; the former name of `impact` is understood."""
    known = _OLD_NAMES.get(name, name)
    if known not in channels:
        raise InputError(f"expected a channel of {', '.join(channels)}, found {name!r}")
    return known


def check_query_ids(queries: Sequence[str], query_ids: Sequence[str]) -> None:
    """Refuse query ids that are not one for each query, or not distinct: results are kept by them."""
    if len(queries) != len(query_ids):
        raise InputError(f"expected as many query ids as queries, found {len(query_ids)} and {len(queries)}")
    repeated = [query_id for query_id, n in Counter(query_ids).items() if n > 1]
    if repeated:
        raise InputError(
            f"expected distinct query ids, found {repeated[0]!r} more than once",
            remedy="give every query an id of its own",
        )


def _check_depth(k: int) -> None:
    if k < 1:
        raise InputError(f"k must be at least 1, found {k}")


def _ranked(view: IndexView, hits: Callable[[int], Hits], integers: int, k: int) -> Iterator[Ranked]:
    """What a search to a depth finds, in columns; of an index of chunks, their documents."""
    if is_chunk(view.generation.unit):
        return iter(by_document(lambda depth: list(_columns(view.lucene, hits(depth), integers)), k))
    return _columns(view.lucene, hits(k), integers)


def _columns(lucene: ImpactSearcher, hits: Hits, integers: int) -> Iterator[Ranked]:
    """Each query's hits in columns; the scores of the first `integers` queries are integers."""
    ids, docids = lucene.ids(hits.docids), hits.docids.tolist()
    whole = hits.indptr[integers]
    scores = hits.scores[:whole].astype("int64").tolist() + hits.scores[whole:].tolist()
    bounds = itertools.pairwise(hits.indptr.tolist())
    return iter([Ranked(ids[start:end], docids[start:end], scores[start:end]) for start, end in bounds])
