"""Searching several channels as one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.retrieval.channels import Channels
from hybrid.retrieval.fusion import NO_BOUNDS, Bounds, Fusion
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.index.folder import default_index
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.searcher import Found, Hit, Records


@dataclass(frozen=True, slots=True)
class HybridHit(Hit):
    """One passage found. `ranks` has its place, from 1, in each channel that found it."""

    ranks: Mapping[str, int]


class HybridSearcher(Closing):
    """Searches several channels of an index side by side, and fuses what they find.

    In the shape of `Searcher`. Order: fused score descending; of equal scores, as `Fusion.fuse`
    has it.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :param fusion: which channels, and how; sparta + bm25 for None
    :raises IndexStateError: there is no index, or it lacks one of the channels.
    """

    def __init__(self, index: str | Path | None = None, fusion: Fusion | None = None) -> None:
        self.fusion = fusion or Fusion()
        folder = Path(index) if index is not None else default_index()
        self.channels = Channels(folder, list(self.fusion.weights))

    @property
    def num_docs(self) -> int:
        """Number of passages, as the first channel has it."""
        return self._first.num_docs

    @property
    def channel(self) -> str:
        """The channels, joined by +, as the name of a run."""
        return "+".join(self.fusion.weights)

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The index's tokenizer, to show which words of a question a passage has."""
        return self._first.tokenizer

    def terms(self, q: str) -> dict[str, float]:
        """The terms of a question, as the index's tokenizer has them."""
        return self.tokenizer.terms(q)

    def search(self, q: str, k: int = 10) -> list[HybridHit]:
        """The k best passages for a question."""
        found = self.channels.search(q, self.fusion.candidates)
        return self._fused(found, self._bounds([q])[0], k)

    def batch_search(
        self, queries: Sequence[str], qids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[HybridHit]]:
        """The k best passages for each question, by query id; `threads` for each channel."""
        if len(queries) != len(qids):
            raise InputError(f"expected as many qids as queries, found {len(qids)} and {len(queries)}")
        found = self.channels.batch_search(queries, self.fusion.candidates, threads)
        each = zip(*found.values(), strict=True)
        return {
            qid: self._fused(dict(zip(found, own, strict=True)), bounds, k)
            for qid, own, bounds in zip(qids, each, self._bounds(queries), strict=True)
        }

    def doc(self, lucene_docid: int) -> dict[str, Any]:
        """The stored record of a passage."""
        return self._first.doc(lucene_docid)

    def raw(self, lucene_docid: int) -> str:
        """The stored record of a passage as JSON."""
        return self._first.raw(lucene_docid)

    @property
    def _first(self) -> Any:
        return self.channels.searchers[next(iter(self.fusion.weights))]

    def close(self) -> None:
        """Let go of the index."""
        self.channels.close()

    def _bounds(self, queries: Sequence[str]) -> Sequence[Bounds]:
        return self.channels.upper_bounds(queries) if self.fusion.covering else [NO_BOUNDS] * len(queries)

    def _fused(self, found: Mapping[str, Found], bounds: Bounds, k: int) -> list[HybridHit]:
        return fused_hits(self.fusion, found, self.channels.searchers, k, bounds)


def fused_hits(
    fusion: Fusion,
    found: Mapping[str, Found],
    searchers: Mapping[str, Records],
    k: int,
    bounds: Bounds = NO_BOUNDS,
) -> list[HybridHit]:
    """Fuse what the channels found for one question; a hit leads to the first channel that found it.

    :param bounds: for the normalization `coverage`, as `Fusion.fuse` takes them
    """
    if k < 1:
        raise InputError(f"k must be at least 1, found {k}")
    columns = {name: (found[name].passage_ids, found[name].scores) for name in fusion.weights}
    places = {name: dict(zip(ids, itertools.count(1), strict=False)) for name, (ids, _) in columns.items()}
    hits = []
    for docid, score in fusion.gather_columns(columns, bounds).ranked(list(fusion.weights.values()), k):
        ranks = {name: own[docid] for name, own in places.items() if docid in own}
        first = next(iter(ranks))
        number = found[first].lucene_docids[ranks[first] - 1]
        hits.append(HybridHit(docid, number, score, searchers[first], ranks))
    return hits
