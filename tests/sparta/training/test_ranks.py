"""Places of answers among candidates, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from sparta.training.validation import negative_average_rank, ranks, reciprocal_rank


def test_places_of_equal_missing_and_broken_scores() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0], [2.0, 2.0, 1.0], [0.0, 1.0, 0.0], [math.nan, 1.0, 2.0]])
    gold = [1, 0, 2, 0]
    found = ranks(scores, gold, [()] * 4)
    assert found.tolist() == [2.0, 2.0, math.inf, math.inf]
    assert reciprocal_rank(scores, gold, [()] * 4) == pytest.approx((0.5 + 0.5) / 4)
    assert negative_average_rank(scores, gold, [()] * 4) == pytest.approx(-(2 + 2 + 3 + 3) / 4)


def test_other_answers_stand_in_nobodys_way() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0]])
    assert ranks(scores, [2], [{0, 2}]).tolist() == [2.0]
    assert ranks(scores, [2], [{0, 1, 2, 9}]).tolist() == [1.0]
