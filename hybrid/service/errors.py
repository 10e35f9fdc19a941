"""HTTP errors: the status, JSON body and headers of each exception."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from hybrid.service.schemas import dumps
from sparta.base.errors import (
    IndexStateError,
    InputError,
    JavaMemoryError,
    LackingError,
    MissingPackageError,
    ModelError,
    MostOfIndexError,
    NoPassageError,
    SpartaError,
    StorageError,
    without_folders,
)
from sparta.base.remedies import Remedy

CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    429: "busy",
    431: "too_large",
    500: "internal",
    503: "unavailable",
}


_REMEDIES = {
    400: "GET /openapi.json describes requests, GET /info what is searched",
    404: "POST /search gives ids",
}


class BusyError(SpartaError):
    """The request queue is full."""


class HttpError(SpartaError):
    """An error with an HTTP status; `lines` is the report of invalid lines of an upload."""

    def __init__(
        self, status: int, message: str, *, remedy: str | Remedy = "", lines: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.status, self.lines = status, lines or {}
        self.headers: list[tuple[bytes, bytes]] = []


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds` and raise a 503 error."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise too_slow(seconds) from None


def as_exception(error: BaseException) -> Exception:
    """Return an error as an `Exception`, which ends no thread; a Rust panic, for example, is none."""
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def contained[R](work: Callable[[], R]) -> R:
    """Call `work` in a worker thread; everything that it raises becomes an `Exception`."""
    try:
        return work()
    except Exception:
        raise
    except BaseException as error:
        raise as_exception(error) from error


def too_slow(seconds: float) -> HttpError:
    """Return the 503 error for a request that has no answer in time."""
    return HttpError(
        503, f"the request took longer than the limit of {seconds:g} s", remedy="try again later"
    )


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error; 500 for an unexpected error."""
    if isinstance(error, HttpError):
        return error.status
    kinds: list[tuple[type[Exception], int]] = [
        (BusyError, 429),
        (NoPassageError, 404),
        (InputError, 400),
        (LackingError, 400),
        (IndexStateError, 409),
        (JavaMemoryError, 503),
        (ModelError, 503),
        (StorageError, 503),
        (MissingPackageError, 503),
    ]
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)


def error_body(error: Exception, request_id: str) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Return the status, JSON body and headers for an error; the body never holds paths of this machine."""
    status = status_of(error)
    details = {"message": "something failed in the service", "remedy": "its log has the request id"}
    if isinstance(error, SpartaError) and status != 500:
        message = without_folders(error.message) if _is_of_machine(error, status) else error.message
        details = {"message": message, "remedy": _remedy(error, status)}
    lines = error.lines if isinstance(error, HttpError) else {}
    body = {"error": {"code": CODES[status], **details}, **lines, "request_id": request_id}
    headers = error.headers if isinstance(error, HttpError) else []
    headers = headers + [(b"www-authenticate", b"Bearer")] * (status == 401)
    return status, dumps(body), headers + [(b"retry-after", b"1")] * (status in (429, 503))


def _is_of_machine(error: SpartaError, status: int) -> bool:
    """Return whether the machine of the service has a fault, such as a damaged index or a missing model."""
    return status in (409, 503) and not isinstance(error, HttpError)


def _remedy(error: SpartaError, status: int) -> str:
    """Return an error's remedy for a client; options and commands are left out, as a client has no shell."""
    if isinstance(error, MostOfIndexError):
        return 'check the filter with a search; to delete all matches, send "yes": true beside the filter'
    if isinstance(error, JavaMemoryError):
        return "ask for fewer hits or queries at once, or let whoever runs the service raise Java's memory"
    if _is_of_machine(error, status):
        return "whoever runs the service can mend it: its log says how"
    if not isinstance(error, HttpError) and (
        error.remedy.parts or isinstance(error, LackingError | NoPassageError)
    ):
        return _REMEDIES.get(status, "")
    return str(error.remedy)
