"""LangChain: a `BaseRetriever`."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from pydantic import Field, SkipValidation

from hybrid.integrations.source import Source, metadata_of, open_source
from sparta.search.retriever import Retriever


class LangChainRetriever(BaseRetriever):
    """Gives LangChain the hits of an index, as `Document`s with id, text and metadata (title, score, …).

        from hybrid.integrations import LangChainRetriever

        retriever = LangChainRetriever("my-index", k=3)
        for document in retriever.invoke("who founded microsoft"):
            print(document.id, document.metadata["score"], document.page_content)

    :param index: an index folder or an open retriever; `channels` as in `open_retriever`
    :param k: number of hits per query
    :param search_kwargs: more arguments of `search` (filter, collapse, offset); `invoke` can override them
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
        hits = self.retriever.search(query, **{"k": self.k, **self.search_kwargs, **search})
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
