"""Encoded shards on disk: sparse vectors and passage records, one safetensors file per shard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from sparta.base.errors import InputError
from sparta.base.files import atomic_write, refuse_links
from sparta.base.manifest import check_fields, read_manifest, shortened
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.data.units import UNIT
from sparta.models.prune import SparseRows
from sparta.models.query_encoder import MODEL_FIELDS
from sparta.shards.folder import check_finished, shard_errors, shard_facts, shard_files

KIND = "encoded-shards"
FORMAT_VERSION, WITH_QUERY_NETWORK = 1, 2
"""The format of most shards, and of shards of a model whose network encodes queries."""
_COUNT = range(1 << 40)
_MAX_TERMS = 1 << 24
_FIELDS: dict[str, Any] = {
    "model": MODEL_FIELDS,
    "options": {"unit": UNIT, "top_k": (int, type(None)), "min_weight": (int, float), "language?": str},
    "counts": {
        "encoded": _COUNT,
        "kept": _COUNT,
        "elsewhere": _COUNT,
        "corpus": {"counts": dict, "fingerprint": {"sha256": (str, type(None))}},
    },
    "source?": str,
    "complete?": bool,
    "arithmetic?": str,
}


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """Shard `number`: the passages `first, first + 1, …` of the corpus in order, with their sparse vectors.

    `records[i]` is the JSON of passage i in the index (see `stored_record`). `windowed` counts the passages
    that were longer than one window of the model. `objects` holds the parsed records, and `contexts` the
    passages' contexts, if they are known.
    """

    number: int
    first: int
    passage_ids: tuple[str, ...]
    records: tuple[str, ...]
    rows: SparseRows
    windowed: int = 0
    objects: tuple[Mapping[str, Any], ...] = ()
    contexts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.passage_ids)

    def facts(self) -> dict[str, Any]:
        """Return the description of the shard for its metadata, which can be read without the vectors."""
        return {
            "number": self.number,
            "first": self.first,
            "count": len(self),
            "terms": len(self.rows.term_ids),
            "without_terms": int((np.diff(self.rows.indptr) == 0).sum()),
            "windowed": self.windowed,
            "passages": passages_hash(self.records),
            "weights": _weights_hash(self.rows),
        }


def stored_record(passage: Passage) -> str:
    """Return a passage's JSON for the index."""
    return json.dumps(stored_object(passage), ensure_ascii=False)


def stored_object(passage: Passage) -> dict[str, Any]:
    """Return a passage's record for the index: the corpus record, always with `id`, `title` and `contents`.

    `contents` holds the text, where Pyserini's tools expect it. A `vector` field of Pyserini is dropped.
    """
    record: dict[str, Any] = {"id": passage.passage_id, "title": passage.title, "contents": passage.text}
    record.update(
        {name: value for name, value in passage.record.items() if name not in {"_id", "text", *record}}
    )
    if _is_vector(record.get("vector")):
        del record["vector"]
    return record


def _is_vector(value: object) -> bool:
    """Return whether a field is a vector: terms with weights, as in JSON vectors, or a list of numbers."""
    if not isinstance(value, dict | list):
        return False
    numbers = value.values() if isinstance(value, dict) else value
    return all(isinstance(number, int | float) for number in numbers)


def passages_hash(records: Sequence[str]) -> str:
    """Return a hash of the passages in a shard: ids, texts and all other fields."""
    return hashlib.sha256("\n".join(records).encode()).hexdigest()[:16]


def _weights_hash(rows: SparseRows) -> str:
    """Return a hash of the vectors in a shard, which depend on the number format."""
    digest = hashlib.sha256()
    for values in (rows.indptr.astype("<i8"), rows.term_ids.astype("<i4"), rows.weights.astype("<f4")):
        digest.update(values.tobytes())
    return digest.hexdigest()[:16]


def shard_path(folder: Path, number: int) -> Path:
    """Return the path of shard `number`."""
    return folder / f"shard-{number:06d}.safetensors"


def write_shard(folder: Path, shard: EncodedShard) -> None:
    """Write a shard atomically. The same shard always gives the same bytes."""
    id_type = np.uint16 if not shard.rows.term_ids.size or shard.rows.term_ids.max() < 2**16 else np.uint32
    tensors = {
        "indptr": shard.rows.indptr,
        "term_ids": shard.rows.term_ids.astype(id_type),
        "weights": shard.rows.weights,
        "records": np.frombuffer("\n".join(shard.records).encode(), dtype=np.uint8),
    }
    metadata = {"shard": json.dumps(shard.facts())}
    path = shard_path(folder, shard.number)
    refuse_links(path)
    atomic_write(path, save(tensors, metadata=metadata))


def read_shard(path: Path) -> EncodedShard:
    """Read a shard.

    :raises InputError: the shard is damaged.
    """
    with shard_errors(path):
        with safe_open(str(path), framework="np") as stored:
            facts = json.loads(stored.metadata()["shard"])
            indptr, term_ids, weights, raw = (
                stored.get_tensor(record_id) for record_id in ("indptr", "term_ids", "weights", "records")
            )
        records = tuple(raw.tobytes().decode().split("\n")) if facts["count"] else ()
        record_ids = [json.loads(record)["id"] for record in records]
        if wrong_ids := [record_id for record_id in record_ids if type(record_id) not in (str, int)]:
            raise ValueError(f"passage ids must be strings or integers, found {shortened(wrong_ids[0])}")
        ids = tuple(map(str, record_ids))
    with shard_errors(path):
        _check_rows(indptr, term_ids, weights, len(records))
    rows = SparseRows(indptr, term_ids.astype(np.int32), weights)
    with shard_errors(path):
        if (facts["weights"], facts["passages"]) != (_weights_hash(rows), passages_hash(records)):
            raise ValueError("the vectors or records were changed: their hashes differ")
    return EncodedShard(facts["number"], facts["first"], ids, records, rows, facts["windowed"])


def _check_rows(indptr: np.ndarray, term_ids: np.ndarray, weights: np.ndarray, passage_count: int) -> None:
    """Check that the arrays are sparse vectors of `passage_count` passages.

    :raises ValueError: an array has a wrong type, shape or value.
    """
    if (indptr.ndim, term_ids.ndim, weights.ndim) != (1, 1, 1) or weights.dtype != np.float32:
        raise ValueError("the arrays must have one dimension, and the weights must be float32")
    if term_ids.dtype not in (np.uint16, np.uint32) or indptr.dtype.kind not in "iu":
        raise ValueError(
            f"term ids and offsets must be whole numbers, found {term_ids.dtype} and {indptr.dtype}"
        )
    lengths_fit = (
        len(indptr) == passage_count + 1 and indptr[0] == 0 and indptr[-1] == len(term_ids) == len(weights)
    )
    if not lengths_fit or (np.diff(indptr.astype(np.int64)) < 0).any():
        raise ValueError(f"the lengths of the arrays do not fit {passage_count:,} passages")
    if term_ids.max(initial=0) >= _MAX_TERMS:
        raise ValueError(f"term ids must be below {_MAX_TERMS:,}, found {term_ids.max():,}")


class ShardFolder:
    """A finished folder of shards. Iterating yields the shards in corpus order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder, KIND, WITH_QUERY_NETWORK, fields=_FIELDS)
        check_finished(folder, self.manifest, "sparta encode")
        check_fields(self.manifest, _FIELDS, folder / "manifest.json")

    @property
    def passages(self) -> int:
        """The number of passages of the corpus, here and on other machines."""
        counts = self.manifest["counts"]
        return int(counts["encoded"] + counts["kept"] + counts["elsewhere"])

    def __iter__(self) -> Iterator[EncodedShard]:
        for path in shard_files(self.folder).values():
            yield read_shard(path)


def read_shards(folders: Iterable[Path]) -> Iterator[EncodedShard]:
    """Yield the shards of several folders (one per machine) in corpus order."""
    for path, _ in shard_series(folders):
        yield read_shard(path)


def shard_series(folders: Iterable[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """Return paths and facts of the shards in several folders, in corpus order.

    :raises InputError: a shard is missing.
    """
    shard_folders = [ShardFolder(folder) for folder in folders]
    path_by_number = {
        number: path
        for shard_folder in shard_folders
        for number, path in shard_files(shard_folder.folder).items()
    }
    series = [(path, shard_facts(path)) for _, path in sorted(path_by_number.items())]
    _check_whole(series, shard_folders[0].passages, str(shard_folders[0].folder))
    return series


def last_passage_id(path: Path) -> str:
    """Return the id of a shard's last passage, without reading its vectors."""
    with shard_errors(path), safe_open(str(path), framework="np") as stored:
        record = stored.get_tensor("records").tobytes().rpartition(b"\n")[2]
        return str(json.loads(record)["id"])


def _check_whole(series: Sequence[tuple[Path, dict[str, Any]]], passages: int, where: str) -> None:
    """Check that the shards cover all passages of the corpus.

    :raises InputError: there is a gap.
    """
    position = 0
    for path, facts in series:
        if facts["first"] != position:
            where = str(path)
            break
        position += facts["count"]
    if position != passages:
        raise InputError(
            f"the shards lack passages: the corpus has {passages}, but a gap follows the first {position}",
            where=where,
            remedy=remedy(
                "name the output folders of all machines that encoded the corpus;"
                " if files are missing, repeat the sparta encode command with {}",
                Option("resume", True),
            ),
        )
