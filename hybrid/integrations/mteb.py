"""MTEB: a model with MTEB's `SearchProtocol`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mteb.models.model_meta import ModelMeta

from hybrid.integrations.collection import Collection
from hybrid.integrations.source import Source
from sparta.index.inputs.options import IndexOptions


class MtebSearch:
    """Searches the corpora of MTEB's retrieval and reranking tasks, so that MTEB measures sparta.

        import mteb
        from hybrid.integrations import MtebSearch

        task = mteb.get_task("SciFact")
        print(mteb.evaluate(MtebSearch(), task)[0].get_score())

    Equal scores are returned as scores that differ by the smallest float32 step, in the retriever's order.

    :param index: an index folder or an open retriever; None: each corpus is indexed in a temporary folder
    :param channels: as in `open_retriever`; if several, the `top_k` best passages of each are fused
    :param options: options of the temporary index
    :param name: the model's name in MTEB's results, as organization/model
    """

    def __init__(
        self,
        index: Source = None,
        channels: str | None = None,
        *,
        options: IndexOptions | None = None,
        threads: int = 2,
        name: str | None = None,
    ) -> None:
        self.collection = Collection(index, channels, options, threads)
        self.name = name or f"sparta/{(channels or 'impact').replace(',', '+')}"
        self._size = 0

    def index(self, corpus: Iterable[Mapping[str, Any]], **_: Any) -> None:
        """Index a corpus: rows with `id`, `text` and optionally `title`."""
        rows = [
            {"id": row["id"], **{name: row[name] for name in ("title", "text") if row.get(name)}}
            for row in corpus
        ]
        self._size = len(rows)
        self.collection.hold(rows)

    def search(
        self,
        queries: Iterable[Mapping[str, Any]],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the `top_k` best passages for each query; for reranking, only passages in `top_ranked`."""
        texts = {str(query["id"]): str(query["text"]) for query in queries}
        scores_by_query = self.collection.scores(texts, max(top_k, self._size) if top_ranked else top_k)
        if not top_ranked:
            return scores_by_query
        allowed_ids = {q: set(top_ranked.get(q, ())) for q in scores_by_query}
        return {
            q: dict([hit for hit in scores.items() if hit[0] in allowed_ids[q]][:top_k])
            for q, scores in scores_by_query.items()
        }

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """The model's description in MTEB's results."""
        description = {"name": self.name, "revision": self.collection.revision, "model_type": ["sparse"]}
        return ModelMeta.create_empty(description)
