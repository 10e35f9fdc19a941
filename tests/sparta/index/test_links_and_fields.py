"""Names and fields of an index's files: nothing outside is read or written, a wrong field is named."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparta.base.errors import IndexStateError, SpartaError, StorageError
from sparta.base.manifest import check_fields
from sparta.index.folder import IndexFolder
from sparta.index.verify import verify_index
from tests.sparta.index.building import Builder, Doc

Docs = Callable[..., list[Doc]]


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of the user's, outside the index."""
    path = tmp_path / "precious"
    path.write_text("precious")
    return path


@pytest.mark.jvm
@pytest.mark.parametrize(
    "name", ["manifest.json", "lock", "tokenizer-000001/tokenizer.json", "sparta-000001/_9.si"]
)
def test_a_link_inside_an_index_is_refused(builder: Builder, docs: Docs, precious: Path, name: str) -> None:
    builder.write(builder.source(docs("a", 8)))
    (builder.folder.path / name).unlink(missing_ok=True)
    (builder.folder.path / name).symlink_to(precious)
    before = precious.stat().st_mtime_ns
    for mode in ("append", "update", "overwrite"):
        with pytest.raises(IndexStateError) as caught:
            builder.write(builder.source(docs("b", 4)), mode)
        assert name in caught.value.where
    with pytest.raises(IndexStateError):
        builder.ranking("moon")
    assert any(part.problem for part in verify_index(builder.folder.path))
    assert (precious.read_text(), precious.stat().st_mtime_ns) == ("precious", before)


@pytest.mark.jvm
def test_the_index_folder_may_be_a_link(builder: Builder, docs: Docs, tmp_path: Path) -> None:
    builder.write(builder.source(docs("a", 8)))
    (tmp_path / "link").symlink_to(builder.folder.path)
    linked = Builder(IndexFolder(tmp_path / "link"), builder.side)
    linked.write(linked.source(docs("b", 4)), "append")
    assert len(linked.contents()) == 12
    assert not any(part.problem for part in verify_index(tmp_path / "link"))


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("live.number", "1"),
        ("live.number", -1),
        ("live.model", []),
        ("live.model.name", 1),
        ("live.model.quantizer.bits", "8"),
        ("live.language", ["en"]),
        ("live.unit", "chunk:x"),
        ("live.job", None),
        ("live.counts", 3),
        ("live.evil", 1),
        ("live", [1]),
        ("building", "x"),
    ],
)
def test_a_wrong_field_is_named(builder: Builder, docs: Docs, place: str, value: Any) -> None:
    builder.write(builder.source(docs("a", 8)))
    path = builder.folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["checksum"]
    *above, last = place.split(".")
    part = manifest
    for key in above:
        part = part[key]
    part[last] = value
    path.write_text(json.dumps(manifest))
    with pytest.raises(IndexStateError) as caught:
        builder.folder.state()
    assert place in caught.value.message
    assert caught.value.where == str(path)
    assert caught.value.remedy
    assert any(part.problem for part in verify_index(builder.folder.path))


def test_fields_are_checked_by_type_and_range(tmp_path: Path) -> None:
    fields = {"count": range(3), "rate": (int, float), "more?": {"name": str}}
    check_fields({"count": 2, "rate": 0.5, "other": []}, fields, tmp_path)
    for wrong in (
        {"count": 3, "rate": 1},
        {"count": True, "rate": 1},
        {"count": 1},
        {"count": 1, "rate": "1"},
        {"count": 1, "rate": 1, "more": []},
        {"count": 1, "rate": 1, "more": {"name": None}},
        [],
    ):
        with pytest.raises(IndexStateError):
            check_fields(wrong, fields, tmp_path)


@pytest.mark.jvm
@pytest.mark.parametrize("mode", ["create", "append", "update", "overwrite"])
def test_a_failing_disk_is_told_with_what_is_committed(
    builder: Builder, docs: Docs, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every sync of a file, also that of the manifest after Lucene's last commit."""
    sync = os.fsync
    told: list[str] = []
    calls = failing = 0

    def fsync(descriptor: int) -> None:
        nonlocal calls
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            calls += 1
            if calls == failing:
                raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for at in range(1, 20):
        shutil.rmtree(builder.folder.path, ignore_errors=True)
        if mode != "create":
            builder.write(builder.source(docs("a", 8)))
        calls, failing = 0, at
        try:
            builder.write(builder.source(docs("b", 4), name="b.jsonl"), mode)
        except StorageError as error:
            told.append(str(error))
        else:
            break
        finally:
            failing = 0
        source = builder.source(docs("b", 4), name="b.jsonl")
        started = builder.folder.exists()
        builder.write(source, mode, resume=started)
        assert len(builder.contents()) == (12 if mode in ("append", "update") else 4)
    assert told
    assert "4 passages of this job are committed" in told[-1]


@pytest.mark.jvm
def test_an_error_of_a_damaged_index_is_one_of_ours(builder: Builder, docs: Docs) -> None:
    builder.write(builder.source(docs("a", 8)))
    path = builder.folder.path / "manifest.json"
    path.write_text("[" * 200_000)
    with pytest.raises(SpartaError):
        builder.folder.state()
