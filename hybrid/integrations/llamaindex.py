"""LlamaIndex: a `BaseRetriever`."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores import FilterCondition, MetadataFilters

from hybrid.integrations.filters import combined, condition_of
from hybrid.integrations.source import Source, metadata_of, open_source


class LlamaIndexRetriever(BaseRetriever):
    """Gives LlamaIndex the hits of an index, as `TextNode`s with scores.

        from hybrid.integrations import LlamaIndexRetriever

        retriever = LlamaIndexRetriever("my-index", k=3)
        for node in retriever.retrieve("who founded microsoft"):
            print(node.node_id, node.score, node.text)

    :param index: an index folder or an open retriever; `channels` as in `open_retriever`
    :param k: number of hits per query
    :param filters: conditions that a passage must meet
    """

    def __init__(
        self,
        index: Source = None,
        channels: str | None = None,
        *,
        k: int = 10,
        filters: MetadataFilters | None = None,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.retriever = open_source(index, channels, k)
        self.k, self.filters = k, filters

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        filter = _filter_of(self.filters) if self.filters else None
        hidden_keys = ["channels"]  # ranks and scores are useless to a language model
        return [
            NodeWithScore(
                node=TextNode(
                    id_=hit.passage_id,
                    text=hit.text,
                    metadata=metadata_of(hit),
                    excluded_llm_metadata_keys=hidden_keys,
                    excluded_embed_metadata_keys=hidden_keys,
                ),
                score=float(hit.score),
            )
            for hit in self.retriever.search(query_bundle.query_str, self.k, filter=filter)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _filter_of(filters: MetadataFilters) -> dict[str, Any]:
    """Return LlamaIndex's filters as the argument `filter` of `search`; NOT means that not all hold."""
    parts = [
        _filter_of(part)
        if isinstance(part, MetadataFilters)
        else condition_of(part.key, part.operator.value, part.value)
        for part in filters.filters
    ]
    return combined((filters.condition or FilterCondition.AND).value, [part for part in parts if part])
