"""PyTerrier: a transformer from queries to rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyterrier as pt

from hybrid.integrations.source import Source, open_source


class PyTerrierRetriever(pt.Transformer):
    """Ranks passages for a data frame of queries; works in `pt.Experiment` and with `+`, `%`, `>>`.

        import pandas as pd
        from hybrid.integrations import PyTerrierRetriever

        retriever = PyTerrierRetriever("my-index", k=3, texts=True)
        print(retriever.search("who founded microsoft")[["docno", "rank", "score", "text"]])

    :param index: an index folder or an open retriever; `channels` as in `open_retriever`
    :param k: number of hits per query
    :param threads: number of threads that search
    :param texts: add the columns `title` and `text`, which rerankers need
    """

    def __init__(
        self,
        index: Source = None,
        channels: str | None = None,
        *,
        k: int = 1000,
        threads: int = 1,
        texts: bool = False,
    ) -> None:
        self.retriever = open_source(index, channels, k)
        self.k, self.threads, self.texts = k, threads, texts

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the hits of each query, best first: the query's columns, `docno`, `rank` from 0, `score`."""
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        are_missing = inp["query"].isna()  # NaN and None have no hits
        queries = [
            "" if is_missing else str(query)
            for query, is_missing in zip(inp["query"], are_missing, strict=True)
        ]
        rows = [str(row) for row in range(len(inp))]
        search = self.retriever.batch_search if self.texts else self.retriever.run
        rankings: Mapping[str, Sequence[Any]] = search(queries, rows, self.k, self.threads) if rows else {}
        numbered_hits = [(int(row), rank, hit) for row in rows for rank, hit in enumerate(rankings[row])]
        result = inp.iloc[[row for row, _, _ in numbered_hits]].reset_index(drop=True)
        result["docno"] = pd.Series([hit.passage_id for _, _, hit in numbered_hits], dtype=object)
        result["rank"] = pd.Series([rank for _, rank, _ in numbered_hits], dtype="int64")
        result["score"] = pd.Series([hit.score for _, _, hit in numbered_hits], dtype="float64")
        for name in ("title", "text") if self.texts else ():
            result[name] = pd.Series([getattr(hit, name) for _, _, hit in numbered_hits], dtype=object)
        return result

    def __repr__(self) -> str:
        return f"PyTerrierRetriever({self.retriever.channel})"
