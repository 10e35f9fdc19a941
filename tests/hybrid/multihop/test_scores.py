"""Eq. 6 to 8 of Chain-of-Skills, worked by hand."""

from __future__ import annotations

import pytest

from hybrid.multihop.scores import aligned, merged, reranked


def test_equation_6() -> None:
    """The highest linking score becomes the highest retrieval score where it was higher."""
    retrieved = {"a": 80.0, "b": 60.0}
    assert aligned({"c": 100.0, "d": 50.0}, retrieved) == {"c": 80.0, "d": 40.0}  # × 80 / 100
    assert aligned({"c": 70.0, "d": 50.0}, retrieved) == {"c": 70.0, "d": 50.0}  # × 80 / 80
    assert aligned({"c": 100.0}, {}) == {"c": 100.0}
    assert aligned({}, retrieved) == {}
    assert aligned({"c": 3.0}, {"a": -1.0}) == {"c": 3.0}, "no scale between signs"


def test_equation_7() -> None:
    """Found by both: the higher score after eq. 6, times α."""
    retrieved, links = {"a": 80.0, "b": 60.0, "e": 10.0}, {"b": 100.0, "e": 5.0, "c": 50.0}
    # after eq. 6 the links are b 80, e 4, c 40
    assert merged(retrieved, links, 1.1) == pytest.approx({"a": 80.0, "b": 88.0, "e": 11.0, "c": 40.0})
    assert merged(retrieved, {}, 1.1) == retrieved
    assert merged({}, links, 1.1) == links


def test_equation_8() -> None:
    scores = reranked({"a": 80.0, "b": 60.0}, {"a": 10.0, "b": 30.0}, 1.5)
    assert scores == {"a": 95.0, "b": 105.0}
