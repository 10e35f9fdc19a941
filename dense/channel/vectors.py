"""The vectors of a dense channel at one commit of its index, open for searching."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from dense.channel.folder import Channel, ChannelFolder
from dense.channel.passages import LivePassages, commit_name
from dense.models.question_encoder import QuestionEncoder, open_question_encoder
from dense.models.resolve import dense_model_folder, find_dense_model
from dense.search.exact import Candidates, ExactSearch, rank
from dense.search.faiss_index import ApproximateSearch, FlatSearch, has_faiss
from dense.search.selection import select
from dense.search.store import Floats, Rows, VectorFolder, check_finite
from sparta.base.errors import IndexStateError, InputError, SpartaError
from sparta.base.filters import Filter
from sparta.base.records import Ranking
from sparta.base.remedies import Command, Option, Remedy, remedy
from sparta.index.folder import Generation, IndexFolder, require_fields
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.query_encoder import is_blank
from sparta.search.ranked import deepened, reduction
from sparta.search.retriever import Page

logger = logging.getLogger("sparta.dense")

_QUESTIONS_AT_ONCE = 256
_FILTERS_KEPT = 4  # whose rows are known
_MODEL = "dense model"
"""What the hash and the question side of a model are kept by."""


class Selection(NamedTuple):
    """Some rows: what finds them, and how many they are."""

    find: Candidates
    n: int


class DenseChannel:
    """The vectors of a dense channel; `attach` says which passage of Lucene's index each stands for.

    When the Lucene index was changed and the channel was not, passages that are gone are not found, and a
    warning tells of those that have no vector yet.

    `rows` are those of the vectors that are searched, `docids (n,) int64` the passage of every row, or -1.

    :param manifest: the content of the channel's manifest; None where there is none
    :param kept: holds the question side of the model, by its hash, for the channel that follows this one
    :raises IndexStateError: there is no dense channel, or one of another making.
    """

    def __init__(
        self, folder: IndexFolder, generation: Generation, manifest: bytes | None, kept: dict[str, Any]
    ) -> None:
        self.folder, self.generation, self._kept = folder, generation, kept
        self._manifest = manifest
        self._lock = threading.Lock()
        self.selections: dict[Filter, Selection] = {}
        self.place = ChannelFolder(folder.dense_path(generation))
        self.stored: Channel = self.place.read(manifest)
        self.vectors: VectorFolder = self.place.vectors(self.stored)
        self.model_name = self.stored.model.name
        self.rows: Rows = self.place.read_rows(self.stored, manifest)
        if int(self.rows.max(initial=-1)) >= len(self.vectors):
            raise IndexStateError(
                f"expected {len(self.vectors):,} vectors, found the row {self.rows.max():,} among those"
                " searched",
                where=str(self.place.path / self.stored.rows_name),
                remedy=self._make_anew,
            )

    def attach(self, lucene: ImpactSearcher, number: int, segments: bytes | None) -> None:
        """Find for every row the passage it stands for; of what changed since, only what is still true."""
        self.lucene = lucene
        commit = None if segments is None else commit_name(number, segments)
        live = LivePassages(lucene, self.generation.analysis)
        docids = live.docids
        if commit != self.stored.commit:
            rows = self.vectors.rows_of(live.positions, live.hashes(self.generation.unit))
            lacking = int((rows < 0).sum())
            if lacking:
                logger.warning(
                    "%s: %d of %d passages have no vector yet, and are not found: run %s",
                    self.folder.path,
                    lacking,
                    len(live),
                    Command.of("dense index", index=self.folder.path).for_command_line(),
                )
            self.rows, docids = rows[rows >= 0], docids[rows >= 0]
        elif len(self.rows) != len(live):
            raise IndexStateError(
                f"expected a vector of each of {len(live)} passages, found {len(self.rows)}",
                where=str(self.place.path),
                remedy=self._make_anew,
            )
        self.docids = np.full(len(self.vectors), -1, np.int64)
        self.docids[self.rows] = docids
        self._find = self._candidates()

    def _candidates(self) -> Candidates:
        if not has_faiss():
            return ExactSearch(self.vectors, self.rows)
        if self.stored.index_name is None:
            return FlatSearch(self.vectors, self.rows)
        nodes = self.place.read_nodes(self.stored, len(self.vectors), self._manifest)
        path = self.place.path / self.stored.index_name
        return ApproximateSearch.open(path, self.stored.search, self.rows, nodes)

    @property
    def _make_anew(self) -> Remedy:
        command = Command.of("dense index", overwrite=True, index=self.folder.path)
        return remedy("make the dense channel anew: {}", command)

    @cached_property
    def model(self) -> QuestionEncoder:
        """The question side of the channel's model, loaded when the first question comes."""
        known = self._kept.get(_MODEL)
        if known is None or known[0] != self.vectors.model.sha256:
            try:
                identity = find_dense_model(self.vectors.model._replace(name=self.model_name))
            except SpartaError as error:
                command = Command.of("dense index", model="FOLDER", index=self.folder.path)
                error.remedy = remedy(
                    "name the place where this model lies now: {}; or make the channel anew with {}",
                    command,
                    Option("overwrite", True),
                )
                raise
            known = identity.sha256, open_question_encoder(dense_model_folder(identity.name))
            self._kept[_MODEL] = known
        encoder: QuestionEncoder = known[1]
        return encoder

    def rank(self, queries: Sequence[str], page: Page, threads: int) -> list[Ranking]:
        """Return a page of the ranking of each query; none for a blank query."""
        folded = [self.generation.analysis.fold(query) for query in queries if not is_blank(query)]
        nothing = np.empty((0, self.vectors.width), np.float32)
        vectors = self.model.encode_questions(folded) if folded else nothing
        rankings = iter(self.rank_vectors(vectors, page, threads))
        return [Ranking() if is_blank(query) else next(rankings) for query in queries]

    def rank_vectors(self, questions: Floats, page: Page, threads: int) -> list[Ranking]:
        """Return a page of the ranking of each question, given as vectors `(n, width)`.

        :raises InputError: another width than the channel's, NaN or infinity.
        """
        questions = np.ascontiguousarray(questions, np.float32)
        if questions.ndim != 2 or questions.shape[1] != self.vectors.width:
            raise InputError(
                f"expected vectors of {self.vectors.width} numbers, found an array {questions.shape}",
                where=str(self.place.path),
                remedy=f"encode questions with the channel's own model, {self.model_name}",
            )
        check_finite(questions, "questions", f"check the model {self.model_name}")
        if page.filter or page.collapse:
            require_fields(self.generation, self.folder.path)
        chosen, depth = self._selection(page.filter), page.depth
        keys = partial(self.lucene.keys, field=page.collapse) if page.collapse else None
        reduced = reduction(self.generation.unit, keys)

        def search(depth: int, which: Sequence[int]) -> list[Ranking]:
            return list(self._ranked(chosen, questions[which], depth, threads))

        if reduced is None:
            rankings = list(self._ranked(chosen, questions, depth, threads))
        else:
            rankings = deepened(search, len(questions), depth, reduced, page.deepest)
        return [ranking[page.offset :] for ranking in rankings] if page.offset else rankings

    def _selection(self, kept: Filter | None) -> Selection:
        """Return the rows that a filter keeps, and what finds them."""
        if kept is None:
            return Selection(self._find, len(self.rows))
        with self._lock:
            if kept not in self.selections:
                while len(self.selections) >= _FILTERS_KEPT:
                    del self.selections[next(iter(self.selections))]
                matching = self.lucene.matching(kept)[self.docids[self.rows]]
                find = select(self._find, self.vectors, self.rows, matching)
                self.selections[kept] = Selection(find, int(matching.sum()))
            return self.selections[kept]

    def _ranked(self, chosen: Selection, questions: Floats, k: int, threads: int) -> Iterator[Ranking]:
        for start in range(0, len(questions), _QUESTIONS_AT_ONCE):
            part = questions[start : start + _QUESTIONS_AT_ONCE]
            ranked = rank(chosen.find, self.vectors, part, min(k, chosen.n), chosen.n, threads)
            docids = [self.docids[rows] for rows, _ in ranked]
            ids = iter(self.lucene.ids(np.concatenate(docids).astype(np.int32)))
            for passages, (_, scores) in zip(docids, ranked, strict=True):
                yield Ranking(list(itertools.islice(ids, len(passages))), passages.tolist(), scores.tolist())
