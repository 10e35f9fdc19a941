"""Running the service: uvicorn, its signals, the log."""

from __future__ import annotations

import logging
import signal
import sys
import time
from typing import Any

import orjson

from hybrid.service.settings import Settings
from sparta.base.extras import optional_packages

_OWN = frozenset((*vars(logging.makeLogRecord({})), "color_message", "message"))


@optional_packages()
def serve(settings: Settings, *, log_level: str = "info") -> None:
    """Answer requests until a signal comes; those in flight then have `settings.drain` seconds to end.

    :raises InputError: the address cannot be used.
    """
    import uvicorn

    from hybrid.service.app import create_app
    from hybrid.service.connections import protocol

    _log_as_json(log_level)
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        http=protocol(settings.limits.timeout),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        timeout_graceful_shutdown=settings.drain,
    )
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            one, lambda *_: None
        )  # uvicorn raises it again when all is answered: that is no failure
    uvicorn.Server(config).run()


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
