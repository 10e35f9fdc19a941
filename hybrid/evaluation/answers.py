"""For how many questions one of the first K passages holds an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hybrid.evaluation.measures import Evaluation
from sparta.base.records import Run
from sparta.data.answers import has_answer

ANSWER_RECALL = "answer_recall@"


class Holds:
    """Whether a passage holds an answer to a question; decided once, when it is first asked for.

    :param text: gives the text of a passage by its id.
    :param match: as in `has_answer`.
    """

    def __init__(
        self, answers: Mapping[str, Sequence[str]], text: Callable[[str], str], *, match: str = "string"
    ) -> None:
        self.answers, self.match = answers, match
        self._text = text
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, query_id: str, passage_id: str) -> bool:
        """Whether this passage holds an answer to this question."""
        key = query_id, passage_id
        if key not in self._known:
            self._known[key] = has_answer(self._text(passage_id), self.answers[query_id], match=self.match)
        return self._known[key]


def answer_recall(name: str, run: Run, holds: Holds, ks: Sequence[int] = (20, 100)) -> Evaluation:
    """Share of questions with an answer among the first K passages (DPR's top-K accuracy; R@K of the papers).

    Over all questions with known answers; one that the run does not answer counts 0.
    """
    deepest = max(ks)
    first = {
        q: next((i for i, hit in enumerate(run.get(q, ())[:deepest]) if holds(q, hit.passage_id)), deepest)
        for q in holds.answers
    }
    return Evaluation(
        name, {f"{ANSWER_RECALL}{k}": {q: float(at < k) for q, at in first.items()} for k in ks}
    )
