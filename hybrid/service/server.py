"""Running the service: uvicorn, its signals, the log."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import orjson

from hybrid.service.settings import Settings
from sparta.base.errors import InputError
from sparta.base.extras import optional_packages
from sparta.base.files import allow_open_files
from sparta.index.snapshot import newest_commit
from sparta.models.resolve import model_folder
from sparta.reader.config import reader_folder

logger = logging.getLogger("sparta.serve")
_BACKLOG = 2048
_CONNECTIONS = 4096
_OWN = frozenset((*vars(logging.makeLogRecord({})), "color_message", "message"))


@optional_packages()
def serve(settings: Settings, *, log_level: str = "info") -> None:
    """Answer requests until a signal comes; those in flight then have `settings.drain` seconds to end.

    Where a reader reads on after that, the process ends here: what it reads cannot be given up half way.

    :raises IndexStateError: there is no index.
    :raises InputError: the address cannot be used, or the index lacks a channel of `settings`.
    :raises ModelError: there is no such model or reader.
    """
    import uvicorn

    from hybrid.retrieval.channels import channels_of
    from hybrid.service.app import create_app
    from hybrid.service.connections import protocol
    from hybrid.service.live.search import require_channels, weights_of
    from hybrid.service.live.service import READER

    newest_commit(settings.index)  # what is not there is told before anything is started
    if settings.reader:
        reader_folder(settings.reader)
    if settings.model and settings.writable:
        model_folder(settings.model)
    if settings.channels:
        require_channels(weights_of(settings.channels), channels_of(settings.index))
    listening = _socket(settings.host, settings.port)
    allow_open_files(_CONNECTIONS)
    _log_as_json(log_level)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        http=protocol(settings.limits.timeout, app.state.journal.refusal),
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=settings.drain,
    )
    server = uvicorn.Server(config)
    for one in (signal.SIGTERM, signal.SIGINT):  # also one that comes before uvicorn listens to it, and
        signal.signal(one, server.handle_exit)  # the one that it raises again at the end: that is no failure
    logger.info("listening", extra={"host": settings.host, "port": listening.getsockname()[1]})
    server.run([listening])
    if any(one.name.startswith(READER) for one in threading.enumerate()):
        logging.shutdown()
        os._exit(0)


def _socket(host: str, port: int) -> socket.socket:
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        return socket.create_server((name, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(
            f"expected an address to listen at, found one that cannot be used: {error.strerror or error}",
            where=f"{host}:{port}",
            remedy="name another --port or --host",
        ) from error


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, and what else a record has."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {"time": f"{stamp}.{int(record.msecs):03}Z", "level": record.levelname.lower()}
        line["event"] = record.getMessage()
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def _log_as_json(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("sparta", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
