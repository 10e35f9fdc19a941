"""Backups: one commit with all its channels, while other processes write, and after kills."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from sparta import Index, IndexOptions
from sparta.base.errors import IndexStateError, StorageError
from sparta.base.files import sha256_file
from sparta.index.folder import IndexFolder
from sparta.index.generation import Generation
from sparta.index.verify import verify_index
from sparta.sharing.backup import _copy, backup_index
from sparta.sharing.hub import pull
from tests.moments import watched

pytestmark = pytest.mark.jvm

FORMATS = Path(__file__).parents[2] / "formats"
QUERIES = ("the mill turns", "stars are far", "children by the river")
CHANNELS = ("impact", "bm25", "dense", "dense,impact")
WRITER = """
import sys
from sparta import Index, IndexOptions
index = Index.create(sys.argv[1], [{"id": "0", "text": "first"}], options=IndexOptions(channels="bm25"))
print("begun", flush=True)
for number in range(1, 100_000):
    index.append([{"id": str(number), "text": f"number {number}"}])
    if number % 7 == 0:
        index.delete([str(number - 3)])
"""
BACKUP = "from cli._sparta import main; main()"


@pytest.fixture(params=["sparta", "lucene"])
def index(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with all channels, chunks, metadata and deletions; its models lie in the working folder."""
    monkeypatch.chdir(FORMATS / "models")
    return Path(shutil.copytree(FORMATS / f"whole-2-{request.param}", tmp_path / "index"))


def rankings(path: Path) -> list[Any]:
    """The rankings of all channels: ids and scores. NumPy and OpenVINO round dense queries differently."""
    with Index(path) as index:
        return [
            [
                (each.passage_id, round(each.score, 3))
                for each in index.retriever(channel).run([query], ["q"], 20)["q"]
            ]
            for channel in CHANNELS
            for query in QUERIES
        ]


def is_undamaged(path: Path) -> bool:
    return not any(part.problem for part in verify_index(path))


def contents(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): sha256_file(file) for file in path.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_a_backup_ranks_like_its_index_after_the_index_changed(tmp_path, index):
    expected, backup = rankings(index), tmp_path / "folder" / "backup"
    report = backup_index(index, backup)
    files = contents(backup)
    assert (report.files, report.passages) == (len(files), 14)
    with Index(index) as changed:
        changed.append([{"id": "new", "text": "Stars of the sky are far suns by the river."}])
        changed.delete(["mill"])
    Index.create(index, [{"id": "other", "text": "Other text."}], overwrite=True).close()
    assert contents(backup) == files
    assert rankings(backup) == expected
    assert is_undamaged(backup)


def test_files_copied_over_an_index_leave_its_backup_alone(tmp_path: Path, index: Path) -> None:
    """As by `cp -r new/. index`, which writes into the existing files."""
    backup_index(index, tmp_path / "backup")
    files = contents(tmp_path / "backup")
    for file in index.rglob("*"):
        if file.is_file():
            file.write_bytes(b"another index")
    assert contents(tmp_path / "backup") == files


@pytest.mark.slow
def test_changing_a_backup_leaves_its_index_alone(tmp_path, index):
    backup_index(index, tmp_path / "backup")
    expected, files = rankings(index), contents(index)
    with Index(tmp_path / "backup") as changed:
        changed.append([{"id": "new", "text": "Stars of the sky."}])
        changed.delete(["mill"])
    assert contents(index) == files
    assert rankings(index) == expected


def test_another_disk_gets_copies(tmp_path, index):
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK) or shared_memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system at /dev/shm")
    backup = shared_memory / f"sparta-test-{os.getpid()}"
    try:
        backup_index(index, backup)
        assert rankings(backup) == rankings(index)
        assert is_undamaged(backup)
    finally:
        shutil.rmtree(backup)


def test_a_backup_is_moved_zipped_and_unpacked(tmp_path, index):
    expected = rankings(index)
    backup_index(index, tmp_path / "backup")
    archive = shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path / "backup")
    shutil.rmtree(index)
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    assert rankings(tmp_path / "unpacked") == expected
    with Index(tmp_path / "unpacked") as moved:
        moved.append([{"id": "new", "text": "Stars of the sky."}])
        assert len(moved) == 15


@pytest.mark.parametrize("place", ["full", "inside", "a file"])
def test_a_wrong_destination_is_refused(tmp_path, index, place):
    files = contents(index)
    destination = {"full": tmp_path, "inside": index / "copy", "a file": tmp_path / "file"}[place]
    (tmp_path / "file").write_text("text")
    with pytest.raises(IndexStateError):
        backup_index(index, destination)
    assert contents(index) == files
    assert not list(tmp_path.glob(".sparta-*"))


def test_a_link_or_mount_point_is_refused_before_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index.create(tmp_path / "ix", [{"text": "moon"}], options=IndexOptions(channels="bm25")).close()
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path).name == "disk")
    monkeypatch.setattr("sparta.sharing.backup.appearing_folder", None)
    for name, kind in (("disk", "mount point"), ("link", "link")):
        with pytest.raises(IndexStateError, match=f"is a {kind}, which") as refused:
            backup_index(tmp_path / "ix", tmp_path / name)
        assert str(refused.value.remedy).endswith(str(tmp_path / name / "NAME"))
        with pytest.raises(IndexStateError, match=f"is a {kind}, which"):
            pull("me/ix", tmp_path / name)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that fails to be read")
def test_an_index_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    def refuse(action: str, path: Path) -> None:
        if action == "read" and path.suffix == ".cfs":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    Index.create(tmp_path / "ix", [{"text": "moon"}], options=IndexOptions(channels="bm25")).close()
    with watched(refuse), pytest.raises(StorageError, match="cannot be read: Permission") as not_opened:
        backup_index(tmp_path / "ix", tmp_path / "backup")
    assert not_opened.value.where.startswith(f"{tmp_path / 'ix'}/")
    with Path("/proc/self/mem").open("rb") as stream, pytest.raises(StorageError) as not_read:
        _copy(stream, tmp_path / "copy")
    assert not_read.value.where == "/proc/self/mem"


def test_without_an_index_nothing_is_made(tmp_path):
    with pytest.raises(IndexStateError, match="no index"):
        backup_index(tmp_path / "none", tmp_path / "backup")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_backups_under_writes_hold_whole_commits(tmp_path):
    """The writer commits without a pause, so files vanish during the backups and the checks."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "index")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout
        assert writer.stdout.readline() == "begun\n"
        last_ids = []
        for number in range(12):
            backup = tmp_path / f"backup-{number}"
            report = backup_index(tmp_path / "index", backup)
            with Index(backup) as copy:
                [ranking] = copy.run(["number"], k=100_000, channel="bm25").values()
            ids = set(map(int, ranking.passage_ids))
            last = max(ids, default=0)
            deleted = {seventh - 3 for seventh in range(7, last, 7)}
            assert deleted <= set(range(1, last + 1)) - ids <= {*deleted, last - 3}
            assert report.passages == len(ids) + 1
            assert is_undamaged(backup)
            assert is_undamaged(tmp_path / "index")
            last_ids.append(last)
        assert last_ids == sorted(last_ids)
        assert last_ids[-1] > last_ids[0]
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.slow
@pytest.mark.parametrize("index", ["sparta"], indirect=True)
def test_a_killed_backup_is_absent_or_whole(tmp_path, index):
    expected, rng = rankings(index), random.Random(1)
    command = [sys.executable, "-c", BACKUP, "backup", str(tmp_path / "backup"), "--index", str(index)]
    started = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - started
    for _ in range(4):
        shutil.rmtree(tmp_path / "backup", ignore_errors=True)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds * rng.uniform(0.5, 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert rankings(index) == expected
        if (tmp_path / "backup").exists():
            assert rankings(tmp_path / "backup") == expected
    shutil.rmtree(tmp_path / "backup", ignore_errors=True)
    subprocess.run(command, check=True, capture_output=True)
    assert rankings(tmp_path / "backup") == expected
    assert not list(tmp_path.glob(".sparta-*")), "a backup removes what killed backups left"


@pytest.mark.slow
def test_an_interrupted_build_is_backed_up_and_continued(tmp_path):
    """The backup of an unfinished first build holds its committed passages, the first batch of 1000."""
    corpus = tmp_path / "corpus.jsonl"
    records = [{"id": str(number), "text": f"number {number}"} for number in range(1005)]
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records))

    def stop(count: int) -> None:
        if count:
            raise KeyboardInterrupt

    options = IndexOptions(channels="bm25", commit_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        Index.create(tmp_path / "index", corpus, options=options, advance=stop)
    report = backup_index(tmp_path / "index", tmp_path / "backup")
    assert report.passages == 1000
    resumed = IndexOptions(channels="bm25", resume=True)
    with Index.create(tmp_path / "backup", corpus, options=resumed) as index:
        assert len(index) == 1005


@pytest.mark.parametrize(("open_files", "copied_id"), [(1000, "1"), (2, "2")])
def test_a_backup_during_the_end_of_an_overwrite_stays_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_files: int, copied_id: str
) -> None:
    """The copied generation was live when the backup began, so the copy can be written.

    If too few files can be open at once, the overwrite removes other files, and the copy starts again.
    """
    options = IndexOptions(channels="bm25")
    Index.create(tmp_path / "ix", [{"id": "1", "text": "moon"}], options=options).close()
    overwritten = []

    def copy_beside_overwrite(stream: BinaryIO, target: Path) -> None:
        if not overwritten:
            overwritten.append(target)
            new = [{"id": "2", "text": "sun"}]
            Index.create(tmp_path / "ix", new, overwrite=True, options=options).close()
            assert not list((tmp_path / "ix").glob("*-000001"))
        _copy(stream, target)

    monkeypatch.setattr("sparta.sharing.backup._copy", copy_beside_overwrite)
    monkeypatch.setattr("sparta.sharing.backup.allow_open_files", lambda more: min(more, open_files))
    backup_index(tmp_path / "ix", tmp_path / "copy")
    assert overwritten
    with Index(tmp_path / "copy") as copy:
        assert [hit.passage_id for hit in copy.search("moon sun")] == [copied_id]
        copy.append([{"id": "3", "text": "star"}])
        assert copy.delete([copied_id]) == 1


def test_a_backup_during_the_end_of_a_first_build_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last commit of the build and its manifest."""
    finish = IndexFolder.finish

    def backed_up(folder: IndexFolder, generation: Generation) -> None:
        backup_index(folder.path, tmp_path / "copy")
        finish(folder, generation)

    monkeypatch.setattr(IndexFolder, "finish", backed_up)
    records, options = [{"id": "1", "text": "moon"}], IndexOptions(channels="bm25")
    Index.create(tmp_path / "ix", records, options=options).close()
    assert IndexFolder(tmp_path / "copy").state() == IndexFolder(tmp_path / "ix").state()
