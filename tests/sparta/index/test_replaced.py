"""A folder that takes the place of another one, whose commits have the same numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparta.api import Index
from sparta.index.pipeline import IndexOptions, build_index

pytestmark = pytest.mark.jvm


def built(path: Path, text: str) -> Path:
    build_index(path, [{"id": "one", "text": text}], "create", IndexOptions(channels="bm25"))
    return path


def test_another_index_in_its_place_is_seen(tmp_path: Path) -> None:
    """By a renamed folder, by a link that points elsewhere, and by a folder that is made anew."""
    first, second = built(tmp_path / "first", "moon"), built(tmp_path / "second", "sun")
    link = tmp_path / "live"
    link.symlink_to(first)
    with Index(link) as index, Index(first) as same:
        version = index.version
        assert not index.refresh()
        link.unlink()
        link.symlink_to(second)
        assert index.refresh()
        assert index.version == version
        assert index.passage("one")["contents"] == "sun"
        assert not index.refresh()
        shutil.rmtree(first)
        built(first, "star")
        assert same.refresh()
        assert same.passage("one")["contents"] == "star"
        first.rename(tmp_path / "old")
        second.rename(first)
        assert same.refresh()
        assert same.passage("one")["contents"] == "sun"
