"""Vectors on disk: the positions, record hashes and vectors of passages, one safetensors file per shard."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import re
import zlib
from collections.abc import Buffer, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from dense.models.resolve import ModelIdentity
from dense.search.stored_rows import StoredRows, read_rows
from sparta.base.disk.new_folders import remove_left_overs
from sparta.base.errors import InputError, SpartaError, StorageError
from sparta.base.files import allow_open_files, atomic_write, raise_if_unreadable, refuse_links
from sparta.base.manifest import check_fields, read_manifest, write_manifest
from sparta.base.remedies import Option, Remedy, remedy
from sparta.data.languages import is_folded_alike
from sparta.shards.folder import SHARD_SIZE, check_finished, shard_files

KIND = "dense-vectors"
FORMAT_VERSION = 1
_LARGEST_IN_MEMORY = 64 << 20
"""A folder of at most this many bytes is read into memory and checked when it is opened (about 30 ms)."""
PRECISIONS = ("float16", "float32")
_ARRAYS = ("positions", "hashes", "vectors")
_LARGEST_HEADER = 1 << 16
MODEL_FIELDS = {"name": str, "sha256": str}
FIELDS: dict[str, Any] = {
    "width": range(1, 1 << 20),
    "dtype": re.compile("|".join(PRECISIONS)),
    "model": MODEL_FIELDS,
    "unit": str,
    "complete?": bool,
    "arithmetic?": str,
    "language?": str,
    "source?": str,
    "options?": dict,
    "counts?": dict,
    "corpus?": dict,
}
_DTYPES = {"I64": np.int64, "U64": np.uint64, "F16": np.float16, "F32": np.float32}

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]


def record_hash(data: Buffer) -> int:
    """Return a 64-bit hash of bytes (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def record_hashes(records: Sequence[str]) -> Hashes:
    """Return a hash of each stored record, `(n,) uint64`."""
    return np.array([record_hash(record.encode()) for record in records], np.uint64)


def sentence_hashes(sentences: Iterable[tuple[int, str]]) -> Hashes:
    """Return a hash of each sentence of a passage, from its start and its text, `(n,) uint64`.

    The sum of a passage's sentence hashes (modulo 2⁶⁴) is added to the record hash of each of its sentences.
    So a sentence's hash also changes when another sentence of the passage changes.

    :param sentences: start and text of each sentence
    """
    return record_hashes([f"{start} {text}" for start, text in sentences])


def _keys(positions: Rows, hashes: Hashes) -> Hashes:
    """Combine each position and hash into one number, `(n,) uint64`."""
    return hashes + positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def find(keys: Hashes, hashes: Hashes) -> Rows:
    """Return the place of each of `hashes` in `keys`, or −1, `(len(hashes),) int64`."""
    if not len(keys):
        return np.full(len(hashes), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys, hashes, sorter=order), len(keys) - 1)
    key_places = order[places]
    return np.where(keys[key_places] == hashes, key_places, -1).astype(np.int64)


def check_finite(vectors: npt.NDArray[Any], where: str, remedy: str | Remedy) -> None:
    """Raise an InputError that names the first vector with NaN or infinity."""
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(f"vector {row} contains NaN or infinity", where=where, remedy=remedy)


@dataclass(frozen=True, slots=True)
class VectorShard:
    """A shard of n passages.

    Holds `positions (n,) int64` in the corpus, `hashes (n,) uint64` of the stored records, and
    `vectors (n, width)` in float16 or float32.
    """

    number: int
    positions: Rows
    hashes: Hashes
    vectors: npt.NDArray[Any] | StoredRows

    stored_checksum: int | None = None
    merged: bool = False
    """Whether a merge wrote the shard. A merged shard is obsolete until a manifest names it."""
    arithmetic: str = ""
    """The runtime and the arithmetic that encoded all vectors of the shard; empty if unknown or mixed."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """`PassageEncoder.counts` for the shard's passages, if `dense encode` wrote the shard."""

    def __len__(self) -> int:
        return len(self.positions)

    def checksum(self) -> int:
        """Return the CRC-32 of positions, hashes and vectors, as stored."""
        checksum = 0
        for values in (self.positions, self.hashes, self.vectors):
            checksum = zlib.crc32(np.ascontiguousarray(values).view(np.uint8).reshape(-1).data, checksum)
        return checksum

    def check(self, path: Path) -> None:
        """Raise an InputError if the shard's checksum differs from the stored checksum.

        :param path: the shard's file, for the error
        """
        if self.stored_checksum is not None and self.checksum() != self.stored_checksum:
            raise _damaged_shard(path, "its checksum differs from the stored checksum")


def shard_path(folder: Path, number: int) -> Path:
    """Return the path of the shard with this number."""
    return folder / f"shard-{number:05d}.safetensors"


def write_shard(folder: Path, shard: VectorShard) -> None:
    """Write a shard to its file, atomically. The same shard always gives the same bytes.

    :raises InputError: a vector has NaN or infinity, for example because float16 is too small for its
        numbers.
    """
    path = shard_path(folder, shard.number)
    refuse_links(path)
    vectors = np.asarray(shard.vectors)
    largest = np.finfo(vectors.dtype).max
    advice = f"use a model whose vectors fit into {vectors.dtype} (numbers up to {largest:g})"
    check_finite(vectors, str(path), advice)
    facts: dict[str, Any] = {"number": shard.number, "first": int(shard.positions[0]), "count": len(shard)}
    facts["crc32"] = shard.checksum()
    if shard.merged:
        facts["merged"] = True
    if shard.arithmetic:
        facts["arithmetic"] = shard.arithmetic
    if shard.counts:
        facts["counts"] = dict(shard.counts)
    tensors = {"positions": shard.positions, "hashes": shard.hashes, "vectors": vectors}
    atomic_write(path, save(tensors, metadata={"shard": json.dumps(facts)}))


def open_shard(path: Path) -> VectorShard:
    """Open a shard. Its vectors stay in the file and are read on access (`StoredRows`).

    :raises InputError: the file is damaged.
    :raises StorageError: the file cannot be read, whatever its content.
    """
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > min(_LARGEST_HEADER, path.stat().st_size):
                raise ValueError("the header of the file is cut short")
            header = json.loads(stream.read(length))
        facts = json.loads(header.pop("__metadata__")["shard"])
        start = 8 + length
        end = start + _data_size(header)
        if path.stat().st_size != end:
            raise ValueError(f"the file must have {end:,} bytes, found {path.stat().st_size:,}")
        arrays = {name: _stored_rows(path, start, entry) for name, entry in header.items()}
        n_vectors, dimensions = len(arrays["vectors"]), [len(arrays[name].shape) for name in _ARRAYS]
        if dimensions != [1, 1, 2]:
            raise ValueError(
                f"positions, hashes and vectors must have 1, 1 and 2 dimensions, found {dimensions}"
            )
        if not n_vectors == facts["count"] == len(arrays["positions"]) == len(arrays["hashes"]):
            raise ValueError(f"the numbers of positions, hashes and vectors ({n_vectors}) differ")
        positions, hashes = np.array(arrays["positions"]), np.array(arrays["hashes"])
        counts = {name: int(count) for name, count in facts.get("counts", {}).items()}
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise _too_many_open_files(path) from error
        raise_if_unreadable(path, error)
        raise _damaged_shard(path, error) from error
    return VectorShard(
        facts["number"],
        positions,
        hashes,
        arrays["vectors"],
        facts.get("crc32"),
        facts.get("merged", False),
        facts.get("arithmetic", ""),
        counts,
    )


def _data_size(header: dict[str, Any]) -> int:
    """Return the total bytes of all arrays. Checks that the arrays are adjacent and match their shapes."""
    end = 0
    for entry in sorted(header.values(), key=lambda entry: tuple(entry["data_offsets"])):
        start, stop = entry["data_offsets"]
        size = math.prod(entry["shape"]) * np.dtype(_DTYPES[entry["dtype"]]).itemsize
        if min(entry["shape"], default=0) < 0 or start != end or stop != start + size:
            raise ValueError(
                f"an array must have {size:,} bytes from byte {end:,}, found {start:,} to {stop:,}"
            )
        end = stop
    return end


def _stored_rows(path: Path, start: int, entry: dict[str, Any]) -> StoredRows:
    return StoredRows(path, _DTYPES[entry["dtype"]], start + entry["data_offsets"][0], tuple(entry["shape"]))


def _too_many_open_files(path: Path) -> StorageError:
    return StorageError(
        "cannot open the file: the process or the machine has reached its limit of open files",
        where=str(path),
        remedy="raise the limit (ulimit -n 65536): every shard of vectors is a file that stays open",
    )


def _damaged_shard(path: Path, reason: object) -> InputError:
    return InputError(
        f"cannot read the shard of vectors: {reason}",
        where=str(path),
        remedy=remedy(
            "delete this file and repeat the command that wrote it: dense encode with {}, or dense index",
            Option("resume", True),
        ),
    )


def describe_vectors(
    model: ModelIdentity, width: int, precision: str, unit: str, **facts: Any
) -> dict[str, Any]:
    """Return the manifest of a folder of vectors, with further `facts`.

    :raises InputError: unknown precision.
    """
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}; known precisions: {', '.join(PRECISIONS)}")
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "model": model._asdict(),
        "width": width,
        "dtype": precision,
        "unit": unit,
        **facts,
    }


class VectorFolder:
    """A folder of shards as one table: row i is the i-th vector in the order of the shards."""

    def __init__(
        self, folder: Path, *, shards: Sequence[int] | None = None, block_size: int = 8 * SHARD_SIZE
    ) -> None:
        """Open a folder of vectors.

        :param shards: the numbers of the shards to open, in this order; None opens all shards by number
        :param block_size: number of rows that `blocks` reads at a time
        """
        self.folder, self.block_size = folder, block_size
        self.manifest = read_manifest(folder, KIND, FORMAT_VERSION, fields=FIELDS)
        check_fields(self.manifest, FIELDS, folder / "manifest.json")
        self.width = int(self.manifest["width"])
        self.dtype = np.dtype(self.manifest["dtype"])
        self.model = ModelIdentity(**self.manifest["model"])
        self.arithmetic: str = self.manifest.get("arithmetic", "")
        """The runtime and the arithmetic that encoded the first vectors; empty if unknown."""
        options = self.manifest.get("options", {})
        self.language = str(self.manifest.get("language") or options.get("language", ""))
        """A language that folds texts as the encoded texts were folded; empty if unknown."""
        files = shard_files(folder)
        paths = [files[number] for number in (files if shards is None else shards) if number in files]
        allow_open_files(len(paths))
        self.shards = [self._open_checked(path) for path in paths]
        self.paths = paths
        if shards is not None and len(paths) != len(shards):
            raise _damaged_shard(folder, f"{len(shards) - len(paths)} of {len(shards)} shards are missing")
        self.starts = np.cumsum([0, *map(len, self.shards)])
        self._stored = [shard.vectors for shard in self.shards if isinstance(shard.vectors, StoredRows)]
        self._in_memory: npt.NDArray[Any] | None = None
        self._checked: set[int] = set()
        if sum(path.stat().st_size for path in paths) <= _LARGEST_IN_MEMORY:
            self._read_into_memory()
            self.check()

    def is_like(self, manifest: Mapping[str, Any], language: str = "") -> bool:
        """Return whether the vectors have the model, width, number format, unit and folding of a manifest.

        :param language: the language of the encoded texts, if the folder names none
        """
        is_same_form = all(self.manifest[field] == manifest[field] for field in ("width", "dtype", "unit"))
        is_same_text = is_folded_alike(self.language or language, manifest.get("language", ""))
        return is_same_form and is_same_text and self.model.sha256 == manifest["model"]["sha256"]

    def _read_into_memory(self) -> None:
        empty = np.empty((0, self.width), self.dtype)
        self._in_memory = np.concatenate([empty, *map(np.asarray, self._stored)])
        bounds = zip(self.starts[:-1], self.starts[1:], strict=True)
        parts = [self._in_memory[start:end] for start, end in bounds]
        self.shards = [replace(s, vectors=part) for s, part in zip(self.shards, parts, strict=True)]
        self._stored.clear()  # closes the files

    def _open_checked(self, path: Path) -> VectorShard:
        shard = open_shard(path)
        if shard.vectors.shape[1] != self.width or shard.vectors.dtype != self.dtype:
            raise InputError(
                f"the shard has vectors of {shard.vectors.shape[1]} {shard.vectors.dtype} numbers,"
                f" but the manifest says {self.width} {self.dtype} numbers",
                where=str(path),
                remedy="delete this file and repeat the command that wrote the folder",
            )
        return shard

    def check(self) -> None:
        """Read all shards, and raise an InputError that names the first damaged shard.

        A folder that fits in memory is checked when it is opened.
        """
        for path, shard in zip(self.paths, self.shards, strict=True):
            shard.check(path)

    def check_rows(self, rows: Rows) -> None:
        """Check the shards that have these rows, each once: a copy of a damaged row would get a new checksum.

        :raises InputError: names the first damaged shard.
        """
        if self._in_memory is None:
            for place in self._places_of(rows):
                if place not in self._checked:
                    self.shards[place].check(self.paths[place])
                    self._checked.add(place)

    def _places_of(self, rows: Rows) -> list[int]:
        """Return the places in `shards` of the shards that have some rows."""
        places: list[int] = np.unique(np.searchsorted(self.starts, rows, side="right") - 1).tolist()
        return places

    def arithmetics_of(self, rows: Rows) -> set[str]:
        """Return the arithmetics of the shards of some rows; a shard without a name has an empty one."""
        return {self.shards[place].arithmetic for place in self._places_of(rows)}

    def reusable(self, arithmetic: str | None) -> Rows:
        """Return the rows of the shards that name an arithmetic, `(n,) int64`; None returns all rows.

        An empty arithmetic returns the rows of the shards that name none.
        """
        fits = [arithmetic in (None, shard.arithmetic) for shard in self.shards]
        return np.flatnonzero(np.repeat(np.array(fits, bool), np.diff(self.starts)))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the shards, in the order of their rows."""
        return tuple(shard.number for shard in self.shards)

    @cached_property
    def positions(self) -> Rows:
        """The corpus positions of all rows, `(n,) int64`."""
        return np.concatenate([np.empty(0, np.int64), *(shard.positions for shard in self.shards)])

    @cached_property
    def hashes(self) -> Hashes:
        """The hashes of all rows' stored records, `(n,) uint64`."""
        return np.concatenate([np.empty(0, np.uint64), *(shard.hashes for shard in self.shards)])

    def rows_of(self, positions: Rows, hashes: Hashes) -> Rows:
        """Return the row of each passage: the row with its position and hash, or −1."""
        return find(_keys(self.positions, self.hashes), _keys(positions, hashes))

    def take(self, rows: Rows) -> Floats:
        """Return the vectors of some rows, in the order of `rows`, `(len(rows), width) float32`."""
        if self._in_memory is not None:
            return self._in_memory[rows].astype(np.float32, copy=False)
        order = np.argsort(rows, kind="stable")
        in_order = rows[order]
        places = np.searchsorted(self.starts, in_order, side="right") - 1
        vectors = np.empty((len(rows), self.width), np.float32)
        vectors[order] = read_rows(self._stored, places, in_order - self.starts[places])
        return vectors

    def blocks(self, rows: Rows) -> Iterator[Floats]:
        """Yield the vectors of some rows as float32, `block_size` rows at a time."""
        for start in range(0, len(rows), self.block_size):
            yield self.take(rows[start : start + self.block_size])


class VectorWriter:
    """Adds shards to a folder of vectors, and creates the folder if needed. Readers may open it anytime."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.precision = folder, np.dtype(manifest["dtype"])
        folder.mkdir(parents=True, exist_ok=True)
        remove_left_overs(folder)
        self.next_number = max(shard_files(folder), default=-1) + 1
        if not self.next_number or not (folder / "manifest.json").is_file():
            write_manifest(folder, manifest)

    def add(
        self,
        positions: Rows,
        hashes: Hashes,
        vectors: npt.NDArray[Any],
        *,
        arithmetics: Collection[str] = (),
        merged: bool = False,
    ) -> Self:
        """Write the next shard, and return the writer.

        :param arithmetics: the arithmetics of the vectors; the shard stores the name if there is just one
        :param merged: the shard's rows are copies of rows in other shards
        """
        with np.errstate(over="ignore"):  # `write_shard` refuses infinity, so overflow needs no warning
            stored = np.ascontiguousarray(vectors, self.precision)
        arithmetic = next(iter(arithmetics)) if len(arithmetics) == 1 else ""
        shard = VectorShard(self.next_number, positions, hashes, stored, merged=merged, arithmetic=arithmetic)
        write_shard(self.folder, shard)
        self.next_number += 1
        return self


def open_finished(folder: Path) -> VectorFolder:
    """Open a folder of vectors that `dense encode` wrote.

    :raises InputError: the encoding is not finished, or the folder is damaged.
    """
    try:
        opened = VectorFolder(folder)
    except SpartaError as error:
        error.remedy = error.remedy or "name a folder that `dense encode` wrote"
        raise
    check_finished(folder, opened.manifest, "dense encode")
    return opened
