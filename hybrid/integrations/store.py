"""An index folder that a framework writes to, for the vector stores of LangChain, LlamaIndex, Haystack."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hybrid.integrations.filters import known_fields_only
from hybrid.integrations.metadata import fields_of, fields_of_key, filter_on_fields, keys_of
from hybrid.retrieval.searcher import open_retriever
from sparta.api import Index
from sparta.base.checks import query_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.filters import Filter, FilterLike
from sparta.base.records import Hit, Ranking
from sparta.base.remedies import Option, remedy
from sparta.index.channels import DENSE
from sparta.index.folder import IndexFolder, default_index
from sparta.index.inputs.options import IndexOptions
from sparta.index.plan import has_commit
from sparta.index.snapshot import IndexSnapshot
from sparta.search.retriever import Page

Docids = npt.NDArray[np.int32]
WHOLE = "passage"


class IndexStore(Closing):
    """Writes, deletes, searches and lists the passages of an index folder.

    The folder may be empty: the first write creates the index, with `options`. Later writes take only
    `device`, `dtype`, `threads` and `commit_seconds` of the options. If `channels` names `dense`, the first
    write adds the dense channel too, with `dense_model`. A document is one whole passage.

    :param dense_model: folder or hub id; None is the shipped model
    :raises InputError: the index, or an index with these options, would cut documents into parts; or the
        options skip invalid documents
    """

    def __init__(
        self,
        index: str | Path | None = None,
        channels: str | None = None,
        *,
        options: IndexOptions | None = None,
        dense_model: str | None = None,
    ) -> None:
        if options is not None and options.skip_invalid:
            raise InputError(
                "a vector store cannot skip documents, because its frameworks report each document as stored",
                remedy=remedy("omit {}", Option("skip_invalid")),
            )
        self.path = Path(index) if index is not None else default_index()
        self.channels, self.options, self.dense_model = channels, options, dense_model
        self._opening, self._writing = threading.Lock(), threading.RLock()
        self._index: Index | None = None
        self._is_closed = False
        if self._newest() is None and self.options:
            self._check_unit(self.options.unit)

    def _newest(self) -> Index | None:
        """Return the index at its last commit, or None if the folder has no commit."""
        with self._opening:
            index = self._index
            if index is None:
                folder = IndexFolder(self.path)
                if self._is_closed or not folder.exists() or not has_commit(folder):
                    return None
                index = Index(self.path)
                try:
                    self._check_unit(index.searcher.unit)
                except BaseException:
                    index.close()
                    raise
                self._index = index
                return index
        index.refresh()
        self._check_unit(index.searcher.unit)  # another program may have replaced the index
        return index

    def _check_unit(self, unit: str | None) -> None:
        if unit not in (None, WHOLE):
            raise InputError(
                f"the unit of a vector store must be the passage, found {unit!r}",
                where=str(self.path),
                remedy="let the framework cut the documents, and store its parts",
            )

    def __len__(self) -> int:
        index = self._newest()
        return len(index) if index else 0

    def writing(self) -> AbstractContextManager[object]:
        """Return a context in which other threads cannot write through this store; they can read."""
        return self._writing

    def write(self, passages: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Add passages, and replace those with known ids; a passage is its id, its text and its metadata."""
        if not passages:
            return
        records = [
            {"id": passage_id, "text": text, **fields_of(metadata)} for passage_id, text, metadata in passages
        ]
        with self._writing:
            index = self._newest()
            if index is None:
                index = Index.create(self.path, records, options=self.options)
                self._add_vectors(index)
                with self._opening:
                    if self._index is None:
                        self._index = index
                    else:  # another thread has opened the new index meanwhile, and searches it
                        index.close()
            else:
                # The form of the index may be another program's.
                index.update(records, options=IndexOptions.of(self.options).without_form())

    def _add_vectors(self, index: Index) -> None:
        if DENSE in (self.channels or "") and DENSE not in index.channels:
            from dense.channel.sync import build_dense

            build_dense(self.path, self.dense_model)
            index.refresh()

    def delete(self, passage_ids: Collection[str]) -> int:
        """Delete passages by id; return how many existed."""
        with self._writing:
            index = self._newest()
            return index.delete(passage_ids) if index and passage_ids else 0

    def delete_matching(self, filter: FilterLike) -> int:
        """Delete all passages that match a filter; return their number. An empty filter matches all."""
        with self._writing:
            index = self._newest()
            if not index:
                return 0
            with index.searcher.holding() as snapshot:
                passage_ids = snapshot.lucene.ids(self._matching(index, snapshot, filter))
            return self.delete(passage_ids)

    def search(
        self,
        query: str,
        k: int,
        filter: FilterLike | None = None,
        *,
        collapse: str | None = None,
    ) -> Sequence[Hit]:
        """Return the `k` best passages for a query, best first; `collapse` is a metadata key."""
        index = self._newest()
        if not index or not len(index):
            return []
        parsed = self._filter(index, filter)
        field = fields_of_key(collapse, index.fields)[0] if collapse is not None else None
        return index.search(query, k, channel=self.channels, filter=parsed, collapse=field)

    def search_among(
        self,
        passage_ids: Collection[str],
        query: str,
        k: int,
        filter: FilterLike | None = None,
    ) -> Sequence[Hit]:
        """Return the `k` best passages that have one of these ids; a fusion keeps those of its candidates."""
        index = self._newest()
        if not index or not len(index):
            return []
        parsed = self._filter(index, filter)
        retriever = open_retriever(index.reader, self.channels, n_hits=whole("k", k))
        wanted_ids = set(passage_ids)
        with retriever.holding():
            [ranking] = retriever.rank([query_of(query)], Page(retriever.most_hits, filter=parsed))
            columns = zip(ranking.passage_ids, ranking.docids, ranking.scores, strict=True)
            best = list(islice((row for row in columns if row[0] in wanted_ids), k))
            kept = Ranking(*map(list, zip(*best, strict=True))) if best else Ranking()
            return retriever.hits([kept])[0]

    def get(self, passage_ids: Sequence[str]) -> list[Hit]:
        """Return the passages with these ids that the index holds, in the order of the ids."""
        index = self._newest()
        if not index:
            return []
        searcher = index.searcher
        with searcher.holding():
            return searcher.hits_of([docid for docid in searcher.docids(passage_ids) if docid >= 0])

    def matching(self, filter: FilterLike | None = None) -> list[Hit]:
        """Return all passages that match a filter, in the order in which they were written."""
        index = self._newest()
        if not index:
            return []
        searcher = index.searcher
        with searcher.holding() as snapshot:
            return searcher.hits_of(self._matching(index, snapshot, filter).tolist())

    def _matching(self, index: Index, snapshot: IndexSnapshot, filter: FilterLike | None) -> Docids:
        """Return the docids of all passages that match a filter, in the order in which they were written."""
        lucene, parsed = snapshot.lucene, self._filter(index, filter)
        matching = np.flatnonzero(lucene.matching(parsed)).astype(np.int32) if parsed else None
        return lucene.in_corpus_order(matching)

    def _filter(self, index: Index, filter: FilterLike | None) -> Filter | None:
        """Return a filter on metadata keys as a filter on fields. Conditions on unknown keys do not hold."""
        known = index.fields if filter is not None else []
        on_fields = filter_on_fields(filter, known)
        return known_fields_only(on_fields, known) if on_fields else None

    def close(self) -> None:
        """Release the index. A later call fails, or finds nothing if there was no index."""
        with self._opening:
            self._is_closed = True
            if self._index:
                self._index.close()


def text_of_passage(text: str | None, passage_id: str) -> str:
    """Return the text of a framework's document.

    :raises InputError: the document has no text
    """
    if not text or not text.strip():
        raise InputError(f"the document {passage_id!r} has no text, but an index holds texts only")
    return text


def metadata_of_hit(hit: Hit) -> dict[str, Any]:
    """Return the metadata that a passage was written with."""
    title = {"title": hit.title} if hit.title else {}
    return keys_of({**title, **hit.metadata})


def ids_of(passage_ids: str | Iterable[str] | None) -> list[str]:
    """Return ids as a list; a single id counts as a list of one."""
    return [passage_ids] if isinstance(passage_ids, str) else list(passage_ids or ())
