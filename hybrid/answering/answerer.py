"""`Answerer`: retrieves passages, reads the passages and answers questions."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.answering.answers import (
    AnswerList,
    answer_key,
    as_read,
    combine,
    folded_texts,
    ranker_scores,
    rerank_offsets,
    with_offset,
)
from hybrid.multihop.searcher import ChainPassages, ChainSearcher
from hybrid.retrieval.searcher import open_retriever
from sparta.api import Index
from sparta.base.checks import fraction, queries_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.data.languages import language_of
from sparta.lucene.bridge import Bm25
from sparta.reader.config import reader_folder
from sparta.reader.records import Span, Text, no_texts, text_of
from sparta.rerank.reranked import RERANK_DEPTH, reranked
from sparta.search.retriever import Retriever

if TYPE_CHECKING:
    from sparta.reader.reader import Reader

DEPTH = 10
SPANS = 10
"""The number of spans that the reader keeps per passage, as in FiE."""
_QUERY_BLOCK = 500


def default_depth(rerank_depth: int) -> int:
    """Return the number of passages to read, unless a caller names it: 10, or all reranked ones if more."""
    return max(DEPTH, rerank_depth)


@dataclass
class ReadingCounts:
    """The numbers of retrieved and of read passages, and the reason why the other passages were not read."""

    retrieved: int = 0
    read: int = 0
    reason: str = "the other passages cannot change an answer"


class Answerer(Closing):
    """Answers questions from retrieved passages.

        answerer = Answerer(index.retriever(), Reader.open())
        print(answerer.answer("who founded google")[0].answer)

    The reader reads passages in retrieval order. If an answer's score comes from its best mention, the reader
    stops as soon as no further passage can change the answers: the result is the same as reading all
    passages. If mentions add up, the reader reads all passages. `counts` has the number of passages that were
    read.

    After reranking, a tenth of the cross-encoder's score counts in the scores of answers.

    :param retriever: finds passages; for an `Index`, its first channel; for a chain, the passages of its best
        paths
    :param depth: number of passages that are retrieved for a question; None is 10, or all reranked passages
        if they are more
    :param weight: the ranker's share of an answer's score, 0 to 1; None is the weight that the reader was
        tuned with. With another weight, scores only order answers and are not probabilities
    :param threshold: lowest score of an answer; answers with a lower score are left out. None is the reader's
        calibrated threshold if `tune-reader` used this channel and depth, else 0
    :param language: language of the passages, which decides when two answers are equal; None is the
        retriever's language
    """

    def __init__(
        self,
        retriever: Retriever | Index | ChainSearcher,
        reader: Reader,
        *,
        depth: int | None = None,
        weight: float | None = None,
        threshold: float | None = None,
        language: str | None = None,
    ) -> None:
        self.retriever, self.reader = _retriever(retriever), reader
        if not hasattr(reader, "config"):
            raise InputError(
                f"reader must be a Reader, found {type(reader).__name__}",
                remedy="open a reader with Reader.open(folder)",
            )
        self.config = reader.config.with_weight(None if weight is None else fraction("a weight", weight))
        rerank_depth = getattr(self.retriever, "rerank_depth", 0)  # a retriever of another package has none
        self._is_reranked = rerank_depth > 0
        self.depth = default_depth(rerank_depth) if depth is None else whole("depth", depth)
        if threshold is None:
            threshold = self.config.threshold_for(getattr(self.retriever, "ranking_name", ""), self.depth)
        self.threshold = fraction("a threshold", threshold)
        self.weight, self.language = self.config.weight, language or self.retriever.language
        self.counts = ReadingCounts()

    def answer(self, query: str, n: int = 1) -> AnswerList:
        """Return the `n` best answers, best first.

        The list is empty if no passage is retrieved or no answer reaches the threshold. Its `abstained` and
        `best_guess` then say which.
        """
        whole("n", n)
        hits = as_read(self.retriever, self.retriever.search(query, self.depth))
        return self.answer_hits(query, hits, n)

    def batch_answer(
        self, queries: Iterable[str], query_ids: Iterable[str], n: int = 1, threads: int = 1
    ) -> Iterator[tuple[str, AnswerList]]:
        """Yield `(query id, n best answers)` for many questions, in input order, without waiting for all."""
        queries_and_ids = queries_of(queries, query_ids)
        for block in itertools.batched(zip(*queries_and_ids, strict=True), _QUERY_BLOCK):
            texts, ids = [query for query, _ in block], [query_id for _, query_id in block]
            hits = self.retriever.batch_search(texts, ids, self.depth, threads)
            for query, query_id in block:
                yield query_id, self.answer_hits(query, as_read(self.retriever, hits[query_id]), n)

    def close(self) -> None:
        """Release the retriever."""
        self.retriever.close()

    def answer_hits(self, query: str, hits: Sequence[Hit], n: int = 1) -> AnswerList:
        """Return the `n` best answers from passages that are already retrieved, best first."""
        n = whole("n", n)
        texts, scores = [text_of(hit) for hit in hits], [hit.score for hit in hits]
        passage_scores = ranker_scores(scores)
        offsets = rerank_offsets(scores) if self._is_reranked else [0.0] * len(hits)
        if texts and not any(text.text for text in texts):
            raise no_texts()
        fold = language_of(self.language).fold
        distinct_texts = folded_texts(dict.fromkeys(texts), fold)
        spans_by_text: dict[Text, list[Span]] = {}
        spans: list[Sequence[Span]] = []
        read_contents: set[str] = set()
        best_scores: dict[str, float] = {}
        highest_rankers = [*itertools.accumulate(reversed(passage_scores), max)][
            ::-1
        ]  # from each position on
        with closing(self.reader.read_each(fold(query), distinct_texts, SPANS)) as reading:
            for position, text in enumerate(texts):
                highest_score = (1 - self.weight) + self.weight * highest_rankers[position]
                if len(best_scores) == n and min(best_scores.values()) >= highest_score:
                    break  # no unread passage can change the answers
                is_repeated = text in spans_by_text
                if not is_repeated:
                    spans_by_text[text] = next(reading)
                spans.append(with_offset(spans_by_text[text], offsets[position]))
                if is_repeated or self.config.combines_mentions:
                    continue
                # The same text under another title has overlapping answers: combine from the first passage.
                first_position = 0 if text.text in read_contents else position
                read_contents.add(text.text)
                new_positions = slice(first_position, position + 1)
                best_scores = self._best(
                    best_scores if first_position else {},
                    hits[new_positions],
                    texts[new_positions],
                    passage_scores[new_positions],
                    spans[new_positions],
                    n,
                )
        answers = combine(self.config, hits, texts, passage_scores, spans, self.weight, n, self.language)
        self.counts.retrieved += len(hits)
        self.counts.read += len(spans)
        return AnswerList.of(answers, self.threshold)

    def _best(
        self,
        previous: dict[str, float],
        hits: Sequence[Hit],
        texts: Sequence[Text],
        passage_scores: Sequence[float],
        spans: Sequence[Sequence[Span]],
        n: int,
    ) -> dict[str, float]:
        """Return the `n` best answers' uncalibrated scores, by answer key, after more passages are read.

        :param previous: the scores of the best answers from the passages that were read before
        """
        uncalibrated, scores = replace(self.config, answer=None), dict(previous)
        for answer in combine(
            uncalibrated, hits, texts, passage_scores, spans, self.weight, n, self.language
        ):
            key = answer_key(answer.answer, self.language)
            scores[key] = max(answer.score, scores.get(key, 0.0))
        return dict(heapq.nlargest(n, scores.items(), key=itemgetter(1)))


def _retriever(source: Any) -> Retriever:
    """Return a retriever for a retriever, an index or a chain."""
    if isinstance(source, Index):
        return source.retriever()
    if isinstance(source, ChainSearcher):
        return ChainPassages(source)
    if not hasattr(source, "batch_search"):
        raise InputError(
            f"source must be a retriever, found {type(source).__name__}",
            remedy="pass index.retriever() or another Retriever",
        )
    return source


def open_answerer(
    index: str | Path | None = None,
    channels: str | None = None,
    *,
    reader: str | Path | None = None,
    bm25: Bm25 | None = None,
    device: str | None = None,
    chain: ChainSearcher | None = None,
    rerank: str | Path | None = None,
    rerank_depth: int = RERANK_DEPTH,
    **settings: Any,
) -> Answerer:
    """Open an index and a reader and return an `Answerer`. Closing the `Answerer` closes the index.

    :param channels: as in `open_retriever`; `device` as in `Reader.open`
    :param reader: a folder, or None for the default reader of the index's language
    :param chain: a chain that retrieves passages in place of `channels`. `PathAnswerer` answers with a chain
        that reads its paths
    :param rerank: the folder or the name of a cross-encoder, which orders the first passages anew
    :param rerank_depth: the number of passages that are ordered anew
    :param settings: `depth`, `weight` and `threshold` of `Answerer`
    """
    if reader is not None:
        reader_folder(reader)  # a wrong path raises before the index opens
    reranks = (rerank_depth or 0) if rerank is not None else 0
    n_hits = max(settings.get("depth") or 0, reranks)
    retriever: Any = (
        ChainPassages(chain) if chain else open_retriever(index, channels, bm25=bm25, n_hits=n_hits)
    )
    try:
        if rerank is not None:
            retriever = reranked(retriever, rerank, rerank_depth)
        folder = reader_folder(reader, retriever.language)
        from sparta.reader.reader import Reader

        opened_reader = Reader.open(folder, device=device)
        return Answerer(retriever, opened_reader, **settings)
    except BaseException:
        retriever.close()
        raise
