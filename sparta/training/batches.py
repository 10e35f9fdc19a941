"""Training batches: questions, their shared candidates, and the positives among the candidates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from sparta.base.records import Passage
from sparta.training.known import Key, KnownAnswers, keys_of, question_key
from sparta.training.paragraphs import Paragraph, ParagraphSet


class Batch(NamedTuple):
    """The candidates of a step, which all its questions share (in-batch negatives), and their positives.

    The first `n_sentences` candidates are sentences, the others whole paragraphs. `gold_sentence` and
    `gold_paragraph` are each question's positive of either kind, or -1. `masked` holds, for each question,
    the candidates that are not its negatives: its positives, other right candidates (a question may have
    several right texts, and the file may list more), and candidates with the text or id of one of these.
    """

    candidates: list[Passage]
    n_sentences: int
    questions: list[str]
    gold_sentence: list[int]
    gold_paragraph: list[int]
    masked: list[frozenset[int]]


class SampledNegatives:
    """Questions with separate negatives (SPARTA, §3.3): half random, half from nearby in the file.

    The candidates are all sentences of a set in order, or whole texts if these are the answers. A question's
    right passages, and candidates with the same text, are never its negatives.

    :param negatives: the number of negatives per question
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
                right_keys = self.answers.setdefault(question_key(question), set())
                right_keys.update(keys_of(self.candidates[gold]))

    def draw(self, rng: random.Random, n: int) -> Batch:
        """Return a batch of `n` questions; each question masks the other questions' candidates."""
        chosen = rng.sample(self.questions, min(n, len(self.questions)))
        candidate_rows = [[gold, *self._negatives_of(question, gold, rng)] for question, gold in chosen]
        column = {i: n for n, i in enumerate(dict.fromkeys(i for row in candidate_rows for i in row))}
        masked = [frozenset(column.values()) - {column[i] for i in row[1:]} for row in candidate_rows]
        golds = [column[gold] for _, gold in chosen]
        questions = [question for question, _ in chosen]
        candidates = [self.candidates[i] for i in column]
        return Batch(candidates, len(candidates), questions, golds, [-1] * len(golds), masked)

    def _negatives_of(self, question: str, gold: int, rng: random.Random) -> list[int]:
        """Return the nearest candidates that do not answer the question, then random ones."""
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
        keys, right_keys = keys_of(self.candidates[i]), self.answers[question_key(question)]
        return not (right_keys.isdisjoint(keys) and self.known.right(question).isdisjoint(keys))


def make_batch(
    paragraphs: Sequence[Paragraph],
    rng: random.Random,
    max_questions: int,
    known: KnownAnswers | None = None,
    others: Sequence[Paragraph] = (),
) -> Batch:
    """Return a batch of questions whose candidates are sentences and whole paragraphs.

    :param max_questions: the largest number of questions per paragraph
    :param known: the file's right passages, which are masked
    :param others: further paragraphs that are candidates; their questions are not used
    """
    paragraphs_with_questions, paragraphs = len(paragraphs), [*paragraphs, *others]
    sentences: list[Passage] = []
    firsts: list[int] = []
    for paragraph in paragraphs:
        firsts.append(len(sentences))
        sentences += paragraph.answers()
    n_sentences = len(sentences)
    candidates = sentences + [paragraph.whole() for paragraph in paragraphs]
    questions: list[str] = []
    gold_sentence: list[int] = []
    gold_paragraph: list[int] = []
    answering: dict[str, set[int]] = {}
    for number, (first, paragraph) in enumerate(zip(firsts, paragraphs, strict=True)):
        queries = paragraph.questions
        for question, sentence in (
            rng.sample(queries, min(max_questions, len(queries)))
            if number < paragraphs_with_questions
            else ()
        ):
            questions.append(question)
            gold_sentence.append(first + sentence if sentence >= 0 else -1)
            gold_paragraph.append(n_sentences + number)
        for question, sentence in queries:
            positives = {n_sentences + number} if sentence < 0 else {n_sentences + number, first + sentence}
            answering.setdefault(question_key(question), set()).update(positives)
    keys = [*map(keys_of, candidates)]
    candidates_by_key: dict[Key, list[int]] = {}
    for i, candidate_keys in enumerate(keys):
        for key in candidate_keys:
            candidates_by_key.setdefault(key, []).append(i)
    masked = []
    for question in questions:
        right_keys = {key for i in answering[question_key(question)] for key in keys[i]}
        right_keys |= known.right(question) & candidates_by_key.keys() if known else set()
        masked.append(frozenset(i for key in right_keys for i in candidates_by_key[key]))
    return Batch(candidates, n_sentences, questions, gold_sentence, gold_paragraph, masked)
