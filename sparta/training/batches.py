"""What one step of training sees: candidates, questions, and which candidates answer which questions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from sparta.base.records import Passage
from sparta.training.paragraphs import Paragraph


class Batch(NamedTuple):
    """Candidates of a step, and for each question its answer among the candidates.

    The first `n_sentences` candidates are sentences, the others whole paragraphs. `gold_sentence` is -1 where
    only the whole paragraph answers. `right` are all candidates that answer a question.
    """

    candidates: list[Passage]
    n_sentences: int
    questions: list[str]
    gold_sentence: list[int]
    gold_paragraph: list[int]
    right: list[frozenset[int]]

    def also_right(self, row: int) -> frozenset[int]:
        """Candidates that are not wrong for the question of a row.

        It may be asked of several texts, drawn with this question or not; and what has the text of an answer
        is one.
        """
        return self.right[row]


def make_batch(paragraphs: Sequence[Paragraph], rng: random.Random, each: int) -> Batch:
    """Return sentences and paragraphs as candidates, and at most `each` questions a paragraph."""
    sentences: list[Passage] = []
    questions: list[str] = []
    gold_sentence: list[int] = []
    gold_paragraph: list[int] = []
    holders: dict[str, set[int]] = {}
    firsts: list[int] = []
    for number, paragraph in enumerate(paragraphs):
        firsts.append(len(sentences))
        sentences += paragraph.answers()
        queries = paragraph.questions
        for question, sentence in rng.sample(queries, min(each, len(queries))):
            questions.append(question)
            gold_sentence.append(firsts[-1] + sentence if sentence >= 0 else -1)
            gold_paragraph.append(number)
    n = len(sentences)
    gold_paragraph = [n + number for number in gold_paragraph]
    candidates = sentences + [paragraph.whole() for paragraph in paragraphs]
    for number, (first, paragraph) in enumerate(zip(firsts, paragraphs, strict=True)):
        for question, sentence in paragraph.questions:
            answering = {n + number} if sentence < 0 else {n + number, first + sentence}
            holders.setdefault(question, set()).update(answering)
    same: dict[str, list[int]] = {}
    for i, candidate in enumerate(candidates):
        same.setdefault(candidate.text, []).append(i)
    right = {q: frozenset(j for i in holders[q] for j in same[candidates[i].text]) for q in set(questions)}
    return Batch(candidates, n, questions, gold_sentence, gold_paragraph, [right[q] for q in questions])
