"""Answers from the best paths of a chain that reads them (Chain-of-Skills, Appendix C)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hybrid.answering.answerer import ReadingCounts
from hybrid.answering.answers import Answer, answer_key, ranker_scores
from hybrid.multihop.paths import EvidencePath
from hybrid.multihop.searcher import ALL, ChainPassages, ChainSearcher
from sparta.base.checks import queries_of, share, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.reader.records import text_of


class PathAnswerer(Closing):
    """Answers questions with a chain that ends in a step `read`: each answer is that of a path.

    `score` and `reader` of an answer are the probability that the reader of paths gives it in its path, which
    is not calibrated; `ranker` is the score of the path, from 0 (the last that was read) to 1 (the first).
    Yes and no stand nowhere: their passage is the last of the path, `start` and `end` are 0.

    :param threshold: an answer less probable than this is not given
    :raises InputError: a chain that does not read.
    """

    def __init__(self, chain: ChainSearcher, *, threshold: float = 0.0) -> None:
        if not isinstance(chain, ChainSearcher):
            raise InputError(
                f"expected a chain that is open, found {chain!r}",
                remedy='open it over an index: PathAnswerer(ChainSearcher("hop-read", "my-index"))',
            )
        if not chain.reads:
            raise InputError(
                f"expected a chain with a step read, found none in {chain.channel}",
                remedy="answer from its passages: Answerer(ChainPassages(chain), reader)",
            )
        self.chain, self.threshold = chain, share("a threshold", threshold)
        self.retriever, self.counts = ChainPassages(chain), ReadingCounts(reason="those of the best paths")

    def answer(self, query: str, n: int = 1) -> list[Answer]:
        """The answers of the `n` best paths that say different things, best path first."""
        n = whole("n", n)
        paths = self.chain.search(query, ALL).paths
        read = [path for path in paths if path.answer]
        self.counts.retrieved += len({i for path in paths for i in path.evidence_ids})
        self.counts.read += len({i for path in read for i in path.evidence_ids})
        return answers_of(read, self.chain.tools.language, self.threshold)[:n]

    def batch_answer(
        self, queries: Iterable[str], query_ids: Iterable[str], n: int = 1, threads: int = 1
    ) -> Iterator[tuple[str, list[Answer]]]:
        """The same for many questions: `(id, answers)`, in their order, as they are found; one at a time."""
        for query, query_id in zip(*queries_of(queries, query_ids), strict=True):
            yield query_id, self.answer(query, n)

    def close(self) -> None:
        """Release the chain."""
        self.chain.close()


def answers_of(paths: Sequence[EvidencePath], language: str = "en", threshold: float = 0.0) -> list[Answer]:
    """The answers of paths that were read and are probable enough, best path first; what says the same is
    given once.
    """
    found: dict[str, Answer] = {}
    for path, ranker in zip(paths, ranker_scores([path.score for path in paths]), strict=True):
        own = path.answer
        if own is None or own.score < threshold or answer_key(own.answer, language) in found:
            continue
        passages = {one.hit.passage_id: one.hit for one in path.passages}
        hit = passages[own.passage_id or path.evidence_ids[-1]]
        place = hit.passage_id, hit.title, text_of(hit).text, own.start, own.end
        answer = Answer(own.answer, own.score, *place, own.score, ranker)
        found[answer_key(own.answer, language)] = answer
    return list(found.values())
