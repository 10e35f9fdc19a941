"""Batches: questions, the candidates that they share, and the positives among these."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from sparta.base.records import Passage
from sparta.training.paragraphs import Paragraph, ParagraphSet


class Batch(NamedTuple):
    """Candidates of a step, which its questions share (in-batch negatives), and the positives among them.

    The first `n_sentences` candidates are sentences, the others whole paragraphs. `gold_sentence` and
    `gold_paragraph` are each question's positive of either kind, or -1. `masked` are, for each question, the
    candidates that are no negatives of it: its positives, all others that answer it (it may be a question to
    several texts), and whatever has the same text as one of these.
    """

    candidates: list[Passage]
    n_sentences: int
    questions: list[str]
    gold_sentence: list[int]
    gold_paragraph: list[int]
    masked: list[frozenset[int]]


class SampledNegatives:
    """Questions with negatives for each (SPARTA, §3.3): half random, half nearby in the file.

    Candidates are all sentences of a set in order, or whole texts where these are the answers; what has the
    text of an answer to the question is none of its negatives.

    :param negatives: how many for each question
    """

    def __init__(self, data: ParagraphSet, negatives: int) -> None:
        self.negatives = negatives
        self.candidates: list[Passage] = []
        self.questions: list[tuple[str, int]] = []
        self.answers: dict[str, set[str]] = {}
        for paragraph in data.paragraphs:
            first = len(self.candidates)
            self.candidates += paragraph.answers() or [paragraph.whole()]
            for question, sentence in paragraph.questions:
                gold = first + max(sentence, 0)
                self.questions.append((question, gold))
                self.answers.setdefault(question, set()).add(self.candidates[gold].text)

    def draw(self, rng: random.Random, n: int) -> Batch:
        """Return `n` questions; other questions' candidates are masked."""
        chosen = rng.sample(self.questions, min(n, len(self.questions)))
        ranked = [[gold, *self._negatives_of(question, gold, rng)] for question, gold in chosen]
        column = {i: n for n, i in enumerate(dict.fromkeys(i for row in ranked for i in row))}
        masked = [frozenset(column.values()) - {column[i] for i in row[1:]} for row in ranked]
        golds = [column[gold] for _, gold in chosen]
        questions = [question for question, _ in chosen]
        candidates = [self.candidates[i] for i in column]
        return Batch(candidates, len(candidates), questions, golds, [-1] * len(golds), masked)

    def _negatives_of(self, question: str, gold: int, rng: random.Random) -> list[int]:
        """The nearest candidates that do not answer a question, then random ones."""
        negatives: list[int] = []
        last = len(self.candidates) - 1
        nearest = (i for d in range(1, last + 1) for i in (gold - d, gold + d) if 0 <= i <= last)
        for i in nearest:
            if len(negatives) == self.negatives // 2:
                break
            if self.candidates[i].text not in self.answers[question]:
                negatives.append(i)
        for _ in range(20 * self.negatives):
            if len(negatives) == self.negatives:
                break
            i = rng.randrange(last + 1)
            if i not in negatives and self.candidates[i].text not in self.answers[question]:
                negatives.append(i)
        return negatives


def make_batch(paragraphs: Sequence[Paragraph], rng: random.Random, most: int) -> Batch:
    """Return sentences and paragraphs as candidates, and at most `most` questions of each paragraph."""
    sentences: list[Passage] = []
    firsts: list[int] = []
    for paragraph in paragraphs:
        firsts.append(len(sentences))
        sentences += paragraph.answers()
    n = len(sentences)
    candidates = sentences + [paragraph.whole() for paragraph in paragraphs]
    questions: list[str] = []
    gold_sentence: list[int] = []
    gold_paragraph: list[int] = []
    answering: dict[str, set[int]] = {}
    for number, (first, paragraph) in enumerate(zip(firsts, paragraphs, strict=True)):
        queries = paragraph.questions
        for question, sentence in rng.sample(queries, min(most, len(queries))):
            questions.append(question)
            gold_sentence.append(first + sentence if sentence >= 0 else -1)
            gold_paragraph.append(n + number)
        for question, sentence in queries:
            positives = {n + number} if sentence < 0 else {n + number, first + sentence}
            answering.setdefault(question, set()).update(positives)
    same: dict[str, list[int]] = {}
    for i, candidate in enumerate(candidates):
        same.setdefault(candidate.text, []).append(i)
    masked = [frozenset(j for i in answering[q] for j in same[candidates[i].text]) for q in questions]
    return Batch(candidates, n, questions, gold_sentence, gold_paragraph, masked)
