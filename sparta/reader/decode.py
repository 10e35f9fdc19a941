"""Turn start and end scores into answer spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy
from sparta.reader.records import Span
from sparta.reader.windows import Window

Scores = npt.NDArray[np.float32]


class PathScores[A](NamedTuple):
    """A path reader's scores of n inputs: of answer positions, passages and sentences.

    `spans` has starts and ends `(2, n, length)`; `passages` and `sentences` are `(n, 1 + most)`. The first
    passage score and the first sentence score are the thresholds (the pseudo passage of Appendix C).
    """

    spans: A
    passages: A
    sentences: A


def check_scores(scores: Scores, where: str) -> None:
    """Raise if scores are not numbers, or infinite: a reader would find no span, or take the first answer.

    :param where: the reader's folder; empty in a training
    :raises ModelError: the weights are damaged, or too large for the arithmetic.
    """
    if not (scores < np.inf).all():
        raise ModelError(
            "the reader computes scores that are infinite or not numbers",
            where=where,
            remedy="copy the complete model folder again, or name another reader"
            if where
            else remedy("train with a smaller {} and another {}", Option("learning_rate"), Option("output")),
        )


def best_spans(scores: Scores, batch: Sequence[Window], n: int, longest: int) -> list[Span]:
    """Return the `n` best spans of each window, best first; no span has more than `longest` wordpieces.

    :param scores: `(2, windows, length)`, start and end scores, -inf at positions outside the text
    """
    start, end = scores
    size = min(longest, start.shape[1])
    padding = np.full((len(end), size - 1), -np.inf, np.float32)
    ends = np.lib.stride_tricks.sliding_window_view(np.concatenate([end, padding], 1), size, axis=1)
    spans = []
    for window, sums in zip(batch, (start[:, :, None] + ends).reshape(len(start), -1), strict=True):
        places = np.argpartition(-sums, min(n, len(sums)) - 1)[:n]
        for place in sorted(places.tolist(), key=lambda place: (-sums[place], place)):
            if sums[place] > -np.inf:
                first = place // size - window.text_start
                last = first + place % size
                span = (window.offsets[first][0], window.offsets[last][1])
                spans.append(Span(window.passage, *span, float(sums[place]) / 2))
    return spans
