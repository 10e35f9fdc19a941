"""Quantization: linear, never 0, and honest about what it loses."""

from __future__ import annotations

import numpy as np
import pytest

from sparta.base.errors import InputError
from sparta.models.quantize import MAX_BITS, QuantizationCounts, Quantizer


def some_weights(largest: float, n: int = 2000) -> np.ndarray:
    return (np.random.default_rng(0).random(n) * largest + 1e-6).astype(np.float32)


def test_a_hand_worked_example() -> None:
    """Two bits and a largest weight of 3: one unit of impact stands for a weight of 1."""
    quantizer = Quantizer(3.0, 2)
    assert (quantizer.max_impact, quantizer.step) == (3, 1.0)
    weights = np.array([0.01, 0.5, 0.9, 1.4, 1.5, 1.6, 2.5, 3.0, 3.5, 3.6, 100], dtype=np.float32)
    impacts, counts = quantizer.quantize(weights)
    assert impacts.tolist() == [1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert impacts.dtype == np.int32
    assert (counts.weights, counts.clipped) == (11, 2), "3.6 and 100 lie more than half a step above"
    lost = 0.99 + 0.5 + 0.1 + 0.4 + 0.5 + 0.4 + 0.5 + 0.0 + 0.5
    assert counts.absolute_error == pytest.approx(lost, abs=1e-5)
    assert counts.mean_error == pytest.approx(lost / 9, abs=1e-6)


@pytest.mark.parametrize("bits", range(1, MAX_BITS + 1))
def test_every_number_of_bits(bits: int) -> None:
    quantizer = Quantizer(2.5, bits)
    assert quantizer.max_impact == 2**bits - 1
    weights = some_weights(2.5)
    impacts, counts = quantizer.quantize(weights)
    assert impacts.min() >= 1
    assert impacts.max() <= 2**bits - 1
    assert counts.clipped == 0
    error = np.abs(impacts * quantizer.step - weights)
    large = weights >= quantizer.step / 2
    assert (error[large] <= quantizer.step / 2 + 1e-6).all()
    assert (error[~large] <= quantizer.step).all(), "a weight below half a step becomes 1, not 0"
    assert counts.mean_error == pytest.approx(error.mean(), abs=1e-6)
    order = np.argsort(weights)
    assert (np.diff(impacts[order]) >= 0).all(), "the order of weights stays"


def test_impacts_survive_the_way_back() -> None:
    quantizer = Quantizer(1.7, 8)
    impacts = np.arange(1, 256, dtype=np.int32)
    again, counts = quantizer.quantize((impacts * quantizer.step).astype(np.float32))
    np.testing.assert_array_equal(again, impacts)
    assert counts.clipped == 0


def test_the_smallest_weight_is_posted() -> None:
    impacts, _ = Quantizer(5.0).quantize(np.array([np.finfo(np.float32).tiny], dtype=np.float32))
    assert impacts.tolist() == [1]


def test_clipped_weights_are_counted_and_not_in_the_error() -> None:
    weights = np.array([0.5, 1.0, 2.0, 3.0], dtype=np.float32)
    impacts, counts = Quantizer(1.0, 8).quantize(weights)
    assert impacts[2:].tolist() == [255, 255]
    assert counts.clipped == 2
    assert counts.absolute_error <= 0.5 / 255 + 1e-9


def test_counts_add_up() -> None:
    quantizer = Quantizer(2.0, 4)
    weights = some_weights(3.0)
    _, whole = quantizer.quantize(weights)
    parts = [quantizer.quantize(part)[1] for part in np.array_split(weights, 7)]
    total = sum(parts, start=QuantizationCounts())
    assert (total.weights, total.clipped) == (whole.weights, whole.clipped)
    assert total.mean_error == pytest.approx(whole.mean_error)


def test_no_weights() -> None:
    impacts, counts = Quantizer(1.0).quantize(np.empty(0, dtype=np.float32))
    assert impacts.shape == (0,)
    assert counts == QuantizationCounts()
    assert counts.mean_error == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, 0.0])
def test_what_is_no_weight_is_refused(bad: float) -> None:
    with pytest.raises(InputError, match="positive and finite"):
        Quantizer(1.0).quantize(np.array([0.5, bad], dtype=np.float32))


@pytest.mark.parametrize("bits", [0, -1, 17])
def test_bits_out_of_range_are_refused(bits: int) -> None:
    with pytest.raises(InputError, match="bits must be 1 to 16"):
        Quantizer(1.0, bits)


@pytest.mark.parametrize("max_weight", [0.0, -1.0, np.nan, np.inf])
def test_an_impossible_scale_is_refused(max_weight: float) -> None:
    with pytest.raises(InputError, match="max_weight must be positive"):
        Quantizer(max_weight)


def test_the_manifest_form_makes_the_same_quantizer() -> None:
    quantizer = Quantizer(2.71, 6)
    assert Quantizer(**quantizer.as_dict()) == quantizer  # type: ignore[arg-type]
