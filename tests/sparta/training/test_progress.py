"""A training says how long it will take, and when no step made the model better."""

from __future__ import annotations

import logging

import pytest

from sparta.neural.training_progress import StepProgress, duration


def test_the_estimate_is_the_time_of_the_steps_that_are_left(caplog: pytest.LogCaptureFixture) -> None:
    """Steps of two seconds: four of 100 are done, so 96 steps take 192 seconds."""
    seconds = iter(range(0, 1000, 6))  # the clock is read at the first step and three steps later
    caplog.set_level(logging.INFO, "sparta")
    with StepProgress(100, clock=lambda: next(seconds)) as bar:
        bar.begin(0)
        for _ in range(10):
            bar.step(0.5)
    assert caplog.messages == ["96 steps left, about 3 minutes without validation"]
    caplog.clear()
    with StepProgress(100, shown=False) as bar:
        bar.begin(50)
        for _ in range(10):
            bar.step(0.5)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(40.4, "40 seconds"), (720, "12 minutes"), (12600, "3.5 hours")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words
