"""manifest.json: what a folder holds, and how it was made."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparta.base.errors import IndexStateError, NewerFormatError
from sparta.base.files import atomic_write, disk_fails, refuse_links, storage_error
from sparta.base.remedies import Remedy

MANIFEST_NAME = "manifest.json"
_CHECKSUM = "checksum"
"""Of all that a manifest says, so that a flipped byte is told; one that is edited loses this line."""


def write_manifest(folder: str | Path, manifest: Mapping[str, Any]) -> None:
    """Replace the folder's manifest, atomically. It must name its `kind` and `format_version`."""
    missing = {"kind", "format_version"} - manifest.keys()
    if missing:
        raise ValueError(f"a manifest needs {' and '.join(sorted(missing))}")
    read_back = json.loads(json.dumps(manifest, allow_nan=False))
    read_back.pop(_CHECKSUM, None)
    read_back[_CHECKSUM] = _checksum(read_back)
    text = json.dumps(read_back, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path = Path(folder) / MANIFEST_NAME
    refuse_links(path)
    atomic_write(path, f"{text}\n".encode())


def read_manifest(
    folder: str | Path, kind: str, newest_version: int, content: bytes | None = None
) -> dict[str, Any]:
    """Return the manifest of a folder of this kind, in a format that this version of sparta understands.

    A missing or broken manifest, another kind, a format newer than `newest_version`, or another checksum than
    its own is an IndexStateError.

    :param content: the file's content, where it was read before
    """
    path = Path(folder) / MANIFEST_NAME
    refuse_links(path)
    manifest = _parsed(path, kind, content)
    if manifest.get("kind") != kind:
        raise IndexStateError(
            f"expected a folder of kind {kind!r}, found kind {manifest.get('kind')!r}",
            where=str(path),
            remedy="give the folder that was meant",
        )
    found = manifest.get("format_version")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise _unusable(path, f"expected a format_version from 1 to {newest_version}, found {found!r}")
    if found > newest_version:
        raise NewerFormatError(
            f"format version {found} is newer than the newest that this sparta reads, {newest_version}",
            where=str(path),
            remedy="upgrade sparta, or rebuild the folder with this version",
        )
    stored = manifest.pop(_CHECKSUM, None)  # older manifests have none
    if stored is not None and stored != _checksum(manifest):
        raise _unusable(path, f"its checksum is not the one that was written, {stored}")
    return manifest


Shape = type | tuple[type, ...] | range | re.Pattern[str] | Mapping[str, Any]
"""What a field may hold: values of a type, whole numbers of a range, text of a form, an object's fields."""


def check_fields(
    found: object, fields: Mapping[str, Shape], path: Path, remedy: str | Remedy = "", name: str = ""
) -> None:
    """Refuse an object of a manifest whose fields are missing or hold something else than they may.

    Fields that `fields` does not name may hold anything. A name that ends in `?` may be missing.

    :param name: of the object within the manifest, for the message
    :raises IndexStateError: it names the first such field.
    """
    if not isinstance(found, Mapping):
        raise _wrong_field(name or "the manifest", "an object", found, path, remedy)
    for key, shape in fields.items():
        field = key.rstrip("?")
        inner = f"{name}.{field}" if name else field
        if field not in found:
            if field == key:
                raise _unusable(path, f"expected the field {inner}, found none", remedy)
        elif isinstance(shape, Mapping):
            check_fields(found[field], shape, path, remedy, inner)
        elif not _fits(found[field], shape):
            raise _wrong_field(inner, _shown(shape), found[field], path, remedy)


def _fits(value: object, shape: type | tuple[type, ...] | range | re.Pattern[str]) -> bool:
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    if isinstance(shape, range):
        return type(value) is int and value in shape
    kinds = shape if isinstance(shape, tuple) else (shape,)
    return type(value) in kinds  # a bool is no number here


def _shown(shape: type | tuple[type, ...] | range | re.Pattern[str]) -> str:
    if isinstance(shape, re.Pattern):
        return f"text of the form {shape.pattern}"
    if isinstance(shape, range):
        return f"a whole number from {shape.start} to {shape.stop - 1}"
    kinds = shape if isinstance(shape, tuple) else (shape,)
    return " or ".join(kind.__name__ for kind in kinds)


def _wrong_field(
    name: str, expected: str, found: object, path: Path, remedy: str | Remedy
) -> IndexStateError:
    return _unusable(path, f"expected {expected} as {name}, found {shortened(found)}", remedy)


def shortened(value: object) -> str:
    """The first characters of a value, for messages."""
    shown = ascii(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def _checksum(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parsed(path: Path, kind: str, content: bytes | None) -> dict[str, Any]:
    try:
        manifest = json.loads((path.read_bytes() if content is None else content).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise IndexStateError(
            f"no such file: expected the manifest of a folder of kind {kind!r}",
            where=str(path),
            remedy="check the path, or make the folder first",
        ) from error
    except OSError as error:
        if disk_fails(error):
            raise storage_error(path, error) from error
        raise _unusable(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"expected JSON, found: {error}") from error
    if not isinstance(manifest, dict):
        raise _unusable(path, f"expected a JSON object, found a {type(manifest).__name__}")
    return manifest


def _unusable(path: Path, message: str, remedy: str | Remedy = "") -> IndexStateError:
    remedy = remedy or "rebuild the folder, or restore it from a copy"
    return IndexStateError(message, where=str(path), remedy=remedy)
