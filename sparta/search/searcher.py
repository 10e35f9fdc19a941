"""Searching: questions become bags of terms, Lucene sums their impacts."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.index.folder import Generation, IndexFolder, default_index
from sparta.lucene.bridge import ImpactSearcher
from sparta.lucene.packing import Hits
from sparta.models.quantize import Quantizer
from sparta.models.query_encoder import QueryTokenizer

logger = logging.getLogger(__name__)

CHANNELS = ("sparta", "bm25")


class Records(Protocol):
    """What gives stored records by Lucene's numbers: a searcher of any channel."""

    def doc(self, lucene_docid: int) -> dict[str, Any]:
        """The stored record of a passage."""

    def raw(self, lucene_docid: int) -> str:
        """The stored record of a passage as JSON."""


class Found(NamedTuple):
    """What a channel found for one question, best first: passage ids, Lucene's numbers, scores."""

    passage_ids: list[str]
    lucene_docids: list[int]
    scores: list[float]


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


class ChannelSearcher(Closing):
    """What searchers of one channel share: hits made of the columns that `found` gives, and their records."""

    lucene: ImpactSearcher
    channel: str

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        raise NotImplementedError

    def terms(self, q: str) -> dict[str, float]:
        """The terms of a question and how much each counts."""
        raise NotImplementedError

    def found(self, queries: Sequence[str], k: int, threads: int = 1) -> Iterator[Found]:
        """The k best passages for each question in columns: what fusing and evaluating need, and no more."""
        raise NotImplementedError

    def upper_bounds(self, queries: Sequence[str]) -> list[float] | None:
        """What no passage scores more than, for each question; None where the channel knows no such bound."""
        return None

    def search(self, q: str, k: int = 10) -> list[Hit]:
        """The k best passages for a question; by words or terms, none for one whose words are unknown."""
        return hits_of(next(self.found([q], k)), self)

    def batch_search(
        self, queries: Sequence[str], qids: Sequence[str], k: int = 10, threads: int = 1
    ) -> dict[str, list[Hit]]:
        """The k best passages for each question, by query id."""
        if len(queries) != len(qids):
            raise InputError(f"expected as many qids as queries, found {len(qids)} and {len(queries)}")
        found = self.found(queries, k, threads)
        return {qid: hits_of(own, self) for qid, own in zip(qids, found, strict=True)}

    def doc(self, lucene_docid: int) -> dict[str, Any]:
        """The stored record of a passage."""
        record: dict[str, Any] = json.loads(self.raw(lucene_docid))
        return record

    def raw(self, lucene_docid: int) -> str:
        """The stored record of a passage as JSON."""
        return self.lucene.raws([lucene_docid])[0]


class Searcher(ChannelSearcher):
    """Searches an index folder; needs no neural network.

    `channel` is `sparta` (summed impacts, SPARTA, eq. 9, in units of impact) or `bm25` (k1 0.9, b 0.4 over
    title and text). Order: score descending, then corpus position. Shape of the API: Pyserini's.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :raises IndexStateError: there is no index, or one of a newer format.
    """

    def __init__(self, index: str | Path | None = None, *, channel: str = "sparta") -> None:
        self.channel = _known(channel)
        self.folder = IndexFolder(index if index is not None else default_index())
        self.generation = self._choose()
        try:
            self._open()
        except SpartaError:
            if self.folder.state().searchable == self.generation:
                raise
            self.generation = self._choose()  # an overwrite ended just now and removed what was chosen
            self._open()

    def beside(self, channel: str) -> Searcher:
        """Return a searcher of a channel of the same open index; closing one of them closes both."""
        other = copy(self)
        other.channel = _known(channel)
        return other

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

    def terms(self, q: str) -> dict[str, float]:
        """The terms of a question and how much each counts."""
        return self.tokenizer.terms(q)

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
        _check_depth(k)
        if self.channel == "bm25":
            return self.lucene.search_text(queries, k, threads)
        return self.lucene.search_impacts(self._bags(queries), k, threads)

    def _bags(self, queries: Sequence[str]) -> list[Mapping[str, float]]:
        return [self.tokenizer.terms(q) for q in queries]

    def found(self, queries: Sequence[str], k: int, threads: int = 1) -> Iterator[Found]:
        """The k best passages for each question in columns: what fusing and evaluating need, and no more."""
        return self._columns(self.score_batch(queries, k, threads))

    def upper_bounds(self, queries: Sequence[str]) -> list[float] | None:
        """What no passage scores more than, for each question: for bm25, the sum of its words' idf."""
        if self.channel != "bm25":
            return None
        bounds: list[float] = self.lucene.text_upper_bounds(queries).tolist()
        return bounds

    def found_both(self, queries: Sequence[str], k: int, threads: int = 1) -> tuple[list[Found], list[Found]]:
        """What the channels sparta and bm25 find for each question, searched side by side in Java."""
        _check_depth(k)
        hits = list(self._columns(self.lucene.search_both(self._bags(queries), queries, k, threads)))
        return hits[: len(queries)], hits[len(queries) :]

    def _columns(self, hits: Hits) -> Iterator[Found]:
        ids = self.lucene.ids(hits.docids)
        docids, scores = hits.docids.tolist(), hits.scores.tolist()
        for start, end in itertools.pairwise(hits.indptr.tolist()):
            yield Found(ids[start:end], docids[start:end], scores[start:end])

    def close(self) -> None:
        """Let go of the index."""
        self.lucene.close()


def _known(channel: str) -> str:
    if channel not in CHANNELS:
        raise InputError(f"expected a channel of {', '.join(CHANNELS)}, found {channel!r}")
    return channel


def _check_depth(k: int) -> None:
    if k < 1:
        raise InputError(f"k must be at least 1, found {k}")


def hits_of(found: Found, searcher: Records) -> list[Hit]:
    """Return hits that lead back to the searcher's records."""
    return [Hit(docid, number, score, searcher) for docid, number, score in zip(*found, strict=True)]
