"""Adapters of retrievers to other frameworks, one module each; a framework is imported at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparta.base.exports import lazy_names

if TYPE_CHECKING:
    from hybrid.integrations.beir import BeirSearch
    from hybrid.integrations.haystack import HaystackRetriever
    from hybrid.integrations.haystack_store import HaystackDocumentStore
    from hybrid.integrations.langchain import LangChainRetriever, LangChainVectorStore
    from hybrid.integrations.llamaindex import LlamaIndexRetriever, LlamaIndexVectorStore
    from hybrid.integrations.mcp import mcp_server
    from hybrid.integrations.mteb import MtebSearch
    from hybrid.integrations.pyterrier import PyTerrierRetriever

_HOMES = {
    "BeirSearch": "hybrid.integrations.beir",
    "HaystackDocumentStore": "hybrid.integrations.haystack_store",
    "HaystackRetriever": "hybrid.integrations.haystack",
    "LangChainRetriever": "hybrid.integrations.langchain",
    "LangChainVectorStore": "hybrid.integrations.langchain",
    "LlamaIndexRetriever": "hybrid.integrations.llamaindex",
    "LlamaIndexVectorStore": "hybrid.integrations.llamaindex",
    "MtebSearch": "hybrid.integrations.mteb",
    "PyTerrierRetriever": "hybrid.integrations.pyterrier",
    "mcp_server": "hybrid.integrations.mcp",
}

__all__ = [
    "BeirSearch",
    "HaystackDocumentStore",
    "HaystackRetriever",
    "LangChainRetriever",
    "LangChainVectorStore",
    "LlamaIndexRetriever",
    "LlamaIndexVectorStore",
    "MtebSearch",
    "PyTerrierRetriever",
    "mcp_server",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
