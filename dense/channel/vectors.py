"""Searches the vectors of a dense channel at one commit of its index."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from dense.channel.folder import Channel, ChannelFolder, find_or_replace_model
from dense.channel.passages import LivePassages, commit_name
from dense.encoding.question_encoder import QuestionEncoder, open_question_encoder
from dense.models.resolve import dense_model_folder
from dense.search.exact import Candidates, ExactSearch, rank
from dense.search.faiss_index import ApproximateSearch, FlatSearch, has_faiss
from dense.search.selection import select
from dense.search.store import Floats, Rows, VectorFolder, check_finite
from sparta.base.errors import IndexStateError, InputError, ModelError
from sparta.base.filters import Filter
from sparta.base.records import Passage, Ranking
from sparta.base.remedies import Command, Remedy, remedy
from sparta.index.folder import IndexFolder, require_fields
from sparta.index.generation import Generation
from sparta.lucene.bridge import ImpactSearcher
from sparta.models.query_encoder import is_blank
from sparta.models.resolve import check_unchanged, find_folder
from sparta.search.retriever import Page

logger = logging.getLogger("sparta.dense")

_QUERIES_PER_BATCH = 256
_MOST_FOR_NUMPY = 10_000
"""The largest number of vectors that NumPy searches although FAISS is installed."""
_FILTERS_KEPT = 4
"""Number of recent filters whose matching rows stay in memory."""
_MODEL_KEY = "dense model"
"""Key of the model's question encoder among the objects that successive channels of an index share."""
_encoders: WeakValueDictionary[str, QuestionEncoder] = WeakValueDictionary()
"""The open question encoders by the hash of their model; all indexes of the process share them."""
_opening = threading.Lock()


class Selection(NamedTuple):
    """The rows that match a filter: `find` searches them, `n` is their number."""

    find: Candidates
    n: int


class DenseChannel:
    """The open vectors of a dense channel. `attach` connects them with the passages of the Lucene index.

    If the Lucene index is newer than the channel, deleted passages are skipped, and a warning counts the
    passages without a vector.

    `rows` are the searched rows of the vectors. `docids (n,) int64` is Lucene's document number of every
    row, or -1 for rows without a live passage.

    :param manifest: the bytes of the channel's manifest; None if there is none
    :param kept: holds the model's question encoder open until the next snapshot's channel uses the encoder
    :raises IndexStateError: the dense channel is missing or in a newer format.
    """

    def __init__(
        self, folder: IndexFolder, generation: Generation, manifest: bytes | None, kept: dict[str, Any]
    ) -> None:
        self.folder, self.generation, self._kept = folder, generation, kept
        self._manifest = manifest
        self._lock = threading.Lock()
        self.selections: dict[Filter, Selection] = {}
        self.missing = 0
        self.channel_folder = ChannelFolder(folder.dense_path(generation))
        self.stored: Channel = self.channel_folder.read(manifest)
        self.vectors: VectorFolder = self.channel_folder.vectors(self.stored)
        self.model_name = self.stored.model.name
        self.rows: Rows = self.channel_folder.read_rows(self.stored, manifest)
        if int(self.rows.max(initial=-1)) >= len(self.vectors):
            raise IndexStateError(
                f"the channel has {len(self.vectors):,} vectors, but no vector {self.rows.max():,}",
                where=str(self.channel_folder.path / self.stored.rows_name),
                remedy=self._rebuild_remedy,
            )

    def attach(self, lucene: ImpactSearcher, number: int, segments: bytes | None) -> None:
        """Assign the live passages of the Lucene index to the rows of the vectors.

        If the index has changed, only rows whose passages are still the same stay searchable.

        :param number: number of the commit
        :param segments: content of the commit's file segments_N; None if a writer has deleted the file
        """
        self.lucene = lucene
        commit = None if segments is None else commit_name(number, segments)
        passages = LivePassages(lucene, self.generation.analysis)
        docids = passages.docids
        if commit != self.stored.commit:
            rows = self.vectors.rows_of(passages.positions, passages.hashes(self.generation.unit))
            self.missing = int((rows < 0).sum())
            if self.missing:
                logger.warning(
                    "%s: dense search cannot find %d of %d passages, which have no vector yet. Run: %s",
                    self.folder.path,
                    self.missing,
                    len(passages),
                    Command.of("dense index", index=self.folder.path).for_command_line(),
                )
            self.rows, docids = rows[rows >= 0], docids[rows >= 0]
        elif len(self.rows) != len(passages):
            raise IndexStateError(
                f"the channel needs {len(passages):,} vectors, one per passage, found {len(self.rows):,}",
                where=str(self.channel_folder.path),
                remedy=self._rebuild_remedy,
            )
        self.docids = np.full(len(self.vectors), -1, np.int64)
        self.docids[self.rows] = docids
        self._candidates = self._open_candidates()

    def _open_candidates(self) -> Candidates:
        """Return the search over all rows: by FAISS if it is installed, else by NumPy.

        NumPy also searches few vectors: importing FAISS takes longer. Both give the same ranking.
        """
        index_name = self.stored.index_name
        if not has_faiss() or (index_name is None and len(self.rows) <= _MOST_FOR_NUMPY):
            return ExactSearch(self.vectors, self.rows)
        if index_name is None:
            return FlatSearch(self.vectors, self.rows)
        nodes = self.channel_folder.read_nodes(self.stored, len(self.vectors), self._manifest)
        index_path = self.channel_folder.path / index_name
        return ApproximateSearch.open(index_path, self.stored.search, self.rows, nodes)

    @property
    def _rebuild_remedy(self) -> Remedy:
        command = Command.of("dense index", overwrite=True, index=self.folder.path)
        return remedy("rebuild the dense channel: {}", command)

    def examples(self, n: int, *, context: bool) -> tuple[list[Passage], Floats]:
        """Return `n` passages as the encoder reads them, and their stored vectors `(n, width)`.

        :param context: read each sentence together with the text of its passage
        """
        rows = self.rows[:n]
        passages = LivePassages(self.lucene, self.generation.analysis)
        blocks = passages.blocks(self.docids[rows].astype(np.int32), context=context)
        return list(itertools.chain.from_iterable(blocks)), self.vectors.take(rows)

    @cached_property
    def model(self) -> QuestionEncoder:
        """The question encoder of the channel's model, loaded at the first query."""
        with _opening:
            encoder = _encoders.get(self.vectors.model.sha256)
            if encoder is None:
                encoder = self._open_encoder()
                _encoders[self.vectors.model.sha256] = encoder
        self._kept[_MODEL_KEY] = encoder
        return encoder

    def _open_encoder(self) -> QuestionEncoder:
        try:
            folder = find_folder(self.model_name, self.vectors.model.sha256, dense_model_folder)
        except ModelError as error:
            error.remedy = find_or_replace_model(self.folder.path)
            raise
        encoder = open_question_encoder(folder)
        check_unchanged(folder, self.vectors.model.sha256)
        return encoder

    def encode(self, queries: Iterable[str]) -> dict[str, Floats]:
        """Return the vector `(width,)` of each distinct query that is not blank, from one run."""
        distinct = [query for query in dict.fromkeys(queries) if not is_blank(query)]
        if not distinct:
            return {}
        folded = [self.generation.analysis.fold(query) for query in distinct]
        return dict(zip(distinct, self.model.encode_questions(folded), strict=True))

    def rank(
        self, queries: Sequence[str], page: Page, threads: int, vectors: Mapping[str, Floats] | None = None
    ) -> list[Ranking]:
        """Return one page of the ranking of each query; the ranking of a blank query is empty.

        :param vectors: the vectors of all queries that are not blank; None encodes the queries
        """
        vectors = self.encode(queries) if vectors is None else vectors
        ranked_vectors = [vectors[query] for query in queries if not is_blank(query)]
        query_vectors = np.array(ranked_vectors, np.float32).reshape(-1, self.vectors.width)
        rankings = iter(self.rank_vectors(query_vectors, page, threads))
        return [Ranking() if is_blank(query) else next(rankings) for query in queries]

    def rank_vectors(self, query_vectors: Floats, page: Page, threads: int) -> list[Ranking]:
        """Return one page of the ranking of each query vector `(n, width)`.

        :raises InputError: the vectors have another width than the channel, NaN or infinity.
        """
        query_vectors = np.ascontiguousarray(query_vectors, np.float32)
        if query_vectors.ndim != 2 or query_vectors.shape[1] != self.vectors.width:
            raise InputError(
                f"query vectors must have {self.vectors.width} numbers, found shape {query_vectors.shape}",
                where=str(self.channel_folder.path),
                remedy=f"encode the queries with the channel's model, {self.model_name}",
            )
        check_finite(query_vectors, "query vectors", f"check the model {self.model_name}")
        if page.fields:
            require_fields(self.generation, self.folder.path, page.fields, self.lucene.fields)
        selection = self._selection(page.filter)

        def search(depth: int, query_numbers: Sequence[int]) -> list[Ranking]:
            return list(self._ranked(selection, query_vectors, query_numbers, depth, threads))

        return page.rankings(search, len(query_vectors), self.generation.unit, self.lucene.keys)

    def _selection(self, filter: Filter | None) -> Selection:
        """Return the search over the rows that match a filter, and their number."""
        if filter is None:
            return Selection(self._candidates, len(self.rows))
        with self._lock:
            if filter not in self.selections:
                while len(self.selections) >= _FILTERS_KEPT:
                    del self.selections[next(iter(self.selections))]
                matching = self.lucene.matching(filter)[self.docids[self.rows]]
                find = select(self._candidates, self.vectors, self.rows, matching)
                self.selections[filter] = Selection(find, int(matching.sum()))
            return self.selections[filter]

    def _ranked(
        self, selection: Selection, query_vectors: Floats, query_numbers: Sequence[int], k: int, threads: int
    ) -> Iterator[Ranking]:
        for start in range(0, len(query_numbers), _QUERIES_PER_BATCH):
            batch = query_vectors[query_numbers[start : start + _QUERIES_PER_BATCH]]
            ranked = rank(selection.find, self.vectors, batch, min(k, selection.n), selection.n, threads)
            docids = [self.docids[rows] for rows, _ in ranked]
            ids = iter(self.lucene.ids(np.concatenate(docids).astype(np.int32)))
            for passages, (_, scores) in zip(docids, ranked, strict=True):
                yield Ranking(list(itertools.islice(ids, len(passages))), passages.tolist(), scores.tolist())
