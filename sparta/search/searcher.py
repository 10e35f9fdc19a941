"""Search an index by impacts or BM25: a query becomes a bag of terms, and Lucene sums their impacts."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from sparta.base.errors import InputError, NoPassageError
from sparta.base.filters import Filter
from sparta.base.records import Hit, Passage, PassageRecord, Ranking
from sparta.data.languages import Language
from sparta.data.units import SENTENCE, is_chunk, is_cut, passage_of
from sparta.index.folder import default_index
from sparta.index.reader import IndexReader, reopened
from sparta.index.snapshot import IndexSnapshot, IndexVersion
from sparta.lucene.bridge import Bm25
from sparta.lucene.packing import EXACT_SCORES, Hits
from sparta.models.query_encoder import QueryTokenizer, is_blank
from sparta.search.contexts import in_context, whole_record
from sparta.search.retriever import Page, Retriever

IMPACT, BM25 = "impact", "bm25"
LUCENE_CHANNELS = (IMPACT, BM25)
_ROUNDED = "rounded scores"
_OLD_NAMES = {"sparta": IMPACT}

logger = logging.getLogger(__name__)


def unusual_bm25(bm25: Bm25 | None) -> list[str]:
    """Return the parameters of BM25 as in `k1=1.2`, if they differ from the defaults."""
    if bm25 is None or bm25 == Bm25():
        return []
    return [f"{name}={value:g}" for name, value in bm25._asdict().items()]


class ChannelSearcher(Retriever):
    """A retriever for one channel of an index folder. Its reader may serve other channels too.

    Closing the searcher closes the reader. A pickled or copied searcher reopens the index from its path.
    """

    def __init__(
        self,
        index: str | Path | IndexReader | None,
        channel: str,
        bm25: Bm25 | None,
        other_channels: Sequence[str] = (),
    ) -> None:
        if isinstance(index, IndexReader):
            index.check_bm25(bm25)
        else:
            index = IndexReader(index if index is not None else default_index(), bm25, other_channels)
        self.channel, self.reader = channel, index

    def __reduce__(self) -> tuple[object, ...]:
        factory = cast(Callable[..., Self], type(self))
        return reopened, (partial(factory, channel=self.channel), self.reader.settings)

    @property
    def ranking_name(self) -> str:
        """The channel, with k1 and b of BM25 if they are not the usual ones: `bm25(k1=1.2,b=0.75)`."""
        settings = unusual_bm25(self.reader.bm25) if self.channel == BM25 else []
        return f"{self.channel}({','.join(settings)})" if settings else self.channel

    @property
    def version(self) -> IndexVersion:
        """The generation and commit of the current snapshot."""
        return self.reader.version

    def refresh(self) -> bool:
        """Switch to the newest commit. Returns whether there was a new commit."""
        return self.reader.refresh()

    def holding(self) -> AbstractContextManager[IndexSnapshot]:
        """Pin the current snapshot until the block ends, even if another thread refreshes."""
        return self.reader.holding()

    @property
    def num_docs(self) -> int:
        """The number of passages."""
        with self.reader.snapshot() as snapshot:
            return snapshot.lucene.num_docs

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The tokenizer that turns queries into bags of terms."""
        with self.reader.snapshot() as snapshot:
            return snapshot.tokenizer

    @property
    def language(self) -> str:
        """The language code of the index's texts."""
        with self.reader.snapshot() as snapshot:
            return snapshot.generation.language

    @property
    def unit(self) -> str:
        """The unit of the index: `passage`, `sentence` or `chunk:…`."""
        with self.reader.snapshot() as snapshot:
            return snapshot.generation.unit

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the records of these docids: `id`, `title`, `text` and metadata."""
        with self.reader.snapshot() as snapshot:
            return [PassageRecord.of(json.loads(raw)) for raw in snapshot.lucene.raws(docids)]

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """Return the passages' values of a metadata field, for grouping; None if a passage lacks it."""
        with self.reader.snapshot() as snapshot:
            snapshot.require_fields([field])
            return snapshot.lucene.keys(docids, field)

    def fields_among(self, names: Collection[str]) -> list[str]:
        """Return the metadata fields with these names, and the parts of objects with these names."""
        with self.reader.snapshot() as snapshot:
            parts = tuple(f"{name}." for name in names)
            return [field for field in snapshot.lucene.fields() if field in names or field.startswith(parts)]

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits for a reader; sentences get their passage's text as `context`."""
        with self.reader.snapshot() as snapshot:
            if snapshot.generation.unit == SENTENCE:
                return in_context(snapshot.lucene, hits)
            return list(hits)

    def close(self) -> None:
        """Close the index."""
        self.reader.close()


class Searcher(ChannelSearcher):
    """Searches an index folder by impacts or BM25, without a neural network.

    The channel `impact` scores by summed impacts, integers (SPARTA, eq. 9); `bm25` scores title and text.
    Hits are sorted by descending score; ties follow corpus position. Threads may share a searcher.

    :param index: an index folder, or an open reader; None means `$SPARTA_INDEX` or `./sparta-index`
    :param bm25: k1 and b of BM25; the defaults are 0.9 and 0.4
    :raises IndexStateError: there is no index, or the index has a newer format.
    """

    def __init__(
        self,
        index: str | Path | IndexReader | None = None,
        *,
        channel: str = IMPACT,
        bm25: Bm25 | None = None,
    ) -> None:
        super().__init__(index, channel_name(channel), bm25)

    def beside(self, channel: str) -> Searcher:
        """Return a searcher for another channel with the same reader. Closing either searcher closes both."""
        return Searcher(self.reader, channel=channel)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels of the Lucene index, the default channel first."""
        with self.reader.snapshot() as snapshot:
            return snapshot.generation.lucene_channels

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return one page of each query's ranking: passage ids, docids and scores."""
        impacts, texts = ([], queries) if self.channel == BM25 else (queries, [])
        return self._rank(impacts, texts, page, threads)

    def rank_both(
        self, queries: Sequence[str], page: Page, threads: int = 1
    ) -> tuple[list[Ranking], list[Ranking]]:
        """Return each query's ranking by impacts and each query's ranking by BM25, from one call."""
        rankings = self._rank(queries, queries, page, threads)
        return rankings[: len(queries)], rankings[len(queries) :]

    def _rank(
        self, impact_queries: Sequence[str], bm25_queries: Sequence[str], page: Page, threads: int
    ) -> list[Ranking]:
        """Rank one list of queries by impacts and another list by BM25, in this order."""
        with self.reader.snapshot() as snapshot:
            if impact_queries or self.channel == IMPACT:
                snapshot.require_impacts(names_channel=True)
            if page.fields:
                snapshot.require_fields(page.fields)
            bags = snapshot.tokenizer.all_terms(impact_queries)
            folded_queries = [bm25_query(text, snapshot.tokenizer.language) for text in bm25_queries]

            def search(depth: int, query_numbers: Sequence[int]) -> list[Ranking]:
                searched_bags = [bags[i] for i in query_numbers if i < len(bags)]
                searched_texts = [folded_queries[i - len(bags)] for i in query_numbers if i >= len(bags)]
                hits = snapshot.lucene.search(searched_bags, searched_texts, depth, threads, page.filter)
                return _rankings(snapshot, hits, len(searched_bags))

            n_queries = len(impact_queries) + len(bm25_queries)
            return page.rankings(search, n_queries, snapshot.generation.unit, snapshot.lucene.keys)

    @property
    def fields(self) -> list[str]:
        """The names of the metadata fields; none if an older sparta built the index."""
        with self.reader.snapshot() as snapshot:
            return snapshot.lucene.fields()

    def docids(self, passage_ids: Sequence[str]) -> list[int]:
        """Return Lucene's docids of passages; −1 if the index lacks the passage."""
        with self.reader.snapshot() as snapshot:
            docids: list[int] = snapshot.lucene.docids(passage_ids).tolist()
            return docids

    def passage(self, passage_id: str) -> dict[str, Any]:
        """Return a passage's `id`, `title`, `text` and metadata; a split passage is joined from its parts.

        :raises NoPassageError: the index lacks the passage.
        """
        with self.reader.snapshot() as snapshot:
            docids = docids_of(snapshot, passage_id)
            records = [json.loads(raw) for raw in snapshot.lucene.raws(docids)]
            if snapshot.lucene.ids(docids[:1]) != [passage_id]:
                return PassageRecord.of(whole_record(passage_id, records, snapshot.generation.unit))
            return PassageRecord.of(records[0])

    def first_part(self, passage_id: str) -> dict[str, Any]:
        """Return the record of a passage, or of a split passage's first part."""
        with self.reader.snapshot() as snapshot:
            raw = snapshot.lucene.raws(docids_of(snapshot, passage_id)[:1])[0]
            return PassageRecord.of(json.loads(raw))

    def live_passages(self) -> Iterator[Passage]:
        """Yield the live passages of the index, in corpus order, with the texts of the corpus."""
        with self.reader.snapshot() as snapshot:
            docids = snapshot.lucene.in_corpus_order().tolist()
            for record in map(json.loads, snapshot.lucene.records(docids)):
                title = record.get("title")
                title = title if isinstance(title, str) else ""
                yield Passage(str(record["id"]), str(record["contents"]), title)

    def hits_of(self, docids: Sequence[int], score: float = 1.0) -> list[Hit]:
        """Return the passages of these docids as hits with one score.

        Chunks become hits of their documents.
        """
        with self.holding() as snapshot:
            ids = snapshot.lucene.ids(docids)
            passage_ids = [passage_of(i) for i in ids] if is_chunk(snapshot.generation.unit) else ids
            return self.hits([Ranking(passage_ids, list(docids), [score] * len(docids))])[0]

    def term_scores(self, query: str, passage_ids: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return each distinct query term's contribution to each passage's score, `(n_passages, n_terms)`.

        A split passage takes each term's maximum over its parts.

        :raises NoPassageError: the index lacks a passage.
        """
        with self.reader.snapshot() as snapshot:
            docids = snapshot.lucene.docids(passage_ids).tolist()
            docids_by_passage = [
                [docid] if docid >= 0 else docids_of(snapshot, passage_id)
                for docid, passage_id in zip(docids, passage_ids, strict=True)
            ]
            all_docids = [docid for passage_docids in docids_by_passage for docid in passage_docids]
            if not all_docids:
                return np.empty((0, 0), np.float32)
            if self.channel == BM25:
                text = bm25_query(query, snapshot.tokenizer.language)
                term_scores = snapshot.lucene.word_scores(text, all_docids)
            else:
                snapshot.require_impacts(names_channel=True)
                bag = snapshot.tokenizer.terms(query)
                counts = np.array(list(bag.values()), np.float32)
                term_scores = counts * np.stack(
                    [snapshot.lucene.impacts(docid, list(bag)) for docid in all_docids]
                )
            first_rows = np.cumsum([0, *map(len, docids_by_passage)])[:-1]
            return np.maximum.reduceat(term_scores, first_rows, axis=0)


def docids_of(snapshot: IndexSnapshot, passage_id: str, filter: Filter | None = None) -> list[int]:
    """Return the docid of a passage, or the docids of a split passage's sentences or chunks in corpus order.

    In an index of whole passages, `p#0` does not count as a part of a passage `p`.

    :param filter: return only the parts that pass the filter, or all parts if none passes
    :raises NoPassageError: the index lacks the passage.
    """
    lucene = snapshot.lucene
    docids = [docid for docid in lucene.docids([passage_id]).tolist() if docid >= 0]
    if not docids and is_cut(snapshot.generation.unit):
        docids = lucene.in_corpus_order(lucene.docids(lucene.sentences([passage_id]))).tolist()
        if filter:
            matches = lucene.matching(filter)
            docids = [docid for docid in docids if matches[docid]] or docids
    if not docids:
        raise NoPassageError(
            f"the index holds no passage with the id {passage_id!r}",
            where=str(lucene.path.parent),
            remedy="take an id from a search",
        )
    return docids


def channel_name(name: str, channels: Sequence[str] = LUCENE_CHANNELS) -> str:
    """Return the current name of a channel: the old name `sparta` means `impact`.

    :raises InputError: the name is not one of `channels`.
    """
    known = _OLD_NAMES.get(name, name) if isinstance(name, str) else None
    if known not in channels:
        raise no_channel(name, channels)
    return known


def bm25_query(query: str, language: Language) -> str:
    """Return a query as BM25 reads it: folded (normalized), and empty if it is blank (`is_blank`)."""
    return "" if is_blank(query) else language.fold(query)


def is_fusion(channels: str | None) -> bool:
    """Return whether channels name a fusion, such as `dense,impact` or `bm25=2`, and not a single channel."""
    return not set(",=").isdisjoint(channels or "")


def no_channel(value: Any, channels: Sequence[str]) -> InputError:
    """Return the error for a value that names none of these channels."""
    is_single_name = isinstance(value, str) and not is_fusion(value)
    return InputError(
        f"unknown channel {value!r}; available channels: {', '.join(channels)}",
        remedy="" if is_single_name else "to search several channels, use hybrid.HybridSearcher",
    )


def _rankings(snapshot: IndexSnapshot, hits: Hits, impact_queries: int) -> list[Ranking]:
    """Return each query's hits as a ranking.

    :param impact_queries: how many queries, from the first, have impact scores, which are integers
    """
    passage_ids, docids = snapshot.lucene.ids(hits.docids), hits.docids.tolist()
    impact_hits = hits.indptr[impact_queries]
    if hits.scores[:impact_hits].max(initial=0) >= EXACT_SCORES and not snapshot.kept.get(_ROUNDED):
        snapshot.kept[_ROUNDED] = True  # warn once
        logger.warning(
            "scores of %s or more are rounded to float32, which may change the ranking:"
            " scale impacts or query weights down",
            f"{EXACT_SCORES:,}",
        )
    scores = hits.scores[:impact_hits].astype("int64").tolist() + hits.scores[impact_hits:].tolist()
    bounds = itertools.pairwise(hits.indptr.tolist())
    return [Ranking(passage_ids[start:end], docids[start:end], scores[start:end]) for start, end in bounds]
