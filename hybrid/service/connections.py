"""Connections on which nothing comes in time, or a head without end, are closed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

LARGEST_HEAD = 64 << 10


class TimedHead:
    """What is added to a protocol of uvicorn: the head of a request, and each part of its body, in `seconds`.

    Uvicorn itself waits for ever, and httptools lets a head grow without bounds.
    """

    cycle: Any
    transport: Any

    def __init__(self, *args: Any, seconds: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seconds, self._head = seconds, 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)  # type: ignore[misc]
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop waiting when a request is whole."""
        super().data_received(data)  # type: ignore[misc]
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
            if self.cycle.more_body:
                self._wait()
            return
        self._head += len(data)
        if self._head > LARGEST_HEAD:
            self._refuse(b"431 Request Header Fields Too Large")
        elif self._timer is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop()
        super().connection_lost(exc)  # type: ignore[misc]

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._seconds, self._refuse, b"408 Request Timeout"
        )

    def _stop(self) -> None:
        self._head = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: bytes) -> None:
        self._stop()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)
            self.transport.close()


def protocol(seconds: float) -> Any:
    """What makes the protocols of uvicorn: with httptools where it is installed, else with h11."""
    base: Any
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ModuleNotFoundError:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        base = H11Protocol
    else:
        base = HttpToolsProtocol
    timed = type("TimedProtocol", (TimedHead, base), {})
    return partial(timed, seconds=seconds)
