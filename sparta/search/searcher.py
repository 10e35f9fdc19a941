"""Searching: a query becomes a bag of terms, and Lucene sums their impacts."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparta.base.errors import InputError, NoPassageError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Hit
from sparta.data.units import SENTENCE, is_chunk, is_cut, passage_of
from sparta.index.folder import default_index
from sparta.index.view import IndexVersion, IndexView, OpenIndex
from sparta.lucene.bridge import Bm25, ImpactSearcher
from sparta.lucene.packing import EXACT_SCORES, Hits
from sparta.models.query_encoder import QueryTokenizer, is_blank
from sparta.search.channel_searcher import ChannelSearcher
from sparta.search.contexts import in_context, whole_record
from sparta.search.ranked import Keys, Ranked, deepened, depth_of, reduction

IMPACT, BM25 = "impact", "bm25"
CHANNELS = (IMPACT, BM25)
_OLD_NAMES = {"sparta": IMPACT}

logger = logging.getLogger(__name__)


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

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), self.index.folder.path, channel=self.channel, bm25=self.index.bm25), ()

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

    def holding(self) -> AbstractContextManager[None]:
        """Keep to one commit until the block ends, also if another thread refreshes."""
        return self.index.holding()

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

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        with self.index.reading() as view:
            return view.generation.language

    @property
    def unit(self) -> str:
        """The unit of the index."""
        with self.index.reading() as view:
            return view.generation.unit

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
        impacts, texts = ([], queries) if self.channel == BM25 else (queries, [])
        return iter(self._rank(impacts, texts, k, threads, filter, collapse, deepest))

    def rank_both(
        self,
        queries: Sequence[str],
        k: int,
        threads: int = 1,
        *,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> tuple[list[Ranked], list[Ranked]]:
        """Rank by impacts and by BM25, side by side in one call."""
        ranked = self._rank(queries, queries, k, threads, filter, collapse)
        return ranked[: len(queries)], ranked[len(queries) :]

    def _rank(
        self,
        impacts: Sequence[str],
        texts: Sequence[str],
        k: int,
        threads: int,
        filter: FilterLike | None,
        collapse: str | None,
        deepest: int | None = None,
    ) -> list[Ranked]:
        """Rankings of some queries by impacts, then of others by BM25."""
        depth_of(k)
        kept = Filter.of(filter)
        with self.index.reading() as view:
            if impacts or self.channel == IMPACT:
                view.require_impacts()
            if kept or collapse:
                view.require_fields()
            bags = [view.tokenizer.terms(query) for query in impacts]
            folded = ["" if is_blank(text) else view.tokenizer.language.fold(text) for text in texts]

            def search(depth: int, which: Sequence[int]) -> list[Ranked]:
                own = [bags[i] for i in which if i < len(bags)]
                others = [folded[i - len(bags)] for i in which if i >= len(bags)]
                hits = view.lucene.search(own, others, depth, threads, kept)
                return _columns(view.lucene, hits, len(own))

            n = len(impacts) + len(texts)
            keys: Keys | None = partial(view.lucene.keys, field=collapse) if collapse else None
            reduced = reduction(view.generation.unit, keys)
            return deepened(search, n, k, reduced, deepest) if reduced else search(k, range(n))

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages."""
        with self.index.reading() as view:
            return [json.loads(raw) for raw in view.lucene.raws(docids)]

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        with self.index.reading() as view:
            return in_context(view.lucene, hits) if view.generation.unit == SENTENCE else list(hits)

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """The values of a metadata field, to tell which passages share them; None where there is none."""
        with self.index.reading() as view:
            view.require_fields()
            return view.lucene.keys(docids, field)

    @property
    def fields(self) -> list[str]:
        """The metadata fields that passages have; none in an index of an older sparta."""
        with self.index.reading() as view:
            return view.lucene.fields()

    def docids(self, passage_ids: Sequence[str]) -> list[int]:
        """Lucene's docids of passages, −1 where there is none."""
        with self.index.reading() as view:
            docids: list[int] = view.lucene.docids(passage_ids).tolist()
            return docids

    def passage(self, passage_id: str) -> dict[str, Any]:
        """The stored record of one passage, of one that was cut joined from those of its parts.

        :raises NoPassageError: an unknown id.
        """
        with self.index.reading() as view:
            docids = docids_of(view, passage_id)
            records = [json.loads(raw) for raw in view.lucene.raws(docids)]
            one: dict[str, Any] = records[0]
            return one if view.lucene.ids(docids[:1]) == [passage_id] else whole_record(passage_id, records)

    def first_part(self, passage_id: str) -> dict[str, Any]:
        """The stored record of one passage, or of the first part that it was cut into."""
        with self.index.reading() as view:
            record: dict[str, Any] = json.loads(view.lucene.raws(docids_of(view, passage_id)[:1])[0])
            return record

    def hits_of(self, docids: Sequence[int], score: float = 1.0) -> list[Hit]:
        """Passages by their docids, all with one score; of parts, what they are parts of."""
        with self.holding(), self.index.reading() as view:
            ids = view.lucene.ids(docids)
            named = [passage_of(i) for i in ids] if is_chunk(view.generation.unit) else ids
            return self.hits(Ranked(named, list(docids), [score] * len(docids)))

    def term_scores(self, query: str, passage_ids: Sequence[str]) -> npt.NDArray[np.float32]:
        """What each different term of a query adds to the score of each passage, `(n_passages, n_terms)`.

        Of a passage that was cut, for each term the highest of its parts.

        :raises NoPassageError: an unknown id.
        """
        with self.index.reading() as view:
            docids = view.lucene.docids(passage_ids).tolist()
            parts = [[d] if d >= 0 else docids_of(view, i) for d, i in zip(docids, passage_ids, strict=True)]
            every = [docid for own in parts for docid in own]
            if not every:
                return np.empty((0, 0), np.float32)
            if self.channel == BM25:
                rows = view.lucene.word_scores(view.tokenizer.language.fold(query), every)
            else:
                view.require_impacts()
                bag = view.tokenizer.terms(query)
                counts = np.array(list(bag.values()), np.float32)
                rows = counts * np.stack([view.lucene.impacts(docid, list(bag)) for docid in every])
            begins = np.cumsum([0, *map(len, parts)])[:-1]
            return np.maximum.reduceat(rows, begins, axis=0)

    def close(self) -> None:
        """Release the index."""
        self.index.close()


def docids_of(view: IndexView, passage_id: str) -> list[int]:
    """Lucene's number of a passage, or of the sentences or chunks that it was cut into.

    :raises NoPassageError: an unknown id; in an index of whole passages, `p#0` is no part of a passage `p`.
    """
    lucene = view.lucene
    docids = [docid for docid in lucene.docids([passage_id]).tolist() if docid >= 0]
    if not docids and is_cut(view.generation.unit):
        docids = lucene.docids(lucene.sentences([passage_id])).tolist()
    if not docids:
        raise NoPassageError(
            f"the index holds no passage with the id {passage_id!r}",
            where=str(lucene.path.parent),
            remedy="take an id from a search",
        )
    return docids


def channel_name(name: str, channels: Sequence[str] = CHANNELS) -> str:
    """Return the name of one of these channels; the former name of `impact` is understood."""
    known = _OLD_NAMES.get(name, name) if isinstance(name, str) else None
    if known not in channels:
        raise no_channel(name, channels)
    return known


def no_channel(found: Any, channels: Sequence[str]) -> InputError:
    """Say that this names none of these channels."""
    named = isinstance(found, str) and not set(found) & set(",=")
    return InputError(
        f"expected a channel of {', '.join(channels)}, found {found!r}",
        remedy="" if named else "several are searched by hybrid.HybridSearcher",
    )


def _columns(lucene: ImpactSearcher, hits: Hits, integers: int) -> list[Ranked]:
    """Each query's hits in columns; the scores of the first `integers` queries are integers."""
    ids, docids = lucene.ids(hits.docids), hits.docids.tolist()
    whole = hits.indptr[integers]
    if hits.scores[:whole].max(initial=0) >= EXACT_SCORES:
        logger.warning(
            "scores of %s or more are rounded to float32, and their order with them:"
            " scale impacts or query weights down",
            f"{EXACT_SCORES:,}",
        )
    scores = hits.scores[:whole].astype("int64").tolist() + hits.scores[whole:].tolist()
    bounds = itertools.pairwise(hits.indptr.tolist())
    return [Ranked(ids[start:end], docids[start:end], scores[start:end]) for start, end in bounds]
