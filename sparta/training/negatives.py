"""Hard negatives, mined by BM25 or by whatever scores a set's paragraphs."""

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

from sparta.base.files import atomic_write
from sparta.data.answers import holds, token_line
from sparta.models.query_encoder import QueryTokenizer
from sparta.training.known import Key, keys_of
from sparta.training.paragraphs import ParagraphSet

Scorer = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""From questions to `(n_questions, n_paragraphs) float32`."""
HardNegatives = tuple[tuple[int, ...], ...]
"""For each paragraph of a set, the numbers of its hard negatives."""
QUESTIONS_AT_ONCE = 512
_SCORES_AT_ONCE = 1 << 22


def mine(data: ParagraphSet, score: Scorer, depth: int = 8, *, above: float = 0.0) -> ParagraphSet:
    """Return the set with hard negatives: paragraphs that rank high for another's questions.

    None of them is a right passage of such a question, by the paragraphs or by the file, nor holds an answer.

    :param score: gives `(n_questions, n_paragraphs)` for some questions.
    :param depth: how many are kept for each paragraph, over all its questions.
    :param above: what a score must exceed: 0 where it counts words that are shared; a dot product may be
        negative and yet the highest, so for these it is −∞.
    """
    pairs = [(i, question) for i, p in enumerate(data.paragraphs) for question, _ in p.questions]
    excluded = _Excluded(data)
    best: list[dict[int, float]] = [{} for _ in data.paragraphs]
    keep = min(depth + excluded.most + 1, len(data.paragraphs))
    at_once = max(1, min(QUESTIONS_AT_ONCE, _SCORES_AT_ONCE // len(data.paragraphs)))
    for first in range(0, len(pairs), at_once):
        part = pairs[first : first + at_once]
        scores = score([question for _, question in part])
        top = np.argpartition(-scores, keep - 1, axis=1)[:, :keep]
        for (i, _), row, candidates in zip(part, scores, top, strict=True):
            allowed = (j for j in _ranked(row, candidates, above) if not excluded.holds(i, j))
            for j in islice(allowed, depth):
                best[i][j] = max(best[i].get(j, above), float(row[j]))
    ranked = (tuple(sorted(found, key=lambda i: (-found[i], i))[:depth]) for found in best)
    return replace(data, hard_negatives=tuple(ranked))


def _ranked(row: npt.NDArray[np.float32], top: npt.NDArray[np.int64], above: float) -> Iterator[int]:
    """Yield the numbers of the scores above a limit, from the highest; `top` are those of the highest scores.

    All scores are sorted only where the highest ones do not suffice.
    """
    top = np.sort(top)
    best = top[np.argsort(-row[top], kind="stable")]
    above_limit = best[row[best] > above]
    yield from map(int, above_limit)
    if len(above_limit) == len(top) < len(row):
        others = np.setdiff1d(np.flatnonzero(row > above), top)
        yield from map(int, others[np.argsort(-row[others], kind="stable")])


def write_negatives(path: Path, sets: Sequence[ParagraphSet]) -> None:
    """Write the hard negatives of some sets."""
    atomic_write(path, json.dumps([data.hard_negatives for data in sets]).encode())


def read_negatives(path: Path) -> list[HardNegatives]:
    """Read what `write_negatives` wrote, for each set."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [tuple(map(tuple, of_set)) for of_set in stored]


class _Excluded:
    """Paragraphs that are no negatives of a paragraph: right ones, those of the same text, those that hold an
    answer to one of its questions, as DPR decides it.
    """

    def __init__(self, data: ParagraphSet) -> None:
        self.paragraphs, self.language = data.paragraphs, data.known.language
        keys = [keys_of(p.text, p.passage_id) for p in data.paragraphs]
        known = {q: data.known.right(q) for p in data.paragraphs for q, _ in p.questions}
        same: dict[Key, set[int]] = {}
        answering: dict[str, set[int]] = {}
        for i, (paragraph, own) in enumerate(zip(data.paragraphs, keys, strict=True)):
            for key in own:
                same.setdefault(key, set()).add(i)
            for question, _ in paragraph.questions:
                answering.setdefault(question, set()).add(i)
        for question, right in known.items():
            answering[question].update(*(same[key] for key in right if key in same))
        self.right = [
            set().union(*(same[key] for key in own), *(answering[q] for q, _ in p.questions))
            for p, own in zip(data.paragraphs, keys, strict=True)
        ]
        self.most = max(map(len, self.right), default=0)
        self.answers = [
            tuple(
                dict.fromkeys(
                    answer for question, _ in p.questions for answer in data.known.answers(question)
                )
            )
            for p in data.paragraphs
        ]
        self._lines: dict[int, str] = {}

    def holds(self, i: int, j: int) -> bool:
        """Return whether paragraph `j` must not become a negative of paragraph `i`."""
        if j in self.right[i] or not self.answers[i]:
            return j in self.right[i]
        if j not in self._lines:
            self._lines[j] = token_line(self.paragraphs[j].text, self.language)
        return holds(self._lines[j], self.answers[i], self.language)


class Bm25:
    """BM25 over wordpieces (k1 0.9, b 0.4, as Anserini's), for negatives and as a teacher."""

    k1, b = 0.9, 0.4

    def __init__(self, texts: Sequence[str], tokenizer: QueryTokenizer) -> None:
        self.tokenizer = tokenizer
        counts = bag_matrix(texts, tokenizer)
        present = np.bincount(counts.indices, minlength=counts.shape[1])
        self.idf = np.log1p((len(texts) - present + 0.5) / (present + 0.5)).astype(np.float32)
        self.mean_length = max(1.0, float(counts.sum()) / max(1, len(texts)))

    @staticmethod
    def of_sets(sets: Sequence[ParagraphSet], tokenizer: QueryTokenizer) -> Bm25:
        """Return BM25 with the frequencies and the mean length of all texts of the training sets."""
        texts = {f"{p.title} {p.text}" for one in sets if not one.dev for p in one.paragraphs}
        return Bm25(sorted(texts), tokenizer)

    def weigh(self, texts: Sequence[str]) -> scipy.sparse.csr_matrix:
        """`(n_texts, vocabulary) float32`: what each wordpiece adds to a question's score."""
        counts = bag_matrix(texts, self.tokenizer)
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        norm = self.k1 * (1 - self.b + self.b * lengths / self.mean_length)
        weights = counts.data / (counts.data + np.repeat(norm, np.diff(counts.indptr)))
        data = (weights * self.idf[counts.indices]).astype(np.float32)
        return scipy.sparse.csr_matrix((data, counts.indices, counts.indptr), shape=counts.shape)


def bag_matrix(texts: Sequence[str], tokenizer: QueryTokenizer) -> scipy.sparse.csr_matrix:
    """Return how often each wordpiece occurs: `(n_texts, vocabulary) float32`."""
    ends, terms, counts = array("q", [0]), array("i"), array("f")
    for text in texts:  # a bag at a time: as dictionaries, all of them take ten times as much
        bag = tokenizer.counts(text)
        terms.extend(bag)
        counts.extend(bag.values())
        ends.append(len(terms))
    indptr, indices, data = np.array(ends), np.array(terms), np.array(counts)
    shape = (len(texts), tokenizer.tokenizer.get_vocab_size())
    return scipy.sparse.csr_matrix((data, indices, indptr), shape=shape)
