"""Dense search: a question becomes a vector, and the passages with the highest dot products are found."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dense.channel.folder import Channel, ChannelFolder
from dense.channel.passages import LivePassages
from dense.models.question_encoder import QuestionEncoder, open_question_encoder
from dense.models.resolve import dense_model_folder, identify
from dense.search.exact import Candidates, ExactSearch, rank
from dense.search.faiss_index import ApproximateSearch, FlatSearch, has_faiss
from dense.search.store import Floats, Rows, VectorFolder, check_finite
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.base.records import Hit
from sparta.data.units import is_chunk
from sparta.index.folder import IndexFolder, default_index, no_passages
from sparta.models.query_encoder import QueryTokenizer
from sparta.search.searcher import ChannelSearcher, Ranked, by_document

logger = logging.getLogger("sparta.dense")

_QUESTIONS_AT_ONCE = 256


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
        self.folder = IndexFolder(index if index is not None else default_index())
        first = self._newest()
        try:
            self._open(*first)
        except (SpartaError, FileNotFoundError):
            again = self._newest()  # a writer ended just now and removed what was chosen
            if again == first:
                raise
            self._open(*again)

    def _newest(self) -> tuple[ChannelFolder, Channel]:
        self.generation = self.folder.state().searchable
        if self.generation is None:
            raise no_passages(self.folder.path)
        place = ChannelFolder(self.folder.dense_path(self.generation))
        return place, place.read()

    def _open(self, place: ChannelFolder, channel: Channel) -> None:
        assert self.generation is not None
        self.vectors: VectorFolder = place.vectors(channel)
        self.model_name = channel.model.name
        rows = place.read_rows(channel)
        self._passages = LivePassages(self.folder.lucene_path(self.generation), self.generation.language)
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
                    "%s: %d of %d passages have no vector yet, and are not found: run dense index",
                    self.folder.path,
                    lacking,
                    len(live),
                )
            rows, docids = found[found >= 0], live.docids[found >= 0]
        elif len(rows) != len(live):
            raise IndexStateError(
                f"expected a vector of each of {len(live)} passages, found {len(rows)}",
                where=str(self.vectors.folder.parent),
                remedy="make the dense channel anew: dense index --overwrite",
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
        made_with = self.vectors.model
        try:
            found = identify(self.model_name)
        except SpartaError as error:
            error.remedy = "name the place where this model lies now: dense index --model FOLDER"
            raise
        if found.sha256 != made_with.sha256:
            raise IndexStateError(
                f"expected the model that the dense channel was made with ({made_with.sha256[:12]}…), found"
                f" another in its place ({found.sha256[:12]}…)",
                where=found.name,
                remedy="put that model back, or make the channel anew: dense index --overwrite",
            )
        return open_question_encoder(dense_model_folder(self.model_name))

    @cached_property
    def tokenizer(self) -> QueryTokenizer:
        """The index's tokenizer, to show which words of a question a passage has."""
        assert self.generation is not None
        return self.folder.query_side(self.generation).query_tokenizer()

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        assert self.generation is not None
        return self.generation.language

    def rank(self, queries: Sequence[str], k: int, threads: int = 1) -> Iterator[Ranked]:
        """The `k` best passages for each query, ids and scores alone."""
        if not queries:
            return iter(())
        return self._rank(self.model.encode_questions(queries), k, threads)

    def search_vectors(self, questions: Floats, k: int = 10, threads: int = 1) -> Iterator[list[Hit]]:
        """The k best passages for each question, given as vectors `(n, width)`.

        :raises InputError: another width than the channel's, NaN or infinity, k below 1.
        """
        return (self.hits(ranked) for ranked in self._rank(questions, k, threads))

    def _rank(self, questions: Floats, k: int, threads: int) -> Iterator[Ranked]:
        if k < 1:
            raise InputError(f"k must be at least 1, found {k}")
        questions = np.ascontiguousarray(questions, np.float32)
        if questions.ndim != 2 or questions.shape[1] != self.vectors.width:
            raise InputError(
                f"expected vectors of {self.vectors.width} numbers, found an array {questions.shape}",
                where=str(self.vectors.folder.parent),
                remedy=f"encode questions with the channel's own model, {self.model_name}",
            )
        check_finite(questions, "questions", f"check the model {self.model_name}")
        assert self.generation is not None

        def ranked(depth: int) -> Iterator[Ranked]:
            return self._ranked(questions, min(depth, self.num_docs), threads)

        if is_chunk(self.generation.unit):
            return iter(by_document(lambda depth: list(ranked(depth)), k))
        return ranked(k)

    def _ranked(self, questions: Floats, k: int, threads: int) -> Iterator[Ranked]:
        for start in range(0, len(questions), _QUESTIONS_AT_ONCE):
            part = questions[start : start + _QUESTIONS_AT_ONCE]
            ranked = rank(self._find, self.vectors, part, k, self.num_docs, threads)
            docids = [self._docids[rows] for rows, _ in ranked]
            ids = iter(self.lucene.ids(np.concatenate(docids).astype(np.int32)))
            for own, (_, scores) in zip(docids, ranked, strict=True):
                yield Ranked(list(itertools.islice(ids, len(own))), own.tolist(), scores.tolist())

    def records(self, docids: Sequence[int]) -> list[dict[str, Any]]:
        """The stored records of passages."""
        return [json.loads(raw) for raw in self.lucene.raws(docids)]

    def close(self) -> None:
        """Release the index."""
        self._passages.close()
