"""Scores of entity spans (Chain-of-Skills, §3.1, eq. 2 and 3), in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
LONGEST_SPAN = 10
"""Largest number of wordpieces in a span."""


class SpanWeights(NamedTuple):
    """The weights of a `SpanHead`: `projection (width, 2 · width)`, `bias (width,)` and `anchor (width,)`."""

    projection: Floats
    bias: Floats
    anchor: Floats

    def margins(self, states: Floats, spans: Sequence[tuple[int, int]]) -> Floats:
        """Return each span's score above the threshold, the score of [CLS], `(n,)`.

        :param states: the text's token states `(length, width)`
        :param spans: first and last positions
        """
        width = states.shape[1]
        places = np.array(spans, np.int64).reshape(-1, 2)
        # One product for each position, not for each span.
        first, last = states @ self.projection[:, :width].T, states @ self.projection[:, width:].T
        vectors = np.tanh(first[places[:, 0]] + last[places[:, 1]] + self.bias)
        margins: Floats = vectors @ self.anchor - states[0] @ self.anchor
        return margins
