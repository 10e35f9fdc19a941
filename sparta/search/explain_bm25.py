"""Explain a passage's BM25 score: what each word of the query adds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sparta.base.checks import query_of
from sparta.base.filters import Filter, FilterLike
from sparta.search.explain import passage_rank
from sparta.search.searcher import Searcher, bm25_query, docids_of


@dataclass(frozen=True, slots=True)
class Bm25Contribution:
    """A query word's contribution to a BM25 score; `term` is the word as the analyzer writes it.

    `count` is how often the query contains the word.
    """

    term: str
    count: int
    contribution: float

    def as_dict(self) -> dict[str, float | str]:
        """Return the fields as a dictionary for JSON."""
        return {"term": self.term, "count": self.count, "share": self.contribution}


@dataclass(frozen=True, slots=True)
class Bm25Explanation:
    """A passage's BM25 score for a query, word by word; `rank` is 0 if the passage is not a hit."""

    passage_id: str
    rank: int
    score: float
    terms: tuple[Bm25Contribution, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        terms = [term.as_dict() for term in self.terms]
        return {"id": self.passage_id, "rank": self.rank, "score": self.score, "terms": terms}

    def __str__(self) -> str:
        lines = [f"{term.term}: {term.contribution:.4f}" for term in self.terms]
        rank = f"rank {self.rank}" if self.rank else "no hit"
        return "\n".join([f"{self.passage_id}: score {self.score:.4f}, {rank}", *lines])


def explain_bm25(
    searcher: Searcher, query: str, passage_id: str, filter: FilterLike | None = None
) -> Bm25Explanation:
    """Explain a passage's BM25 score for a query, even if the passage is not among the top k.

    The largest contribution comes first. A split passage has the score of its best part. The rank of a
    document counts documents; the rank of a chunk, such as `d#3`, counts chunks.

    :param filter: rank only among passages that match the filter, and explain a split passage by its best
        part that matches; a passage that does not match has rank 0
    :raises InputError: the index lacks the passage.
    """
    checked_filter = Filter.of(filter)
    with searcher.reader.snapshot() as snapshot:
        if checked_filter:
            snapshot.require_fields(checked_filter.fields)
        text = bm25_query(query_of(query), snapshot.tokenizer.language)
        lucene, words = snapshot.lucene, snapshot.lucene.words(text)
        docids = docids_of(snapshot, passage_id, checked_filter)
        scores = lucene.word_scores(text, docids)
        sums = scores.sum(axis=1, dtype=np.float64).astype(np.float32)  # Lucene rounds the sum once, too
        best = int(sums.argmax())
        best_rank = lucene.rank_text(text, docids[best], checked_filter)
        search = partial(lucene.search_text, [text], filter=checked_filter)
        rank = passage_rank(snapshot, passage_id, best_rank, search)
    contributions = [
        Bm25Contribution(word, count, float(score))
        for (word, count), score in zip(words.items(), scores[best], strict=True)
    ]
    ordered = tuple(sorted(contributions, key=lambda word: -word.contribution))
    return Bm25Explanation(passage_id, rank, float(sums[best]), ordered)
