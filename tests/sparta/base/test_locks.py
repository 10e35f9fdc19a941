"""Locks of files beside the operating system's own, and temporary folders that hold a lock."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparta.base.disk.locks import is_locked, lock, locked_folder
from sparta.base.disk.new_folders import appearing_folder, temporary_folder
from sparta.base.errors import StorageError


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with path.open("ab") as first, path.open("ab") as second:
        assert lock(first)
        assert is_locked(path)
        begin = time.monotonic()
        assert not lock(second, 0.1)
        assert time.monotonic() - begin >= 0.1
    assert not is_locked(path)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = "import sys, time; from sparta.base.disk.locks import lock; stream = open(sys.argv[1], 'ab');"
    code += "print(lock(stream), flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert is_locked(path)
        process.kill()
    assert not is_locked(path)


def test_readers_look_at_once_and_do_not_write(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch(mode=0o444)
    with path.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert not is_locked(path)
    assert not is_locked(tmp_path / "none")
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("number", "is_free"),
    [(errno.ENOSYS, True), (errno.ENOLCK, True), (errno.EACCES, False), (errno.EIO, None)],
)
def test_file_systems_that_answer_otherwise(
    number: int, is_free: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing disk (EIO) is an error, not a lock."""

    def refuse(*_: Any) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "lock").open("ab") as stream:
        if is_free is None:
            with pytest.raises(OSError, match="refused"):
                lock(stream)
        else:
            assert lock(stream) is is_free


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def abandoned(tmp_path: Path) -> Path:
    """The temporary folder of a killed process, beside a folder of unknown origin."""
    (tmp_path / ".sparta-unknown.tmp").mkdir()
    folder = tmp_path / ".sparta-killed.tmp"
    (folder / "content").mkdir(parents=True)
    (folder / "lock").touch()
    return folder


def test_a_temporary_folder_is_removed_only_after_its_process(abandoned: Path) -> None:
    parent = abandoned.parent
    with temporary_folder(parent) as running:
        assert not abandoned.exists()
        with appearing_folder(parent / "new") as folder:
            (folder / "file").touch()
        assert running.is_dir()
        assert names(parent / "new") == ["file"]
    assert names(parent) == [".sparta-unknown.tmp", "new"]


def test_a_lock_that_fails_is_an_error_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(StorageError, match="Input/output error"), locked_folder(tmp_path, "process"):
        pass


def test_without_locks_no_temporary_folder_is_removed(
    abandoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "refused")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with temporary_folder(abandoned.parent):
        assert abandoned.is_dir()
