"""The settings of a service: its address and its permissions."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybrid.retrieval.limits import Limits
from hybrid.service.keys import Keys
from sparta.base.errors import InputError
from sparta.base.remedies import Command, Option, remedy
from sparta.index.folder import default_index
from sparta.lucene.bridge import Bm25
from sparta.rerank.reranked import RERANK_DEPTH

INDEXES = "/indexes/"
_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^/\sA-Z]+")
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a service, for one of its indexes.

    `name` is the index's name in a service of several indexes, which all have the other settings in common,
    except `index` and `keys`.
    `writable` allows changes of the index; it needs keys, or the loopback address. `origins` may call the
    service from a browser, besides the service's own page (CORS). `watch` is the time in seconds between
    looks for a new commit. `model` encodes written passages, `reader` extracts answers, both on `device`.
    `reranker` is a cross-encoder that orders the first `rerank_depth` hits anew; None means no reranking.
    With `connections` open connections, or as many as the limit on open files allows, the server answers 503.
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
    reranker: str | None = None
    rerank_depth: int = RERANK_DEPTH
    watch: float = 0.25
    threads: int = 2
    drain: int = 30
    connections: int = 4096
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", Path(self.index))
        if not self.keys and not self.is_loopback:
            raise InputError(
                f"a service on {self.host} is open to other machines, so it needs keys",
                remedy=remedy(
                    "name a file of keys with {}, or omit {}", Option("keys", "FILE"), Option("host")
                ),
            )
        if self.reranker is not None and self.rerank_depth > self.limits.reranked:
            raise InputError(
                f"the service reranks at most {self.limits.reranked} hits, found {self.rerank_depth}",
                remedy=remedy("name a smaller {}", Option("rerank_depth")),
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
    def shown_name(self) -> str:
        """The name of the index for people: its name in the service, else the name of its folder."""
        return self.name or self.index.absolute().name

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the service."""
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"


def named_indexes(values: Sequence[str]) -> dict[str, Path]:
    """Return the index folders of `NAME=PATH` by name; a single `PATH` has the empty name.

    :raises InputError: a name is invalid, an index of several has no name, or two have the same name
    """
    indexes: dict[str, Path] = {}
    for value in values:
        name, path = _name_and_path(value)
        if not name and len(values) > 1:
            raise InputError(
                f"each of several indexes needs a name, but {value} has none",
                remedy=remedy("name each index: {}", Command.of("sparta serve", index="NAME=PATH")),
            )
        if name in indexes:
            raise InputError(
                f"two indexes have the name {name!r}: {indexes[name]} and {path}",
                remedy="give each index another name",
            )
        indexes[name] = path
    return indexes


def keys_by_index(values: Sequence[str], names: Collection[str]) -> dict[str, Keys]:
    """Return the keys of each index, from `NAME=FILE`, or from `FILE` for all indexes without their own file.

    Without files, the keys are those of `$SPARTA_SERVE_KEYS`.

    :raises InputError: a file or a name is invalid or missing, an index has two files, or there is no such
        index
    """
    files: dict[str, Path] = {}
    for value in values:
        name, path = _name_and_path(value)
        if name and name not in names:
            shown_names = ", ".join(filter(None, names)) or "none"
            raise InputError(
                f"there is no index {name!r} for these keys; names of indexes: {shown_names}", where=value
            )
        if name in files:
            raise InputError(
                f"two files of keys for {f'the index {name!r}' if name else 'all indexes'}:"
                f" {files[name]} and {path}",
                remedy="put all keys into one file",
            )
        files[name] = path
    common = Keys.read(files.get(""))
    return {name: Keys.read(files[name]) if files.get(name) else common for name in names}


def _name_and_path(value: str) -> tuple[str, Path]:
    """Return the name and the path of `NAME=PATH`; the name of a path alone is empty.

    An existing path that contains = is a path alone.

    :raises InputError: the value contains =, but is no existing path and has no valid name
    """
    if "=" not in value or os.path.lexists(value):
        return "", Path(value)
    match = _NAMED.fullmatch(value)
    if match is None:
        raise InputError(
            f"{value!r} is neither an existing path nor NAME=PATH with a valid name",
            remedy="correct the path, or choose a name of ASCII letters, digits, '.', '_' and '-' that begins"
            " with a letter or a digit",
        )
    return match[1], Path(match[2])
