"""BEIR: a `BaseSearch` for BEIR's `EvaluateRetrieval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beir.retrieval.search import BaseSearch

from hybrid.integrations.collection import Collection
from hybrid.integrations.source import Source
from sparta.index.inputs.options import IndexOptions


class BeirSearch(BaseSearch):
    """Searches the corpora that BEIR loads, so that BEIR's code measures sparta.

        from beir.datasets.data_loader import GenericDataLoader
        from beir.retrieval.evaluation import EvaluateRetrieval
        from hybrid.integrations import BeirSearch

        corpus, queries, qrels = GenericDataLoader("scifact").load(split="test")
        beir = EvaluateRetrieval(BeirSearch())
        print(beir.evaluate(qrels, beir.retrieve(corpus, queries), beir.k_values)[0])

    Equal scores are returned as scores that differ by the smallest float32 step, in the retriever's order.

    :param index: an index folder or an open retriever; None: the corpus is indexed in a temporary folder
    :param channels: as in `open_retriever`; if several, the `top_k` best passages of each are fused
    :param options: options of the temporary index
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
        """Return the `top_k` best passages for each query, and one more if they include the query's id.

        BEIR's evaluation drops the passage with the query's id, unless `ignore_identical_ids=False`.
        """
        self.collection.hold({**passage, "id": i} for i, passage in corpus.items())
        scores_by_query = self.collection.scores(queries, top_k + 1)
        return {
            q: dict(list(scores.items())[: top_k + (q in scores)]) for q, scores in scores_by_query.items()
        }

    def encode(self, *_: Any, **__: Any) -> None:
        """Raise NotImplementedError: this adapter makes no vectors."""
        raise NotImplementedError(
            "sparta searches its index without vectors of BEIR: call retrieve, not encode_and_retrieve"
        )

    def search_from_files(self, *_: Any, **__: Any) -> dict[str, dict[str, float]]:
        """Raise NotImplementedError: this adapter reads no files of vectors."""
        raise NotImplementedError(
            "sparta searches its index without vectors of BEIR: call retrieve, not encode_and_retrieve"
        )
