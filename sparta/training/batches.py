"""What one step of training sees: candidates, questions, and which candidates answer which questions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from sparta.base.records import Passage
from sparta.training.paragraphs import Paragraph, ParagraphSet


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


class PrintedNegatives:
    """Questions with negatives of their own (SPARTA, §3.3): half random, half nearby in the file.

    Candidates are all sentences of a set in order, or whole texts where these are the answers; what has the
    text of an answer to the question is none of its negatives.

    :param negatives: how many for each question
    """

    def __init__(self, one: ParagraphSet, negatives: int) -> None:
        self.negatives = negatives
        self.candidates: list[Passage] = []
        self.questions: list[tuple[str, int]] = []
        self.answers: dict[str, set[str]] = {}
        for paragraph in one.paragraphs:
            first = len(self.candidates)
            self.candidates += paragraph.answers() or [paragraph.whole()]
            for question, sentence in paragraph.questions:
                gold = first + max(sentence, 0)
                self.questions.append((question, gold))
                self.answers.setdefault(question, set()).add(self.candidates[gold].text)

    def draw(self, rng: random.Random, n: int) -> Batch:
        """Return `n` questions; of the candidates, `right` masks all but a question's own."""
        chosen = rng.sample(self.questions, min(n, len(self.questions)))
        own = [[gold, *self._of(question, gold, rng)] for question, gold in chosen]
        column = {i: n for n, i in enumerate(dict.fromkeys(i for some in own for i in some))}
        masked = [frozenset(column.values()) - {column[i] for i in some[1:]} for some in own]
        golds = [column[gold] for _, gold in chosen]
        questions = [question for question, _ in chosen]
        candidates = [self.candidates[i] for i in column]
        return Batch(candidates, len(candidates), questions, golds, [-1] * len(own), masked)

    def _of(self, question: str, gold: int, rng: random.Random) -> list[int]:
        """The nearest candidates that do not answer a question, then random ones."""
        found: list[int] = []
        last = len(self.candidates) - 1
        near = (i for d in range(1, last + 1) for i in (gold - d, gold + d) if 0 <= i <= last)
        for i in near:
            if len(found) == self.negatives // 2:
                break
            if self.candidates[i].text not in self.answers[question]:
                found.append(i)
        for _ in range(20 * self.negatives):
            if len(found) == self.negatives:
                break
            i = rng.randrange(last + 1)
            if i not in found and self.candidates[i].text not in self.answers[question]:
                found.append(i)
        return found


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
