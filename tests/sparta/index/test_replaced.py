"""A folder that takes the place of another one, whose commits have the same numbers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparta.api import Index
from sparta.base.errors import IndexStateError
from sparta.index.build import delete_passages
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index
from sparta.index.snapshot import segments_of
from sparta.index.verify import verify_index
from sparta.sharing.backup import backup_index

pytestmark = pytest.mark.jvm


def built(path: Path, text: str) -> Path:
    build_index(path, [{"id": "one", "text": text}], "create", IndexOptions(channels="bm25"))
    return path


@pytest.mark.slow
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
        assert index.passage("one")["text"] == "sun"
        assert not index.refresh()
        shutil.rmtree(first)
        built(first, "star")
        assert same.refresh()
        assert same.passage("one")["text"] == "star"
        first.rename(tmp_path / "old")
        second.rename(first)
        assert same.refresh()
        assert same.passage("one")["text"] == "sun"


def copied_over(target: Path, source: Path) -> None:
    """Put a copy of `source` where `target` was; its commit file keeps its inode and times."""
    [commit] = target.rglob("segments_*")
    place, times, aside = commit.relative_to(target), commit.stat(), target.with_name("aside")
    commit.rename(aside)
    shutil.rmtree(target)
    shutil.copytree(source, target)
    aside.write_bytes((target / place).read_bytes())
    aside.rename(target / place)
    os.utime(target / place, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_replacement_within_the_resolution_of_the_clock_is_seen(tmp_path: Path) -> None:
    """The file that names the commit has the inode and the times of the one before."""
    first, second = built(tmp_path / "first", "moon"), built(tmp_path / "second", "sun")
    with Index(first) as index:
        version = index.version
        copied_over(first, second)
        assert index.refresh()
        assert (index.version, index.passage("one")["text"]) == (version, "sun")
        assert not index.refresh()


@pytest.mark.slow
def test_a_clock_that_jumps_back_hides_no_commit(tmp_path: Path) -> None:
    path = built(tmp_path / "index", "moon")
    with Index(path) as index:
        build_index(path, [{"id": "two", "text": "sun"}], "append", IndexOptions(channels="bm25"))
        for file in path.rglob("*"):
            os.utime(file, (0, 0))
        assert index.refresh()
        assert index.passage("two")["text"] == "sun"
        index.update([{"id": "two", "text": "star"}])
        for file in path.rglob("*"):
            os.utime(file, (4e9, 4e9))
        index.delete(["one"])
        assert [hit.passage_id for hit in index.search("star moon", channel="bm25")] == ["two"]


def test_copies_with_other_deletions_have_their_own_statistics(tmp_path: Path) -> None:
    """Both hold the same segments, and each deletes once."""
    records = [{"id": str(i), "text": f"{'alpha' if i < 100 else 'beta'} word{i}"} for i in range(200)]
    first, second = tmp_path / "first", tmp_path / "second"
    build_index(first, records, "create", IndexOptions(channels="bm25"))
    shutil.copytree(first, second)
    found = []
    with Index(first) as index, Index(second) as copy:
        index.delete([str(i) for i in range(30)])
        copy.delete([str(i) for i in range(100, 130)])
        for opened in (index, copy):
            found.append([hit.passage_id for hit in opened.search("alpha beta", 2)])
    assert found == [["30", "31"], ["130", "131"]]


def test_a_backup_copied_over_its_index_is_reported(tmp_path: Path) -> None:
    """As by `cp -r backup/. index`: Lucene opens the newer commit, which stays beside the backup's commit."""
    index, backup = built(tmp_path / "index", "moon"), tmp_path / "backup"
    backup_index(index, backup)
    build_index(index, [{"id": "two", "text": "sun"}], "update", IndexOptions(channels="bm25"))
    shutil.copytree(backup, index, dirs_exist_ok=True)
    [part] = [part for part in verify_index(index, quick=True) if part.problem]
    assert part.name == "Lucene index"
    assert "is not that of the manifest" in part.problem
    assert f"mv {index} {index}.old && cp -r BACKUP {index}" in str(part.remedy)
    (tmp_path / "index.old").mkdir()
    (tmp_path / "index.old-2").symlink_to("nowhere")
    [part] = [part for part in verify_index(index, quick=True) if part.problem]
    assert f"mv {index} {index}.old-3 && cp -r BACKUP {index}" in str(part.remedy)
    for use in (lambda: Index(index), lambda: delete_passages(IndexFolder(index), ["one"])):
        with pytest.raises(IndexStateError, match="is not that of the manifest"):
            use()
    index.rename(tmp_path / "old")
    shutil.copytree(backup, index)
    assert not any(part.problem for part in verify_index(index))


def test_an_update_between_the_readings_of_manifest_and_commit_is_no_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, updates = built(tmp_path / "index", "moon"), list[Path]()

    def updated_before(lucene: Path) -> tuple[int, bytes | None] | None:
        if not updates:
            updates.append(lucene)
            build_index(path, [{"id": "two", "text": "sun"}], "update", IndexOptions(channels="bm25"))
        return segments_of(lucene)

    monkeypatch.setattr("sparta.index.snapshot.segments_of", updated_before)
    assert backup_index(path, tmp_path / "backup").passages == 2
    assert IndexFolder(tmp_path / "backup").state() == IndexFolder(path).state()


@pytest.mark.parametrize("mode", ["update", "overwrite"])
def test_a_job_leaves_an_index_alone_that_takes_its_folder(tmp_path: Path, mode: str) -> None:
    """`mv served old && mv new served` in the middle of a job, as docs/service.md replaces an index."""
    options = IndexOptions(channels="bm25")
    served, new = tmp_path / "served", tmp_path / "new"
    build_index(served, [{"id": "a", "text": "moon"}], options=options)
    build_index(new, [{"id": "b", "text": "sun"}], options=options)
    expected = {path.relative_to(new): path.read_bytes() for path in new.rglob("*") if path.is_file()}

    def records() -> Iterator[dict[str, str]]:
        yield {"id": "c", "text": "tide"}
        served.rename(tmp_path / "old")
        new.rename(served)
        yield {"id": "d", "text": "sea"}

    with pytest.raises(IndexStateError, match="was replaced while it was written"):
        build_index(served, records(), mode, options)
    files_after = {
        path.relative_to(served): path.read_bytes() for path in served.rglob("*") if path.is_file()
    }
    assert files_after == expected
    build_index(served, [{"id": "c", "text": "tide"}], "update", options)
