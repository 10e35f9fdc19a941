"""What a service is told: where it listens, and what it allows."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from hybrid.service.keys import Keys
from sparta.base.errors import InputError
from sparta.index.folder import default_index
from sparta.lucene.bridge import Bm25


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, and all of them together, may ask for.

    `depth` is the last rank that can be reached, offset + k; `body` and `upload` are bytes, of a question and
    of an upload of passages; `line` those of one passage. `queue` queries wait at most; one more is answered
    with 429. `timeout` is how many seconds a search, or the next part of a body, may take; `answer` those of
    an answer by the reader, `upload_timeout` those of a whole upload.
    """

    k: int = 1000
    depth: int = 10_000
    queries: int = 100
    query: int = 1000
    body: int = 1 << 20
    upload: int = 64 << 20
    line: int = 1 << 20
    queue: int = 64
    timeout: float = 10.0
    answer: float = 60.0
    upload_timeout: float = 600.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not getattr(self, name) > 0:
                raise InputError(f"expected a limit above 0, found {name} = {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a service runs.

    `writable` lets an index be changed; it needs keys, or the loopback address. `origins` are those that a
    browser may call from besides the page of the service itself (CORS); `watch` is how often, in seconds, the
    index folder is looked at for a new commit. `model` encodes what is written, `reader` finds answers,
    both on `device`.
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
        if not self.keys and not self.is_loopback:
            raise InputError(
                f"expected keys for a service that others can reach, found none for {self.host}",
                remedy="name a file of keys with --keys FILE, or leave --host out",
            )
        if "*" in self.origins and not self.keys:
            raise InputError(
                "expected keys where any page may call the service (--cors *), found none",
                remedy="name a file of keys with --keys FILE, or the origins one by one",
            )

    @property
    def is_loopback(self) -> bool:
        """Whether nobody else's machine can reach the service."""
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"
