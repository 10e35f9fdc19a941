"""An index folder that a framework writes to, for the vector stores of LangChain, LlamaIndex, Haystack."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.integrations.filters import known_fields_only
from sparta.api import Index
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.filters import Filter
from sparta.base.records import Hit
from sparta.index.folder import IndexFolder, default_index
from sparta.index.pipeline import IndexOptions

_RESERVED = frozenset(("id", "_id", "text", "contents", "context", "vector", "start", "end", "passage_id"))
_PREFIX = "meta_"


def field_of(key: str) -> str:
    """Return the record's field for a metadata key; keys that records reserve get the prefix `meta_`."""
    return _PREFIX + key if _base(key) in _RESERVED else key


def key_of(field: str) -> str:
    """Return the metadata key of a record's field."""
    return field.removeprefix(_PREFIX) if _base(field) in _RESERVED else field


def _base(name: str) -> str:
    while name.startswith(_PREFIX):
        name = name.removeprefix(_PREFIX)
    return name


class IndexStore(Closing):
    """Writes, deletes, searches and lists the passages of an index folder.

    The folder may be empty: the first write creates the index, with `options`. If `channels` names `dense`,
    the first write adds the dense channel too, with `dense_model`.
    """

    def __init__(
        self,
        index: str | Path | None = None,
        channels: str | None = None,
        *,
        options: IndexOptions | None = None,
        dense_model: str | None = None,
    ) -> None:
        self.path = Path(index) if index is not None else default_index()
        self.channels, self.options, self.dense_model = channels, options, dense_model
        self._lock = threading.Lock()
        self._index: Index | None = Index(self.path) if IndexFolder(self.path).exists() else None

    def __len__(self) -> int:
        return len(self._index) if self._index else 0

    def write(self, passages: Sequence[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Add passages, and replace those with known ids; a passage is its id, its text and its metadata."""
        if not passages:
            return
        records = [
            {"id": passage_id, "text": text, **{field_of(key): value for key, value in metadata.items()}}
            for passage_id, text, metadata in passages
        ]
        with self._lock:
            if self._index is None:
                self._index = Index.create(self.path, records, options=self.options)
                self._add_vectors(self._index)
            else:
                self._index.update(records)

    def _add_vectors(self, index: Index) -> None:
        if "dense" in (self.channels or "") and "dense" not in index.channels:
            from dense.channel.sync import build_dense

            build_dense(self.path, self.dense_model)
            index.refresh()

    def delete(self, passage_ids: Collection[str]) -> int:
        """Delete passages by id; return how many existed."""
        return self._index.delete(passage_ids) if self._index and passage_ids else 0

    def delete_matching(self, filter: Mapping[str, Any]) -> int:
        """Delete all passages that match a filter; return their number. An empty filter matches all."""
        return self.delete([hit.passage_id for hit in self.matching(filter)])

    def search(self, query: str, k: int, filter: Mapping[str, Any] | None = None) -> Sequence[Hit]:
        """Return the `k` best passages for a query, best first."""
        if not self._index or not len(self._index):
            return []
        self._index.refresh()
        return self._index.search(query, k, channel=self.channels, filter=self._filter(self._index, filter))

    def get(self, passage_ids: Sequence[str]) -> list[Hit]:
        """Return the passages with these ids that the index holds, in the order of the ids."""
        if not self._index:
            return []
        searcher = self._index.searcher
        with searcher.holding():
            return searcher.hits_of([docid for docid in searcher.docids(passage_ids) if docid >= 0])

    def matching(self, filter: Mapping[str, Any] | None = None) -> list[Hit]:
        """Return all passages that match a filter, in the order in which they were written."""
        if not self._index:
            return []
        searcher, parsed = self._index.searcher, self._filter(self._index, filter)
        with searcher.holding() as snapshot:
            lucene = snapshot.lucene
            docids = np.flatnonzero(lucene.matching(parsed)) if parsed else lucene.live()
            ordered = docids[np.argsort(lucene.positions(docids), kind="stable")]
            return searcher.hits_of(ordered.tolist())

    def _filter(self, index: Index, filter: Mapping[str, Any] | None) -> Filter | None:
        """Return a filter in which a condition on a field that no passage has does not hold."""
        parsed = Filter.of(filter)
        return known_fields_only(parsed, index.fields) if parsed else None

    def close(self) -> None:
        """Release the index."""
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
    return {key_of(name): value for name, value in {**title, **hit.metadata}.items()}


def metadata_keys(filter: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a filter on metadata keys as a filter on the fields of records."""
    if filter is None:
        return None
    fields: dict[str, Any] = {}
    for name, value in filter.items():
        if name in ("and", "or", "not") and isinstance(value, list):
            fields[name] = [metadata_keys(part) for part in value]
        elif name == "not" and isinstance(value, Mapping):
            fields[name] = metadata_keys(value)
        else:
            fields[field_of(name)] = value
    return fields


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as JSON values.

    :raises InputError: a value is not JSON-serializable
    """
    try:
        return dict(json.loads(json.dumps(dict(metadata))))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata must be JSON values: {error}", remedy="convert dates and other objects to texts"
        ) from None


def ids_of(passage_ids: str | Iterable[str] | None) -> list[str]:
    """Return ids as a list; a single id counts as a list of one."""
    return [passage_ids] if isinstance(passage_ids, str) else list(passage_ids or ())
