"""Searching: a query becomes a bag of terms, and Lucene sums their impacts."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from sparta.base.errors import InputError, NoPassageError
from sparta.base.records import Hit, Ranking
from sparta.data.units import SENTENCE, is_chunk, is_cut, passage_of
from sparta.index.folder import default_index
from sparta.index.reader import IndexReader
from sparta.index.snapshot import IndexSnapshot, IndexVersion
from sparta.lucene.bridge import Bm25
from sparta.lucene.packing import EXACT_SCORES, Hits
from sparta.models.query_encoder import QueryTokenizer, is_blank
from sparta.search.contexts import in_context, whole_record
from sparta.search.ranked import Keys, deepened, reduction
from sparta.search.retriever import Page, Retriever

IMPACT, BM25 = "impact", "bm25"
CHANNELS = (IMPACT, BM25)
_ROUNDED = "rounded scores"
_OLD_NAMES = {"sparta": IMPACT}

logger = logging.getLogger(__name__)


class ChannelSearcher(Retriever):
    """A retriever of one channel of an index folder, over a reader that other channels may share.

    Closing it closes the reader. Pickled or copied, it opens the index again by its path.
    """

    def __init__(
        self,
        index: str | Path | IndexReader | None,
        channel: str,
        bm25: Bm25 | None,
        beside: Sequence[str] = (),
    ) -> None:
        if not isinstance(index, IndexReader):
            index = IndexReader(index if index is not None else default_index(), bm25, beside)
        self.channel, self.reader = channel, index

    def __reduce__(self) -> tuple[object, ...]:
        opened = cast(Callable[..., Self], type(self))
        return partial(opened, self.reader.folder.path, channel=self.channel, bm25=self.reader.bm25), ()

    @property
    def version(self) -> IndexVersion:
        """The generation and commit that are searched."""
        return self.reader.version

    def refresh(self) -> bool:
        """Search what was committed since the index was opened; returns whether there was anything."""
        return self.reader.refresh()

    def holding(self) -> AbstractContextManager[IndexSnapshot]:
        """Keep to one snapshot until the block ends, also if another thread refreshes."""
        return self.reader.holding()

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        with self.reader.reading() as snapshot:
            return snapshot.lucene.num_docs

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        with self.reader.reading() as snapshot:
            return snapshot.tokenizer

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        with self.reader.reading() as snapshot:
            return snapshot.generation.language

    @property
    def unit(self) -> str:
        """The unit of the index."""
        with self.reader.reading() as snapshot:
            return snapshot.generation.unit

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the stored records of passages."""
        with self.reader.reading() as snapshot:
            return [json.loads(raw) for raw in snapshot.lucene.raws(docids)]

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """Return the values of a metadata field, by which passages are grouped; None where there is none."""
        with self.reader.reading() as snapshot:
            snapshot.require_fields()
            return snapshot.lucene.keys(docids, field)

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        with self.reader.reading() as snapshot:
            if snapshot.generation.unit == SENTENCE:
                return in_context(snapshot.lucene, hits)
            return list(hits)

    def close(self) -> None:
        """Release the index."""
        self.reader.close()


class Searcher(ChannelSearcher):
    """Searches an index folder; needs no neural network.

    `channel` is `impact` (summed impacts, integers; SPARTA, eq. 9) or `bm25` (title and text).
    Order: score descending, then corpus position. Threads may share a searcher.

    :param index: an index folder, or an open reader; None is `$SPARTA_INDEX` or `./sparta-index`
    :param bm25: k1 and b, where they are not 0.9 and 0.4
    :raises IndexStateError: there is no index, or one of a newer format.
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
        """Return a searcher of another channel of the same reader; closing one of them closes both."""
        return Searcher(self.reader, channel=channel)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels of this Lucene index, the default one first."""
        with self.reader.reading() as snapshot:
            return snapshot.generation.lucene_channels

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return a page of the ranking of each query: ids, docids and scores."""
        impacts, texts = ([], queries) if self.channel == BM25 else (queries, [])
        return self._rank(impacts, texts, page, threads)

    def rank_both(
        self, queries: Sequence[str], page: Page, threads: int = 1
    ) -> tuple[list[Ranking], list[Ranking]]:
        """Rank by impacts and by BM25, side by side in one call."""
        rankings = self._rank(queries, queries, page, threads)
        return rankings[: len(queries)], rankings[len(queries) :]

    def _rank(self, impacts: Sequence[str], texts: Sequence[str], page: Page, threads: int) -> list[Ranking]:
        """Rank some queries by impacts, then others by BM25."""
        with self.reader.reading() as snapshot:
            if impacts or self.channel == IMPACT:
                snapshot.require_impacts()
            if page.filter or page.collapse:
                snapshot.require_fields()
            bags = [snapshot.tokenizer.terms(query) for query in impacts]
            folded = ["" if is_blank(text) else snapshot.tokenizer.language.fold(text) for text in texts]

            def search(depth: int, which: Sequence[int]) -> list[Ranking]:
                some = [bags[i] for i in which if i < len(bags)]
                others = [folded[i - len(bags)] for i in which if i >= len(bags)]
                hits = snapshot.lucene.search(some, others, depth, threads, page.filter)
                return _columns(snapshot, hits, len(some))

            n, depth = len(impacts) + len(texts), page.depth
            keys: Keys | None = partial(snapshot.lucene.keys, field=page.collapse) if page.collapse else None
            reduced = reduction(snapshot.generation.unit, keys)
            rankings = (
                deepened(search, n, depth, reduced, page.deepest) if reduced else search(depth, range(n))
            )
            return [ranking[page.offset :] for ranking in rankings] if page.offset else rankings

    @property
    def fields(self) -> list[str]:
        """The metadata fields that passages have; none in an index of an older sparta."""
        with self.reader.reading() as snapshot:
            return snapshot.lucene.fields()

    def docids(self, passage_ids: Sequence[str]) -> list[int]:
        """Lucene's docids of passages, −1 where there is none."""
        with self.reader.reading() as snapshot:
            docids: list[int] = snapshot.lucene.docids(passage_ids).tolist()
            return docids

    def passage(self, passage_id: str) -> dict[str, Any]:
        """The stored record of one passage, of one that was cut joined from those of its parts.

        :raises NoPassageError: an unknown id.
        """
        with self.reader.reading() as snapshot:
            docids = docids_of(snapshot, passage_id)
            records = [json.loads(raw) for raw in snapshot.lucene.raws(docids)]
            if snapshot.lucene.ids(docids[:1]) != [passage_id]:
                return whole_record(passage_id, records)
            record: dict[str, Any] = records[0]
            return record

    def first_part(self, passage_id: str) -> dict[str, Any]:
        """The stored record of one passage, or of the first part that it was cut into."""
        with self.reader.reading() as snapshot:
            record: dict[str, Any] = json.loads(snapshot.lucene.raws(docids_of(snapshot, passage_id)[:1])[0])
            return record

    def hits_of(self, docids: Sequence[int], score: float = 1.0) -> list[Hit]:
        """Passages by their docids, all with one score; of parts, what they are parts of."""
        with self.holding() as snapshot:
            ids = snapshot.lucene.ids(docids)
            named = [passage_of(i) for i in ids] if is_chunk(snapshot.generation.unit) else ids
            return self.hits([Ranking(named, list(docids), [score] * len(docids))])[0]

    def term_scores(self, query: str, passage_ids: Sequence[str]) -> npt.NDArray[np.float32]:
        """What each different term of a query adds to the score of each passage, `(n_passages, n_terms)`.

        Of a passage that was cut, for each term the highest of its parts.

        :raises NoPassageError: an unknown id.
        """
        with self.reader.reading() as snapshot:
            docids = snapshot.lucene.docids(passage_ids).tolist()
            parts = [
                [docid] if docid >= 0 else docids_of(snapshot, passage_id)
                for docid, passage_id in zip(docids, passage_ids, strict=True)
            ]
            every = [docid for part in parts for docid in part]
            if not every:
                return np.empty((0, 0), np.float32)
            if self.channel == BM25:
                rows = snapshot.lucene.word_scores(snapshot.tokenizer.language.fold(query), every)
            else:
                snapshot.require_impacts()
                bag = snapshot.tokenizer.terms(query)
                counts = np.array(list(bag.values()), np.float32)
                rows = counts * np.stack([snapshot.lucene.impacts(docid, list(bag)) for docid in every])
            begins = np.cumsum([0, *map(len, parts)])[:-1]
            return np.maximum.reduceat(rows, begins, axis=0)


def docids_of(snapshot: IndexSnapshot, passage_id: str) -> list[int]:
    """Lucene's number of a passage, or of the sentences or chunks that it was cut into.

    :raises NoPassageError: an unknown id; in an index of whole passages, `p#0` is no part of a passage `p`.
    """
    lucene = snapshot.lucene
    docids = [docid for docid in lucene.docids([passage_id]).tolist() if docid >= 0]
    if not docids and is_cut(snapshot.generation.unit):
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


def _columns(snapshot: IndexSnapshot, hits: Hits, integers: int) -> list[Ranking]:
    """Each query's hits in columns; the scores of the first `integers` queries are integers."""
    ids, docids = snapshot.lucene.ids(hits.docids), hits.docids.tolist()
    whole = hits.indptr[integers]
    if hits.scores[:whole].max(initial=0) >= EXACT_SCORES and not snapshot.kept.get(_ROUNDED):
        snapshot.kept[_ROUNDED] = True  # said once
        logger.warning(
            "scores of %s or more are rounded to float32, and their order with them:"
            " scale impacts or query weights down",
            f"{EXACT_SCORES:,}",
        )
    scores = hits.scores[:whole].astype("int64").tolist() + hits.scores[whole:].tolist()
    bounds = itertools.pairwise(hits.indptr.tolist())
    return [Ranking(ids[start:end], docids[start:end], scores[start:end]) for start, end in bounds]
