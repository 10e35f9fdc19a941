"""Weights become integers: linear, with a scale that belongs to the model."""

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
    """What quantization did: `weights` in all, `clipped` above the scale, summed error of the rest."""

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
        """Mean absolute error of the weights that were not clipped, in units of weight."""
        kept = self.weights - self.clipped
        return self.absolute_error / kept if kept else 0.0


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Linear quantizer: `impact = clip(round(weight / max_weight · (2^bits − 1)), 1, 2^bits − 1)`.

    A posted weight is positive and never becomes 0. Halves round to even, as NumPy rounds.
    """

    max_weight: float
    bits: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise InputError(
                f"bits must be 1 to {MAX_BITS}, found {self.bits}",
                remedy=remedy("give {}, or leave it out", Option("bits", 8)),
            )
        if not (np.isfinite(self.max_weight) and self.max_weight > 0):
            raise InputError(f"the quantizer's max_weight must be positive, found {self.max_weight}")

    @property
    def max_impact(self) -> int:
        """The largest impact, 2^bits − 1."""
        return int(2**self.bits - 1)

    @property
    def step(self) -> float:
        """The weight that one unit of impact stands for."""
        return self.max_weight / self.max_impact

    def quantize(self, weights: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int32], QuantizationCounts]:
        """`(n,) float32` positive weights to `(n,) int32` impacts in [1, 2^bits − 1], and what was lost."""
        if weights.size and not (np.isfinite(weights).all() and weights.min() > 0):
            raise InputError("weights to quantize must be positive and finite")
        exact = weights.astype(np.float64) / self.step
        impacts = np.clip(np.rint(exact), 1, self.max_impact).astype(np.int32)
        clipped = exact > self.max_impact + 0.5
        error = np.abs(impacts[~clipped] - exact[~clipped]).sum() * self.step
        return impacts, QuantizationCounts(int(weights.size), int(clipped.sum()), float(error))

    def dequantize(self, impacts: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Return the weights that impacts stand for: `(n,) int32` to `(n,) float32`."""
        return (impacts * self.step).astype(np.float32)

    def as_dict(self) -> dict[str, float]:
        """For a manifest."""
        return {"bits": self.bits, "max_weight": self.max_weight}


@dataclass(frozen=True, slots=True)
class QueryQuantizer(Quantizer):
    """The grid of query-term weights: `round(weight / step)`, at most 2^bits − 1 (decision 0020).

    Other than an impact, a weight may become 0: the term is then dropped from queries.
    """

    bits: int = QUERY_BITS

    @staticmethod
    def fit(weights: npt.NDArray[np.float32]) -> QueryQuantizer:
        """Return the grid of a table of weights that brings none: its largest weight, to three digits."""
        highest = float(f"{weights.max(initial=0):.3g}")
        return QueryQuantizer(highest or 1.0)

    def integers(self, weights: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
        """`(n,) float32` weights of 0 or more to `(n,) int32`; how many become 0 is logged."""
        rounded = np.clip(np.rint(weights / self.step), 0, self.max_impact).astype(np.int32)
        if dropped := int(((rounded == 0) & (weights > 0)).sum()):
            logger.info("%d query-term weights below %.3g are dropped", dropped, self.step / 2)
        return rounded
