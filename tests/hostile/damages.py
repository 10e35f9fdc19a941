"""Ways to damage files: each is a function of the folder that holds copies of the originals."""

from __future__ import annotations

import gzip
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Damage = Callable[[Path], object]
DEEP = "[" * 200_000


def edited(name: str, **changes: Any) -> Damage:
    """Change fields of a JSON file, `a__b` inside a; a manifest loses its checksum."""

    def damage(folder: Path) -> None:
        path = folder / name
        whole = json.loads(path.read_text())
        whole.pop("checksum", None)
        for place, value in changes.items():
            *above, last = place.split("__")
            part = whole
            for key in above:
                part = part[key]
            if value is ...:
                del part[last]
            else:
                part[last] = value
        path.write_text(json.dumps(whole))

    return damage


def replaced(name: str, data: bytes | str) -> Damage:
    """Put other bytes in place of a file."""
    return lambda folder: (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def link(name: str) -> Damage:
    """Move a file or folder out of the index and put a symbolic link in its place."""

    def damage(folder: Path) -> None:
        (folder / name).rename(folder / "outside" / Path(name).name)
        (folder / name).symlink_to(folder / "outside" / Path(name).name)

    return damage


def planted(name: str) -> Damage:
    """A symbolic link to a file outside, where the next write would put a file."""
    return lambda folder: (folder / name).symlink_to(folder / "outside" / "precious")


def planted_shard(folder: Path) -> None:
    (folder / "vectors/shard-00000.safetensors").unlink()
    planted("vectors/shard-00000.safetensors")(folder)


def unchecked(damage: Damage) -> Damage:
    """The same, with a dense manifest that has no checksums of files, as older ones have none."""

    def both(folder: Path) -> None:
        edited(f"{CHANNEL}/manifest.json", crc32={})(folder)
        damage(folder)

    return both


CHANNEL = "index/dense-000001"
STORE = f"{CHANNEL}/vectors-000001"
SHARD = f"{STORE}/shard-00000.safetensors"


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def claim(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def vector_shard(rows: int, width: int = 32, data: bytes = b"", **changes: object) -> bytes:
    """A shard of vectors that claims rows without bytes."""
    facts = {"shard": json.dumps({"number": 0, "first": 0, "count": rows})}
    header = {
        "__metadata__": facts,
        "positions": claim("I64", [rows], 0, 0),
        "hashes": claim("U64", [rows], 0, 0),
        "vectors": claim("F16", [rows, width], 0, 0),
    }
    return safetensors({**header, **changes}, data)


def npy(text: str, data: bytes = b"", version: int = 1) -> bytes:
    head = text.encode() + b"\n"
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(head))
        + head
        + data
    )


def npy_of(n: str, descr: str = "'<i8'") -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': ({n},), }}", bytes(320))


def rows(*numbers: int) -> Damage:
    def damage(folder: Path) -> None:
        stored = np.zeros(40, np.int64)
        stored[: len(numbers)] = numbers
        np.save(folder / CHANNEL / "rows-000001.npy", stored)

    return damage


def faiss_claims(number: int) -> Damage:
    """Let the first array of the FAISS file claim so many entries."""

    def damage(folder: Path) -> None:
        path = folder / CHANNEL / "search-000001.faiss"
        data = bytearray(path.read_bytes())
        data[37:45] = struct.pack("<q", number)
        path.write_bytes(bytes(data))

    return damage


def faiss_vectors(number: int) -> Damage:
    """Let the FAISS file claim so many vectors."""

    def damage(folder: Path) -> None:
        path = folder / CHANNEL / "search-000001.faiss"
        data = bytearray(path.read_bytes())
        data[8:16] = struct.pack("<q", number)
        path.write_bytes(bytes(data))

    return damage


def other_faiss(folder: Path) -> None:
    import faiss

    index = faiss.IndexFlatIP(32)
    index.add(np.zeros((40, 32), np.float32))
    faiss.write_index(index, str(folder / CHANNEL / "search-000001.faiss"))


def cut(name: str, share: float = 0.5) -> Damage:
    def damage(folder: Path) -> None:
        path = next(folder.glob(name))
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return damage


def overwritten(name: str, at: int, data: bytes) -> Damage:
    def damage(folder: Path) -> None:
        path = next(folder.glob(name))
        whole = bytearray(path.read_bytes())
        at_ = at % len(whole)
        whole[at_ : at_ + len(data)] = data
        path.write_bytes(bytes(whole))

    return damage


def high_number(folder: Path, model: str) -> None:
    """A tokenizer one of whose wordpieces has the number 2³¹."""
    path = folder / model / "tokenizer.json"
    whole = json.loads(path.read_text())
    whole["model"]["vocab"]["moon"] = 2**31
    path.write_text(json.dumps(whole))


def gz(size: int, begin: bytes = b'{"id": "a", "text": "', fill: bytes = b"a") -> bytes:
    """A gzip file of one long record; made in blocks, of which each is the same member."""
    block = gzip.compress(fill * (1 << 24), 9)
    return gzip.compress(begin) + block * math.ceil(size / (1 << 24))


class Command:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch outside/owned",)


def torch_file(entries: dict[str, bytes]) -> Damage:
    def damage(folder: Path) -> None:
        with zipfile.ZipFile(folder / "model.bin", "w", zipfile.ZIP_DEFLATED) as stored:
            for name, data in entries.items():
                stored.writestr(f"archive/{name}", data)

    return damage


def records_of(change: Callable[[list[dict[str, Any]]], object]) -> Damage:
    """Change the records of an encoded shard, whose hashes are made anew."""

    def damage(folder: Path) -> None:
        from safetensors import safe_open
        from safetensors.numpy import save_file

        from sparta.shards.store import passages_hash

        path = folder / "shards" / "shard-000000.safetensors"
        with safe_open(str(path), framework="np") as stored:
            facts = json.loads(stored.metadata()["shard"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        records = [json.loads(line) for line in tensors["records"].tobytes().decode().split("\n")]
        change(records)
        lines = [json.dumps(record) for record in records]
        facts["passages"] = passages_hash(lines)
        tensors["records"] = np.frombuffer("\n".join(lines).encode(), np.uint8)
        save_file(tensors, path, {"shard": json.dumps(facts)})

    return damage


def tensor_of(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    """Change a tensor of an encoded shard."""

    def damage(folder: Path) -> None:
        from safetensors import safe_open
        from safetensors.numpy import save_file

        path = folder / "shards" / "shard-000000.safetensors"
        with safe_open(str(path), framework="np") as stored:
            metadata = stored.metadata()
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
        tensors[name] = change(tensors[name])
        save_file(tensors, path, metadata)

    return damage


def new_id(number: int, passage_id: object) -> Damage:
    return records_of(lambda records: records[number].update(id=passage_id))


def last(numbers: np.ndarray, value: int) -> np.ndarray:
    changed = numbers.astype(np.uint32 if numbers.dtype.kind == "u" else numbers.dtype).copy()
    changed[-1] = value
    return changed
