"""Connections on which nothing comes in time, nothing is read, or a head without end, are closed.

This module is the only one that uses names of uvicorn that are not public; decision 0035 says why.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hybrid.service.errors import HttpError
from hybrid.service.middleware import TASKS

LARGEST_HEAD = 64 << 10
_PATIENCE = 6  # what is written waits in the buffers of two machines first
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_UPGRADE = re.compile(rb"\nupgrade[ \t]*:[^\n]*(?=\n[^ \t])", re.IGNORECASE)
_END = re.compile(rb"\n\r?\n")
_REASONS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class TimedProtocol(HttpToolsProtocol):
    """The protocol of uvicorn, but the head of a request is to come in `seconds`.

    Uvicorn itself waits for ever, and httptools lets a head grow without bounds. A client that reads nothing
    of its answer for six times as long loses it. Of a request that was answered before all of its body came,
    the rest is dropped: a client that sends on reads the answer then.

    :param refusal: counts and logs an error, after so many seconds, to a client; returns the JSON for it
    """

    def __init__(
        self, *args: Any, seconds: float, refusal: Callable[[HttpError, float, str], bytes], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._refusal, self._seconds = refusal, seconds
        self._head, self._held = 0, b""
        self._running: set[asyncio.Task[Any]] = set()
        self.app_state = {**self.app_state, TASKS: self._running}
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop waiting when a request is whole."""
        before = self.cycle
        between = before is None or before.response_complete
        dropped = before is not None and before.response_complete and before.more_body
        parsing = self.scope is not (before and before.scope)  # a head of which the parser has a part
        if between and not dropped and not self._head and not parsing:
            data = self._held_back(data)
            if not data:
                return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
            return
        self._head += 0 if dropped else len(data)
        self._wait_on(self._head)

    def _held_back(self, data: bytes) -> bytes:
        """Return the bytes that the parser may see: it gets a request head only as a whole, after a check."""
        start = max(0, len(self._held) - 3)
        held = (self._held + data).lstrip(b"\r\n")
        if end := _END.search(held, start):
            self._held = b""
            return _understood(held, end.end())
        self._held = held
        self._unset_keepalive_if_required()
        self._wait_on(len(held))
        return b""

    def _wait_on(self, head: int) -> None:
        if head > LARGEST_HEAD:
            self._refuse(431, f"expected a head of at most {LARGEST_HEAD:,} bytes, found a longer one")
        elif self._timer is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """Refuse an offer of another protocol in a request that came while another was answered.

        Its body would be read as the next request.
        """
        if self.parser.should_upgrade():
            raise ValueError("the service does not support requests that upgrade the connection")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that a body is whole, also one that came after the answer."""
        super().on_message_complete()
        if self.cycle is not None:
            self.cycle.more_body = False

    def pause_writing(self) -> None:
        """Close the connection unless the answer, more than it takes at once, is read."""
        super().pause_writing()
        self._watch(math.inf)

    def resume_writing(self) -> None:
        """Stop watching: all but a little has been read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _watch(self, before: float) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._unread = asyncio.get_running_loop().call_later(_PATIENCE * self._seconds, self._watch, left)
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer, and stop the work whose answers nobody reads."""
        self._stop()
        running = list(self._running)
        self._running.clear()
        for task in running:
            task.cancel()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        message = f"expected a whole request within {self._seconds:g} s"
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._refuse, 408, message)

    def _stop(self) -> None:
        self._head = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, message: str) -> None:
        seconds = self._seconds if status == 408 else 0.0
        self._stop()
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.more_body:  # else this request has been answered
            body = self._refusal(HttpError(status, message), seconds, (self.client or ("",))[0])
            self.transport.write(
                b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%b" % (status, _REASONS[status], len(body), body)
            )
        self.transport.close()


def _understood(data: bytes, end: int) -> bytes:
    """Return the data with a request head, up to `end`, in a form that httptools accepts.

    Leaves out an offer to upgrade the protocol, which Java's HTTP client sends with every request: httptools
    would drop the body. Percent-encodes an address in plain UTF-8, as curl sends it.
    """
    if _UPGRADE.search(data, 0, end):
        data = _UPGRADE.sub(b"", data[:end]) + data[end:]
    if data.isascii():
        return data
    line, feed, rest = data.partition(b"\n")
    return _NOT_ASCII.sub(lambda character: b"%%%02X" % character[0][0], line) + feed + rest
