"""A reader refuses what it does not understand, and says what to do."""

import os
import re
from pathlib import Path

import pytest

from sparta.base.errors import IndexStateError
from sparta.base.manifest import INDEX_KIND, is_index, read_manifest, write_manifest

GOOD = {"kind": "vectors", "format_version": 2, "b": "ä", "a": {"d": 1, "c": [1.5, None]}}


def test_a_manifest_reads_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, GOOD)
    assert read_manifest(tmp_path, "vectors", 2) == GOOD
    assert read_manifest(tmp_path, "vectors", 3) == GOOD
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest.json"]


def test_it_is_text_for_people_and_diffs(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"kind": "vectors", "format_version": 1, "a": "ä"})
    expected = '{\n  "a": "ä",\n  "checksum": "CRC",\n  "format_version": 1,\n  "kind": "vectors"\n}\n'
    written = (tmp_path / "manifest.json").read_text(encoding="utf-8")
    assert re.sub(r"[0-9a-f]{16}", "CRC", written) == expected


def test_whatever_is_changed_is_told(tmp_path: Path) -> None:
    """Also in fields that only people read; a manifest without a checksum, older or edited, is read."""
    write_manifest(tmp_path, {**GOOD, "numbers": {10: "x", 9: "y"}})
    path = tmp_path / "manifest.json"
    whole = path.read_text(encoding="utf-8")
    read_manifest(tmp_path, "vectors", 2)
    path.write_text(whole.replace("1.5", "1.7"), encoding="utf-8")
    with pytest.raises(IndexStateError, match="checksum"):
        read_manifest(tmp_path, "vectors", 2)
    without = "".join(line for line in whole.splitlines(keepends=True) if '"checksum"' not in line)
    path.write_text(without.replace("1.5", "1.7"), encoding="utf-8")
    found = read_manifest(tmp_path, "vectors", 2)
    assert found["a"] == {"c": [1.7, None], "d": 1}
    write_manifest(tmp_path, {**found, "checksum": "of before"})
    assert read_manifest(tmp_path, "vectors", 2) == found


def test_a_foreign_manifest_is_not_read(tmp_path: Path) -> None:
    """A corpus folder may have any file of this name in a subfolder: also a pipe, or a file of any size."""
    write_manifest(tmp_path, {"kind": INDEX_KIND, "format_version": 1})
    assert is_index(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text() + " " * (16 << 20))
    assert not is_index(tmp_path)
    path.unlink()
    assert not is_index(tmp_path)
    os.mkfifo(path)
    assert not is_index(tmp_path)


def test_a_failed_write_leaves_the_old_one(tmp_path: Path) -> None:
    write_manifest(tmp_path, GOOD)
    with pytest.raises(ValueError, match="float"):
        write_manifest(tmp_path, {**GOOD, "bad": float("nan")})
    with pytest.raises(ValueError, match="kind"):
        write_manifest(tmp_path, {"format_version": 1})
    assert read_manifest(tmp_path, "vectors", 2) == GOOD


def test_a_newer_format_names_both_versions_and_the_remedy(tmp_path: Path) -> None:
    write_manifest(tmp_path, {**GOOD, "format_version": 7})
    with pytest.raises(IndexStateError, match=r"\b7\b.*\b3\b") as caught:
        read_manifest(tmp_path, "vectors", 3)
    assert "upgrade" in str(caught.value.remedy)
    assert "rebuild" in str(caught.value.remedy)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (None, "no such file"),
        (b"", "expected JSON"),
        (b'{"kind": "vect', "expected JSON"),
        (b"\xff\xfe", "expected JSON"),
        (b"[" * 100_000, "expected JSON"),
        (b"[1]", "expected a JSON object, found a list"),
        (b'{"format_version": 1}', "has the kind None, not 'vectors'"),
        (b'{"kind": "index", "format_version": 1}', "has the kind 'index', not 'vectors'"),
        (b'{"kind": "vectors"}', "found None"),
        (b'{"kind": "vectors", "format_version": "1"}', "found '1'"),
        (b'{"kind": "vectors", "format_version": true}', "found True"),
        (b'{"kind": "vectors", "format_version": 0}', "found 0"),
    ],
)
def test_what_it_does_not_understand(tmp_path: Path, stored: bytes | None, message: str) -> None:
    if stored is not None:
        (tmp_path / "manifest.json").write_bytes(stored)
    with pytest.raises(IndexStateError, match=message) as caught:
        read_manifest(tmp_path, "vectors", 3)
    assert caught.value.where == str(tmp_path / "manifest.json")
    assert caught.value.remedy


def test_a_folder_that_is_a_file_or_holds_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(IndexStateError, match="no such file"):
        read_manifest(tmp_path / "file", "vectors", 1)
    with pytest.raises(IndexStateError, match="cannot be read"):
        read_manifest(tmp_path, "vectors", 1)


def test_a_damaged_name_of_the_checksum_is_told(tmp_path: Path) -> None:
    """Manifests of older releases have no checksum, but no unknown field either."""
    write_manifest(tmp_path, GOOD)
    path, fields = tmp_path / "manifest.json", {"a": dict, "b?": str}
    assert read_manifest(tmp_path, "vectors", 2, fields=fields) == GOOD
    path.write_text(path.read_text(encoding="utf-8").replace("checksum", "chfcksum"), encoding="utf-8")
    with pytest.raises(IndexStateError, match="unknown field: chfcksum"):
        read_manifest(tmp_path, "vectors", 2, fields=fields)
    path.write_text('{"kind": "vectors", "format_version": 1, "a": {}}', encoding="utf-8")
    assert read_manifest(tmp_path, "vectors", 2, fields=fields)["a"] == {}


def test_a_newer_release_may_add_a_field_with_a_checksum(tmp_path: Path) -> None:
    write_manifest(tmp_path, {**GOOD, "new": 1})
    assert read_manifest(tmp_path, "vectors", 2, fields={"a": dict, "b": str})["new"] == 1
