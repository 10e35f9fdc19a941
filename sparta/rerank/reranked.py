"""A retriever whose first hits a cross-encoder orders anew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from sparta.base.checks import whole
from sparta.base.closing import open_again
from sparta.base.errors import InputError
from sparta.base.records import Hit, Ranking, Run
from sparta.base.remedies import Option, remedy
from sparta.data.languages import DEFAULT_LANGUAGE, language_of
from sparta.models.folders.cross_encoder import CrossEncoder
from sparta.models.resolve import default_name, hash_folder, named_or_shipped_folder
from sparta.search.retriever import DelegatingRetriever, Page, Retriever, hit_of

RERANK_DEPTH = 20
"""The number of hits that are ordered anew, unless a caller names another number."""
RERANKED = "+rerank"
"""The end of the channel's name."""


class RerankedRetriever(DelegatingRetriever):
    """Orders the first hits of a retriever by a cross-encoder's scores.

    The hits after them keep their order. The cross-encoder did not read them, so each has a score one lower
    than that of the hit before it.

    :param retriever: finds the hits; closing this object closes it
    :param reranker: scores the query with the title and the text of each hit
    :param depth: the number of hits that are ordered anew
    """

    def __init__(self, retriever: Retriever, reranker: CrossEncoder, depth: int = RERANK_DEPTH) -> None:
        self.retriever, self.reranker = retriever, reranker
        self.rerank_depth = whole("rerank_depth", depth)
        self.channel = retriever.channel + RERANKED

    @property
    def ranking_name(self) -> str:
        """The name of the first stage's ranking, and the cross-encoder with its depth."""
        name = f"{self.reranker.folder.name}-{hash_folder(self.reranker.folder)[:8]}"
        return f"{self.retriever.ranking_name}{RERANKED}({name},depth={self.rerank_depth})"

    def __reduce__(self) -> tuple[object, ...]:
        return open_again, (reranked, self.retriever, self.reranker.folder, self.rerank_depth)

    @property
    def first_stage(self) -> Retriever:
        """The retriever that finds the hits."""
        return self.retriever.first_stage

    @property
    def most_hits(self) -> int:
        """The highest number of hits of a query."""
        return self.retriever.most_hits

    def rank(self, queries: Sequence[str], page: Page, threads: int = 1) -> list[Ranking]:
        """Return one page of each query's ranking; one run of the network scores the pairs of all queries."""
        longest = max(page.depth, min(self.rerank_depth, self.most_hits))
        longer = replace(page, k=longest, offset=0, join=False)
        with self.holding():
            rankings = self.retriever.rank(queries, longer, threads)
            fold = language_of(self.language).fold
            texts = [[fold(text) for text in query_texts] for query_texts in self._texts(rankings)]
        owners = [fold(query) for query, own in zip(queries, texts, strict=True) for _ in own]
        scores = iter(self.reranker.scores(owners, [text for own in texts for text in own]).tolist())
        reranked = [
            _reranked(ranking, [next(scores) for _ in own])
            for ranking, own in zip(rankings, texts, strict=True)
        ]
        return [ranking[page.offset : page.depth] for ranking in reranked]

    def _texts(self, rankings: Sequence[Ranking]) -> list[list[str]]:
        """Return the texts of the hits that are ordered anew, with their titles."""
        docids = [ranking.docids[: self.rerank_depth] for ranking in rankings]
        records = iter(self.retriever.records([docid for own in docids for docid in own]))
        return [[_text(hit_of("", 0.0, next(records))) for _ in own] for own in docids]

    def holding(self) -> AbstractContextManager[object]:
        """Pin the current snapshot until the block ends, even if another thread refreshes."""
        return self.retriever.holding()

    def close(self) -> None:
        """Close the retriever."""
        self.retriever.close()


_opening = threading.Lock()


def open_reranker(name: str) -> CrossEncoder:
    """Open a cross-encoder; a process opens it once, and again if its files have changed.

    :param name: a folder, or the name of an installed model
    :raises InputError: the name is empty.
    :raises ModelError: there is no such cross-encoder.
    """
    if not name:
        raise InputError(
            "a reranker needs a name, found an empty text",
            remedy=remedy("name a cross-encoder with {}", Option("rerank", default_name("reranker"))),
        )
    folder = named_or_shipped_folder(name, DEFAULT_LANGUAGE, "reranker").absolute()
    with _opening:  # threads that need it at the same time open it once
        return _opened(folder, hash_folder(folder))


@lru_cache(2)
def _opened(folder: Path, _hash: str) -> CrossEncoder:
    return CrossEncoder.open(folder)


def reranked(retriever: Retriever, name: str | Path, depth: int = RERANK_DEPTH) -> RerankedRetriever:
    """Return a retriever whose first hits this cross-encoder orders anew.

    :param name: a folder, or the name of an installed model
    :raises ModelError: there is no such cross-encoder.
    """
    return RerankedRetriever(retriever, open_reranker(str(name)), depth)


def check_candidates(candidates: int | None, rerank_depth: int | None) -> None:
    """Raise InputError if a fusion has fewer candidates per channel than hits to order anew.

    :param candidates: None if the caller names no number; also `rerank_depth`
    """
    if candidates is not None and rerank_depth is not None and candidates < rerank_depth:
        raise InputError(
            f"{rerank_depth} hits cannot be ordered anew with {candidates} candidates of each channel",
            remedy=remedy(
                "raise the candidates: {}, or lower the depth: {}",
                Option("candidates", rerank_depth),
                Option("rerank_depth", candidates),
            ),
        )


@dataclass(frozen=True, slots=True)
class Reranking:
    """Orders the first `depth` passages of finished rankings anew, for evaluations.

    :param name: the folder or the name of a cross-encoder
    """

    name: str | Path
    depth: int = RERANK_DEPTH
    language: str = "en"

    def open(self) -> CrossEncoder:
        """Open the cross-encoder; a process opens it once."""
        return open_reranker(str(self.name))

    def run(self, queries: Mapping[str, str], run: Run, hit_of: Callable[[str, str], Hit]) -> Run:
        """Return a run with its first passages ordered anew.

        :param queries: the queries by id
        :param hit_of: returns the hit for a query id and a passage id
        """
        reranker, fold = self.open(), language_of(self.language).fold
        reranked_run: dict[str, Ranking] = {}
        for query_id, passages in run.items():
            ids, scores = [p.passage_id for p in passages], [p.score for p in passages]
            texts = [fold(_text(hit_of(query_id, passage_id))) for passage_id in ids[: self.depth]]
            new_scores = reranker.scores([fold(queries[query_id])] * len(texts), texts).tolist()
            reranked_run[query_id] = _reranked(Ranking(ids, range(len(ids)), scores), new_scores)
        return reranked_run


def _text(hit: Hit) -> str:
    return f"{hit.title} {hit.text}" if hit.title else hit.text


def _reranked(ranking: Ranking, scores: Sequence[float]) -> Ranking:
    """Return a ranking with its first hits ordered by these scores; equal scores keep their order."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    lowest = min(scores, default=0.0)
    after = range(len(scores), len(ranking))
    return Ranking(
        [ranking.passage_ids[i] for i in [*order, *after]],
        [ranking.docids[i] for i in [*order, *after]],
        [*(scores[i] for i in order), *(lowest - 1 - i + len(scores) for i in after)],
    )
