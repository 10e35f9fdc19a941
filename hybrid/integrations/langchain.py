"""LangChain: a `BaseRetriever` and a `VectorStore`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from pydantic import Field, SkipValidation

from hybrid.integrations.metadata import plain
from hybrid.integrations.source import Source, field_on_index, filter_on_index, metadata_of, open_source
from hybrid.integrations.store import IndexStore, ids_of, metadata_of_hit, text_of_passage
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.index.inputs.options import IndexOptions
from sparta.search.retriever import Retriever


class LangChainRetriever(BaseRetriever):
    """Gives LangChain the hits of an index, as `Document`s with id, text and metadata (title, score, …).

        from hybrid.integrations import LangChainRetriever

        retriever = LangChainRetriever("my-index", k=3)
        for document in retriever.invoke("who founded microsoft"):
            print(document.id, document.metadata["score"], document.page_content)

    :param index: an index folder or an open retriever; `channels` as in `open_retriever`
    :param k: number of hits per query
    :param search_kwargs: more arguments of `search` (filter, collapse, offset, hits, join); `invoke` can
        override them. The filter and `collapse` name metadata keys. With `{"hits": "chunks"}`, the metadata
        has document_id, start and end
    """

    retriever: SkipValidation[Retriever]
    k: int = 10
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    def __init__(
        self, index: Source = None, channels: str | None = None, *, k: int = 10, **others: Any
    ) -> None:
        super().__init__(**{"retriever": open_source(index, channels, k), "k": k, **others})

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **search: Any
    ) -> list[Document]:
        arguments = {"k": self.k, **self.search_kwargs, **search}
        _, *parameters = signature(self.retriever.search).parameters.values()
        known = [parameter.name for parameter in parameters]
        unknown = [name for name in arguments if name not in known]
        if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            raise InputError(
                f"the retriever cannot search with {', '.join(unknown)}",
                remedy=f"it takes {', '.join(known) or 'the query alone'}",
            )
        if arguments.get("filter"):
            arguments["filter"] = filter_on_index(self.retriever, arguments["filter"])
        if isinstance(arguments.get("collapse"), str):
            arguments["collapse"] = field_on_index(self.retriever, arguments["collapse"])
        hits = self.retriever.search(query, **arguments)
        return [
            Document(id=hit.passage_id, page_content=hit.text, metadata=metadata_of(hit, score=hit.score))
            for hit in hits
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **search: Any
    ) -> list[Document]:
        sync_manager = run_manager.get_sync()
        return await run_in_executor(
            None, self._get_relevant_documents, query, run_manager=sync_manager, **search
        )


class LangChainVectorStore(VectorStore):
    """A vector store of LangChain over an index folder. The first write creates the index.

        from hybrid.integrations import LangChainVectorStore

        store = LangChainVectorStore("my-index")
        store.add_texts(["Bill Gates founded Microsoft."], [{"lang": "en"}], ids=["ms"])
        print(store.similarity_search("who founded microsoft", k=1, filter={"lang": "en"}))

    :param index: an index folder, which may not exist yet
    :param channels: channels to search, as in `open_retriever`; with `dense`, the first write adds vectors
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

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, and replace texts with known ids; return the ids. A missing id becomes a random id."""
        listed = list(texts)
        typed_ids = list(ids) if ids is not None else [None] * len(listed)
        names = [name or uuid4().hex for name in typed_ids]
        rows = zip(names, listed, metadatas or [{}] * len(listed), strict=True)
        self.store.write(
            [(name, text_of_passage(text, name), plain(metadata)) for name, text, metadata in rows]
        )
        return names

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by id; None deletes all. Unknown ids are not an error."""
        if ids is None:
            self.store.delete_matching({})
        else:
            self.store.delete(ids_of(ids))
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids that the store holds."""
        return [_document(hit) for hit in self.store.get(ids_of(ids))]

    def similarity_search(
        self, query: str, k: int = 4, filter: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Document]:
        """Return the `k` best documents for a query; arguments as in `similarity_search_with_score`."""
        return [document for document, _ in self.similarity_search_with_score(query, k, filter, **kwargs)]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        filter: dict[str, Any] | None = None,
        collapse: str | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the `k` best documents with their scores; a higher score is better.

        :param filter: a condition on the metadata
        :param collapse: a metadata key; return only the best document for each of its values
        :raises InputError: an argument is unknown
        """
        if kwargs:
            raise InputError(
                f"the store cannot search with {', '.join(kwargs)}",
                remedy="use k, filter and collapse; LangChainRetriever takes all arguments of search",
            )
        hits = self.store.search(query, k, filter, collapse=collapse)
        return [(_document(hit), float(hit.score)) for hit in hits]

    def max_marginal_relevance_search(self, *args: Any, **kwargs: Any) -> list[Document]:
        """Raise InputError: the store keeps no embeddings to compare documents by."""
        raise InputError(
            "the store has no search by maximal marginal relevance",
            remedy='use similarity_search; with collapse="KEY", it returns one document per value of a key',
        )

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        raise InputError(
            "the store has no relevance scores from 0 to 1: the scores of its channels have no upper bound",
            remedy="use similarity_search_with_score",
        )

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index: str | Path | None = None,
        **kwargs: Any,
    ) -> LangChainVectorStore:
        """Return a store with these texts. `embedding` is not used: the index encodes the texts."""
        store = cls(index, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store


def _document(hit: Hit) -> Document:
    return Document(id=hit.passage_id, page_content=hit.text, metadata=metadata_of_hit(hit))
