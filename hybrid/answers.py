"""For how many questions one of the first K passages holds an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hybrid.measures import Evaluation
from sparta.answers import has_answer, tokens

__all__ = ["answer_recall", "has_answer", "tokens"]


def answer_recall(
    name: str,
    texts: Mapping[str, Sequence[str]],
    answers: Mapping[str, Sequence[str]],
    ks: Sequence[int] = (20, 100),
    *,
    match: str = "string",
) -> Evaluation:
    """Share of questions with an answer among the first K passages (DPR's top-K accuracy; R@K of the papers).

    :param texts: for each question, the texts of its passages, best first.
    """
    first: dict[str, int | None] = {
        q: next((i for i, text in enumerate(texts.get(q, ())) if has_answer(text, own, match=match)), None)
        for q, own in answers.items()
    }
    return Evaluation(
        name,
        {f"answer_recall@{k}": {q: float(at is not None and at < k) for q, at in first.items()} for k in ks},
    )
