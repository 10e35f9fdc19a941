"""Batches: questions, the candidates that they share, and the positives among these."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from sparta.base.records import Passage
from sparta.training.known import Key, KnownAnswers, keys_of
from sparta.training.paragraphs import Paragraph, ParagraphSet


class Batch(NamedTuple):
    """Candidates of a step, which its questions share (in-batch negatives), and the positives among them.

    The first `n_sentences` candidates are sentences, the others whole paragraphs. `gold_sentence` and
    `gold_paragraph` are each question's positive of either kind, or -1. `masked` are, for each question, the
    candidates that are no negatives of it: its positives, all others that answer it (it may be a question to
    several texts, and the file may know more of them), and whatever has the text or the id of one of these.
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
    text of an answer to the question, or is a right passage by the file, is none of its negatives.

    :param negatives: how many for each question
    """

    def __init__(self, data: ParagraphSet, negatives: int) -> None:
        self.negatives = negatives
        self.candidates: list[Passage] = []
        self.questions: list[tuple[str, int]] = []
        self.known = data.known
        self.answers: dict[str, set[Key]] = {}
        for paragraph in data.paragraphs:
            first = len(self.candidates)
            self.candidates += paragraph.answers() or [paragraph.whole()]
            for question, sentence in paragraph.questions:
                gold = first + max(sentence, 0)
                self.questions.append((question, gold))
                self.answers.setdefault(question, set()).update(_keys(self.candidates[gold]))

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
            if not self._answers(i, question):
                negatives.append(i)
        for _ in range(20 * self.negatives):
            if len(negatives) == self.negatives:
                break
            i = rng.randrange(last + 1)
            if i not in negatives and not self._answers(i, question):
                negatives.append(i)
        return negatives

    def _answers(self, i: int, question: str) -> bool:
        keys = _keys(self.candidates[i])
        return not (self.answers[question].isdisjoint(keys) and self.known.right(question).isdisjoint(keys))


def make_batch(
    paragraphs: Sequence[Paragraph],
    rng: random.Random,
    most: int,
    known: KnownAnswers | None = None,
    others: Sequence[Paragraph] = (),
) -> Batch:
    """Return sentences and paragraphs as candidates, and at most `most` questions of each paragraph.

    :param known: right passages by the file, which are masked
    :param others: paragraphs that are candidates too, whose questions are not asked
    """
    asked, paragraphs = len(paragraphs), [*paragraphs, *others]
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
        for question, sentence in rng.sample(queries, min(most, len(queries))) if number < asked else ():
            questions.append(question)
            gold_sentence.append(first + sentence if sentence >= 0 else -1)
            gold_paragraph.append(n + number)
        for question, sentence in queries:
            positives = {n + number} if sentence < 0 else {n + number, first + sentence}
            answering.setdefault(question, set()).update(positives)
    keys = [_keys(candidate) for candidate in candidates]
    same: dict[Key, list[int]] = {}
    for i, own in enumerate(keys):
        for key in own:
            same.setdefault(key, []).append(i)
    masked = []
    for question in questions:
        right = {key for i in answering[question] for key in keys[i]}
        right |= known.right(question) & same.keys() if known else set()
        masked.append(frozenset(i for key in right for i in same[key]))
    return Batch(candidates, n, questions, gold_sentence, gold_paragraph, masked)


def _keys(candidate: Passage) -> tuple[Key, ...]:
    return keys_of(candidate.text, candidate.passage_id)
