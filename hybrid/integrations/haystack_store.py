"""Haystack: a document store over an index folder."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from haystack import Document, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError

from hybrid.integrations.haystack import filter_of
from hybrid.integrations.metadata import plain
from hybrid.integrations.store import IndexStore, ids_of, metadata_of_hit, text_of_passage
from sparta.base.errors import InputError
from sparta.base.filters import Filter
from sparta.base.records import Hit
from sparta.index.inputs.options import IndexOptions

_OF_DOCUMENTS = frozenset(each.name for each in fields(Document)) - {"meta"}


class HaystackDocumentStore:
    """A document store of Haystack over an index folder. The first write creates the index.

        from hybrid.integrations import HaystackDocumentStore
        from haystack import Document

        store = HaystackDocumentStore("my-index")
        store.write_documents([Document(id="ms", content="Bill Gates founded Microsoft.")])
        print(store.search("who founded microsoft", top_k=1))

    Documents are stored with their text and metadata, without embeddings. `HaystackRetriever` searches the
    folder in a pipeline.

    :param index: an index folder, which may not exist yet
    :param channels: channels of `search`, as in `open_retriever`; with `dense`, the first write adds vectors
    :param options: the options of a new index; later writes use `device`, `dtype`, `threads` and
        `commit_seconds`
    :param dense_model: the model of a new index's vectors, a folder or hub id; None is the shipped model
    """

    def __init__(
        self,
        index: str | Path | None = None,
        channels: str | None = None,
        *,
        options: IndexOptions | None = None,
        dense_model: str | None = None,
    ) -> None:
        self.store = IndexStore(index, channels, options=options, dense_model=dense_model)

    def count_documents(self) -> int:
        """Return the number of documents."""
        return len(self.store)

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Write documents; return how many were written, counting each document that replaced another one.

        :param policy: what happens to known ids, also of earlier documents in the list; the default is FAIL
        :raises DuplicateDocumentError: with FAIL, the store holds a document with one of the ids
        """
        if not isinstance(documents, list) or any(not isinstance(each, Document) for each in documents):
            raise ValueError("expected a list of Documents")
        overwrites = policy == DuplicatePolicy.OVERWRITE
        distinct: dict[str, Document] = {}
        for document in documents:
            if overwrites or document.id not in distinct:
                distinct[document.id] = document
        fails = policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL)
        if fails and len(distinct) < len(documents):
            [(twice, _)] = Counter(document.id for document in documents).most_common(1)
            raise DuplicateDocumentError(f"two of the documents have the id {twice!r}")
        with self.store.writing():
            known = {hit.passage_id for hit in self.store.get(list(distinct))}
            if fails and known:
                raise DuplicateDocumentError(f"the store holds a document with the id {min(known)!r} already")
            kept = [each for name, each in distinct.items() if overwrites or name not in known]
            self.store.write(
                [(each.id, text_of_passage(each.content, each.id), plain(each.meta)) for each in kept]
            )
        return len(documents) if overwrites else len(kept)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return all documents that match a filter of Haystack, in the order in which they were written.

        :raises FilterError: the filter is not valid
        """
        return [_document(hit) for hit in self.store.matching(_conditions(filters))]

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id. Unknown ids are not an error."""
        self.store.delete(ids_of(document_ids))

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self.store.delete_matching({})

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete all documents that match a filter; return their number."""
        return self.store.delete_matching(_conditions(filters) or {})

    def search(self, query: str, top_k: int = 10, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the `top_k` best documents for a query, with their scores."""
        hits = self.store.search(query, top_k, _conditions(filters))
        return [_document(hit, float(hit.score)) for hit in hits]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values, for `from_dict`."""
        store = self.store
        options = asdict(store.options) if store.options else None
        settings = {"channels": store.channels, "dense_model": store.dense_model, "options": options}
        return default_to_dict(self, index=str(store.path), **settings)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HaystackDocumentStore:
        """Return a store with the settings that `to_dict` returned."""
        settings = dict(data.get("init_parameters", {}))
        if options := settings.get("options"):
            settings["options"] = IndexOptions(**options)
        store: HaystackDocumentStore = default_from_dict(cls, {**data, "init_parameters": settings})
        return store


def _document(hit: Hit, score: float | None = None) -> Document:
    return Document(id=hit.passage_id, content=hit.text, meta=metadata_of_hit(hit), score=score)


def _conditions(filters: dict[str, Any] | None) -> Filter | None:
    """Return a filter of Haystack as a filter on metadata keys, by the rules of Haystack.

    :raises FilterError: a key is missing, or a value does not fit its operator
    """
    if not filters:
        return None
    try:
        return Filter.of(filter_of(_checked(filters)))
    except InputError as error:
        raise FilterError(str(error)) from error


def _checked(filters: dict[str, Any]) -> dict[str, Any]:
    """Return a filter of Haystack; a comparison with None becomes a filter that matches nothing.

    :raises FilterError: a key is missing, or a value does not fit its operator
    """
    if "field" not in filters:
        if "operator" not in filters or "conditions" not in filters:
            raise FilterError("a filter needs a field, or an operator and conditions")
        if filters["operator"] == "NOT" and not filters["conditions"]:
            raise FilterError("NOT needs conditions")
        return {**filters, "conditions": [_checked(condition) for condition in filters["conditions"]]}
    if "operator" not in filters or "value" not in filters:
        raise FilterError(f"the condition on {filters['field']!r} needs an operator and a value")
    field, operator, value = filters["field"], filters["operator"], filters["value"]
    if field in _OF_DOCUMENTS:  # as metadata it would be unknown: `!=` would match every document
        raise FilterError(f"a filter needs a field of the metadata, such as meta.lang, found {field!r}")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise FilterError(f"the operator {operator!r} needs a list, found {value!r}")
    if operator not in (">", ">=", "<", "<="):
        return filters
    if value is None:
        both = [{"field": field, "operator": sign, "value": None} for sign in ("==", "!=")]
        return {"operator": "AND", "conditions": both}
    if not isinstance(value, int | float) and not _is_date(value):
        raise FilterError(f"the operator {operator!r} needs a number or an ISO date, found {value!r}")
    return filters


def _is_date(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True
