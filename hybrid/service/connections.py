"""Closes a connection with a request that is late or has a long head, or whose client reads no response.

Only this module uses private names of uvicorn; decision 0035 says why.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hybrid.service.errors import HttpError
from hybrid.service.middleware import TASKS

Refusal = Callable[[HttpError, float, str, bytes], tuple[bytes, bytes]]
LARGEST_HEAD = 64 << 10
_PATIENCE = 6  # timeouts in which a client has to read: a response first fills buffers on two machines
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_UPGRADE = re.compile(rb"\nupgrade[ \t]*:[^\n]*(?=\n[^ \t])", re.IGNORECASE)
_PLAIN_HTTP = "send HTTP/1.1; the service speaks no TLS, so a URL begins with http://, not with https://"
_VALID_BODY = "send a body as long as the request's head says, and no request that upgrades the connection"
_END = re.compile(rb"\n\r?\n")
_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class TimedProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP protocol with limits: the head of a request must be whole within `seconds`.

    Uvicorn itself waits forever, and httptools lets a head grow without bound. The connection of a client
    that reads nothing of its response for six times `seconds` is closed. If a request is answered before its
    whole body arrived, the rest of the body is dropped: the client can send it and then read the response.
    Each piece of the rest must arrive within `seconds` after the piece before. Refusals of uvicorn itself
    (invalid HTTP, too many connections) are counted, logged and answered with JSON, like other errors.

    :param refusal: called with an error, the time waited in seconds, the client's address and its header
        X-Request-ID; counts and logs the error, and returns the request's id and the error's JSON
    """

    def __init__(self, *args: Any, seconds: float, refusal: Refusal, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal, self._seconds = refusal, seconds
        self._head = 0  # bytes of an unfinished head that the parser has
        self._held = b""  # bytes of an unfinished head that are held back from the parser
        self._running: set[asyncio.Task[Any]] = set()
        self.app_state = {**self.app_state, TASKS: self._running}
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser, and stop the timer once a request's head is whole."""
        previous = self.cycle
        is_between_requests = previous is None or previous.response_complete
        is_rest_dropped = previous is not None and previous.response_complete and previous.more_body
        is_head_partial = self.scope is not (previous and previous.scope)  # the parser has a part of a head
        if is_between_requests and not is_rest_dropped and not self._head and not is_head_partial:
            data = self._held_back(data)
            if not data:
                return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
            return
        if not is_rest_dropped:
            self._head += len(data)
            self._wait_on(self._head)
            return
        self._stop()
        if previous.more_body or self.scope is not previous.scope:  # more of the body, or a head, is to come
            self._wait()
        else:
            self.timeout_keep_alive_task = asyncio.get_running_loop().call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _held_back(self, data: bytes) -> bytes:
        """Return the bytes for the parser: nothing until a head is whole, then `_understood` of all bytes."""
        start = max(0, len(self._held) - 3)
        unparsed = (self._held + data).lstrip(b"\r\n")
        if end := _END.search(unparsed, start):
            self._held = b""
            return _understood(unparsed, end.end())
        self._held = unparsed
        if unparsed:  # some clients send a line end after a body: this begins no request
            self._unset_keepalive_if_required()
            self._wait_on(len(unparsed))
        return b""

    def _wait_on(self, head_bytes: int) -> None:
        """Refuse a head of too many bytes; else start the timer if none runs."""
        if head_bytes > LARGEST_HEAD:
            self._refuse(431, f"the request head exceeds {LARGEST_HEAD:,} bytes")
        elif self._timer is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """Refuse an upgrade of the protocol in a request that arrived while another was being answered.

        Httptools would read the body of such a request as the next request.
        """
        if self.parser.should_upgrade():
            raise ValueError("the service does not support requests that upgrade the connection")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that a request's body is whole, even if the body arrived after the response."""
        super().on_message_complete()
        if self.cycle is not None:
            self.cycle.more_body = False

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP like other errors, with JSON, and close the connection."""
        if self.cycle is None:
            self._write(HttpError(400, "the request is not valid HTTP", remedy=_PLAIN_HTTP), 0.0)
        elif not (self.cycle.response_complete and self.cycle.more_body):  # else the request was answered
            message = "the request is not valid HTTP, or would upgrade the connection"
            self._write(HttpError(400, message, remedy=_VALID_BODY), 0.0)
        self.transport.close()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Start a request; uvicorn names another application if there are too many connections."""
        chosen: Any = app if app is self.app else self._too_many
        super()._start_asgi_task(cycle, chosen)

    async def _too_many(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer a request like other errors, with JSON, and close its connection."""
        error = HttpError(503, "the service has too many connections", remedy="try again later")
        header = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id, body = self._refused(error, header=header)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"1"),
            (b"x-request-id", request_id),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def pause_writing(self) -> None:
        """Watch whether the client reads: more of the response waits than the write buffer takes."""
        super().pause_writing()
        self._watch(math.inf)

    def resume_writing(self) -> None:
        """Stop watching: the client has read all but a little of the response."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _watch(self, unread_before: float) -> None:
        """Close the connection if the client read nothing since `before` bytes were unread; else go on."""
        unread = self.transport.get_write_buffer_size()
        if unread < unread_before:
            self._unread = asyncio.get_running_loop().call_later(
                _PATIENCE * self._seconds, self._watch, unread
            )
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and cancel the connection's requests: nobody will read their responses."""
        self._stop()
        running = list(self._running)
        self._running.clear()
        for task in running:
            task.cancel()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        message = f"the request was incomplete after {self._seconds:g} s"
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
        if self.cycle is None or not self.cycle.more_body:  # else the request was already answered
            self._write(HttpError(status, message), seconds)
        self.transport.close()

    def _write(self, error: HttpError, seconds: float) -> None:
        request_id, body = self._refused(error, seconds)
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-request-id: %b\r\nconnection: close\r\n\r\n%b"
            % (error.status, _REASONS[error.status], len(body), request_id, body)
        )

    def _refused(self, error: HttpError, seconds: float = 0.0, header: bytes = b"") -> tuple[bytes, bytes]:
        """Count and log an error, and return the request's id and the error's JSON."""
        return self._refusal(error, seconds, (self.client or ("",))[0], header)


def _understood(data: bytes, end: int) -> bytes:
    """Return received bytes, changed such that httptools accepts their request head, which stops at `end`.

    Removes the header `Upgrade`, which Java's HTTP client sends with every request: httptools would drop the
    body. Percent-encodes a request line in plain UTF-8, as curl sends it.
    """
    if _UPGRADE.search(data, 0, end):
        data = _UPGRADE.sub(b"", data[:end]) + data[end:]
    if data.isascii():
        return data
    request_line, newline, headers_and_body = data.partition(b"\n")
    return (
        _NOT_ASCII.sub(lambda character: b"%%%02X" % character[0][0], request_line)
        + newline
        + headers_and_body
    )
