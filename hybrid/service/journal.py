"""Request ids, the request log, and the request counters."""

from __future__ import annotations

import logging
import re
from itertools import count
from secrets import token_hex

from hybrid.service.errors import HttpError, error_body, status_of
from hybrid.service.metrics import Metrics
from sparta.base.errors import SpartaError

logger = logging.getLogger("sparta.serve")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"))
OTHER = "other"
"""Metrics label of all unknown methods and routes."""


def shown(error: Exception) -> str:
    """Return an error for the log, whose reader has a shell: the remedy names commands and their options."""
    return error.for_command_line() if isinstance(error, SpartaError) else str(error)


def unexpected(error: Exception) -> Exception | None:
    """Return an error that sparta does not raise itself, so that the log gets its traceback; else None."""
    return None if isinstance(error, SpartaError) else error


class Journal:
    """Names, counts and logs the requests of one service."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._prefix, self._numbers = token_hex(4), count(1)

    def request_id(self, header: bytes = b"") -> str:
        """Return the id in the header X-Request-ID; a new id if the header is missing or invalid."""
        return header.decode() if _REQUEST_ID.fullmatch(header) else f"{self._prefix}-{next(self._numbers)}"

    def answered(
        self,
        request_id: str,
        status: int,
        seconds: float,
        *,
        method: str = "",
        path: str = "",
        route: str = OTHER,
        client: str = "",
    ) -> None:
        """Count and log an answer."""
        self._metrics.request(method if method in _METHODS else OTHER, route, status, seconds)
        if logger.isEnabledFor(logging.INFO):
            logger.info(
                "request",
                extra={
                    "request_id": request_id,
                    "method": method,
                    "path": path,
                    "status": status,
                    "ms": round(seconds * 1000, 2),
                    "client": client,
                },
            )

    def failed(self, request_id: str, error: Exception) -> None:
        """Log an internal error with its traceback; log one line for an error that the operator can fix."""
        status = status_of(error)
        if status == 500:
            logger.error("request failed", exc_info=error, extra={"request_id": request_id})
        elif status in (409, 503):
            logger.warning("request refused", extra={"request_id": request_id, "error": shown(error)})

    def refusal(
        self, error: HttpError, seconds: float, client: str, header: bytes = b""
    ) -> tuple[bytes, bytes]:
        """Count and log an error on a connection; return the request's id and the response's JSON body.

        :param header: the header X-Request-ID; empty if the request has none, or is not whole
        """
        request_id = self.request_id(header)
        self.answered(request_id, error.status, seconds, client=client)
        return request_id.encode(), error_body(error, request_id)[1]
