"""The progress of a training: an estimate of its duration, and a bar with loss and validation."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparta.base.closing import Closing

if TYPE_CHECKING:
    from tqdm import tqdm

logger = logging.getLogger(__name__)
_TIMED_STEPS = 3
"""The steps that are timed before the estimate. The first step is slower and does not count."""


class StepProgress(Closing):
    """Says after a few steps how long a training will take, and shows a bar on a terminal.

    :param steps: the number of steps of the training
    :param shown: whether this process reports; of several processes, only the first one does
    :param clock: returns the time in seconds
    """

    def __init__(
        self, steps: int, *, shown: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.steps, self.shown, self._clock = steps, shown, clock
        self.validation: float | None = None
        self._bar: tqdm | None = None
        self._step = self._first = 0
        self._began = 0.0

    def begin(self, step: int) -> None:
        """Start to count after `step` steps, which an earlier run of the training finished."""
        self._step = self._first = step
        if not self.shown:
            return
        from tqdm import tqdm

        self._bar = tqdm(total=self.steps, initial=step, unit="step", disable=None, file=sys.stderr)

    def step(self, loss: float) -> None:
        """Count a finished step, and show its loss and the last validation score."""
        self._step += 1
        timed = self._step - self._first - 1
        if timed == 0:
            self._began = self._clock()
        elif timed == _TIMED_STEPS and self.shown:
            seconds = (self._clock() - self._began) / timed * (self.steps - self._step)
            logger.info(
                "%d steps left, about %s without validation", self.steps - self._step, duration(seconds)
            )
        if self._bar is not None:
            score = "" if self.validation is None else f", validation {self.validation:.4f}"
            self._bar.set_postfix_str(f"loss {loss:.4f}{score}", refresh=False)
            self._bar.update()

    def close(self) -> None:
        """Close the bar and leave it on the screen."""
        if self._bar is not None:
            self._bar.close()


def duration(seconds: float) -> str:
    """Return a duration in words, such as `40 seconds`, `12 minutes` or `3.5 hours`."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
