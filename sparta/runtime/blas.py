"""Limits the number of threads in NumPy's matrix products."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from threadpoolctl import ThreadpoolController


class OneBlasThread:
    """A context manager in which NumPy's matrix products use one thread.

    Several threads may enter it at once.

    BLAS has one limit for the whole process: the first thread that enters sets it, the last that leaves
    resets it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._limit: Any = None

    @cached_property
    def _controller(self) -> ThreadpoolController:
        return ThreadpoolController()

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_inside:
                self._limit = self._controller.limit(limits=1, user_api="blas")
            self._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if not self._n_inside:
                self._limit.restore_original_limits()
