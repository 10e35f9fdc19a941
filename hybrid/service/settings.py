"""The settings of a service: its address and its permissions."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from hybrid.retrieval.limits import Limits
from hybrid.service.keys import Keys
from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.index.folder import default_index
from sparta.lucene.bridge import Bm25

_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^/\sA-Z]+")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a service.

    `writable` allows changes of the index; it needs keys, or the loopback address. `origins` may call the
    service from a browser, besides the service's own page (CORS). `watch` is the time in seconds between
    looks for a new commit. `model` encodes written passages, `reader` extracts answers, both on `device`.
    """

    index: Path = field(default_factory=default_index)
    host: str = "127.0.0.1"
    port: int = 8080
    keys: Keys = field(default_factory=Keys)
    writable: bool = False
    origins: tuple[str, ...] = ()
    bm25: Bm25 | None = None
    channels: str | None = None
    limits: Limits = field(default_factory=Limits)
    model: str | None = None
    reader: str | None = None
    device: str | None = None
    watch: float = 0.25
    threads: int = 2
    drain: int = 30

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", Path(self.index))
        if not self.keys and not self.is_loopback:
            raise InputError(
                f"a service on {self.host} is open to other machines, so it needs keys",
                remedy=remedy(
                    "name a file of keys with {}, or omit {}", Option("keys", "FILE"), Option("host")
                ),
            )
        for origin in self.origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise InputError(
                    f"an origin is a scheme and a host, as browsers send it, found {origin!r}",
                    remedy=remedy(
                        "name scheme and host only, as in {}",
                        Option("origins", "https://mine.example", flag="cors"),
                    ),
                )
        if "*" in self.origins and not self.keys:
            raise InputError(
                "the origin * lets any web page call the service, so it needs keys",
                remedy=remedy(
                    "name a file of keys with {}, or list the allowed origins", Option("keys", "FILE")
                ),
            )

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the service."""
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"
