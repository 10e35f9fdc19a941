"""LlamaIndex: a `BaseRetriever` and a vector store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import (
    BaseNode,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import FilterCondition, MetadataFilters
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from hybrid.integrations.filters import combined, condition_of
from hybrid.integrations.metadata import plain
from hybrid.integrations.source import Source, filter_on_index, kind_of_hits, metadata_of, open_source
from hybrid.integrations.store import IndexStore, ids_of, metadata_of_hit, text_of_passage
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.index.inputs.options import IndexOptions
from sparta.search.ranked import DOCUMENTS

_DOCUMENT = "ref_doc_id"
_NODE = "llama_index_node"
"""The field of a record that holds what only LlamaIndex reads, as JSON."""


class LlamaIndexRetriever(BaseRetriever):
    """Gives LlamaIndex the hits of an index, as `TextNode`s with scores.

        from hybrid.integrations import LlamaIndexRetriever

        retriever = LlamaIndexRetriever("my-index", k=3)
        for node in retriever.retrieve("who founded microsoft"):
            print(node.node_id, node.score, node.text)

    :param index: an index folder or an open retriever; `channels` as in `open_retriever`
    :param k: number of hits per query
    :param filters: conditions that a passage must meet
    :param hits: in an index of chunks, `documents` or `chunks`, as in `search`; nodes of chunks have
        `start_char_idx` and `end_char_idx`
    :param join: with `chunks`: join hits of neighboring chunks of a document
    """

    def __init__(
        self,
        index: Source = None,
        channels: str | None = None,
        *,
        k: int = 10,
        filters: MetadataFilters | None = None,
        hits: str = DOCUMENTS,
        join: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.retriever = open_source(index, channels, k)
        self.k, self.filters, self.kind = k, filters, kind_of_hits(hits, join=join)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        filter = filter_on_index(self.retriever, _filter_of(self.filters)) if self.filters else None
        hidden_keys = ["channels"]  # ranks and scores are useless to a language model
        return [
            NodeWithScore(
                node=TextNode(
                    id_=hit.passage_id,
                    text=hit.text,
                    metadata=metadata_of(hit),
                    start_char_idx=hit.start if hit.document_id else None,
                    end_char_idx=hit.end if hit.document_id else None,
                    excluded_llm_metadata_keys=hidden_keys,
                    excluded_embed_metadata_keys=hidden_keys,
                ),
                score=float(hit.score),
            )
            for hit in self.retriever.search(query_bundle.query_str, self.k, filter=filter, **self.kind)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class LlamaIndexVectorStore(BasePydanticVectorStore):
    """A vector store of LlamaIndex over an index folder. The first write creates the index.

        from hybrid.integrations import LlamaIndexVectorStore
        from llama_index.core.schema import TextNode
        from llama_index.core.vector_stores import VectorStoreQuery

        store = LlamaIndexVectorStore("my-index")
        store.add([TextNode(id_="ms", text="Bill Gates founded Microsoft.", metadata={"lang": "en"})])
        print(store.query(VectorStoreQuery(query_str="who founded microsoft", similarity_top_k=1)).ids)

    Queries need `query_str`: the store encodes texts and queries itself and ignores embeddings.

    :param index: an index folder, which may not exist yet
    :param channels: channels to search, as in `open_retriever`; with `dense`, the first write adds vectors
    :param options: the options of a new index; later writes use `device`, `dtype`, `threads` and
        `commit_seconds`
    :param dense_model: the model of a new index's vectors, a folder or hub id; None is the shipped model
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    _store: IndexStore = PrivateAttr()

    def __init__(
        self,
        index: str | Path | None = None,
        channels: str | None = None,
        *,
        options: IndexOptions | None = None,
        dense_model: str | None = None,
    ) -> None:
        super().__init__(stores_text=True, is_embedding_query=False)
        self._store = IndexStore(index, channels, options=options, dense_model=dense_model)

    @property
    def client(self) -> IndexStore:
        """The index folder, open for reading and writing."""
        return self._store

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes, and replace nodes with known ids; return the ids."""
        self._store.write([_passage(node) for node in nodes])
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all nodes of a document."""
        self._store.delete_matching({_DOCUMENT: ref_doc_id})

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete nodes by id or by filters; with both, the nodes that meet both."""
        self._store.delete([node.node_id for node in self.get_nodes(node_ids, filters)])

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return nodes by id or by filters; with both, the nodes that meet both."""
        if node_ids is None and filters is None:
            raise InputError("name the nodes by their ids or by filters")
        if filters is None:
            return [_node(hit) for hit in self._store.get(ids_of(node_ids))]
        hits = self._store.matching(_filter_of(filters))
        return [_node(hit) for hit in hits if node_ids is None or hit.passage_id in node_ids]

    def clear(self) -> None:
        """Delete all nodes."""
        self._store.delete_matching({})

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the best nodes for the text of a query.

        :raises InputError: the query has no text, or a mode other than `default` and `text_search`
        """
        if query.query_str is None:
            raise InputError(
                "the query has no query_str, and the store does not search by embeddings",
                remedy="set query_str; VectorStoreIndex and its retrievers set it",
            )
        mode = VectorStoreQueryMode(query.mode)
        if mode not in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.TEXT_SEARCH):
            raise InputError(
                f"the store has no query mode {mode.value!r}",
                remedy="use the mode default: the store's channels choose the search, as in"
                ' channels="bm25,impact"',
            )
        conditions = [_filter_of(query.filters)] if query.filters else []
        if query.doc_ids is not None:
            conditions.append(condition_of(_DOCUMENT, "in", query.doc_ids))
        filter = combined("and", [condition for condition in conditions if condition])
        text, k = query.query_str, query.similarity_top_k
        if query.node_ids:
            hits = self._store.search_among(query.node_ids, text, k, filter)
        else:  # VectorStoreIndex always passes a list, which is empty for a store of texts
            hits = self._store.search(text, k, filter)
        return VectorStoreQueryResult(
            nodes=[_node(hit) for hit in hits],
            similarities=[float(hit.score) for hit in hits],
            ids=[hit.passage_id for hit in hits],
        )


def _passage(node: BaseNode) -> tuple[str, str, dict[str, Any]]:
    text = text_of_passage(node.get_content(metadata_mode=MetadataMode.NONE), node.node_id)
    source = {_DOCUMENT: node.ref_doc_id} if node.ref_doc_id else {}
    more = _more_than_text(node)
    return (
        node.node_id,
        text,
        {**plain(node.metadata), **source, **({_NODE: json.dumps(more)} if more else {})},
    )


def _more_than_text(node: BaseNode) -> dict[str, Any]:
    """Return what a node has besides id, text, metadata and document, such as relationships and hidden keys.

    An `IndexNode` stays one; every other kind of node becomes a `TextNode`.
    """
    usual = _text_node(node.node_id, "", {}, node.ref_doc_id).to_dict()
    kept = usual.keys() - {"id_", "text", "metadata", "embedding", "class_name"}
    if isinstance(node, IndexNode):
        kept |= {"class_name", "index_id"}
    fields = node.to_dict()
    return {name: fields[name] for name in kept & fields.keys() if fields[name] != usual.get(name)}


def _node(hit: Hit) -> TextNode:
    metadata = metadata_of_hit(hit)
    document, more = metadata.pop(_DOCUMENT, None), json.loads(metadata.pop(_NODE, "{}"))
    node = _text_node(hit.passage_id, hit.text, metadata, document)
    if not more:
        return node
    kind = IndexNode if more.get("class_name") == IndexNode.class_name() else TextNode
    whole: TextNode = kind.from_dict({**node.to_dict(), **more})
    return whole


def _text_node(name: str, text: str, metadata: dict[str, Any], document: str | None) -> TextNode:
    related = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)} if document else {}
    return TextNode(id_=name, text=text, metadata=metadata, relationships=related)


def _filter_of(filters: MetadataFilters) -> dict[str, Any]:
    """Return LlamaIndex's filters as the argument `filter` of `search`; NOT means that not all hold."""
    parts = [
        _filter_of(part)
        if isinstance(part, MetadataFilters)
        else condition_of(part.key, part.operator.value, part.value)
        for part in filters.filters
    ]
    return combined((filters.condition or FilterCondition.AND).value, [part for part in parts if part])
