"""What lies in the folder of a dense channel.

    dense-000001/
      manifest.json           model, what is searched and how, the Lucene commit it was made for
      vectors-000001/         shards of vectors, a folder of its own kind (dense.search.store)
      rows-000003.npy         the rows of the vectors that are searched: live passages, in corpus order
      search-000003.faiss     IVF over the rows, or HNSW over the distinct vectors among them; none for flat
      nodes-000003.npy        HNSW: of each row, the number of its vector in the graph

The manifest is replaced atomically and names the rest; what it does not name is left over, or the beginning
of work that goes on.
"""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dense.models.resolve import ModelIdentity
from dense.search.faiss_index import KINDS, Parameters
from dense.search.store import FORMAT_VERSION as VECTORS_VERSION
from dense.search.store import KIND as VECTORS_KIND
from dense.search.store import MODEL_FIELDS, Rows, VectorFolder, shard_path
from sparta.base.errors import IndexStateError, NewerFormatError, SpartaError
from sparta.base.files import atomic_write, disk_fails, storage_error
from sparta.base.manifest import check_fields, read_manifest, write_manifest
from sparta.base.remedies import Command, Remedy, remedy
from sparta.shards.folder import shard_facts, shard_files

KIND = "dense-channel"
FORMAT_VERSION = 2
_STORE = re.compile(r"vectors-(\d{6})")
_COUNT, _SHARDS = range(1 << 40), range(10**6)
_FIELDS: dict[str, Any] = {
    "serial": range(10**6),
    "model": MODEL_FIELDS,
    "store": _STORE,
    "shards": (int, list),
    "passages": _COUNT,
    "asked": str,
    "search": {"kind": re.compile("|".join(KINDS)), "lists": _COUNT, "links": _COUNT, "build_depth": _COUNT},
    "commit": str,
    "crc32?": dict,
}


@dataclass(frozen=True, slots=True)
class Channel:
    """A finished dense channel, as its manifest tells.

    `store` names the folder of vectors, `shards` the numbers of its shards that count, in the order of their
    rows; `asked` is the kind that was asked for (maybe `auto`), `search` the one that was built.
    """

    serial: int
    model: ModelIdentity
    store: str
    shards: tuple[int, ...]
    passages: int
    asked: str
    search: Parameters
    commit: str

    @property
    def rows_name(self) -> str:
        """The file of the rows."""
        return f"rows-{self.serial:06d}.npy"

    @property
    def index_name(self) -> str | None:
        """The file of FAISS, where there is one."""
        return None if self.search.kind == "flat" else f"search-{self.serial:06d}.faiss"

    @property
    def nodes_name(self) -> str | None:
        """The file of each row's vector in FAISS, where rows may share one."""
        return f"nodes-{self.serial:06d}.npy" if self.search.distinct else None

    @property
    def file_names(self) -> list[str]:
        """The files beside the vectors that search needs."""
        return [name for name in (self.rows_name, self.index_name, self.nodes_name) if name]


def _shard_numbers(stored: Any) -> tuple[int, ...]:
    """Return the numbers of the shards that count: a list or, in format 1, how many there are."""
    if isinstance(stored, int) and stored in _SHARDS:
        return tuple(range(stored))
    if isinstance(stored, list) and all(type(number) is int and number in _SHARDS for number in stored):
        return tuple(stored)
    raise TypeError(f"shards: expected numbers of shards, found {str(stored)[:80]}")


def _model_hash(store: Path) -> str:
    """The hash of the model that made a folder of vectors."""
    return str(read_manifest(store, VECTORS_KIND, VECTORS_VERSION)["model"]["sha256"])


def _crc32(path: Path) -> int:
    found = 0
    with path.open("rb") as stream:
        while data := stream.read(1 << 20):
            found = zlib.crc32(data, found)
    return found


@dataclass(frozen=True)
class ChannelFolder:
    """The folder of a dense channel."""

    path: Path

    @property
    def _again(self) -> Remedy:
        return remedy("{}", Command.of("dense index", index=self.path.parent))

    @property
    def _remedy(self) -> Remedy:
        return remedy("{}", Command.of("dense index", index=self.path.parent, overwrite=True))

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Say of what cannot be read how to make it anew."""
        try:
            yield
        except NewerFormatError:
            raise
        except SpartaError as error:
            error.remedy = self._remedy
            raise

    def remove_if_damaged(self) -> None:
        """Before an overwrite: what cannot be read is removed whole; else its vectors may still count."""
        if self.path.is_dir():
            try:
                if self.exists():
                    self.check(self.read())
                for _, store in self.stores():
                    store.check()
            except SpartaError:
                shutil.rmtree(self.path)

    def exists(self) -> bool:
        """Whether a channel was finished here."""
        return (self.path / "manifest.json").is_file()

    def read(self, manifest: bytes | None = None) -> Channel:
        """Read the manifest, or parse its content; none, a broken or a newer one is an IndexStateError."""
        if manifest is None and not self.exists():
            raise IndexStateError(
                "the index has no dense channel",
                where=str(self.path.parent),
                remedy=remedy("make it with: {}", self._again),
            )
        with self._damage():
            found = read_manifest(self.path, KIND, FORMAT_VERSION, manifest)
            check_fields(found, _FIELDS, self.path / "manifest.json")
        try:
            given = {k: found[k] for k in Channel.__dataclass_fields__}
            given["shards"] = _shard_numbers(found["shards"])
            given["model"], given["search"] = (
                ModelIdentity(**found["model"]),
                Parameters(**found["search"]),
            )
        except (KeyError, TypeError) as error:
            raise IndexStateError(
                f"the manifest is not as expected: {error!r}",
                where=str(self.path / "manifest.json"),
                remedy=self._remedy,
            ) from error
        return Channel(**given)

    def is_whole(self, channel: Channel) -> bool:
        """Whether all files that the manifest names are there; those beside the vectors must be whole."""
        store = self.path / channel.store
        files = [store / "manifest.json", *(shard_path(store, n) for n in channel.shards)]
        if not all(path.is_file() for path in files):
            return False
        return all(self.is_as_written(name) for name in channel.file_names)

    def write(self, channel: Channel, facts: dict[str, Any] | None = None) -> None:
        """Replace the manifest; without `facts`, what else it told stays."""
        told = read_manifest(self.path, KIND, FORMAT_VERSION) if facts is None else facts
        model = channel.model._asdict()
        head = {"kind": KIND, "format_version": FORMAT_VERSION}
        write_manifest(self.path, {**told, **asdict(channel), "model": model, **head})

    def checksums(self, channel: Channel) -> dict[str, int]:
        """CRC-32 of each file beside the vectors, for the manifest."""
        return {name: _crc32(self.path / name) for name in channel.file_names}

    def check(self, channel: Channel) -> None:
        """Read all files of the channel, and refuse one that is not as it was written."""
        self.vectors(channel).check()
        for name in channel.file_names:
            self._check_file(name)

    def _check_file(self, name: str, manifest: bytes | None = None) -> None:
        """Refuse a file whose checksum is not that of the manifest, where it tells one."""
        if (self.path / name).is_file() and not self.is_as_written(name, manifest):
            raise IndexStateError(
                "a file of the dense channel cannot be read: it is not as it was written",
                where=str(self.path / name),
                remedy=remedy("run: {}", self._again),
            )

    def is_as_written(self, name: str, manifest: bytes | None = None) -> bool:
        """Whether a file is there, and whole as far as the manifest tells."""
        wanted = read_manifest(self.path, KIND, FORMAT_VERSION, manifest).get("crc32", {}).get(name)
        path = self.path / name
        return path.is_file() and (wanted is None or _crc32(path) == wanted)

    def write_rows(self, name: str, rows: Rows) -> None:
        """Write which rows are searched, or which nodes they are."""
        atomic_write(self.path / name, lambda stream: np.save(stream, rows))

    def read_rows(self, channel: Channel, manifest: bytes | None = None) -> Rows:
        """Return the rows that are searched, in corpus order, `(passages,) int64`.

        :param manifest: the content of the manifest, where it was read before
        """
        return self._numbers(channel.rows_name, channel.passages, manifest)

    def read_nodes(self, channel: Channel, n: int, manifest: bytes | None = None) -> Rows | None:
        """Return which of FAISS's vectors each of n rows has, `(n,) int64`; None: its own."""
        return self._numbers(channel.nodes_name, n, manifest) if channel.nodes_name else None

    def _numbers(self, name: str, n: int, manifest: bytes | None) -> Rows:
        path = self.path / name
        self._check_file(name, manifest)
        try:
            stored = np.load(path, mmap_mode="r" if n else None, allow_pickle=False)  # takes no memory yet
            if stored.shape != (n,) or stored.dtype != np.int64:
                raise ValueError(f"expected {n} numbers, found {stored.dtype} {stored.shape}")
            rows: Rows = np.array(stored)
            if rows.min(initial=0) < 0:
                raise ValueError(f"expected numbers from 0 on, found {rows.min()}")
        except (OSError, ValueError, EOFError, OverflowError, MemoryError, TypeError) as error:
            if isinstance(error, OSError) and disk_fails(error):
                raise storage_error(path, error) from error
            raise IndexStateError(
                f"a file of the dense channel cannot be read: {error}",
                where=str(path),
                remedy=remedy("run: {}", self._again),
            ) from error
        return rows

    def vectors(self, channel: Channel) -> VectorFolder:
        """Open the vectors that count."""
        try:
            return VectorFolder(self.path / channel.store, shards=channel.shards)
        except SpartaError as error:
            damaged = error.where.endswith(".safetensors")
            first = "delete this file, and " if damaged else ""
            error.remedy = remedy(f"{first}run: {{}}", self._again)
            if error.where.endswith("manifest.json") and Path(error.where).is_file():
                error.remedy = self._remedy
            raise

    def _store_paths(self) -> list[Path]:
        """The folders of vectors, finished or not, by number."""
        paths = (p for p in self.path.glob("vectors-*") if _STORE.fullmatch(p.name))
        return sorted(p for p in paths if (p / "manifest.json").is_file())

    def stores(self) -> Iterator[tuple[int, VectorFolder]]:
        """All folders of vectors that can be read, finished or not, by number."""
        for path in self._store_paths():
            yield int(path.name.removeprefix("vectors-")), VectorFolder(path)

    def remove_left_overs(self, channel: Channel | None) -> None:
        """Remove the shards of a merge that was killed: merged shards that the manifest does not name,
        and shards that a merge replaced. Shards encoded by a killed command stay.
        """
        for store in self._store_paths():
            named = channel.shards if channel and channel.store == store.name else ()
            newest = max(named, default=-1)
            for number, path in shard_files(store).items():
                if number not in named and (number < newest or shard_facts(path).get("merged")):
                    path.unlink(missing_ok=True)

    def sweep(self, channel: Channel, *, keep_unfinished: bool) -> None:
        """Remove what the manifest does not name; with `keep_unfinished`, not the vectors of another model.

        These are the beginning of a change of model that was interrupted, and goes on later.
        """
        named = {"manifest.json", channel.store, *channel.file_names}
        if keep_unfinished:
            named |= {p.name for p in self._store_paths() if _model_hash(p) != channel.model.sha256}
        self.remove_left_overs(channel)
        for child in self.path.iterdir():
            if child.name in named:
                continue
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)
            else:
                child.unlink(missing_ok=True)
