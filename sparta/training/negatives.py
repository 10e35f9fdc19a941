"""Mine hard negatives, by BM25 or by any scorer of a set's paragraphs."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparta.base.checks import vocabulary_size
from sparta.base.files import atomic_write
from sparta.data.answers import has_answer, holds, token_line
from sparta.models.query_encoder import QueryTokenizer
from sparta.training.known import Key, keys_of, question_key
from sparta.training.paragraphs import ParagraphSet

Scorer = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""A function that returns the scores of questions, `(n_questions, n_paragraphs) float32`."""
HardNegatives = tuple[tuple[int, ...], ...]
"""The numbers of the hard negatives of each paragraph of a set."""
QUESTIONS_AT_ONCE = 512
_SCORES_AT_ONCE = 1 << 22


def mine(data: ParagraphSet, score: Scorer, depth: int = 8, *, above: float = 0.0) -> ParagraphSet:
    """Return the set with hard negatives: paragraphs that rank high for another paragraph's questions.

    A hard negative is not a right passage for such a question, according to paragraphs or file, and contains
    no answer. Of equal passages, the first with questions is preferred, because its questions join the batch;
    the others are no hard negatives.

    :param score: returns `(n_questions, n_paragraphs)` scores of some questions.
    :param depth: the number of hard negatives per paragraph, over all its questions.
    :param above: the limit that a score must exceed: 0 for scores that count shared words, −∞ for dot
        products, whose highest score may be negative.
    """
    pairs = [
        (i, question) for i, paragraph in enumerate(data.paragraphs) for question, _ in paragraph.questions
    ]
    excluded = _Excluded(data)
    best: list[dict[int, float]] = [{} for _ in data.paragraphs]
    keep = min(depth + excluded.most + 1, len(data.paragraphs))
    questions_per_call = max(1, min(QUESTIONS_AT_ONCE, _SCORES_AT_ONCE // len(data.paragraphs)))
    for first in range(0, len(pairs), questions_per_call):
        call_pairs = pairs[first : first + questions_per_call]
        scores = score([question for _, question in call_pairs])
        scores[:, excluded.repeated] = -np.inf
        top = np.argpartition(-scores, keep - 1, axis=1)[:, :keep]
        for (i, _), row, candidates in zip(call_pairs, scores, top, strict=True):
            allowed = (j for j in _ranked(row, candidates, above) if not excluded.holds(i, j))
            for j in islice(allowed, depth):
                best[i][j] = max(best[i].get(j, above), float(row[j]))
    ranked = (tuple(sorted(scores, key=lambda i: (-scores[i], i))[:depth]) for scores in best)
    return replace(data, hard_negatives=tuple(ranked))


def _ranked(row: npt.NDArray[np.float32], top: npt.NDArray[np.int64], above: float) -> Iterator[int]:
    """Yield the paragraph numbers with scores above a limit, highest first.

    The function sorts all scores only if `top` is not enough.

    :param top: the paragraph numbers of the highest scores
    """
    top = np.sort(top)
    best = top[np.argsort(-row[top], kind="stable")]
    above_limit = best[row[best] > above]
    yield from map(int, above_limit)
    if len(above_limit) == len(top) < len(row):
        remaining = np.setdiff1d(np.flatnonzero(row > above), top)
        yield from map(int, remaining[np.argsort(-row[remaining], kind="stable")])


def write_negatives(path: Path, sets: Sequence[ParagraphSet]) -> None:
    """Write the hard negatives of these sets."""
    atomic_write(path, json.dumps([data.hard_negatives for data in sets]).encode())


def read_negatives(path: Path) -> list[HardNegatives]:
    """Read the hard negatives of each set from a file of `write_negatives`."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [tuple(map(tuple, of_set)) for of_set in stored]


class _Excluded:
    """The paragraphs that must not become a paragraph's negatives.

    These are right passages, passages with the same text, and passages that contain an answer to one of the
    paragraph's questions by DPR's rule. `repeated` are the paragraphs that another, equal paragraph
    represents: the first with questions, or else the first.
    """

    def __init__(self, data: ParagraphSet) -> None:
        self.paragraphs, self.language = data.paragraphs, data.known.language
        keys = [keys_of(paragraph.whole()) for paragraph in data.paragraphs]
        right_keys = {
            question_key(q): data.known.right(q)
            for paragraph in data.paragraphs
            for q, _ in paragraph.questions
        }
        paragraphs_by_key: dict[Key, set[int]] = {}
        answering: dict[str, set[int]] = {}
        self.repeated: list[int] = []
        for i in sorted(range(len(keys)), key=lambda i: not data.paragraphs[i].questions):
            paragraph, paragraph_keys = data.paragraphs[i], keys[i]
            if not paragraphs_by_key.keys().isdisjoint(paragraph_keys):
                self.repeated.append(i)
            for key in paragraph_keys:
                paragraphs_by_key.setdefault(key, set()).add(i)
            for question, _ in paragraph.questions:
                answering.setdefault(question_key(question), set()).add(i)
        for question, right_of_question in right_keys.items():
            answering[question].update(
                *(paragraphs_by_key[key] for key in right_of_question if key in paragraphs_by_key)
            )
        self.right = [
            set().union(
                *(paragraphs_by_key[key] for key in paragraph_keys),
                *(answering[question_key(q)] for q, _ in paragraph.questions),
            )
            for paragraph, paragraph_keys in zip(data.paragraphs, keys, strict=True)
        ]
        self.most = max(map(len, self.right), default=0)
        self.answers, self.patterns = (
            [
                tuple(
                    dict.fromkeys(answer for q, _ in p.questions for answer in data.known.answers(q, match))
                )
                for p in data.paragraphs
            ]
            for match in ("string", "regex")
        )
        self._lines: dict[int, str] = {}

    def holds(self, i: int, j: int) -> bool:
        """Return whether paragraph `j` must not become a negative of paragraph `i`."""
        if j in self.right[i] or not (self.answers[i] or self.patterns[i]):
            return j in self.right[i]
        text = self.paragraphs[j].text
        if j not in self._lines:
            self._lines[j] = token_line(text, self.language)
        return holds(self._lines[j], self.answers[i], self.language) or has_answer(
            text, self.patterns[i], match="regex"
        )


class Bm25Vectorizer:
    """BM25 over wordpieces (k1 0.9, b 0.4, Anserini's values), for negatives and as a teacher."""

    k1, b = 0.9, 0.4

    def __init__(self, texts: Sequence[str], tokenizer: QueryTokenizer) -> None:
        self.tokenizer = tokenizer
        counts = bag_matrix(texts, tokenizer)
        present = np.bincount(counts.indices, minlength=counts.shape[1])
        self.idf = np.log1p((len(texts) - present + 0.5) / (present + 0.5)).astype(np.float32)
        self.mean_length = max(1.0, float(counts.sum()) / max(1, len(texts)))

    @staticmethod
    def of_sets(sets: Sequence[ParagraphSet], tokenizer: QueryTokenizer) -> Bm25Vectorizer:
        """Return BM25 with the document frequencies and the mean length of all training texts."""
        texts = {
            f"{paragraph.title} {paragraph.text}"
            for data in sets
            if not data.dev
            for paragraph in data.paragraphs
        }
        return Bm25Vectorizer(sorted(texts), tokenizer)

    def weigh(self, texts: Sequence[str]) -> scipy.sparse.csr_matrix:
        """Return each wordpiece's contribution to a question's score, `(n_texts, vocabulary) float32`."""
        counts = bag_matrix(texts, self.tokenizer)
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        norm = self.k1 * (1 - self.b + self.b * lengths / self.mean_length)
        weights = counts.data / (counts.data + np.repeat(norm, np.diff(counts.indptr)))
        data = (weights * self.idf[counts.indices]).astype(np.float32)
        return scipy.sparse.csr_matrix((data, counts.indices, counts.indptr), shape=counts.shape)


def bag_matrix(texts: Sequence[str], tokenizer: QueryTokenizer) -> scipy.sparse.csr_matrix:
    """Return the count of each wordpiece in each text, `(n_texts, vocabulary) float32`."""
    ends, terms, counts = array("q", [0]), array("i"), array("f")
    for text in texts:  # one bag at a time, because all bags as dictionaries take ten times the memory
        bag = tokenizer.counts(text)
        terms.extend(bag)
        counts.extend(bag.values())
        ends.append(len(terms))
    indptr, indices, data = np.array(ends), np.array(terms), np.array(counts)
    shape = (len(texts), vocabulary_size(tokenizer.tokenizer))
    return scipy.sparse.csr_matrix((data, indices, indptr), shape=shape)
