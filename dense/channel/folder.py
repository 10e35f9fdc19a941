"""Reads and writes the folder of a dense channel.

    dense-000001/
      manifest.json           model, search parameters, and the Lucene commit that the channel covers
      vectors-000001/         shards of vectors: a folder with its own manifest (dense.search.store)
      rows-000003.npy         rows of the searched vectors: live passages, in corpus order
      search-000003.faiss     IVF or IVF-PQ of all rows, or HNSW of the distinct vectors; flat has no file
      nodes-000003.npy        HNSW: number of each row's vector in the graph
      begun                   empty; without a manifest, an indexing pass has begun a new channel here

The manifest is replaced atomically and names all other files. Files that it does not name are obsolete, or
belong to an unfinished update that a later command resumes.
"""

from __future__ import annotations

import errno
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dense.models.resolve import ModelIdentity
from dense.search.faiss_index import KINDS, Parameters
from dense.search.store import FIELDS as VECTOR_FIELDS
from dense.search.store import FORMAT_VERSION as VECTORS_VERSION
from dense.search.store import KIND as VECTORS_KIND
from dense.search.store import MODEL_FIELDS, Rows, VectorFolder, shard_path
from sparta.base.errors import IndexStateError, InputError, NewerFormatError, SpartaError, StorageError
from sparta.base.files import atomic_write, raise_if_unreadable, storage_errors
from sparta.base.manifest import MANIFEST_NAME, check_fields, read_manifest, write_manifest
from sparta.base.remedies import Command, Remedy, remedy
from sparta.index.channels import DENSE
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation
from sparta.shards.folder import shard_facts, shard_files

Kept = Literal["channel", "other models", "newer", "pass"]
KIND = "dense-channel"
FORMAT_VERSION = 2
_STORE = re.compile(r"vectors-(\d{6,})")
_COUNT, _COUNT_OF_SHARDS = range(1 << 40), range(10**6)
_FIELDS: dict[str, Any] = {
    "serial": _COUNT,
    "model": MODEL_FIELDS,
    "store": _STORE,
    "shards": (int, list),
    "passages": _COUNT,
    "asked": str,
    "search": {"kind": re.compile("|".join(KINDS)), "lists": _COUNT, "links": _COUNT, "build_depth": _COUNT},
    "commit": str,
    "crc32?": dict,
    "unit?": str,
    "width?": int,
    "dtype?": str,
    "arithmetic?": str,
    "language?": str,
}

_STORED_NAMES = {"requested_kind": "asked"}
"""The manifest's names of fields that have another name here."""
_NO_FILE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
"""The numbers of errors that tell of a missing file, or of damaged content (no number)."""


@dataclass(frozen=True, slots=True)
class Channel:
    """The content of a dense channel's manifest.

    `serial` numbers the updates and names the files. `store` names the folder of vectors, `shards` lists its
    valid shards in the order of their rows. `passages` is the number of searched passages. `requested_kind`
    may be `auto`; `search` describes the index that was built. `commit` names the Lucene commit that the
    channel covers. `language` is that of the passages; empty in channels of older releases.
    """

    serial: int
    model: ModelIdentity
    store: str
    shards: tuple[int, ...]
    passages: int
    requested_kind: str
    search: Parameters
    commit: str
    language: str = ""

    @property
    def store_number(self) -> int:
        """The number in the name of the folder of vectors."""
        return _store_number(self.store)

    @property
    def rows_name(self) -> str:
        """The name of the file with the searched rows."""
        return f"rows-{self.serial:06d}.npy"

    @property
    def index_name(self) -> str | None:
        """The name of the FAISS file; None for flat search."""
        return None if self.search.kind == "flat" else f"search-{self.serial:06d}.faiss"

    @property
    def nodes_name(self) -> str | None:
        """The name of the file that maps rows to vectors in FAISS; None if both have the same numbers."""
        return f"nodes-{self.serial:06d}.npy" if self.search.distinct else None

    @property
    def file_names(self) -> list[str]:
        """The names of the files that search needs, without the shards of vectors."""
        return [name for name in (self.rows_name, self.index_name, self.nodes_name) if name]


def _store_number(name: str) -> int:
    return int(name.removeprefix("vectors-"))


def _shard_numbers(stored: Any) -> tuple[int, ...]:
    """Return the numbers of the valid shards, from a list or from a count (format 1)."""
    if isinstance(stored, int) and stored in _COUNT_OF_SHARDS:
        return tuple(range(stored))
    if isinstance(stored, list) and all(type(number) is int and number in _COUNT for number in stored):
        return tuple(stored)
    raise TypeError(f"the field shards must be a list of shard numbers, found {str(stored)[:80]}")


def _model_hash(store: Path) -> str:
    """Return the SHA-256 of the model that encoded a folder of vectors."""
    return str(read_manifest(store, VECTORS_KIND, VECTORS_VERSION, fields=VECTOR_FIELDS)["model"]["sha256"])


def _check_shard(store: Path, number: int) -> None:
    """Read a shard; raise if it is damaged."""
    VectorFolder(store, shards=[number]).check()


def _is_damaged(check: Callable[[], object]) -> bool:
    """Return whether a check raises an error of a file's content.

    :raises NewerFormatError: a newer version wrote the file.
    :raises SpartaError: the file cannot be read, which says nothing about its content.
    """
    try:
        check()
    except (NewerFormatError, StorageError):
        raise
    except SpartaError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in _NO_FILE:
            raise
        return True
    return False


def _crc32(path: Path) -> int:
    checksum = 0
    with storage_errors(path, reading=True), path.open("rb") as stream:
        while data := stream.read(1 << 20):
            checksum = zlib.crc32(data, checksum)
    return checksum


def find_or_replace_model(index: Path) -> Remedy:
    """Return the remedy for an index whose dense model is no longer where it was."""
    return remedy(
        "name the folder that holds this model now: {}; or rebuild the dense channel with another model: {}",
        Command.of("dense index", model="FOLDER", index=index),
        Command.of("dense index", overwrite=True, model="OTHER", index=index),
    )


@dataclass(frozen=True)
class ChannelFolder:
    """The folder of a dense channel, and its reading and writing."""

    path: Path

    @classmethod
    def for_writing(cls, index: IndexFolder, generation: Generation) -> ChannelFolder:
        """Return the folder in which a generation's channel is built; the caller holds the writer's lock.

        If another folder has vectors that an interrupted command encoded, they move here for reuse.
        """
        newest, begun = cls(index.dense_path(generation)), cls(index.begun_path(DENSE, generation))
        folder, other = (newest, begun) if newest.exists() else (begun, newest)
        if folder != other and other.path.is_dir():
            index.check_not_replaced()
            folder.path.mkdir(exist_ok=True)
            for store in other._store_paths():
                store.rename(folder.new_store())
            shutil.rmtree(other.path)
        return folder

    @property
    def mark(self) -> Path:
        """The path of the file that marks a new channel that an indexing pass has begun."""
        return self.path / "begun"

    def new_store(self) -> Path:
        """Return the path of a new folder of vectors."""
        used = [path for path in self._folders() if (path / "manifest.json").is_file() or shard_files(path)]
        last = max((_store_number(path.name) for path in used), default=0)  # a killed deletion leaves shards
        return self.path / f"vectors-{last + 1:06d}"

    @property
    def _update_remedy(self) -> Remedy:
        return remedy("{}", Command.of("dense index", index=self.path.parent))

    @property
    def _rebuild_remedy(self) -> Remedy:
        return remedy("{}", Command.of("dense index", index=self.path.parent, overwrite=True))

    @contextmanager
    def _with_rebuild_remedy(self) -> Iterator[None]:
        """Add the command that rebuilds the channel to errors of its content that are raised in the block."""
        try:
            yield
        except (NewerFormatError, StorageError):
            raise
        except SpartaError as error:
            error.remedy = self._rebuild_remedy
            raise

    def remove_damaged(self, check: Callable[[], object]) -> None:
        """Delete each shard, and each folder of vectors, that is damaged. Whole shards stay for reuse.

        :param check: called before a file is deleted
        :raises NewerFormatError: a newer version wrote the folder.
        :raises SpartaError: a file cannot be read, which says nothing about its content.
        """
        for store in self._store_paths():
            if _is_damaged(partial(VectorFolder, store, shards=())):
                check()
                shutil.rmtree(store)
                continue
            for number, path in shard_files(store).items():
                if _is_damaged(partial(_check_shard, store, number)):
                    check()
                    path.unlink()

    def exists(self) -> bool:
        """Return whether the folder holds a finished channel."""
        return (self.path / "manifest.json").is_file()

    def read(self, manifest: bytes | None = None) -> Channel:
        """Return the channel that the manifest describes.

        :param manifest: the bytes of the manifest; None reads the file
        :raises IndexStateError: the manifest is missing, damaged or in a newer format.
        """
        if manifest is None and not self.exists():
            raise IndexStateError(
                "the index has no dense channel",
                where=str(self.path.parent),
                remedy=remedy("build the dense channel with: {}", self._update_remedy),
            )
        with self._with_rebuild_remedy():
            stored = read_manifest(self.path, KIND, FORMAT_VERSION, manifest, fields=_FIELDS)
            check_fields(stored, _FIELDS, self.path / "manifest.json")
        try:
            stored = {"language": "", **stored}
            fields = {name: stored[_STORED_NAMES.get(name, name)] for name in Channel.__dataclass_fields__}
            fields["shards"] = _shard_numbers(stored["shards"])
            fields["model"], fields["search"] = (
                ModelIdentity(**stored["model"]),
                Parameters(**stored["search"]),
            )
        except (KeyError, TypeError) as error:
            raise IndexStateError(
                f"the manifest of the dense channel is invalid: {error!r}",
                where=str(self.path / "manifest.json"),
                remedy=self._rebuild_remedy,
            ) from error
        return Channel(**fields)

    def read_if_finished(self, *, overwrite: bool) -> Channel | None:
        """Return the finished channel, or None. To an overwrite, a damaged manifest means no channel."""
        if not self.exists() or (overwrite and _is_damaged(self.read)):
            return None
        return self.read()

    def named_files(self, manifest: bytes) -> list[str]:
        """Return the files that a manifest names, relative to the folder: shards, rows and search index."""
        channel = self.read(manifest)
        return [*self._vector_files(channel), *channel.file_names]

    @staticmethod
    def _vector_files(channel: Channel) -> list[str]:
        """Return the manifest and the valid shards of the vectors, relative to the channel's folder."""
        store = Path(channel.store)
        return [f"{store}/{MANIFEST_NAME}", *(str(shard_path(store, number)) for number in channel.shards)]

    def is_whole(self, channel: Channel) -> bool:
        """Return whether all files that the manifest names exist. Compares all checksums but the shards'."""
        if not all((self.path / name).is_file() for name in self._vector_files(channel)):
            return False
        return all(self.is_as_written(name) for name in channel.file_names)

    def write(self, channel: Channel, facts: dict[str, Any] | None = None) -> None:
        """Replace the manifest.

        :param facts: further fields, such as `unit`; None keeps the further fields of the old manifest
        """
        facts_to_keep = (
            read_manifest(self.path, KIND, FORMAT_VERSION, fields=_FIELDS) if facts is None else facts
        )
        fields = {_STORED_NAMES.get(name, name): value for name, value in asdict(channel).items()}
        model = channel.model._asdict()
        format_fields = {"kind": KIND, "format_version": FORMAT_VERSION}
        write_manifest(self.path, {**facts_to_keep, **fields, "model": model, **format_fields})

    def checksums(self, channel: Channel) -> dict[str, int]:
        """Return the CRC-32 of each file that search needs, by name, without the shards of vectors."""
        return {name: _crc32(self.path / name) for name in channel.file_names}

    def check(self, channel: Channel) -> None:
        """Read all files of the channel, and raise an error that names the first damaged file."""
        self.vectors(channel).check()
        for name in channel.file_names:
            self._check_file(name)

    def _check_file(self, name: str, manifest: bytes | None = None) -> None:
        """Raise an IndexStateError if a file's checksum differs from the manifest's."""
        if (self.path / name).is_file() and not self.is_as_written(name, manifest):
            raise IndexStateError(
                "a file of the dense channel is damaged: its checksum differs from the manifest's",
                where=str(self.path / name),
                remedy=remedy("repair the channel with: {}", self._update_remedy),
            )

    def is_as_written(self, name: str, manifest: bytes | None = None) -> bool:
        """Return whether a file exists and its checksum, if the manifest has one, equals the manifest's."""
        checksum = (
            read_manifest(self.path, KIND, FORMAT_VERSION, manifest, fields=_FIELDS)
            .get("crc32", {})
            .get(name)
        )
        path = self.path / name
        return path.is_file() and (checksum is None or _crc32(path) == checksum)

    def write_rows(self, name: str, rows: Rows) -> None:
        """Write an array of row numbers, or of node numbers, to a .npy file."""
        atomic_write(self.path / name, lambda stream: np.save(stream, rows))

    def read_rows(self, channel: Channel, manifest: bytes | None = None) -> Rows:
        """Return the searched rows in corpus order, `(passages,) int64`.

        :param manifest: the bytes of the manifest, if the caller has read the file
        """
        return self._read_numbers(channel.rows_name, channel.passages, manifest)

    def read_nodes(self, channel: Channel, n: int, manifest: bytes | None = None) -> Rows | None:
        """Return the number of each row's vector in FAISS, `(n,) int64`; None if it equals the row number.

        :param n: number of rows
        """
        return self._read_numbers(channel.nodes_name, n, manifest) if channel.nodes_name else None

    def _read_numbers(self, name: str, n: int, manifest: bytes | None) -> Rows:
        """Read and check an array of n non-negative int64 numbers."""
        path = self.path / name
        self._check_file(name, manifest)
        try:
            # A memory map: a damaged header with a huge shape must not allocate memory.
            array = np.load(path, mmap_mode="r" if n else None, allow_pickle=False)
            if array.shape != (n,) or array.dtype != np.int64:
                raise ValueError(
                    f"the file must contain {n} integers, found {array.dtype} of shape {array.shape}"
                )
            numbers: Rows = np.array(array)
            if numbers.min(initial=0) < 0:
                raise ValueError(f"the numbers must not be negative, found {numbers.min()}")
        except (OSError, ValueError, EOFError, OverflowError, MemoryError, TypeError) as error:
            raise_if_unreadable(path, error)
            raise IndexStateError(
                f"a file of the dense channel cannot be read: {error}",
                where=str(path),
                remedy=remedy("repair the channel with: {}", self._update_remedy),
            ) from error
        return numbers

    def vectors(self, channel: Channel) -> VectorFolder:
        """Open the shards of vectors that the manifest names.

        :raises IndexStateError: a shard is missing or damaged.
        :raises StorageError: a file cannot be read, which says nothing about its content.
        """
        try:
            return VectorFolder(self.path / channel.store, shards=channel.shards)
        except (NewerFormatError, StorageError):
            raise
        except SpartaError as error:
            is_shard_damaged = error.where.endswith(".safetensors")
            first = "delete this file, and " if is_shard_damaged else ""
            error.remedy = remedy(f"{first}run: {{}}", self._update_remedy)
            if error.where.endswith("manifest.json") and Path(error.where).is_file():
                error.remedy = self._rebuild_remedy
            if isinstance(error, InputError):  # the folder is a part of the index, not an input of the caller
                raise IndexStateError(
                    error.message, where=error.where, remedy=error.remedy
                ) from error.__cause__
            raise

    def _folders(self) -> list[Path]:
        """Return all folders of vectors by number, also folders that were made or deleted only in part."""
        paths = (path for path in self.path.glob("vectors-*") if _STORE.fullmatch(path.name))
        return sorted(paths, key=lambda path: _store_number(path.name))

    def _store_paths(self) -> list[Path]:
        """Return all folders of vectors that have a manifest, finished or not, by number."""
        return [path for path in self._folders() if (path / "manifest.json").is_file()]

    def stores(self) -> Iterator[tuple[int, VectorFolder]]:
        """Open all folders of vectors, finished or not. Yields each number and folder."""
        for path in self._store_paths():
            with self._with_rebuild_remedy():
                store = VectorFolder(path)
            yield _store_number(path.name), store

    def remove_left_overs(self, channel: Channel | None) -> None:
        """Delete the shards of an interrupted merge, and shards that a merge replaced.

        Shards of an interrupted encoding stay.
        """
        for store in self._store_paths():
            named_shards = channel.shards if channel and channel.store == store.name else ()
            newest = max(named_shards, default=-1)
            for number, path in shard_files(store).items():
                if number not in named_shards and (number < newest or shard_facts(path).get("merged")):
                    path.unlink(missing_ok=True)

    @staticmethod
    def _stays(store: Path, channel: Channel, keep: Kept) -> bool:
        """Return whether `sweep` keeps a folder of vectors that is not the channel's."""
        is_newer = _store_number(store.name) > channel.store_number
        if keep == "pass":
            return is_newer or _model_hash(store) == channel.model.sha256
        if keep == "other models":
            return is_newer and _model_hash(store) != channel.model.sha256
        return is_newer and keep == "newer"

    def sweep(self, channel: Channel, *, keep: Kept) -> None:
        """Delete all files and folders that the manifest does not name.

        :param keep: which vectors stay beside the channel's: none; newer ones of other models (a later
            command resumes the change of model); all newer ones; or those that an interrupted pass of the
            same model may still use, and all newer ones
        """
        names = {"manifest.json", channel.store, *channel.file_names}
        names |= {path.name for path in self._store_paths() if self._stays(path, channel, keep)}
        self.remove_left_overs(channel)
        for child in self.path.iterdir():
            if child.name in names:
                continue
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)
            else:
                child.unlink(missing_ok=True)
