"""Exact search by inner product, in NumPy alone."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dense.shards import Floats, Rows, VectorFolder

_QUESTIONS = 256


class Candidates(Protocol):
    """What finds rows of a folder of vectors for questions.

    `exact` says that none is left out: a row that is not returned scores no more than the last returned, but
    for rounding.
    """

    exact: bool

    def __call__(self, questions: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """The k best rows for each question.

        :param questions: `(q, width) float32`
        :returns: rows `(q, k) int64`, −1 where there are fewer, and their scores `(q, k) float32`, descending
        """


class ExactSearch:
    """Multiplies the questions with all rows, block by block, where they lie in their files."""

    exact = True

    def __init__(self, vectors: VectorFolder, rows: Rows) -> None:
        self.vectors, self.rows = vectors, rows

    def __call__(self, questions: Floats, k: int, threads: int = 1) -> tuple[Rows, Floats]:
        """As `Candidates` says; threads are those of NumPy's own."""
        rows = np.full((len(questions), k), -1, np.int64)
        scores = np.full((len(questions), k), -np.inf, np.float32)
        for start in range(0, len(questions), _QUESTIONS):
            part = slice(start, start + _QUESTIONS)
            rows[part], scores[part] = self._best(questions[part], k)
        return rows, scores

    def _best(self, questions: Floats, k: int) -> tuple[Rows, Floats]:
        scores = np.full((len(questions), k), -np.inf, np.float32)
        places = np.full((len(questions), k), -1, np.int64)
        start = 0
        for block in self.vectors.blocks(self.rows):
            of_block = np.broadcast_to(np.arange(start, start + len(block)), (len(questions), len(block)))
            every = np.concatenate([scores, questions @ block.T], axis=1)
            where = np.concatenate([places, of_block], axis=1)
            best = np.argpartition(every, -k, axis=1)[:, -k:]
            scores, places = np.take_along_axis(every, best, 1), np.take_along_axis(where, best, 1)
            start += len(block)
        order = np.argsort(-scores, axis=1, kind="stable")
        scores, places = np.take_along_axis(scores, order, 1), np.take_along_axis(places, order, 1)
        return np.where(places < 0, -1, self.rows[places] if len(self.rows) else -1), scores
