"""The interface of backends, which compute term weights: OpenVINO on CPUs, torch on GPUs and in training."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sparta.models.prune import SparseRows
from sparta.neural.inputs import EncoderInput

Indexes = npt.NDArray[np.int64]


class Backend(Protocol):
    """Computes the weights of all terms for batches of encoder inputs (SPARTA, eq. 4 to 6).

    `token_budget` is the maximum number of tokens in a batch.
    """

    token_budget: int

    def padded_length(self, length: int) -> int:
        """Return the length to which a text of `length` wordpieces is padded."""

    def each[R](self, encode: Callable[[Indexes], R], batches: Sequence[Indexes]) -> Generator[R]:
        """Yield `encode(batch)` for each batch in order; on a CPU, each thread computes a different batch."""

    def encode(self, inputs: Sequence[EncoderInput], top_k: int | None) -> SparseRows:
        """Return one row of term weights per input, in order.

        :param top_k: a row may drop terms weaker than its k-th strongest term; None keeps all terms
        """
