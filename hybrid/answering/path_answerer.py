"""`PathAnswerer`: answers from a chain that reads its paths (Chain-of-Skills, Appendix C)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hybrid.answering.answerer import ReadingCounts
from hybrid.answering.answers import (
    Answer,
    AnswerList,
    answer_key,
    id_of_passage,
    ranker_scores,
    start_of_text,
)
from hybrid.multihop.paths import EvidencePath
from hybrid.multihop.searcher import ALL, ChainPassages, ChainSearcher
from sparta.base.checks import fraction, queries_of, whole
from sparta.base.closing import Closing
from sparta.base.errors import InputError
from sparta.reader.records import text_of


class PathAnswerer(Closing):
    """Answers questions with a chain whose last step is `read`; each answer comes from one path.

    An answer's `score` and `reader` are the probability that the reader of paths gives the answer in its
    path. The probability is not calibrated. `ranker` is the path's score, from 0 (last read path) to 1
    (first). The answers yes and no have no span: their passage is the last passage of the path, and `start`
    and `end` are 0.

    :param threshold: lowest score of an answer; if the best path's answer has a lower score, the answerer
        abstains, and other paths' answers with a lower score are left out. None is 0
    :raises InputError: the chain has no step `read`.
    """

    def __init__(self, chain: ChainSearcher, *, threshold: float | None = None) -> None:
        if not isinstance(chain, ChainSearcher):
            raise InputError(
                f"chain must be an open ChainSearcher, found {chain!r}",
                remedy='open the chain with an index: PathAnswerer(ChainSearcher("hop-read", "my-index"))',
            )
        if not chain.reads:
            raise InputError(
                f"the chain {chain.channel} has no step read, so it reads no paths",
                remedy="answer from the chain's passages: Answerer(ChainPassages(chain), reader)",
            )
        self.chain, self.threshold = chain, fraction("a threshold", threshold or 0.0)
        self.retriever, self.counts = (
            ChainPassages(chain),
            ReadingCounts(reason="the reader reads only the best paths"),
        )

    def answer(self, query: str, n: int = 1) -> AnswerList:
        """Return the distinct answers of the `n` best paths, best path first.

        The list is empty if no path is read, or if the best path's answer is below the threshold.
        """
        n = whole("n", n)
        paths = self.chain.find_paths(query, ALL).paths
        read_paths = [path for path in paths if path.answer]
        self.counts.retrieved += len({passage_id for path in paths for passage_id in path.evidence_ids})
        self.counts.read += len({passage_id for path in read_paths for passage_id in path.evidence_ids})
        language = self.chain.tools.language
        best_guess = next(iter(answers_of(read_paths[:1], language)), None)
        is_sure = best_guess is not None and best_guess.score >= self.threshold
        answers = answers_of(read_paths, language, self.threshold)[:n] if is_sure else []
        return AnswerList(answers, best_guess, self.threshold)

    def batch_answer(
        self, queries: Iterable[str], query_ids: Iterable[str], n: int = 1, threads: int = 1
    ) -> Iterator[tuple[str, AnswerList]]:
        """Yield `(query id, n best answers)` for many questions, in input order, one question at a time."""
        for query, query_id in zip(*queries_of(queries, query_ids), strict=True):
            yield query_id, self.answer(query, n)

    def close(self) -> None:
        """Release the chain."""
        self.chain.close()


def answers_of(paths: Sequence[EvidencePath], language: str = "en", threshold: float = 0.0) -> list[Answer]:
    """Return the distinct answers of read paths, best path first, without answers below the threshold."""
    answers: dict[str, Answer] = {}
    for path, ranker in zip(paths, ranker_scores([path.score for path in paths]), strict=True):
        path_answer = path.answer
        if (
            path_answer is None
            or path_answer.score < threshold
            or answer_key(path_answer.answer, language) in answers
        ):
            continue
        passages = {evidence.hit.passage_id: evidence.hit for evidence in path.passages}
        hit = passages[path_answer.passage_id or path.evidence_ids[-1]]
        text, score = text_of(hit).text, path_answer.score
        place = path_answer.start, path_answer.end
        location = id_of_passage(hit, text, place, list(passages.values())), hit.title, text, *place
        answer = Answer(path_answer.answer, score, *location, score, ranker, start_of_text(hit, text))
        answers[answer_key(path_answer.answer, language)] = answer
    return list(answers.values())
