"""Linear quantization of weights to integers, with a scale that belongs to the model."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy

MAX_BITS = 16
QUERY_BITS = 4

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuantizationCounts:
    """Statistics of a quantization.

    :param weights: the number of weights
    :param clipped: the number of weights clipped to the maximum
    :param absolute_error: the summed absolute error of all other weights
    """

    weights: int = 0
    clipped: int = 0
    absolute_error: float = 0.0

    def __add__(self, other: QuantizationCounts) -> QuantizationCounts:
        return QuantizationCounts(
            self.weights + other.weights,
            self.clipped + other.clipped,
            self.absolute_error + other.absolute_error,
        )

    @property
    def mean_error(self) -> float:
        """The mean absolute error of the weights that were not clipped, in units of weight."""
        unclipped = self.weights - self.clipped
        return self.absolute_error / unclipped if unclipped else 0.0


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Linear quantizer: `impact = clip(round(weight / max_weight · (2^bits − 1)), 1, 2^bits − 1)`.

    A positive weight never becomes 0. Halves round to even, as in NumPy.
    """

    max_weight: float
    bits: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise InputError(
                f"the number of bits must be 1 to {MAX_BITS}, found {self.bits}",
                remedy=remedy("use {}, or omit the option", Option("bits", 8)),
            )
        if not (np.isfinite(self.max_weight) and self.max_weight > 0):
            raise InputError(f"the quantizer's max_weight must be positive, found {self.max_weight}")

    @property
    def max_impact(self) -> int:
        """The largest impact, 2^bits − 1."""
        return int(2**self.bits - 1)

    @property
    def step(self) -> float:
        """The weight of one unit of impact."""
        return self.max_weight / self.max_impact

    def quantize(self, weights: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int32], QuantizationCounts]:
        """Quantize `(n,) float32` positive weights to `(n,) int32` impacts; also return statistics.

        Impacts are from 1 to 2^bits − 1.

        :raises InputError: a weight is not positive or not finite.
        """
        if weights.size and not (np.isfinite(weights).all() and weights.min() > 0):
            raise InputError("weights to quantize must be positive and finite")
        exact = weights.astype(np.float64) / self.step
        impacts = np.clip(np.rint(exact), 1, self.max_impact).astype(np.int32)
        clipped = exact > self.max_impact + 0.5
        error = np.abs(impacts[~clipped] - exact[~clipped]).sum() * self.step
        return impacts, QuantizationCounts(int(weights.size), int(clipped.sum()), float(error))

    def as_dict(self) -> dict[str, float]:
        """Return the settings for a manifest."""
        return {"bits": self.bits, "max_weight": self.max_weight}


@dataclass(frozen=True, slots=True)
class QueryQuantizer(Quantizer):
    """The grid of query-term weights: `round(weight / step)`, at most 2^bits − 1 (decision 0020).

    Unlike an impact, a query-term weight may become 0; queries then drop the term.
    """

    bits: int = QUERY_BITS

    @staticmethod
    def fit(weights: npt.NDArray[np.float32], bits: int = QUERY_BITS) -> QueryQuantizer:
        """Return a grid that fits the weights: its maximum is the largest weight, to three digits."""
        highest = float(f"{weights.max(initial=0):.3g}")
        return QueryQuantizer(highest or 1.0, bits)

    def integers(self, weights: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """Quantize `(n,) float32` weights of at least 0 to `(n,) int32`.

        A log line counts the positive weights that become 0.
        """
        rounded = np.clip(np.rint(weights / self.step), 0, self.max_impact).astype(np.int32)
        if dropped := int(((rounded == 0) & (weights > 0)).sum()):
            logger.info("%d query-term weights below %.3g are dropped", dropped, self.step / 2)
        return rounded
