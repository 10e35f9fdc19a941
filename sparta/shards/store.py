"""Encoded shards on disk: sparse vectors and the records they belong to, one safetensors file each."""

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
from sparta.data.units import UNIT
from sparta.models.prune import SparseRows
from sparta.models.query_encoder import MODEL_FIELDS
from sparta.shards.folder import check_finished, reading_shard, shard_facts, shard_files

KIND = "encoded-shards"
FORMAT_VERSION = 1
_COUNT = range(1 << 40)
_MOST_TERMS = 1 << 24
_FIELDS: dict[str, Any] = {
    "model": MODEL_FIELDS,
    "options": {"unit": UNIT, "top_k": (int, type(None)), "min_weight": (int, float), "language?": str},
    "counts": {
        "encoded": _COUNT,
        "kept": _COUNT,
        "elsewhere": _COUNT,
        "corpus": {"counts": dict, "fingerprint": {"sha256": (str, type(None))}},
    },
}


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """Shard `number`: passages `first, first + 1, …` of the corpus, in its order, with their sparse vectors.

    `records[i]` is the JSON of passage i as the index stores it: see `stored_record`. `windowed` counts the
    passages that were longer than the model reads at once. `objects` is what the records say, where that is
    known without parsing them.
    """

    number: int
    first: int
    passage_ids: tuple[str, ...]
    records: tuple[str, ...]
    rows: SparseRows
    windowed: int = 0
    objects: tuple[Mapping[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.passage_ids)

    def facts(self) -> dict[str, Any]:
        """What can be known of a shard without reading its vectors."""
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
    """Return the JSON that the index keeps of a passage."""
    return json.dumps(stored_object(passage), ensure_ascii=False)


def stored_object(passage: Passage) -> dict[str, Any]:
    """Return what the index keeps: what the corpus held, with `id`, `title` and `contents` always there.

    `contents` is where Pyserini's tools look for the text. A `vector` of Pyserini's is left out.
    """
    record: dict[str, Any] = {"id": passage.passage_id, "title": passage.title, "contents": passage.text}
    record.update({k: v for k, v in passage.record.items() if k not in {"_id", "text", *record}})
    if _is_vector(record.get("vector")):
        del record["vector"]
    return record


def _is_vector(value: object) -> bool:
    """Whether a field is a vector: terms with weights, as JSON vectors have it, or a list of numbers."""
    if not isinstance(value, dict | list):
        return False
    numbers = value.values() if isinstance(value, dict) else value
    return all(isinstance(one, int | float) for one in numbers)


def passages_hash(records: Sequence[str]) -> str:
    """A fingerprint of the passages in a shard: ids, texts and all else that the corpus says of them."""
    return hashlib.sha256("\n".join(records).encode()).hexdigest()[:16]


def _weights_hash(rows: SparseRows) -> str:
    """A fingerprint of the vectors in a shard: the same passages in another arithmetic have another."""
    digest = hashlib.sha256()
    for values in (rows.indptr.astype("<i8"), rows.term_ids.astype("<i4"), rows.weights.astype("<f4")):
        digest.update(values.tobytes())
    return digest.hexdigest()[:16]


def shard_path(folder: Path, number: int) -> Path:
    """Where shard `number` lies."""
    return folder / f"shard-{number:06d}.safetensors"


def write_shard(folder: Path, shard: EncodedShard) -> None:
    """Write one shard; it is there whole or not at all. The same shard always gives the same bytes."""
    ids = np.uint16 if not shard.rows.term_ids.size or shard.rows.term_ids.max() < 2**16 else np.uint32
    tensors = {
        "indptr": shard.rows.indptr,
        "term_ids": shard.rows.term_ids.astype(ids),
        "weights": shard.rows.weights,
        "records": np.frombuffer("\n".join(shard.records).encode(), dtype=np.uint8),
    }
    metadata = {"shard": json.dumps(shard.facts())}
    path = shard_path(folder, shard.number)
    refuse_links(path)
    atomic_write(path, save(tensors, metadata=metadata))


def read_shard(path: Path) -> EncodedShard:
    """Read one shard."""
    with reading_shard(path):
        with safe_open(str(path), framework="np") as stored:
            facts = json.loads(stored.metadata()["shard"])
            indptr, term_ids, weights, raw = (
                stored.get_tensor(name) for name in ("indptr", "term_ids", "weights", "records")
            )
        records = tuple(raw.tobytes().decode().split("\n")) if facts["count"] else ()
        named = [json.loads(record)["id"] for record in records]
        if wrong := [name for name in named if type(name) not in (str, int)]:
            raise ValueError(f"expected ids of text, found {shortened(wrong[0])}")
        ids = tuple(map(str, named))
    with reading_shard(path):
        _check_rows(indptr, term_ids, weights, len(records))
    rows = SparseRows(indptr, term_ids.astype(np.int32), weights)
    with reading_shard(path):
        if (facts["weights"], facts["passages"]) != (_weights_hash(rows), passages_hash(records)):
            raise ValueError("its vectors or records are not those that were written")
    return EncodedShard(facts["number"], facts["first"], ids, records, rows, facts["windowed"])


def _check_rows(indptr: np.ndarray, term_ids: np.ndarray, weights: np.ndarray, n: int) -> None:
    """Refuse arrays that are no sparse vectors of n passages."""
    if (indptr.ndim, term_ids.ndim, weights.ndim) != (1, 1, 1) or weights.dtype != np.float32:
        raise ValueError("expected arrays of one dimension, and weights of float32")
    if term_ids.dtype not in (np.uint16, np.uint32) or indptr.dtype.kind not in "iu":
        raise ValueError(f"expected whole numbers, found {term_ids.dtype} and {indptr.dtype}")
    whole = len(indptr) == n + 1 and indptr[0] == 0 and indptr[-1] == len(term_ids) == len(weights)
    if not whole or (np.diff(indptr.astype(np.int64)) < 0).any():
        raise ValueError(f"expected the vectors of {n:,} passages, found other numbers of them")
    if term_ids.max(initial=0) >= _MOST_TERMS:
        raise ValueError(f"expected terms below {_MOST_TERMS:,}, found the number {term_ids.max():,}")


class ShardFolder:
    """A finished folder of shards, read in corpus order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder, KIND, FORMAT_VERSION)
        check_finished(folder, self.manifest, "sparta encode")
        check_fields(self.manifest, _FIELDS, folder / "manifest.json")

    @property
    def passages(self) -> int:
        """How many passages the corpus has, here and on other machines."""
        counts = self.manifest["counts"]
        return int(counts["encoded"] + counts["kept"] + counts["elsewhere"])

    def __iter__(self) -> Iterator[EncodedShard]:
        for path in shard_files(self.folder).values():
            yield read_shard(path)


def read_shards(folders: Iterable[Path]) -> Iterator[EncodedShard]:
    """The shards of several folders (one for each machine), in the corpus's order."""
    for path, _ in shard_series(folders):
        yield read_shard(path)


def shard_series(folders: Iterable[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """Return files and facts of the shards of several folders, in the corpus's order; none is missing."""
    opened = [ShardFolder(folder) for folder in folders]
    numbered = {number: path for f in opened for number, path in shard_files(f.folder).items()}
    series = [(path, shard_facts(path)) for _, path in sorted(numbered.items())]
    _check_whole(series, opened[0].passages, str(opened[0].folder))
    return series


def last_passage_id(path: Path) -> str:
    """Return the id of a shard's last passage, without reading its vectors."""
    with reading_shard(path), safe_open(str(path), framework="np") as stored:
        record = stored.get_tensor("records").tobytes().rpartition(b"\n")[2]
        return str(json.loads(record)["id"])


def _check_whole(series: Sequence[tuple[Path, dict[str, Any]]], passages: int, where: str) -> None:
    """Refuse shards that leave out some of the corpus's passages."""
    position = 0
    for path, facts in series:
        if facts["first"] != position:
            where = str(path)
            break
        position += facts["count"]
    if position != passages:
        raise InputError(
            f"expected all {passages} passages of the corpus, found a gap after the first {position}",
            where=where,
            remedy="name the folders of all the machines that shared the corpus",
        )
