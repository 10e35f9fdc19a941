"""manifest.json: describes a folder's content and how it was made."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparta.base.errors import IndexStateError, NewerFormatError
from sparta.base.files import atomic_write, raise_if_unreadable, refuse_links
from sparta.base.remedies import Remedy

MANIFEST_NAME = "manifest.json"
INDEX_KIND = "sparta-index"
_LARGEST_MANIFEST = 16 << 20
_CHECKSUM = "checksum"
"""The field with the checksum of all other fields.

Whoever edits a manifest by hand must delete this field.
"""


def write_manifest(folder: str | Path, manifest: Mapping[str, Any]) -> None:
    """Replace the folder's manifest atomically.

    The manifest must have the fields `kind` and `format_version`.
    """
    missing = {"kind", "format_version"} - manifest.keys()
    if missing:
        raise ValueError(f"the manifest needs the fields {' and '.join(sorted(missing))}")
    content = json.loads(json.dumps(manifest, allow_nan=False))
    content.pop(_CHECKSUM, None)
    content[_CHECKSUM] = _checksum(content)
    path = Path(folder) / MANIFEST_NAME
    refuse_links(path)
    atomic_write(path, f"{_json(content, indent=2)}\n".encode())


def _json(content: Mapping[str, Any], **form: Any) -> str:
    """Return sorted JSON. A path that is not UTF-8 needs escapes."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False, **form)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(content, sort_keys=True, allow_nan=False, **form)
    return text


def is_index(folder: Path) -> bool:
    """Return whether the manifest of a folder says that the folder is an index.

    The folder may be anyone's: its `manifest.json` may be a pipe, or a large file of another program.
    """
    path = folder / MANIFEST_NAME
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_MANIFEST:
            return False
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("kind") == INDEX_KIND


def read_manifest(
    folder: str | Path,
    kind: str,
    newest_version: int,
    content: bytes | None = None,
    *,
    fields: Mapping[str, Shape] | None = None,
) -> dict[str, Any]:
    """Return the manifest of a folder.

    Manifests of older releases have no checksum. They cannot have a field that this release does not know, so
    such a field is damage: perhaps the name of the checksum itself was changed.

    :param kind: the expected kind of folder
    :param newest_version: the newest format version that this release reads
    :param content: the manifest's bytes, if already read
    :param fields: all fields of this kind of manifest, as in `check_fields`; None accepts every field
    :raises IndexStateError: the manifest is missing or broken, has a wrong checksum, names another kind, or
        has neither a checksum nor only known fields.
    :raises StorageError: the manifest cannot be read, whatever its content.
    :raises NewerFormatError: the manifest's format version is above `newest_version`.
    """
    path = Path(folder) / MANIFEST_NAME
    refuse_links(path)
    manifest = _parsed(path, kind, content)
    if manifest.get("kind") != kind:
        raise IndexStateError(
            f"the folder has the kind {manifest.get('kind')!r}, not {kind!r} (see its manifest)",
            where=str(path),
            remedy=f"give the path of a folder of kind {kind!r}",
        )
    version = manifest.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise _unusable(path, f"expected a format_version from 1 to {newest_version}, found {version!r}")
    if version > newest_version:
        raise NewerFormatError(
            f"format version {version} is newer than this sparta can read (up to {newest_version})",
            where=str(path),
            remedy="upgrade sparta, or rebuild the folder with this release",
        )
    checksum = manifest.pop(_CHECKSUM, None)
    if checksum is None:
        if fields is not None:
            _refuse_unknown(manifest, {"kind": str, "format_version": int, **fields}, path)
    elif checksum != _checksum(manifest):
        raise _unusable(
            path, f"the manifest was changed: its content does not match its checksum, {checksum}"
        )
    return manifest


Shape = type | tuple[type, ...] | range | re.Pattern[str] | Mapping[str, Any]
"""A field's allowed values: types, a range of integers, a pattern of strings, or an object's fields."""


def check_fields(
    section: object,
    fields: Mapping[str, Shape],
    path: Path,
    remedy: str | Remedy = "",
    name: str = "",
    *,
    closed: bool = False,
) -> None:
    """Check the fields of a manifest object against their expected shapes.

    A name that ends in `?` is optional.

    :param section: the object to check
    :param name: the object's name within the manifest, for the error message
    :param closed: whether to refuse fields that `fields` does not name; otherwise they may hold anything
    :raises IndexStateError: a field is missing, unknown or wrong; the error names the first such field.
    """
    if not isinstance(section, Mapping):
        raise _wrong_field(name or "the manifest", "an object", section, path, remedy)
    for key, shape in fields.items():
        field = key.rstrip("?")
        inner = f"{name}.{field}" if name else field
        if field not in section:
            if field == key:
                raise _unusable(path, f"expected the field {inner}, found none", remedy)
        elif isinstance(shape, Mapping):
            check_fields(section[field], shape, path, remedy, inner, closed=closed)
        elif not _fits(section[field], shape):
            raise _wrong_field(inner, _description_of(shape), section[field], path, remedy)
    if closed:
        _refuse_unknown(section, fields, path, remedy, name)


def _refuse_unknown(
    section: Mapping[str, Any],
    fields: Mapping[str, Shape],
    path: Path,
    remedy: str | Remedy = "",
    name: str = "",
) -> None:
    if unknown := section.keys() - {key.rstrip("?") for key in fields}:
        first = f"{name}.{min(unknown)}" if name else min(unknown)
        raise _unusable(path, f"the manifest has an unknown field: {first}", remedy)


def _fits(value: object, shape: type | tuple[type, ...] | range | re.Pattern[str]) -> bool:
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    if isinstance(shape, range):
        return type(value) is int and value in shape
    kinds = shape if isinstance(shape, tuple) else (shape,)
    return type(value) in kinds  # not isinstance, which accepts booleans as integers


def _description_of(shape: type | tuple[type, ...] | range | re.Pattern[str]) -> str:
    if isinstance(shape, re.Pattern):
        return f"a string that matches {shape.pattern}"
    if isinstance(shape, range):
        return f"a whole number from {shape.start} to {shape.stop - 1}"
    kinds = shape if isinstance(shape, tuple) else (shape,)
    return " or ".join(kind.__name__ for kind in kinds)


def _wrong_field(
    name: str, expected: str, value: object, path: Path, remedy: str | Remedy
) -> IndexStateError:
    return _unusable(path, f"expected {expected} as {name}, found {shortened(value)}", remedy)


def shortened(value: object) -> str:
    """Return the first 40 characters of a value at most, for messages."""
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
            f"no such file: the folder has no manifest of the kind {kind!r}",
            where=str(path),
            remedy="check the path, or run the command that writes this folder first",
        ) from error
    except OSError as error:
        raise_if_unreadable(path, error)
        raise _unusable(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"expected JSON, found: {error}") from error
    if not isinstance(manifest, dict):
        raise _unusable(path, f"expected a JSON object, found a {type(manifest).__name__}")
    return manifest


def _unusable(path: Path, message: str, remedy: str | Remedy = "") -> IndexStateError:
    remedy = remedy or "rebuild the folder, or restore it from a copy"
    return IndexStateError(message, where=str(path), remedy=remedy)
