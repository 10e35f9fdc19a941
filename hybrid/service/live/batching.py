"""Natural batching: jobs that arrive during a call are answered together in the next call."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hybrid.service.errors import BusyError, as_exception, too_slow
from sparta.base.closing import Closing

logger = logging.getLogger("sparta.serve")


class _Waiting(NamedTuple):
    job: Any
    size: int
    future: asyncio.Future[Any]


class Batcher[J, R](Closing):
    """Answers jobs in one thread; each call answers all jobs that wait.

    A job that arrives while no call runs is answered at once: no job waits for a batch to fill.

    :param answer: returns the answer of each job, or the exception that the job raised
    :param most: maximum number of queries in a batch; a single larger job is a batch by itself
    :param queue: maximum number of queries that wait
    :param refusal: seconds, give or take 40%, that a job waits for a full queue before it is refused; random,
        so that refusals spread
    :param name: name of the thread
    """

    def __init__(
        self,
        answer: Callable[[Sequence[J]], Sequence[R | Exception]],
        *,
        most: int,
        queue: int,
        refusal: float = 0.5,
        name: str = "search",
    ) -> None:
        self._answer, self._most, self._queue, self._refusal = answer, most, queue, refusal
        self._waiting: deque[_Waiting] = deque()
        self.size = 0
        """Number of queries that wait."""
        self._ready = threading.Condition()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def ask(self, job: J, size: int = 1, seconds: float = 60.0) -> R:
        """Queue a job and return its answer.

        :param size: number of queries in the job
        :param seconds: timeout
        :raises BusyError: the queue is full or closed
        :raises HttpError: there was no answer within `seconds`
        """
        if self._is_full(size) and not self._closed:
            # Clients that repeat a request at once would keep the event loop busy and starve new connections.
            await asyncio.sleep(random.uniform(0.6, 1.4) * self._refusal)
        future: asyncio.Future[R] = self._loop.create_future()
        expiry = self._loop.call_later(seconds, _expire, future, seconds)
        try:
            self._queue_up(_Waiting(job, size, future))
            return await future
        finally:
            expiry.cancel()

    def _is_full(self, size: int) -> bool:
        return self._closed or (self.size > 0 and self.size + size > self._queue)

    def _queue_up(self, request: _Waiting) -> None:
        with self._ready:
            if self._is_full(request.size):
                raise BusyError(
                    f"the request queue is full: {self.size} of {self._queue} queries are waiting",
                    remedy="try again after the seconds in the header Retry-After",
                )
            self._waiting.append(request)
            self.size += request.size
            self._ready.notify()

    def close(self) -> None:
        """Answer the waiting jobs, then end the thread."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            try:
                results = list(zip(batch, self._answer([request.job for request in batch]), strict=True))
            except BaseException as error:  # a panic in an extension must not end the only search thread
                results = [(request, as_exception(error)) for request in batch]
            self._loop.call_soon_threadsafe(_deliver, results)

    def _next(self) -> list[_Waiting]:
        """Wait for requests and return a batch of them; empty once the batcher is closed and none waits."""
        with self._ready:
            batch: list[_Waiting] = []
            while not batch:
                self._ready.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return batch
                room = self._most
                while self._waiting and (not batch or self._waiting[0].size <= room):
                    request = self._waiting.popleft()
                    self.size -= request.size
                    if not request.future.done():  # else the client has left, or the job timed out
                        batch.append(request)
                        room -= request.size
            return batch


def _expire(future: asyncio.Future[Any], seconds: float) -> None:
    if not future.done():
        future.set_exception(too_slow(seconds))


def _deliver(results: Sequence[tuple[_Waiting, Any]]) -> None:
    for request, answer in results:
        if request.future.done():
            continue
        if isinstance(answer, Exception):
            request.future.set_exception(answer)
        else:
            request.future.set_result(answer)
