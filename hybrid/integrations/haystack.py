"""Haystack: a retriever component."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from hybrid.integrations.filters import combined, condition_of, unknown_filter
from hybrid.integrations.source import Source, filter_on_index, kind_of_hits, metadata_of, open_source
from sparta.base.errors import InputError
from sparta.search.ranked import DOCUMENTS
from sparta.search.retriever import Retriever


@component
class HaystackRetriever:
    """Gives a Haystack pipeline the hits of an index, as `Document`s with id, score and meta (title, …).

        from hybrid.integrations import HaystackRetriever

        retriever = HaystackRetriever("my-index", top_k=3)
        for document in retriever.run("who founded microsoft")["documents"]:
            print(document.id, document.score, document.content)

    A saved pipeline is loaded with `Pipeline.loads(text, allowed_modules=["hybrid.integrations"])`.

    :param index: an index folder or an open retriever; `channels` as in `open_retriever`
    :param top_k: number of hits per query
    :param filters: filter of the passages, in Haystack's format; `run` can replace it
    :param hits: in an index of chunks, `documents` or `chunks`, as in `search`; the meta of a chunk has
        document_id, start and end
    :param join: with `chunks`: join hits of neighboring chunks of a document
    """

    def __init__(
        self,
        index: Source = None,
        channels: str | None = None,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        hits: str = DOCUMENTS,
        join: bool = False,
    ) -> None:
        self.index, self.channels, self.top_k, self.filters = index, channels, top_k, filters
        self.kind = kind_of_hits(hits, join=join)
        self._retriever: Retriever | None = None

    def warm_up(self) -> None:
        """Open the index, unless it is open."""
        self._open()

    def _open(self) -> Retriever:
        if self._retriever is None:
            self._retriever = open_source(self.index, self.channels, self.top_k)
        return self._retriever

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, filters: dict[str, Any] | None = None
    ) -> dict[str, list[Document]]:
        """Return the `top_k` best passages as `documents`, best first."""
        retriever = self._open()
        filter = filter_on_index(retriever, filter_of(filters or self.filters or {}))
        k = self.top_k if top_k is None else top_k
        hits = retriever.search(query, k, filter=filter, **self.kind)
        return {
            "documents": [
                Document(id=hit.passage_id, content=hit.text, meta=metadata_of(hit), score=float(hit.score))
                for hit in hits
            ]
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the component's settings as JSON values, for `from_dict`.

        :raises InputError: the component holds an open retriever, which cannot be serialized
        """
        if not (self.index is None or isinstance(self.index, str | Path)):
            raise InputError(
                f"a component with the open retriever {self.index.channel} cannot be serialized",
                remedy="create the component with the index folder and the names of the channels",
            )
        folder = None if self.index is None else str(self.index)
        settings = {"channels": self.channels, "top_k": self.top_k, "filters": self.filters}
        return default_to_dict(self, index=folder, **settings, **self.kind)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HaystackRetriever:
        """Return a component with the settings that `to_dict` returned."""
        component: HaystackRetriever = default_from_dict(cls, data)
        return component


def filter_of(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a filter of Haystack as the argument `filter` of `search`; NOT means that not all hold.

    :raises InputError: an operator is unknown
    """
    if not filters:
        return {}
    if "field" in filters:
        field = str(filters["field"]).removeprefix("meta.")
        return condition_of(field, str(filters.get("operator")), filters.get("value"))
    operator = str(filters.get("operator"))
    if operator not in ("AND", "OR", "NOT"):
        raise unknown_filter(f"the operator {operator!r}")
    return combined(operator.lower(), [filter_of(condition) for condition in filters.get("conditions", ())])
