"""How many threads NumPy multiplies with."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from threadpoolctl import ThreadpoolController


class OneBlasThread:
    """While anybody is inside, NumPy multiplies in the caller's thread alone; a context for many threads.

    BLAS has one number for the whole process: the first who comes sets it, the last who leaves sets it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: Any = None

    @cached_property
    def _controller(self) -> ThreadpoolController:
        return ThreadpoolController()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = self._controller.limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()
