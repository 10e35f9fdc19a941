"""`Answerer`: retrieve passages, read them, answer."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.answering.answers import Answer, answer_key, as_read, combine, folded_texts, ranker_scores
from hybrid.multihop.searcher import ChainPassages, ChainSearcher
from hybrid.retrieval.fusion import CANDIDATES
from hybrid.retrieval.searcher import open_retriever
from sparta.api import Index
from sparta.base.checks import queries_of, share, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.base.records import Hit
from sparta.data.languages import language_of
from sparta.lucene.bridge import Bm25
from sparta.reader.config import reader_folder
from sparta.reader.records import Span, Text, no_texts, text_of
from sparta.search.retriever import Retriever

if TYPE_CHECKING:
    from sparta.reader.reader import Reader

DEPTH = 10
SPANS = 10
"""How many spans of a passage are kept, as FiE keeps them."""
_QUERIES_AT_ONCE = 500


@dataclass
class ReadingCounts:
    """How many passages were retrieved to be read, how many of them were read, and why not the others."""

    retrieved: int = 0
    read: int = 0
    reason: str = "the others cannot change an answer"


class Answerer(Closing):
    """Answers questions from the passages that a retriever finds.

        answerer = Answerer(index.retriever(), Reader.open())
        print(answerer.answer("who founded google")[0].answer)

    Passages are read in the retriever's order. Where the best mention of an answer counts, no more of them
    are read than can still hold a better one: the answers are those of reading all. Where mentions add up,
    all are read. `counts` says how many were.

    :param retriever: what finds passages; an `Index` does by its first channel, a chain by its best paths
    :param depth: how many passages are retrieved for a question
    :param weight: the retriever's share of an answer's score, 0 to 1; None is the one that the reader was
        tuned with. With another, scores order answers and are no probabilities
    :param threshold: an answer less probable than this is not given
    :param language: that of the texts: what answers count as the same; None is the retriever's
    """

    def __init__(
        self,
        retriever: Retriever | Index | ChainSearcher,
        reader: Reader,
        *,
        depth: int = DEPTH,
        weight: float | None = None,
        threshold: float = 0.0,
        language: str | None = None,
    ) -> None:
        self.retriever, self.reader = _retriever(retriever), reader
        if not hasattr(reader, "config"):
            raise InputError(
                f"expected a reader, found {type(reader).__name__}", remedy="open one: Reader.open(folder)"
            )
        self.config = reader.config.with_weight(None if weight is None else share("a weight", weight))
        self.depth, self.threshold = whole("depth", depth), share("a threshold", threshold)
        self.weight, self.language = self.config.weight, language or self.retriever.language
        self.counts = ReadingCounts()

    def answer(self, query: str, n: int = 1) -> list[Answer]:
        """The `n` best answers, best first; none where no passage was found, or none is probable enough."""
        whole("n", n)
        hits = as_read(self.retriever, self.retriever.search(query, self.depth))
        return self.answer_hits(query, hits, n)

    def batch_answer(
        self, queries: Iterable[str], query_ids: Iterable[str], n: int = 1, threads: int = 1
    ) -> Iterator[tuple[str, list[Answer]]]:
        """The same for many questions: `(id, answers)`, in their order, as they are found."""
        asked = queries_of(queries, query_ids)
        for block in itertools.batched(zip(*asked, strict=True), _QUERIES_AT_ONCE):
            texts, ids = [q for q, _ in block], [i for _, i in block]
            hits = self.retriever.batch_search(texts, ids, self.depth, threads)
            for query, query_id in block:
                yield query_id, self.answer_hits(query, as_read(self.retriever, hits[query_id]), n)

    def close(self) -> None:
        """Release the retriever."""
        self.retriever.close()

    def answer_hits(self, query: str, hits: Sequence[Hit], n: int = 1) -> list[Answer]:
        """The `n` best answers from passages that were retrieved before, best first."""
        n = whole("n", n)
        texts, rankers = [text_of(hit) for hit in hits], ranker_scores([hit.score for hit in hits])
        if texts and not any(text.text for text in texts):
            raise no_texts()
        fold = language_of(self.language).fold
        distinct = folded_texts(dict.fromkeys(texts), fold)
        read: dict[Text, list[Span]] = {}
        spans: list[list[Span]] = []
        contents: set[str] = set()
        best: dict[str, float] = {}
        highest = [*itertools.accumulate(reversed(rankers), max)][::-1]  # of a passage and those behind it
        with closing(self.reader.read_each(fold(query), distinct, SPANS)) as reading:
            for at, text in enumerate(texts):
                bound = (1 - self.weight) + self.weight * highest[at]
                if len(best) == n and min(best.values()) >= bound:
                    break  # no passage that is left can change the answers
                known = text in read
                if not known:
                    read[text] = next(reading)
                spans.append(read[text])
                if known or self.config.adds_up:
                    continue
                since = 0 if text.text in contents else at  # under another title its answers may overlap
                contents.add(text.text)
                new = slice(since, at + 1)
                best = self._best(best if since else {}, hits[new], texts[new], rankers[new], spans[new], n)
        found = combine(self.config, hits, texts, rankers, spans, self.weight, n, self.language)
        self.counts.retrieved += len(hits)
        self.counts.read += len(spans)
        return [one for one in found if one.score >= self.threshold]

    def _best(
        self,
        best: dict[str, float],
        hits: Sequence[Hit],
        texts: Sequence[Text],
        rankers: Sequence[float],
        spans: Sequence[list[Span]],
        n: int,
    ) -> dict[str, float]:
        """The `n` best answers' scores before calibration, when more passages are read."""
        plain, known = replace(self.config, answer=None), dict(best)
        for one in combine(plain, hits, texts, rankers, spans, self.weight, n, self.language):
            key = answer_key(one.answer, self.language)
            known[key] = max(one.score, known.get(key, 0.0))
        return dict(heapq.nlargest(n, known.items(), key=itemgetter(1)))


def _retriever(source: Any) -> Retriever:
    """What finds passages: a retriever, or that of an index or of a chain."""
    if isinstance(source, Index):
        return source.retriever()
    if isinstance(source, ChainSearcher):
        return ChainPassages(source)
    if not hasattr(source, "batch_search"):
        raise InputError(
            f"expected a retriever, found {type(source).__name__}",
            remedy="give index.retriever(), or any other Retriever",
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
    **settings: Any,
) -> Answerer:
    """Open an index, a reader, and what answers with both; closing it closes the index.

    :param channels: as in `open_retriever`; `device` as in `Reader.open`
    :param reader: a folder, or None for the reader that ships for the language of the index
    :param chain: what retrieves in place of `channels`; of one that reads its paths, ask `PathAnswerer`
    :param settings: depth, weight and threshold of `Answerer`
    """
    if reader is not None:
        reader_folder(reader)  # a wrong path is told before an index is opened
    candidates = max(CANDIDATES, settings.get("depth", DEPTH))
    retriever: Any = (
        ChainPassages(chain) if chain else open_retriever(index, channels, bm25=bm25, candidates=candidates)
    )
    try:
        folder = reader_folder(reader, retriever.language)
        from sparta.reader.reader import Reader

        opened = Reader.open(folder, device=device)
        return Answerer(retriever, opened, **settings)
    except BaseException:
        retriever.close()
        raise
