"""Eq. 6 and 7 of Chain-of-Skills, and what passages cover, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid.multihop.scores import Cover, aligned, merged


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


def test_what_a_passage_adds_to_a_path() -> None:
    """The most of each term among the first passages are 4, 2 and 2: 8 in all."""
    cover = Cover()
    cover.add(["a", "b"], np.array([[4, 0, 0], [2, 2, 2]], np.float32))
    cover.add(["c"], np.array([[8, 0, 4]], np.float32))
    assert cover.gains([], ["a", "b", "c"]) == [0.5, 0.75, 1.5]
    assert cover.gains(["a"], ["b", "c"]) == [4 / 8, 8 / 8]
    assert cover.gains(["a", "b"], ["c"]) == [6 / 8]
    nothing = Cover()
    nothing.add(["a"], np.zeros((1, 0), np.float32))
    assert nothing.gains([], ["a"]) == [0]
