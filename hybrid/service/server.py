"""Runs the service: uvicorn, signals and the JSON log."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hybrid.service.schemas import dumps
from hybrid.service.settings import Settings
from sparta.base.errors import InputError
from sparta.base.extras import optional_packages
from sparta.base.files import allow_open_files
from sparta.base.remedies import Option, remedy
from sparta.index.snapshot import newest_commit
from sparta.models.resolve import model_folder
from sparta.reader.config import reader_folder
from sparta.rerank.reranked import open_reranker

logger = logging.getLogger("sparta.serve")
_LOGGERS = ("sparta", "hybrid", "dense", "uvicorn")
_BACKLOG = 2048
_IDLE_SECONDS = 75
"""Longer than proxies keep idle connections (60 s), so that a proxy never sends a request to a closed one."""
_STANDARD_ATTRIBUTES = frozenset((*vars(logging.makeLogRecord({})), "color_message", "message"))


@optional_packages()
def serve(
    *indexes: Settings, log_level: str = "info", announce: Callable[[str], object] | None = None
) -> None:
    """Open the indexes, then answer requests until a signal; running requests then have `drain` seconds.

    :param indexes: the settings of one index, or of several named indexes, which differ in their names,
        folders and keys only
    :param announce: called with the service's address once the indexes are open

    If a reader still runs after that, the process exits at once, because a reading cannot be interrupted.

    :raises IndexStateError: there is no index
    :raises InputError: the address cannot be used, or the index lacks a channel of `settings`
    :raises ModelError: a named model, reader or cross-encoder does not exist
    :raises SpartaError: an index or Java cannot be opened
    """
    import uvicorn

    from hybrid.service.connections import TimedProtocol
    from hybrid.service.live.service import READER
    from hybrid.service.several import application

    for each in indexes:
        _check(each)
    settings = indexes[0]
    bound_socket = _bound_socket(settings)
    log_as_json(log_level)
    app = application(indexes)
    protocol: Any = partial(TimedProtocol, seconds=settings.limits.timeout, refusal=app.state.journal.refusal)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",  # uvicorn would log an error of the index as a traceback, and exit with code 3
        timeout_keep_alive=_IDLE_SECONDS,
        limit_concurrency=_most_connections(settings.connections),
        timeout_graceful_shutdown=settings.drain,
    )
    port = bound_socket.getsockname()[1]

    class Server(uvicorn.Server):
        """Answers requests while the indexes are open."""

        async def serve(self, sockets: list[socket.socket] | None = None) -> None:
            async with app.router.lifespan_context(app):
                with _address_errors(settings):
                    bound_socket.listen(_BACKLOG)
                logger.info("service is listening", extra={"host": settings.host, "port": port})
                if announce:
                    announce(f"http://{_shown_host(settings.host)}:{port}")
                await super().serve(sockets)

    server = Server(config)
    # A signal may come before uvicorn listens, and uvicorn raises it again at the end: both end the service.
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal_number != signal.SIGHUP or signal.getsignal(signal_number) != signal.SIG_IGN:  # else nohup
            signal.signal(signal_number, server.handle_exit)
    server.run([bound_socket])
    if any(thread.name.startswith(READER) for thread in threading.enumerate()):
        logging.shutdown()
        os._exit(0)


def _check(settings: Settings) -> None:
    """Raise an error if the service cannot serve an index, before anything starts."""
    from hybrid.retrieval.channels import channels_of
    from hybrid.service.live.search import require_channels, weights_of

    newest_commit(settings.index)
    if settings.reader:
        reader_folder(settings.reader)
    if settings.reranker:
        open_reranker(settings.reranker)
    if settings.model and settings.writable:
        model_folder(settings.model)
    if settings.channels:
        try:
            require_channels(weights_of(settings.channels), channels_of(settings.index), Path(settings.index))
        except InputError as error:
            error.where = str(settings.index)
            raise


def _most_connections(expected: int) -> int:
    """Return how many connections the limit on open files allows; warn if they are fewer than `expected`."""
    possible = max(2, allow_open_files(expected))  # uvicorn counts a connection before it answers it
    if possible < expected:
        logger.warning(
            "the limit on open files (ulimit -Hn) allows about %d connections of %d; raise the limit",
            possible,
            expected,
        )
    return min(possible, expected)


def _shown_host(host: str) -> str:
    """Return the host of the address that a browser on this machine opens."""
    name = host.strip("[]")
    if name in ("0.0.0.0", "::"):
        return "localhost"
    return f"[{name}]" if ":" in name else name


def _bound_socket(settings: Settings) -> socket.socket:
    """Return a socket that has the address; until it listens, the system refuses connections.

    An address on which another socket listens is refused. Of sockets that do not listen yet, Linux lets
    several have an address; the first that listens keeps it.
    """
    name = settings.host.strip("[]")
    with ExitStack() as after_error, _address_errors(settings):
        bound = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET)
        after_error.callback(bound.close)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((name, settings.port))
        after_error.pop_all()
    return bound


@contextmanager
def _address_errors(settings: Settings) -> Iterator[None]:
    """Convert the system's error for an address into an InputError that names the address."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the service cannot listen on this address: {error.strerror or error}",
            where=f"{settings.host}:{settings.port}",
            remedy=remedy("name another {} or {}", Option("port"), Option("host")),
        ) from error


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON lines: time, level, event, and the extra attributes of a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a line of JSON."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {"time": f"{stamp}.{int(record.msecs):03}Z", "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return dumps(line, default=str).decode()


def log_as_json(level: str) -> None:
    """Log as JSON: the service's messages from `level` on, and warnings and errors of other packages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(level.upper())
