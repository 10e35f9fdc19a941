"""Connections on which nothing comes in time, nothing is read, or a head without end, are closed."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

LARGEST_HEAD = 64 << 10
_PATIENCE = 6  # what is written waits in the buffers of two machines first
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_UPGRADE = re.compile(rb"\nupgrade[ \t]*:", re.IGNORECASE)


if TYPE_CHECKING:

    class _Protocol(asyncio.Protocol):
        """What uvicorn's protocols have."""

        def on_message_complete(self) -> None: ...
        def _unset_keepalive_if_required(self) -> None: ...

else:
    _Protocol = object


class TimedHead(_Protocol):
    """What is added to a protocol of uvicorn: the head of a request, and each part of its body, in `seconds`.

    Uvicorn itself waits for ever, and httptools lets a head grow without bounds. A client that reads nothing
    of its answer for six times as long loses it. Of a request that was answered before all of its body came,
    the rest is dropped: a client that sends on reads the answer then.

    :param plain: makes the protocol that takes over where a request offers to speak another one, as Java's
        HTTP client does with each: httptools would drop its body
    """

    cycle: Any
    transport: Any
    connections: set[Any]

    def __init__(
        self, *args: Any, seconds: float, plain: Callable[..., Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._given, self._plain = (args, kwargs), plain
        self._seconds, self._head = seconds, 0
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
        begins = between and not dropped and not self._head
        if begins and not data.isascii():
            data = _percent_encoded(data)
        if begins and self._plain and _UPGRADE.search(data, 0, LARGEST_HEAD):
            self._hand_over(self._plain, data)
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
            if self.cycle.more_body:
                self._wait()
            return
        self._head += 0 if dropped else len(data)
        if self._head > LARGEST_HEAD:
            self._refuse(b"431 Request Header Fields Too Large")
        elif self._timer is None:
            self._wait()

    def on_message_complete(self) -> None:
        """Of httptools: say that a body is whole, also one that came after the answer."""
        super().on_message_complete()
        if self.cycle is not None:
            self.cycle.more_body = False

    def pause_writing(self) -> None:
        """See to it that the answer, more than a connection takes at once, is read."""
        super().pause_writing()
        self._watch(math.inf)

    def resume_writing(self) -> None:
        """It has been read, but for a little."""
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
        """Wait no longer."""
        self._stop()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing with each request: an answer in HTTP/1.1 declines the offer."""

    def _hand_over(self, plain: Callable[..., Any], data: bytes) -> None:
        self._stop()
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        args, kwargs = self._given
        other = plain(*args, **kwargs)
        other.connection_made(self.transport)
        self.transport.set_protocol(other)
        other.data_received(data)

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


def _percent_encoded(data: bytes) -> bytes:
    """A request whose first line may have an address in plain UTF-8, as curl sends it; parsers want ASCII."""
    line, end, rest = data.partition(b"\n")
    return _NOT_ASCII.sub(lambda found: b"%%%02X" % found[0][0], line) + end + rest


def protocol(seconds: float) -> Any:
    """What makes the protocols of uvicorn: with httptools where it is installed, else with h11."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    plain = partial(type("TimedH11", (TimedHead, H11Protocol), {}), seconds=seconds)
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ModuleNotFoundError:
        return plain
    return partial(type("TimedHttpTools", (TimedHead, HttpToolsProtocol), {}), seconds=seconds, plain=plain)
