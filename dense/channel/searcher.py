"""Dense search: a question becomes a vector, and the passages with the highest dot products are found."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dense.channel.folder import Channel, ChannelFolder
from dense.channel.passages import LivePassages
from dense.models.question_encoder import QuestionEncoder, open_question_encoder
from dense.models.resolve import dense_model_folder, find_dense_model
from dense.search.exact import Candidates, ExactSearch, rank
from dense.search.faiss_index import ApproximateSearch, FlatSearch, has_faiss
from dense.search.selection import select
from dense.search.store import Floats, Rows, VectorFolder, check_finite
from sparta.base.checks import whole
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Hit
from sparta.data.units import SENTENCE
from sparta.index.folder import (
    IndexFolder,
    default_index,
    index_flag,
    lasting_path,
    no_passages,
    require_fields,
)
from sparta.models.query_encoder import QueryTokenizer, is_blank
from sparta.search.channel_searcher import ChannelSearcher
from sparta.search.contexts import in_context
from sparta.search.ranked import Ranked, deepened, depth_of, reduction

logger = logging.getLogger("sparta.dense")

_QUESTIONS_AT_ONCE = 256
_FILTERS_KEPT = 4  # whose rows are known


class Selection(NamedTuple):
    """Some rows: what finds them, and how many they are."""

    find: Candidates
    n: int


class DenseSearcher(ChannelSearcher):
    """Searches the dense channel of an index folder.

    Order: score (dot product, float32) descending, then corpus position. The API is that of
    `Searcher`. When the Lucene index was changed and the channel was not, passages that are
    gone are not found, and a warning tells of those that have no vector yet.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`
    :raises IndexStateError: there is no index, it has no dense channel, or one of another making.
    """

    def __init__(self, index: str | Path | None = None, *, channel: str = "dense") -> None:
        if channel != "dense":
            raise InputError(f"expected the channel dense, found {channel!r}")
        self.channel = channel
        self._lock = threading.Lock()
        self._selections: dict[Filter, Selection] = {}
        self.folder = IndexFolder(lasting_path(index if index is not None else default_index()))
        newest = self._newest()
        while True:
            try:
                self._open(*newest)
                return
            except (SpartaError, FileNotFoundError):
                before, newest = newest, self._newest()
                if newest == before:
                    raise  # no writer removed these files just now

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.folder.path,)

    def _newest(self) -> tuple[ChannelFolder, Channel]:
        self.generation = self.folder.state().searchable
        if self.generation is None:
            raise no_passages(self.folder.path)
        place = ChannelFolder(self.folder.dense_path(self.generation))
        return place, place.read()

    def _open(self, place: ChannelFolder, channel: Channel) -> None:
        assert self.generation is not None
        self.folder.refuse_links()
        self.vectors: VectorFolder = place.vectors(channel)
        self.model_name = channel.model.name
        rows = place.read_rows(channel)
        if int(rows.max(initial=-1)) >= len(self.vectors):
            raise IndexStateError(
                f"expected {len(self.vectors):,} vectors, found the row {rows.max():,} among those searched",
                where=str(place.path / channel.rows_name),
                remedy=f"make the dense channel anew: dense index --overwrite {index_flag(self.folder.path)}",
            )
        self._passages = LivePassages(self.folder.lucene_path(self.generation), self.generation.analysis)
        self.lucene = self._passages.lucene
        try:
            self._follow(channel, rows)
            self._find = self._candidates(place, channel)
        except SpartaError:
            self.close()
            raise

    def _follow(self, channel: Channel, rows: Rows) -> None:
        """Find for every row the passage it stands for; of what changed since, only what is still true."""
        assert self.generation is not None
        live = self._passages
        if live.commit != channel.commit:
            found = self.vectors.rows_of(live.positions, live.hashes(self.generation.unit))
            lacking = int((found < 0).sum())
            if lacking:
                logger.warning(
                    "%s: %d of %d passages have no vector yet, and are not found: run dense index %s",
                    self.folder.path,
                    lacking,
                    len(live),
                    index_flag(self.folder.path),
                )
            rows, docids = found[found >= 0], live.docids[found >= 0]
        elif len(rows) != len(live):
            raise IndexStateError(
                f"expected a vector of each of {len(live)} passages, found {len(rows)}",
                where=str(self.vectors.folder.parent),
                remedy=f"make the dense channel anew: dense index --overwrite {index_flag(self.folder.path)}",
            )
        else:
            docids = live.docids
        self.rows = rows
        self._docids = np.full(len(self.vectors), -1, np.int64)
        self._docids[rows] = docids

    def _candidates(self, place: ChannelFolder, channel: Channel) -> Candidates:
        if not has_faiss():
            return ExactSearch(self.vectors, self.rows)
        if channel.index_name is None:
            return FlatSearch(self.vectors, self.rows)
        nodes = place.read_nodes(channel, len(self.vectors))
        return ApproximateSearch.open(place.path / channel.index_name, channel.search, self.rows, nodes)

    @property
    def num_docs(self) -> int:
        """Number of passages that have a vector."""
        return len(self.rows)

    @cached_property
    def model(self) -> QuestionEncoder:
        """The question side of the channel's model, loaded when the first question comes."""
        try:
            model = find_dense_model(self.vectors.model._replace(name=self.model_name))
        except SpartaError as error:
            error.remedy = (
                "name the place where this model lies now: dense index --model FOLDER"
                f" {index_flag(self.folder.path)}; or make the channel anew with --overwrite"
            )
            raise
        return open_question_encoder(dense_model_folder(model.name))

    def keep_model_of(self, older: DenseSearcher) -> None:
        """Use the question side that a searcher of an older commit has open, where it is that of this one."""
        same = older.model_name == self.model_name and older.vectors.model == self.vectors.model
        if same and "model" in vars(older):
            self.model = older.model

    @cached_property
    def tokenizer(self) -> QueryTokenizer:
        """The index's tokenizer, to show which words of a question a passage has."""
        assert self.generation is not None
        return self.folder.query_tokenizer(self.generation)

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        assert self.generation is not None
        return self.generation.language

    @property
    def unit(self) -> str:
        """The unit of the index."""
        assert self.generation is not None
        return self.generation.unit

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
        """The `k` best passages for each query, ids and scores alone; none for a blank query."""
        assert self.generation is not None
        folded = [self.generation.analysis.fold(query) for query in queries if not is_blank(query)]
        nothing = np.empty((0, self.vectors.width), np.float32)
        vectors = self.model.encode_questions(folded) if folded else nothing
        ranked = self._rank(vectors, k, threads, filter, collapse, deepest)
        return (Ranked([], [], []) if is_blank(query) else next(ranked) for query in queries)

    def in_context(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return hits as a reader reads them: sentences with the text of their passage as `context`."""
        return in_context(self.lucene, hits) if self.unit == SENTENCE else list(hits)

    def search_vectors(
        self,
        questions: Floats,
        k: int = 10,
        threads: int = 1,
        *,
        offset: int = 0,
        filter: FilterLike | None = None,
        collapse: str | None = None,
    ) -> Iterator[list[Hit]]:
        """The k best passages for each question, given as vectors `(n, width)`; options as in `search`.

        :raises InputError: another width than the channel's, NaN or infinity, k below 1.
        """
        depth = depth_of(k, offset)
        ranked = self._rank(questions, depth, whole("threads", threads), filter, collapse)
        return (self.hits(own.part(offset, depth)) for own in ranked)

    def _rank(
        self,
        questions: Floats,
        k: int,
        threads: int,
        filter: FilterLike | None,
        collapse: str | None,
        deepest: int | None = None,
    ) -> Iterator[Ranked]:
        depth_of(k)
        kept = Filter.of(filter)
        questions = np.ascontiguousarray(questions, np.float32)
        if questions.ndim != 2 or questions.shape[1] != self.vectors.width:
            raise InputError(
                f"expected vectors of {self.vectors.width} numbers, found an array {questions.shape}",
                where=str(self.vectors.folder.parent),
                remedy=f"encode questions with the channel's own model, {self.model_name}",
            )
        check_finite(questions, "questions", f"check the model {self.model_name}")
        assert self.generation is not None
        if kept or collapse:
            require_fields(self.generation, self.folder.path)
        chosen = self._selection(kept)
        reduced = reduction(self.generation.unit, partial(self.keys, field=collapse) if collapse else None)
        if reduced is None:
            return self._ranked(chosen, questions, k, threads)

        def search(depth: int, which: list[int]) -> list[Ranked]:
            return list(self._ranked(chosen, questions[which], depth, threads))

        return iter(deepened(search, len(questions), k, reduced, deepest))

    def _selection(self, kept: Filter | None) -> Selection:
        """The rows that a filter keeps, and what finds them."""
        if kept is None:
            return Selection(self._find, len(self.rows))
        with self._lock:
            if kept not in self._selections:
                while len(self._selections) >= _FILTERS_KEPT:
                    del self._selections[next(iter(self._selections))]
                own = self.lucene.matching(kept)[self._docids[self.rows]]
                find = select(self._find, self.vectors, self.rows, own)
                self._selections[kept] = Selection(find, int(own.sum()))
            return self._selections[kept]

    def _ranked(self, chosen: Selection, questions: Floats, k: int, threads: int) -> Iterator[Ranked]:
        for start in range(0, len(questions), _QUESTIONS_AT_ONCE):
            part = questions[start : start + _QUESTIONS_AT_ONCE]
            ranked = rank(chosen.find, self.vectors, part, min(k, chosen.n), chosen.n, threads)
            docids = [self._docids[rows] for rows, _ in ranked]
            ids = iter(self.lucene.ids(np.concatenate(docids).astype(np.int32)))
            for own, (_, scores) in zip(docids, ranked, strict=True):
                yield Ranked(list(itertools.islice(ids, len(own))), own.tolist(), scores.tolist())

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages."""
        return [json.loads(raw) for raw in self.lucene.raws(docids)]

    def keys(self, docids: Sequence[int], field: str) -> list[str | None]:
        """The values of a metadata field, to tell which passages share them; None where there is none."""
        assert self.generation is not None
        require_fields(self.generation, self.folder.path)
        return self.lucene.keys(docids, field)

    def close(self) -> None:
        """Release the index."""
        self._passages.close()
