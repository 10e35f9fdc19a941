"""BEIR: a `BaseSearch` for its `EvaluateRetrieval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beir.retrieval.search import BaseSearch

from hybrid.integrations.collection import Collection
from hybrid.integrations.source import Source
from sparta.index.pipeline import IndexOptions


class BeirSearch(BaseSearch):
    """Searches what BEIR loads, so that BEIR's own code measures it.

        from beir.datasets.data_loader import GenericDataLoader
        from beir.retrieval.evaluation import EvaluateRetrieval
        from hybrid.integrations import BeirSearch

        corpus, queries, qrels = GenericDataLoader("scifact").load(split="test")
        beir = EvaluateRetrieval(BeirSearch())
        print(beir.evaluate(qrels, beir.retrieve(corpus, queries), beir.k_values)[0])

    Equal scores come back a least step apart, in the retriever's order.

    :param index: an index folder or an open retriever; None: the corpus is indexed in a temporary folder
    :param channels: as in `open_retriever`; of several, the `top_k` best of each are fused
    :param options: how a corpus is indexed
    """

    def __init__(
        self,
        index: Source = None,
        channels: str | None = None,
        *,
        options: IndexOptions | None = None,
        threads: int = 2,
    ) -> None:
        self.collection = Collection(index, channels, options, threads)

    def search(
        self,
        corpus: Mapping[str, Mapping[str, str]],
        queries: Mapping[str, str],
        top_k: int,
        *_: Any,
        **__: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the `top_k` best passages for each query, without the query's own id, as BEIR does."""
        self.collection.hold({**passage, "id": i} for i, passage in corpus.items())
        scores_by_query = self.collection.scores(queries, top_k + 1)
        return {
            q: dict([hit for hit in scores.items() if hit[0] != q][:top_k])
            for q, scores in scores_by_query.items()
        }

    def encode(self, *_: Any, **__: Any) -> None:
        """No vectors are made here."""
        raise NotImplementedError(
            "sparta searches its index without vectors of BEIR: call retrieve, not encode_and_retrieve"
        )

    def search_from_files(self, *_: Any, **__: Any) -> dict[str, dict[str, float]]:
        """No files of vectors are read here."""
        raise NotImplementedError(
            "sparta searches its index without vectors of BEIR: call retrieve, not encode_and_retrieve"
        )
