"""Searching: questions become bags of terms, Lucene sums their impacts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.layout import Generation, IndexFolder, default_index
from sparta.lucene import ImpactSearcher
from sparta.packed import Hits
from sparta.quantize import Quantizer
from sparta.tokenize import QueryTokenizer

logger = logging.getLogger(__name__)

CHANNELS = ("sparta", "bm25")


class Records(Protocol):
    """What gives stored records by Lucene's numbers: a searcher of any channel."""

    def doc(self, lucene_docid: int) -> dict[str, Any]:
        """The stored record of a passage."""

    def raw(self, lucene_docid: int) -> str:
        """The stored record of a passage as JSON."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage found. `docid` is the passage id, `lucene_docid` Lucene's number, `score` ranked it."""

    docid: str
    lucene_docid: int
    score: float
    searcher: Records

    def doc(self) -> dict[str, Any]:
        """The stored record."""
        return self.searcher.doc(self.lucene_docid)

    @property
    def raw(self) -> str:
        """The stored record as JSON."""
        return self.searcher.raw(self.lucene_docid)


class Searcher(Closing):
    """Searches an index folder; needs no neural network.

    `channel` is `sparta` (summed impacts, SPARTA, eq. 9, in units of impact) or `bm25` (k1 0.9, b 0.4 over
    title and text). Order: score descending, then corpus position. Shape of the API: Pyserini's.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :raises IndexStateError: there is no index, or one of a newer format.
    """

    def __init__(self, index: str | Path | None = None, *, channel: str = "sparta") -> None:
        if channel not in CHANNELS:
            raise InputError(f"expected a channel of {', '.join(CHANNELS)}, found {channel!r}")
        self.folder = IndexFolder(index if index is not None else default_index())
        self.channel = channel
        self.generation = self._choose()
        try:
            self._open()
        except SpartaError:
            if self.folder.state().searchable == self.generation:
                raise
            self.generation = self._choose()  # an overwrite ended just now and removed what was chosen
            self._open()

    def _open(self) -> None:
        self.lucene = ImpactSearcher(
            self.folder.lucene_path(self.generation), language=self.generation.language
        )
        side = self.folder.query_side(self.generation)
        self.tokenizer: QueryTokenizer = side.query_tokenizer()
        self.quantizer: Quantizer = side.quantizer

    def _choose(self) -> Generation:
        state = self.folder.state()
        generation = state.searchable
        committed = generation and any(self.folder.lucene_path(generation).glob("segments_*"))
        if generation is None or not committed:
            raise IndexStateError(
                "the index holds no passages yet",
                where=str(self.folder.path),
                remedy="finish it with: sparta index … --resume",
            )
        if state.live is None or not state.live.complete:
            logger.warning(
                "%s is incomplete: searching what is committed;"
                " finish it by repeating its command with --resume",
                self.folder.path,
            )
        return generation

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        return self.lucene.num_docs

    def search(self, q: str, k: int = 10) -> list[Hit]:
        """The k best passages for a question; none for a question without known terms."""
        return next(self._hits([q], k, 1))

    def batch_search(
        self, queries: Sequence[str], qids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[Hit]]:
        """The k best passages for each question, by query id; one call into Java for all."""
        if len(queries) != len(qids):
            raise InputError(f"expected as many qids as queries, found {len(qids)} and {len(queries)}")
        return dict(zip(qids, self._hits(queries, k, threads), strict=True))

    def terms(self, q: str) -> dict[str, float]:
        """The terms of a question and how much each counts."""
        return self.tokenizer.terms(q)

    def doc(self, lucene_docid: int) -> dict[str, Any]:
        """The stored record of a passage."""
        record: dict[str, Any] = json.loads(self.raw(lucene_docid))
        return record

    def raw(self, lucene_docid: int) -> str:
        """The stored record of a passage as JSON."""
        return self.lucene.raws([lucene_docid])[0]

    def lookup(self, passage_id: str) -> int:
        """Lucene's number of a passage; an unknown id is an InputError."""
        docid = int(self.lucene.docids([passage_id])[0])
        if docid < 0:
            raise InputError(
                f"the index holds no passage with the id {passage_id!r}",
                where=str(self.folder.path),
                remedy="sparta search prints ids",
            )
        return docid

    def score_batch(self, queries: Sequence[str], k: int, threads: int = 1) -> Hits:
        """Scores as arrays, without ids or records."""
        if k < 1:
            raise InputError(f"k must be at least 1, found {k}")
        if self.channel == "bm25":
            return self.lucene.search_text(queries, k, threads)
        bags: list[Mapping[str, float]] = [self.tokenizer.terms(q) for q in queries]
        return self.lucene.search_impacts(bags, k, threads)

    def _hits(self, queries: Sequence[str], k: int, threads: int) -> Iterator[list[Hit]]:
        found = self.score_batch(queries, k, threads)
        ids = self.lucene.ids(found.docids)
        for q in range(len(found)):
            docids, scores = found.query(q)
            start = int(found.indptr[q])
            yield [
                Hit(ids[start + i], int(docid), float(score), self)
                for i, (docid, score) in enumerate(zip(docids, scores, strict=True))
            ]

    def close(self) -> None:
        """Let go of the index."""
        self.lucene.close()
