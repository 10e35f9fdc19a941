"""Searching several channels as one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.channels import Channels
from hybrid.fusion import Fusion
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.layout import default_index
from sparta.search import Hit


@dataclass(frozen=True, slots=True)
class HybridHit(Hit):
    """One passage found. `ranks` has its place, from 1, in each channel that found it."""

    ranks: Mapping[str, int]


class HybridSearcher(Closing):
    """Searches several channels of an index side by side, and fuses what they find.

    In the shape of `sparta.search.Searcher`. Order: fused score descending; of equal scores, as `Fusion.fuse`
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

    def search(self, q: str, k: int = 10) -> list[HybridHit]:
        """The k best passages for a question."""
        return fused_hits(self.fusion, self.channels.search(q, self.fusion.candidates), k)

    def batch_search(
        self, queries: Sequence[str], qids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[HybridHit]]:
        """The k best passages for each question, by query id; `threads` for each channel."""
        if len(queries) != len(qids):
            raise InputError(f"expected as many qids as queries, found {len(qids)} and {len(queries)}")
        found = self.channels.batch_search(queries, qids, self.fusion.candidates, threads)
        return {
            qid: fused_hits(self.fusion, {name: hits[qid] for name, hits in found.items()}, k) for qid in qids
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


def fused_hits(fusion: Fusion, found: Mapping[str, Sequence[Hit]], k: int) -> list[HybridHit]:
    """Fuse what the channels found for one question."""
    if k < 1:
        raise InputError(f"k must be at least 1, found {k}")
    columns = {
        name: ([h.docid for h in found[name]], [h.score for h in found[name]]) for name in fusion.weights
    }
    hits: dict[str, Hit] = {}
    for name in reversed(list(columns)):
        hits.update(zip(columns[name][0], found[name], strict=True))
    ranks = {name: dict(zip(ids, itertools.count(1), strict=False)) for name, (ids, _) in columns.items()}
    return [
        HybridHit(
            docid,
            hits[docid].lucene_docid,
            score,
            hits[docid].searcher,
            {name: places[docid] for name, places in ranks.items() if docid in places},
        )
        for docid, score in fusion.gather_columns(columns).ranked(list(fusion.weights.values()), k)
    ]
