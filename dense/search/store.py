"""Vectors on disk: passages' positions, hashes and vectors, one safetensors file a shard."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import re
import zlib
from collections.abc import Buffer, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from dense.models.resolve import ModelIdentity
from dense.search.stored_rows import StoredRows
from sparta.base.errors import InputError, SpartaError
from sparta.base.files import allow_open_files, atomic_write, disk_fails, refuse_links, storage_error
from sparta.base.manifest import check_fields, read_manifest, write_manifest
from sparta.base.remedies import Option, Remedy, remedy
from sparta.shards.folder import SHARD_SIZE, check_finished, remove_left_overs, shard_files

KIND = "dense-vectors"
FORMAT_VERSION = 1
_SMALL = 64 << 20
"""Bytes of vectors that are read into memory, and their checksums compared, when they are opened: 30 ms."""
PRECISIONS = ("float16", "float32")
_ARRAYS = ("positions", "hashes", "vectors")
_LARGEST_HEADER = 1 << 16
MODEL_FIELDS = {"name": str, "sha256": str}
_FIELDS: dict[str, Any] = {
    "width": range(1, 1 << 20),
    "dtype": re.compile("|".join(PRECISIONS)),
    "model": MODEL_FIELDS,
    "unit": str,
    "complete?": bool,
}
_DTYPES = {"I64": np.int64, "U64": np.uint64, "F16": np.float16, "F32": np.float32}

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]


def record_hash(data: Buffer) -> int:
    """What tells bytes apart: 64 bits of BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def record_hashes(records: Sequence[str]) -> Hashes:
    """`(n,) uint64`: what tells stored records apart."""
    return np.array([record_hash(record.encode()) for record in records], np.uint64)


def sentence_hashes(sentences: Iterable[tuple[int, str]]) -> Hashes:
    """`(n,) uint64`: what tells sentences of one passage apart, by where they begin and what they say.

    Their sum, modulo 2⁶⁴, added to the hash of each one's record, tells also what stands around it.
    """
    return record_hashes([f"{start} {text}" for start, text in sentences])


def _keys(positions: Rows, hashes: Hashes) -> Hashes:
    """One number for position and hash."""
    return hashes + positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def find(keys: Hashes, wanted: Hashes) -> Rows:
    """`(len(wanted),) int64`: where each of `wanted` stands in `keys`, −1 where it does not."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    found = order[places]
    return np.where(keys[found] == wanted, found, -1).astype(np.int64)


def check_finite(vectors: npt.NDArray[Any], where: str, remedy: str | Remedy) -> None:
    """Refuse NaN and infinity with an InputError that names the first such vector."""
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"expected finite numbers, found NaN or infinity in vector {row}", where=where, remedy=remedy
        )


@dataclass(frozen=True, slots=True)
class VectorShard:
    """Some passages: `positions (n,) int64` in the corpus, `hashes (n,) uint64` of their stored records,
    `vectors (n, width)` float16 or float32.
    """

    number: int
    positions: Rows
    hashes: Hashes
    vectors: npt.NDArray[Any] | StoredRows

    stored_checksum: int | None = None
    merged: bool = False
    """Whether it holds the rows of smaller shards: left over until a manifest names it."""

    def __len__(self) -> int:
        return len(self.positions)

    def checksum(self) -> int:
        """CRC-32 of positions, hashes and vectors, as stored."""
        found = 0
        for values in (self.positions, self.hashes, self.vectors):
            found = zlib.crc32(np.ascontiguousarray(values).view(np.uint8).reshape(-1).data, found)
        return found

    def check(self, path: Path) -> None:
        """Refuse a shard that is not as it was written."""
        if self.stored_checksum is not None and self.checksum() != self.stored_checksum:
            raise _damaged(path, "its checksum is not the one that was written")


def shard_path(folder: Path, number: int) -> Path:
    """Where shard `number` lies."""
    return folder / f"shard-{number:05d}.safetensors"


def write_shard(folder: Path, shard: VectorShard) -> None:
    """Write one shard; it is there whole or not at all. The same shard always gives the same bytes."""
    path = shard_path(folder, shard.number)
    refuse_links(path)
    vectors = np.asarray(shard.vectors)
    most = np.finfo(vectors.dtype).max
    check_finite(vectors, str(path), f"use a model whose numbers {vectors.dtype} holds (up to {most:g})")
    facts = {"number": shard.number, "first": int(shard.positions[0]), "count": len(shard)}
    facts["crc32"] = shard.checksum()
    if shard.merged:
        facts["merged"] = True
    tensors = {"positions": shard.positions, "hashes": shard.hashes, "vectors": vectors}
    atomic_write(path, save(tensors, metadata={"shard": json.dumps(facts)}))


def open_shard(path: Path) -> VectorShard:
    """Open a shard: its vectors stay in the file (`StoredRows`); a damaged one is an InputError."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > min(_LARGEST_HEADER, path.stat().st_size):
                raise ValueError("the header is cut short")
            header = json.loads(stream.read(length))
        facts = json.loads(header.pop("__metadata__")["shard"])
        start = 8 + length
        end = start + _data_size(header)
        if path.stat().st_size != end:
            raise ValueError(f"expected {end:,} bytes, found {path.stat().st_size:,}")
        arrays = {name: _stored(path, start, entry) for name, entry in header.items()}
        n, dimensions = len(arrays["vectors"]), [len(arrays[name].shape) for name in _ARRAYS]
        if dimensions != [1, 1, 2]:
            raise ValueError(f"expected arrays of 1, 1 and 2 dimensions, found {dimensions}")
        if not n == facts["count"] == len(arrays["positions"]) == len(arrays["hashes"]):
            raise ValueError(f"expected as many positions and hashes as vectors, {n}")
        positions, hashes = np.array(arrays["positions"]), np.array(arrays["hashes"])
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise _too_many(path) from error
        if isinstance(error, OSError) and disk_fails(error):
            raise storage_error(path, error) from error
        raise _damaged(path, error) from error
    checksum, merged = facts.get("crc32"), facts.get("merged", False)
    return VectorShard(facts["number"], positions, hashes, arrays["vectors"], checksum, merged)


def _data_size(header: dict[str, Any]) -> int:
    """Return the bytes of all arrays, which must follow each other and be as long as their shapes say."""
    end = 0
    for entry in sorted(header.values(), key=lambda entry: tuple(entry["data_offsets"])):
        begin, stop = entry["data_offsets"]
        size = math.prod(entry["shape"]) * np.dtype(_DTYPES[entry["dtype"]]).itemsize
        if min(entry["shape"], default=0) < 0 or begin != end or stop != begin + size:
            raise ValueError(f"expected {size:,} bytes from {end:,}, found {begin:,} to {stop:,}")
        end = stop
    return end


def _stored(path: Path, start: int, entry: dict[str, Any]) -> StoredRows:
    return StoredRows(path, _DTYPES[entry["dtype"]], start + entry["data_offsets"][0], tuple(entry["shape"]))


def _too_many(path: Path) -> InputError:
    return InputError(
        "expected one more file that may be open, found that this process or machine has as many as it may",
        where=str(path),
        remedy="raise the limit (ulimit -n 65536); every shard of vectors is a file that stays open",
    )


def _damaged(path: Path, reason: object) -> InputError:
    return InputError(
        f"expected a shard of vectors, could not read it: {reason}",
        where=str(path),
        remedy=remedy(
            "delete this file and repeat the command that wrote it (dense encode with {})",
            Option("resume", True),
        ),
    )


def describe_vectors(
    model: ModelIdentity, width: int, precision: str, unit: str, **more: Any
) -> dict[str, Any]:
    """The manifest of a folder of vectors."""
    if precision not in PRECISIONS:
        raise InputError(f"expected a precision of {', '.join(PRECISIONS)}, found {precision!r}")
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "model": model._asdict(),
        "width": width,
        "dtype": precision,
        "unit": unit,
        **more,
    }


class VectorFolder:
    """A folder of shards as one table: row i is the i-th vector in the order of the shards."""

    def __init__(self, folder: Path, *, shards: Sequence[int] | None = None) -> None:
        """Open a folder: the shards of these numbers in this order, or all shards by number."""
        self.folder = folder
        self.manifest = read_manifest(folder, KIND, FORMAT_VERSION)
        check_fields(self.manifest, _FIELDS, folder / "manifest.json")
        self.width = int(self.manifest["width"])
        self.dtype = np.dtype(self.manifest["dtype"])
        self.model = ModelIdentity(**self.manifest["model"])
        files = shard_files(folder)
        paths = [files[n] for n in (files if shards is None else shards) if n in files]
        allow_open_files(len(paths))
        self.shards = [self._checked(path) for path in paths]
        self.paths = paths
        if sum(path.stat().st_size for path in paths) <= _SMALL:
            self.shards = [replace(shard, vectors=np.asarray(shard.vectors)) for shard in self.shards]
            self.check()
        if shards is not None and len(paths) != len(shards):
            raise _damaged(folder, f"{len(shards) - len(paths)} of {len(shards)} shards are missing")
        self.starts = np.cumsum([0, *map(len, self.shards)])

    def _checked(self, path: Path) -> VectorShard:
        shard = open_shard(path)
        if shard.vectors.shape[1] != self.width or shard.vectors.dtype != self.dtype:
            raise InputError(
                f"expected vectors of {self.width} {self.dtype} numbers, as the manifest says, found"
                f" {shard.vectors.shape[1]} of {shard.vectors.dtype}",
                where=str(path),
                remedy="delete this file and repeat the command that wrote the folder",
            )
        return shard

    def check(self) -> None:
        """Read all shards, and refuse one that is not as it was written; opening small ones does it."""
        for path, shard in zip(self.paths, self.shards, strict=True):
            shard.check(path)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the shards, in their order."""
        return tuple(shard.number for shard in self.shards)

    @cached_property
    def positions(self) -> Rows:
        """`(n,) int64`, corpus positions."""
        return np.concatenate([np.empty(0, np.int64), *(s.positions for s in self.shards)])

    @cached_property
    def hashes(self) -> Hashes:
        """`(n,) uint64`, hashes of stored records."""
        return np.concatenate([np.empty(0, np.uint64), *(s.hashes for s in self.shards)])

    def rows_of(self, positions: Rows, hashes: Hashes) -> Rows:
        """Of each passage, its row: the one with its position and its hash; −1 where there is none."""
        return find(_keys(self.positions, self.hashes), _keys(positions, hashes))

    def take(self, rows: Rows) -> Floats:
        """`(len(rows), width) float32`: some rows, in the order asked for."""
        found = np.empty((len(rows), self.width), np.float32)
        shard = np.searchsorted(self.starts, rows, side="right") - 1
        for s in np.unique(shard):
            of_it = shard == s
            found[of_it] = self.shards[s].vectors[rows[of_it] - self.starts[s]]
        return found

    def blocks(self, rows: Rows, size: int = 8 * SHARD_SIZE) -> Iterator[Floats]:
        """The rows as float32, `size` at a time."""
        for start in range(0, len(rows), size):
            yield self.take(rows[start : start + size])


class VectorWriter:
    """Adds shards to a folder, which it makes; as a folder of vectors it can be read at any moment."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.precision = folder, np.dtype(manifest["dtype"])
        folder.mkdir(parents=True, exist_ok=True)
        remove_left_overs(folder)
        if not (folder / "manifest.json").is_file():
            write_manifest(folder, manifest)
        self.next_number = max(shard_files(folder), default=-1) + 1

    def add(
        self, positions: Rows, hashes: Hashes, vectors: npt.NDArray[Any], *, merged: bool = False
    ) -> Self:
        """Write the next shard; `merged` says that its rows are in other shards too."""
        with np.errstate(over="ignore"):  # an overflow becomes an infinity, which is refused
            stored = np.ascontiguousarray(vectors, self.precision)
        write_shard(self.folder, VectorShard(self.next_number, positions, hashes, stored, merged=merged))
        self.next_number += 1
        return self


def open_finished(folder: Path) -> VectorFolder:
    """Open what `dense encode` wrote; an unfinished one is an InputError."""
    try:
        opened = VectorFolder(folder)
    except SpartaError as error:
        error.remedy = error.remedy or "name a folder that dense encode wrote"
        raise
    check_finished(folder, opened.manifest, "dense encode")
    return opened
