"""Work that a thread begins before its result is needed, for instance while Java starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


def begin(work: Callable[[], object]) -> None:
    """Run `work` in a thread.

    Errors are dropped: the code that needs the result repeats the work, and raises them.
    """

    def run() -> None:
        with suppress(Exception):
            work()

    threading.Thread(target=run, name="ahead").start()
