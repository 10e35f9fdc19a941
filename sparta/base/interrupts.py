"""Delay Ctrl-C past a step that must not stop in the middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_held() -> Iterator[list[int]]:
    """Delay a first Ctrl-C to the end of the block, and add the signal's number to the yielded list.

    A second Ctrl-C interrupts. Outside the main thread, and if the program handles Ctrl-C itself, the block
    runs unchanged.
    """
    held: list[int] = []
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield held
        return

    def hold(number: int, _: object) -> None:
        held.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, hold)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
